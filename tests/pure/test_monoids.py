"""Monoids whose values have several parts: order, ties, NaN, empty places, and the laws of combining."""

from __future__ import annotations

import numpy as np
import pytest

import redfuser as rf
from redfuser.errors import CheckError, DTypeError, ShapeError
from redfuser.ir import monoid, parts_monoid
from redfuser.ir.monoids import PartsMonoid

NAMES = ("argmax", "argmin", "topk:1", "topk:3", "bottomk:4", "topk:9")
VALUES = (0.0, -0.0, 1.0, 1.0, -2.5, np.inf, -np.inf, np.nan, np.nan, 7.0)


def by_sorting(m: PartsMonoid, keys: np.ndarray, start: int = 0) -> tuple[list[float], list[int]]:
    """The order in words: NaN first, then by value, then by position; empty places at the end."""
    sign = -1 if m.largest else 1
    nan = np.isnan(keys)
    order = sorted(range(len(keys)), key=lambda i: (not nan[i], 0 if nan[i] else sign * keys[i], i))
    chosen = order[: m.rank or 1]
    missing = (m.rank or 1) - len(chosen)
    values = [float(keys[i]) for i in chosen] + [m.identity[0]] * missing
    return values, [start + i for i in chosen] + [-1] * missing


def parts(m: PartsMonoid, value: np.ndarray) -> tuple[list[float], list[int]]:
    return np.atleast_1d(value["value"]).tolist(), np.atleast_1d(value["index"]).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_reduction_is_sorting(name):
    m, rng = parts_monoid(name), np.random.default_rng(3)
    for length in (1, 2, 3, 5, 8, 13):
        for _ in range(20):
            keys = rng.choice(VALUES, length)
            np.testing.assert_equal(parts(m, m.reduce(keys, axis=0)[0]), by_sorting(m, keys))
            np.testing.assert_equal(parts(m, m.reduce(keys, axis=0, start=40)[0]), by_sorting(m, keys, 40))


@pytest.mark.parametrize("name", NAMES)
def test_any_tree_of_any_order_gives_the_same_bits(name):
    m, rng = parts_monoid(name), np.random.default_rng(4)
    for _ in range(60):
        keys = rng.choice(VALUES, 12)
        cuts = np.sort(rng.choice(13, 3))
        values = [m.reduce(part, axis=0, start=int(start))[0]
                  for part, start in zip(np.split(keys, cuts), (0, *cuts), strict=True)]
        rng.shuffle(values)
        while len(values) > 1:
            i = rng.integers(len(values) - 1)
            values[i : i + 2] = [m.combined(*values[i : i + 2])]
        np.testing.assert_equal(parts(m, values[0]), by_sorting(m, keys))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_neutral(name):
    m = parts_monoid(name)
    nothing = m.nothing((), np.float64)
    for keys in ([2.0, 1.0], [-np.inf], [np.inf], [np.nan, 3.0], []):
        value = m.reduce(np.array(keys, dtype=float), axis=0)[0]
        for found in (m.combined(nothing, value), m.combined(value, nothing)):
            np.testing.assert_equal(parts(m, found), parts(m, value))


def test_positions_are_those_of_numpy():
    x = np.random.default_rng(0).choice(VALUES, (4, 9))
    assert np.array_equal(parts_monoid("argmax").reduce(x, axis=1)["index"][:, 0], x.argmax(axis=1))
    assert np.array_equal(parts_monoid("argmin").reduce(x, axis=0)["index"][0], x.argmin(axis=0))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "bool", "float16", "float32", "longdouble"])
def test_elements_of_every_dtype(dtype):
    x = np.array([3, 0, 3, 1, 2]).astype(dtype)
    values, indices = rf.topk(x, 3)
    assert values.dtype == dtype
    assert indices.dtype == np.int64
    assert values.tolist() == np.sort(x)[::-1][:3].tolist()
    assert indices.tolist() == ([0, 2, 3] if dtype == "bool" else [0, 2, 4])


def test_smallest_integer_sorts_last():
    low = np.iinfo(np.int64).min
    assert rf.topk(np.array([low, low + 1, 5]), 3)[1].tolist() == [2, 1, 0]
    assert rf.topk(np.array([2**62 + 1, 2**62, 2**62 + 1]), 2)[1].tolist() == [0, 2]


def test_topk_keeps_the_axis():
    x = np.random.default_rng(1).standard_normal((3, 7, 2))
    values, indices = rf.topk(x, 4, axis=1)
    assert values.shape == indices.shape == (3, 4, 2)
    assert np.array_equal(values, -np.sort(-x, axis=1)[:, :4])
    assert np.array_equal(np.take_along_axis(x, indices, 1), values)
    smallest, _ = rf.topk(x, 2, axis=0, largest=False)
    assert np.array_equal(smallest, np.sort(x, axis=0)[:2])


def test_masked_scores_are_elements_like_others():
    scores = np.full(5, -np.inf)
    scores[3] = 1.0
    assert rf.topk(scores, 3)[1].tolist() == [3, 0, 1]


def test_what_topk_refuses():
    with pytest.raises(ShapeError, match="'k' is 0"):
        rf.topk(np.ones(3), 0)
    with pytest.raises(ShapeError, match="length 3, topk needs at least 4"):
        rf.topk(np.ones(3), 4)
    with pytest.raises(ShapeError, match="axis=2"):
        rf.topk(np.ones((3, 3)), 1, axis=2)
    with pytest.raises(DTypeError, match="complex"):
        rf.topk(np.ones(3, dtype=complex), 1)


@pytest.mark.parametrize("name", ["topk", "topk:0", "topk:x", "middlek:2", "mine#12"])
def test_unknown_names_are_errors(name):
    with pytest.raises(CheckError, match="unknown monoid"):
        monoid(name)
