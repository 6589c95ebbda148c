"""The functions that people write around reductions, as they write them: name -> function, arguments, what is known.

Used by the tests of edge cases. Logits stand for probabilities, so that every input is in the domain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import redfuser as rf

ROWS, PLANES = ("rows", "n"), ("images", "channels", "n")


@dataclass(frozen=True)
class Kernel:
    """A function with specs of its arguments; `accumulators` in its one pass, pivots and counts left out."""

    fn: Callable[..., Any]
    specs: tuple[tuple[str, ...], ...]
    accumulators: int
    allow: tuple[str, ...] = ()


KERNELS: dict[str, Kernel] = {}


def kernel(*specs: tuple[str, ...], accumulators: int, allow: tuple[str, ...] = ()) -> Callable[[Any], Any]:
    def add(fn: Callable[..., Any]) -> Callable[..., Any]:
        KERNELS[fn.__name__] = Kernel(fn, specs, accumulators, allow)
        return fn

    return add


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def lse(x):
    m = x.max(axis=-1, keepdims=True)
    return m + np.log(np.exp(x - m).sum(axis=-1, keepdims=True))


@kernel(ROWS, accumulators=2)
def log_softmax(x):
    return x - lse(x)


@kernel(ROWS, accumulators=3)
def softmax_top3(x):
    return rf.topk(softmax(x), 3)


@kernel(ROWS, ROWS, accumulators=3)
def cosine_similarity(x, y):
    return (x * y).sum(axis=-1) / np.sqrt((x * x).sum(axis=-1) * (y * y).sum(axis=-1) + 1e-8)


@kernel(ROWS, ROWS, accumulators=2)
def l2_normalise_dot(x, y):
    return (x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + 1e-8) * y).sum(axis=-1)


@kernel(ROWS, ROWS, ("n",), accumulators=1)
def rmsnorm_residual(x, residual, weight):
    h = x + residual
    return h / np.sqrt((h * h).mean(axis=-1, keepdims=True) + 1e-6) * weight, h


@kernel(PLANES, ("channels",), ("channels",), accumulators=2)
def instance_norm(x, gain, bias):
    mu = x.mean(axis=-1, keepdims=True)
    var = ((x - mu) ** 2).mean(axis=-1, keepdims=True)
    return (x - mu) / np.sqrt(var + 1e-5) * gain[:, None] + bias[:, None]


@kernel(PLANES, accumulators=2)
def group_norm(x):
    mu = x.mean(axis=(1, 2), keepdims=True)
    return (x - mu) / np.sqrt(x.var(axis=(1, 2), keepdims=True) + 1e-5)


@kernel(ROWS, accumulators=3)
def entropy(x):
    p = softmax(x)
    return -(p * (x - lse(x))).sum(axis=-1)


@kernel(ROWS, ROWS, accumulators=4)
def cross_entropy(x, target):
    return -(target * (x - lse(x))).sum(axis=-1)


@kernel(ROWS, ROWS, accumulators=5)
def label_smoothing(x, target):
    log_p = x - lse(x)
    return -(0.9 * (target * log_p).sum(axis=-1) + 0.1 * log_p.mean(axis=-1))


@kernel(ROWS, ROWS, accumulators=5)
def kl_divergence(x, y):
    return (softmax(x) * (x - lse(x) - (y - lse(y)))).sum(axis=-1)


@kernel(ROWS, accumulators=3)
def third_moment(x):
    return ((x - x.mean(axis=-1, keepdims=True)) ** 3).mean(axis=-1)


@kernel(ROWS, accumulators=4)
def fourth_moment(x):
    return ((x - x.mean(axis=-1, keepdims=True)) ** 4).mean(axis=-1)


@kernel(ROWS, ROWS, accumulators=5)
def pearson(x, y):
    dx, dy = x - x.mean(axis=-1, keepdims=True), y - y.mean(axis=-1, keepdims=True)
    return (dx * dy).sum(axis=-1) / np.sqrt((dx * dx).sum(axis=-1) * (dy * dy).sum(axis=-1))


@kernel(ROWS, ROWS, accumulators=4)
def regression(x, y):
    dx, dy = x - x.mean(axis=-1, keepdims=True), y - y.mean(axis=-1, keepdims=True)
    return (dx * dy).sum(axis=-1) / (dx * dx).sum(axis=-1)


@kernel(ROWS, ROWS, accumulators=3)
def weighted_variance(x, logits):
    w = np.exp(np.minimum(logits, 0.0))
    total = w.sum(axis=-1, keepdims=True)
    mu = (w * x).sum(axis=-1, keepdims=True) / total
    return (w * (x - mu) ** 2).sum(axis=-1) / total[..., 0]


@kernel(ROWS, ("n", "m"), accumulators=2, allow=("requantize",))
def absmax_dot(x, w):
    scale = np.maximum(np.abs(x).max(axis=-1, keepdims=True), 1e-12) / 127
    return np.rint(x / scale) @ w * scale


@kernel(ROWS, ("n",), accumulators=4, allow=("requantize",))
def asymmetric_dot(x, w):
    low, high = x.min(axis=-1, keepdims=True), x.max(axis=-1, keepdims=True)
    step = np.maximum(high - low, 1e-12) / 255
    return (np.rint((x - low) / step) * w).sum(axis=-1) * step[..., 0]


@kernel(ROWS, accumulators=2)
def scaled_norm(x):
    top = np.abs(x).max(axis=-1, keepdims=True)
    return top[..., 0] * np.sqrt(((x / top) ** 2).sum(axis=-1))


@kernel(ROWS, ROWS, accumulators=3)
def moment_of_inertia(x, mass):
    center = (mass * x).sum(axis=-1, keepdims=True) / mass.sum(axis=-1, keepdims=True)
    return (mass * (x - center) ** 2).sum(axis=-1)


@kernel(ROWS, ROWS, accumulators=4)
def softmax_variance(x, v):
    p = softmax(x)
    mu = (p * v).sum(axis=-1, keepdims=True)
    return (p * (v - mu) ** 2).sum(axis=-1)


def cross_entropy_of_labels(x, labels):
    """Mean over the rows whose label is not -100."""
    kept = labels != -100
    chosen = np.where(kept, labels, 0)
    loss = lse(x)[:, 0] - x[np.arange(x.shape[0]), chosen]
    return np.where(kept, loss, 0).sum() / kept.sum()
