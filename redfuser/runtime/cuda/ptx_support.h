// What translated PTX calculates with. Each function is one operation of the PTX manual.
#pragma once
#include "executor.h"
#include "numbers.h"

namespace rf {

extern const Executor* rx;
extern Machine* machine;

// ---- single and double precision ----

static inline float absolute(float x) { return __builtin_fabsf(x); }
static inline double absolute(double x) { return __builtin_fabs(x); }
static inline float canonical(float x) { return x == x ? x : bits<float>(NAN_F32); }
static inline double canonical(double x) { return x == x ? x : bits<double>(NAN_F64); }
static inline float flushed(float x) { return absolute(x) < 1.17549435e-38f ? __builtin_copysignf(0, x) : x; }
template <class T> static inline T saturated(T x) { return x > 0 ? (x < 1 ? x : (T)1) : (T)0; }  // NaN becomes 0
static inline double relu(double x) { return x < 0 ? 0 : x == 0 ? 0 : x; }
static inline bool is_finite(double x) { return x - x == 0; }
static inline bool is_infinite(double x) { return x == x && x - x != 0; }
static inline bool is_normal(float x) { return is_finite(x) && absolute(x) >= 1.17549435e-38f; }
static inline bool is_subnormal(float x) { return x != 0 && absolute(x) < 1.17549435e-38f; }
static inline bool is_normal(double x) { return is_finite(x) && absolute(x) >= 2.2250738585072014e-308; }
static inline bool is_subnormal(double x) { return x != 0 && absolute(x) < 2.2250738585072014e-308; }

// A NaN loses against a number unless `nan`; -0 is less than +0.
template <bool nan, class T> static inline T float_min(T a, T b) {
    if (a != a || b != b) return nan || (a != a && b != b) ? canonical((T)(a + b)) : a != a ? b : a;
    return a < b || (a == b && __builtin_signbit(a)) ? a : b;
}
template <bool nan, class T> static inline T float_max(T a, T b) {
    if (a != a || b != b) return nan || (a != a && b != b) ? canonical((T)(a + b)) : a != a ? b : a;
    return a > b || (a == b && !__builtin_signbit(a)) ? a : b;
}
template <class T> static inline T xorsign(T magnitude, T a, T b) {
    return __builtin_signbit(a) != __builtin_signbit(b) ? -magnitude : magnitude;
}

// div.approx gives 0 for a divisor beyond 2^126, as the manual says.
static inline float divide_approx(float a, float b) {
    if (absolute(b) > 8.5070592e37f && is_finite(b)) return a * (__builtin_signbit(b) ? -0.0f : 0.0f);
    return a / b;
}
static inline float approx_rsqrt(float x) { return (float)(1 / __builtin_sqrt((double)x)); }
static inline double approx_rsqrt(double x) { return 1 / __builtin_sqrt(x); }
static inline float approx_exp2(float x) { return __builtin_exp2f(x); }
static inline float approx_log2(float x) { return __builtin_log2f(x); }
static inline float approx_sine(float x) { return __builtin_sinf(x); }
static inline float approx_cosine(float x) { return __builtin_cosf(x); }
static inline float approx_hyperbolic_tangent(float x) { return __builtin_tanhf(x); }

static inline double round_integral(double x, Rounding mode) {
    switch (mode) {
        case ZERO: return __builtin_trunc(x);
        case DOWN: return __builtin_floor(x);
        case UP: return __builtin_ceil(x);
        default: return __builtin_rint(x);
    }
}

// ---- half types: codes in, codes out ----

template <bool brain> static inline float half_value(uint16_t code) {
    return brain ? bf16_to_float(code) : f16_to_float(code);
}
template <bool brain> static inline uint16_t half_code(float value) {
    return brain ? float_to_bf16(value) : float_to_f16(value);
}
// Sums and products of two halves have at most twice their digits and a few more: float rounds them innocuously.
template <bool b>
static inline uint16_t half_add(uint16_t x, uint16_t y) { return half_code<b>(half_value<b>(x) + half_value<b>(y)); }
template <bool b>
static inline uint16_t half_sub(uint16_t x, uint16_t y) { return half_code<b>(half_value<b>(x) - half_value<b>(y)); }
template <bool b>
static inline uint16_t half_mul(uint16_t x, uint16_t y) { return half_code<b>(half_value<b>(x) * half_value<b>(y)); }
template <bool b> static inline uint16_t half_fma(uint16_t x, uint16_t y, uint16_t z) {
    return (uint16_t)encode(fused_odd(half_value<b>(x), half_value<b>(y), half_value<b>(z)), b ? BF16 : F16);
}
template <bool b> static inline uint16_t half_neg(uint16_t x) { return x ^ 0x8000; }
template <bool b> static inline uint16_t half_abs(uint16_t x) { return x & 0x7fff; }
template <bool b>
static inline uint16_t half_min(uint16_t x, uint16_t y) {
    return half_code<b>(float_min<false>(half_value<b>(x), half_value<b>(y)));
}
template <bool b>
static inline uint16_t half_max(uint16_t x, uint16_t y) {
    return half_code<b>(float_max<false>(half_value<b>(x), half_value<b>(y)));
}
template <bool b>
static inline uint16_t half_min_nan(uint16_t x, uint16_t y) {
    return half_code<b>(float_min<true>(half_value<b>(x), half_value<b>(y)));
}
template <bool b>
static inline uint16_t half_max_nan(uint16_t x, uint16_t y) {
    return half_code<b>(float_max<true>(half_value<b>(x), half_value<b>(y)));
}
template <bool b> static inline uint16_t half_sat(uint16_t x) { return half_code<b>(saturated(half_value<b>(x))); }
template <bool b>
static inline uint16_t half_relu(uint16_t x) { return half_value<b>(x) == half_value<b>(x) && x & 0x8000 ? 0 : x; }
template <bool b> static inline uint16_t half_ftz(uint16_t x) { return x & (b ? 0x7f80 : 0x7c00) ? x : x & 0x8000; }
template <bool b>
static inline uint16_t half_exp2(uint16_t x) { return half_code<b>(__builtin_exp2f(half_value<b>(x))); }
template <bool b>
static inline uint16_t half_hyperbolic_tangent(uint16_t x) { return half_code<b>(__builtin_tanhf(half_value<b>(x))); }

#define RF_PAIR1(name) \
    template <bool b> static inline uint32_t pair_##name(uint32_t x) { \
        return half_##name<b>((uint16_t)x) | (uint32_t)half_##name<b>((uint16_t)(x >> 16)) << 16; \
    }
#define RF_PAIR2(name) \
    template <bool b> static inline uint32_t pair_##name(uint32_t x, uint32_t y) { \
        const uint32_t high = half_##name<b>((uint16_t)(x >> 16), (uint16_t)(y >> 16)); \
        return half_##name<b>((uint16_t)x, (uint16_t)y) | high << 16; \
    }
RF_PAIR1(neg) RF_PAIR1(abs) RF_PAIR1(sat) RF_PAIR1(relu) RF_PAIR1(ftz) RF_PAIR1(exp2) RF_PAIR1(hyperbolic_tangent)
RF_PAIR2(add) RF_PAIR2(sub) RF_PAIR2(mul) RF_PAIR2(min) RF_PAIR2(max) RF_PAIR2(min_nan) RF_PAIR2(max_nan)
template <bool b> static inline uint32_t pair_fma(uint32_t x, uint32_t y, uint32_t z) {
    return half_fma<b>((uint16_t)x, (uint16_t)y, (uint16_t)z) |
           (uint32_t)half_fma<b>((uint16_t)(x >> 16), (uint16_t)(y >> 16), (uint16_t)(z >> 16)) << 16;
}

// ---- integers ----

static inline bool is_negative(int64_t x) { return x < 0; }
template <class T> constexpr T least_of() { return (T)-1 < (T)0 ? (T)((T)1 << (8 * sizeof(T) - 2)) * (T)-2 : (T)0; }
template <class T> constexpr T most_of() { return (T)~least_of<T>(); }
static inline int32_t clamp_s32(int64_t x) {
    return x < INT32_MIN ? INT32_MIN : x > INT32_MAX ? INT32_MAX : (int32_t)x;
}

template <class T, class From> static inline T clamped(From x) {
    const __int128 wide = x, least = least_of<T>(), most = most_of<T>();
    return (T)(wide < least ? least : wide > most ? most : wide);
}

// NaN becomes 0; with a 64-bit side it becomes the lowest bits that the device gives: 0x8000...
template <class T> static inline T to_integer(double value, Rounding mode, bool wide) {
    if (value != value) return wide && sizeof(T) >= 4 ? (T)((uint64_t)1 << (8 * sizeof(T) - 1)) : (T)0;
    const double x = round_integral(value, mode), end = power_of_two((int)(8 * sizeof(T)) - ((T)-1 < (T)0 ? 1 : 0));
    if (x >= end) return most_of<T>();
    if (x <= ((T)-1 < (T)0 ? -end : 0.0)) return least_of<T>();
    return (T)x;
}

// 64-bit integers as doubles whose last bit is set when digits are lost.
template <class T> static inline double odd_double(T x) {
    double d = (double)x;
    const __int128 back = (__int128)d, exact = x;
    if (back == exact) return d;
    uint64_t u = bits<uint64_t>(d);
    if (!(u & 1)) u += (back < exact) == (d > 0) ? 1 : -1;
    return bits<double>(u);
}

template <class T> static inline T high(T a, T b) { return (T)(((__int128)a * (__int128)b) >> 8 * sizeof(T)); }
template <>
inline uint64_t high<uint64_t>(uint64_t a, uint64_t b) { return (uint64_t)(((unsigned __int128)a * b) >> 64); }
template <class T> static inline T low24(T x) { return (T)((T)((uint32_t)x << 8) >> 8); }

template <class T> static inline T add_carry(Thread* self, T a, T b, uint32_t carry) {
    const unsigned __int128 sum = (unsigned __int128)a + b + carry;
    self->carry = (uint32_t)(sum >> 8 * sizeof(T)) & 1;
    return (T)sum;
}
template <class T> static inline T subtract_carry(Thread* self, T a, T b, uint32_t borrow) {
    self->carry = (unsigned __int128)a < (unsigned __int128)b + borrow;
    return (T)(a - b - borrow);
}

template <class T> static inline T quotient(Thread* self, T a, T b, uint32_t site) {
    if (!b) rx->fail(self, site, "division-by-zero", "an integer is divided by zero");
    if ((T)-1 < (T)0 && b == (T)-1) return (T)(0 - (uint64_t)a);  // the host would trap for the least integer
    return (T)(a / b);
}
template <class T> static inline T remainder(Thread* self, T a, T b, uint32_t site) {
    if (!b) rx->fail(self, site, "division-by-zero", "the remainder of an integer divided by zero");
    if ((T)-1 < (T)0 && b == (T)-1) return 0;
    return (T)(a % b);
}

static inline uint32_t popcount(uint32_t x) { return (uint32_t)__builtin_popcount(x); }
static inline uint32_t popcount(uint64_t x) { return (uint32_t)__builtin_popcountll(x); }
static inline uint32_t leading_zeros(uint32_t x) { return x ? (uint32_t)__builtin_clz(x) : 32; }
static inline uint32_t leading_zeros(uint64_t x) { return x ? (uint32_t)__builtin_clzll(x) : 64; }

template <class T> static inline uint32_t highest_bit(T x, bool shift_amount) {
    const bool is_signed = (T)-1 < (T)0;
    const uint64_t value = is_signed && x < (T)0 ? (uint64_t)(T)~x : (uint64_t)x;  // of the first digit unlike the sign
    if (!value) return 0xffffffffu;
    const uint32_t place = 63 - (uint32_t)__builtin_clzll(value);
    return shift_amount ? (uint32_t)(8 * sizeof(T)) - 1 - place : place;
}

template <class T> static inline T reversed(T x) {
    T result = 0;
    for (unsigned i = 0; i < 8 * sizeof(T); i++) result = (T)(result << 1 | (x >> i & 1));
    return result;
}

template <class T>
static inline T shift_left(T x, uint32_t n) { return n >= 8 * sizeof(T) ? (T)0 : (T)((uint64_t)x << n); }
template <class T> static inline T shift_right(T x, uint32_t n) {
    const uint32_t most = (uint32_t)(8 * sizeof(T)) - 1;
    if (n > most) return (T)-1 < (T)0 ? (T)(x >> most) : (T)0;
    return (T)(x >> n);
}
static inline uint32_t funnel_left(uint32_t low, uint32_t high, uint32_t n, bool wrap) {
    n = wrap ? n & 31 : n > 32 ? 32 : n;
    return (uint32_t)((((uint64_t)high << 32 | low) << n) >> 32);
}
static inline uint32_t funnel_right(uint32_t low, uint32_t high, uint32_t n, bool wrap) {
    n = wrap ? n & 31 : n > 32 ? 32 : n;
    return (uint32_t)(((uint64_t)high << 32 | low) >> n);
}

template <class T> static inline T bit_field(T x, uint32_t start, uint32_t length) {
    start &= 255;
    length &= 255;
    const uint32_t width = 8 * sizeof(T);
    const bool is_signed = (T)-1 < (T)0;
    if (!length) return 0;
    const uint32_t last = start + length - 1 < width - 1 ? start + length - 1 : width - 1;  // has the sign
    const bool negative = is_signed && (uint64_t)x >> last & 1;
    T result = negative ? (T)-1 : (T)0;
    for (uint32_t i = 0; i < width && i < length; i++) {
        if (start + i >= width) break;
        const uint64_t digit = (uint64_t)x >> (start + i) & 1;
        result = (T)(((uint64_t)result & ~(1ull << i)) | digit << i);
    }
    return result;
}
template <class T> static inline T insert_bits(T a, T b, uint32_t start, uint32_t length) {
    start &= 255;
    length &= 255;
    const uint32_t width = 8 * sizeof(T);
    if (!length || start >= width) return b;
    const T mask = (T)((length >= width ? (T)~(T)0 : (T)(((T)1 << length) - 1)) << start);
    return (T)((b & ~mask) | ((T)(a << start) & mask));
}
static inline uint32_t bit_mask(uint32_t start, uint32_t length, bool wrap) {
    if (wrap) { start &= 31; length &= 31; }
    if (start >= 32 || !length) return 0;
    return (length >= 32 ? 0xffffffffu : (1u << length) - 1) << start;
}
template <class T> static inline T extended(T x, uint32_t width, bool wrap) {
    if (wrap) width &= 31;
    if (!width) return 0;
    if (width >= 32) return x;
    return (T)((T)((uint32_t)x << (32 - width)) >> (32 - width));
}

static inline uint32_t permuted(uint32_t a, uint32_t b, uint32_t selector) {
    const uint64_t source = (uint64_t)b << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t s = selector >> 4 * i & 15;
        uint8_t byte = (uint8_t)(source >> 8 * (s & 7));
        if (s & 8) byte = byte & 0x80 ? 0xff : 0;  // the sign alone
        result |= (uint32_t)byte << 8 * i;
    }
    return result;
}
static inline uint32_t permuted_f4e(uint32_t a, uint32_t b, uint32_t s) {
    return (uint32_t)(((uint64_t)b << 32 | a) >> 8 * (s & 3));
}
static inline uint32_t permuted_b4e(uint32_t a, uint32_t b, uint32_t s) {
    static const uint32_t selectors[] = {0x5670, 0x6701, 0x7012, 0x0123};
    return permuted(a, b, selectors[s & 3]);
}
static inline uint32_t permuted_rc8(uint32_t a, uint32_t b, uint32_t s) { return permuted(a, b, 0x1111 * (s & 3)); }
static inline uint32_t permuted_rc16(uint32_t a, uint32_t b, uint32_t s) {
    return permuted(a, b, s & 1 ? 0x3232 : 0x1010);
}
static inline uint32_t permuted_ecl(uint32_t a, uint32_t b, uint32_t s) {
    static const uint32_t selectors[] = {0x3210, 0x3211, 0x3222, 0x3333};
    return permuted(a, b, selectors[s & 3]);
}
static inline uint32_t permuted_ecr(uint32_t a, uint32_t b, uint32_t s) {
    static const uint32_t selectors[] = {0x0000, 0x1110, 0x2210, 0x3210};
    return permuted(a, b, selectors[s & 3]);
}

static inline uint32_t lookup(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t result = 0;
    for (int i = 0; i < 8; i++)
        if (table >> i & 1) result |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return result;
}

template <class F> static inline uint32_t packed16(uint32_t a, uint32_t b, F f) {
    return (uint32_t)f((uint16_t)a, (uint16_t)b) | (uint32_t)f((uint16_t)(a >> 16), (uint16_t)(b >> 16)) << 16;
}
template <class A, class B> static inline uint32_t dot4(uint32_t a, uint32_t b, uint32_t c) {
    for (int i = 0; i < 4; i++) c += (uint32_t)((int32_t)(A)(a >> 8 * i) * (int32_t)(B)(b >> 8 * i));
    return c;
}

// ---- memory ----

template <class T> static inline T load(const unsigned char* p) { T x; memcpy(&x, p, sizeof x); return x; }
template <class T> static inline void store(unsigned char* p, T x) { memcpy(p, &x, sizeof x); }

// Memory that is the thread's own, or constant: only its bounds and the alignment are checked.
static inline unsigned char* own(Thread* self, uint64_t address, uint32_t size, uint64_t low, uint64_t high,
    uint32_t site) {
    if (address - low >= high - low || size > high - address)
        rx->fail(self, site, "out-of-bounds", "access of %u bytes at byte %lld of a local or constant array of %llu",
            size,
                 (long long)(address - low), (unsigned long long)(high - low));
    if (address & (size - 1))
        rx->fail(self, site, "misaligned", "access of %u bytes to a local or constant array", size);
    return reinterpret_cast<unsigned char*>(address);
}

__attribute__((noinline)) static void runaway(Thread* self, uint32_t site) {
    rx->fail(self, site, "runaway", "the thread has jumped back so often that it counts as caught in a loop");
}
__attribute__((noinline)) static void undefined(Thread* self, uint32_t site) {
    rx->fail(self, site, "undefined", "a jump through a table goes beyond its end");
}

}  // namespace rf
