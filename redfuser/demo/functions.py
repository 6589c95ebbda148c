"""The functions of the demonstration: plain NumPy, nothing here knows of redfuser.

Each is a cascade: a reduction whose result a later reduction needs, over the same axis. Written down like
this, NumPy sweeps the data once per line. Shapes: q queries, n paragraphs, k features, d values.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]


def standardise(features: Array, epsilon: float) -> Array:
    """Each row of [n, k] with mean 0 and variance 1 (`epsilon` keeps a constant row finite)."""
    mean = features.mean(axis=1, keepdims=True)
    variance = np.square(features - mean).mean(axis=1, keepdims=True)
    return (features - mean) / np.sqrt(variance + epsilon)


def attention(queries: Array, keys: Array, values: Array) -> Array:
    """Values averaged with the softmax of scaled scores as weights: [q, k], [n, k], [n, d] -> [q, d]."""
    scores = queries @ keys.T * queries.shape[1] ** -0.5
    mass = np.exp(scores - scores.max(axis=1, keepdims=True))
    return mass / mass.sum(axis=1, keepdims=True) @ values


def softmax(scores: Array) -> Array:
    """The weights of every row of [q, n]: positive, sum 1."""
    mass = np.exp(scores - scores.max(axis=1, keepdims=True))
    return mass / mass.sum(axis=1, keepdims=True)


def log_partition(scores: Array) -> Array:
    """log of the sum of exponentials of every row: [q, n] -> [q]."""
    top = scores.max(axis=1)
    return top + np.log(np.exp(scores - top[:, None]).sum(axis=1))


def entropy(scores: Array) -> Array:
    """Entropy in nats of the softmax weights of every row: [q, n] -> [q]. 0: one match; log(n): all alike.

    -sum p log p with p = exp(s)/sum exp(s), written so that p log p = 0 where p underflows.
    """
    shifted = scores - scores.max(axis=1, keepdims=True)
    mass = np.exp(shifted)
    total = mass.sum(axis=1)
    return np.log(total) - (mass * shifted).sum(axis=1) / total


def feature_variance(features: Array) -> Array:
    """Variance of every feature over the paragraphs: [n, k] -> [k]. The stream runs down the columns."""
    mean = features.mean(axis=0)
    return np.square(features - mean).mean(axis=0)


def mean_absolute_deviation(features: Array) -> Array:
    """mean |x - mean x| of every row: [n, k] -> [n]. No finite state moves |x - a| to |x - b|: two passes."""
    mean = features.mean(axis=1, keepdims=True)
    return np.abs(features - mean).mean(axis=1)
