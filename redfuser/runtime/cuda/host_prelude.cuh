// CUDA as a host compiler understands it: what is put before a CUDA text that is compiled without NVRTC.
//
// The compiler's own instrumentation (ThreadSanitizer's calls at every access, UBSan's at undefined operations) reports
// to the executor. Inline PTX is not understood: text that has some offers these functions instead where the macro
// REDFUSER_HOST is defined: rf_host::cp_async, cp_async_commit, cp_async_wait, ldmatrix, mma, barrier.
#pragma once
#define REDFUSER_HOST 1
#include <dlfcn.h>
#include <math.h>

#include "ptx_support.h"

#ifdef __clang__
#define RF_PLAIN __attribute__((no_sanitize("thread", "undefined", "coverage")))
#else
#define RF_PLAIN __attribute__((no_sanitize("thread", "undefined"), no_sanitize_coverage))
#endif
#define RF_INLINE static inline RF_PLAIN
#define RF_HOOK extern "C" __attribute__((visibility("hidden"), used)) RF_PLAIN
#define RF_PC __builtin_return_address(0)
#define RF_CALL static RF_PLAIN __attribute__((noinline))  // a function whose site is where it is called
#define RF_LINE (0x80000000u | (unsigned)__LINE__)  // a site that is the line itself

namespace rf {
RF_INLINE Thread* self() { return machine->running; }
RF_INLINE Dim thread_index() { return machine->running->id; }
RF_INLINE Dim block_index() { return machine->block; }
RF_INLINE Dim block_size() { return machine->block_size; }
RF_INLINE Dim grid_size() { return machine->grid_size; }
}

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#define __restrict__ __restrict
#define __shared__ static __attribute__((section("rf_shared")))
#define threadIdx (::rf::thread_index())
#define blockIdx (::rf::block_index())
#define blockDim (::rf::block_size())
#define gridDim (::rf::grid_size())
static constexpr int warpSize = 32;

alignas(1024) __attribute__((section("rf_shared"), used)) static unsigned char rf_section_start[1024];
extern "C" __attribute__((weak, visibility("hidden"))) unsigned char __start_rf_shared[], __stop_rf_shared[];

// ---- vector types ----

struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) double2 { double x, y; };
struct uint3 { unsigned x, y, z; };
RF_INLINE float __fmul_rn(float x, float y) { return x * y; } /* the host compiler joins nothing: -ffp-contract=off */
RF_INLINE double __dmul_rn(double x, double y) { return x * y; }
RF_INLINE float2 make_float2(float x, float y) { return {x, y}; }
RF_INLINE float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
RF_INLINE int2 make_int2(int x, int y) { return {x, y}; }
RF_INLINE int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
RF_INLINE uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
RF_INLINE uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// ---- bits, integers, single precision ----

RF_INLINE unsigned __float_as_uint(float x) { return rf::bits<unsigned>(x); }
RF_INLINE int __float_as_int(float x) { return rf::bits<int>(x); }
RF_INLINE float __uint_as_float(unsigned x) { return rf::bits<float>(x); }
RF_INLINE float __int_as_float(int x) { return rf::bits<float>(x); }
RF_INLINE int __popc(unsigned x) { return __builtin_popcount(x); }
RF_INLINE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
RF_INLINE int __ffs(int x) { return __builtin_ffs(x); }
RF_INLINE unsigned __brev(unsigned x) { return rf::reversed(x); }
RF_INLINE unsigned __byte_perm(unsigned a, unsigned b, unsigned s) { return rf::permuted(a, b, s); }
RF_INLINE unsigned __umulhi(unsigned a, unsigned b) { return rf::high(a, b); }
RF_INLINE int __mulhi(int a, int b) { return rf::high(a, b); }

template <class A, class B>
RF_INLINE auto rf_min(A a, B b) { using T = decltype(a + b); return (T)a < (T)b ? (T)a : (T)b; }
template <class A, class B>
RF_INLINE auto rf_max(A a, B b) { using T = decltype(a + b); return (T)a > (T)b ? (T)a : (T)b; }
RF_INLINE float rf_min(float a, float b) { return rf::float_min<false>(a, b); }
RF_INLINE float rf_max(float a, float b) { return rf::float_max<false>(a, b); }
RF_INLINE double rf_min(double a, double b) { return rf::float_min<false>(a, b); }
RF_INLINE double rf_max(double a, double b) { return rf::float_max<false>(a, b); }
#define min rf_min
#define max rf_max
#define fminf rf_min
#define fmaxf rf_max
#define fmin rf_min
#define fmax rf_max
RF_INLINE float rf_exp(float x) { return __builtin_exp2f(x * 1.4426950408889634f); }
RF_INLINE float rf_log(float x) { return __builtin_log2f(x) * 0.6931471805599453f; }
#define __expf rf_exp
#define __logf rf_log
#define rsqrtf rf::approx_rsqrt
#define exp2f __builtin_exp2f
RF_INLINE float __frcp_rn(float x) { return 1 / x; }
RF_INLINE float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
RF_INLINE float __fdividef(float a, float b) { return rf::divide_approx(a, b); }
RF_INLINE float __saturatef(float x) { return rf::saturated(x); }
RF_INLINE float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// ---- half types, as far as loads, stores and conversions go ----

struct __half { unsigned short bits; };
struct __nv_bfloat16 { unsigned short bits; };
RF_INLINE float __half2float(__half x) { return rf::f16_to_float(x.bits); }
RF_INLINE __half __float2half(float x) { return {rf::float_to_f16(x)}; }
RF_INLINE __half __float2half_rn(float x) { return {rf::float_to_f16(x)}; }
RF_INLINE float __bfloat162float(__nv_bfloat16 x) { return rf::bf16_to_float(x.bits); }
RF_INLINE __nv_bfloat16 __float2bfloat16(float x) { return {rf::float_to_bf16(x)}; }
RF_INLINE __nv_bfloat16 __float2bfloat16_rn(float x) { return {rf::float_to_bf16(x)}; }

// ---- what threads do together ----

#define __syncthreads() (void)::rf::rx->barrier(::rf::self(), 0, 0, ::rf::PLAIN, false, true, RF_LINE)
#define __syncthreads_or(p) (int)::rf::rx->barrier(::rf::self(), 0, 0, ::rf::ANY, (p) != 0, true, RF_LINE)
#define __syncthreads_and(p) (int)::rf::rx->barrier(::rf::self(), 0, 0, ::rf::ALL, (p) != 0, true, RF_LINE)
#define __syncthreads_count(p) (int)::rf::rx->barrier(::rf::self(), 0, 0, ::rf::COUNT, (p) != 0, true, RF_LINE)
#define __syncwarp(...) ::rf_host::warp_barrier(RF_LINE __VA_OPT__(, ) __VA_ARGS__)
#define __threadfence() ::rf::rx->fence(::rf::self(), 1)
#define __threadfence_block() ::rf::rx->fence(::rf::self(), 0)
#define __threadfence_system() ::rf::rx->fence(::rf::self(), 1)
#define __activemask() ::rf::rx->active(::rf::self())
#define __shfl_xor_sync(...) ::rf_host::shuffle(RF_LINE, ::rf::SHUFFLE_XOR, __VA_ARGS__)
#define __shfl_down_sync(...) ::rf_host::shuffle(RF_LINE, ::rf::SHUFFLE_DOWN, __VA_ARGS__)
#define __shfl_up_sync(...) ::rf_host::shuffle(RF_LINE, ::rf::SHUFFLE_UP, __VA_ARGS__)
#define __shfl_sync(...) ::rf_host::shuffle(RF_LINE, ::rf::SHUFFLE_INDEX, __VA_ARGS__)
#define __ballot_sync(mask, p) ::rf::rx->vote(::rf::self(), mask, (p) != 0, RF_LINE)
#define __any_sync(mask, p) (::rf::rx->vote(::rf::self(), mask, (p) != 0, RF_LINE) != 0)
#define __all_sync(mask, p) (::rf::rx->vote(::rf::self(), mask, (p) != 0, RF_LINE) == (unsigned)(mask))
#define __reduce_add_sync(mask, v) ::rf_host::reduce(RF_LINE, ::rf::SUM, ::rf::SUM, mask, v)
#define __reduce_min_sync(mask, v) ::rf_host::reduce(RF_LINE, ::rf::MIN_U, ::rf::MIN_S, mask, v)
#define __reduce_max_sync(mask, v) ::rf_host::reduce(RF_LINE, ::rf::MAX_U, ::rf::MAX_S, mask, v)
#define __reduce_and_sync(mask, v) ::rf_host::reduce(RF_LINE, ::rf::AND, ::rf::AND, mask, v)
#define __reduce_or_sync(mask, v) ::rf_host::reduce(RF_LINE, ::rf::OR, ::rf::OR, mask, v)
#define __reduce_xor_sync(mask, v) ::rf_host::reduce(RF_LINE, ::rf::XOR, ::rf::XOR, mask, v)

namespace rf_host {
using namespace rf;

RF_HOOK void anchor() {}  // code addresses are told as distances from here: the Python side finds their lines
RF_PLAIN static unsigned site_of(const void* pc) {
    return (unsigned)((intptr_t)pc - 1 - (intptr_t)&anchor + (1 << 30)) & 0x7fffffffu;
}

RF_INLINE void warp_barrier(unsigned site, unsigned mask = 0xffffffffu) { rx->warp_barrier(self(), mask, site); }

template <class T>
RF_PLAIN static T shuffle(unsigned site, int mode, unsigned mask, T value, unsigned offset, int width = 32) {
    static_assert(sizeof(T) % 4 == 0, "shuffles move words");
    const unsigned control = (unsigned)(32 - width) << 8 | (mode == SHUFFLE_UP ? 0 : 31);
    unsigned words[sizeof(T) / 4];
    __builtin_memcpy(words, &value, sizeof value);
    bool valid;
    for (unsigned& word : words) word = rx->shuffle(self(), mode, mask, word, offset, control, &valid, site);
    __builtin_memcpy(&value, words, sizeof value);
    return value;
}

template <class T>
RF_PLAIN static T reduce(unsigned site, int plain, int with_sign, unsigned mask, T value) {
    return (T)rx->reduce(self(), (T)-1 < (T)0 ? with_sign : plain, mask, (unsigned)value, site);
}

template <class T, class Update>
RF_PLAIN static T atomic(unsigned site, T* place, Update update) {
    unsigned char* p = rx->generic(self(), (uint64_t)place, sizeof(T), ATOMIC, site);
    T old;
    __builtin_memcpy(&old, p, sizeof old);
    const T changed = update(old);
    __builtin_memcpy(p, &changed, sizeof changed);
    return old;
}

RF_PLAIN static unsigned shared_address(const void* p) {
    const unsigned char* byte = static_cast<const unsigned char*>(p);
    if (byte >= __start_rf_shared && byte < __stop_rf_shared)
        return (unsigned)(byte - __start_rf_shared) + (1u << 18) + SHARED_BASE;
    return (unsigned)(byte - machine->shared) + SHARED_BASE;
}

// The instructions without a CUDA function. Addresses are pointers; `used` bytes are copied, the rest is zero.
RF_CALL void cp_async(void* to, const void* from, unsigned size, unsigned used) {
    rx->copy(self(), shared_address(to), (uint64_t)from, size, used, site_of(RF_PC));
}
RF_INLINE void cp_async_commit() { rx->commit(self()); }
RF_CALL void cp_async_wait(unsigned pending) { rx->wait(self(), pending, site_of(RF_PC)); }
RF_CALL void barrier(int id, int threads, bool waits) {
    rx->barrier(self(), id, threads, PLAIN, false, waits, site_of(RF_PC));
}
template <int count, bool transposed>
RF_CALL void ldmatrix(unsigned (&registers)[count], const void* row) {
    rx->load_matrix(self(), shared_address(row), count, transposed, registers, site_of(RF_PC));
}
template <int k, Operand type, int A, int B>
RF_CALL void mma(float (&d)[4], const unsigned (&a)[A], const unsigned (&b)[B], const float (&c)[4]) {
    unsigned in[4], out[4];
    __builtin_memcpy(in, c, sizeof in);
    const Product p = {out, a, b, in, k, type, type, false, false, false};
    rx->product(self(), &p, site_of(RF_PC));
    __builtin_memcpy(d, out, sizeof out);
}
RF_INLINE unsigned char* dynamic_shared() { return machine->shared; }
}  // namespace rf_host

#define __cvta_generic_to_shared(p) ((size_t)::rf_host::shared_address(p))
#define atomicAdd(p, v) ::rf_host::atomic(RF_LINE, p, [&](auto old) { return (decltype(old))(old + (v)); })
#define atomicSub(p, v) ::rf_host::atomic(RF_LINE, p, [&](auto old) { return (decltype(old))(old - (v)); })
#define atomicMax(p, v) \
    ::rf_host::atomic(RF_LINE, p, [&](auto old) { return old > (decltype(old))(v) ? old : (decltype(old))(v); })
#define atomicMin(p, v) \
    ::rf_host::atomic(RF_LINE, p, [&](auto old) { return old < (decltype(old))(v) ? old : (decltype(old))(v); })
#define atomicAnd(p, v) ::rf_host::atomic(RF_LINE, p, [&](auto old) { return (decltype(old))(old & (v)); })
#define atomicOr(p, v) ::rf_host::atomic(RF_LINE, p, [&](auto old) { return (decltype(old))(old | (v)); })
#define atomicExch(p, v) ::rf_host::atomic(RF_LINE, p, [&](auto old) { return (decltype(old))(v); })
#define atomicCAS(p, c, v) \
    ::rf_host::atomic(RF_LINE, p, [&](auto old) { return old == (decltype(old))(c) ? (decltype(old))(v) : old; })
template <class T> RF_INLINE T __ldg(const T* p) { return *p; }

// ---- what the compiler's instrumentation calls ----


namespace rf_host {
RF_PLAIN static void touch(void* p, unsigned size, int access, const void* pc) {
    if (!machine || !machine->running) return;
    const uint64_t address = (uint64_t)p;
    const bool seen = address - machine->arena_low < machine->arena_high - machine->arena_low ||
                      address - (uint64_t)machine->shared < (1u << 18) || address < (1u << 16) ||
                      (p >= (void*)__start_rf_shared && p < (void*)__stop_rf_shared);
    if (!seen) return;  // the thread's own variables and those of the library
    rx->generic(self(), (uint64_t)p, size, access, site_of(pc));
}
RF_PLAIN static void touch_all(const void* p, size_t size, int access, const void* pc) {
    for (size_t i = 0; i < size; i++) touch((unsigned char*)p + i, 1, access, pc);
}
struct Place { const char* file; unsigned line, column; };
RF_PLAIN static void found(const void* place, const char* kind, const char* text) {
    rx->fail(self(), 0x80000000u | static_cast<const Place*>(place)->line, kind, "%s", text);
}
}  // namespace rf_host

#define RF_HOOKS(N) \
    RF_HOOK void __tsan_read##N(void* p) { rf_host::touch(p, N, rf::READ, RF_PC); } \
    RF_HOOK void __tsan_write##N(void* p) { rf_host::touch(p, N, rf::WRITE, RF_PC); } \
    RF_HOOK void __tsan_unaligned_read##N(void* p) { rf_host::touch(p, N, rf::READ, RF_PC); } \
    RF_HOOK void __tsan_unaligned_write##N(void* p) { rf_host::touch(p, N, rf::WRITE, RF_PC); } \
    RF_HOOK void __tsan_volatile_read##N(void* p) { rf_host::touch(p, N, rf::READ | rf::STRONG, RF_PC); } \
    RF_HOOK void __tsan_volatile_write##N(void* p) { rf_host::touch(p, N, rf::WRITE | rf::STRONG, RF_PC); } \
    RF_HOOK void __tsan_read_write##N(void* p) { \
        rf_host::touch(p, N, rf::READ, RF_PC); \
        rf_host::touch(p, N, rf::WRITE, RF_PC); \
    }
RF_HOOKS(1) RF_HOOKS(2) RF_HOOKS(4) RF_HOOKS(8) RF_HOOKS(16)
RF_HOOK void __tsan_init() {}
RF_HOOK void __tsan_func_entry(void*) {}
RF_HOOK void __tsan_func_exit() {}
RF_HOOK void __tsan_read_range(void* p, size_t n) { rf_host::touch_all(p, n, rf::READ, RF_PC); }
RF_HOOK void __tsan_write_range(void* p, size_t n) { rf_host::touch_all(p, n, rf::WRITE, RF_PC); }
RF_HOOK void* __tsan_memcpy(void* to, const void* from, size_t n) {
    rf_host::touch_all(from, n, rf::READ, RF_PC);
    rf_host::touch_all(to, n, rf::WRITE, RF_PC);
    return __builtin_memcpy(to, from, n);
}
RF_HOOK void* __tsan_memset(void* to, int value, size_t n) {
    rf_host::touch_all(to, n, rf::WRITE, RF_PC);
    return __builtin_memset(to, value, n);
}
RF_HOOK void __sanitizer_cov_trace_pc() {  // at every basic block
    if (!rf::machine || !rf::machine->running) return;
    if (--rf::machine->running->jumps < 0)
        rf::rx->fail(rf::self(), rf_host::site_of(RF_PC), "runaway",
            "the thread has run so long that it counts as caught in a loop");
}

#define RF_FOUND(name, kind, text, ...) \
    RF_HOOK void __ubsan_handle_##name(void* d, ##__VA_ARGS__) { rf_host::found(d, kind, text); } \
    RF_HOOK void __ubsan_handle_##name##_abort(void* d, ##__VA_ARGS__) { rf_host::found(d, kind, text); }
RF_FOUND(type_mismatch_v1, "misaligned",
    "an access through a pointer that is not a multiple of its type's alignment", size_t)
RF_FOUND(out_of_bounds, "out-of-bounds", "an index beyond the end of an array", size_t)
RF_FOUND(shift_out_of_bounds, "undefined", "a shift by a negative amount, or by the width or more", size_t, size_t)
RF_FOUND(add_overflow, "undefined", "a sum of signed integers that overflows", size_t, size_t)
RF_FOUND(sub_overflow, "undefined", "a difference of signed integers that overflows", size_t, size_t)
RF_FOUND(mul_overflow, "undefined", "a product of signed integers that overflows", size_t, size_t)
RF_FOUND(negate_overflow, "undefined", "a negated signed integer that overflows", size_t)
RF_FOUND(divrem_overflow, "division-by-zero", "an integer divided by zero", size_t, size_t)
RF_FOUND(float_cast_overflow, "undefined", "a number that does not fit the integer it is converted to", size_t)

// ---- how a launch calls a kernel: parameters at their offsets in the packed arguments ----

namespace rf_host {
struct Reader {
    unsigned char* arguments;
    size_t offset;
    template <class T> RF_PLAIN T next() {
        offset = (offset + alignof(T) - 1) / alignof(T) * alignof(T);
        T value;
        __builtin_memcpy(&value, arguments + offset, sizeof value);
        offset += sizeof value;
        return value;
    }
};
template <class... Types> struct Run {  // braces evaluate from left to right
    RF_PLAIN Run(void (*kernel)(Types...), Types... values) { kernel(values...); }
};
template <class... Types> RF_PLAIN static void call(void (*kernel)(Types...), unsigned char* arguments) {
    Reader reader{arguments, 0};
    Run<Types...>{kernel, reader.next<Types>()...};
}
// The number of parameters, then offset and size of each.
template <class... Types> RF_PLAIN static void describe(void (*)(Types...), unsigned* out) {
    size_t offset = 0;
    unsigned n = 0;
    ((offset = (offset + alignof(Types) - 1) / alignof(Types) * alignof(Types), out[1 + 2 * n] = (unsigned)offset,
      out[2 + 2 * n++] = (unsigned)sizeof(Types), offset += sizeof(Types)), ...);
    out[0] = n;
}
}  // namespace rf_host

#define RF_EXPORT_KERNEL(name, full) \
    RF_EXPORT RF_PLAIN void rf_kernel_##name(::rf::Thread*, unsigned char* arguments) { \
        rf_host::call(&full, arguments); \
    } \
    RF_EXPORT RF_PLAIN void rf_params_##name(unsigned* out) { rf_host::describe(&full, out); }

namespace rf { const Executor* rx; Machine* machine; }
RF_EXPORT RF_PLAIN void rf_bind(const rf::Executor* executor) { rf::rx = executor; rf::machine = executor->machine; }
RF_EXPORT RF_PLAIN unsigned char* rf_section(size_t* size) {
    *size = (size_t)(__stop_rf_shared - __start_rf_shared);
    return __start_rf_shared;
}
RF_EXPORT RF_PLAIN size_t rf_anchor() {  // the anchor's place in the library's file
    Dl_info info;
    return dladdr((void*)&rf_host::anchor, &info) ? (size_t)((char*)&rf_host::anchor - (char*)info.dli_fbase) : 0;
}
