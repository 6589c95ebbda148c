"""Cascades that no single pass can compute, with the reason.

The argument behind "full rank": let a state of K numbers, smooth in the elements, determine R(d) = sum of F(x, d) over
the prefix for every value d that the dependency can still take. A prefix of t > K elements can then be moved along a
curve on which the state, and so R(.), stays as it is, and the derivative along it says that the t functions
dF/dx(x_1, .), ..., dF/dx(x_t, .) of d are linearly dependent. Where they are independent for every t (kinks or poles at
different places, exponentials with different rates), no K is enough. Steps have no derivative: there R counts the x
below every d, that is, it determines the order statistics. For a maximum the state must determine the envelope
d -> max F(x, d), and two prefixes with different envelopes continue differently.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.zoo.entry import Family
from redfuser.zoo.rows import low, mean, top, total

FAMILY = Family("obstacles")

KINK = "full rank: the kinks of F(x, .) lie at different d for different x, such functions are linearly independent"
POLES = "full rank: F(x, .) continues to a function with poles at places that depend on x, so they are independent"
EXPONENTIALS = "full rank: functions d -> e^(x g(d)) with different x are linearly independent"
STEPS = "full rank: steps at different d are linearly independent (counting needs the order statistics)"


@FAMILY.entry("mean absolute deviation, Gauss 1816", x="i n", verdict="NOT_FUSIBLE", passes=2, accumulators=2,
              hard="location mixed", reason=KINK)
def mean_absolute_deviation(x: Any) -> Any:
    return mean(np.abs(x - mean(x)))


@FAMILY.entry("mean absolute deviation of values about their softmax average", x="i n: normal", v="i n: normal",
              verdict="PARTLY", passes=2, accumulators=4,
              reason="maximum, mass and average share a pass; then " + KINK)
def softmax_absolute_deviation(x: Any, v: Any) -> Any:
    e = np.exp(x - top(x))
    p = e / total(e)
    return total(p * np.abs(v - total(p * v)))


@FAMILY.entry("third absolute moment, Berry 1941 and Esseen 1942", x="i n: normal", verdict="NOT_FUSIBLE", passes=2,
              accumulators=2, reason="full rank: |u|^3 has a jump in its third derivative at d = x")
def absolute_third_moment(x: Any) -> Any:
    return mean(np.abs(x - mean(x)) ** 3)


@FAMILY.entry("lower semivariance, Markowitz 1959", x="i n: normal", verdict="NOT_FUSIBLE", passes=2, accumulators=2,
              reason="full rank: min(x - d, 0)^2 has a jump in its second derivative at d = x")
def semivariance(x: Any) -> Any:
    return mean(np.minimum(x - mean(x), 0.0) ** 2)


@FAMILY.entry("Huber 1964, loss about the mean", x="i n: normal", verdict="NOT_FUSIBLE", passes=2, accumulators=2,
              reason="full rank: second derivatives jump at d = x - 1 and d = x + 1")
def huber_about_mean(x: Any) -> Any:
    u = np.abs(x - mean(x))
    return mean(np.where(u <= 1.0, 0.5 * u * u, u - 0.5))


@FAMILY.entry("pseudo-Huber loss about the mean, Charbonnier et al. 1994", x="i n: normal", verdict="NOT_FUSIBLE",
              passes=2, accumulators=2, reason="full rank: sqrt(1 + (x - d)^2) has branch points at d = x +- i")
def pseudo_huber_about_mean(x: Any) -> Any:
    return mean(np.sqrt(1.0 + (x - mean(x)) ** 2))


@FAMILY.entry("Cauchy loss about the mean, log(1 + u^2)", x="i n: normal", verdict="NOT_FUSIBLE", passes=2,
              accumulators=2, reason="full rank: log(1 + (x - d)^2) has branch points at d = x + i and x - i")
def cauchy_loss_about_mean(x: Any) -> Any:
    return mean(np.log(1.0 + (x - mean(x)) ** 2))


@FAMILY.entry("Geman and McClure 1985, robust loss about the mean", x="i n: normal", verdict="NOT_FUSIBLE", passes=2,
              accumulators=2, reason=POLES)
def geman_mcclure_about_mean(x: Any) -> Any:
    square = (x - mean(x)) ** 2
    return mean(square / (1.0 + square))


@FAMILY.entry("Welsch loss about the mean: Gaussian kernel, Parzen 1962", x="i n: normal", verdict="NOT_FUSIBLE",
              passes=2, accumulators=2,
              reason="full rank: e^(-(x-d)^2/2) = e^(-x^2/2) e^(-d^2/2) e^(xd); the e^(xd) are independent")
def gaussian_about_mean(x: Any) -> Any:
    return mean(np.exp(-0.5 * (x - mean(x)) ** 2))


@FAMILY.entry("Laplace kernel about the mean", x="i n: normal", verdict="NOT_FUSIBLE", passes=2, accumulators=2,
              reason=KINK)
def laplace_about_mean(x: Any) -> Any:
    return mean(np.exp(-np.abs(x - mean(x))))


@FAMILY.entry("saturating activation of centred data", x="i n: normal", verdict="NOT_FUSIBLE", passes=2,
              accumulators=2, reason=POLES)
def tanh_about_mean(x: Any) -> Any:
    return total(np.tanh(x - mean(x)))


@FAMILY.entry("logistic activation of centred data", x="i n: normal", verdict="NOT_FUSIBLE", passes=2, accumulators=2,
              reason=POLES)
def sigmoid_about_mean(x: Any) -> Any:
    return total(1.0 / (1.0 + np.exp(mean(x) - x)))


@FAMILY.entry("logistic activation below the maximum", x="i n: normal", verdict="NOT_FUSIBLE", passes=2,
              accumulators=2, reason="full rank on d >= max x too: analytic in d, with poles that depend on x")
def sigmoid_below_maximum(x: Any) -> Any:
    return total(1.0 / (1.0 + np.exp(top(x) - x)))


@FAMILY.entry("softplus of centred data", x="i n: normal", verdict="NOT_FUSIBLE", passes=2, accumulators=2,
              reason="full rank: log(1 + e^(x - d)) has branch points that depend on x")
def softplus_about_mean(x: Any) -> Any:
    return total(np.log1p(np.exp(x - mean(x))))


@FAMILY.entry("exponential tilt by the mean", x="i n: normal", verdict="NOT_FUSIBLE", passes=2, accumulators=2,
              reason=EXPONENTIALS)
def tilt_by_mean(x: Any) -> Any:
    return total(np.exp(x * mean(x)))


@FAMILY.entry("softmax with a temperature taken from the data, the largest magnitude", x="i n", verdict="NOT_FUSIBLE",
              passes=2, accumulators=2, hard="mixed scores", reason=EXPONENTIALS)
def tempered_by_absmax(x: Any) -> Any:
    return total(np.exp(x / top(np.abs(x))))


@FAMILY.entry("characteristic function at the reciprocal scale", x="i n", verdict="NOT_FUSIBLE", passes=2,
              accumulators=2, hard="mixed",
              reason="full rank: d -> cos(x d) with different |x| are linearly independent")
def cosine_of_scaled(x: Any) -> Any:
    return mean(np.cos(x / np.sqrt(mean(x * x))))


@FAMILY.entry("characteristic function of standard scores, Epps and Pulley 1983", x="i n", verdict="PARTLY", passes=2,
              accumulators=3, hard="location mixed",
              reason="mean and variance share a pass; then d -> cos(x d) with different |x| are independent")
def cosine_of_scores(x: Any) -> Any:
    c = x - mean(x)
    return mean(np.cos(c / np.sqrt(mean(c * c))))


@FAMILY.entry("count of elements above the mean", x="i n: normal", verdict="NOT_FUSIBLE", passes=2, accumulators=2,
              reason=STEPS)
def count_above_mean(x: Any) -> Any:
    return total(np.where(x > mean(x), 1.0, 0.0))


@FAMILY.entry("full width at half maximum, counted in samples", x="i n: positive", verdict="NOT_FUSIBLE", passes=2,
              accumulators=2,
              reason="full rank: x is dropped when max x passes 2 x, at a place of its own for every x > max x / 2")
def width_at_half_maximum(x: Any) -> Any:
    return total(np.where(x > 0.5 * top(x), 1.0, 0.0))


@FAMILY.entry("sparsemax-like support: mass within 1 of the maximum, Martins and Astudillo 2016", x="i n: normal",
              verdict="NOT_FUSIBLE", passes=2, accumulators=2, reason=KINK)
def near_maximum(x: Any) -> Any:
    return total(np.maximum(x - top(x) + 1.0, 0.0))


@FAMILY.entry("Weston and Watkins 1999, sum of multiclass hinges", x="i n: normal", t="i n: onehot",
              verdict="NOT_FUSIBLE", passes=2, accumulators=2, reason=KINK)
def sum_of_hinges(x: Any, t: Any) -> Any:
    return total(np.maximum(x - total(t * x) + 1.0, 0.0))


@FAMILY.entry("standard scores clipped before summation (winsorising)", x="i n", verdict="PARTLY", passes=2,
              accumulators=3, hard="location mixed", reason="mean and variance share a pass; then " + KINK)
def clipped_scores(x: Any) -> Any:
    c = x - mean(x)
    return mean(np.clip(c / np.sqrt(mean(c * c)), -1.5, 1.5) ** 2)


@FAMILY.entry("softmax of a layer normalisation (gate of a transformer block)", x="i n", verdict="PARTLY", passes=2,
              accumulators=4, hard="mixed",
              reason="mean, variance and maximum share a pass; then d -> e^(x / d) with different x are independent")
def softmax_of_layernorm(x: Any) -> Any:
    c = x - mean(x)
    y = c / np.sqrt(mean(c * c) + 1e-5)
    e = np.exp(y - top(y))
    return e / total(e)


@FAMILY.entry("softmax of RMS-normalised scores (query-key norm on one axis)", x="i n", verdict="PARTLY", passes=2,
              accumulators=3, hard="mixed",
              reason="norm and maximum share a pass; then d -> e^(x / d) with different x are independent")
def softmax_of_rmsnorm(x: Any) -> Any:
    y = x / np.sqrt(mean(x * x) + 1e-6)
    e = np.exp(y - top(y))
    return e / total(e)


@FAMILY.entry("softmax of a softmax (two-stage gate)", x="i n", verdict="PARTLY", passes=2, accumulators=3,
              hard="mixed",
              reason="the inner softmax is one pass; then d -> e^(d e^x) with different x are independent")
def softmax_twice(x: Any) -> Any:
    e = np.exp(x - top(x))
    f = np.exp(e / total(e))
    return f / total(f)


@FAMILY.entry("Lin 1991, Jensen-Shannon divergence of two softmaxes", a="i n: normal", b="i n: normal",
              verdict="PARTLY", passes=2, accumulators=5,
              reason="both normalisers share a pass; then log(1 + d e^(b - a)) has a branch point for every b - a")
def jensen_shannon(a: Any, b: Any) -> Any:
    ea, eb = np.exp(a - top(a)), np.exp(b - top(b))
    p, q = ea / total(ea), eb / total(eb)
    middle = 0.5 * (p + q)
    return 0.5 * total(p * np.log(p / middle) + q * np.log(q / middle))


@FAMILY.entry("total variation distance of two softmaxes", a="i n: normal", b="i n: normal", verdict="PARTLY",
              passes=2, accumulators=5,
              reason="both normalisers share a pass; then |p - q| has its kink where the masses' ratio is e^(a - b)")
def total_variation(a: Any, b: Any) -> Any:
    ea, eb = np.exp(a - top(a)), np.exp(b - top(b))
    return 0.5 * total(np.abs(ea / total(ea) - eb / total(eb)))


@FAMILY.entry("focal loss with exponent 1/2", x="i n: normal", t="i n: onehot", verdict="PARTLY", passes=2,
              accumulators=3, reason="maximum and mass share a pass; sqrt(1 - d e^x) has a branch point for every x")
def focal_loss_root(x: Any, t: Any) -> Any:
    shifted = x - top(x)
    z = total(np.exp(shifted))
    return -total(t * np.sqrt(1.0 - np.exp(shifted) / z) * (shifted - np.log(z)))


@FAMILY.entry("binary cross entropy of softmax probabilities (one against all)", x="i n: normal", t="i n: onehot",
              verdict="PARTLY", passes=2, accumulators=3,
              reason="maximum and mass share a pass; log(1 - d e^x) has a branch point for every x")
def one_against_all(x: Any, t: Any) -> Any:
    e = np.exp(x - top(x))
    p = e / total(e)
    return -total(t * np.log(p) + (1.0 - t) * np.log(1.0 - p))


@FAMILY.entry("symmetric 8-bit quantisation with rounding, then a dot", x="i n", w="n: normal",
              verdict="NOT_FUSIBLE", passes=2, accumulators=2, hard="mixed scores",
              reason="full rank: rint(x d) steps where x says; fusible only under an allowed approximation")
def rounded_dot(x: Any, w: Any) -> Any:
    return total(np.rint(x * (127.0 / top(np.abs(x)))) * w)


@FAMILY.entry("concentration about the mean: log(1 + x / mean)", x="i n: positive", verdict="NOT_FUSIBLE", passes=2,
              accumulators=2, reason="full rank: log(d + x) has a branch point at d = -x")
def log_of_relative(x: Any) -> Any:
    return mean(np.log1p(x / mean(x)))


@FAMILY.entry("Michaelis and Menten 1913, saturation at half the mean", x="i n: positive", verdict="NOT_FUSIBLE",
              passes=2, accumulators=2, reason="full rank: x / (x + d) has its pole at d = -x")
def saturation(x: Any) -> Any:
    return mean(x / (x + mean(x)))


@FAMILY.entry("square roots of exceedances over the minimum", x="i n: normal", verdict="NOT_FUSIBLE", passes=2,
              accumulators=2, reason="full rank: sqrt(x - d) has a branch point at d = x")
def root_exceedance(x: Any) -> Any:
    return total(np.sqrt(x - low(x)))


@FAMILY.entry("L1 after L2: Huber-like norm of residuals of a fitted gain", x="i n: normal", y="i n: normal",
              verdict="NOT_FUSIBLE", passes=2, accumulators=3,
              reason="both sums of the gain share a pass, one stage; then |y - d x| has its kink at d = y / x")
def absolute_residual(x: Any, y: Any) -> Any:
    return total(np.abs(y - total(x * y) / total(x * x) * x))


@FAMILY.entry("mean, mean absolute deviation, then saturated scores: three locations in a row", x="i n: normal",
              verdict="NOT_FUSIBLE", passes=3, accumulators=3, reason="each stage has full rank in the one before")
def robust_scores(x: Any) -> Any:
    c = x - mean(x)
    return total(np.tanh(c / mean(np.abs(c))))


@FAMILY.entry("element nearest to the mean, by distance", x="i n: normal", verdict="NOT_FUSIBLE", passes=2,
              accumulators=2, hard="", reason="the distance function d -> min |x - d| determines the set of all x")
def nearest_to_mean(x: Any) -> Any:
    return low(np.abs(x - mean(x)))


@FAMILY.entry("largest residual of a ratio estimate", x="i n: positive", y="i n: positive", verdict="NOT_FUSIBLE",
              passes=2, accumulators=3,
              reason="d -> max (y - d x) is the support function of the points: it determines their upper hull")
def largest_residual(x: Any, y: Any) -> Any:
    return top(y - total(y) / total(x) * x)


@FAMILY.entry("largest alignment with the mean phase", x="i n: normal", verdict="NOT_FUSIBLE", passes=2,
              accumulators=2, reason="d -> max cos(x - d) determines all x modulo 2 pi: cos is not monotone")
def largest_alignment(x: Any) -> Any:
    return top(np.cos(x - mean(x)))
