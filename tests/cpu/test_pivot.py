"""Means and variances of hard data, compiled: no number is a good pivot for all of them."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from contract import assert_contract
from hard_rows import HARD_ROWS, hard_rows

import redfuser as rf


def moments(x):
    mean = x.mean(-1, keepdims=True)
    return mean[..., 0], ((x - mean) ** 2).mean(-1)


def moments_of_columns(x):
    mean = x.mean(0)
    return mean, ((x - mean) ** 2).mean(0)


def normalised(x):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + np.float32(1e-5))


def weighted(x, w):
    mass = w.sum(-1, keepdims=True)
    mean = (w * x).sum(-1, keepdims=True) / mass
    return (w * (x - mean) ** 2).sum(-1) / mass[..., 0]


def scaled(x):
    y = x / np.abs(x).max(-1, keepdims=True)
    return ((y - y.mean(-1, keepdims=True)) ** 2).sum(-1)


def of_scores(q, keys, bias):
    """The spread of what is computed in the loop."""
    s = keys @ q + bias
    return ((s - s.mean()) ** 2).mean()


def of_products(x, w):
    y = np.tanh(x) * w
    return ((y - y.mean(-1, keepdims=True)) ** 2).mean(-1)


def halved(x):
    return ((x * np.float32(0.5) - np.float32(0.5) * x.mean(-1, keepdims=True)) ** 2).sum(-1)


@functools.cache
def fused(f):
    return rf.fuse(f)


@pytest.mark.parametrize("n", [1, 5, 64, 4096, 100_003])
@pytest.mark.parametrize("kind", HARD_ROWS)
def test_moments_keep_the_contract(kind, n):
    x = hard_rows(kind, n)
    mean, variance = fused(moments)(x)
    exact = moments(x.astype(np.longdouble))
    assert (np.abs(mean - exact[0]) <= 2e-6 * np.abs(x.astype(float)).mean(-1)).all()
    assert (np.abs(variance - exact[1]) <= 4e-6 * exact[1]).all()
    if kind != "decay":  # sums of few large and many small terms are rounded in every form
        assert_contract(fused(normalised)(x), normalised, x)


@pytest.mark.parametrize("kind", HARD_ROWS)
def test_moments_of_columns(kind):
    x = np.ascontiguousarray(np.tile(hard_rows(kind, 2048), (6, 1)).T)
    mean, variance = fused(moments_of_columns)(x)
    exact = moments_of_columns(x.astype(np.longdouble))
    assert (np.abs(mean - exact[0]) <= 2e-6 * np.abs(x.astype(float)).mean(0)).all()
    assert (np.abs(variance - exact[1]) <= 2048 * 2.0**-24 * exact[1]).all()  # summed one row after the other


@pytest.mark.parametrize("first", [np.nan, np.inf])
def test_what_is_not_finite_is_no_pivot_and_propagates(first):
    x = hard_rows("far", 300)
    x[0, 0] = first
    mean, variance = fused(moments)(x)
    assert np.isnan(variance[0])
    np.testing.assert_array_equal(mean[0], x[0].mean())
    np.testing.assert_array_equal(fused(moments)(x[1:])[1], variance[1:])


def test_weights_of_zero_do_not_choose_the_pivot():
    """Padding: 0 in the data, 0 in the weights, and the rest lies far from zero."""
    x, w = hard_rows("far", 4096), np.ones((3, 4096), np.float32)
    x[:, :2048] = w[:, :2048] = 0
    exact = weighted(x.astype(np.longdouble), w)
    assert (np.abs(fused(weighted)(x, w) - exact) <= 1e-5 * exact).all()


@pytest.mark.parametrize("f", [scaled, halved])
def test_scaled_data_are_shifted_as_well(f):
    x = (1e4 + 1e-1 * np.random.default_rng(0).standard_normal((3, 5000))).astype(np.float32)
    exact = f(x.astype(np.longdouble))
    assert (np.abs(fused(f)(x) - exact) <= 1e-5 * exact).all()
    assert fused(f)(np.full((1, 1), 3.3, np.float32)).tolist() == [0.0]


def test_computed_data_have_a_pivot():
    rng = np.random.default_rng(2)
    keys, q = (rng.standard_normal(n).astype(np.float32) for n in ((3000, 8), 8))
    far = (1e4 + 1e-2 * rng.standard_normal(3000)).astype(np.float32)
    given = (q * np.float32(1e-2), keys, far)
    assert "pivot" in str(fused(of_scores).explain(*given))
    scores = (keys @ given[0] + far).astype(np.longdouble)  # rounded to float32, as every producer is
    assert fused(of_scores)(*given) == pytest.approx(float(scores.var()), rel=0.05)
    x, w = (1 + 1e-3 * rng.standard_normal((4, 3000))).astype(np.float32), 1e4 + rng.standard_normal((4, 3000))
    exact = of_products(x.astype(float), w.astype(np.float32).astype(float))
    np.testing.assert_allclose(fused(of_products)(x, w.astype(np.float32)), exact, rtol=1e-4)
