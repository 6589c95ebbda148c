"""Cascades with products in NumPy, and the bound that half-precision weights leave them.

Matrix units take weights p rounded to a half type of unit roundoff u: |error| <= u sum |p v| / sum p; the result is
rounded once more. The absolute value of the result is below sum |p v| / sum p as well, which the same function gives of
|v|. What float32 sums add is far below; weights below the normal range of float16 lose 2^-25 each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

import redfuser as rf

Array = np.ndarray[Any, Any]
Function = Callable[..., Array]
F16, BF16 = np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)
ROUNDOFF = {F16: 2.0**-11, BF16: 2.0**-8}


def weighted(s: Any, v: Any) -> Any:
    """Softmax of scores over the last axis, times values."""
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True)) @ v


def dense(q: Any, k: Any, v: Any) -> Any:
    return weighted(np.einsum("hmd,hnd->hmn", q, k) * 0.125, v)


def causal(q: Any, k: Any, v: Any) -> Any:
    s = np.einsum("hmd,hnd->hmn", q, k) * 0.1
    m, n = s.shape[-2:]
    return weighted(np.where(np.arange(n)[None, :] <= np.arange(m)[:, None], s, -np.inf), v)


def capped_window(q: Any, k: Any, v: Any) -> Any:
    s = 30.0 * np.tanh(np.einsum("hmd,hnd->hmn", q, k) / 30.0)
    m, n = s.shape[-2:]
    i, j = np.arange(m)[:, None], np.arange(n)[None, :]
    return weighted(np.where((j <= i) & (j > i - 40), s, -np.inf), v)


def grouped_bias(q: Any, k: Any, v: Any, b: Any) -> Any:
    s = np.einsum("hgmd,hnd->hgmn", q, k) * 0.1 + b[None, None]
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return np.einsum("hgmn,hnd->hgmd", e / e.sum(axis=-1, keepdims=True), v)


def decode(q: Any, k: Any, v: Any) -> Any:
    """One query per head, groups of heads share keys: the group is the rows of a tile."""
    return weighted(np.einsum("hgd,hnd->hgn", q, k) * 0.125, v)


def normalised_product(x: Any, g: Any, w: Any) -> Any:
    """RMS norm and the product after it."""
    return (x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-5) * g) @ w


def latent(q: Any, c: Any) -> Any:
    """The values are the first features of the keys."""
    s = np.einsum("hc,nc->hn", q, c) * 0.1
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return np.einsum("hn,nd->hd", e / e.sum(axis=-1, keepdims=True), c[:, : c.shape[1] - 16])


def gate(x: Any, w: Any) -> Any:
    """Routing of tokens to experts: a product, softmax, the best four."""
    s = x @ w.T
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    return rf.topk(e / e.sum(axis=-1, keepdims=True), 4)


def inputs(*shapes: tuple[int, ...], dtype: np.dtype[Any] = F16, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def wide(a: Array) -> Array:
    return a.astype(np.float64)


def assert_within_half(fn: Function, result: Array, q: Array, k: Array, v: Array, *rest: Array) -> None:
    """The result against the definition in float64, element by element."""
    others = tuple(map(wide, rest))
    with np.errstate(all="ignore"):
        expected = fn(wide(q), wide(k), wide(v), *others)
        size = fn(wide(q), wide(k), np.abs(wide(v)), *others)
    u = ROUNDOFF[v.dtype]
    bound = 2 * u * size * 1.05 + k.shape[-2] * 2.0**-25 * np.abs(wide(v)).max()
    assert result.shape == expected.shape
    error = np.abs(wide(result) - expected)
    assert (error <= bound).all(), f"{(error / bound).max()} of the bound"
