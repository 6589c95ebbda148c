"""Indexing of traced arrays: `None`, `...`, full slices, integer positions, arrays of labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.errors import ShapeError, TraceError
from redfuser.frontend.dims import Dim, show_shape
from redfuser.frontend.labels import index_labels, is_label_array
from redfuser.frontend.remedies import shown_slice
from redfuser.frontend.source import located
from redfuser.frontend.tracer import Tracer

_REMEDY = ("only None, `...`, `:`, integer positions, slices of one element and arrays of labels can be recorded; "
           "choose elements with np.where, or pass the slice as an argument")


def index(a: Tracer, key: Any) -> Tracer:
    """`a[key]` for basic keys and arrays of integers.

    Raises
    ------
    TraceError
        for slices that keep a part of an axis, for masks, and for several arrays of labels.
    ShapeError
        for too many indices and positions outside.
    """
    keys = _expand_ellipsis(a, key if isinstance(key, tuple) else (key,))
    dims: list[int | None] = []
    fixed: list[tuple[int, int]] = []
    arrays: dict[int, Any] = {}
    position = 0
    for k in keys:
        if k is None:
            dims.append(None)
            continue
        if isinstance(k, slice):
            if _is_full(a, position, k):
                dims.append(position)
            else:
                fixed.append((position, _single(a, position, k)))
                dims.append(None)
        elif is_label_array(k):
            arrays[len(dims)] = k
            dims.append(position)
        else:
            fixed.append((position, _element(a, position, k)))
        position += 1
    found = a.view(tuple(dims), tuple(fixed))
    return index_labels(found, arrays, _place(keys)) if arrays else found


def _place(keys: list[Any]) -> int:
    """Where the dimensions chosen by arrays go: to the arrays, or to the front when slices lie between these."""
    at = [i for i, k in enumerate(keys) if k is not None and not isinstance(k, slice)]
    return at[0] if at[-1] - at[0] + 1 == len(at) else 0


def _expand_ellipsis(a: Tracer, keys: tuple[Any, ...]) -> list[Any]:
    """Keys for all dimensions, in order."""
    if any(isinstance(k, (np.ndarray, list)) or (isinstance(k, Tracer) and (k.ndim or not k.is_size)) for k in keys
           if not is_label_array(k)):
        raise TraceError(located(f"indexing with a list, a mask or a traced number cannot be recorded; {_REMEDY}"))
    used = sum(1 for k in keys if k is not None and k is not Ellipsis)
    if used > a.ndim:
        raise ShapeError(located(f"{used} indices for an array of shape {show_shape(a.value.shape)}"))
    dots = [i for i, k in enumerate(keys) if k is Ellipsis]
    at = dots[0] if dots else len(keys)
    return [*keys[:at], *[slice(None)] * (a.ndim - used), *keys[at + 1:]]


def _is_full(a: Tracer, axis: int, k: slice) -> bool:
    """True for `:`, `0:`, `:n` with n the size of the axis, and for any slice that keeps an axis of size 1."""
    if k.step not in (None, 1):
        return False
    starts = k.start is None or (isinstance(k.start, int) and k.start == 0)
    stop, dim = k.stop, a.value.shape[axis]
    if isinstance(stop, Tracer) and stop.value.op == "size" and isinstance(dim, Dim):
        return starts and stop.value.param.find() is dim.find()
    return starts and (stop is None or (dim == 1 and isinstance(stop, int) and stop >= 1))


def _single(a: Tracer, axis: int, k: slice) -> int:
    """The position of the only element that a slice keeps."""
    start = 0 if k.start is None else k.start
    if isinstance(start, int) and k.step in (None, 1):
        last = start == -1 and k.stop is None
        if last or (isinstance(k.stop, int) and k.stop == start + 1 and k.stop != 0):
            return _element(a, axis, start)
    raise TraceError(located(f"the slice {shown_slice(k)} of an axis cannot be recorded; {_REMEDY}"))


def _element(a: Tracer, axis: int, k: Any) -> int:
    """A non-negative position; the trace becomes valid only for sizes that contain it."""
    try:
        position = k.__index__()
    except AttributeError:
        raise TraceError(located(f"the index {k!r} cannot be recorded; {_REMEDY}")) from None
    dim, r = a.value.shape[axis], a.recorder
    if position < 0:  # counted from the end: the size decides where that is
        position += 1 if not isinstance(dim, Dim) else int(r.specialise(r.size(dim), "an index from the end"))
    size = dim.find().value if isinstance(dim, Dim) else 1
    if position >= 0 and isinstance(dim, Dim) and not dim.find().fixed:
        r.branches.append((r.ufunc(np.greater, r.size(dim), r.const(position)), True))
    if position < 0 or (size is not None and position >= size):
        raise ShapeError(located(f"index {k} is outside axis {axis} of shape {show_shape(a.value.shape)}"))
    return position  # type: ignore[no-any-return]
