"""Rows of numbers that are hard for a mean or a variance: no one element is a good pivot for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

HARD_ROWS = ("noise", "outlier first", "outliers first", "periodic outliers", "decay", "far", "zeros, then far")


def hard_rows(kind: str, length: int = 4096, rows: int = 3) -> np.ndarray[Any, Any]:
    """Some rows of a kind of `HARD_ROWS`, in float32."""
    values = np.random.default_rng(length).standard_normal((rows, length))
    far = 1e4 + 1e-3 * values
    if kind == "outlier first":
        values[:, 0] = 1e4
    if kind == "outliers first":
        values[:, :6] = -1e4
    if kind == "periodic outliers":
        values[:, :: max(length // 8, 2)] = 1e4
    if kind == "decay":
        values = 1e4 * np.exp(-np.arange(length) / 20) + 0 * values
    if kind == "far":
        values = far
    if kind == "zeros, then far":
        values = np.where(np.arange(length) < 20, 0, far)
    return values.astype(np.float32)
