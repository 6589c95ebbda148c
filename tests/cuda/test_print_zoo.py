"""`target="cuda-host"`, and a few entries of the catalogue as CUDA; `python -m redfuser.testing.cuda` draws others."""

from __future__ import annotations

import numpy as np
import pytest

import redfuser as rf
from redfuser.errors import NoCompiler, SettingError
from redfuser.ir.dtypes import numpy_dtype
from redfuser.testing import cuda
from redfuser.zoo import ENTRIES

FIXED = {"softmax_top2": ("sm_90a",), "trimmed_spread": ("sm_86",), "any_above_mean": ("sm_80",),
         "masked_router": ("sm_80",)}
"""Entry -> architectures on which it must not spill: two that did, and two with masks."""


@pytest.mark.parametrize("name", FIXED)
def test_entries_of_the_catalogue(host, name):
    with np.errstate(all="ignore"):
        found = cuda.examine(ENTRIES[name], FIXED[name], lengths=(64, 1, 65, cuda.BLOCK + 1))
    assert found.problems == []
    assert found.runs >= 8
    assert all(used["registers"] <= 128 for kernels in found.kernels.values() for used in kernels.values())


def test_what_a_catalogue_run_tries():
    """Length 1, primes, one beside a tile on either side, dead rows, a dead first block."""
    tile, block = cuda.HINT, cuda.BLOCK
    assert {1, 3, 17, 251, tile - 1, tile, tile + 1, block + 1} <= set(cuda.LENGTHS)
    entry = ENTRIES["masked_router"]
    assert [name for name, _ in cuda._inputs(entry, tile, 3)] == ["numbers", "a dead row"]
    (_, numbers), (name, first) = cuda._inputs(entry, block + 1, 2)
    assert name == "a dead first block"
    assert numbers["mask"].shape == (2, block + 1)
    assert not first["mask"][:, :block].any()
    assert first["mask"][:, block:].all()
    (_, _), (_, dead) = cuda._inputs(entry, tile, 3)
    assert not dead["mask"][0].any()
    assert dead["mask"][1:].any()


def test_local_memory_is_a_finding():
    used = {"spill_stores": 0, "stack": 0, "instructions": {"LDL": 0, "STL": 0}}
    kernels = {"sm_80": {"a": used, "b": {**used, "spill_stores": 4}, "c": {**used, "stack": 8}}}
    assert cuda._findings(cuda.Outcome("one", kernels=kernels)) == [
        "b spills 4 bytes of registers on sm_80", "c keeps 8 bytes in local memory on sm_80"]


def test_other_seeds_draw_other_entries():
    drawn = {tuple(cuda.drawn(6, seed)) for seed in range(8)}
    assert len(drawn) == 8
    assert all(len(set(names)) == 6 for names in drawn)
    assert cuda.drawn(6, 3) == cuda.drawn(6, 3)


def normalised(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_a_fused_function_runs_as_cuda(host, dtype):
    f = rf.fuse(normalised, target="cuda-host")
    x = np.random.default_rng(0).standard_normal((3, 50)).astype(dtype)
    tolerance = {"float32": 1e-6, "float16": 1e-3, "float64": 1e-14}[dtype]
    np.testing.assert_allclose(f(x), normalised(x.astype("float64")), atol=tolerance)
    np.testing.assert_allclose(f(x[:, ::2]), normalised(x[:, ::2].astype("float64")), atol=tolerance)
    assert f.stats.kernel_runs == 2
    assert "CUDA" in str(f.explain(x))


def places(x):
    values, indices = rf.topk(x, 5)
    return x.argmax(axis=-1), x.argmin(axis=-1), values, indices


def truths(x, m):
    return np.where(m, x, -np.inf).max(axis=-1), m.any(axis=-1), m.all(axis=-1), m.sum(axis=-1)


def whole(x):
    return x.max(axis=-1), x.sum(axis=-1), (x // 3).sum(axis=-1)


def quantised(x):
    largest = np.abs(x).max(axis=-1, keepdims=True)
    return np.rint(x / largest * 127).astype("int8"), largest


def spread(x):
    return x.var(axis=0), x.max(axis=0)


DATA = np.random.default_rng(1).standard_normal((6, 75)).astype("float32")


@pytest.mark.parametrize(
    ("fn", "given"),
    [(places, [DATA]), (truths, [DATA, DATA > 1]), (whole, [(DATA * 20).astype("int8")]), (quantised, [DATA]),
     (spread, [DATA]), (normalised, [DATA.astype(numpy_dtype("bfloat16"))]),
     (normalised, [DATA.astype(numpy_dtype("float8_e4m3fn"))])],
)  # fmt: skip
def test_the_printers_agree(host, fn, given):
    """CUDA on the executor and the tile interpreter."""
    got, want = (rf.fuse(fn, target=t)(*given) for t in ("cuda-host", "interpret"))
    both = zip(got, want, strict=True) if isinstance(got, tuple) else [(got, want)]
    for a, b in both:
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.astype("float64"), b.astype("float64"), rtol=1e-5, atol=1e-6)


def test_tuning_makes_no_sense_on_the_host():
    with pytest.raises(SettingError, match="say nothing of a GPU"):
        rf.fuse(normalised, target="cuda-host", tune=True)


def test_a_missing_compiler_is_named(monkeypatch):
    from redfuser.runtime.cuda import host as module

    def missing():
        raise NoCompiler("NVIDIA's run-time compiler is not here")

    monkeypatch.setattr(module, "find_nvrtc", missing)
    with pytest.raises(NoCompiler, match="run-time compiler is not here"):
        rf.fuse(normalised, target="cuda-host")(np.ones((2, 7), "float32"))
