"""Plain NumPy functions, written as users write them, that the tests fuse."""

import numpy as np


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_first(x):
    e = np.exp(x - x.max(axis=0, keepdims=True))
    return e / e.sum(axis=0, keepdims=True)


def logsumexp(x):
    m = x.max(axis=-1, keepdims=True)
    return np.log(np.sum(np.exp(x - m), axis=-1)) + m[..., 0]


def variance(x):
    return ((x - x.mean(axis=-1, keepdims=True)) ** 2).mean(axis=-1)


def variance_call(x):
    return np.var(x, axis=-1)


def layernorm(x, weight, bias):
    mean = x.mean(axis=-1, keepdims=True)
    var = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-5) * weight + bias


def deviation(x):
    mean = x.mean(axis=-1, keepdims=True)
    return np.abs(x - mean).mean(axis=-1)


def attention(q, k, v):
    s = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return (p / p.sum(axis=-1, keepdims=True)) @ v


def attention_einsum(q, k, v):
    s = np.einsum("...id,...nd->...in", q, k) * 0.125
    m = s.max(-1, keepdims=True)
    l = np.exp(s - m).sum(-1, keepdims=True)  # noqa: E741
    return np.einsum("...in,...nd->...id", np.exp(s - m) / l, v)


def causal_attention(q, k, v):
    s = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5
    i, n = np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])[None, :]
    s = np.where(n <= i, s, -np.inf)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return (p / p.sum(axis=-1, keepdims=True)) @ v


def masked_attention(q, k, v, mask):
    s = q @ np.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5
    s = np.where(mask, s, -np.inf)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return (p / p.sum(axis=-1, keepdims=True)) @ v


def entropy(x):
    m = x.max(axis=-1, keepdims=True)
    e = np.exp(x - m)
    total = e.sum(axis=-1)
    return np.log(total) - (e * (x - m)).sum(axis=-1) / total


def cosine(x, y):
    return (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
