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


def _arcsinh(x: Any) -> Any:
    size = np.abs(x)
    small = np.minimum(size, 1e8)  # the square of more overflows, and log(2x) is exact there
    near = np.log1p(small + small * (small / (1 + np.sqrt(1 + small * small))))
    return np.sign(x) * np.where(size > 1e8, np.log(size) + math.log(2), near)


def _cbrt(x: Any) -> Any:
    """From the logarithm, whose error one step of Newton's method removes; only for numbers that have one."""
    size = np.abs(x)
    usual = np.logical_and(size > 0, np.isfinite(size))
    a = np.where(usual, size, 1.0)
    root = np.exp(np.log(a) * (1 / 3))
    root = root - (root - a / root / root) * (1 / 3)
    return np.where(usual, np.sign(x) * root, x)


def _fmax(a: Any, b: Any) -> Any:
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, np.maximum(a, b)))


def _fmin(a: Any, b: Any) -> Any:
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, np.minimum(a, b)))


def _heaviside(x: Any, at_zero: Any) -> Any:
    return np.where(np.equal(x, 0), at_zero, np.maximum(np.sign(x), 0))


def _signbit(x: Any) -> Any:
    """Also of zeros, which their reciprocals tell apart. The sign of NaN is unknown: it counts as positive."""
    return np.logical_or(np.less(x, 0), np.logical_and(np.equal(x, 0), np.less(1.0 / x, 0)))


def _copysign(x: Any, of: Any) -> Any:
    size = np.abs(x)
    return np.where(_signbit(of), -size, size)


def _arctan2(y: Any, x: Any) -> Any:
    """The angle to the nearer half of the x axis, in the quadrant. Sides that are equal may be 0 or infinite."""
    far, near = np.abs(y), np.abs(x)
    slope = np.where(np.equal(far, near), np.sign(near), far / near)
    angle = np.arctan(slope)
    return _copysign(np.where(_signbit(x), np.pi - angle, angle), y)


def _arcsin(x: Any) -> Any:
    return np.arctan(x / np.sqrt((1 - x) * (1 + x)))


def _arccos(x: Any) -> Any:
    angle = np.arctan(np.sqrt((1 - x) * (1 + x)) / np.abs(x))
    return np.where(np.less(x, 0), np.pi - angle, angle)


FORMULAS: dict[np.ufunc, Callable[..., Any]] = {
    np.logaddexp: _logaddexp, np.logaddexp2: _logaddexp2, np.hypot: _hypot, np.sinh: _sinh, np.cosh: _cosh,
    np.arctanh: _arctanh, np.arcsinh: _arcsinh, np.cbrt: _cbrt, np.fmax: _fmax, np.fmin: _fmin,
    np.signbit: _signbit, np.copysign: _copysign, np.arctan2: _arctan2, np.arcsin: _arcsin, np.arccos: _arccos,
    np.heaviside: _heaviside, np.float_power: lambda a, b: np.power(a, b), np.conjugate: lambda x: x,
    np.tan: lambda x: np.sin(x) / np.cos(x),
    np.deg2rad: lambda x: x * (math.pi / 180), np.radians: lambda x: x * (math.pi / 180),
    np.rad2deg: lambda x: x * (180 / math.pi), np.degrees: lambda x: x * (180 / math.pi),
}
"""Ufunc -> its formula, for operands that have the dtype of the result (unless that is bool)."""
