/* Device functions of tiles on matrix units; parts as in ../prelude.cuh. What only PTX can say has a second text for the
 * front end that compiles without it. */
/*section exp_at_most_one */
/* e^x for x <= 0, absolute error below 2^-22: 2^y within 2 ulp, y = x log2(e) rounded once. */
#ifdef REDFUSER_HOST
INLINE float exp_at_most_one(float x) { return exp2f(x * 0x1.715476p+0f); }
#else
INLINE float exp_at_most_one(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 0x1.715476p+0f));
  return y;
}
#endif

/* ---- rows of fragments ---- */
/*section quad_all */
/* Over the four lanes that hold a row; all lanes of the warp are here. The same bits in the four, as in `warp_all`. */
template <class F, class T>
INLINE T quad_all(T x) {
  x = F()(x, __shfl_xor_sync(ALL_LANES, x, 1));
  x = F()(x, __shfl_xor_sync(ALL_LANES, x, 2));
  return F::symmetric ? x : __shfl_sync(ALL_LANES, x, 0, 4);
}

/*section quad_best */
template <bool LARGEST, class T>
INLINE candidate<T> quad_best(candidate<T> best) {
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    const candidate<T> other = {__shfl_xor_sync(ALL_LANES, best.key, step), __shfl_xor_sync(ALL_LANES, best.place, step),
                                __shfl_xor_sync(ALL_LANES, best.index, step)};
    if (candidate_before<LARGEST>(other, best)) best = other;
  }
  return best;
}
/*section insert_sorted */
/* Into a list in registers, after equal keys; what falls off its end is lost. */
template <bool LARGEST, class T, int N>
INLINE void insert_sorted(T (&keys)[N], int64_t (&indices)[N], T key, int64_t index) {
  bool moved = false;
#pragma unroll
  for (int z = 0; z < N; z++) {
    moved = moved || indices[z] < 0 || key_before<LARGEST>(key, keys[z]);
    const T old_key = keys[z];
    const int64_t old_index = indices[z];
    keys[z] = moved ? key : old_key;
    indices[z] = moved ? index : old_index;
    key = moved ? old_key : key;
    index = moved ? old_index : index;
  }
}

/* ---- panels of shared memory ---- */
/*section panel_place */
/* Where a chunk of a row lies: the chunks of eight rows, one of each, lie in different banks. */
template <int CHUNKS>
INLINE int panel_place(int row, int chunk) {
  constexpr int power = CHUNKS & -CHUNKS, group = power < 8 ? power : 8;
  return (row * CHUNKS + (chunk ^ (row / (8 / group) % group))) * 8;
}
/*section copy_chunk */
/* Start to copy `bytes` of 16 bytes; the others become zero. */
#ifdef REDFUSER_HOST
INLINE void copy_chunk(uint16_t *to, const uint16_t *from, int bytes) { rf_host::cp_async(to, from, 16, bytes); }
#else
INLINE void copy_chunk(uint16_t *to, const uint16_t *from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(bytes) : "memory");
}
#endif
/*section copy_panel */
/* A matrix of two-byte elements into a panel, zero from row `rows` and column `columns` on. Neighbouring threads take
 * neighbouring chunks; each thread goes down by as many rows as all of them take at a time. */
template <int ROWS, int CHUNKS, int THREADS>
INLINE void copy_panel(uint16_t *to, const uint16_t *from, int64_t down, int64_t across, int64_t rows, int64_t columns) {
  constexpr int power = CHUNKS & -CHUNKS, side = power < 32 ? power : 32, step = THREADS / side;
  const bool fits = across == 1 && down % 8 == 0 && (uint64_t)from % 16 == 0;
  const int first = threadIdx.x / side, left = rows < ROWS ? (int)rows : ROWS;
  const uint16_t *start = from + (first * down + (int64_t)(threadIdx.x % side) * 8 * across);
#pragma unroll 1 /* addresses of several rows would take registers from fragments */
  for (int row = first; row < ROWS; row += step, start += step * down)
#pragma unroll
    for (int chunk = threadIdx.x % side; chunk < CHUNKS; chunk += side) {
      const int64_t rest = row < left ? columns - chunk * 8 : 0;
      const int count = rest > 8 ? 8 : rest < 0 ? 0 : (int)rest;
      uint16_t *const place = to + panel_place<CHUNKS>(row, chunk);
      const uint16_t *const at = start + (chunk - (int)(threadIdx.x % side)) * 8 * across;
      if (fits) {
        copy_chunk(place, count ? at : from, count * 2);
      } else {
#pragma unroll
        for (int c = 0; c < 8; c++) place[c] = c < count ? at[c * across] : (uint16_t)0;
      }
    }
}
/*section commit_copies */
#ifdef REDFUSER_HOST
INLINE void commit_copies() { rf_host::cp_async_commit(); }
#else
INLINE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
#endif
/*section wait_for_copies */
template <int PENDING>
INLINE void wait_for_copies() {
#ifdef REDFUSER_HOST
  rf_host::cp_async_wait(PENDING);
#else
  asm volatile("cp.async.wait_group %0;" :: "n"(PENDING) : "memory");
#endif
}

/* ---- matrix units ---- */
/*section load_matrices */
/* Four 8 x 8 matrices; lane l tells where row l % 8 of matrix l / 8 lies. TURNED: their transposes. */
template <bool TURNED>
INLINE void load_matrices(uint32_t (&to)[4], const uint16_t *row) {
#ifdef REDFUSER_HOST
  rf_host::ldmatrix<4, TURNED>(to, row);
#else
  const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
  if (TURNED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
#endif
}
/*section float16_units */
struct float16_units {
  static INLINE uint32_t pair(float first, float second) {
#ifdef REDFUSER_HOST
    return (uint32_t)scalar_to_float16(first) | (uint32_t)scalar_to_float16(second) << 16;
#else
    uint32_t both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
#endif
  }
  static INLINE void add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#ifdef REDFUSER_HOST
    const uint32_t b[2] = {b0, b1};
    rf_host::mma<16, rf_host::OP_F16>(d, a, b, d);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
  }
};
/*section bfloat16_units */
struct bfloat16_units {
  static INLINE uint32_t pair(float first, float second) {
#ifdef REDFUSER_HOST
    return (uint32_t)scalar_to_bfloat16(first) | (uint32_t)scalar_to_bfloat16(second) << 16;
#else
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
#endif
  }
  static INLINE void add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#ifdef REDFUSER_HOST
    const uint32_t b[2] = {b0, b1};
    rf_host::mma<16, rf_host::OP_BF16>(d, a, b, d);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
  }
};
/*section take_operand */
/* The rows of a warp, from row `first` of a panel on, as left operands of products. */
template <int CHUNKS, int PIECES, int DEPTHS>
INLINE void take_operand(uint32_t (&to)[PIECES][DEPTHS][4], const uint16_t *panel, int first) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int piece = 0; piece < PIECES; piece++)
#pragma unroll
    for (int depth = 0; depth < DEPTHS; depth++)
      load_matrices<false>(to[piece][depth],
                           panel + panel_place<CHUNKS>(first + piece * 16 + lane % 16, depth * 2 + lane / 16));
}
/*section rounded_operand */
/* Fragments as left operands of products: the lanes hold the same elements of both. */
template <class UNITS, int PIECES, int DEPTHS, int COLUMNS>
INLINE void rounded_operand(uint32_t (&to)[PIECES][DEPTHS][4], const float (&from)[PIECES][COLUMNS][4]) {
#pragma unroll
  for (int piece = 0; piece < PIECES; piece++)
#pragma unroll
    for (int depth = 0; depth < DEPTHS; depth++)
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float(&c)[4] = from[piece][depth * 2 + i / 2];
        to[piece][depth][i] = UNITS::pair(c[i % 2 * 2], c[i % 2 * 2 + 1]);
      }
}
/*section multiply_depth */
/* One step of the depth of d += a . b: the matrix b in a panel, a row per column of d, or (TURNED) a row per step. */
template <class UNITS, bool TURNED, int CHUNKS, int PIECES, int COLUMNS>
INLINE void multiply_depth(float (&d)[PIECES][COLUMNS][4], const uint32_t (&a)[PIECES][4], const uint16_t *panel,
                           int depth) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int column = 0; column < COLUMNS; column += 2) {
    uint32_t b[4];
    if (TURNED)
      load_matrices<true>(b, panel + panel_place<CHUNKS>(depth * 16 + lane % 16, column + lane / 16));
    else
      load_matrices<false>(b, panel + panel_place<CHUNKS>(column * 8 + lane % 8 + lane / 16 * 8,
                                                          depth * 2 + lane / 8 % 2));
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++) {
      UNITS::add(d[piece][column], a[piece], b[0], b[1]);
      if (column + 1 < COLUMNS) UNITS::add(d[piece][column + 1], a[piece], b[2], b[3]);
    }
  }
}
/*section multiply */
/* d += a . b, a in registers. */
template <class UNITS, bool TURNED, int CHUNKS, int PIECES, int COLUMNS, int DEPTHS>
INLINE void multiply(float (&d)[PIECES][COLUMNS][4], const uint32_t (&a)[PIECES][DEPTHS][4], const uint16_t *panel) {
#pragma unroll
  for (int depth = 0; depth < DEPTHS; depth++) {
    uint32_t step[PIECES][4];
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++)
#pragma unroll
      for (int i = 0; i < 4; i++) step[piece][i] = a[piece][depth][i];
    multiply_depth<UNITS, TURNED, CHUNKS>(d, step, panel, depth);
  }
}
/*section multiply_panels */
/* d += a . b, a in a panel, from its row `first` on. */
template <class UNITS, bool TURNED, int OWN, int CHUNKS, int DEPTHS, int PIECES, int COLUMNS>
INLINE void multiply_panels(float (&d)[PIECES][COLUMNS][4], const uint16_t *own, int first, const uint16_t *panel) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int depth = 0; depth < DEPTHS; depth++) {
    uint32_t step[PIECES][4];
#pragma unroll
    for (int piece = 0; piece < PIECES; piece++)
      load_matrices<false>(step[piece], own + panel_place<OWN>(first + piece * 16 + lane % 16, depth * 2 + lane / 16));
    multiply_depth<UNITS, TURNED, CHUNKS>(d, step, panel, depth);
  }
}
/*section clear_fragments */
template <int PIECES, int COLUMNS>
INLINE void clear_fragments(float (&d)[PIECES][COLUMNS][4]) {
#pragma unroll
  for (int piece = 0; piece < PIECES; piece++)
#pragma unroll
    for (int column = 0; column < COLUMNS; column++)
#pragma unroll
      for (int i = 0; i < 4; i++) d[piece][column][i] = 0;
}
