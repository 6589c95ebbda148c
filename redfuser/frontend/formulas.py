"""NumPy ufuncs that are formulas over others, written so that they neither overflow nor cancel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np


def _logaddexp(a: Any, b: Any) -> Any:
    return np.maximum(a, b) + np.log1p(np.exp(_gap(a, b)))


def _logaddexp2(a: Any, b: Any) -> Any:
    excess = np.log1p(np.exp2(_gap(a, b))) * (1 / math.log(2))
    return np.maximum(a, b) + np.where(np.equal(a, b), 1.0, excess)  # exact, as in NumPy


def _gap(a: Any, b: Any) -> Any:
    """-|a - b|, also of infinities that are equal."""
    return np.where(np.equal(a, b), 0.0, -np.abs(a - b))


def _hypot(a: Any, b: Any) -> Any:
    """Scaled by the larger. An infinite side gives infinity, whatever the other is."""
    a, b = np.abs(a), np.abs(b)
    larger = np.maximum(a, b)
    ratio = np.minimum(a, b) / np.where(np.equal(larger, 0), 1.0, larger)
    found = larger * np.sqrt(1 + np.square(ratio))
    return np.where(np.logical_or(np.isinf(a), np.isinf(b)), np.inf, found)


def _sinh(x: Any) -> Any:
    """2 sinh(x/2) cosh(x/2): exponentials of halves do not overflow before the result does."""
    half = x * 0.5
    forth, back = np.exp(half), np.exp(-half)
    return np.expm1(half) * (1 + back) * 0.5 * (forth + back)


def _cosh(x: Any) -> Any:
    size = np.abs(x)
    root = np.exp(size * 0.5)
    return root * 0.5 * root + np.exp(-size) * 0.5


def _arctanh(x: Any) -> Any:
    size = np.abs(x)  # the logarithm cancels on the negative side
    return np.sign(x) * (np.log1p(2 * size / (1 - size)) * 0.5)


FORMULAS: dict[np.ufunc, Callable[..., Any]] = {
    np.logaddexp: _logaddexp, np.logaddexp2: _logaddexp2, np.hypot: _hypot, np.sinh: _sinh, np.cosh: _cosh,
    np.arctanh: _arctanh,
}
"""Ufunc -> its formula, for operands that have the dtype of the result."""
