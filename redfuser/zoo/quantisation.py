"""Scales found from the data and applied in the same sweep. Rounding itself is no part of these: see `obstacles`."""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.zoo.entry import Family
from redfuser.zoo.rows import low, mean, top, total

FAMILY = Family("quantisation")


@FAMILY.entry("Micikevicius et al. 2022, FP8: scale by 448 / max |x|, then a matrix product", x="i n", w="n d: normal",
              accumulators=2, hard="mixed scores")
def absmax_matmul(x: Any, w: Any) -> Any:
    return (x * (448.0 / top(np.abs(x)))) @ w


@FAMILY.entry("asymmetric quantisation: zero point from the minimum, step from the range, then a dot", x="i n",
              w="n: normal", accumulators=4, hard="mixed scores")
def asymmetric_dot(x: Any, w: Any) -> Any:
    lo = low(x)
    return total((x - lo) * (255.0 / (top(x) - lo)) * w)


@FAMILY.entry("RMSNorm, scale by the largest magnitude, dot (LLM.int8 and W8A8 kernels)", x="i n", w="n: normal",
              accumulators=3, hard="mixed scores", reason="the largest normalised magnitude is max |x| over the norm")
def rmsnorm_absmax_dot(x: Any, w: Any) -> Any:
    y = x / np.sqrt(mean(x * x) + 1e-6)
    return total(y * (127.0 / top(np.abs(y))) * w)


@FAMILY.entry("layer normalisation, scale by the largest magnitude, dot", x="i n", w="n: normal", accumulators=6,
              hard="location mixed", reason="S, M2, max, min, sum w, sum (x - mu) w")
def layernorm_absmax_dot(x: Any, w: Any) -> Any:
    c = x - mean(x)
    y = c / np.sqrt(mean(c * c) + 1e-5)
    return total(y / top(np.abs(y)) * w)


@FAMILY.entry("both operands of a dot scaled by their largest magnitudes", x="i n", y="i n: normal", accumulators=3,
              hard="mixed scores")
def two_scales_dot(x: Any, y: Any) -> Any:
    return total(x / top(np.abs(x)) * (y / top(np.abs(y))))


@FAMILY.entry("energy of a signal scaled by its largest magnitude: quantisation noise is relative to it", x="i n",
              accumulators=3, hard="mixed scores", reason="the scaled sum, its energy, and the largest magnitude")
def absmax_mean_energy(x: Any) -> Any:
    y = x / top(np.abs(x))
    return total(y), total(y * y)


@FAMILY.entry("fake quantisation clipped at the largest magnitude itself: the clip never acts", x="i n",
              w="n: normal", accumulators=2, hard="mixed",
              reason="|x| <= max |x| for every prefix, so the clip is the identity")
def clipped_absmax_dot(x: Any, w: Any) -> Any:
    return total(np.clip(x / top(np.abs(x)), -1.0, 1.0) * w)
