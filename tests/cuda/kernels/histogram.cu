// Counts of labels: in shared memory for each block, then added to the result; and each warp's largest label.
extern "C" __global__ void __launch_bounds__(128) histogram(const int* __restrict__ labels, int* counts, int* most, int n,
                                                            int bins) {
    extern __shared__ __align__(16) int own[];
    for (int i = threadIdx.x; i < bins; i += 128) own[i] = 0;
    __syncthreads();  // cleared
    int largest = -1;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) {
        atomicAdd(own + labels[i], 1);
        largest = max(largest, labels[i]);
    }
    __syncthreads();  // counted
    for (int i = threadIdx.x; i < bins; i += 128)
        if (own[i]) atomicAdd(counts + i, own[i]);
    largest = __reduce_max_sync(0xffffffffu, largest);
    if ((threadIdx.x & 31) == 0) atomicMax(most, largest);
}
