"""What faults are planted in: functions that reach every part of the CUDA printer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

import redfuser as rf
from redfuser.api import fuse, spec
from redfuser.extract import Options
from redfuser.testing.faults.trials import Subject
from redfuser.testing.schedule_cases import CASES
from redfuser.zoo import ENTRIES

BLOCKS = Options(block=64)
SPLIT = Options(block=64, chunk=256)
COLUMNS = Options(strategy="columns")


@lru_cache(maxsize=1)
def _decay() -> Any:
    """A monoid that is not commutative: t -> a t + b, the earlier one first."""
    return rf.monoid("affine", identity=(1.0, 0.0), parts=("a", "b"),
                     combine=lambda f, g: (f[0] * g[0], g[0] * f[1] + g[1]))


def _decayed(x: Any) -> Any:
    """A recurrence in the order of the stream, of elements that a maximum scales."""
    return _decay()(0.9, x / np.abs(x).max(axis=-1, keepdims=True), axis=-1)[1]


def _causal_rows(x: Any) -> Any:
    """Maximum and sum of exponentials from one position on: a mask by positions."""
    masked = np.where(np.arange(x.shape[1])[None, :] >= np.arange(x.shape[0])[:, None], x, -np.inf)
    m = masked.max(axis=1, keepdims=True)
    return m[:, 0], np.exp(masked - m).sum(axis=1)


def _router(x: Any) -> Any:
    """The three largest weights of a softmax, as they are: the sum decides them."""
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return rf.topk(e / e.sum(axis=1, keepdims=True), 3)


def _named(name: str) -> Callable[..., Any]:
    return CASES[name].fn


def _entry(name: str) -> Callable[..., Any]:
    return ENTRIES[name].fn


X = (("p", "n"),)
_MADE: Mapping[str, tuple[Callable[..., Any], tuple[tuple[Any, ...], ...], str, Options, int, str]] = {
    "softmax": (_named("softmax"), X, "float32", BLOCKS, 64, ""),
    "softmax of a warp": (_named("softmax"), X, "float32", Options(), 64, ""),
    "softmax of a block": (_named("softmax"), X, "float32", Options(), 2048, ""),
    "logsumexp, split": (_entry("weighted_logsumexp"), (*X, *X), "float32", SPLIT, 64, ""),
    "variance, split": (_named("moments"), X, "float32", SPLIT, 64, ""),
    "layer norm": (_named("layer_norm"), (*X, ("n",)), "float32", BLOCKS, 64, ""),
    "router": (_router, X, "float32", BLOCKS, 64, ""),
    "router of a block": (_router, X, "float32", Options(), 2048, ""),
    "argmax": (_named("position"), X, "float32", BLOCKS, 64, ""),
    "argmax, split": (_named("position"), X, "float32", SPLIT, 64, ""),
    "quantised product": (_entry("clipped_absmax_dot"), (*X, ("n",)), "float32", BLOCKS, 64, ""),
    "masked norm": (_entry("masked_layernorm"), (*X, (*X[0], "bool")), "float32", BLOCKS, 64, ""),
    "causal": (_causal_rows, X, "float32", BLOCKS, 64, ""),
    "columns": (_named("column_softmax"), (("n", "p"),), "float32", COLUMNS, 64, "p"),
    "moments": (_entry("six_moments"), X, "float64", BLOCKS, 64, ""),
    "recurrence": (_decayed, X, "float32", BLOCKS, 64, ""),
    "running minimum": (_entry("soft_minimum"), X, "float32", SPLIT, 64, ""),
    "half precision": (_named("weighted_mean"), (*X, *X), "float16", BLOCKS, 64, ""),
    "two passes": (_named("above"), X, "float32", BLOCKS, 64, ""),
    "inner product": (_named("nearest"), (("i", "k"), ("n", "k")), "float32", BLOCKS, 64, ""),
}
NAMES = tuple(_MADE)
"""Names of all subjects."""


@lru_cache(maxsize=64)
def subject(name: str) -> Subject:
    """The subject of this name."""
    fn, shapes, dtype, options, hint, contiguous = _MADE[name]
    specs = [spec(tuple(a for a in s if a != "bool"), "bool" if "bool" in s else dtype) for s in shapes]
    return max(subjects_of(name, fn, specs, options, hint, contiguous), key=lambda s: len(s.cascade.reductions))


def subjects_of(name: str, fn: Callable[..., Any], arguments: tuple[Any, ...] | list[Any],
                options: Options | None = None, hint: int = 64, contiguous: str = "") -> list[Subject]:
    """One subject for each cascade of a function that reduces something."""
    lowered = fuse(fn, target="interpret").lower(*arguments)
    pairs = [p for p in zip(lowered.partition.cascades, lowered.fusion, strict=True) if p[0].reductions]
    names = [name if len(pairs) == 1 else f"{name}, cascade {i}" for i in range(len(pairs))]
    return [Subject(n, c, fused, options or Options(), hint, contiguous)
            for n, (c, fused) in zip(names, pairs, strict=True)]
