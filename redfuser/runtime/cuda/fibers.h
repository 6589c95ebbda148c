// Context switches: one stack per CUDA thread, all on the operating system's thread that launches.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include "state.h"

namespace rf {

constexpr size_t STACK = 256 << 10, MAX_THREADS = 1024;

static char* stacks;

#if (defined(__x86_64__) || defined(__aarch64__)) && defined(__linux__)
extern "C" void rf_switch(void** save, void* load);
#endif

#if defined(__x86_64__) && defined(__linux__)
asm(R"(
.text
.globl rf_switch
.hidden rf_switch
.type rf_switch, @function
rf_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size rf_switch, .-rf_switch
)");

static void* new_stack(char* top, void (*entry)()) {
    void** s = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~static_cast<uintptr_t>(15));
    *--s = nullptr;  // where `entry` would return: it never does
    *--s = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; i++) *--s = nullptr;
    return s;
}
#elif defined(__aarch64__) && defined(__linux__)
asm(R"(
.text
.globl rf_switch
.hidden rf_switch
.type rf_switch, %function
rf_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size rf_switch, .-rf_switch
)");

static void* new_stack(char* top, void (*entry)()) {
    char* s = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(top) & ~static_cast<uintptr_t>(15)) - 160;
    for (int i = 0; i < 20; i++) reinterpret_cast<void**>(s)[i] = nullptr;
    reinterpret_cast<void**>(s)[11] = reinterpret_cast<void*>(entry);  // x30: where the first switch returns to
    return s;
}
#else  // two system calls per switch, but everywhere
#include <ucontext.h>
static void rf_switch(void** save, void* load) {
    ucontext_t here;
    *save = &here;
    swapcontext(&here, static_cast<ucontext_t*>(load));
}

static void* new_stack(char* top, void (*entry)()) {
    const uintptr_t place = (reinterpret_cast<uintptr_t>(top) - sizeof(ucontext_t)) & ~static_cast<uintptr_t>(63);
    ucontext_t* context = reinterpret_cast<ucontext_t*>(place);
    getcontext(context);
    context->uc_stack.ss_sp = top - STACK + 4096;
    context->uc_stack.ss_size = reinterpret_cast<char*>(context) - (top - STACK + 4096);
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
    return context;
}
#endif

static void* main_stack;

[[noreturn]] static void stop_launch() {
    void* unused;
    machine.running = nullptr;
    rf_switch(&unused, main_stack);
    abort();
}

// Stacks of all threads, each with a page below that no one may touch. False: the system has no memory.
static bool make_stacks() {
    if (stacks) return true;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* memory = mmap(nullptr, STACK * MAX_THREADS, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED) return false;
    stacks = static_cast<char*>(memory);
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    for (size_t i = 0; i < MAX_THREADS; i++) mprotect(stacks + i * STACK, page, PROT_NONE);
    machine.stack_low = reinterpret_cast<uint64_t>(stacks);
    machine.stack_high = machine.stack_low + STACK * MAX_THREADS;
    return true;
}

// ---- the queue of threads that can go on ----

static std::vector<Fiber*> queue;
static size_t queue_start;

static void make_ready(Fiber* fiber) {
    fiber->state = READY;
    queue.push_back(fiber);
}

// The thread to run next, nullptr when none can. Seed 0 takes them in order, 1 the last first, others at random.
static Fiber* next_ready() {
    if (queue_start == queue.size()) {
        queue.clear();
        queue_start = 0;
        return nullptr;
    }
    if (launch.seed > 1) {
        const size_t left = queue.size() - queue_start;
        std::swap(queue[queue_start], queue[queue_start + random_number() % left]);
    } else if (launch.seed == 1) {
        Fiber* last = queue.back();
        queue.pop_back();
        return last;
    }
    Fiber* fiber = queue[queue_start++];
    if (queue_start > 4096 && queue_start * 2 > queue.size()) {
        queue.erase(queue.begin(), queue.begin() + static_cast<ptrdiff_t>(queue_start));
        queue_start = 0;
    }
    return fiber;
}

// Run `next` in place of `self`; without one go back to the launch, which reports the deadlock.
static void switch_to(Fiber* self, Fiber* next) {
    if (next == self) return;
    machine.running = next;
    rf_switch(&self->stack, next ? next->stack : main_stack);
}

static void wait_here(Fiber* self, const char* what, uint32_t site) {
    self->state = WAITING;
    self->waits_for = what;
    self->wait_site = site;
    switch_to(self, next_ready());
}

// Let others run first, where an order of threads may matter. The last-first order would come straight back.
static void yield(Thread* thread) {
    Fiber* self = static_cast<Fiber*>(thread);
    if (launch.seed == 1) {
        self->state = READY;
        queue.insert(queue.begin() + static_cast<ptrdiff_t>(queue_start), self);
    } else {
        make_ready(self);
    }
    switch_to(self, next_ready());
}

}  // namespace rf
