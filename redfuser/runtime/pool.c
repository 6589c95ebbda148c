/* The thread pool and the workspace of all kernels of a process.
 *
 * Workers are started when first needed and never end. Between jobs they spin for a short while, then sleep. A worker
 * takes part in a job only while the job is open; the caller closes it once its own share of the tasks is done and then
 * waits only for the workers that did take part, never for one that the system has not scheduled yet.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

#define MAX_WORKERS 255
#define SPIN 2000           /* trips before a worker sleeps, some tens of microseconds */
#define OPEN 0x80000000u    /* bit of `state`: workers may join */

typedef void task_function(void *context, int thread, int threads);

static struct {
  pthread_mutex_t owner;    /* held by the thread whose job is running */
  pthread_mutex_t sleep;
  pthread_cond_t wake;
  atomic_uint generation;   /* one more for every job */
  atomic_uint state;        /* OPEN, plus the number of workers inside the job */
  atomic_int sleepers;
  task_function *task;
  void *context;
  int threads;
  int workers;              /* started so far; touched by the owner only */
} pool = {.owner = PTHREAD_MUTEX_INITIALIZER, .sleep = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static inline void pause_cpu(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Wait until the generation differs from `seen`; returns it. */
static unsigned next_generation(unsigned seen) {
  unsigned now;
  for (int trip = 0; trip < SPIN; trip++) {
    now = atomic_load_explicit(&pool.generation, memory_order_acquire);
    if (now != seen) return now;
    pause_cpu();
  }
  pthread_mutex_lock(&pool.sleep);
  atomic_fetch_add(&pool.sleepers, 1);
  while ((now = atomic_load(&pool.generation)) == seen) pthread_cond_wait(&pool.wake, &pool.sleep);
  atomic_fetch_sub(&pool.sleepers, 1);
  pthread_mutex_unlock(&pool.sleep);
  return now;
}

/* Enter the open job, if there is one. */
static int join(void) {
  unsigned state = atomic_load_explicit(&pool.state, memory_order_acquire);
  while (state & OPEN)
    if (atomic_compare_exchange_weak_explicit(&pool.state, &state, state + 1, memory_order_acq_rel, memory_order_acquire))
      return 1;
  return 0;
}

static void *worker(void *argument) {
  const int id = (int)(intptr_t)argument;
  for (unsigned seen = 0;;) {
    seen = next_generation(seen);
    if (!join()) continue;
    if (id < pool.threads) pool.task(pool.context, id, pool.threads);
    atomic_fetch_sub_explicit(&pool.state, 1, memory_order_release);
  }
  return 0;
}

/* A forked child has none of the workers, and locks in whatever state they were. */
static void after_fork(void) {
  pool.workers = 0;
  pool.owner = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  pool.sleep = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  pool.wake = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
  atomic_store(&pool.generation, 0);
  atomic_store(&pool.state, 0);
  atomic_store(&pool.sleepers, 0);
}

static void start_workers(int count) {
  static int watching = 0;
  if (!watching) watching = pthread_atfork(0, 0, after_fork) == 0;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes)) return;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  sigset_t all, before; /* signals belong to the host's threads: workers start with all of them blocked */
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (watching && pool.workers < count && pool.workers < MAX_WORKERS) {
    pthread_t thread;
    if (pthread_create(&thread, &attributes, worker, (void *)(intptr_t)(pool.workers + 1))) break; /* fewer threads do */
    pool.workers++;
  }
  pthread_sigmask(SIG_SETMASK, &before, 0);
  pthread_attr_destroy(&attributes);
}

/* Run task(context, id, threads) on up to `threads` threads and wait for all of them. Tasks share their work through a
 * counter, so fewer threads only take longer: a caller that finds the pool busy does all of it alone. */
void pool_run(task_function *task, void *context, int threads) {
  if (threads <= 1 || pthread_mutex_trylock(&pool.owner)) {
    task(context, 0, 1);
    return;
  }
  if (pool.workers < threads - 1) start_workers(threads - 1);
  pool.task = task;
  pool.context = context;
  pool.threads = threads;
  atomic_store_explicit(&pool.state, OPEN, memory_order_release);
  atomic_fetch_add(&pool.generation, 1);
  if (atomic_load(&pool.sleepers) > 0) {
    pthread_mutex_lock(&pool.sleep);
    pthread_cond_broadcast(&pool.wake);
    pthread_mutex_unlock(&pool.sleep);
  }
  task(context, 0, threads);
  atomic_fetch_and_explicit(&pool.state, ~OPEN, memory_order_acq_rel);
  for (int trip = 0; atomic_load_explicit(&pool.state, memory_order_acquire) != 0; trip++) {
    pause_cpu();
    if (trip > 100 * SPIN) nanosleep(&(struct timespec){0, 20000}, 0);
  }
  pthread_mutex_unlock(&pool.owner);
}

/* ---- workspace: a few blocks are kept, because fresh pages cost more than most kernels ---- */

#define SLOTS 4
#define KEPT_BYTES ((int64_t)64 << 20)  /* larger blocks go back to the system */
#define HUGE_PAGE ((int64_t)2 << 20)

struct block { int64_t bytes; };  /* header, one cache line before the memory handed out */
static _Atomic(struct block *) kept[SLOTS];

void *pool_acquire(int64_t bytes) {
  for (int i = 0; i < SLOTS; i++) {
    struct block *b = atomic_exchange(&kept[i], 0);
    if (!b) continue;
    if (b->bytes >= bytes) return (char *)b + 64;
    free(b);
  }
  if (bytes < 0 || bytes > INT64_MAX - 2 * HUGE_PAGE) return 0;
  const int64_t alignment = bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : 64;
  const int64_t total = (bytes + 64 + alignment - 1) / alignment * alignment;
  struct block *b = aligned_alloc((size_t)alignment, (size_t)total);
  if (!b) return 0;
#ifdef MADV_HUGEPAGE
  if (alignment == HUGE_PAGE) madvise(b, (size_t)total, MADV_HUGEPAGE);
#endif
  b->bytes = total - 64;
  return (char *)b + 64;
}

void pool_release(void *memory) {
  struct block *b = (struct block *)((char *)memory - 64);
  if (b->bytes <= KEPT_BYTES)
    for (int i = 0; i < SLOTS; i++) {
      struct block *none = 0;
      if (atomic_compare_exchange_strong(&kept[i], &none, b)) return;
    }
  free(b);
}

struct runtime {
  void (*run)(task_function *task, void *context, int threads);
  void *(*acquire)(int64_t bytes);
  void (*release)(void *block);
};
const struct runtime pool_runtime = {pool_run, pool_acquire, pool_release};
