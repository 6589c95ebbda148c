// C = A B^T for bfloat16 A (m x k) and B (64 x k), float C: a block has 64 rows of A, a warp 16; k is a multiple of 32.
typedef unsigned int u32;
constexpr int DEPTH = 32;

// 16-byte chunk c of row r: chunks are exchanged among rows so that ldmatrix meets every bank once.
__device__ __forceinline__ unsigned char* place(unsigned char* base, int r, int c) {
    return base + r * (DEPTH * 2) + ((c ^ (r >> 1 & 3)) << 4);
}

#ifdef REDFUSER_HOST
inline void copy16(void* to, const void* from, int bytes) { rf_host::cp_async(to, from, 16, bytes); }
inline void landed() { rf_host::cp_async_commit(); rf_host::cp_async_wait(0); }
inline void rows4(u32 (&f)[4], const void* row) { rf_host::ldmatrix<4, false>(f, row); }
inline void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    const u32 b[2] = {b0, b1};
    rf_host::mma<16, rf::OP_BF16>(c, a, b, c);
}
#else
__device__ __forceinline__ void copy16(void* to, const void* from, int bytes) {
    const u32 address = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void landed() { asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory"); }
__device__ __forceinline__ void rows4(u32 (&f)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3]) : "r"((u32)__cvta_generic_to_shared(row)) : "memory");
}
__device__ __forceinline__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

__device__ __forceinline__ void load(unsigned char* base, const unsigned short* __restrict__ x, int row0, int rows, int k, int k0) {
    for (int i = threadIdx.x; i < 64 * (DEPTH / 8); i += 128) {
        const int r = i / (DEPTH / 8), c = i % (DEPTH / 8);
        const int bytes = row0 + r < rows ? 16 : 0;
        copy16(place(base, r, c), x + (long long)(bytes ? row0 + r : 0) * k + k0 + c * 8, bytes);
    }
}

extern "C" __global__ void __launch_bounds__(128) tile(const unsigned short* __restrict__ a, const unsigned short* __restrict__ b,
                                                       float* __restrict__ c, int m, int k) {
    __shared__ __align__(128) unsigned char left[64 * DEPTH * 2], right[64 * DEPTH * 2];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, row0 = blockIdx.x * 64;
    float sum[8][4] = {};
    for (int k0 = 0; k0 < k; k0 += DEPTH) {
        load(left, a, row0, m, k, k0);
        load(right, b, 0, 64, k, k0);
        landed();
        __syncthreads();  // all landed
        for (int kk = 0; kk < DEPTH / 16; kk++) {
            u32 fa[4];
            rows4(fa, place(left, warp * 16 + (lane & 15), kk * 2 + (lane >> 4)));
            for (int j = 0; j < 8; j += 2) {
                u32 fb[4];
                rows4(fb, place(right, j * 8 + (lane & 7) + ((lane >> 4) << 3), kk * 2 + ((lane >> 3) & 1)));
                multiply(sum[j], fa, fb[0], fb[1]);
                multiply(sum[j + 1], fa, fb[2], fb[3]);
            }
        }
        __syncthreads();  // used
    }
    for (int j = 0; j < 8; j++)
        for (int h = 0; h < 2; h++) {
            const int r = row0 + warp * 16 + (lane >> 2) + 8 * h;
            if (r < m) *reinterpret_cast<float2*>(c + r * 64 + j * 8 + (lane & 3) * 2) = make_float2(sum[j][2 * h], sum[j][2 * h + 1]);
        }
}
