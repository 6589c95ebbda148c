// y = x^T in tiles of 32 x 32, through shared memory with one column of padding.
extern "C" __global__ void __launch_bounds__(256) transpose(const float* __restrict__ x, float* __restrict__ y, int rows,
                                                            int columns) {
    __shared__ float tile[32][33];
    const int c = blockIdx.x * 32 + threadIdx.x, r0 = blockIdx.y * 32;
    for (int i = threadIdx.y; i < 32; i += 8)
        if (r0 + i < rows && c < columns) tile[i][threadIdx.x] = x[(r0 + i) * columns + c];
    __syncthreads();  // tile
    const int r = r0 + threadIdx.x, c0 = blockIdx.x * 32;
    for (int i = threadIdx.y; i < 32; i += 8)
        if (c0 + i < columns && r < rows) y[(c0 + i) * rows + r] = tile[threadIdx.x][i];
}
