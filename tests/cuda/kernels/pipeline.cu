// Column sums of a matrix, weighted by a vector: tiles of 16 rows and 64 columns come by cp.async, three in flight.
constexpr int ROWS = 16, COLUMNS = 64, STAGES = 3;

#ifdef REDFUSER_HOST
inline void copy16(void* to, const void* from, int bytes) { rf_host::cp_async(to, from, 16, bytes); }
inline void commit() { rf_host::cp_async_commit(); }
template <int pending> inline void landed() { rf_host::cp_async_wait(pending); }
#else
__device__ __forceinline__ void copy16(void* to, const void* from, int bytes) {
    const unsigned place = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending> __device__ __forceinline__ void landed() {
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
#endif

__device__ __forceinline__ void fetch(float* tile, const float* __restrict__ x, int row0, int rows, int columns) {
    for (int i = threadIdx.x; i < ROWS * COLUMNS / 4; i += 64) {
        const int r = i / (COLUMNS / 4), c = i % (COLUMNS / 4) * 4;
        const bool inside = row0 + r < rows;
        float* to = tile + r * COLUMNS + c;
        const float* from = x + (long long)(inside ? row0 + r : 0) * columns + blockIdx.x * COLUMNS + c;
        copy16(to, from, inside ? 16 : 0);
    }
    commit();
}

extern "C" __global__ void __launch_bounds__(64) pipeline(const float* __restrict__ x, const float* __restrict__ w,
                                                          float* __restrict__ y, int rows, int columns) {
    extern __shared__ __align__(16) unsigned char memory[];
    float* tiles = reinterpret_cast<float*>(memory);
    const int count = (rows + ROWS - 1) / ROWS;
    for (int s = 0; s < STAGES - 1; s++) fetch(tiles + s * ROWS * COLUMNS, x, s * ROWS, rows, columns);
    float sum = 0;
    for (int t = 0; t < count; t++) {
        landed<1>();
        __syncthreads();
        fetch(tiles + (t + 2) % STAGES * ROWS * COLUMNS, x, (t + 2) * ROWS, rows, columns);
        const float* tile = tiles + t % STAGES * ROWS * COLUMNS;
        for (int r = 0; r < ROWS; r++)
            if (t * ROWS + r < rows) sum += tile[r * COLUMNS + threadIdx.x] * w[t * ROWS + r];
    }
    landed<0>();
    y[blockIdx.x * COLUMNS + threadIdx.x] = sum;
}
