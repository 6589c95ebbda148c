"""Norms of vectors and matrices with NumPy's signatures."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from redfuser.errors import ShapeError, TraceError
from redfuser.frontend.dims import show_shape
from redfuser.frontend.record import no_meaning
from redfuser.frontend.reductions import amax, amin, axis_tuple, floating
from redfuser.frontend.source import located
from redfuser.frontend.tracer import Tracer


def norm(x: Tracer, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """np.linalg.norm of vectors (one axis) and matrices (two axes), and of a whole array without `ord`."""
    if axis is None:
        if ord is None:
            return vector_norm(x, keepdims=keepdims)
        if x.ndim > 2:
            raise ShapeError(located(f"np.linalg.norm(ord={ord!r}) of shape {show_shape(x.value.shape)} needs axis=, "
                                     "one or two axes"))
    axes = tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    if len(axes) == 1:
        return vector_norm(x, axis=axes, keepdims=keepdims, ord=2 if ord is None else ord)
    if len(axes) != 2:
        raise ShapeError(located(f"np.linalg.norm takes one axis or two, got axis={axis!r}"))
    return _matrix(x, "fro" if ord is None else ord, axes, keepdims)


def vector_norm(x: Tracer, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """np.linalg.vector_norm: the norm of all elements along the axes."""
    if isinstance(ord, str):
        raise no_meaning(f"np.linalg.norm has no order {ord!r} for vectors; use a number")
    x = floating(x, None)
    size: Any = np.abs(x)
    if ord == 2:
        return np.sqrt(np.sum(np.square(x), axis, keepdims=keepdims))
    if ord == 1:
        return np.sum(size, axis, keepdims=keepdims)
    if ord in (np.inf, -np.inf):
        return (amax if ord > 0 else amin)(size, axis, keepdims=keepdims)
    if ord == 0:
        return np.sum(np.not_equal(x, 0), axis, dtype=x.dtype, keepdims=keepdims)
    return np.sum(size**ord, axis, keepdims=keepdims) ** (1 / ord)


def matrix_norm(x: Tracer, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """np.linalg.matrix_norm of the last two axes."""
    return _matrix(x, "fro" if ord is None else ord, (-2, -1), keepdims)


def _matrix(x: Tracer, ord: Any, axes: Sequence[int], keepdims: bool) -> Any:
    """The norm of matrices whose rows and columns lie along two axes."""
    axis_tuple(x, tuple(axes))  # an axis that does not exist is an error
    row, column = (operator.index(i) % x.ndim for i in axes)
    if isinstance(ord, str) and ord == "fro":
        return vector_norm(x, axis=(row, column), keepdims=keepdims)
    if isinstance(ord, str) or ord not in (1, -1, np.inf, -np.inf):
        raise TraceError(located(f"np.linalg.norm(ord={ord!r}) of matrices takes singular values and cannot be "
                                 "recorded; use ord='fro', or split the function there and call it between the parts"))
    summed, rest = (row, column) if abs(ord) == 1 else (column, row)
    sums = np.sum(np.abs(floating(x, None)), summed, keepdims=True)
    found = (amax if ord > 0 else amin)(sums, rest, keepdims=True)
    return found if keepdims else np.squeeze(found, (row, column))
