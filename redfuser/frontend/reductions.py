"""Reductions of traced arrays with NumPy's signatures: sum, max, mean, var, ..."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from redfuser.errors import RedfuserError, ShapeError, TraceError
from redfuser.frontend.dims import show_shape
from redfuser.frontend.record import BOOL, FLOAT, INT, DType, Recorder, Value, no_meaning
from redfuser.frontend.source import located
from redfuser.frontend.tracer import Tracer, lift
from redfuser.ir.dtypes import is_float

MISSING: Any = object()
_IDENTITY: dict[np.ufunc, Any] = {np.add: 0, np.multiply: 1, np.logical_or: False, np.logical_and: True}


def axis_tuple(a: Tracer, axis: Any) -> tuple[int, ...]:
    """The axes as sorted non-negative positions (None: all).

    Raises
    ------
    ShapeError
        for an axis that the array does not have, or that is named twice.
    TraceError
        for an axis that is no integer.
    """
    if axis is None:
        return tuple(range(a.ndim))
    if isinstance(axis, Tracer):
        axis = tuple(axis) if axis.ndim else operator.index(axis)
    try:
        return tuple(sorted(normalize_axis_tuple(axis, a.ndim)))
    except RedfuserError:
        raise
    except TypeError:
        raise no_meaning(f"argument 'axis' is {axis!r}; give an int, a tuple of ints or None") from None
    except ValueError as error:  # AxisError is one
        raise ShapeError(located(f"axis={axis!r} does not fit shape {show_shape(a.value.shape)}: {error}")) from None


def reduce(ufunc: np.ufunc, a: Tracer, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False,
           initial: Any = MISSING, where: Any = True) -> Tracer:
    """`ufunc.reduce` with NumPy's keywords: `initial` combines with the result, `where` leaves elements out."""
    r, value = a.recorder, a.value
    held = None if dtype is None else np.dtype(dtype)
    if held is not None:
        value = r.cast(value, held)
    if held is not None and ufunc in (np.add, np.multiply) and held.kind in "biu":
        # reduced in int64, and what that gives wraps around (of truth values: tells 0 from all else) at the end
        value = r.cast(value, INT)
    if where is not True:
        value = r.where(lift(r, where), value, _number(r, _neutral(ufunc, value, initial), value.dtype))
    result = r.reduce(ufunc, value, axis_tuple(a, axis), bool(keepdims))
    if initial is not MISSING and initial is not None:
        start = _number(r, initial, result.dtype)
        result = r.ufunc(ufunc, result, r.cast(start, result.dtype) if start.dtype != result.dtype else start)
    return into(out, a.wrap(result if held is None else r.cast(result, held)), ufunc.__name__)


def _number(r: Recorder, x: Any, dtype: DType) -> Value:
    """What a reduction of floats combines with them: a Python number is one of them."""
    return r.const(x, dtype) if is_float(dtype) and isinstance(x, (int, float)) else lift(r, x)


def _neutral(ufunc: np.ufunc, value: Value, initial: Any) -> Any:
    """What an element that is left out counts as."""
    if ufunc in _IDENTITY:
        return _IDENTITY[ufunc]
    if initial is MISSING:
        raise TraceError(located(f"np.{ufunc.__name__}.reduce with where= needs initial=, as in NumPy"))
    if not is_float(value.dtype):
        return initial
    return -np.inf if ufunc is np.maximum else np.inf


def sum_(a: Tracer, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False,
         initial: Any = MISSING, where: Any = True) -> Tracer:
    """np.sum"""
    return reduce(np.add, a, axis, dtype, out, keepdims, initial, where)


def prod(a: Tracer, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False,
         initial: Any = MISSING, where: Any = True) -> Tracer:
    """np.prod"""
    return reduce(np.multiply, a, axis, dtype, out, keepdims, initial, where)


def amax(a: Tracer, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = MISSING,
         where: Any = True) -> Tracer:
    """np.max"""
    return reduce(np.maximum, a, axis, None, out, keepdims, initial, where)


def amin(a: Tracer, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = MISSING,
         where: Any = True) -> Tracer:
    """np.min"""
    return reduce(np.minimum, a, axis, None, out, keepdims, initial, where)


def any_(a: Tracer, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True) -> Tracer:
    """np.any"""
    return reduce(np.logical_or, _as_bool(a), axis, None, out, keepdims, where=where)


def all_(a: Tracer, axis: Any = None, out: Any = None, keepdims: bool = False, *, where: Any = True) -> Tracer:
    """np.all"""
    return reduce(np.logical_and, _as_bool(a), axis, None, out, keepdims, where=where)


def count_nonzero(a: Tracer, axis: Any = None, *, keepdims: bool = False) -> Tracer:
    """np.count_nonzero: int64"""
    return reduce(np.add, _as_bool(a), axis, keepdims=keepdims)


def logaddexp(a: Tracer, axis: Any = None, keepdims: bool = False) -> Any:
    """np.logaddexp.reduce = log of the sum of exponentials, about the maximum: -inf when nothing is alive."""
    x = floating(a, None)
    high = amax(x, axis, keepdims=True)
    total = np.log(sum_(np.exp(x - high), axis, keepdims=True)) + high
    return total if keepdims else np.squeeze(total, axis_tuple(a, axis))


def mean(a: Tracer, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *,
         where: Any = True) -> Any:
    """np.mean = sum / number of elements (those `where` keeps); truncated where `dtype` is that of integers."""
    x = floating(a, dtype)
    found = sum_(x, axis, keepdims=keepdims, where=where) / count(x, axis, keepdims, where)
    return into(out, found if is_float(x.dtype) else found.astype(x.dtype), "mean")


def var(a: Tracer, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: bool = False, *,
        where: Any = True, mean: Any = None, correction: Any = None) -> Any:
    """np.var in the centred form sum((x - mean)^2) / max(n - ddof, 0), as a careful user would write it."""
    x = floating(a, dtype)
    center = _mean(x, axis, keepdims=True, where=where) if mean is None else mean
    squares = np.square(x - center)
    number, removed = count(x, axis, keepdims, where), ddof if correction is None else correction
    found = sum_(squares, axis, keepdims=keepdims, where=where) / degrees_of_freedom(number, removed)
    return into(out, found, "var")


_mean = mean


def degrees_of_freedom(number: Any, ddof: Any) -> Any:
    """What NumPy divides a sum of squares by: max(number - ddof, 0)."""
    if not isinstance(ddof, Tracer) and ddof == 0:
        return number
    left = number - ddof
    return left.operate(np.maximum, left, 0) if isinstance(left, Tracer) else max(left, 0)


def std(a: Tracer, axis: Any = None, dtype: Any = None, out: Any = None, *args: Any, **kwargs: Any) -> Any:
    """np.std, with the arguments of np.var."""
    return into(out, np.sqrt(var(a, axis, dtype, None, *args, **kwargs)), "std")


def ptp(a: Tracer, axis: Any = None, out: Any = None, keepdims: bool = False) -> Tracer:
    """np.ptp = max - min"""
    return into(out, amax(a, axis, keepdims=keepdims) - amin(a, axis, keepdims=keepdims), "ptp")


def floating(a: Tracer, dtype: Any) -> Tracer:
    """`a` in the dtype that means and variances are computed in."""
    if dtype is None and is_float(a.dtype) and not a.value.weak:
        return a
    return a.astype(FLOAT if dtype is None else dtype)


def _as_bool(a: Tracer) -> Tracer:
    return a if a.dtype == BOOL else a.astype(BOOL)


def count(a: Tracer, axis: Any, keepdims: bool, where: Any) -> Any:
    """The number of elements reduced; an int or a symbolic size unless `where` chooses."""
    axes = axis_tuple(a, axis)
    if where is not True:
        r = a.recorder
        mask = r.broadcast(lift(r, where), r.common_shape("where=", (a.value, lift(r, where))))
        return a.wrap(r.cast(r.reduce(np.add, mask, axes, keepdims), a.dtype))
    lengths = [entry for entry in (a.shape[i] for i in axes) if isinstance(entry, Tracer)]
    return functools.reduce(operator.mul, lengths) if lengths else 1


def into(out: Any, result: Tracer, name: str) -> Tracer:
    """The result of a reduction; stored in `out`, an array made in the function, where there is one.

    Raises
    ------
    TraceError
        for an array from outside, and for one that others may hold.
    ShapeError
        when the result has another number of dimensions.
    """
    if out is None:
        return result
    if not isinstance(out, Tracer):
        raise TraceError(located(f"np.{name}(out=...) of an array from outside cannot be recorded; assign the result "
                                 "to a name"))
    if out.ndim != result.ndim:
        shapes = f"{show_shape(out.value.shape)} for a result of shape {show_shape(result.value.shape)}"
        raise ShapeError(located(f"np.{name}: out= has shape {shapes}"))
    return out.store(result.value, "assign the result to a name")
