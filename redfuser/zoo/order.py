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


@FAMILY.entry("largest product with the mean: its sign picks the extreme", x="i n: normal", accumulators=3,
              reason="max x mu is mu max x or mu min x, by the sign of mu")
def largest_product_with_mean(x: Any) -> Any:
    return top(x * mean(x))
