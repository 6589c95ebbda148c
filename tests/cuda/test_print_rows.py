"""Kernels that the CUDA printer emits, on the executor, against the definition: every schedule, awkward lengths."""

from __future__ import annotations

import numpy as np
import pytest
from fused_examples import layernorm, logsumexp, pivoted_variance, softmax, weighted_variance
from order_examples import best, composed, peak
from printed import cuda_kernel, worst_error

import redfuser as rf
from redfuser.extract import Options
from redfuser.runtime.cuda.kernel import _SEED, HostCudaKernel, scheduled

ROWS, SPLIT, COLUMNS = Options(), Options(block=64, chunk=256), Options(strategy="columns")
CASES = {
    "softmax": (softmax, ROWS, ""),
    "layernorm": (layernorm, ROWS, ""),
    "split": (pivoted_variance, SPLIT, ""),
    "split with an output": (softmax, SPLIT, ""),
    "columns": (logsumexp, COLUMNS, "p"),
    "columns with weights": (weighted_variance, COLUMNS, "p"),
    "largest": (peak, ROWS, ""),
    "list": (best, ROWS, ""),
    "in order": (composed, ROWS, ""),
}
LENGTHS = (64, 3, 17, 63, 65, 251, 1025, 4097)
TOLERANCE = 3e-5


@pytest.mark.parametrize("case", CASES)
def test_printed_kernels_compute_the_definition(host, case):
    example, options, contiguous = CASES[case]
    fused = example()
    kernel = HostCudaKernel(cuda_kernel(fused, options, contiguous))
    for length in LENGTHS:
        for seed in (0, 1, 5):
            sizes = {a.name: a.size or (length if a.name == "n" else 5) for a in fused.cascade.axes}
            assert worst_error(fused, kernel, sizes, seed, contiguous) < TOLERANCE, (length, seed)


def test_one_row_more_than_all_teams_and_none(host):
    fused = logsumexp()
    kernel = HostCudaKernel(cuda_kernel(fused))
    for rows in (0, 1, 4, 13):
        assert worst_error(fused, kernel, {"p": rows, "n": 33}) < TOLERANCE


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_every_layout(host, order):
    """Inputs that are copied and outputs keep the dimension that the kernel takes as contiguous."""
    fused = rf.fuse(lambda q: np.exp(q - q.max(axis=0)) / np.exp(q - q.max(axis=0)).sum(axis=0), target="cuda-host")
    q = np.random.default_rng(5).standard_normal((6, 8), dtype=np.float32)
    wanted, out = fused.fn(q), np.empty((6, 8), np.float32, order=order)
    assert fused(q, out=out) is out
    for got in (out, fused(np.array(q, order=order)), fused(np.array(q.astype(">f4"), order=order))):
        np.testing.assert_allclose(got, wanted, rtol=1e-6)


def test_a_schedule_ends_with_its_block():
    with pytest.raises(ValueError, match="inside"), scheduled(5):
        raise ValueError("inside")
    assert _SEED.get() is None
