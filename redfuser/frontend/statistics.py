"""Weighted means, covariances and comparisons within a tolerance, with NumPy's signatures."""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.errors import ShapeError, TraceError
from redfuser.frontend.dims import show_shape
from redfuser.frontend.record import FLOAT
from redfuser.frontend.reductions import axis_tuple, count, degrees_of_freedom, mean
from redfuser.frontend.source import located
from redfuser.frontend.tracer import Tracer, lift, recorder_of
from redfuser.ir.dtypes import is_float


def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: bool = False) -> Any:
    """np.average, with weights of the shape of `a`, or of its shape along `axis`. Weights that sum to 0 give NaN."""
    r = recorder_of(a, weights)
    assert r is not None
    x = Tracer(r, lift(r, a))
    if weights is None:
        found = mean(x, axis, keepdims=keepdims)
        total = count(x, axis, keepdims, True)
    else:
        w = _aligned(x, Tracer(r, lift(r, weights)), axis)
        total = np.sum(w, axis, keepdims=keepdims)
        found = np.sum(x * w, axis, keepdims=keepdims) / total
    if not returned:
        return found
    return found, Tracer(r, r.broadcast(r.cast(lift(r, total), found.dtype), found.value.shape))


def _aligned(x: Tracer, weights: Tracer, axis: Any) -> Tracer:
    """Weights in the dimensions of `x`."""
    if weights.ndim == x.ndim:
        return weights
    axes = axis_tuple(x, axis)
    if axis is None or weights.ndim != len(axes):
        shapes = f"{show_shape(weights.value.shape)} for {show_shape(x.value.shape)}"
        raise ShapeError(located(f"np.average: weights of shape {shapes} need axis=, an axis per dimension"))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    order = [axis_tuple(x, i)[0] for i in given]
    return weights.view(tuple(order.index(i) if i in order else None for i in range(x.ndim)))


def cov(m: Tracer, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None, fweights: Any = None,
        aweights: Any = None, *, dtype: Any = None) -> Any:
    """np.cov of one array, without weights"""
    if y is not None or fweights is not None or aweights is not None:
        raise TraceError(located("np.cov is recorded for one array without weights; write it as a product, "
                                 "d @ d.T / (n - 1) with d = m - m.mean(1, keepdims=True)"))
    centred, n = _centred(m, rowvar, dtype)
    removed = (0 if bias else 1) if ddof is None else ddof
    return np.squeeze(centred @ centred.T / degrees_of_freedom(n, removed))


def corrcoef(x: Tracer, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """np.corrcoef of one array"""
    if y is not None:
        raise TraceError(located("np.corrcoef is recorded for one array; write it as a product, d @ d.T with d centred "
                                 "and divided by its norm"))
    centred, n = _centred(x, rowvar, dtype)
    number = degrees_of_freedom(n, 1)
    spread = np.sqrt(np.sum(np.square(centred), 1, keepdims=True) / number)
    return np.squeeze(np.clip(centred @ centred.T / number / spread / spread.T, -1, 1))


def _centred(m: Tracer, rowvar: bool, dtype: Any) -> tuple[Any, Any]:
    """Variables as rows about their means, and the number of observations."""
    if m.ndim > 2:
        raise ShapeError(located(f"a covariance needs at most 2 dimensions, got shape {show_shape(m.value.shape)}"))
    x: Any = m.astype(np.result_type(m.dtype, FLOAT) if dtype is None else dtype)
    x = x[None] if x.ndim == 1 else x if rowvar else x.T
    return x - x.mean(1, keepdims=True), x.shape[1]


def isclose(a: Any, b: Any, rtol: Any = 1e-5, atol: Any = 1e-8, equal_nan: bool = False) -> Any:
    """np.isclose"""
    r = recorder_of(a, b, rtol, atol)
    assert r is not None
    x, y = (Tracer(r, lift(r, v)) for v in (a, b))
    if not is_float(y.dtype):
        y = y.astype(FLOAT)
    near = (np.abs(x - y) <= atol + rtol * np.abs(y)) & np.isfinite(y) | (x == y)
    return near | np.isnan(x) & np.isnan(y) if equal_nan else near
