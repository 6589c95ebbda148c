/* Device functions of emitted kernels. A comment that starts with "section" begins a part and lists what it defines;
 * the printer keeps the parts that a kernel mentions. INLINE is the printer's.
 */
/*section ALL_LANES */
#define ALL_LANES 0xffffffffu

/* ---- numbers ---- */
/*section bits_float */
INLINE float bits_float(uint32_t u) { return __uint_as_float(u); }
/*section bits_double */
INLINE double bits_double(uint64_t u) { return __longlong_as_double((int64_t)u); }
/*section power_of */
template <class T>
INLINE T power_of(T x, int n) { /* small n > 0: a product, as in NumPy */
  T y = x;
  for (int i = 1; i < n; i++) y = y * x;
  return y;
}
/*section power_float64 */
/* CUDA's own is a function that is not inlined. */
INLINE double power_float64(double x, double y) {
  if (y == 0.0 || x == 1.0) return 1.0;
  const bool whole = floor(y) == y, odd = whole && floor(y * 0.5) != y * 0.5;
  if (x == -1.0 && fabs(y) > 1e300) return 1.0;
  if (x < 0.0 && !whole) return x - x == 0.0 ? bits_double(0x7ff8000000000000ull) : y > 0.0 ? -x : 0.0;
  const double size = log(fabs(x)), p = y * size, rest = fma(y, size, -p);
  double r = exp(p);
  if (r - r == 0.0 && rest == rest) r = fma(r, rest, r);
  return odd && (x < 0.0 || (x == 0.0 && 1.0 / x < 0.0)) ? -r : r;
}
/*section sine_float64 */
/* sin(x + quarters pi/2); CUDA's own sin and cos call a function that is not inlined. pi/2 in three parts: right within
 * some ulp up to |x| = 1e15. */
INLINE double sine_float64(double x, int quarters) {
  const double k = rint(x * 0x1.45f306dc9c883p-1);
  double r = fma(k, -0x1.921fb54442d18p+0, x);
  r = fma(k, -0x1.1a62633145c07p-54, r);
  r = fma(k, 0x1.f1976b7ed8fbcp-110, r);
  const int64_t q = ((int64_t)k + quarters) & 3;
  const double t = r * 0x1.45f306dc9c883p-2, y = q & 1 ? cospi(t) : sinpi(t);
  return q & 2 ? -y : y;
}
/*section scalar_from_float16 */
INLINE float scalar_from_float16(uint16_t h) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
  return x;
}
/*section scalar_to_float16 */
INLINE uint16_t scalar_to_float16(float x) {
  uint16_t h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
  return h;
}
/*section scalar_to_bfloat16 */
INLINE uint16_t scalar_to_bfloat16(float x) { /* ties to even; NaN stays NaN */
  const uint32_t u = __float_as_uint(x);
  if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)((u >> 16) | 0x40);
  return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
/*section rounded_float8 */
/* |x| as the bits of a small format with `bits` of mantissa and exponents from `least` on, ties to even. */
INLINE uint32_t rounded_float8(uint32_t a, int bits, int least) {
  const int exponent = (int)(a >> 23) - 127;
  if (exponent >= least) {
    const int drop = 23 - bits;
    const uint32_t rounded = a + ((1u << (drop - 1)) - 1) + ((a >> drop) & 1);
    return (rounded >> drop) - ((uint32_t)(least + 126) << bits);
  }
  const float unit = __uint_as_float((uint32_t)(least - bits + 127) << 23); /* a subnormal is a multiple of it */
  return (uint32_t)__float2int_rn(__uint_as_float(a) / unit);
}
/*section scalar_to_float8_e5m2 */
INLINE uint8_t scalar_to_float8_e5m2(float x) {
  const uint32_t u = __float_as_uint(x), a = u & 0x7fffffff, sign = u >> 24 & 0x80;
  if (a > 0x7f800000) return (uint8_t)(sign | 0x7e);
  const uint32_t r = rounded_float8(a, 2, -14);
  return (uint8_t)(sign | (r > 0x7c ? 0x7c : r));
}
/*section scalar_to_float8_e4m3fn */
INLINE uint8_t scalar_to_float8_e4m3fn(float x) { /* no infinity: beyond the largest number it is NaN */
  const uint32_t u = __float_as_uint(x), a = u & 0x7fffffff, sign = u >> 24 & 0x80;
  if (a >= 0x7f800000) return (uint8_t)(sign | 0x7f);
  const uint32_t r = rounded_float8(a, 3, -6);
  return (uint8_t)(sign | (r > 0x7e ? 0x7f : r));
}

/* ---- several neighbours at once ---- */
/*section run_of */
/* As many elements as one access may touch; alignment of the whole, 16 bytes at most. */
template <class T, int N>
struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) run_of { T at[N]; };
template <class T, int N>
INLINE bool is_aligned(const T *p) { return (uint64_t)p % alignof(run_of<T, N>) == 0; }
/*section load_run */
/* The first `count` of N neighbours, in one access where all of them are wanted and lie right. */
template <int N, class T>
INLINE void load_run(T (&to)[N], const T *from, int64_t count) {
  if (count >= N && is_aligned<T, N>(from)) {
    const run_of<T, N> found = *(const run_of<T, N> *)from;
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = found.at[i];
  } else {
#pragma unroll
    for (int i = 0; i < N; i++)
      if (i < count) to[i] = from[i];
  }
}
/*section store_run */
template <int N, class T>
INLINE void store_run(T *to, const T (&from)[N], int64_t count) {
  if (count >= N && is_aligned<T, N>(to)) {
    run_of<T, N> made;
#pragma unroll
    for (int i = 0; i < N; i++) made.at[i] = from[i];
    *(run_of<T, N> *)to = made;
  } else {
#pragma unroll
    for (int i = 0; i < N; i++)
      if (i < count) to[i] = from[i];
  }
}

/* ---- results that all threads of a team have ---- */
/*section sum_of */
struct sum_of {
  static constexpr bool symmetric = true;
  template <class T>
  INLINE T operator()(T a, T b) const { return a + b; }
};
/*section prod_of */
struct prod_of {
  static constexpr bool symmetric = true;
  template <class T>
  INLINE T operator()(T a, T b) const { return a * b; }
};
/*section max_of */
struct max_of { /* NaN if either is; the second of +0 and -0, and of two subnormals where the device counts them as 0 */
  static constexpr bool symmetric = false;
  template <class T>
  INLINE T operator()(T a, T b) const { return a > b || a != a ? a : b; }
};
/*section min_of */
struct min_of {
  static constexpr bool symmetric = false;
  template <class T>
  INLINE T operator()(T a, T b) const { return a < b || a != a ? a : b; }
};
/*section loose_max_of */
struct loose_max_of { /* any number where an element is NaN: one instruction */
  static constexpr bool symmetric = true;
  INLINE float operator()(float a, float b) const { return fmaxf(a, b); }
  INLINE double operator()(double a, double b) const { return fmax(a, b); }
};
/*section loose_min_of */
struct loose_min_of {
  static constexpr bool symmetric = true;
  INLINE float operator()(float a, float b) const { return fminf(a, b); }
  INLINE double operator()(double a, double b) const { return fmin(a, b); }
};
/*section any_of */
struct any_of {
  static constexpr bool symmetric = true;
  INLINE int operator()(int a, int b) const { return a | b; }
};
/*section all_of */
struct all_of {
  static constexpr bool symmetric = true;
  INLINE int operator()(int a, int b) const { return a & b; }
};
/*section warp_all */
/* Over a warp, or LANES neighbours of one: every lane meets its partner. All have the same bits in the end; where the
 * order of two operands decides about bits, those of the first lane. */
template <class F, int LANES = 32, class T>
INLINE T warp_all(T x, uint32_t lanes = ALL_LANES) {
#pragma unroll
  for (int step = LANES / 2; step; step /= 2) x = F()(x, __shfl_xor_sync(lanes, x, step));
  return F::symmetric ? x : __shfl_sync(lanes, x, 0, LANES);
}
/*section slots_all */
/* Over the results of all warps of a block, in order: every thread computes the same. */
template <class F, class T, int WARPS>
INLINE T slots_all(const uint64_t *slots) {
  T x = *(const T *)&slots[0];
#pragma unroll
  for (int w = 1; w < WARPS; w++) x = F()(x, *(const T *)&slots[w]);
  return x;
}

/* ---- sorted lists ---- */
/*section key_before */
/* Whether one key is better than another: NaN better than any number. */
template <bool LARGEST, class T>
INLINE bool key_before(T a, T b) {
  if (a != a) return !(b != b);
  return LARGEST ? a > b : a < b;
}
/*section candidate nothing */
/* An element of a list or of a sweep; an index below 0 is none. `place` decides between equal keys. */
template <class T>
struct candidate { T key; int64_t place, index; };
template <class T>
INLINE candidate<T> nothing() { return {(T)0, -1, -1}; }
/*section candidate_before */
template <bool LARGEST, class T>
INLINE bool candidate_before(const candidate<T> &a, const candidate<T> &b) {
  if (a.index < 0 || b.index < 0) return a.index >= 0;
  if (key_before<LARGEST>(a.key, b.key)) return true;
  return !key_before<LARGEST>(b.key, a.key) && a.place < b.place;
}
/*section offer */
/* `one` becomes the best, if it comes after the last one found (none: every one does) and before the best so far. */
template <bool LARGEST, class T>
INLINE void offer(candidate<T> &best, const candidate<T> &last, const candidate<T> &one) {
  if (last.index >= 0 && !candidate_before<LARGEST>(last, one)) return;
  if (candidate_before<LARGEST>(one, best)) best = one;
}
/*section warp_best */
template <bool LARGEST, int LANES = 32, class T>
INLINE candidate<T> warp_best(candidate<T> best, uint32_t lanes = ALL_LANES) {
#pragma unroll
  for (int step = LANES / 2; step; step /= 2) {
    const candidate<T> other = {__shfl_xor_sync(lanes, best.key, step), __shfl_xor_sync(lanes, best.place, step),
                                __shfl_xor_sync(lanes, best.index, step)};
    if (candidate_before<LARGEST>(other, best)) best = other;
  }
  return best;
}
