// Column sums of a matrix, weighted by a vector: tiles of 16 rows and 64 columns come by cp.async, three in flight.
constexpr int ROWS = 16, COLUMNS = 64, STAGES = 3;

__device__ __forceinline__ void fetch(float* tile, const float* __restrict__ x, int row0, int rows, int columns) {
    for (int i = threadIdx.x; i < ROWS * COLUMNS / 4; i += 64) {
        const int r = i / (COLUMNS / 4), c = i % (COLUMNS / 4) * 4;
        const bool inside = row0 + r < rows;
        const unsigned to = (unsigned)__cvta_generic_to_shared(tile + r * COLUMNS + c);
        const float* from = x + (long long)(inside ? row0 + r : 0) * columns + blockIdx.x * COLUMNS + c;
        const int bytes = inside ? 16 : 0;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(64) pipeline(const float* __restrict__ x, const float* __restrict__ w,
                                                          float* __restrict__ y, int rows, int columns) {
    extern __shared__ __align__(16) unsigned char memory[];
    float* tiles = reinterpret_cast<float*>(memory);
    const int count = (rows + ROWS - 1) / ROWS;
    for (int s = 0; s < STAGES - 1; s++) fetch(tiles + s * ROWS * COLUMNS, x, s * ROWS, rows, columns);
    float sum = 0;
    for (int t = 0; t < count; t++) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        fetch(tiles + (t + 2) % STAGES * ROWS * COLUMNS, x, (t + 2) * ROWS, rows, columns);
        const float* tile = tiles + t % STAGES * ROWS * COLUMNS;
        for (int r = 0; r < ROWS; r++)
            if (t * ROWS + r < rows) sum += tile[r * COLUMNS + threadIdx.x] * w[t * ROWS + r];
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    y[blockIdx.x * COLUMNS + threadIdx.x] = sum;
}
