"""Streams over two axes at once: images, maps of scores, tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.zoo.entry import Family

FAMILY = Family("planes")
PLANE = (-2, -1)


def total(x: Any) -> Any:
    """Sum of every plane."""
    return x.sum(axis=PLANE, keepdims=True)


def mean(x: Any) -> Any:
    """Mean of every plane."""
    return x.mean(axis=PLANE, keepdims=True)


def top(x: Any) -> Any:
    """Maximum of every plane."""
    return x.max(axis=PLANE, keepdims=True)


@FAMILY.entry("Ulyanov et al. 2016, instance normalisation over rows and columns", x="i m n", accumulators=2,
              hard="location mixed")
def plane_norm(x: Any) -> Any:
    mu = mean(x)
    return (x - mu) / np.sqrt(mean((x - mu) ** 2) + 1e-5)


@FAMILY.entry("Ioffe and Szegedy 2015, batch normalisation backward: sums over images m and positions n", x="m i n",
              g="m i n: normal", accumulators=4, hard="location mixed")
def batch_norm_backward(x: Any, g: Any) -> Any:
    images = (0, 2)
    mu = x.mean(axis=images, keepdims=True)
    var = ((x - mu) ** 2).mean(axis=images, keepdims=True)
    return g.sum(axis=images), (g * ((x - mu) / np.sqrt(var + 1e-5))).sum(axis=images)


@FAMILY.entry("Huang and Belongie 2017, adaptive instance normalisation: content in the style of another image",
              x="i m n", y="i m n: normal", accumulators=4, hard="location mixed")
def adaptive_instance_norm(x: Any, y: Any) -> Any:
    mu, nu = mean(x), mean(y)
    return np.sqrt(mean((y - nu) ** 2)) * (x - mu) / np.sqrt(mean((x - mu) ** 2) + 1e-5) + nu


@FAMILY.entry("Levine et al. 2016, spatial soft arg max: expected row and column of a feature", x="i m n",
              accumulators=4, hard="mixed scores")
def spatial_soft_argmax(x: Any) -> Any:
    e = np.exp(x - top(x))
    p = e / total(e)
    rows, columns = np.arange(x.shape[-2]), np.arange(x.shape[-1])
    return total(p * rows[:, None]), total(p * columns)


@FAMILY.entry("softmax over all pairs m < n of a contact map, with the expected distance along the chain", x="i m n",
              accumulators=3, hard="mixed scores")
def contact_distance(x: Any) -> Any:
    rows, columns = np.arange(x.shape[-2])[:, None], np.arange(x.shape[-1])
    s = np.where(rows < columns, x, -np.inf)
    e = np.exp(s - top(s))
    return total(e / total(e) * (columns - rows))


@FAMILY.entry("image moments: brightness inside a window over the columns, its mean and variance", x="i m n",
              w="n: positive", accumulators=3, hard="location mixed")
def windowed_contrast(x: Any, w: Any) -> Any:
    mass = total(w * np.ones_like(x))
    mu = total(w * x) / mass
    return np.sqrt(total(w * (x - mu) ** 2) / mass)


@FAMILY.entry("gradient clipping: a matrix scaled to unit Frobenius norm and applied", x="i m n", w="m n: normal",
              accumulators=2, hard="mixed scores")
def unit_frobenius(x: Any, w: Any) -> Any:
    return total(x / np.sqrt(total(x * x)) * w)


@FAMILY.entry("mean absolute deviation of an image", x="i m n", accumulators=2, passes=2, verdict="NOT_FUSIBLE",
              hard="mixed", reason="|x - d| has infinite rank: every mean asks for another sum of absolute values")
def plane_deviation(x: Any) -> Any:
    return mean(np.abs(x - mean(x)))
