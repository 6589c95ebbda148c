"""argmax, top-k and operators of users in fused functions: NumPy's answers from one kernel."""

from __future__ import annotations

import numpy as np
import pytest

import redfuser as rf

AFFINE = rf.monoid("affine_steps", identity=(1.0, 0.0), parts=("a", "b"),
                   combine=lambda f, g: (f[0] * g[0], g[0] * f[1] + g[1]))
HYPOT = rf.monoid("hypot_steps", identity=0.0, combine=lambda a, b: np.sqrt(a * a + b * b), commutative=True,
                  draw=lambda rng: abs(rng.gauss(0, 3)))


def ties(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def gated(x, w):
    s = x @ w
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    weights, experts = rf.topk(e / e.sum(axis=-1, keepdims=True), 4)
    return weights / weights.sum(axis=-1, keepdims=True), experts


PLACES = {
    "rows": lambda x: np.argmax(x, axis=1),
    "columns": lambda x: np.argmin(x, axis=0),
    "peak": lambda x: (x.max(axis=1), np.argmax(np.abs(x), axis=1), x.argmin(axis=1)),
    "squares": lambda x: np.argmin(x * x - 3 * x, axis=1),
}


@pytest.mark.parametrize("name", PLACES)
def test_where_the_best_element_is(name):
    """The first of equal ones, whatever the length; one kernel."""
    fn = PLACES[name]
    f = rf.fuse(fn)
    for shape in ((7, 50), (1, 1), (2, 3), (3, 1009), (40, 4), (1, 70_000)):
        x = ties(*shape)
        got, want = f(x), fn(x)
        for a, b in zip(np.atleast_1d(got) if name != "peak" else got, np.atleast_1d(want) if name != "peak" else want,
                        strict=True):
            np.testing.assert_array_equal(a, b)
    assert f.stats.kernel_runs >= 6
    assert f.stats.interpreter_runs == 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
def test_the_best_of_every_dtype(dtype):
    f = rf.fuse(lambda x: rf.topk(x, 5))
    for shape in ((4, 5), (3, 6), (2, 64), (2, 333), (1, 70_000)):
        x = np.abs(ties(*shape)).astype(dtype)
        values, indices = f(x)
        order = np.argsort(-x.astype("f8"), axis=-1, kind="stable")[:, :5]
        np.testing.assert_array_equal(indices, order)
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, -1))
        assert values.dtype == dtype


@pytest.mark.parametrize("axis", [0, 1])
def test_the_worst_along_any_axis(axis):
    x = ties(30, 40)
    values, indices = rf.fuse(lambda x: rf.topk(x, 3, axis=axis, largest=False))(x)
    order = np.take(np.argsort(x, axis=axis, kind="stable"), range(3), axis)
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis))


def test_a_router_is_one_kernel_with_its_matrix_product():
    """Scores, softmax, selection and renormalisation: the scores are never stored."""
    rng = np.random.default_rng(1)
    f = rf.fuse(gated)
    for rows, experts in ((33, 64), (1, 4), (5, 257)):
        x, w = rng.normal(size=(rows, 32)).astype("f4"), rng.normal(size=(32, experts)).astype("f4")
        weights, chosen = f(x, w)
        scores = x.astype("f8") @ w
        order = np.argsort(-scores, axis=-1, kind="stable")[:, :4]
        np.testing.assert_array_equal(chosen, order)
        e = np.exp(np.take_along_axis(scores, order, -1) - scores.max(-1, keepdims=True))
        np.testing.assert_allclose(weights, e / e.sum(-1, keepdims=True), rtol=2e-5)
    assert f.stats.kernel_runs == 3
    assert "schedule: tiles" in str(f.lower(x, w).tiles)


def test_odd_elements_are_ordered_as_in_numpy():
    rng = np.random.default_rng(2)
    f, g = rf.fuse(lambda x: np.argmax(x, axis=-1)), rf.fuse(lambda x: rf.topk(x, 3))
    for length in (3, 8, 50):
        x = rng.choice([np.nan, np.inf, -np.inf, 0.0, 1.0], (60, length)).astype("f4")
        np.testing.assert_array_equal(f(x), x.argmax(-1))
        for got, want in zip(g(x), rf.topk(x, 3), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("axis", [0, 1])
def test_a_recurrence_as_an_operator_of_ones_own(axis):
    """In the order of the stream, along rows and along columns; wide enough for ten thousand steps."""
    f = rf.fuse(lambda x, y: AFFINE(x, y, axis=axis))
    rng = np.random.default_rng(3)
    for length in (1, 2, 17, 10_000, 30_000):
        shape = (length, 5) if axis == 0 else (5, length)
        x, y = rng.uniform(0.9, 1.0, shape).astype("f4"), rng.normal(size=shape).astype("f4")
        a, b = np.ones(5), np.zeros(5)
        for p, q in zip(*(np.moveaxis(t, axis, 0).astype("f8") for t in (x, y)), strict=True):
            a, b = a * p, b * p + q
        got = f(x, y)
        np.testing.assert_allclose(got[0], a, rtol=1e-3, atol=1e-30)
        np.testing.assert_allclose(got[1], b, rtol=1e-4, atol=1e-4)


def test_a_commutative_operator_runs_in_lanes():
    f = rf.fuse(lambda x: HYPOT(np.abs(x), axis=-1))
    for length in (1, 7, 8, 100, 30_000):
        x = np.random.default_rng(length).normal(size=(3, length)).astype("f4")
        np.testing.assert_allclose(f(x), np.sqrt((x.astype("f8") ** 2).sum(-1)), rtol=2e-5)
    assert "fold(" in str(f.lower(x).tiles)
    assert "fold in order" not in str(f.lower(x).tiles)
