"""Arithmetic on the elements of integer arrays wraps around where NumPy's does, also where a reduction reads it."""

from __future__ import annotations

import numpy as np
import pytest

import redfuser as rf
from redfuser.ir import Cast, walk
from redfuser.testing import check_fusion

DTYPES = ("int8", "int16", "int32", "uint8")


def top(x):
    return x.max(-1, keepdims=True)


def low(x):
    return x.min(-1, keepdims=True)


OPERATIONS = {
    "add": lambda x, y: x + y,
    "subtract": lambda x, y: x - y,
    "multiply": lambda x, y: x * y,
    "negative": lambda x, y: -x,
    "absolute": lambda x, y: np.abs(x),
    "square": lambda x, y: np.square(x),
    "cube": lambda x, y: x**3,
    "twelfth_power": lambda x, y: x**12,
    "by_a_number": lambda x, y: x * 3 - 7,
    "by_a_scalar": lambda x, y: x * x.dtype.type(2),
    "chain": lambda x, y: x * y * x - y,
    "quotient": lambda x, y: x // y,
    "remainder": lambda x, y: x % y,
    "chosen": lambda x, y: np.where(x > y, x + y, x - y),
    "narrowed": lambda x, y: (x.astype(np.int64) * y).astype(np.int8),
    "less_top": lambda x, y: x - top(x),
    "less_low_squared": lambda x, y: (x - low(x)) ** 2,
    "times_top": lambda x, y: x * top(x),
    "over_low": lambda x, y: x // low(x),
    "modulo_top": lambda x, y: x % top(y),
    "two_tops": lambda x, y: x * top(y) - top(x) * y,
    "spread": lambda x, y: x + np.ptp(x, axis=-1, keepdims=True),
}


def whole(dtype, seed, shape=(3, 37)):
    """Numbers over the whole range of a dtype, its ends among them."""
    info, rng = np.iinfo(dtype), np.random.default_rng(seed)
    found = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    found[..., 3], found[..., 5] = info.min, info.max
    return found


def same(got, wanted):
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(("name", "dtype"), [(name, DTYPES[(i + k) % 4]) for i, name in enumerate(OPERATIONS)
                                            for k in (0, 2)])
def test_every_reduction_reads_what_numpy_computes(name, dtype):
    def function(x, y):
        e = OPERATIONS[name](x, y)
        total, signs = e.sum(-1, dtype=np.int64), (e > y).any(-1)
        return total, e.max(-1), e.min(-1), e.argmax(-1), e.argmin(-1), signs, (e != x).all(-1), e

    x, y = whole(dtype, 0), whole(dtype, 1)
    y = np.where(y == 0, y.dtype.type(1), y)
    with np.errstate(all="ignore"):
        same(rf.fuse(function)(x, y), function(x, y))


@pytest.mark.parametrize(("name", "dtype"), [("cube", "int16"), ("less_top", "uint8"), ("times_top", "int32"),
                                             ("less_low_squared", "int8")])
def test_every_level_wraps(name, dtype):
    found = check_fusion(lambda x, y: OPERATIONS[name](x, y).sum(-1, dtype=np.int64), whole(dtype, 0, (2, 19)),
                         whole(dtype, 1, (2, 19)), trials=4, kinds=("normal",), shrink=False)
    assert found.ok, found.counterexample


@pytest.mark.parametrize(("function", "x"), [
    (lambda x: (x - top(x)).sum(-1), np.array([[-100, 100, 50, 7]], np.int8)),
    (lambda x: (x - top(x)).max(-1), np.array([[1, 200, 50, 7]], np.uint8)),
    (lambda x: (x - top(x)).argmax(-1), np.array([[1, 200, 50, 7]], np.uint8)),
    (lambda x: (x * np.int8(2) > top(x)).any(-1), np.array([[-100, 100, 50, 7]], np.int8)),
    (lambda x: np.abs(x).max(-1), np.array([[-128, 3]], np.int8)),
    (lambda x: (x * x).max(-1), np.array([[16, 5]], np.int8)),
    (lambda x: (x * top(x)).sum(-1), np.array([[2**31 - 1, -2**31, 2**30]], np.int32)),
    (lambda x: np.exp((x - top(x)).astype(np.float32) / 300).sum(-1), np.array([[-30000, 30000, 5]], np.int16)),
])
def test_results_that_depend_on_results(function, x):
    np.testing.assert_allclose(rf.fuse(function)(x), function(x), rtol=1e-6)
    found = check_fusion(function, x, trials=0, shrink=False)
    assert found.ok, found.counterexample


def test_no_law_of_the_reals_crosses_a_wrap():
    """The sum of x - top is that of x less n times top only where nothing wraps around."""
    report = rf.fuse(lambda x: (x - top(x)).sum(-1)).explain(whole("int8", 0))
    assert report.verdict != "FUSIBLE"
    assert rf.fuse(lambda x: (x.astype(np.int64) - top(x)).sum(-1)).explain(whole("int8", 0)).verdict == "FUSIBLE"


@pytest.mark.parametrize("function", [
    lambda x, y: (x > y).sum(-1),
    lambda x, y: np.maximum(x, y).max(-1),
    lambda x, y: np.abs(y).max(-1),
    lambda x, y: (y // 3 + y % 4).max(-1),
    lambda x, y: (x // 2 * np.sign(x)).max(-1),
    lambda x, y: np.where(x > 0, x, 1).max(-1),
    lambda x, y: (x.astype(np.int32) * y.astype(np.int32)).sum(-1),
    lambda x, y: ((x > 0) * x).max(-1),
    lambda x, y: (np.clip(x * 0.5, -9, 9).astype(np.int8) * np.arange(x.shape[-1]) ** 3).sum(-1),
    lambda x, y: (np.arange(x.shape[-1]) * x.shape[-1] * x).sum(-1),
    lambda x, y: (x.astype(np.int32) @ y.astype(np.int32).T).max(-1),
])
def test_nothing_wraps_that_cannot(function):
    x, y = whole("int8", 0), whole("uint8", 1)
    f = rf.fuse(function)
    term = f.lower(x, y).term
    exprs = [*(let.expr for let in term.lets), *(o.expr for o in term.outs)]
    assert not any(isinstance(e, Cast) and e.dtype != "int8" for x in exprs for e in walk(x))
    np.testing.assert_array_equal(f(x, y), function(x, y))


def test_a_product_of_matrices_accumulates():
    """Its elements are whole numbers of float64 lanes: a matrix product without a conversion, in one kernel."""
    def product(q, w):
        return q.astype(np.int32) @ w.astype(np.int32)

    q, w = whole("int8", 0, (4, 33)), whole("int8", 1, (33, 6))
    f = rf.fuse(product)
    np.testing.assert_array_equal(f(q, w), product(q, w))
    assert not any(isinstance(e, Cast) for let in f.lower(q, w).term.lets for e in walk(let.expr))


def test_division_of_the_least_number_by_minus_one():
    x, y = np.full((2, 9), np.iinfo(np.int64).min), np.full((2, 9), -1)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(rf.fuse(lambda x, y: x % y)(x, y), x % y)
        np.testing.assert_array_equal(rf.fuse(lambda x, y: x // y)(x, y), x // y)
