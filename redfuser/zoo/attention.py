"""Attention in its variants. Axes: i queries, n keys (the stream), k features, d values."""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.zoo.entry import Family
from redfuser.zoo.rows import low, top, total

FAMILY = Family("attention")


@FAMILY.entry("Vaswani et al. 2017, scaled dot-product attention; Milakov and Gimelshein 2018, online normaliser",
              q="i k: normal", k="n k: data", v="n d: normal", accumulators=3, hard="mixed")
def scaled_attention(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.T * 0.125
    e = np.exp(s - top(s))
    return e / total(e) @ v


@FAMILY.entry("Raffel et al. 2020 (T5), additive position bias", q="i k: normal", k="n k: normal", b="i n: data",
              v="n d: normal", accumulators=3, hard="mixed scores")
def biased_attention(q: Any, k: Any, b: Any, v: Any) -> Any:
    s = q @ k.T + b
    e = np.exp(s - top(s))
    return e / total(e) @ v


@FAMILY.entry("decoder attention: a query sees the keys up to its own position", q="i k: normal", k="n k: normal",
              v="n d: normal", accumulators=3)
def causal_attention(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.T
    s = np.where(np.tril(np.ones_like(s)) > 0, s, -np.inf)
    e = np.exp(s - top(s))
    return e / total(e) @ v


@FAMILY.entry("Beltagy et al. 2020 (Longformer), sliding window", q="i k: normal", k="n k: normal", v="n d: normal",
              accumulators=3)
def window_attention(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.T
    near = np.triu(np.tril(np.ones_like(s)), -7) > 0
    s = np.where(near, s, -np.inf)
    e = np.exp(s - top(s))
    return e / total(e) @ v


@FAMILY.entry("Press et al. 2022 (ALiBi), scores fall linearly with distance; positions given, as in packed batches",
              q="i k: normal", k="n k: normal", v="n d: normal", here="i: normal", there="n: normal",
              slope=": number", accumulators=3)
def alibi_attention(q: Any, k: Any, v: Any, here: Any, there: Any, slope: float) -> Any:
    s = q @ k.T - slope * np.abs(here[:, None] - there[None, :])
    e = np.exp(s - top(s))
    return e / total(e) @ v


@FAMILY.entry("Gemma 2 report 2024, scores capped by tanh", q="i k: normal", k="n k: normal", v="n d: normal",
              accumulators=3)
def capped_attention(q: Any, k: Any, v: Any) -> Any:
    s = 50.0 * np.tanh(q @ k.T / 50.0)
    e = np.exp(s - top(s))
    return e / total(e) @ v


@FAMILY.entry("padding mask of batched transformers", q="i k: normal", k="n k: normal", v="n d: normal",
              live="n: mask", accumulators=3)
def padded_attention(q: Any, k: Any, v: Any, live: Any) -> Any:
    s = np.where(live[None, :], q @ k.T, -np.inf)
    e = np.exp(s - top(s))
    return e / total(e) @ v


@FAMILY.entry("Xiao et al. 2024, attention sink: a learned logit without a value takes part in the softmax",
              q="i k: normal", k="n k: normal", v="n d: normal", sink="i: normal", accumulators=3)
def sink_attention(q: Any, k: Any, v: Any, sink: Any) -> Any:
    s = q @ k.T
    m = np.maximum(top(s), sink[:, None])
    e = np.exp(s - m)
    return e / (total(e) + np.exp(sink[:, None] - m)) @ v


@FAMILY.entry("sigmoid attention with normalised weights, Ramapuram et al. 2024", q="i k: normal", k="n k: normal",
              v="n d: normal", accumulators=2)
def sigmoid_attention(q: Any, k: Any, v: Any) -> Any:
    w = 1.0 / (1.0 + np.exp(-(q @ k.T)))
    return w / total(w) @ v


@FAMILY.entry("Ye et al. 2024, differential transformer: the difference of two softmaxes weighs the values",
              q1="i k: normal", k1="n k: normal", q2="i k: normal", k2="n k: normal", v="n d: normal", accumulators=6)
def differential_attention(q1: Any, k1: Any, q2: Any, k2: Any, v: Any) -> Any:
    s1, s2 = q1 @ k1.T, q2 @ k2.T
    e1, e2 = np.exp(s1 - top(s1)), np.exp(s2 - top(s2))
    return (e1 / total(e1) - 0.8 * (e2 / total(e2))) @ v


@FAMILY.entry("differential attention of scores that are stored already", s="i n: data", t="i n: normal",
              v="i n: normal", accumulators=6, hard="mixed scores")
def differential_weights(s: Any, t: Any, v: Any) -> Any:
    e, f = np.exp(s - top(s)), np.exp(t - top(t))
    return total((e / total(e) - 0.8 * (f / total(f))) * v)


@FAMILY.entry("DeepSeek-V2 2024, latent attention: keys are the values too", q="i k: normal", c="n k: normal",
              accumulators=3)
def latent_attention(q: Any, c: Any) -> Any:
    s = q @ c.T
    e = np.exp(s - top(s))
    return e / total(e) @ c


@FAMILY.entry("attention with the entropy of its weights, Zhai et al. 2023 (entropy collapse)", q="i k: normal",
              k="n k: normal", v="n d: normal", accumulators=4)
def attention_entropy(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.T
    shifted = s - top(s)
    e = np.exp(shifted)
    z = total(e)
    return e / z @ v, np.log(z) - total(e * shifted) / z


@FAMILY.entry("one softmax weighs two value streams (content and position)", q="i k: normal", k="n k: normal",
              v="n d: normal", w="n d: normal", accumulators=4)
def two_values_attention(q: Any, k: Any, v: Any, w: Any) -> Any:
    s = q @ k.T
    e = np.exp(s - top(s))
    p = e / total(e)
    return p @ v, p @ w


@FAMILY.entry("one softmax weighs value streams of different widths (content and rotary part)", q="i k: normal",
              k="n k: normal", v="n d: normal", w="n c: normal", accumulators=4)
def unequal_values_attention(q: Any, k: Any, v: Any, w: Any) -> Any:
    s = q @ k.T
    e = np.exp(s - top(s))
    p = e / total(e)
    return p @ v, p @ w


@FAMILY.entry("Liu et al. 2022 (Swin v2), cosine similarity as scores", q="i k: normal", k="n k: normal",
              v="n d: normal", accumulators=3)
def cosine_attention(q: Any, k: Any, v: Any) -> Any:
    qn = np.sqrt((q * q).sum(axis=1))
    kn = np.sqrt((k * k).sum(axis=1))
    s = 10.0 * (q @ k.T) / (qn[:, None] * kn[None, :])
    e = np.exp(s - top(s))
    return e / total(e) @ v


@FAMILY.entry("Katharopoulos et al. 2020, linear attention with normaliser (positive features)", q="i k: positive",
              k="n k: positive", v="n d: normal", accumulators=2)
def linear_attention(q: Any, k: Any, v: Any) -> Any:
    s = q @ k.T
    return s / total(s) @ v


@FAMILY.entry("gradient of attention weights: the row dot that softmax's backward pass subtracts, Dao et al. 2022",
              s="i n: data", g="i n: normal", accumulators=3, hard="mixed")
def softmax_backward(s: Any, g: Any) -> Any:
    e = np.exp(s - top(s))
    p = e / total(e)
    return p * (g - total(p * g))


@FAMILY.entry("Nadaraya 1964, kernel regression at the origin with a Gaussian kernel of width 1",
              x="i n: data", v="i n: normal", accumulators=3, hard="mixed")
def kernel_regression(x: Any, v: Any) -> Any:
    s = x * x * 0.5
    w = np.exp(-(s - low(s)))
    return total(w / total(w) * v)


@FAMILY.entry("weights sharpened by squaring and renormalised, Berthelot et al. 2019 (MixMatch)", x="i n: data",
              v="n: normal", accumulators=4, hard="mixed scores")
def sharpened_average(x: Any, v: Any) -> Any:
    e = np.exp(x - top(x))
    p = e / total(e)
    return total(p**2 / total(p**2) * v)
