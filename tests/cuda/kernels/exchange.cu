// A warp reverses 64 values through shared memory of its own, with __syncwarp alone; named barriers order two warps.
#ifdef REDFUSER_HOST
#define arrive(id, threads) rf_host::barrier(id, threads, false)
#define await(id, threads) rf_host::barrier(id, threads, true)
#else
#define arrive(id, threads) asm volatile("bar.arrive %0, %1;" ::"n"(id), "n"(threads) : "memory")
#define await(id, threads) asm volatile("bar.sync %0, %1;" ::"n"(id), "n"(threads) : "memory")
#endif
extern "C" __global__ void __launch_bounds__(128) exchange(const float* __restrict__ x, float* __restrict__ y) {
    __shared__ float own[4][64];
    __shared__ float handed[64];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const float* in = x + blockIdx.x * 256 + warp * 64;
    own[warp][lane] = in[lane];
    own[warp][lane + 32] = in[lane + 32];
    __syncwarp();  // written
    const float a = own[warp][63 - lane], b = own[warp][31 - lane];
    if (warp == 0) {  // the producer goes on at once
        handed[lane] = a;
        handed[lane + 32] = b;
        arrive(1, 64);
    }
    float extra = 0, more = 0;
    if (warp == 1) {
        await(1, 64);
        extra = handed[lane];
        more = handed[lane + 32];
    }
    float* out = y + blockIdx.x * 256 + warp * 64;
    out[lane] = a + extra;
    out[lane + 32] = b + more;
}
