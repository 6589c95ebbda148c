"""Kernels that the CUDA printer emits, on the executor, against the definition: every schedule, awkward lengths."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from fused_examples import layernorm, logsumexp, pivoted_variance, softmax, weighted_variance
from order_examples import best, composed, peak
from printed import cuda_kernel, worst_error

import redfuser as rf
from redfuser.codegen.cuda.prelude import prelude
from redfuser.extract import Options
from redfuser.runtime.cuda.header import HeaderModule
from redfuser.runtime.cuda.host import HostModule
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


@pytest.mark.parametrize("n", [64, 1000])
def test_a_row_of_zeros_has_one_extreme(host, n):
    """+0 or -0: all lanes have the same."""
    rng = np.random.default_rng(n)
    x = rng.choice(np.array([0.0, -0.0], "float32"), (6, n))
    for extreme in (np.max, np.min):
        f = rf.fuse(lambda x, extreme=extreme: (x * x + 1) / extreme(x, axis=-1, keepdims=True), target="cuda-host")
        found = f(x)
        assert np.isinf(found).all()
        assert (found == found[:, :1]).all()


LANES = """
extern "C" __global__ void lanes(const FLOAT *x, FLOAT *y) {
  y[threadIdx.x] = TEAM(x[threadIdx.x]);
}
"""
TEAMS = {"warp_all<OF>": 32, "warp_all<OF, 8>": 8, "quad_all<OF>": 4}


@pytest.mark.parametrize("front", [HostModule, HeaderModule])
@pytest.mark.parametrize("kind", ["float", "double"])
def test_lanes_of_a_team_have_the_same_bits(host, front, kind):
    rng, dtype = np.random.default_rng(3), np.dtype({"float": "f4", "double": "f8"}[kind])
    texts = []
    for i, (team, of) in enumerate(product(TEAMS, ("max_of", "min_of", "loose_max_of", "loose_min_of"))):
        body = LANES.replace("FLOAT", kind).replace("TEAM", team.replace("OF", of))
        texts.append((f"lanes{i}", team, body.replace("lanes(", f"lanes{i}(")))
    joined = "".join(body for _, _, body in texts)
    module = front(f"namespace teams {{\n{prelude(joined)}{joined}}}\n")
    least = np.finfo(dtype).smallest_subnormal
    for values in ([0.0, -0.0], [0.0, -0.0, least, 2 * least]):
        x = rng.choice(np.array(values, dtype), 32)
        for name, team, _ in texts:
            y = np.zeros_like(x)
            module.kernel(name).launch(1, 32, (x, y))
            teams = y.view(f"u{dtype.itemsize}").reshape(-1, TEAMS[team])
            assert (teams == teams[:, :1]).all(), name


def test_a_schedule_ends_with_its_block():
    with pytest.raises(ValueError, match="inside"), scheduled(5):
        raise ValueError("inside")
    assert _SEED.get() is None


def scaled_average(x, s, y):
    """A product that is the weight's exponent and a value."""
    z = x * s
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return (e * np.cos(z) * y).sum(axis=-1) / e.sum(axis=-1)


def test_a_product_that_is_used_twice_is_rounded_by_itself():
    """The assembler may join `mul` and `sub` of PTX into one multiply-add, which the executor cannot see."""
    x = rf.spec((4, 100), "float32")
    text = rf.fuse(scaled_average).lower(x, np.float32(0.3), x).source("cuda", arch="sm_80")
    lines = text.splitlines()
    named = {line.split()[2] for line in lines if line.strip().startswith("const float") and "= __fmul_rn(" in line}
    exponentials = [line for line in lines if "expf(" in line and "old" not in line]
    assert exponentials
    assert all("expf(__fmul_rn(" in line or any(f"expf({n} - " in line for n in named) for line in exponentials)
    assert any(f"expf({n} - " in line for n in named for line in exponentials)
