"""The workload family (`benchmarks/families`): plain NumPy against PyTorch's operators, or double precision."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import redfuser as rf
from redfuser.ir.dtypes import numpy_dtype

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(FOLDER))
if not FOLDER.exists():
    pytest.skip("an sdist has no benchmarks", allow_module_level=True)

from families.cases import RAGGED, WORKLOADS, Workload  # noqa: E402

NAMES = {f"{w.family}: {w.name}": w for w in WORKLOADS}


def arguments(w: Workload, dtype: str) -> tuple[list, list]:
    """(arguments with floating arrays of a dtype, the same numbers in double precision)."""
    made = w.make(np.random.default_rng(5), RAGGED)
    narrow = [a.astype(numpy_dtype(dtype)) if _floating(a) else a for a in made]
    return narrow, [a.astype("f8") if _floating(m) else a for a, m in zip(narrow, made, strict=True)]


def _floating(a) -> bool:
    return isinstance(a, np.ndarray) and a.dtype.kind == "f"


def expected(w: Workload, given: list) -> tuple:
    """The results in double precision."""
    if w.reference is None:
        found = w.fn(*given)
    else:
        torch = pytest.importorskip("torch", reason="torch is an oracle: pip install torch==2.13.0")
        found = w.reference(*(torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in given))
    return tuple(np.asarray(x) for x in (found if isinstance(found, tuple) else (found,)))


def compare(w: Workload, dtype: str, tolerance: float) -> None:
    given, exact = arguments(w, dtype)
    fused = rf.fuse(w.fn, **dict(w.fuse))
    got = fused(*given)
    assert fused.explain(*given).passes == w.passes
    got = got if isinstance(got, tuple) else (got,)
    want = expected(w, exact)
    assert len(got) == len(want)
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        assert a.shape == b.shape
        if i in w.choices:
            np.testing.assert_array_equal(a, b)
        elif a.dtype.name in STEP:  # quantised: another rounding of the scale moves a value by one step at most
            off = np.abs(a.astype("f8") - b.astype("f8"))
            assert off.max() <= STEP[a.dtype.name] * np.abs(b.astype("f8")).max()
            assert (off > 0).mean() < 0.02
        else:
            np.testing.assert_allclose(a.astype("f8"), b, rtol=0, atol=tolerance * max(1, np.abs(b).max()))


STEP = {"int8": 1 / 127, "uint8": 1 / 200, "float8_e4m3fn": 1 / 16, "float8_e5m2": 1 / 8}


@pytest.mark.parametrize("name", NAMES)
def test_single_precision(name):
    compare(NAMES[name], "float32", 5e-6)


HALF = [n for n, w in NAMES.items() if w.half][::2]
"""Every other one: the arithmetic is that of single precision."""


@pytest.mark.parametrize(("name", "dtype"), [(n, ("float16", "bfloat16")[i % 2]) for i, n in enumerate(HALF)])
def test_half_precision(name, dtype):
    """The two half types by turns."""
    compare(NAMES[name], dtype, {"float16": 2e-3, "bfloat16": 1.2e-2}[dtype])
