"""The benchmark refuses wrong results: NaN, other lengths, positions of other elements."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "cpu.py"


@pytest.fixture
def cpu():
    if not FILE.exists():
        pytest.skip("an sdist has no benchmarks")
    found = importlib.util.spec_from_file_location("cpu_benchmark", FILE)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def top2(x):
    at = np.argsort(-x, -1, kind="stable")[:, :2]
    return np.take_along_axis(x, at, -1), at


def case(fn, scores=None):
    return SimpleNamespace(name="case", fn=fn, reference=None, rtol=1e-4, scores=scores)


X = np.array([[3.0, 1.0, 3.0, 2.0], [0.0, 5.0, 4.0, 4.0]], np.float32)


def test_numbers_are_finite_where_the_reference_is(cpu):
    doubled = case(lambda x: 2 * x)
    assert cpu.check(doubled, [X], [2 * X]) == 0
    for bad in (np.nan, np.inf, 7.0):
        wrong = 2 * X
        wrong[1, 2] = bad
        with pytest.raises(AssertionError, match=r"infinite or NaN where the reference is not|error"):
            cpu.check(doubled, [X], [wrong])
    with pytest.raises(AssertionError, match="shape"):
        cpu.check(doubled, [X], [2 * X[:1]])
    odd = X.copy()
    odd[0, 0], odd[1, 1] = np.nan, -np.inf
    assert cpu.check(doubled, [odd], [2 * odd]) == 0
    with pytest.raises(AssertionError, match="infinite or NaN"):
        cpu.check(doubled, [odd], [2 * np.nan_to_num(odd, neginf=1)])


def test_positions_are_compared_by_their_scores(cpu):
    top = case(top2, scores=lambda x: x)
    values, at = top2(X)
    assert cpu.check(top, [X], [values, at]) == 0
    assert cpu.check(top, [X], [values, np.array([[2, 0], [1, 3]])]) == 0  # ties
    for wrong, said in (([[0, 1], [1, 2]], "error"), ([[0, 0], [1, 2]], "twice"), ([[0, 4], [1, 2]], "outside")):
        with pytest.raises(AssertionError, match=said):
            cpu.check(top, [X], [values, np.array(wrong)])
    with pytest.raises(AssertionError, match="integers are wrong"):
        cpu.check(case(top2), [X], [values, at[:, ::-1]])


def test_the_table_has_the_ratio_of_the_medians(cpu):
    row = {"case": "dense", "limit ms": 1.0, "ms": {"redfuser": 162.0, "torch": 159.0}, "of limit %": 60.0,
           "best peer": "torch", "best peer/redfuser": 0.981, "paired ratio": 1.24,
           "bar": {"of limit %": 0, "ratio": 1.2}}
    probes = {"threads": 2, "gflops": 1, "read GB/s": 1, "cache GB/s": 1, "copy GB/s": 1}
    assert "| torch 159 | 0.98 | 1.2x |" in cpu.markdown({"runs": [{"probes": probes, "rows": [row]}]})
