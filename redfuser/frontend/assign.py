"""Assignment to elements of an array made in the function: `x[mask] = 0`, `x[rows, labels] -= 1`, `x[:, 0] = 1`.

The array gets the new value where the index chooses, and keeps its own elsewhere (`np.where`).
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from redfuser.errors import ShapeError, TraceError
from redfuser.frontend.dims import Dim, show_shape
from redfuser.frontend.indexing import element, expand_ellipsis, is_full, one_element, place_of_arrays
from redfuser.frontend.labels import as_label_array, choice, hits, is_label_array
from redfuser.frontend.record import BOOL, Value
from redfuser.frontend.remedies import shown_slice
from redfuser.frontend.source import located
from redfuser.frontend.tracer import Tracer, lift

_REMEDY = "build the array with np.where(condition, new, old)"


def assign_elements(a: Tracer, key: Any, value: Any) -> None:
    """`a[key] = value`.

    Raises
    ------
    TraceError
        for an array that others may hold, and for elements or values that no condition describes.
    ShapeError
        when the shapes do not fit.
    """
    if isinstance(value, Tracer) and value.origin is not None and value.origin[0] is a and value.origin[1] is key:
        return  # x[key] += y has changed x through the view
    r = a.recorder
    new = lift(r, value)
    hit: Value | None
    if _is_mask(key):
        hit, new = _masked(a, lift(r, key), new)
    else:
        hit, new = _indexed(a, key if isinstance(key, tuple) else (key,), new)
    found = new if hit is None else r.where(hit, r.cast(new, a.dtype), a.value)
    if found.ndim > a.ndim or r.common_shape("an assignment", (a.value, found)) != a.value.shape:
        raise ShapeError(located(f"cannot assign shape {show_shape(new.shape)} to elements of shape "
                                 f"{show_shape(a.value.shape)}"))
    a.store(r.cast(found, a.dtype), f"copy it first, x = x.copy(), or {_REMEDY}")


def write_through(view: Tracer, result: Value) -> bool:
    """Change an array through a view `x[0]` that nobody else holds; False when others do."""
    if view.origin is None or not view.memory.belongs_to(view, view.origin[0]):
        return False
    (array, key), view.origin = view.origin, None
    holders, view.memory.holders = view.memory.holders, [weakref.ref(array)]
    try:
        assign_elements(array, key, view.wrap(result))
    finally:
        view.memory.holders, view.origin = holders, (array, key)
    return True


def _is_mask(key: Any) -> bool:
    return isinstance(key, (Tracer, np.ndarray)) and key.dtype == BOOL and key.ndim > 0


def _masked(a: Tracer, mask: Value, new: Value) -> tuple[Value, Value]:
    """A mask over the first dimensions, and a value for all that it chooses."""
    r, rest = a.recorder, a.ndim - mask.ndim
    if rest < 0 or any(m == 1 and d != 1 for m, d in zip(mask.shape, a.value.shape, strict=False)):
        raise ShapeError(located(f"a mask of shape {show_shape(mask.shape)} does not fit an array of shape "
                                 f"{show_shape(a.value.shape)}"))
    if new.ndim > rest:
        raise TraceError(located("assignment of an array to the elements of a mask cannot be recorded; use "
                                 "np.where(mask, new, old) with an array of the full shape"))
    return r.view(mask, (*range(mask.ndim), *(None,) * rest)), new


def _indexed(a: Tracer, key: tuple[Any, ...], new: Value) -> tuple[Value | None, Value]:
    """Positions, slices and labels: a condition over the dimensions of `a` (None: all), and the value along them."""
    r = a.recorder
    keys = expand_ellipsis(a, tuple(map(as_label_array, key)))
    if any(k is None for k in keys):
        raise TraceError(located(f"assignment to an index with None cannot be recorded; {_REMEDY}"))
    arrays = {axis: k for axis, k in enumerate(keys) if is_label_array(k)}
    chosen = choice(a, arrays) if arrays else None
    order: list[int] = []  # the dimension of `a` that each dimension of the value runs along
    conditions: list[Value] = []
    for axis, k in enumerate(keys):
        if axis in arrays:
            continue
        if isinstance(k, slice) and is_full(a, axis, k):
            order.append(axis)
        else:
            if isinstance(k, slice):
                order.append(axis)
                if one_element(k) is None:
                    raise TraceError(located(f"assignment to the slice {shown_slice(k)} cannot be recorded; {_REMEDY}, "
                                             "and np.arange of the length of the axis in the condition"))
                k = one_element(k)
            position = element(a, axis, k)
            conditions.append(_along(a, axis, r.ufunc(np.equal, r.arange(a.value.shape[axis]), r.const(position))))
    if chosen is not None:
        if None in chosen.front:
            raise TraceError(located("assignment to labels that may repeat cannot be recorded; index the other axes "
                                     f"with np.arange of their length, or {_REMEDY}"))
        front = [axis for axis in chosen.front if axis is not None]
        before = place_of_arrays(keys)
        order[before:before] = front
        if chosen.label is not None:
            hit = hits(r, chosen.arrays[chosen.label], a.value.shape[chosen.label])
            places = [*front[len(front) - hit.ndim + 1:], chosen.label]
            conditions.append(r.view(hit, tuple(places.index(i) if i in places else None for i in range(a.ndim))))
    if not conditions:
        return None, _placed(a, order, new)
    found = conditions[0]
    for c in conditions[1:]:
        found = r.ufunc(np.logical_and, found, c)
    return found, _placed(a, order, new)


def _along(a: Tracer, axis: int, v: Value) -> Value:
    return a.recorder.view(v, tuple(0 if i == axis else None for i in range(a.ndim)))


def _placed(a: Tracer, order: Sequence[int], new: Value) -> Value:
    """The value, whose last dimensions run along these dimensions of `a`, in the dimensions of `a`."""
    if new.ndim > len(order):
        raise ShapeError(located(f"cannot assign shape {show_shape(new.shape)} to {len(order)} dimensions"))
    places = list(order[len(order) - new.ndim:])
    for i, axis in enumerate(places):
        known, given = a.value.shape[axis], new.shape[i]
        if isinstance(known, Dim) and isinstance(given, Dim):
            known.unify(given)
    return a.recorder.view(new, tuple(places.index(i) if i in places else None for i in range(a.ndim)))
