// Number formats of the device as the host computes them: encodings, conversions, rounding.
#pragma once
#include <stdint.h>
#include <string.h>

namespace rf {

template <class To, class From>
static inline To bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "bit casts keep the size");
    To result;
    memcpy(&result, &value, sizeof result);
    return result;
}

constexpr uint32_t NAN_F32 = 0x7fffffffu;  // the NaN that PTX arithmetic returns
constexpr uint64_t NAN_F64 = 0x7fffffffffffffffull;

// A small binary format. `finite` formats have no infinity: e4m3 keeps one NaN, at the largest code.
struct Format {
    int exponent_bits, mantissa_bits, bias;
    bool infinite;
    uint32_t nan;
};
constexpr Format F16 = {5, 10, 15, true, 0x7fff};
constexpr Format BF16 = {8, 7, 127, true, 0x7fff};
constexpr Format TF32 = {8, 10, 127, true, 0x3ffff};
constexpr Format E4M3 = {4, 3, 7, false, 0x7f};
constexpr Format E5M2 = {5, 2, 15, true, 0x7f};

enum Rounding { NEAREST, ZERO, DOWN, UP, AWAY };  // AWAY: nearest, ties away from zero

// How far the last kept digit moves: `rest` are the digits below it, `half` the value of a tie.
static inline bool rounds_up(Rounding mode, bool negative, bool odd, uint64_t rest, uint64_t half) {
    switch (mode) {
        case NEAREST: return rest > half || (rest == half && odd);
        case AWAY: return rest >= half;
        case DOWN: return negative && rest;
        case UP: return !negative && rest;
        default: return false;
    }
}

static inline uint32_t largest(const Format& f) {
    const uint32_t top = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
    return f.infinite ? top - 1 : (top | ((1u << f.mantissa_bits) - 2));
}

// The code of `value`, without rounding twice. Values beyond the largest become infinity (NaN where the format has
// none), the largest where the mode rounds towards zero, or the largest always with `saturate`.
static inline uint32_t encode(double value, const Format& f, Rounding mode = NEAREST, bool saturate = false) {
    const uint64_t u = bits<uint64_t>(value);
    const bool negative = u >> 63;
    const uint32_t sign = (uint32_t)negative << (f.exponent_bits + f.mantissa_bits);
    if (value != value) return f.nan;
    const uint64_t magnitude = u & ~(1ull << 63);
    if (!magnitude) return sign;
    const uint32_t infinity = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
    const uint32_t beyond = saturate ? largest(f) : f.infinite ? infinity : f.nan;
    if (magnitude == 0x7ff0000000000000ull) return sign | beyond;
    int exponent = (int)(magnitude >> 52) - 1023;
    uint64_t mantissa = magnitude & 0xfffffffffffffull;
    if (exponent == -1023) exponent = -1022; else mantissa |= 1ull << 52;  // subnormal doubles have no hidden one
    const int least = 1 - f.bias;
    int drop = 52 - f.mantissa_bits;
    if (exponent < least) drop += least - exponent;
    uint64_t code = 0, rest = mantissa, half = ~0ull;
    if (drop < 64) {
        code = mantissa >> drop;
        rest = mantissa & ((1ull << drop) - 1);
        half = 1ull << (drop - 1);
    }
    const bool up = rounds_up(mode, negative, code & 1, rest, half);
    code += up;
    if (exponent >= least) code += (uint64_t)(exponent - least) << f.mantissa_bits;  // the hidden one adds the last 1
    if (code > largest(f)) {
        const bool towards = mode == ZERO || (mode == DOWN && !negative) || (mode == UP && negative);
        return sign | (saturate || towards ? largest(f) : beyond);
    }
    return sign | (uint32_t)code;
}

static inline double power_of_two(int n) {
    return bits<double>((uint64_t)(n + 1023) << 52);
}

static inline double decode(uint32_t code, const Format& f) {
    const uint32_t mantissa = code & ((1u << f.mantissa_bits) - 1);
    const int exponent = (int)(code >> f.mantissa_bits & ((1u << f.exponent_bits) - 1));
    const bool negative = code >> (f.exponent_bits + f.mantissa_bits) & 1;
    double value;
    if (f.infinite && exponent == (1 << f.exponent_bits) - 1)
        value = mantissa ? bits<double>(0x7ff8000000000000ull) : bits<double>(0x7ff0000000000000ull);
    else if (!f.infinite && (code & 0x7f) == f.nan)
        value = bits<double>(0x7ff8000000000000ull);
    else if (!exponent)
        value = mantissa * power_of_two(1 - f.bias - f.mantissa_bits);
    else
        value = (double)((1u << f.mantissa_bits) | mantissa) * power_of_two(exponent - f.bias - f.mantissa_bits);
    return negative ? -value : value;
}

static inline float bf16_to_float(uint16_t code) { return bits<float>((uint32_t)code << 16); }

static inline uint16_t float_to_bf16(float value) {
    const uint32_t u = bits<uint32_t>(value);
    if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

static inline float f16_to_float(uint16_t code) {
    const uint32_t sign = (uint32_t)(code & 0x8000) << 16, exponent = code >> 10 & 31, mantissa = code & 1023;
    if (exponent == 31) return bits<float>(sign | 0x7f800000u | mantissa << 13);
    if (exponent) return bits<float>(sign | (exponent + 112) << 23 | mantissa << 13);
    const float value = (float)mantissa * bits<float>(103u << 23);  // 2^-24
    return sign ? -value : value;
}

static inline uint16_t float_to_f16(float value) { return (uint16_t)encode(value, F16); }

// a * b + c of doubles whose product is exact, rounded so that a second rounding to a short format is the only one
// that counts: the last bit is set whenever digits are lost (rounding to odd).
static inline double fused_odd(double a, double b, double c) {
    const double product = a * b, sum = product + c;
    if (sum - sum != 0) return sum;  // infinite or NaN
    const double part = sum - product, error = (product - (sum - part)) + (c - part);
    if (error == 0) return sum;
    const uint64_t u = bits<uint64_t>(sum);
    if (u & 1) return sum;
    const bool away = (error > 0) == (sum > 0);
    return bits<double>(away ? u + 1 : u - 1);
}

}  // namespace rf
