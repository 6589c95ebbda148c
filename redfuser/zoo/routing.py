"""Choosing the best: routing to experts, beams, retrieval, peaks. Axes: i rows (tokens), n candidates (the stream).

A top-k with its values and indices is one accumulator, and its first place is the maximum of the same numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.frontend import topk
from redfuser.zoo.entry import Family
from redfuser.zoo.rows import mean, top, total

FAMILY = Family("routing")

_ORDER = "softmax keeps the order: top-k of the scores, corrected in the epilogue; its first place is the maximum"


def _softmax(s: Any) -> Any:
    e = np.exp(s - top(s))
    return e / total(e)


@FAMILY.entry("Shazeer et al. 2017, mixture of experts: the two largest gate values, renormalised", x="i n",
              accumulators=2, hard="mixed scores", reason=_ORDER)
def softmax_top2(x: Any) -> Any:
    w, experts = topk(_softmax(x), 2)
    return w / total(w), experts


@FAMILY.entry("routing among the experts that have capacity left", x="i n", mask="i n: mask", accumulators=2,
              hard="mixed scores", reason=_ORDER)
def masked_router(x: Any, mask: Any) -> Any:
    return topk(_softmax(np.where(mask, x, -np.inf)), 2)


@FAMILY.entry("Fedus et al. 2021 (switch transformer): one expert, weighted by its probability", x="i n",
              accumulators=2, hard="mixed scores", reason="where softmax is largest the score is")
def switch_router(x: Any) -> Any:
    p = _softmax(x)
    return p.argmax(axis=-1), p.max(axis=-1)


@FAMILY.entry("DeepSeek-V3, sigmoid affinities normalised over all experts, the best three", x="i n: normal",
              accumulators=2, reason="dividing by a positive sum keeps the order")
def sigmoid_top3(x: Any) -> Any:
    s = 1.0 / (1.0 + np.exp(-x))
    return topk(s / total(s), 3)


@FAMILY.entry("DeepSeek-V2 and V3, group-limited routing: the groups whose best expert scores highest, a bias added, "
              "with their softmax among the groups", x="i n k: normal", bias="n k: normal", accumulators=2,
              reason="the best of a group is a contraction; " + _ORDER)
def group_limited(x: Any, bias: Any) -> Any:
    return topk(_softmax((x + bias).max(axis=-1)), 3)


@FAMILY.entry("Zoph et al. 2022 (ST-MoE): two experts by their scores, softmax among them, router z-loss", x="i n",
              accumulators=2, hard="mixed scores", reason="the top-k holds the maximum that the normaliser needs")
def top2_with_z_loss(x: Any) -> Any:
    w, experts = topk(x, 2)
    m = top(x)
    z = np.log(total(np.exp(x - m))) + m
    return _softmax(w), experts, z * z


@FAMILY.entry("entropy of the routing distribution beside its four best experts", x="i n", accumulators=3,
              hard="mixed scores")
def routing_entropy_top4(x: Any) -> Any:
    m = top(x)
    e = np.exp(x - m)
    z = total(e)
    return *topk(e / z, 4), np.log(z) - total(e * (x - m)) / z


@FAMILY.entry("beam search: the best continuations by accumulated log probability", x="i n", score="i: normal",
              accumulators=2, hard="mixed scores", reason="a log probability is the score shifted by the normaliser")
def beam_scores(x: Any, score: Any) -> Any:
    m = top(x)
    log_p = x - m - np.log(total(np.exp(x - m)))
    return topk(score[:, None] + log_p, 5)


@FAMILY.entry("retrieval: the keys with the largest attention weights (Gupta et al. 2021, top-k attention)",
              q="i k: normal", k="n k: normal", accumulators=2, reason=_ORDER)
def retrieval(q: Any, k: Any) -> Any:
    return topk(_softmax(q @ k.T * 0.125), 4)


@FAMILY.entry("hard negatives beside a contrastive loss (Robinson et al. 2021)", x="i n", mask="i n: mask",
              accumulators=3, hard="mixed scores", reason="the negatives have a top-k of their own")
def hard_negatives(x: Any, mask: Any) -> Any:
    m = top(x)
    z = np.log(total(np.exp(x - m))) + m
    return topk(np.where(mask, -np.inf, x) - z, 3)


@FAMILY.entry("expected and most likely position of a match (soft-argmax, Kendall et al. 2017)", x="i n: normal",
              accumulators=3)
def soft_argmax(x: Any) -> Any:
    p = _softmax(x)
    return total(p * np.arange(x.shape[-1])), p.argmax(axis=-1)


@FAMILY.entry("peak of a signal: its position, and its height over the root mean square", x="i n: normal",
              accumulators=2, reason="(maximum, position) is one accumulator")
def peak_position(x: Any) -> Any:
    a = np.abs(x)
    return a.argmax(axis=-1), top(a / np.sqrt(mean(x * x)))


@FAMILY.entry("position of the worst outlier", x="i n: normal", accumulators=3,
              reason="|x - mu| is largest where x is largest or where it is smallest")
def worst_outlier(x: Any) -> Any:
    return np.abs(x - mean(x)).argmax(axis=-1)


@FAMILY.entry("position of the largest standard score", x="i n: normal", accumulators=3,
              reason="a standard score is largest where the number is")
def largest_standard_score(x: Any) -> Any:
    c = x - mean(x)
    return (c / np.sqrt(mean(c * c))).argmax(axis=-1)


@FAMILY.entry("spread about the trimmed mean, the two largest and smallest left out", x="i n: normal", accumulators=4,
              reason="the trimmed mean is a dependency; the squares expand in it")
def trimmed_spread(x: Any) -> Any:
    high, low = topk(x, 2)[0], topk(x, 2, largest=False)[0]
    center = (total(x) - total(high) - total(low)) / (x.shape[-1] - 4)
    return total((x - center) ** 2)


@FAMILY.entry("log-likelihood ratio against the runner-up, summed over the row", x="i n: normal", accumulators=2,
              reason="e^(x - b) moves to a new second best b by a factor")
def over_runner_up(x: Any) -> Any:
    second = topk(x, 2)[0][:, 1:2]
    return total(np.exp(x - second))


@FAMILY.entry("how many come close to the runner-up", x="i n: normal", accumulators=2, passes=2, verdict="NOT_FUSIBLE",
              reason="which x exceed half of the second best no summary tells: a step function of x and the threshold "
                     "has full rank")
def near_runner_up(x: Any) -> Any:
    second = topk(x, 2)[0][:, 1:2]
    return total(np.where(x > 0.5 * second, 1.0, 0.0))
