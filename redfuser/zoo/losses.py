"""Losses of classification and comparison of distributions, from logits."""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.zoo.entry import Family
from redfuser.zoo.rows import top, total

FAMILY = Family("losses")


@FAMILY.entry("softmax (Bridle 1990), logsumexp, log-mean-exp: stable by the maximum", x="i n", accumulators=2,
              hard="mixed scores location")
def softmax(x: Any) -> Any:
    e = np.exp(x - top(x))
    return e / total(e)


@FAMILY.entry("softmax in base 2, as flash kernels compute it", x="i n", accumulators=2, hard="mixed scores location")
def softmax_base2(x: Any) -> Any:
    e = np.exp2(x - top(x))
    return e / total(e)


@FAMILY.entry("Hinton et al. 2015, softmax at a temperature given when called", x="i n", t=": number", accumulators=2,
              hard="mixed scores")
def softmax_temperature(x: Any, t: float) -> Any:
    e = np.exp((x - top(x)) / t)
    return e / total(e)


@FAMILY.entry("cross entropy with one-hot targets, torch.nn.CrossEntropyLoss", x="i n", t="i n: onehot",
              accumulators=4, hard="mixed scores",
              reason="the mass of the targets is an accumulator: nothing says it is 1")
def cross_entropy(x: Any, t: Any) -> Any:
    shifted = x - top(x)
    return -total(t * (shifted - np.log(total(np.exp(shifted)))))


@FAMILY.entry("Szegedy et al. 2016, label smoothing", x="i n", t="i n: onehot", accumulators=4, hard="mixed scores")
def label_smoothing(x: Any, t: Any) -> Any:
    shifted = x - top(x)
    return -total((0.9 * t + 0.001) * (shifted - np.log(total(np.exp(shifted)))))


@FAMILY.entry("entropy of a softmax, Shannon 1948", x="i n", accumulators=3, hard="mixed scores")
def entropy(x: Any) -> Any:
    shifted = x - top(x)
    z = total(np.exp(shifted))
    return -total(np.exp(shifted) / z * (shifted - np.log(z)))


@FAMILY.entry("Kullback-Leibler divergence of two softmaxes (distillation)", a="i n", b="i n: normal", accumulators=5,
              hard="mixed", reason="beside both normalisers only sum e^a (a - b) is needed")
def kl_divergence(a: Any, b: Any) -> Any:
    a, b = a - top(a), b - top(b)
    za, zb = total(np.exp(a)), total(np.exp(b))
    return total(np.exp(a) / za * ((a - np.log(za)) - (b - np.log(zb))))


@FAMILY.entry("cross entropy of one softmax under another", a="i n", b="i n: normal", accumulators=5, hard="mixed")
def soft_cross_entropy(a: Any, b: Any) -> Any:
    a, b = a - top(a), b - top(b)
    za, zb = total(np.exp(a)), total(np.exp(b))
    return -total(np.exp(a) / za * (b - np.log(zb)))


@FAMILY.entry("Lin et al. 2017, focal loss with exponent 2", x="i n", t="i n: onehot", accumulators=8, hard="mixed",
              reason="(1 - p)^2 log p is a polynomial: t, tx, te^x, txe^x, te^2x, txe^2x beside the normaliser")
def focal_loss(x: Any, t: Any) -> Any:
    shifted = x - top(x)
    z = total(np.exp(shifted))
    return -total(t * (1.0 - np.exp(shifted) / z) ** 2 * (shifted - np.log(z)))


@FAMILY.entry("van den Oord et al. 2018, InfoNCE: the positive is on the diagonal", q="i k: normal", k="n k: normal",
              accumulators=4)
def info_nce(q: Any, k: Any) -> Any:
    s = q @ k.T * 10.0
    own = np.triu(np.tril(np.ones_like(s))) > 0
    shifted = s - top(s)
    return -total(np.where(own, shifted - np.log(total(np.exp(shifted))), 0.0))


@FAMILY.entry("Brier 1950, squared error of predicted probabilities", x="i n", t="i n: onehot", accumulators=5,
              hard="mixed scores")
def brier_score(x: Any, t: Any) -> Any:
    e = np.exp(x - top(x))
    return total((e / total(e) - t) ** 2)


@FAMILY.entry("Bhattacharyya 1943, overlap of two softmaxes", a="i n", b="i n: normal", accumulators=5, hard="mixed")
def bhattacharyya(a: Any, b: Any) -> Any:
    a, b = a - top(a), b - top(b)
    return total(np.exp(0.5 * (a + b)) / np.sqrt(total(np.exp(a)) * total(np.exp(b))))


@FAMILY.entry("Pearson 1900, chi-square divergence of two softmaxes", a="i n: normal", b="i n: normal",
              accumulators=5, reason="(p - q)^2 / q = p^2 / q - 2 p + q: the new sum is of e^(2a - b)")
def chi_square_divergence(a: Any, b: Any) -> Any:
    a, b = np.exp(a - top(a)), np.exp(b - top(b))
    p, q = a / total(a), b / total(b)
    return total((p - q) ** 2 / q)


@FAMILY.entry("Crammer and Singer 2001, multiclass hinge: the worst margin", x="i n", t="i n: onehot", accumulators=2,
              hard="mixed scores", reason="max commutes with the shift by the target's score")
def worst_margin(x: Any, t: Any) -> Any:
    return top(x - total(t * x) + 1.0)


@FAMILY.entry("expected reward and its policy-gradient variance under a softmax policy, Williams 1992", x="i n",
              r="n: normal", accumulators=4, hard="mixed")
def policy_variance(x: Any, r: Any) -> Any:
    e = np.exp(x - top(x))
    p = e / total(e)
    baseline = total(p * r)
    return baseline, total(p * (r - baseline) ** 2)
