"""Routing of mixtures of experts."""

from __future__ import annotations

import numpy as np

import redfuser as rf


def softmax_topk(x, gate, k=8):
    """Switch, Mixtral, Qwen: x (t, d), gate (d, e) -> weights (t, k), experts (t, k)."""
    logits = x @ gate
    mass = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return rf.topk(mass / mass.sum(axis=-1, keepdims=True), k)


def renormalised(x, gate, k=8):
    """The chosen weights sum to one."""
    weights, experts = softmax_topk(x, gate, k)
    return weights / weights.sum(axis=-1, keepdims=True), experts


def sigmoid_bias(x, gate, bias, k=8):
    """DeepSeek-V3: chosen by sigmoid + bias, weighted by the sigmoid."""
    score = 1 / (1 + np.exp(-(x @ gate)))
    _, experts = rf.topk(score + bias, k)
    weights = np.take_along_axis(score, experts, axis=-1)
    return weights / weights.sum(axis=-1, keepdims=True), experts


def group_limited(logits, bias, groups=8, kept=4, k=8):
    """DeepSeek-V3: only experts of the `kept` best groups, a group's score being the sum of its two best."""
    t, e = logits.shape
    score = 1 / (1 + np.exp(-logits))
    chosen = (score + bias).reshape(t, groups, e // groups)
    best, _ = rf.topk(chosen, 2)
    of_group = best.sum(axis=-1)
    _, top = rf.topk(of_group, kept)
    live = (top[:, :, None] == np.arange(groups)).any(axis=1)
    masked = np.where(live[:, :, None], chosen, -np.inf).reshape(t, e)
    _, experts = rf.topk(masked, k)
    weights = np.take_along_axis(score, experts, axis=-1)
    return weights / weights.sum(axis=-1, keepdims=True), experts


def with_losses(x, gate, k=2):
    """Weights, experts, tokens per expert, z-loss."""
    logits = x @ gate
    top = logits.max(axis=-1, keepdims=True)
    mass = np.exp(logits - top)
    total = mass.sum(axis=-1, keepdims=True)
    weights, experts = rf.topk(mass / total, k)
    counts = (experts[:, :, None] == np.arange(gate.shape[1])).sum(axis=(0, 1))
    lse = (top + np.log(total))[:, 0]
    return weights, experts, counts, (lse * lse).mean()
