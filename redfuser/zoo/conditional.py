"""Indices and comparisons that have one pass only because the data are known to be positive, or bounded."""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.frontend import assume
from redfuser.zoo.entry import Family
from redfuser.zoo.rows import mean, top, total

FAMILY = Family("conditional")


@FAMILY.entry("population stability index of two histograms: their Jeffreys divergence", p="i n: positive",
              q="i n: positive", accumulators=4,
              reason="with r = log(p / q): sum p r / P - sum q r / Q, for log((p / P) / (q / Q)) = r + log(Q / P)")
def stability_index(p: Any, q: Any) -> Any:
    assume((p > 0) & (q > 0))
    a, b = p / total(p), q / total(q)
    return total((a - b) * np.log(a / b))


@FAMILY.entry("Kullback-Leibler divergence of two histograms, from counts", p="i n: positive", q="i n: positive",
              accumulators=3, reason="sum p log(p / q) / P + log(Q / P)")
def histogram_divergence(p: Any, q: Any) -> Any:
    assume((p > 0) & (q > 0))
    a, b = p / total(p), q / total(q)
    return total(a * np.log(a / b))


@FAMILY.entry("Bhattacharyya coefficient of two histograms, 1943; the Hellinger distance is sqrt(1 - it)",
              p="i n: positive", q="i n: positive", accumulators=3, reason="sum sqrt(p q) / sqrt(P Q)")
def histogram_affinity(p: Any, q: Any) -> Any:
    assume((p >= 0) & (q >= 0))
    return total(np.sqrt(p / total(p) * (q / total(q))))


@FAMILY.entry("Atkinson 1970, inequality index for aversion 1/2", x="i n: positive", accumulators=2,
              reason="sqrt(x / mu) = sqrt x / sqrt mu for x >= 0")
def atkinson_index(x: Any) -> Any:
    assume(x >= 0)
    return 1.0 - mean(np.sqrt(x / mean(x))) ** 2


@FAMILY.entry("generalised entropy index of order a, Shorrocks 1980", x="i n: positive", a=": number", accumulators=2,
              reason="(x / mu)^a = x^a / mu^a for positive x")
def entropy_index(x: Any, a: float) -> Any:
    assume(x > 0)
    return (mean((x / mean(x)) ** a) - 1.0) / (a * (a - 1.0))


@FAMILY.entry("Box-Cox transform scaled by the geometric mean, 1964: its mean", x="i n: positive", a=": number",
              accumulators=2, reason="(x / g)^a = x^a / g^a for positive x, and log g = mean log x")
def scaled_box_cox(x: Any, a: float) -> Any:
    assume(x > 0)
    g = np.exp(mean(np.log(x)))
    return (mean((x / g) ** a) - 1.0) / a


@FAMILY.entry("mean attenuation below the peak, in nepers", x="i n: positive", accumulators=2,
              reason="log(max x / x) = log max x - log x for positive x")
def mean_attenuation(x: Any) -> Any:
    assume(x > 0)
    return mean(np.log(top(x) / x))


@FAMILY.entry("multiclass hinge with margin 1 on scores between 0 and 1", x="i n: unit", accumulators=2,
              reason="x - max x + 1 is never negative, so the hinge never acts; without the bounds no state suffices")
def bounded_hinge(x: Any) -> Any:
    assume((x >= 0) & (x <= 1))
    return total(np.maximum(x - top(x) + 1.0, 0.0))


@FAMILY.entry("peak of a signal relative to a weight that is positive in the end", x="i n", w="i n: positive",
              accumulators=2,
              reason="max x / W is (max x) / W for the final W > 0; before, W may have any sign: it is divided by last")
def peak_by_weight(x: Any, w: Any) -> Any:
    weight = total(w)
    assume(weight > 0)
    return top(x / weight)
