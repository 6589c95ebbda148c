// One row for each warp, four rows for each block; n is a multiple of 4, rows are 16-byte aligned.
extern "C" __global__ void __launch_bounds__(128) softmax_warp(const float* __restrict__ x, float* __restrict__ y,
                                                               int rows, int n) {
    const int lane = threadIdx.x & 31, row = blockIdx.x * 4 + (threadIdx.x >> 5);
    if (row >= rows) return;
    const float4* in = reinterpret_cast<const float4*>(x + (long long)row * n);
    float4* out = reinterpret_cast<float4*>(y + (long long)row * n);
    float m = __int_as_float(0xff800000), l = 0;
    for (int i = lane; i < n / 4; i += 32) {
        const float4 v = in[i];
        const float top = fmaxf(m, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
        l = l * __expf(m - top) + __expf(v.x - top) + __expf(v.y - top) + __expf(v.z - top) + __expf(v.w - top);
        m = top;
    }
    for (int o = 16; o; o >>= 1) {
        const float m2 = __shfl_xor_sync(0xffffffffu, m, o), l2 = __shfl_xor_sync(0xffffffffu, l, o);
        const float top = fmaxf(m, m2);
        l = (l ? l * __expf(m - top) : 0) + (l2 ? l2 * __expf(m2 - top) : 0);
        m = top;
    }
    const float scale = 1 / l;
    for (int i = lane; i < n / 4; i += 32) {
        const float4 v = in[i];
        out[i] = make_float4(__expf(v.x - m) * scale, __expf(v.y - m) * scale, __expf(v.z - m) * scale,
                             __expf(v.w - m) * scale);
    }
}
