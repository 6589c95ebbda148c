// One instruction each: collectives, barriers that reduce, rows of matrices, products.
typedef unsigned u32;
#define SHUFFLE(name, mode) \
extern "C" __global__ void name(const u32* v, const u32* b, u32* out, u32* valid, int c) { \
    const int i = threadIdx.x; u32 d, p; \
    asm volatile("{ .reg .pred q; shfl.sync." mode ".b32 %0|q, %2, %3, %4, -1; selp.u32 %1, 1, 0, q; }" \
                 : "=r"(d), "=r"(p) : "r"(v[i]), "r"(b[i]), "r"(c)); \
    out[i] = d; valid[i] = p; }
SHUFFLE(up, "up") SHUFFLE(down, "down") SHUFFLE(bfly, "bfly") SHUFFLE(idx, "idx")

extern "C" __global__ void votes(const u32* v, u32* out) {
    const int i = threadIdx.x;
    const u32 x = v[i];
    out[i] = __ballot_sync(0xffffffffu, x & 1); out[32 + i] = __any_sync(0xffffffffu, x == 3);
    out[64 + i] = __all_sync(0xffffffffu, x < 8); out[96 + i] = __match_any_sync(0xffffffffu, x);
    int same; out[128 + i] = __match_all_sync(0xffffffffu, x >> 8, &same); out[160 + i] = same;
    out[192 + i] = __reduce_add_sync(0xffffffffu, x); out[224 + i] = __reduce_min_sync(0xffffffffu, (int)x - 4);
    out[256 + i] = __reduce_max_sync(0xffffffffu, x); out[288 + i] = __reduce_xor_sync(0xffffffffu, x);
    u32 own = 0;
    if (i & 1) own = __ballot_sync(0xaaaaaaaau, x > 3);
    out[320 + i] = own; out[352 + i] = __activemask() >> i & 1;
}
extern "C" __global__ void barriers(u32* out) {
    const int i = threadIdx.x;
    out[i] = __syncthreads_count(i % 3 == 0);
    out[64 + i] = __syncthreads_or(i == 63);
    out[128 + i] = __syncthreads_and(i < 63);
}
extern "C" __global__ void rows(const unsigned short* x, u32* out) {
    __shared__ __align__(16) unsigned short s[4 * 64];
    const int i = threadIdx.x;
    for (int j = i; j < 256; j += 32) s[j] = x[j];
    __syncwarp();
    const u32 a = (u32)__cvta_generic_to_shared(s + i * 8);
    u32 r[12];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[4]), "=r"(r[5]), "=r"(r[6]), "=r"(r[7]) : "r"(a));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[8]), "=r"(r[9]) : "r"(a));
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[10]) : "r"(a));
    r[11] = 0;
    for (int j = 0; j < 12; j++) out[j * 32 + i] = r[j];
}
#define PRODUCT(name, op, A, B, alist, blist) \
extern "C" __global__ void name(const u32* a, const u32* b, const u32* c, u32* d) { \
    const int i = threadIdx.x; u32 x[4] = {}, y[2] = {}, z[4]; \
    for (int j = 0; j < A; j++) x[j] = a[j * 32 + i]; \
    for (int j = 0; j < B; j++) y[j] = b[j * 32 + i]; \
    for (int j = 0; j < 4; j++) z[j] = c[j * 32 + i]; \
    asm volatile("mma.sync.aligned." op " {%0,%1,%2,%3}, " alist ", " blist ", {%0,%1,%2,%3};" \
                 : "+r"(z[0]), "+r"(z[1]), "+r"(z[2]), "+r"(z[3]) \
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1])); \
    for (int j = 0; j < 4; j++) d[j * 32 + i] = z[j]; }

#define FPRODUCT(name, op, A, B, alist, blist) \
extern "C" __global__ void name(const u32* a, const u32* b, const float* c, float* d) { \
    const int i = threadIdx.x; u32 x[4] = {}, y[2] = {}; float z[4]; \
    for (int j = 0; j < A; j++) x[j] = a[j * 32 + i]; \
    for (int j = 0; j < B; j++) y[j] = b[j * 32 + i]; \
    for (int j = 0; j < 4; j++) z[j] = c[j * 32 + i]; \
    asm volatile("mma.sync.aligned." op " {%0,%1,%2,%3}, " alist ", " blist ", {%0,%1,%2,%3};" \
                 : "+f"(z[0]), "+f"(z[1]), "+f"(z[2]), "+f"(z[3]) \
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1])); \
    for (int j = 0; j < 4; j++) d[j * 32 + i] = z[j]; }
