"""argmax, argmin, top-k and monoids of users: reductions whose results have several parts."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from redfuser.errors import ArgumentError, DTypeError, RedfuserError, ShapeError, TraceError
from redfuser.frontend.dims import Dim
from redfuser.frontend.join import Joined
from redfuser.frontend.reductions import axis_tuple
from redfuser.frontend.source import located
from redfuser.frontend.tracer import Tracer
from redfuser.ir.dtypes import is_number
from redfuser.ir.monoids import INDEX, VALUE, list_monoid, parts_monoid


def argmax(a: Tracer, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Tracer:
    """np.argmax: int64 positions, the first of equal values, of NaN when there is one"""
    return _position("argmax", a, axis, out, keepdims)


def argmin(a: Tracer, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Tracer:
    """np.argmin: int64 positions, the first of equal values, of NaN when there is one"""
    return _position("argmin", a, axis, out, keepdims)


def _position(name: str, a: Tracer, axis: Any, out: Any, keepdims: bool) -> Tracer:
    if out is not None:
        raise TraceError(located(f"np.{name}(out=...) cannot be recorded; assign the result to a name"))
    if axis is None and a.ndim != 1:
        raise TraceError(located(f"np.{name} without axis= is a position in the flattened array; name one axis"))
    place = axis_tuple(a, axis)[0]
    _need(a, place, 1, f"np.{name}")
    return a.wrap(a.recorder.parts(parts_monoid(name), (a.value,), place, INDEX, bool(keepdims)))


def topk(x: Any, k: int, axis: int = -1, *, largest: bool = True) -> tuple[Any, Any]:
    """The k largest elements along an axis and their positions, best first.

    Parameters
    ----------
    x
        array of real numbers; inside a function given to `rf.fuse` the traced one.
    k
        how many, at least 1; known when the function is traced.
    axis
        the axis; in both results it has length k.
    largest
        False: the k smallest elements, smallest first.

    Returns
    -------
    (values, indices)
        the dtype of `x`, and int64. Among equal values the lower position comes first. NaN counts as better than any
        number, as in NumPy's argmax. Elements of value -inf are elements like others: the positions are always k
        different ones.

    Raises
    ------
    ShapeError
        when k is below 1 or above the length of the axis, or the axis does not exist.
    ArgumentError
        when k or the axis is no integer.
    DTypeError
        for complex numbers and other elements without an order.
    """
    try:
        count = operator.index(k)
    except RedfuserError:  # a traced number
        raise
    except TypeError:
        raise ArgumentError(located(f"argument 'k' of topk is {k!r}; give an int")) from None
    if count < 1:
        raise ShapeError(located(f"argument 'k' is {count}; a top-k has at least one element"))
    monoid = parts_monoid(list_monoid(largest, count))
    x = x.array() if isinstance(x, Joined) else x
    if isinstance(x, Tracer):
        place = axis_tuple(x, axis)[0]
        _need(x, place, count, "topk")
        recorded = [x.wrap(x.recorder.parts(monoid, (x.value,), place, part)) for part in (VALUE, INDEX)]
        return recorded[0], recorded[1]
    array = np.asarray(x)
    if not is_number(array.dtype):
        raise DTypeError(f"argument 'x' of topk has dtype {array.dtype}, which has no order; convert it first")
    place = _checked_axis(array, axis)
    if array.shape[place] < count:
        raise ShapeError(_too_short(place, array.shape[place], "topk", count))
    found = monoid.reduce(array, axis=place)
    values, indices = (np.moveaxis(found[part].squeeze(place), -1, place) for part in (VALUE, INDEX))
    return values, indices


def _too_short(axis: int, length: int, name: str, count: int) -> str:
    remedy = "choose a smaller k or pad the array" if name == "topk" else "pass at least one element"
    return f"axis {axis} has length {length}, {name} needs at least {count} there; {remedy}"


def _need(a: Tracer, axis: int, count: int, name: str) -> None:
    """Refuse an axis with fewer elements than `count`; of a symbolic size that is checked at every call."""
    dim, r = a.value.shape[axis], a.recorder
    length = dim.find().value if isinstance(dim, Dim) else 1
    if length is not None and length < count:
        raise ShapeError(located(_too_short(axis, length, name, count)))
    if isinstance(dim, Dim) and not dim.find().fixed:
        r.branches.append((r.ufunc(np.greater_equal, r.size(dim), r.const(count)), True))


def _checked_axis(array: Any, axis: Any) -> int:
    try:
        return int(np.lib.array_utils.normalize_axis_index(operator.index(axis), array.ndim))
    except TypeError:
        raise ArgumentError(f"argument 'axis' of topk is {axis!r}; give an int") from None
    except ValueError as error:  # AxisError is one
        raise ShapeError(f"axis={axis!r} does not fit shape {array.shape}: {error}") from None
