"""The functions of the CPU benchmark, in plain NumPy as a user writes them."""

from __future__ import annotations

from typing import Any

import numpy as np

import redfuser as rf


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def logsumexp(x: Any) -> Any:
    m = x.max(-1, keepdims=True)
    return np.log(np.exp(x - m).sum(-1)) + m[..., 0]


def layernorm(x: Any, weight: Any, bias: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * weight + bias


def rmsnorm(x: Any, weight: Any) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight


def variance(x: Any) -> Any:
    return ((x - x.mean(-1, keepdims=True)) ** 2).mean(-1)


def cross_entropy(x: Any, target: Any) -> Any:
    m = x.max(-1, keepdims=True)
    lse = np.log(np.exp(x - m).sum(-1)) + m[:, 0]
    return lse - x[np.arange(x.shape[0]), target]


def router(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return rf.topk(e / e.sum(-1, keepdims=True), 8)


def cosine(x: Any, y: Any) -> Any:
    return (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1))


def pearson(x: Any, y: Any) -> Any:
    dx, dy = x - x.mean(), y - y.mean()
    return (dx * dy).sum() / np.sqrt((dx * dx).sum() * (dy * dy).sum())


def moments(x: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    d = x - mean
    return mean[:, 0], (d**2).mean(-1), (d**3).mean(-1), (d**4).mean(-1)


def attention(q: Any, k: Any, v: Any) -> Any:
    s = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5
    p = np.exp(s - s.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True)) @ v


def causal_attention(q: Any, k: Any, v: Any) -> Any:
    s = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5
    i, n = np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])[None, :]
    s = np.where(n <= i, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True)) @ v


def latent_decode(q: Any, cache: Any) -> Any:
    """q [b, h, 576] against one shared cache [b, n, 576], whose first 512 columns are the values."""
    s = q @ np.swapaxes(cache, -1, -2) * 192**-0.5
    p = np.exp(s - s.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True)) @ cache[..., :512]


def rmsnorm_gemm(x: Any, w: Any) -> Any:
    return (x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)) @ w


def quantised_gemm(x: Any, w: Any) -> Any:
    scale = np.maximum(np.abs(x).max(-1, keepdims=True), 1e-12) / 127
    return (np.rint(x / scale) @ w) * scale


def gate(x: Any, w: Any) -> Any:
    s = x @ w
    e = np.exp(s - s.max(-1, keepdims=True))
    return rf.topk(e / e.sum(-1, keepdims=True), 8)


def entropy(x: Any) -> Any:
    m = x.max(-1, keepdims=True)
    e = np.exp(x - m)
    total = e.sum(-1)
    return np.log(total) - (e * (x - m)).sum(-1) / total


def softmax_variance(x: Any, v: Any) -> Any:
    p = np.exp(x - x.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    mean = (p * v).sum(-1, keepdims=True)
    return (p * (v - mean) ** 2).sum(-1)


def heat_capacity(e: Any) -> Any:
    w = np.exp(-(e - e.min(-1, keepdims=True)))
    w = w / w.sum(-1, keepdims=True)
    mean = (w * e).sum(-1, keepdims=True)
    return (w * (e - mean) ** 2).sum(-1)


def skew_and_kurtosis(x: Any) -> Any:
    d = x - x.mean(-1, keepdims=True)
    second = (d**2).mean(-1)
    return (d**3).mean(-1) / second**1.5, (d**4).mean(-1) / second**2


def kl_divergence(x: Any, y: Any) -> Any:
    ex, ey = np.exp(x - x.max(-1, keepdims=True)), np.exp(y - y.max(-1, keepdims=True))
    sx, sy = ex.sum(-1), ey.sum(-1)
    mean = (ex * (x - y)).sum(-1) / sx
    return mean - (np.log(sx) + x.max(-1)) + (np.log(sy) + y.max(-1))


def below(i: Any, n: Any) -> Any:
    """The keys that row i of causal attention reads."""
    return n <= i


def in_window(i: Any, n: Any) -> Any:
    """The keys that row i reads: its own and the 127 before."""
    return (n <= i) & (n > i - 128)


def window_attention(q: Any, k: Any, v: Any) -> Any:
    s = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5
    i, n = np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])[None, :]
    s = np.where(in_window(i, n), s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True)) @ v
