"""Elements chosen by integer arrays: `x[np.arange(n), labels]` and `np.take_along_axis`.

The element of a row at a position is the sum over the row of what lies at that position, 0 elsewhere. As a reduction it
fuses with others over the same axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from redfuser.errors import RedfuserError, ShapeError, TraceError
from redfuser.frontend.dims import Dim, Shape, show_shape
from redfuser.frontend.record import BOOL, INT, Recorder, Value, no_meaning
from redfuser.frontend.source import located
from redfuser.frontend.tracer import Tracer, lift, recorder_of
from redfuser.ir.dtypes import is_float

_ELEMENTWISE = ("input", "const", "size", "arange", "ufunc", "where", "cast", "view", "broadcast")


def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Tracer:
    """np.take_along_axis"""
    r = recorder_of(arr, indices)
    assert r is not None
    a, chosen = Tracer(r, lift(r, arr)), Tracer(r, lift(r, indices))
    if axis is None:
        a, axis = a.ravel(), 0
    if a.ndim != chosen.ndim:
        shapes = f"{show_shape(a.value.shape)} and {show_shape(chosen.value.shape)}"
        raise ShapeError(located(f"take_along_axis needs as many dimensions in both arrays, got {shapes}; write "
                                 "labels[:, None] for one label per row"))
    place = _axis(axis, a.ndim)
    others = tuple(None if i == place else i for i in range(a.ndim))
    return _select(a.wrap(r.view(a.value, (*others, place))), chosen)


def is_label_array(key: Any) -> bool:
    """True for an index that is an array of integers."""
    return isinstance(key, (Tracer, np.ndarray)) and key.ndim > 0 and key.dtype.kind in "iu"


def as_label_array(key: Any) -> Any:
    """The array of a list or range of integers; anything else stays."""
    if isinstance(key, (list, range)) and len(key) and all(isinstance(i, (int, np.integer)) for i in key):
        found = np.asarray(key)
        return found if found.dtype.kind in "iu" else key
    return key


def index_labels(a: Tracer, keys: Mapping[int, Any], before: int) -> Tracer:
    """`a` indexed by arrays: one of labels, the others positions along their axes, as np.arange counts them.

    `keys`: axis -> array; `before`: how many of the other axes come before what is chosen.

    Raises
    ------
    TraceError
        for several arrays of labels.
    """
    r = a.recorder
    chosen = choice(a, keys)
    rest = [axis for axis in range(a.ndim) if axis not in chosen.arrays]
    found = a.wrap(r.view(a.value, (*chosen.front, *rest, *([] if chosen.label is None else [chosen.label]))))
    if chosen.label is not None:
        places = chosen.arrays[chosen.label]
        found = _select(found, Tracer(r, r.view(places, (*range(places.ndim), *(None for _ in rest)))))
    shape = chosen.shape
    found = found.wrap(r.broadcast(found.value, (*shape, *(a.value.shape[axis] for axis in rest))))
    slices = range(len(shape), found.ndim)
    return found.wrap(r.view(found.value, (*slices[:before], *range(len(shape)), *slices[before:]))).copy()


@dataclass(frozen=True)
class Choice:
    """What arrays choose: `arrays` by axis, which broadcast to `shape`; the one axis they choose freely from (`label`);
    for every dimension of `shape` the axis that it runs along, if any (`front`)."""

    arrays: Mapping[int, Value]
    shape: Shape
    label: int | None
    front: tuple[int | None, ...]


def choice(a: Tracer, keys: Mapping[int, Any]) -> Choice:
    """Read an index of arrays (axis -> array): one of labels, the others positions along their axes.

    Raises
    ------
    TraceError
        for several arrays of labels.
    """
    r = a.recorder
    arrays = {axis: _positions(r, k, a.value.shape[axis]) or lift(r, k) for axis, k in keys.items()}
    aligned: dict[int, int] = {}
    for axis, v in arrays.items():
        place = _runs_along(r, v, a.value.shape[axis])
        if place is not None:
            aligned.setdefault(place, axis)
    labels = [axis for axis in arrays if axis not in aligned.values()]
    if len(labels) > 1:
        raise TraceError(located("an index with several arrays of labels cannot be recorded; choose along one axis, "
                                 "and index the others with np.arange of their length"))
    shape = r.common_shape("an index", list(arrays.values()))
    front = tuple(aligned.get(i - len(shape)) for i in range(len(shape)))
    return Choice(arrays, shape, labels[0] if labels else None, front)


def _positions(r: Recorder, key: Any, dim: Dim | int) -> Value | None:
    """The positions along `dim` that a constant array made in the function counts: np.arange(len(labels)) is one."""
    length = dim.find().value if isinstance(dim, Dim) else dim
    if length is None or not isinstance(key, np.ndarray) or key.size != length or max(key.shape) != length:
        return None
    base: Any = key
    while isinstance(base, np.ndarray):
        if id(base) in r.array_names:  # read at every call: it may hold other positions then
            return None
        base = base.base
    if not np.array_equal(key.ravel(), np.arange(length)):
        return None
    r.specialise(r.size(dim), "an index")
    at = key.shape.index(length)
    return r.view(r.arange(dim), tuple(0 if i == at else None for i in range(key.ndim)))


def _runs_along(r: Recorder, v: Value, dim: Dim | int) -> int | None:
    """The (negative) dimension along which `v` counts the positions 0, 1, ... of `dim`; None when it does not."""
    at = [i for i, d in enumerate(v.shape) if d != 1]
    source = v
    while source.op in ("view", "cast", "broadcast") and (source.op != "view" or not source.param.fixed):
        source = source.inputs[0]
    if source.op != "arange" or len(at) > 1 or (not at and source.shape[0] != 1):
        return None
    if not at:
        return -1 if dim == 1 else None
    counted = v.shape[at[0]]
    if not isinstance(dim, Dim) or not isinstance(counted, Dim) or not _same(r, dim.find(), counted.find()):
        return None
    return at[0] - v.ndim


def _same(r: Recorder, a: Dim, b: Dim) -> bool:
    """Whether two sizes are equal; when they only happen to be, the trace is valid where they are."""
    if a is b:
        return True
    if a.value is None or a.value != b.value:
        return False
    return r.decide(r.ufunc(np.equal, r.size(a), r.size(b)))


def _select(a: Tracer, labels: Tracer) -> Tracer:
    """The element of `a` along its last axis at `labels`, which broadcast with the other axes."""
    r, dim = a.recorder, a.value.shape[-1]
    if labels.dtype.kind not in "iu":
        raise no_meaning(f"an index has dtype {labels.dtype}; convert with .astype(np.int64)")
    hit = hits(r, labels.value, dim)
    if a.dtype == BOOL:
        both = r.ufunc(np.logical_and, hit, a.value)
        return a.wrap(r.reduce(np.logical_or, both, (both.ndim - 1,)))
    value = r.cast(a.value, INT) if a.dtype.kind == "u" else a.value
    kept = r.where(hit, value, r.const(0, value.dtype))
    return a.wrap(r.cast(r.reduce(np.add, kept, (kept.ndim - 1,)), a.dtype))


def hits(r: Recorder, labels: Value, dim: Dim | int) -> Value:
    """Where the positions along `dim`, a new last dimension, are those that integers name."""
    length = r.size(dim)
    _check(r, labels, length)
    place = r.cast(labels, INT)
    if labels.dtype.kind == "i":  # from the end
        place = r.where(r.ufunc(np.less, place, r.const(0)), r.ufunc(np.add, place, length), place)
    return r.ufunc(np.equal, r.arange(dim), r.view(place, (*range(place.ndim), None)))


def _check(r: Recorder, place: Value, length: Value) -> None:
    """Have every call check that positions exist, where they follow from integers that the caller passes."""
    todo, ours = [place], True
    while todo and ours:
        v = todo.pop()
        ours = v.op in _ELEMENTWISE and not is_float(v.dtype)
        todo += v.inputs
    if ours:
        r.checks.append((place, length))


def _axis(axis: Any, rank: int) -> int:
    try:
        return int(normalize_axis_index(axis, rank))
    except RedfuserError:
        raise
    except TypeError:
        raise no_meaning(f"argument 'axis' is {axis!r}; give an int") from None
    except ValueError as error:
        raise ShapeError(located(f"axis {axis} does not fit {rank} dimensions: {error}")) from None
