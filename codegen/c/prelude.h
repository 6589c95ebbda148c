/* Vector arithmetic in GCC/Clang vector extensions: no intrinsics header (parsing one costs more than compiling a kernel).
 *
 * The printer defines, before this text: LANES, VECTOR_BYTES, REAL_BITS (32 or 64), the types `real` (float or double)
 * and `lane_int` (signed integer as wide as real), INLINE and SHUFFLE. A comment that starts with "section" begins a part
 * and lists what it defines; the printer keeps only the parts that a kernel mentions. Builtins of one instruction set stand under #if, each
 * with a portable fallback.
 */
/*section vec ints splat splat_int */
typedef real vec __attribute__((vector_size(VECTOR_BYTES)));
typedef lane_int ints __attribute__((vector_size(VECTOR_BYTES)));  /* integer lanes; as a mask: 0 or -1 */
INLINE vec splat(real x) { return x - (vec){0}; }
INLINE ints splat_int(lane_int x) { return x - (ints){0}; }
/*section uints */
#if REAL_BITS == 32
typedef uint32_t uints __attribute__((vector_size(VECTOR_BYTES)));
#else
typedef uint64_t uints __attribute__((vector_size(VECTOR_BYTES)));
#endif
/*section longs splat_long */
typedef int64_t longs __attribute__((vector_size(LANES * 8)));  /* 64-bit integer lanes */
INLINE longs splat_long(int64_t x) { return x - (longs){0}; }
/*section ulongs */
typedef uint64_t ulongs __attribute__((vector_size(LANES * 8)));
/*section WHOLE_LIMIT */
#if REAL_BITS == 32
#define WHOLE_LIMIT 0x1p31f
#else
#define WHOLE_LIMIT 0x1p63
#endif
/*section whole_ints */
/* Digits before the point; the least integer for what integer lanes cannot hold, NaN included. */
INLINE ints whole_ints(vec x) {
  ints held = (x < splat(WHOLE_LIMIT)) & (x >= splat(-WHOLE_LIMIT));
  return __builtin_convertvector(select(held, x, splat(-WHOLE_LIMIT)), ints);
}
/*section whole_longs */
INLINE longs whole_longs(vec x) {
  ints held = (x < splat((real)0x1p63)) & (x >= splat((real)-0x1p63));
  return __builtin_convertvector(select(held, x, splat((real)-0x1p63)), longs);
}
/*section words floats uwords */
typedef int32_t words __attribute__((vector_size(LANES * 4)));  /* 32-bit lanes, whatever `real` is */
typedef uint32_t uwords __attribute__((vector_size(LANES * 4)));
typedef float floats __attribute__((vector_size(LANES * 4)));
/*section select */
INLINE vec select(ints c, vec a, vec b) { return (vec)((c & (ints)a) | (~c & (ints)b)); }
/*section select_int */
INLINE ints select_int(ints c, ints a, ints b) { return (c & a) | (~c & b); }
/*section select_long */
INLINE longs select_long(ints c, longs a, longs b) {
  longs m = __builtin_convertvector(c, longs);
  return (m & a) | (~m & b);
}
/*section nonzero_real */
INLINE ints nonzero_real(vec x) { return x != splat(0); }
/*section nonzero_long */
INLINE ints nonzero_long(longs x) { return __builtin_convertvector(x != splat_long(0), ints); }
/*section INF NOT_A_NUMBER */
#if REAL_BITS == 32
#define INF __builtin_inff()
#define NOT_A_NUMBER __builtin_nanf("")
#else
#define INF __builtin_inf()
#define NOT_A_NUMBER __builtin_nan("")
#endif
/*section first_lanes */
INLINE ints first_lanes(int n) { return IOTA < splat_int(n); }  /* mask of lanes 0..n-1 */

/* ---- memory: full vectors, the first n lanes only (no other byte is touched), strided, streaming ---- */
/*section load vec_memory */
typedef real vec_memory __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));
INLINE vec load(const real *p) { return *(const vec_memory *)p; }
/*section store */
INLINE void store(real *p, vec x) { *(vec_memory *)p = x; }
/*section load_tail */
#if VECTOR_BYTES == 64 && defined(__AVX512F__) && REAL_BITS == 32
INLINE vec load_tail(const real *p, int n) { return __builtin_ia32_loadups512_mask(p, (vec){0}, (unsigned short)((1u << n) - 1)); }
#elif VECTOR_BYTES == 64 && defined(__AVX512F__) && REAL_BITS == 64
INLINE vec load_tail(const real *p, int n) { return __builtin_ia32_loadupd512_mask(p, (vec){0}, (unsigned char)((1u << n) - 1)); }
#elif VECTOR_BYTES == 32 && defined(__AVX__) && REAL_BITS == 32
INLINE vec load_tail(const real *p, int n) { return __builtin_ia32_maskloadps256((const vec *)p, first_lanes(n)); }
#elif VECTOR_BYTES == 32 && defined(__AVX__) && REAL_BITS == 64
typedef long long mask_lanes __attribute__((vector_size(32)));
INLINE vec load_tail(const real *p, int n) { return __builtin_ia32_maskloadpd256((const vec *)p, (mask_lanes)first_lanes(n)); }
#else
INLINE vec load_tail(const real *p, int n) {
  vec r = {0};
  for (int i = 0; i < n; i++) r[i] = p[i];
  return r;
}
#endif
/*section store_tail */
#if VECTOR_BYTES == 64 && defined(__AVX512F__) && REAL_BITS == 32
INLINE void store_tail(real *p, vec x, int n) { __builtin_ia32_storeups512_mask((void *)p, x, (unsigned short)((1u << n) - 1)); }
#elif VECTOR_BYTES == 64 && defined(__AVX512F__) && REAL_BITS == 64
INLINE void store_tail(real *p, vec x, int n) { __builtin_ia32_storeupd512_mask((void *)p, x, (unsigned char)((1u << n) - 1)); }
#elif VECTOR_BYTES == 32 && defined(__AVX__) && REAL_BITS == 32
INLINE void store_tail(real *p, vec x, int n) { __builtin_ia32_maskstoreps256((vec *)p, first_lanes(n), x); }
#elif VECTOR_BYTES == 32 && defined(__AVX__) && REAL_BITS == 64
typedef long long mask_lanes_st __attribute__((vector_size(32)));
INLINE void store_tail(real *p, vec x, int n) { __builtin_ia32_maskstorepd256((vec *)p, (mask_lanes_st)first_lanes(n), x); }
#else
INLINE void store_tail(real *p, vec x, int n) {
  for (int i = 0; i < n; i++) p[i] = x[i];
}
#endif
/*section blend_tail */
/* Scratch has a vector of padding behind every buffer and one owner: a blend is cheaper than a masked store. */
INLINE void blend_tail(real *p, vec x, int n) { store(p, select(first_lanes(n), x, load(p))); }
/*section store_stream */
#if defined(__clang__)
INLINE void store_stream(real *p, vec x) { __builtin_nontemporal_store(x, (vec *)p); }
#elif VECTOR_BYTES == 64 && defined(__AVX512F__) && REAL_BITS == 32
INLINE void store_stream(real *p, vec x) { __builtin_ia32_movntps512(p, x); }
#elif VECTOR_BYTES == 64 && defined(__AVX512F__) && REAL_BITS == 64
INLINE void store_stream(real *p, vec x) { __builtin_ia32_movntpd512(p, x); }
#elif VECTOR_BYTES == 32 && defined(__AVX__) && REAL_BITS == 32
INLINE void store_stream(real *p, vec x) { __builtin_ia32_movntps256(p, x); }
#elif VECTOR_BYTES == 32 && defined(__AVX__) && REAL_BITS == 64
INLINE void store_stream(real *p, vec x) { __builtin_ia32_movntpd256(p, x); }
#elif VECTOR_BYTES == 16 && defined(__SSE2__) && REAL_BITS == 32
INLINE void store_stream(real *p, vec x) { __builtin_ia32_movntps(p, x); }
#elif VECTOR_BYTES == 16 && defined(__SSE2__) && REAL_BITS == 64
INLINE void store_stream(real *p, vec x) { __builtin_ia32_movntpd(p, x); }
#else
INLINE void store_stream(real *p, vec x) { store(p, x); }
#endif
/*section stream_fence */
#if defined(__SSE2__)
#define stream_fence() __builtin_ia32_sfence() /* streaming stores become visible before the barrier */
#else
#define stream_fence() ((void)0)
#endif
/*section lanes_to_vector */
/* Elements before the next address that a streaming store may write. */
INLINE int64_t lanes_to_vector(const real *p) { return (int64_t)(-((uintptr_t)p / sizeof(real)) % LANES); }

/* ---- maximum and minimum ---- */
/*section larger smaller */
/* larger(a, b): a > b ? a : b, one instruction; b when either is NaN. */
#if VECTOR_BYTES == 64 && defined(__AVX512F__) && !defined(__clang__) && REAL_BITS == 32
#define larger(a, b) __builtin_ia32_maxps512_mask(a, b, (vec){0}, (short)-1, 4)
#define smaller(a, b) __builtin_ia32_minps512_mask(a, b, (vec){0}, (short)-1, 4)
#elif VECTOR_BYTES == 64 && defined(__AVX512F__) && !defined(__clang__) && REAL_BITS == 64
#define larger(a, b) __builtin_ia32_maxpd512_mask(a, b, (vec){0}, (char)-1, 4)
#define smaller(a, b) __builtin_ia32_minpd512_mask(a, b, (vec){0}, (char)-1, 4)
#elif VECTOR_BYTES == 32 && defined(__AVX__) && REAL_BITS == 32
#define larger(a, b) __builtin_ia32_maxps256(a, b)
#define smaller(a, b) __builtin_ia32_minps256(a, b)
#elif VECTOR_BYTES == 32 && defined(__AVX__) && REAL_BITS == 64
#define larger(a, b) __builtin_ia32_maxpd256(a, b)
#define smaller(a, b) __builtin_ia32_minpd256(a, b)
#elif VECTOR_BYTES == 16 && defined(__SSE2__) && REAL_BITS == 32
#define larger(a, b) __builtin_ia32_maxps(a, b)
#define smaller(a, b) __builtin_ia32_minps(a, b)
#elif VECTOR_BYTES == 16 && defined(__SSE2__) && REAL_BITS == 64
#define larger(a, b) __builtin_ia32_maxpd(a, b)
#define smaller(a, b) __builtin_ia32_minpd(a, b)
#else
INLINE vec larger(vec a, vec b) { return select(a > b, a, b); }
INLINE vec smaller(vec a, vec b) { return select(a < b, a, b); }
#endif
/*section maximum */
INLINE vec maximum(vec a, vec b) { return select(a != a, a, larger(a, b)); } /* NaN if either is */
/*section minimum */
INLINE vec minimum(vec a, vec b) { return select(a != a, a, smaller(a, b)); }
/*section nan_lanes unordered any_nan */
/* Where a or b is NaN, gathered over a loop by |= : one comparison serves two vectors. */
#if VECTOR_BYTES == 64 && defined(__AVX512F__) && REAL_BITS == 32
typedef unsigned nan_lanes;
INLINE nan_lanes unordered(vec a, vec b) { return (unsigned short)__builtin_ia32_cmpps512_mask(a, b, 3, (short)-1, 4); }
INLINE int any_nan(nan_lanes f) { return f != 0; }
#elif VECTOR_BYTES == 64 && defined(__AVX512F__) && REAL_BITS == 64
typedef unsigned nan_lanes;
INLINE nan_lanes unordered(vec a, vec b) { return (unsigned char)__builtin_ia32_cmppd512_mask(a, b, 3, (char)-1, 4); }
INLINE int any_nan(nan_lanes f) { return f != 0; }
#else
typedef ints nan_lanes;
#if VECTOR_BYTES == 32 && defined(__AVX__) && REAL_BITS == 32
INLINE nan_lanes unordered(vec a, vec b) { return (ints)__builtin_ia32_cmpps256(a, b, 3); }
#elif VECTOR_BYTES == 32 && defined(__AVX__) && REAL_BITS == 64
INLINE nan_lanes unordered(vec a, vec b) { return (ints)__builtin_ia32_cmppd256(a, b, 3); }
#else
INLINE nan_lanes unordered(vec a, vec b) { return (a != a) | (b != b); }
#endif
INLINE int any_nan(nan_lanes f) { return any_lane(f); }
#endif

/*section lane_bits */
/* One bit per lane of a mask, lane 0 lowest. */
#if VECTOR_BYTES == 64 && defined(__AVX512DQ__) && REAL_BITS == 32
typedef int test_lanes __attribute__((vector_size(64)));
INLINE unsigned lane_bits(ints m) { return (unsigned short)__builtin_ia32_cvtd2mask512((test_lanes)m); }
#elif VECTOR_BYTES == 64 && defined(__AVX512DQ__) && REAL_BITS == 64
typedef long long test_lanes __attribute__((vector_size(64)));
INLINE unsigned lane_bits(ints m) { return (unsigned char)__builtin_ia32_cvtq2mask512((test_lanes)m); }
#elif VECTOR_BYTES == 32 && defined(__AVX__) && REAL_BITS == 32
INLINE unsigned lane_bits(ints m) { return (unsigned)__builtin_ia32_movmskps256((vec)m); }
#elif VECTOR_BYTES == 32 && defined(__AVX__) && REAL_BITS == 64
INLINE unsigned lane_bits(ints m) { return (unsigned)__builtin_ia32_movmskpd256((vec)m); }
#elif VECTOR_BYTES == 16 && defined(__SSE2__) && REAL_BITS == 32
INLINE unsigned lane_bits(ints m) { return (unsigned)__builtin_ia32_movmskps((vec)m); }
#elif VECTOR_BYTES == 16 && defined(__SSE2__) && REAL_BITS == 64
INLINE unsigned lane_bits(ints m) { return (unsigned)__builtin_ia32_movmskpd((vec)m); }
#else
INLINE unsigned lane_bits(ints m) {
  unsigned bits = 0;
  for (int i = 0; i < LANES; i++) bits |= (unsigned)(m[i] & 1) << i;
  return bits;
}
#endif

/* ---- sorted lists of (key, index) pairs, best first; an index below 0 marks an empty place ---- */
/*section MANY_NEW MOST_NEW */
#define MANY_NEW (4 * LANES)      /* new elements that are put into a list at once */
#define MOST_NEW (5 * LANES + 64) /* room for them, for those of one word more, and for the rest of a vector */
/*section list_held */
INLINE int list_held(const int64_t *indices, int length) { /* filled places */
  int held = 0;
  while (held < length && indices[held] >= 0) held++;
  return held;
}
/*section off_zero just_worse */
/* A number, or a worse one near zero: there a processor may take different numbers for equal ones (subnormal numbers for
 * zeros). `sign` is -1 where small numbers are good. */
INLINE real off_zero(real x, real sign) { return x >= -LEAST_NORMAL && x <= LEAST_NORMAL ? -LEAST_NORMAL * sign : x; }
/* The next number, off zero, or NaN beyond the last one. */
INLINE real just_worse(real x, real sign) {
  union { real number; lane_int bits; } u = {x * sign};
  u.bits += u.number > 0 ? -1 : 1;
  return u.number * sign;
}
/*section LEAST_NORMAL */
#if REAL_BITS == 32
#define LEAST_NORMAL 0x1p-126f
#else
#define LEAST_NORMAL 0x1p-1022
#endif
/*section best_lanes */
INLINE vec best_lanes(vec a, vec b) { /* the largest of both, as many as there are lanes, in any order */
  b = sorted_lanes(b);
  return larger(sorted_lanes(a), REVERSED(b));
}
/*section nth_lane */
INLINE real nth_lane(vec a, int n) { /* the lane that has n larger ones before it */
  const vec sorted = sorted_lanes(a);
  return sorted[n];
}
/*section first_bits */
INLINE uint64_t first_bits(uint64_t bits, int most) { /* the lowest of them */
  uint64_t others = bits;
  for (int i = 0; i < most; i++) others &= others - 1;
  return bits ^ others;
}
/*section append */
/* Appends the elements of a group whose bits are set, in order. The first two steps are taken even where there are fewer
 * elements: how many there are cannot be predicted, and a wrong guess costs more. */
static __attribute__((noinline, unused)) int append(uint64_t bits, const real *group, int size, int64_t first, real *keys,
                                                    int64_t *indices, int count) {
  const uint64_t stop = 1ull << (size - 1);
  int slot = __builtin_ctzll(bits | stop);
  keys[count] = group[slot], indices[count] = first + slot;
  count += bits != 0;
  bits &= bits - 1;
  slot = __builtin_ctzll(bits | stop);
  keys[count] = group[slot], indices[count] = first + slot;
  count += bits != 0;
  for (bits &= bits - 1; bits; bits &= bits - 1) {
    slot = __builtin_ctzll(bits);
    keys[count] = group[slot], indices[count++] = first + slot;
  }
  return count;
}
/*section ordered */
INLINE ints ordered(vec x) { /* integers in the order of the keys: NaN above all numbers, one zero */
  const ints bits = (ints)(x + splat(0));
  return select_int(x != x, splat_int(~SIGN_BIT), bits ^ ((bits < 0) & ~splat_int(SIGN_BIT)));
}
/*section enter_list */
/* Puts `count` new elements into a list of which `held` places are filled, returns how many are then. The place of a new
 * element among its like is the number of those before it: the better ones and the equal ones that came first, of which
 * those in earlier vectors are at least, those in later vectors more than a lane. The merge runs from the back, over what
 * is in the list. */
static __attribute__((noinline, unused)) int enter_list(real *keys, int64_t *indices, int length, int held,
                                                        const real *new_keys, const int64_t *new_indices, int count,
                                                        real sign) {
  lane_int order[MOST_NEW], place[MOST_NEW];
  real sorted[MOST_NEW];
  int64_t from[MOST_NEW];
  const int many = count > 1 ? count : 0; /* one alone is the first */
  place[0] = 0;
  for (int v = 0; v < many; v += LANES)
    store_numbers(order + v, select_int(first_lanes(many - v), ordered(load(new_keys + v) * splat(sign)),
                                        splat_int(SIGN_BIT)));
  for (int v = 0; v < many; v += LANES) {
    const ints own = load_numbers(order + v), below = own - splat_int(1);
    ints before = {0}, later = IOTA;
    int c = 0;
    for (; c < v; c++) before -= splat_int(order[c]) > below;
    for (; c < v + LANES && c < many; c++, later -= 1) before -= splat_int(order[c]) > own + (later > 0);
    for (; c < many; c++) before -= splat_int(order[c]) > own;
    store_numbers(place + v, before);
  }
  for (int i = 0; i < count; i++) sorted[place[i]] = new_keys[i], from[place[i]] = new_indices[i];
  int i = held - 1, j = (count < length ? count : length) - 1;
  for (int z = i + j + 1; j >= 0; z--) {
    const int old = i >= 0 && (sorted[j] * sign > keys[i] * sign || (sorted[j] != sorted[j] && keys[i] == keys[i]));
    if (z < length) keys[z] = old ? keys[i] : sorted[j], indices[z] = old ? indices[i] : from[j];
    if (old) i--;
    else j--;
  }
  return held + count < length ? held + count : length;
}
/*section store_numbers load_numbers */
typedef lane_int number_memory __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));
INLINE void store_numbers(lane_int *p, ints x) { *(number_memory *)p = x; }
INLINE ints load_numbers(const lane_int *p) { return *(const number_memory *)p; }

/* ---- elementary functions ---- */
/*section SIGN_BIT */
#if REAL_BITS == 32
#define SIGN_BIT INT32_MIN
#else
#define SIGN_BIT INT64_MIN
#endif
/*section with_sign_of */
INLINE vec with_sign_of(vec x, vec s) {
  ints m = splat_int(SIGN_BIT);
  return (vec)(((ints)x & ~m) | ((ints)s & m));
}
/*section absolute */
INLINE vec absolute(vec x) { return (vec)((ints)x & ~splat_int(SIGN_BIT)); }
/*section signum */
INLINE vec signum(vec x) {
  vec s = with_sign_of(splat(1), x);
  return select((x > splat(0)) | (x < splat(0)), s, x + splat(0)); /* 0 -> 0, NaN -> NaN */
}
/*section square_root */
#if VECTOR_BYTES == 64 && defined(__AVX512F__) && !defined(__clang__) && REAL_BITS == 32
INLINE vec square_root(vec x) { return __builtin_ia32_sqrtps512_mask(x, x, (short)-1, 4); }
#elif VECTOR_BYTES == 64 && defined(__AVX512F__) && !defined(__clang__) && REAL_BITS == 64
INLINE vec square_root(vec x) { return __builtin_ia32_sqrtpd512_mask(x, x, (char)-1, 4); }
#elif VECTOR_BYTES == 32 && defined(__AVX__) && !defined(__clang__) && REAL_BITS == 32
INLINE vec square_root(vec x) { return __builtin_ia32_sqrtps256(x); }
#elif VECTOR_BYTES == 32 && defined(__AVX__) && !defined(__clang__) && REAL_BITS == 64
INLINE vec square_root(vec x) { return __builtin_ia32_sqrtpd256(x); }
#else
INLINE vec square_root(vec x) {
  vec r = {0};
#if REAL_BITS == 32
  for (int i = 0; i < LANES; i++) r[i] = __builtin_sqrtf(x[i]);
#else
  for (int i = 0; i < LANES; i++) r[i] = __builtin_sqrt(x[i]);
#endif
  return r;
}
#endif
/*section round_even */
/* Adding and subtracting 2^23 (2^52) rounds to an integer, ties to even; larger values are integers already. */
#if REAL_BITS == 32
#define ROUND_LIMIT 0x1p23f
#else
#define ROUND_LIMIT 0x1p52
#endif
INLINE vec round_even(vec x) {
  vec big = with_sign_of(splat(ROUND_LIMIT), x), r = x + big;
  return with_sign_of(select(absolute(x) < splat(ROUND_LIMIT), r - big, x), x);
}
/*section floor_of */
INLINE vec floor_of(vec x) {
  vec r = round_even(x);
  return with_sign_of(r - select(r > x, splat(1), splat(0)), x);
}
/*section ceil_of */
INLINE vec ceil_of(vec x) {
  vec r = round_even(x);
  return with_sign_of(r + select(r < x, splat(1), splat(0)), x);
}
/*section scaled MAGIC BIAS UNIT clamp_low */
/* The last step of the exponentials: p 2^n, where t = n + MAGIC + BIAS came from the addition that rounded to n, and the
 * first, the lower clamp. AVX-512 scales by an instruction and drops what is too small at the end. Elsewhere p comes
 * doubled (UNIT is its value at 0) and 2^(n-1) is built in the exponent field, 0 for the smallest n: their product
 * overflows exactly where it should. */
#if REAL_BITS == 32
#define MAGIC 0x1.8p23f
#else
#define MAGIC 0x1.8p52
#endif
#if VECTOR_BYTES == 64 && defined(__AVX512F__) && REAL_BITS == 32
#define BIAS 0
#define UNIT 1
#define clamp_low(low, x) (x)
INLINE vec scaled(vec p, vec t, vec x, real smallest) {
  unsigned short kept = (unsigned short)__builtin_ia32_cmpps512_mask(x, splat(smallest), 5, (short)-1, 4); /* !(x < smallest) */
  return __builtin_ia32_scalefps512_mask(p, t - splat(MAGIC), (vec){0}, kept, 4);
}
#elif VECTOR_BYTES == 64 && defined(__AVX512F__) && REAL_BITS == 64
#define BIAS 0
#define UNIT 1
#define clamp_low(low, x) (x)
INLINE vec scaled(vec p, vec t, vec x, real smallest) {
  unsigned char kept = (unsigned char)__builtin_ia32_cmppd512_mask(x, splat(smallest), 5, (char)-1, 4);
  return __builtin_ia32_scalefpd512_mask(p, t - splat(MAGIC), (vec){0}, kept, 4);
}
#else
#if REAL_BITS == 32
#define BIAS 126
#define EXPONENT_AT 23
#else
#define BIAS 1022
#define EXPONENT_AT 52
#endif
#define UNIT 2
#define clamp_low(low, x) larger(splat(low), x)
INLINE vec scaled(vec p, vec t, vec x, real smallest) {
  (void)x, (void)smallest;
  return p * (vec)((uints)t << EXPONENT_AT);
}
#endif
/*section power_of_e */
/* e^x = 2^n e^r with n = round(x / ln 2), |r| <= ln(2) / 2; ln 2 in two parts whose first has trailing zeros, so n times
 * it is exact without FMA. Results under 2^-125.5 (2^-1021.5) are 0: no subnormal slows the loop. `c` is x in bounds;
 * NaN passes the clamps because they return their second operand for it. Error <= 2.5 ulp (float), 1.5 ulp (double). */
#if REAL_BITS == 32
INLINE vec power_of_e(vec x, vec c) {
  vec t = c * splat(0x1.715476p+0f) + splat(MAGIC + BIAS), n = t - splat(MAGIC + BIAS);
  vec r = c - n * splat(0x1.63p-1f);
  r = r + n * splat(0x1.bd0106p-13f);
  vec p = splat(UNIT * 0x1.0e4020p-7f);
  p = p * r + splat(UNIT * 0x1.573e2ep-5f);
  p = p * r + splat(UNIT * 0x1.555e66p-3f);
  p = p * r + splat(UNIT * 0x1.fffdb6p-2f);
  p = p * r + splat(UNIT * 0x1.ffffecp-1f);
  p = p * r + splat(UNIT);
  return scaled(p, t, x, -86.99f);
}
#else
INLINE vec power_of_e(vec x, vec c) {
  vec t = c * splat(0x1.71547652b82fep+0) + splat(MAGIC + BIAS), n = t - splat(MAGIC + BIAS);
  vec r = c - n * splat(0x1.62e42feep-1);
  r = r - n * splat(0x1.a39ef35793c76p-33);
  vec p = splat(UNIT * 0x1.af4e196027428p-26);
  p = p * r + splat(UNIT * 0x1.28a2f14d67e43p-22);
  p = p * r + splat(UNIT * 0x1.71de021a90822p-19);
  p = p * r + splat(UNIT * 0x1.a019a63bb0bc2p-16);
  p = p * r + splat(UNIT * 0x1.a01a01abef415p-13);
  p = p * r + splat(UNIT * 0x1.6c16c17f52666p-10);
  p = p * r + splat(UNIT * 0x1.11111111100cep-7);
  p = p * r + splat(UNIT * 0x1.5555555552079p-5);
  p = p * r + splat(UNIT * 0x1.5555555555557p-3);
  p = p * r + splat(UNIT * 0x1.0000000000005p-1);
  p = p * r + splat(UNIT);
  p = p * r + splat(UNIT);
  return scaled(p, t, x, -708.05);
}
#endif
/*section exponential */
#if REAL_BITS == 32
INLINE vec exponential(vec x) { return power_of_e(x, clamp_low(-87.5f, smaller(splat(88.8f), x))); }
#else
INLINE vec exponential(vec x) { return power_of_e(x, clamp_low(-708.5, smaller(splat(710.0), x))); }
#endif
/*section rounded */
/* The value itself, which the compiler may not join with what is added to it. */
INLINE vec rounded(vec x) {
#if defined(__x86_64__) || defined(__i386__)
  __asm__("" : "+v"(x));
#elif defined(__aarch64__)
  __asm__("" : "+w"(x));
#else
  __asm__("" : "+m"(x));
#endif
  return x;
}
/*section exponential_below */
/* The same where x is known to be never positive, or NaN. Right up to the overflow of e^x, beyond it any number. */
#if REAL_BITS == 32
INLINE vec exponential_below(vec x) { return power_of_e(x, clamp_low(-87.5f, x)); }
#else
INLINE vec exponential_below(vec x) { return power_of_e(x, clamp_low(-708.5, x)); }
#endif
/*section power_of_2 */
/* 2^x = 2^n 2^f with n = round(x), |f| <= 1/2; scaling as in `power_of_e`. */
#if REAL_BITS == 32
INLINE vec power_of_2(vec x, vec c) {
  vec t = c + splat(MAGIC + BIAS), f = c - (t - splat(MAGIC + BIAS));
  vec p = splat(UNIT * 0x1.44138cp-13f);
  p = p * f + splat(UNIT * 0x1.5f0894p-10f);
  p = p * f + splat(UNIT * 0x1.3b2a54p-7f);
  p = p * f + splat(UNIT * 0x1.c6af6cp-5f);
  p = p * f + splat(UNIT * 0x1.ebfbe0p-3f);
  p = p * f + splat(UNIT * 0x1.62e430p-1f);
  p = p * f + splat(UNIT);
  return scaled(p, t, x, -125.5f);
}
#else
INLINE vec power_of_2(vec x, vec c) {
  vec t = c + splat(MAGIC + BIAS), f = c - (t - splat(MAGIC + BIAS));
  vec p = splat(UNIT * 0x1.e9d400f144ca3p-32);
  p = p * f + splat(UNIT * 0x1.e60642a220885p-28);
  p = p * f + splat(UNIT * 0x1.b524fae4cb89bp-24);
  p = p * f + splat(UNIT * 0x1.62bfd475db30ep-20);
  p = p * f + splat(UNIT * 0x1.ffcbfc670e3f6p-17);
  p = p * f + splat(UNIT * 0x1.43091309705fdp-13);
  p = p * f + splat(UNIT * 0x1.5d87fe78a5275p-10);
  p = p * f + splat(UNIT * 0x1.3b2ab6fba1dd8p-7);
  p = p * f + splat(UNIT * 0x1.c6b08d704a0c2p-5);
  p = p * f + splat(UNIT * 0x1.ebfbdff82c598p-3);
  p = p * f + splat(UNIT * 0x1.62e42fefa39efp-1);
  p = p * f + splat(UNIT);
  return scaled(p, t, x, -1021.5);
}
#endif
/*section exponential2 */
#if REAL_BITS == 32
INLINE vec exponential2(vec x) { return power_of_2(x, clamp_low(-126.25f, smaller(splat(128.5f), x))); }
#else
INLINE vec exponential2(vec x) { return power_of_2(x, clamp_low(-1022.25, smaller(splat(1024.5), x))); }
#endif
/*section exponential2_below */
#if REAL_BITS == 32
INLINE vec exponential2_below(vec x) { return power_of_2(x, clamp_low(-126.25f, x)); }
#else
INLINE vec exponential2_below(vec x) { return power_of_2(x, clamp_low(-1022.25, x)); }
#endif
/*section logarithm */
/* ln x = e ln 2 + ln m, m in [sqrt(1/2), sqrt(2)); subnormals are scaled up first. Float: the polynomial of Cephes logf;
 * double: ln(1 + f) through s = f / (2 + f) as in FreeBSD's e_log.c. ln(+-0) = -inf, ln of a negative number is NaN. */
#if REAL_BITS == 32
#define SMALLEST_NORMAL 0x1p-126f
INLINE vec logarithm(vec x) {
  ints tiny = x < splat(SMALLEST_NORMAL);
  ints b = (ints)select(tiny, x * splat(0x1p23f), x);
  vec e = __builtin_convertvector(((b >> 23) & 255) - 127, vec) - select(tiny, splat(23), splat(0));
  vec m = (vec)((b & 0x7fffff) | 0x3f800000);
  ints high = m > splat(1.41421356f);
  m = select(high, m * splat(0.5f), m);
  e = select(high, e + splat(1), e);
  vec f = m - splat(1), q = f * f, p = splat(7.0376836292e-2f);
  p = p * f + splat(-1.1514610310e-1f);
  p = p * f + splat(1.1676998740e-1f);
  p = p * f + splat(-1.2420140846e-1f);
  p = p * f + splat(1.4249322787e-1f);
  p = p * f + splat(-1.6668057665e-1f);
  p = p * f + splat(2.0000714765e-1f);
  p = p * f + splat(-2.4999993993e-1f);
  p = p * f + splat(3.3333331174e-1f);
  vec y = q * f * p + e * splat(-2.12194440e-4f) - splat(0.5f) * q;
  y = f + y + e * splat(0.693359375f);
  y = select(x == splat(0), splat(-INF), y);
  y = select(x < splat(INF), y, x); /* +inf and NaN return themselves */
  return select(x < splat(0), splat(NOT_A_NUMBER), y);
}
#else
#define SMALLEST_NORMAL 0x1p-1022
INLINE vec logarithm(vec x) {
  ints tiny = x < splat(SMALLEST_NORMAL);
  ints b = (ints)select(tiny, x * splat(0x1p52), x);
  vec e = __builtin_convertvector(((b >> 52) & 2047) - 1023, vec) - select(tiny, splat(52), splat(0));
  vec m = (vec)((b & 0xfffffffffffff) | 0x3ff0000000000000);
  ints high = m > splat(1.4142135623730951);
  m = select(high, m * splat(0.5), m);
  e = select(high, e + splat(1), e);
  vec f = m - splat(1), s = f / (splat(2) + f), z = s * s, h = splat(0.5) * f * f, p = splat(1.479819860511658591e-1);
  p = p * z + splat(1.531383769920937332e-1);
  p = p * z + splat(1.818357216161805012e-1);
  p = p * z + splat(2.222219843214978396e-1);
  p = p * z + splat(2.857142874366239149e-1);
  p = p * z + splat(3.999999999940941908e-1);
  p = p * z + splat(6.666666666666735130e-1);
  vec y = e * splat(1.90821492927058770002e-10) + s * (h + p * z);
  y = e * splat(6.93147180369123816490e-01) - ((h - y) - f);
  y = select(x == splat(0), splat(-INF), y);
  y = select(x < splat(INF), y, x);
  return select(x < splat(0), splat(NOT_A_NUMBER), y);
}
#endif

/* ---- narrow formats, always through float ---- */
/*section halves widened */
typedef uint16_t halves __attribute__((vector_size(LANES * 2)));
#if VECTOR_BYTES == 32 && REAL_BITS == 32 && defined(__AVX2__) && !defined(__clang__)
typedef short half_bits __attribute__((vector_size(16)));
INLINE uwords widened(halves h) { return (uwords)__builtin_ia32_pmovzxwd256((half_bits)h); } /* gcc splits the general form */
#else
INLINE uwords widened(halves h) { return __builtin_convertvector(h, uwords); }
#endif
/*section from_float16 */
#if VECTOR_BYTES == 32 && REAL_BITS == 32 && defined(__F16C__) && !defined(__clang__)
typedef short from_lanes __attribute__((vector_size(16)));
INLINE floats from_float16(halves h) { return __builtin_ia32_vcvtph2ps256((from_lanes)h); }
#elif VECTOR_BYTES == 64 && REAL_BITS == 32 && defined(__AVX512F__) && !defined(__clang__)
typedef short from_lanes __attribute__((vector_size(32)));
INLINE floats from_float16(halves h) { return __builtin_ia32_vcvtph2ps512_mask((from_lanes)h, (floats){0}, (short)-1, 4); }
#else
INLINE floats from_float16(halves h) {
  uwords w = widened(h), rest = (w & 0x7fff) << 13, sign = (w & 0x8000) << 16;
  uwords v = (uwords)((floats)rest * 0x1p112f); /* exact for normal and subnormal numbers */
  uwords special = (uwords)(rest >= (uwords){0} + (0x7c00u << 13));
  return (floats)(v | (special & 0x7f800000) | sign);
}
#endif
/*section to_float16 */
/* Round to nearest, ties to even. */
#if VECTOR_BYTES == 32 && REAL_BITS == 32 && defined(__F16C__) && !defined(__clang__)
INLINE halves to_float16(floats x) { return (halves)__builtin_ia32_vcvtps2ph256(x, 0); }
#elif VECTOR_BYTES == 64 && REAL_BITS == 32 && defined(__AVX512F__) && !defined(__clang__)
typedef short to_lanes __attribute__((vector_size(32)));
INLINE halves to_float16(floats x) { return (halves)__builtin_ia32_vcvtps2ph512_mask(x, 0, (to_lanes){0}, (short)-1); }
#else
INLINE halves to_float16(floats x) {
  uwords u = (uwords)x, sign = u & 0x80000000u, a = u ^ sign;
  uwords normal = (a + 0xc8000fffu + ((a >> 13) & 1)) >> 13; /* exponent rebased from 127 to 15 */
  uwords small = (uwords)((floats)a + 0.5f) - 0x3f000000u;    /* the float adder aligns and rounds subnormals */
  uwords is_small = (uwords)(a < (uwords){0} + (113u << 23)), is_big = (uwords)(a >= (uwords){0} + (143u << 23));
  uwords is_nan = (uwords)(a > (uwords){0} + 0x7f800000u);
  uwords big = 0x7c00u | (is_nan & 0x200u);
  uwords r = (is_small & small) | (~is_small & normal);
  return __builtin_convertvector(((is_big & big) | (~is_big & r)) | (sign >> 16), halves);
}
#endif
/*section from_bfloat16 */
INLINE floats from_bfloat16(halves h) { return (floats)(widened(h) << 16); }
/*section to_bfloat16 */
INLINE halves to_bfloat16(floats x) { /* round to nearest, ties to even; NaN stays NaN */
  uwords u = (uwords)x, is_nan = (uwords)(x != x);
  uwords r = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  return __builtin_convertvector((is_nan & ((u >> 16) | 0x40)) | (~is_nan & r), halves);
}
/*section quarters byte_halves */
typedef uint8_t quarters __attribute__((vector_size(LANES)));
#if VECTOR_BYTES == 32 && REAL_BITS == 32 && defined(__AVX2__) && !defined(__clang__)
typedef char all_bytes __attribute__((vector_size(16)));
typedef long long low_half __attribute__((vector_size(16)));
INLINE halves byte_halves(quarters b) { /* gcc splits the general form */
  return (halves)__builtin_ia32_pmovzxbw128((all_bytes)(low_half){(long long)b, 0});
}
#else
INLINE halves byte_halves(quarters b) { return __builtin_convertvector(b, halves); }
#endif
/*section rounded_bytes */
/* Magnitudes in a format of 8 bits, as integers: round to nearest, ties to even. Exponents go on beyond its largest. */
INLINE words rounded_bytes(floats x, int mantissa, int bias) {
  int shift = 23 - mantissa, ulp_one = (151 - bias - mantissa) << 23; /* float whose ulp is the smallest subnormal */
  words a = (words)x & 0x7fffffff;
  words normal = (a - ((127 - bias) << 23) + ((1 << (shift - 1)) - 1) + ((a >> shift) & 1)) >> shift;
  words small = (words)((floats)a + (floats)((words){0} + ulp_one)) - ulp_one; /* the float adder aligns and rounds */
  words is_small = a < (words){0} + ((128 - bias) << 23);
  return (is_small & small) | (~is_small & normal);
}
/*section signed_bytes */
INLINE quarters signed_bytes(words r, floats x) {
  uwords w = (uwords)r | (((uwords)x >> 24) & 0x80);
  return __builtin_convertvector(__builtin_convertvector(w, halves), quarters);
}
/*section from_float8_e5m2 */
INLINE floats from_float8_e5m2(quarters b) { return from_float16(byte_halves(b) << 8); } /* the upper half of a float16 */
/*section to_float8_e5m2 */
INLINE quarters to_float8_e5m2(floats x) {
  words r = rounded_bytes(x, 2, 15), over = r > (words){0} + 0x7c;
  return signed_bytes((over & (0x7c | ((x != x) & 2))) | (~over & r), x);
}
/*section from_float8_e4m3fn */
INLINE floats from_float8_e4m3fn(quarters b) { /* as a float16 it is 2^8 times too small, subnormal numbers as well */
  halves h = byte_halves(b), a = h & 0x7f, is_nan = (halves)(a == (halves){0} + 0x7f);
  return from_float16(((h & 0x80) << 8) | (a << 7) | (is_nan & 0x7c00)) * 0x1p8f;
}
/*section to_float8_e4m3fn */
INLINE quarters to_float8_e4m3fn(floats x) { /* beyond the largest number comes NaN */
  words r = rounded_bytes(x, 3, 7), over = r > (words){0} + 0x7f;
  return signed_bytes((r | over) & 0x7f, x);
}
/*section odd_floats */
/* Doubles cut off, the last bit set where anything was lost: what rounds them further rounds as if it had the doubles. */
INLINE floats odd_floats(vec x) {
  uints u = (uints)x, lost = (uints)((u & 0x1fffffff) != (uints){0}) & 0x20000000;
  return __builtin_convertvector((vec)((u & ~UINT64_C(0x1fffffff)) | lost), floats);
}

/* ---- scalars ---- */
/*section scalar_from_float16 */
INLINE float scalar_from_float16(uint16_t h) {
  union { uint32_t u; float f; } v = {(uint32_t)(h & 0x7fff) << 13};
  v.f *= 0x1p112f;
  if ((h & 0x7c00) == 0x7c00) v.u |= 0x7f800000;
  v.u |= (uint32_t)(h & 0x8000) << 16;
  return v.f;
}
/*section scalar_to_float16 */
INLINE uint16_t scalar_to_float16(float x) { return to_float16(x - (floats){0})[0]; }
/*section scalar_from_bfloat16 */
INLINE float scalar_from_bfloat16(uint16_t h) {
  union { uint32_t u; float f; } v = {(uint32_t)h << 16};
  return v.f;
}
/*section scalar_to_bfloat16 */
INLINE uint16_t scalar_to_bfloat16(float x) { return to_bfloat16(x - (floats){0})[0]; }
/*section scalar_from_float8_e5m2 */
INLINE float scalar_from_float8_e5m2(uint8_t b) { return scalar_from_float16((uint16_t)(b << 8)); }
/*section scalar_to_float8_e5m2 */
INLINE uint8_t scalar_to_float8_e5m2(float x) { return to_float8_e5m2(x - (floats){0})[0]; }
/*section scalar_from_float8_e4m3fn */
INLINE float scalar_from_float8_e4m3fn(uint8_t b) { /* see from_float8_e4m3fn */
  return scalar_from_float16((uint16_t)((b & 0x80) << 8 | (b & 0x7f) << 7 | ((b & 0x7f) == 0x7f ? 0x7c00 : 0))) * 0x1p8f;
}
/*section scalar_to_float8_e4m3fn */
INLINE uint8_t scalar_to_float8_e4m3fn(float x) { return to_float8_e4m3fn(x - (floats){0})[0]; }
/*section odd_float */
INLINE float odd_float(double x) { /* as odd_floats */
  union { double d; uint64_t u; } v = {x};
  v.u = (v.u & ~UINT64_C(0x1fffffff)) | (v.u & 0x1fffffff ? 0x20000000 : 0);
  return (float)v.d;
}
/*section max_float32 */
INLINE float max_float32(float a, float b) { return a > b || a != a ? a : b; } /* NaN if either is */
/*section min_float32 */
INLINE float min_float32(float a, float b) { return a < b || a != a ? a : b; }
/*section max_float64 */
INLINE double max_float64(double a, double b) { return a > b || a != a ? a : b; }
/*section min_float64 */
INLINE double min_float64(double a, double b) { return a < b || a != a ? a : b; }
/*section max_int */
INLINE int64_t max_int(int64_t a, int64_t b) { return a > b ? a : b; }
/*section min_int */
INLINE int64_t min_int(int64_t a, int64_t b) { return a < b ? a : b; }
/*section floor_div */
INLINE int64_t floor_div(int64_t a, int64_t b) { /* rounds down; x // 0 = 0 as in NumPy */
  if (b == 0) return 0;
  if (b == -1) return -a; /* the least number over -1 has no quotient: it wraps around */
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}
/*section floor_mod */
INLINE int64_t floor_mod(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;
  int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
/*section sign_float32 */
INLINE float sign_float32(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x + 0.0f; }
/*section sign_float64 */
INLINE double sign_float64(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x + 0.0; }
/*section abs_int */
INLINE int64_t abs_int(int64_t x) { return x < 0 ? -x : x; }
/*section whole_float32 */
INLINE int64_t whole_float32(float x) { return x < 0x1p63f && x >= -0x1p63f ? (int64_t)x : INT64_MIN; }
/*section whole_float64 */
INLINE int64_t whole_float64(double x) { return x < 0x1p63 && x >= -0x1p63 ? (int64_t)x : INT64_MIN; }
/*section sign_int */
INLINE int64_t sign_int(int64_t x) { return (x > 0) - (x < 0); }

/* ---- integer lanes that depend on the loop variable ---- */
/*section clamp_lane */
/* A 64-bit bound as a lane integer: lane numbers are small, so clamping keeps every comparison true. */
INLINE lane_int clamp_lane(int64_t x) { return (lane_int)(x > (1 << 30) ? 1 << 30 : x < -(1 << 30) ? -(1 << 30) : x); }
/*section index_real */
/* (real)(start + step * lane): through 32-bit lanes while the value fits them. */
#if REAL_BITS == 32
INLINE vec index_real(int64_t start, int step) {
  if (start < (1 << 30) && start > -(1 << 30)) return __builtin_convertvector(splat_int((int)start) + IOTA * step, vec);
  vec r = {0};
  for (int i = 0; i < LANES; i++) r[i] = (real)(start + (int64_t)step * i);
  return r;
}
#else
INLINE vec index_real(int64_t start, int64_t step) { return __builtin_convertvector(splat_int(start) + IOTA * step, vec); }
#endif
