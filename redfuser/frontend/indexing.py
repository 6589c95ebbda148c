"""Indexing of traced arrays: `None`, `...`, full slices, integer positions, arrays of labels."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from redfuser.errors import ShapeError, TraceError
from redfuser.frontend.dims import Dim, show_shape
from redfuser.frontend.labels import as_label_array, index_labels, is_label_array
from redfuser.frontend.record import BOOL
from redfuser.frontend.sections import section
from redfuser.frontend.source import located
from redfuser.frontend.tracer import Tracer

_REMEDY = ("only None, `...`, slices, integer positions and arrays of labels can be recorded; use np.where to choose "
           "elements, with where= or 0 in a sum over them")


def index(a: Tracer, key: Any) -> Tracer:
    """`a[key]` for basic keys and arrays of integers.

    Raises
    ------
    TraceError
        for masks beside other indices, and for several arrays of labels.
    ShapeError
        for too many indices and positions outside.
    """
    if isinstance(key, (Tracer, np.ndarray)) and key.dtype == BOOL and 0 < key.ndim <= a.ndim:
        return chosen_by_mask(a, key)
    keys = expand_ellipsis(a, tuple(map(as_label_array, key if isinstance(key, tuple) else (key,))))
    a, keys = from_the_end(a, keys)
    for axis, (at, k) in enumerate((i, k) for i, k in enumerate(keys) if k is not None):
        if isinstance(k, slice) and not is_full(a, axis, k) and one_element(k) is None:
            a, keys[at], key = section(a, axis, k), slice(None), None
    dims: list[int | None] = []
    fixed: list[tuple[int, int]] = []
    arrays: dict[int, Any] = {}
    position = 0
    for k in keys:
        if k is None:
            dims.append(None)
            continue
        if isinstance(k, slice):
            if is_full(a, position, k):
                dims.append(position)
            else:
                fixed.append((position, element(a, position, one_element(k))))
                dims.append(None)
        elif is_label_array(k):
            arrays[len(dims)] = k
            dims.append(position)
        else:
            fixed.append((position, element(a, position, k)))
        position += 1
    found = a.view(tuple(dims), tuple(fixed))
    if arrays:
        return index_labels(found, arrays, place_of_arrays(keys))
    found.origin = None if key is None else (a, key)
    return found


def from_the_end(a: Tracer, keys: list[Any]) -> tuple[Tracer, list[Any]]:
    """Negative positions along dimensions whose length only a call tells: NumPy takes the element, a slice of one."""
    from redfuser.frontend.host import run_by_numpy

    for axis, (at, k) in enumerate((i, k) for i, k in enumerate(keys) if k is not None):
        dim = a.value.shape[axis]
        unknown = isinstance(dim, Dim) and dim.find().value is None and a.recorder.is_made(dim)
        if isinstance(k, int) and k < 0 and unknown:
            key = (*(slice(None),) * axis, slice(k, k + 1 or None))
            shown = f"the element {k} of axis {axis}"
            a, keys = run_by_numpy(shown, operator.getitem, (a, key), {}, shown), [*keys[:at], 0, *keys[at + 1 :]]
    return a, keys


def chosen_by_mask(a: Tracer, mask: Any) -> Tracer:
    """The elements that a mask chooses: NumPy takes them out, only then is it known how many there are."""
    from redfuser.frontend.host import run_by_numpy

    value = a.lift(mask)
    for axis, (own, other) in enumerate(zip(a.value.shape, value.shape, strict=False)):
        lengths = {d.find().value if isinstance(d, Dim) else d for d in (own, other)} - {None}
        if len(lengths) < 2 and isinstance(own, Dim) and isinstance(other, Dim):
            own.unify(other)
        elif own != other:
            shapes = f"{show_shape(value.shape)} for an array of shape {show_shape(a.value.shape)}"
            raise ShapeError(located(f"a mask of shape {shapes}: they differ along axis {axis}"))
    shown = "the elements that a mask chooses"
    return run_by_numpy(shown, operator.getitem, (a, a.wrap(value)), {}, shown, selecting=True)  # type: ignore[no-any-return]


def place_of_arrays(keys: list[Any]) -> int:
    """Where the dimensions chosen by arrays go: to the arrays, or to the front when slices lie between these."""
    at = [i for i, k in enumerate(keys) if k is not None and not isinstance(k, slice)]
    return at[0] if at[-1] - at[0] + 1 == len(at) else 0


def expand_ellipsis(a: Tracer, keys: tuple[Any, ...]) -> list[Any]:
    """Keys for all dimensions, in order."""
    if any(isinstance(k, (np.ndarray, list)) or (isinstance(k, Tracer) and (k.ndim or not k.is_size)) for k in keys
           if not is_label_array(k)):
        raise TraceError(located(f"indexing with a mask, a list or a traced number cannot be recorded; {_REMEDY}"))
    used = sum(1 for k in keys if k is not None and k is not Ellipsis)
    if used > a.ndim:
        raise ShapeError(located(f"{used} indices for an array of shape {show_shape(a.value.shape)}"))
    dots = [i for i, k in enumerate(keys) if k is Ellipsis]
    at = dots[0] if dots else len(keys)
    return [*keys[:at], *[slice(None)] * (a.ndim - used), *keys[at + 1:]]


def is_full(a: Tracer, axis: int, k: slice) -> bool:
    """True for `:`, `0:`, `:n` with n the size of the axis, and for any slice that keeps an axis of size 1."""
    if k.step not in (None, 1):
        return False
    starts = k.start is None or (isinstance(k.start, int) and k.start == 0)
    stop, dim = k.stop, a.value.shape[axis]
    if isinstance(stop, Tracer) and stop.value.op == "size" and isinstance(dim, Dim):
        return starts and stop.value.param.find() is dim.find()
    return starts and (stop is None or (dim == 1 and isinstance(stop, int) and stop >= 1))


def one_element(k: slice) -> int | None:
    """The position of the only element that a slice keeps; None for other slices."""
    start = 0 if k.start is None else k.start
    if isinstance(start, int) and k.step in (None, 1):
        last = start == -1 and k.stop is None
        if last or (isinstance(k.stop, int) and k.stop == start + 1 and k.stop != 0):
            return start
    return None


def element(a: Tracer, axis: int, k: Any) -> int:
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
