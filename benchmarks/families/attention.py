"""Attention as people write it: layouts, masks, biases, several states."""

from __future__ import annotations

import numpy as np


def heads_first(q, k, v):
    """bhnd layout. q (b, h, n, d), k and v (b, h, m, d) -> (b, h, n, d)."""
    score = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    mass = np.exp(score - score.max(axis=-1, keepdims=True))
    return mass / mass.sum(axis=-1, keepdims=True) @ v


def tokens_first(q, k, v):
    """bnhd layout, as flash-attn takes it. q (b, n, h, d), k and v (b, m, h, d) -> (b, n, h, d)."""
    score = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(np.float32(q.shape[-1]))
    mass = np.exp(score - score.max(axis=-1, keepdims=True))
    return np.einsum("bhqk,bkhd->bqhd", mass / mass.sum(axis=-1, keepdims=True), v)


def packed(qkv):
    """Views of one array. qkv (b, n, 3, h, d) -> (b, n, h, d)."""
    q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    return tokens_first(q, k, v)


def grouped(q, k, v):
    """Grouped queries. q (b, h, n, d), k and v (b, g, m, d), g divides h."""
    b, h, n, d = q.shape
    g = k.shape[1]
    q = q.reshape(b, g, h // g, n, d)
    score = np.einsum("bgrnd,bgmd->bgrnm", q, k) * d**-0.5
    mass = np.exp(score - score.max(axis=-1, keepdims=True))
    mixed = np.einsum("bgrnm,bgmd->bgrnd", mass / mass.sum(axis=-1, keepdims=True), v)
    return mixed.reshape(b, h, n, d)


def multi_query(q, k, v):
    """One head of keys for all. q (b, h, n, d), k and v (b, m, d)."""
    score = q @ k[:, None].swapaxes(-1, -2) * q.shape[-1] ** -0.5
    mass = np.exp(score - score.max(axis=-1, keepdims=True))
    return mass / mass.sum(axis=-1, keepdims=True) @ v[:, None]


def _softmax_mix(score, v):
    mass = np.exp(score - score.max(axis=-1, keepdims=True))
    return mass / mass.sum(axis=-1, keepdims=True) @ v


def causal_start(q, k, v):
    """Causal, row i sees keys 0 to i."""
    score = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    i, j = np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])
    return _softmax_mix(np.where(j <= i, score, -np.inf), v)


def causal_end(q, k, v):
    """Causal, the last row sees all keys (a cache longer than the queries)."""
    score = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    n, m = q.shape[-2], k.shape[-2]
    i, j = np.arange(n)[:, None], np.arange(m)
    return _softmax_mix(np.where(j <= i + (m - n), score, -np.inf), v)


def padded(q, k, v, lengths):
    """Keys beyond the length of their sequence are not seen. lengths (b,) int."""
    score = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    live = np.arange(k.shape[-2]) < lengths[:, None, None, None]
    return _softmax_mix(np.where(live, score, -np.inf), v)


def segments(q, k, v, of_query, of_key):
    """Packed sequences: a query sees the keys of its own segment. of_query (b, n), of_key (b, m)."""
    score = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    same = of_query[:, None, :, None] == of_key[:, None, None, :]
    return _softmax_mix(np.where(same, score, -np.inf), v)


def biased(q, k, v, bias):
    """An additive bias (h, n, m)."""
    return _softmax_mix(q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5 + bias, v)


def alibi(q, k, v, slopes):
    """Linear biases (Press et al. 2021), causal. slopes (h,)."""
    score = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    i, j = np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])
    score = score + slopes[:, None, None] * (j - i)
    return _softmax_mix(np.where(j <= i, score, -np.inf), v)


def window(q, k, v, width):
    """A row sees the `width` keys up to its own."""
    score = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    i, j = np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])
    return _softmax_mix(np.where((j <= i) & (j > i - width), score, -np.inf), v)


def prefix_lm(q, k, v, prefix):
    """All see the first `prefix` keys, beyond them it is causal."""
    score = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    i, j = np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])
    return _softmax_mix(np.where((j <= i) | (j < prefix), score, -np.inf), v)


def soft_capped(q, k, v, cap):
    """Scores kept within +-cap by a tanh (Gemma 2), causal."""
    score = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    score = np.tanh(score / cap) * cap
    i, j = np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])
    return _softmax_mix(np.where(j <= i, score, -np.inf), v)


def with_sink(q, k, v, sink):
    """A logit per head that takes part in the denominator only (gpt-oss). sink (h,)."""
    score = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    top = np.maximum(score.max(axis=-1, keepdims=True), sink[:, None, None])
    mass = np.exp(score - top)
    return mass / (mass.sum(axis=-1, keepdims=True) + np.exp(sink[:, None, None] - top)) @ v


def sigmoid(q, k, v, bias):
    """Sigmoid attention (Ramapuram et al. 2024): no row-wise normalisation."""
    score = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5 + bias
    return 1 / (1 + np.exp(-score)) @ v


def differential(q1, k1, q2, k2, v, weight):
    """Difference of two softmaxes (Ye et al. 2024)."""
    scale = q1.shape[-1] ** -0.5
    s1, s2 = q1 @ k1.swapaxes(-1, -2) * scale, q2 @ k2.swapaxes(-1, -2) * scale
    e1 = np.exp(s1 - s1.max(axis=-1, keepdims=True))
    e2 = np.exp(s2 - s2.max(axis=-1, keepdims=True))
    p = e1 / e1.sum(axis=-1, keepdims=True) - weight * (e2 / e2.sum(axis=-1, keepdims=True))
    return p @ v


def with_lse(q, k, v):
    """Results and the natural logarithm of the sum of exponentials of each row."""
    score = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    top = score.max(axis=-1, keepdims=True)
    mass = np.exp(score - top)
    total = mass.sum(axis=-1, keepdims=True)
    return mass / total @ v, (top + np.log(total))[..., 0]


def shared_prefix(q, k_shared, v_shared, k, v):
    """A prefix all sequences share and keys of their own; the two states are merged by their log-sum-exp."""
    o1, l1 = with_lse(q, k_shared, v_shared)
    o2, l2 = with_lse(q, k, v)
    top = np.maximum(l1, l2)
    w1, w2 = np.exp(l1 - top)[..., None], np.exp(l2 - top)[..., None]
    return (o1 * w1 + o2 * w2) / (w1 + w2)


def latent_decode(q_latent, q_rope, latent, rope, scale):
    """Multi-head latent attention, absorbed (DeepSeek-V2): all heads read one cache. q_latent (b, h, c),
    q_rope (b, h, r), latent (b, n, c), rope (b, n, r) -> (b, h, c)."""
    score = (q_latent @ latent.swapaxes(-1, -2) + q_rope @ rope.swapaxes(-1, -2)) * scale
    return _softmax_mix(score, latent)


def latent_cache(q, cache, scale):
    """The same with one cache (b, n, c + r) whose first c = 512 columns are the values. q (b, h, c + r)."""
    score = q @ cache.swapaxes(-1, -2) * scale
    return _softmax_mix(score, cache[..., :512])
