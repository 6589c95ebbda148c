// One row for each block of 256 threads.
extern "C" __global__ void __launch_bounds__(256) softmax_block(const float* __restrict__ x, float* __restrict__ y, int n) {
    __shared__ float part[8], total[2];
    const float* in = x + (long long)blockIdx.x * n;
    float* out = y + (long long)blockIdx.x * n;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float m = __int_as_float(0xff800000);
    for (int i = threadIdx.x; i < n; i += 256) m = fmaxf(m, in[i]);
    for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, o));
    if (lane == 0) part[warp] = m;
    __syncthreads();  // maxima
    if (warp == 0) {
        float v = lane < 8 ? part[lane] : __int_as_float(0xff800000);
        for (int o = 4; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
        if (lane == 0) total[0] = v;
    }
    __syncthreads();  // maximum
    m = total[0];
    float l = 0;
    for (int i = threadIdx.x; i < n; i += 256) l += __expf(in[i] - m);
    for (int o = 16; o; o >>= 1) l += __shfl_xor_sync(0xffffffffu, l, o);
    if (lane == 0) part[warp] = l;
    __syncthreads();  // sums
    if (warp == 0) {
        float v = lane < 8 ? part[lane] : 0;
        for (int o = 4; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
        if (lane == 0) total[1] = v;
    }
    __syncthreads();  // sum
    const float scale = 1 / total[1];
    for (int i = threadIdx.x; i < n; i += 256) out[i] = __expf(in[i] - m) * scale;
}
