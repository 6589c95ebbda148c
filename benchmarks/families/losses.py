"""Norms with residuals, losses, and backward passes written as formulas."""

from __future__ import annotations

import numpy as np


def layernorm_residual(x, residual, weight, bias, eps=1e-5):
    """The sum and its layer norm."""
    h = x + residual
    c = h - h.mean(axis=-1, keepdims=True)
    return c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + eps) * weight + bias, h


def rmsnorm_residual(x, residual, weight, eps=1e-6):
    """The sum and its RMS norm."""
    h = x + residual
    return h / np.sqrt((h * h).mean(axis=-1, keepdims=True) + eps) * weight, h


def rmsnorm_product(x, weight, w, eps=1e-6):
    """RMSNorm, then a product."""
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight @ w


def cross_entropy(logits, labels):
    """Mean over the batch."""
    top = logits.max(axis=-1, keepdims=True)
    lse = np.log(np.exp(logits - top).sum(axis=-1)) + top[:, 0]
    return (lse - np.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]).mean()


def smoothed(logits, labels, smoothing=0.1):
    """Label smoothing, per row."""
    top = logits.max(axis=-1, keepdims=True)
    lse = np.log(np.exp(logits - top).sum(axis=-1)) + top[:, 0]
    hit = np.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    return lse - (1 - smoothing) * hit - smoothing * logits.mean(axis=-1)


def ignoring(logits, labels, ignore=-100):
    """Rows with the label `ignore` do not count."""
    top = logits.max(axis=-1, keepdims=True)
    lse = np.log(np.exp(logits - top).sum(axis=-1)) + top[:, 0]
    live = labels != ignore
    at = np.where(live, labels, 0)
    hit = np.take_along_axis(logits, at[:, None], axis=-1)[:, 0]
    return np.where(live, lse - hit, 0).sum() / live.sum()


def linear_cross_entropy(x, w, labels):
    """Logits are never stored. x (t, d), w (v, d), labels (t,)."""
    logits = x @ w.T
    top = logits.max(axis=-1, keepdims=True)
    lse = np.log(np.exp(logits - top).sum(axis=-1)) + top[:, 0]
    hit = np.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    return lse - hit


def kl(p_logits, q_logits):
    """Kullback-Leibler divergence of two rows of logits."""
    p = p_logits - p_logits.max(axis=-1, keepdims=True)
    q = q_logits - q_logits.max(axis=-1, keepdims=True)
    lp = p - np.log(np.exp(p).sum(axis=-1, keepdims=True))
    lq = q - np.log(np.exp(q).sum(axis=-1, keepdims=True))
    return (np.exp(lp) * (lp - lq)).sum(axis=-1)


def info_nce(a, b, temperature=0.07):
    """Contrastive loss: row i of `a` belongs to row i of `b`."""
    s = a @ b.T / temperature
    top = s.max(axis=-1, keepdims=True)
    lse = np.log(np.exp(s - top).sum(axis=-1)) + top[:, 0]
    return (lse - (a * b).sum(axis=-1) / temperature).mean()


def softmax_backward(x, dy):
    """dx of softmax, y computed again."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    y = e / e.sum(axis=-1, keepdims=True)
    return y * (dy - (y * dy).sum(axis=-1, keepdims=True))


def layernorm_backward(x, weight, dy, eps=1e-5):
    """dx, dweight, dbias."""
    c = x - x.mean(axis=-1, keepdims=True)
    r = 1 / np.sqrt((c * c).mean(axis=-1, keepdims=True) + eps)
    h = c * r
    g = dy * weight
    dx = r * (g - g.mean(axis=-1, keepdims=True) - h * (g * h).mean(axis=-1, keepdims=True))
    return dx, (dy * h).sum(axis=0), dy.sum(axis=0)


def rmsnorm_backward(x, weight, dy, eps=1e-6):
    """dx."""
    r = 1 / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    g = dy * weight
    return r * (g - x * r * r * (g * x).mean(axis=-1, keepdims=True))


def cross_entropy_backward(logits, labels, dy):
    """dlogits of the loss of each row."""
    e = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    return (p - (np.arange(logits.shape[-1]) == labels[:, None])) * dy[:, None]


def attention_backward(q, k, v, do, o, lse):
    """dq, dk, dv from the stored log-sum-exp (Dao 2023)."""
    scale = q.shape[-1] ** -0.5
    p = np.exp(q @ k.swapaxes(-1, -2) * scale - lse[..., None])
    dv = p.swapaxes(-1, -2) @ do
    dp = do @ v.swapaxes(-1, -2)
    delta = (do * o).sum(axis=-1, keepdims=True)
    ds = p * (dp - delta) * scale
    return ds @ k, ds.swapaxes(-1, -2) @ q, dv


def attention_backward_whole(q, k, v, do):
    """dq, dk, dv with everything computed again."""
    scale = q.shape[-1] ** -0.5
    s = q @ k.swapaxes(-1, -2) * scale
    e = np.exp(s - s.max(axis=-1, keepdims=True))
    p = e / e.sum(axis=-1, keepdims=True)
    dv = p.swapaxes(-1, -2) @ do
    dp = do @ v.swapaxes(-1, -2)
    ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True)) * scale
    return ds @ k, ds.swapaxes(-1, -2) @ q, dv
