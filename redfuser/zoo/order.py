"""Extremes and logic after a statistic: rank says nothing of these, a homomorphism of the monoid decides."""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.zoo.entry import Family
from redfuser.zoo.rows import low, mean, top, total

FAMILY = Family("order")


@FAMILY.entry("range about the mean: largest and smallest deviation", x="i n", accumulators=3, hard="location mixed")
def deviations(x: Any) -> Any:
    c = x - mean(x)
    return top(c), low(c)


@FAMILY.entry("largest magnitude relative to the root mean square", x="i n", accumulators=2, hard="mixed scores")
def peak_to_rms(x: Any) -> Any:
    return top(np.abs(x) / np.sqrt(mean(x * x)))


@FAMILY.entry("largest error relative to the range of the reference", x="i n", y="i n", accumulators=3,
              hard="mixed scores", reason="the range is never negative: max |y| is scaled by it")
def peak_error_to_range(x: Any, y: Any) -> Any:
    return top(np.abs(y) / (top(x) - low(x)))


@FAMILY.entry("largest saturated deviation: tanh is increasing", x="i n: normal", accumulators=2,
              reason="max of an increasing function is the function of the maximum: max x is the accumulator")
def largest_saturated(x: Any) -> Any:
    return top(np.tanh(x - mean(x)))


@FAMILY.entry("largest exponential tilt: exp is increasing", x="i n: normal", accumulators=2)
def largest_tilt(x: Any) -> Any:
    return top(np.exp(x - mean(x)))


@FAMILY.entry("largest probability of a softmax (confidence, Hendrycks and Gimpel 2017)", x="i n", accumulators=2,
              hard="mixed scores", reason="max e^(x - m) / z is 1 / z: the maximum is attained at x = m")
def confidence(x: Any) -> Any:
    e = np.exp(x - top(x))
    return top(e / total(e))


@FAMILY.entry("is any element above the mean", x="i n: normal", accumulators=2,
              reason="some x exceeds mu exactly when max x does")
def any_above_mean(x: Any) -> Any:
    return (x > mean(x)).any(axis=-1)


@FAMILY.entry("are all magnitudes within three times the root mean square", x="i n: normal", accumulators=2,
              reason="all |x| <= t exactly when max |x| <= t")
def all_within_three_rms(x: Any) -> Any:
    return (np.abs(x) <= 3.0 * np.sqrt(mean(x * x))).all(axis=-1)


@FAMILY.entry("how often the maximum is attained", x="i n: normal", accumulators=2,
              reason="a new maximum discards the old count, an equal one keeps it: (maximum, ties) merges")
def ties_of_maximum(x: Any) -> Any:
    return total(np.where(x == top(x), 1.0, 0.0))


@FAMILY.entry("hard attention: the value at the maximum, ties added", x="i n: normal", v="i n: normal",
              accumulators=2, reason="as for ties: a new maximum discards the old sum")
def value_at_maximum(x: Any, v: Any) -> Any:
    return total(np.where(x == top(x), v, 0.0))


@FAMILY.entry("range of the products with the mean: its sign picks the extremes", x="i n: normal", accumulators=3,
              reason="max x mu is mu max x or mu min x, by the sign of mu")
def largest_product_with_mean(x: Any) -> Any:
    y = x * mean(x)
    return top(y), low(y)


@FAMILY.entry("is there an outlier beyond three standard deviations", x="i n: normal", accumulators=4,
              reason="some |x - mu| > t exactly when max x - mu or mu - min x is")
def outlier_exists(x: Any) -> Any:
    c = x - mean(x)
    return (np.abs(c) > 3.0 * np.sqrt(mean(c * c))).any(axis=-1)


@FAMILY.entry("is anything at least twice the mean, is anything below a tenth of it", x="i n: positive", accumulators=3,
              reason="the extremes decide")
def far_from_mean(x: Any) -> Any:
    return (2.0 * mean(x) <= x).any(axis=-1), (0.1 * mean(x) > x).any(axis=-1)


@FAMILY.entry("clipping and dead-zone test of a signal against its root mean square", x="i n: normal", accumulators=3,
              reason="the extremes decide")
def within_rms_band(x: Any) -> Any:
    rms = np.sqrt(mean(x * x))
    return (x < 2.0 * rms).all(axis=-1), (x > -2.0 * rms).all(axis=-1), (0.01 * rms >= x).any(axis=-1)


@FAMILY.entry("are all amounts at least half the largest, is any above the mean: uniformity", x="i n: positive",
              accumulators=3, reason="min x >= (max x) / 2, and max x > mu")
def near_uniform(x: Any) -> Any:
    return (x >= 0.5 * top(x)).all(axis=-1), (mean(x) < x).any(axis=-1)


@FAMILY.entry("payload at the smallest element, ties added, by an order test", x="i n: normal", v="i n: normal",
              accumulators=2, reason="nothing is below the minimum: x <= min x says x = min x")
def value_at_minimum(x: Any, v: Any) -> Any:
    return total(np.where(x <= low(x), v, 0.0))


@FAMILY.entry("payload at the largest magnitude, by an order test", x="i n: normal", v="i n: normal", accumulators=2,
              reason="nothing is above the maximum: max |x| <= |x| says |x| = max |x|")
def value_at_largest_magnitude(x: Any, v: Any) -> Any:
    return total(np.where(top(np.abs(x)) <= np.abs(x), v, 0.0))


@FAMILY.entry("how often both ends of the range are attained", x="i n: normal", accumulators=4,
              reason="two extremes with their ties")
def ties_of_range(x: Any) -> Any:
    return total(np.where(top(x) == x, 1.0, 0.0)), total(np.where(low(x) == x, 1.0, 0.0))
