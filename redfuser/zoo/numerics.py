"""Forms that exist for the sake of rounding: scaled norms, shifted sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.frontend import assume
from redfuser.zoo.entry import Family
from redfuser.zoo.rows import low, mean, top, total

FAMILY = Family("numerics")


@FAMILY.entry("2-norm without overflow, BLAS nrm2 (Blue 1978)", x="i n", accumulators=2, hard="mixed scores")
def scaled_norm(x: Any) -> Any:
    scale = top(np.abs(x))
    return scale * np.sqrt(total((x / scale) ** 2))


@FAMILY.entry("3-norm with a running scale", x="i n", accumulators=2, hard="mixed scores")
def scaled_norm3(x: Any) -> Any:
    scale = top(np.abs(x))
    return scale * total((np.abs(x) / scale) ** 3) ** (1.0 / 3.0)


@FAMILY.entry("p-norm with a running scale, p given when called", x="i n: positive", p=": number", accumulators=2,
              reason="(x / s)^p = x^p / s^p for nonnegative x and positive s")
def scaled_norm_p(x: Any, p: float) -> Any:
    assume(x > 0)
    scale = top(x)
    return scale * total((x / scale) ** p) ** (1.0 / p)


@FAMILY.entry("dot product of centred vectors, one of them centred only", x="i n", y="i n: normal", accumulators=3,
              hard="location mixed")
def centred_dot(x: Any, y: Any) -> Any:
    return total((x - mean(x)) * y)


@FAMILY.entry("log of a sum of exponentials by expm1 of the shifted terms", x="i n", accumulators=2,
              hard="mixed scores")
def logsumexp_expm1(x: Any) -> Any:
    m = top(x)
    return m + np.log(total(np.expm1(x - m)) + x.shape[-1])


@FAMILY.entry("log of the mean hyperbolic cosine, shifted by the maximum of both tails", x="i n", accumulators=3,
              hard="mixed scores", reason="one shift and the sums of e^x and e^-x")
def log_sum_cosh(x: Any) -> Any:
    m = top(np.abs(x))
    return m + np.log(total(np.exp(x - m)) + total(np.exp(-x - m)))


@FAMILY.entry("soft minimum: weights e^(min x - x)", x="i n", accumulators=3, hard="mixed")
def soft_minimum(x: Any) -> Any:
    w = np.exp(low(x) - x)
    return total(w * x) / total(w)


@FAMILY.entry("signed logsumexp, scipy.special.logsumexp with weights b", x="i n", b="i n: normal", accumulators=2,
              hard="mixed scores")
def weighted_logsumexp(x: Any, b: Any) -> Any:
    m = top(x)
    return m, total(b * np.exp(x - m))


@FAMILY.entry("geometric mean scaled by the maximum: a product, one factor per element", x="i n: positive",
              accumulators=2, reason="the product of x / s scales by (old s / new s)^count")
def scaled_product(x: Any) -> Any:
    assume(x > 0)
    scale = top(x)
    return scale, (x / scale).prod(axis=-1, keepdims=True)


@FAMILY.entry("product of shifted likelihood ratios: a product of exponentials", x="i n: normal", accumulators=2,
              reason="the product of e^(x - m) is e^(sum (x - m)): it moves by e^(count (old m - new m))")
def shifted_likelihood(x: Any) -> Any:
    return np.exp(x - top(x)).prod(axis=-1, keepdims=True)
