// A row's log-sum-exp: each block takes one of `splits` parts, the last one to finish merges the parts.
extern "C" __global__ void __launch_bounds__(64) split_merge(const float* __restrict__ x, float* part, unsigned* tickets,
                                                             float* y, int n) {
    __shared__ float sm[2], sl[2];
    __shared__ unsigned last;
    const int splits = gridDim.x, row = blockIdx.y, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int size = (n + splits - 1) / splits, from = blockIdx.x * size, to = min(n, from + size);
    float m = __int_as_float(0xff800000), l = 0;
    for (int i = from + threadIdx.x; i < to; i += 64) {
        const float v = x[(long long)row * n + i], top = fmaxf(m, v);
        l = l * __expf(m - top) + __expf(v - top);
        m = top;
    }
    for (int o = 16; o; o >>= 1) {
        const float m2 = __shfl_down_sync(0xffffffffu, m, o), l2 = __shfl_down_sync(0xffffffffu, l, o);
        const float top = fmaxf(m, m2);
        l = (l ? l * __expf(m - top) : 0) + (l2 ? l2 * __expf(m2 - top) : 0);
        m = top;
    }
    if (lane == 0) { sm[warp] = m; sl[warp] = l; }
    __syncthreads();  // warps
    float* mine = part + 2 * (row * splits + blockIdx.x);
    if (threadIdx.x == 0) {
        const float top = fmaxf(sm[0], sm[1]);
        mine[0] = top;
        mine[1] = (sl[0] ? sl[0] * __expf(sm[0] - top) : 0) + (sl[1] ? sl[1] * __expf(sm[1] - top) : 0);
        __threadfence();  // release
        last = atomicAdd(tickets + row, 1u) == splits - 1;
    }
    __syncthreads();  // ticket
    if (!last) return;
    __threadfence();  // acquire
    if (threadIdx.x < 32) {
        float top = __int_as_float(0xff800000), sum = 0;
        for (int s = lane; s < splits; s += 32) top = fmaxf(top, part[2 * (row * splits + s)]);
        for (int o = 16; o; o >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, o));
        for (int s = lane; s < splits; s += 32) {
            const float l2 = part[2 * (row * splits + s) + 1];
            sum += l2 ? l2 * __expf(part[2 * (row * splits + s)] - top) : 0;
        }
        for (int o = 16; o; o >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, o);
        if (lane == 0) { y[row] = top + __logf(sum); tickets[row] = 0; }
    }
}
