"""Weights by way of a log-sum-exp: whatever the scores are made of, exponentials are shifted before they are summed."""

import numpy as np
import pytest

import redfuser as rf
from redfuser.derivation.verdict import Verdict

RNG = np.random.default_rng(0)
X, V, U = 300 * RNG.normal(size=(3, 500)), RNG.normal(size=(3, 500)), RNG.normal(size=(3, 500))
ROW, COLUMN = 200 * RNG.normal(size=(3, 1)), 100 * RNG.normal(size=500)
Q, K, W = 30 * RNG.normal(size=(8, 16)), RNG.normal(size=(64, 16)), RNG.normal(size=(64, 5))


def log_sum_exp(a):
    m = a.max(axis=-1, keepdims=True)
    return m + np.log(np.exp(a - m).sum(axis=-1, keepdims=True))


def weights(a):
    return np.exp(a - log_sum_exp(a))


def averages(a, v, u):
    p = weights(a)
    return (p * v).sum(-1), (p * u).sum(-1), (p * v * v).sum(-1)


CASES = {
    "scores": (lambda x, v, u: averages(x, v, u), (X, V, U)),
    "divided": (lambda x, v, u: averages(x / 0.07, v, u), (X, V, U)),
    "negated": (lambda x, v, u: averages(-x, v, u), (X, V, U)),
    "negated and scaled": (lambda x, v, u: averages(-x * 20.0, v, u), (X, V, U)),
    "with a bias for each column": (lambda x, b, v, u: averages(x + b, v, u), (X, COLUMN, V, U)),
    "with a bias for each row": (lambda x, b, v, u: averages(x + b, v, u), (X, ROW, V, U)),
    "with a scale for each row": (lambda x, b, v, u: averages(x * b, v, u), (X, ROW, V, U)),
    "products": (lambda q, k, w: weights(q @ k.T * 0.1) @ w, (Q, K, W)),
    "far below zero": (lambda x, v, u: averages(x - 1e4, v, u), (X, V, U)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_nothing_overflows(name, dtype):
    fn, arguments = CASES[name]
    given = [np.asarray(x, dtype) for x in arguments]
    got, wanted = rf.fuse(fn)(*given), fn(*(x.astype("float64") for x in given))
    for found, expected in zip(np.atleast_2d(got), np.atleast_2d(wanted), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-2 if dtype == "float32" else 1e-9, atol=2e-3)


@pytest.mark.parametrize("name", CASES)
def test_one_pass_and_every_sum_of_exponentials_is_shifted(name):
    """What is shifted by a running result is corrected when that moves."""
    fn, arguments = CASES[name]
    (chained,) = (c for c in rf.fuse(fn).explain(*arguments).cascades if len(c.derivation.cascade.reductions) > 1)
    assert chained.derivation.verdict == Verdict.FUSIBLE
    fused = chained.derivation.fused
    assert {a.name for a in fused.accumulators if "exp" in str(a.body)} <= dict(fused.corrections).keys()


@pytest.mark.parametrize("shift", [lambda x, b: x + b, lambda x, b: x - b, lambda x, b: 0.5 * x + b])
def test_a_softmax_of_rows_with_an_input_each(shift):
    def average(x, b, v):
        a = shift(x, b)
        e = np.exp(a - a.max(axis=-1, keepdims=True))
        return (e * v).sum(-1) / e.sum(-1)

    fused = rf.fuse(average)
    assert fused.explain(X, ROW, V).verdict == Verdict.FUSIBLE
    np.testing.assert_allclose(fused(X, ROW, V), average(X, ROW, V), rtol=1e-9)


def test_what_the_function_sums_itself_may_be_summed():
    """An exponential that overflows is the caller's own where the function adds it up."""
    def ratio(x, v):
        total = np.exp(x).sum(-1, keepdims=True)
        return (np.exp(x) / total * v).sum(-1)

    report = rf.fuse(ratio).explain(V, U)
    assert report.verdict == Verdict.FUSIBLE
    np.testing.assert_allclose(rf.fuse(ratio)(V, U), ratio(V, U), rtol=1e-12)
