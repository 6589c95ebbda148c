"""What random schedules run: cascades that reach every kind of schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import redfuser.frontend as rf

X: Mapping[str, tuple[tuple[str, ...], str]] = {"x": (("p", "n"), "")}
XY: Mapping[str, tuple[tuple[str, ...], str]] = {**X, "y": (("p", "n"), "")}
QKV: Mapping[str, tuple[tuple[str, ...], str]] = {
    "q": (("h", "i", "k"), ""), "k": (("h", "n", "k"), ""), "v": (("h", "n", "d"), "")}


@dataclass(frozen=True)
class Case:
    """A NumPy function and its arguments: name -> (sizes, dtype; "" is the one that is drawn)."""

    fn: Callable[..., Any]
    arguments: Mapping[str, tuple[tuple[str, ...], str]]


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def entropy(x: Any) -> Any:
    m = x.max(axis=1, keepdims=True)
    e = np.exp(x - m)
    mass = e.sum(axis=1)
    return np.log(mass) - (e * (x - m)).sum(axis=1) / mass


def moments(x: Any) -> Any:
    mean = x.mean(axis=1, keepdims=True)
    return mean[:, 0], ((x - mean) ** 2).mean(axis=1)


def layer_norm(x: Any, g: Any) -> Any:
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=1, keepdims=True) + 1e-5) * g


def weighted_mean(x: Any, y: Any) -> Any:
    w = np.exp(x - x.max(axis=1, keepdims=True))
    return (w * y).sum(axis=1) / w.sum(axis=1)


def deviation(x: Any) -> Any:
    """Two passes."""
    return np.abs(x - x.mean(axis=1, keepdims=True)).sum(axis=1)


def above(x: Any) -> Any:
    """Two passes, truth values."""
    mean = x.mean(axis=1, keepdims=True)
    return (x > mean).sum(axis=1), x.min(axis=1), (x > -9.0).all(axis=1)


def column_softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=0))
    return e / e.sum(axis=0)


def column_variance(x: Any) -> Any:
    return x.var(axis=0)


def covariance(x: Any) -> Any:
    d = x - x.mean(axis=0)
    return d.T @ d


def attention(q: Any, k: Any, v: Any) -> Any:
    s = q @ np.swapaxes(k, 1, 2) * 0.3
    p = np.exp(s - s.max(axis=2, keepdims=True))
    return p / p.sum(axis=2, keepdims=True) @ v


def masked_attention(q: Any, k: Any, v: Any, keep: Any) -> Any:
    s = np.where(keep, q @ np.swapaxes(k, 1, 2), -np.inf)
    p = np.exp(s - s.max(axis=2, keepdims=True))
    return p / p.sum(axis=2, keepdims=True) @ v


def causal_attention(q: Any, k: Any, v: Any) -> Any:
    s = q @ np.swapaxes(k, 1, 2)
    s = np.where(np.arange(k.shape[1])[None, :] <= np.arange(q.shape[1])[:, None], s, -np.inf)
    p = np.exp(s - s.max(axis=2, keepdims=True))
    return p / p.sum(axis=2, keepdims=True) @ v


def scores(q: Any, k: Any) -> Any:
    """Outputs along the stream of a matrix product."""
    s = q @ np.swapaxes(k, 1, 2)
    p = np.exp(s - s.max(axis=2, keepdims=True))
    return p / p.sum(axis=2, keepdims=True)


def decode(q: Any, k: Any, v: Any) -> Any:
    """One row."""
    s = k @ q
    p = np.exp(s - s.max())
    return p / p.sum() @ v


def normed_product(x: Any, w: Any) -> Any:
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-6) @ w


def nearest(q: Any, k: Any) -> Any:
    """An inner reduction that is no matrix product."""
    d = ((q[:, None] - k) ** 2).sum(axis=2)
    return -np.log(np.exp(d.min(axis=1, keepdims=True) - d).sum(axis=1)) + d.min(axis=1)


def widest(q: Any, k: Any) -> Any:
    return np.abs(q[:, None] - k).max(axis=2).sum(axis=1)


def router(x: Any) -> Any:
    """A sorted list beside sums."""
    e = np.exp(x - x.max(axis=1, keepdims=True))
    values, places = rf.topk(e / e.sum(axis=1, keepdims=True), 3)
    return values / values.sum(axis=1, keepdims=True), places


def position(x: Any) -> Any:
    return x.argmax(axis=1), x.max(axis=1), x.sum(axis=1)


def elementwise(x: Any, g: Any) -> Any:
    return np.tanh(x) * g


_G: Mapping[str, tuple[tuple[str, ...], str]] = {**X, "g": (("n",), "")}
_QK: Mapping[str, tuple[tuple[str, ...], str]] = {"q": (("i", "k"), ""), "k": (("n", "k"), "")}

CASES: Mapping[str, Case] = {
    "softmax": Case(softmax, X), "entropy": Case(entropy, X), "moments": Case(moments, X),
    "layer_norm": Case(layer_norm, _G), "weighted_mean": Case(weighted_mean, XY), "deviation": Case(deviation, X),
    "above": Case(above, X), "column_softmax": Case(column_softmax, {"x": (("n", "p"), "")}),
    "column_variance": Case(column_variance, {"x": (("n", "p"), "")}),
    "covariance": Case(covariance, {"x": (("n", "p"), "")}), "attention": Case(attention, QKV),
    "masked_attention": Case(masked_attention, {**QKV, "keep": (("i", "n"), "bool")}),
    "causal_attention": Case(causal_attention, QKV),
    "scores": Case(scores, {"q": QKV["q"], "k": QKV["k"]}),
    "decode": Case(decode, {"q": (("k",), ""), "k": (("n", "k"), ""), "v": (("n", "d"), "")}),
    "normed_product": Case(normed_product, {**X, "w": (("n", "d"), "")}), "nearest": Case(nearest, _QK),
    "widest": Case(widest, _QK), "router": Case(router, X), "position": Case(position, X),
    "elementwise": Case(elementwise, _G),
}
