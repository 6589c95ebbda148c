// Prefix sums of a row of up to 1024 elements, warp by warp, then over the warps' sums.
extern "C" __global__ void __launch_bounds__(1024) scan(const float* __restrict__ x, float* __restrict__ y, int n) {
    __shared__ float sums[32];
    const int i = threadIdx.x, lane = i & 31, warp = i >> 5;
    float v = i < n ? x[(long long)blockIdx.x * n + i] : 0;
    for (int o = 1; o < 32; o <<= 1) {
        const float left = __shfl_up_sync(0xffffffffu, v, o);
        if (lane >= o) v += left;
    }
    if (lane == 31) sums[warp] = v;
    __syncthreads();  // warps
    if (warp == 0) {
        float s = lane < blockDim.x / 32 ? sums[lane] : 0;
        for (int o = 1; o < 32; o <<= 1) {
            const float left = __shfl_up_sync(0xffffffffu, s, o);
            if (lane >= o) s += left;
        }
        sums[lane] = s;
    }
    __syncthreads();  // offsets
    if (warp) v += sums[warp - 1];
    if (i < n) y[(long long)blockIdx.x * n + i] = v;
}
