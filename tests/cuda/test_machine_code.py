"""Machine code of row cascades with their default tiles: nothing spills, rows move in pieces of 16 bytes."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import redfuser as rf
from redfuser.api.cuda_report import CudaKernelReport, LaunchReport

ARCHS = ("sm_80", "sm_86", "sm_90a")
NEWER = ("sm_89", "sm_100", "sm_120")


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layernorm(x, g, b):
    return (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5) * g + b


def rmsnorm(x, g):
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-6) * g


def quantise(x):
    largest = np.abs(x).max(axis=-1, keepdims=True)
    return np.rint(x / largest * 127).astype("int8"), largest


def logsumexp(x):
    m = x.max(axis=-1, keepdims=True)
    return np.log(np.exp(x - m).sum(axis=-1)) + m[:, 0]


def cross_entropy(x, t):
    m = x.max(axis=-1, keepdims=True)
    return np.log(np.exp(x - m).sum(axis=-1)) + m[:, 0] - (x * t).sum(axis=-1)


def routing(x):
    return rf.topk(softmax(x), 4)


def column_softmax(x):
    e = np.exp(x - x.max(axis=0))
    return e / e.sum(axis=0)


def rows(*shape, dtype="float32"):
    return rf.spec(shape, dtype)


X, ROW = rows(4096, 512), rows(512)
CASES = {
    "softmax": (softmax, [X]),
    "softmax of odd rows": (softmax, [rows(4096, 509)]),
    "softmax of long rows": (softmax, [rows(4096, 5000)]),
    "layernorm": (layernorm, [X, ROW, ROW]),
    "rmsnorm": (rmsnorm, [X, ROW]),
    "quantise": (quantise, [X]),
    "cross-entropy": (cross_entropy, [X, X]),
    "logsumexp": (logsumexp, [X]),
    "softmax and top-k": (routing, [rows(4096, 128)]),
    "split": (logsumexp, [rows(2, 1 << 20)]),
    "half": (softmax, [rows(4096, 512, dtype="float16")]),
    "bfloat16": (softmax, [rows(4096, 512, dtype="bfloat16")]),
    "columns": (column_softmax, [rows(512, 4096)]),
}
STORES = {"softmax", "softmax of odd rows", "softmax of long rows", "layernorm", "rmsnorm", "half", "bfloat16"}
"""Results along the row, of the element size that decides how many neighbours a thread takes."""
LOADED = {"LDG.64": 8, "LDG.32": 4, "LDG.16": 2, "LDG.8": 1}


@cache
def lowered(case):
    fn, specs = CASES[case]
    return rf.fuse(fn, target="cuda-host").lower(*specs)


def report(case: str, arch: str) -> CudaKernelReport:
    (found,) = lowered(case).report("cuda", arch=arch)
    assert not [n for n in found.notes if "not known" in n or "not compiled" in n], found.notes
    return found


def running(found: CudaKernelReport) -> list[LaunchReport]:
    return [x for x in found.launches if x.runs]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("case", CASES)
def test_nothing_spills_and_rows_move_in_pieces_of_16_bytes(host, case, arch):
    found = report(case, arch)
    for x in found.launches:
        assert x.resources is not None
        assert x.occupancy is not None
        assert (x.resources.spill_stores, x.resources.spill_loads, x.resources.stack) == (0, 0, 0), x.name
        assert not x.instructions.keys() & {"LDL", "STL"}, x.name
        assert x.occupancy.blocks >= 1
        assert x.occupancy.warps >= 16, "fewer than 512 threads on a multiprocessor"
    mix = running(found)[0].instructions  # a split reads its input in the first of its launches
    if case == "columns":  # neighbouring threads read neighbouring columns instead
        assert mix.get("LDG.32", 0)
        assert mix.get("STG.32", 0)
        return
    assert mix.get("LDG.128", 0) >= 1
    if case in STORES:
        assert mix.get("STG.128", 0) >= 1


@pytest.mark.parametrize("case", ["softmax", "softmax of odd rows", "softmax of long rows", "half"])
def test_every_narrow_load_is_the_alternative_of_a_wide_one(host, case):
    """A row of odd length begins anywhere: each piece is tested when it is loaded, and moves whole where it lies on a
    boundary of 16 bytes. Beside its wide load stand the narrow ones for all other pieces, and there are no more."""
    for x in running(report(case, "sm_80")):
        narrow = sum(n * x.instructions.get(k, 0) for k, n in LOADED.items())
        assert narrow == 16 * x.instructions["LDG.128"], x.instructions


@pytest.mark.parametrize("arch", NEWER)
@pytest.mark.parametrize("case", ["layernorm", "half"])
def test_kernels_compile_for_further_architectures(host, case, arch):
    assert all(x.resources is not None for x in report(case, arch).launches)


def test_odd_rows_are_right_at_every_offset(host):
    """Rows of 67 elements, in an array that begins at each of four offsets from a boundary of 16 bytes."""
    f = rf.fuse(softmax, target="cuda-host")
    data = np.random.default_rng(3).standard_normal(5 * 67 + 4).astype("float32")
    for offset in range(4):
        x = data[offset : offset + 5 * 67].reshape(5, 67)
        np.testing.assert_allclose(f(x), softmax(x.astype("float64")), rtol=1e-5)
