"""Correct kernels run right under every schedule, without a false alarm."""

from __future__ import annotations

import kernels_by_hand as hand
import numpy as np
import pytest
from kernels_by_hand import KERNELS

from redfuser.runtime.cuda.host import HostModule, In, Out

SEEDS = (0, 1, 2, 3, 17)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_run_right_under_every_schedule(host, name):
    kernel = hand.host_module().kernel(f"{name}_good")
    for seed in SEEDS:
        assert KERNELS[name].run(kernel, seed) <= 1, seed


@pytest.mark.parametrize("arch", ["sm_90a", "sm_100"])
def test_ptx_of_newer_architectures(host, arch):
    module = hand.host_module(arch)
    for name, by_hand in KERNELS.items():
        assert by_hand.run(module.kernel(f"{name}_good"), 5) <= 1, name


def test_awkward_sizes(host):
    module = hand.host_module()
    for n in (1, 2, 255, 256, 257):
        assert hand.run_softmax_block(module.kernel("softmax_block_good"), n, n) <= 1
    for n in (4, 128, 132):
        assert hand.run_softmax_warp(module.kernel("softmax_warp_good"), n, n, 1) <= 1
    for splits in (1, 40):
        assert hand.run_split_merge(module.kernel("split_merge_good"), 2, 65, 3, splits) <= 1
    for rows in (1, 16, 17, 48):
        assert hand.run_pipeline(module.kernel("pipeline_good"), 3, rows, 64) <= 1
    for m, k in ((1, 32), (64, 32), (65, 64)):
        assert hand.run_tile(module.kernel("tile_good"), 4, m, k) <= 1


def test_the_swizzle_has_no_bank_conflicts(host):
    module = hand.host_module()
    a = hand.bfloat16(hand.rows(32, 64))
    c = np.empty((64, 64), np.float32)
    args = [In(a), In(a), Out(c), np.int32(64), np.int32(32)]
    counted = module.kernel("tile_good").launch(1, 128, args)
    assert counted.matrix_loads == 4 * 2 * 5 * 4
    assert counted.matrix_conflicts == 0


def test_a_seed_is_a_schedule(host):
    """Tickets tell in which order threads and blocks ran: in order, in reverse, at random, and the same again."""
    text = """extern "C" __global__ void k(int* next, int* order) {
        order[blockIdx.x * 32 + threadIdx.x] = atomicAdd(next, 1); }"""
    kernel = HostModule(text).kernel("k")

    def order(seed: int) -> list[int]:
        out = np.empty(96, np.int32)
        kernel.launch(3, 32, [np.zeros(1, np.int32), Out(out)], seed=seed)
        assert sorted(out.tolist()) == list(range(96))
        return out.tolist()

    assert order(0) == list(range(96))
    assert order(1) == list(range(95, -1, -1))
    assert order(2) == order(2) != order(3)
    assert len({tuple(order(s)) for s in range(6)}) == 6


def test_memory_that_outlives_a_launch(host):
    """Split and merge as two kernels: what the first left out is found by the second."""
    module = HostModule(TWO_KERNELS)
    x = hand.rows(100, 1)[0]
    y = np.empty(1, np.float32)
    with module.memory() as memory:
        part = memory.empty(4, np.float32, "part")
        module.kernel("parts").launch(4, 32, [In(x), part, np.int32(100)])
        module.kernel("whole").launch(1, 1, [In(part), Out(y), np.int32(4)])
    assert np.isclose(y[0], x.sum(), rtol=1e-5)


TWO_KERNELS = """
extern "C" __global__ void parts(const float* x, float* part, int n) {
    float s = 0;
    for (int i = blockIdx.x * 32 + threadIdx.x; i < n; i += gridDim.x * 32) s += x[i];
    for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
    if (threadIdx.x == 0) part[blockIdx.x] = s;
}
extern "C" __global__ void whole(const float* part, float* y, int n) {
    float s = 0;
    for (int i = 0; i < n; i++) s += part[i];
    y[0] = s;
}
"""
