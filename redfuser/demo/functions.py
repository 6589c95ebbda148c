"""The functions of the demonstration: plain NumPy, nothing here knows of redfuser.

Each is a cascade: a reduction whose result a later reduction needs, over the same axis. Written down like
this, NumPy sweeps the data once per line. Shapes: q queries, n paragraphs, k features, d values.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]


def standardise(x: Array, epsilon: float) -> Array:
    """Each row of [n, k] with mean 0 and variance 1 (`epsilon` keeps a constant row finite)."""
    mean = x.mean(axis=1, keepdims=True)
    variance = np.square(x - mean).mean(axis=1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon)


def attention(queries: Array, keys: Array, values: Array) -> Array:
    """Values averaged with the softmax of scaled scores as weights: [q, k], [n, k], [n, d] -> [q, d]."""
    scores = queries @ keys.T * queries.shape[1] ** -0.5
    top = scores.max(axis=1, keepdims=True)
    mass = np.exp(scores - top)
    total = mass.sum(axis=1, keepdims=True)
    blend = mass / total @ values
    return blend


def softmax(scores: Array) -> Array:
    """The weights of every row of [q, n]: positive, sum 1."""
    top = scores.max(axis=1, keepdims=True)
    mass = np.exp(scores - top)
    total = mass.sum(axis=1, keepdims=True)
    return mass / total


def log_partition(scores: Array) -> Array:
    """log of the sum of exponentials of every row: [q, n] -> [q]."""
    top = scores.max(axis=1)
    total = np.exp(scores - top[:, None]).sum(axis=1)
    return top + np.log(total)


def entropy(scores: Array) -> Array:
    """Entropy in nats of the softmax weights of every row: [q, n] -> [q]. 0: one match; log(n): all alike.

    -sum p log p with p = exp(s)/sum exp(s), written so that p log p = 0 where p underflows.
    """
    top = scores.max(axis=1, keepdims=True)
    shifted = scores - top
    mass = np.exp(shifted)
    total = mass.sum(axis=1)
    moment = (mass * shifted).sum(axis=1)
    return np.log(total) - moment / total


def feature_variance(x: Array) -> Array:
    """Variance of every feature over the paragraphs: [n, k] -> [k]. The stream runs down the columns."""
    mean = x.mean(axis=0)
    variance = np.square(x - mean).mean(axis=0)
    return variance


def mean_absolute_deviation(x: Array) -> Array:
    """mean |x - mean x| of every row: [n, k] -> [n]. No finite state moves |x - a| to |x - b|: two passes."""
    mean = x.mean(axis=1, keepdims=True)
    deviation = np.abs(x - mean).mean(axis=1)
    return deviation
