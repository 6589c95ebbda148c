"""Kernels on rows of which one part leaves an extreme infinite."""

from __future__ import annotations

import numpy as np
import pytest

import redfuser as rf

FUNCTIONS = {
    "shifted": lambda y, w: np.sum((np.min(y / w, axis=-1, keepdims=True) + 1) - w, axis=-1),
    "scaled": lambda y, w: np.sum((2 * np.min(y / w, axis=-1, keepdims=True) + 1) - w, axis=-1),
    "plain": lambda y, w: np.sum(np.min(y / w, axis=-1, keepdims=True) - w, axis=-1),
    "squares": lambda y, w: np.sum((np.min(y / w, axis=-1, keepdims=True) - w) ** 2, axis=-1),
}


def dead(where, y, w):
    n = w.shape[-1]
    w[..., {"first": slice(0, n // 2), "last": slice(n // 2, n), "one": slice(0, 1)}[where]] = 0
    return y, w


@pytest.mark.parametrize("where", ["first", "last", "one"])
@pytest.mark.parametrize("shape", [(64,), (3, 1000), (70000,), (1, 300000)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows(name, shape, where):
    rng = np.random.default_rng(0)
    y, w = dead(where, *(np.abs(rng.normal(size=(2, *shape))) + 0.5))
    with np.errstate(divide="ignore"):
        want = FUNCTIONS[name](y, w)
    np.testing.assert_allclose(rf.fuse(FUNCTIONS[name])(y, w), want, rtol=1e-9)


@pytest.mark.parametrize("where", ["first", "last", "one"])
def test_columns(where):
    rng = np.random.default_rng(1)
    y, w = dead(where, *(np.abs(rng.normal(size=(2, 9, 700))) + 0.5))
    y, w = y.T.copy(), w.T.copy()

    def f(y, w):
        return np.sum((2 * np.min(y / w, axis=0) + 1) - w, axis=0)

    with np.errstate(divide="ignore"):
        want = f(y, w)
    np.testing.assert_allclose(rf.fuse(f)(y, w), want, rtol=1e-9)


@pytest.mark.parametrize("top", [-1000.0, 1000.0])
def test_masked_prefix_is_neutral_whatever_the_scores(top):
    rng = np.random.default_rng(2)
    s = rng.normal(size=(4, 20000)).astype("f") + np.float32(top)
    s[:, :15000] = -np.inf
    v = rng.normal(size=(20000, 8)).astype("f")

    def f(s, v):
        p = np.exp(s - s.max(axis=-1, keepdims=True))
        return (p / p.sum(axis=-1, keepdims=True)) @ v

    np.testing.assert_allclose(rf.fuse(f)(s, v), f(s.astype("d"), v.astype("d")), atol=1e-5)
