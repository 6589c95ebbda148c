"""Forms that are wrong only where one input alone is 0: certificates try that, and results are the definition's."""

from __future__ import annotations

import numpy as np
import pytest

from redfuser import Cascade, axes, tensor
from redfuser.derivation import certify, derive_cascade, run_fused
from redfuser.testing.inputs import draw_arrays

N = axes("n")
X, Y, W = tensor("x", N), tensor("y", N), tensor("w", N)


def position():
    c = Cascade("position", axis=N)
    s = c.sum("s", W)
    q = c.argmax("q", X / s)
    c.sum("r", q * X)
    return c.build(), {"x": [-3.0, 2, -1, 4], "w": [0.0] * 4}


def infinite_divisor():
    c = Cascade("infinite_divisor", axis=N)
    a = c.sum("a", X * X)
    b = c.sum("b", W / a)
    c.max("c", Y / b)
    return c.build(), {"x": [0.0], "w": [1.0], "y": [2.0]}


def both_signs():
    c = Cascade("both_signs", axis=N)
    a = c.max("a", abs(X))
    b = c.sum("b", W / a)
    c.sum("c", X / b)
    return c.build(), {"x": [0.0, 0], "w": [2.0, -1]}


def undefined_by_a_sum():
    c = Cascade("undefined_by_a_sum", axis=N)
    a = c.max("a", X)
    b = c.sum("b", W * (X - a))
    q = c.sum("c", Y / b)
    c.sum("d", X / q)
    return c.build(), {"x": [1.0, -2], "y": [-1.0, 2], "w": [-1.0, 0]}


@pytest.mark.parametrize("make", [position, infinite_divisor, both_signs, undefined_by_a_sum])
def test_results_are_those_of_the_definition(make):
    cascade, data = make()
    d = derive_cascade(cascade)
    assert d.certificate
    assert d.passes > 1
    arrays = {t.name: np.array(data[t.name]) for t in cascade.tensors}
    names = [r.name for r in cascade.reductions]
    with np.errstate(all="ignore"):
        whole = run_fused(derive_cascade(cascade).fused, arrays, chunks=1)
        parts = run_fused(d.fused, arrays, chunks=2)
        x, w, y = (np.array(data.get(k, [0.0])) for k in "xwy")
        want = {"position": lambda: (x * np.argmax(x / w.sum())).sum(),
                "infinite_divisor": lambda: np.max(y / (w / (x * x).sum()).sum()),
                "both_signs": lambda: (x / (w / abs(x).max()).sum()).sum(),
                "undefined_by_a_sum": lambda: (x / (y / (w * (x - x.max())).sum()).sum()).sum()}[cascade.name]()
    for got in (whole, parts):
        assert np.allclose(got[names[-1]], want, equal_nan=True) or not np.isfinite([got[names[-1]], want]).any()


def test_quotients_that_survive_stay_in_one_pass():
    c = Cascade("normalised", axis=N)
    s = c.sum("s", W)
    c.sum("r", X * W / s)
    d = derive_cascade(c.build())
    assert d.passes == 1
    assert certify(d.fused)


@pytest.mark.parametrize("kind", ["zeros", "ties", "constant"])
def test_kinds_are_drawn_for_one_tensor_alone_too(kind):
    tensors = derive_cascade(infinite_divisor()[0]).cascade.tensors
    odd = set()
    for seed in range(20):
        arrays = draw_arrays(tensors, {"n": 9}, kind, np.random.default_rng(seed), frozenset({"n"}))
        degenerate = [k for k, v in arrays.items() if len(np.unique(v)) < 9]
        odd.add(len(degenerate))
    assert odd == {1, 3}
