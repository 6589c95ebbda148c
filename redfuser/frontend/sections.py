"""Parts of an axis: slices that divide it evenly, np.split, np.take, and positions in reverse."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np

from redfuser.errors import ShapeError, TraceError
from redfuser.frontend.dims import Dim
from redfuser.frontend.record import Value
from redfuser.frontend.remedies import shown_slice
from redfuser.frontend.source import located
from redfuser.frontend.tracer import Tracer


def section(a: Tracer, axis: int, k: slice) -> Tracer:
    """`a[..., k, ...]` for a slice that is one of equal parts of the axis, whose size becomes static: the axis is split
    by a reshape. Positions (`np.arange`) can also be reversed. NumPy makes other slices, as views of the whole.
    """
    dim, r = a.value.shape[axis], a.recorder
    if (k.start, k.stop, k.step) == (None, None, -1):
        found = _reversed(a, a.value, axis)
        return _sliced(a, axis, k) if found is None else a.wrap(found)
    known = dim.find().value if isinstance(dim, Dim) else dim
    plain = k.step is None or (isinstance(k.step, int) and k.step == 1)
    if plain and known is not None and not _made_by_numpy(a.value):
        start, stop, _ = slice(k.start, k.stop).indices(known)
        size = stop - start
        if size == known or (size > 0 and known % size == 0 and start % size == 0):
            length = int(r.specialise(r.size(dim), f"the slice {shown_slice(k)}"))
            return a if size == length else _part(a, axis, length, size, start // size)
    return _sliced(a, axis, k)


def _made_by_numpy(v: Value) -> bool:
    """Whether NumPy makes an array: it may as well slice it."""
    while v.op in ("view", "broadcast", "cast"):
        v = v.inputs[0]
    return v.op == "host"


def _sliced(a: Tracer, axis: int, k: slice) -> Tracer:
    """A slice that NumPy makes."""
    from redfuser.frontend.host import run_by_numpy

    key = (*(slice(None),) * axis, k)
    shown = f"the slice [{', '.join([*[':'] * axis, shown_slice(k)])}]"
    dim = a.value.shape[axis]
    length = dim.find().value if isinstance(dim, Dim) else dim
    whole = (k.start, k.stop, k.step) == (None, None, -1)
    size = dim if whole else Dim(value=None if length is None else len(range(*k.indices(length))))
    shape = (*a.value.shape[:axis], size, *a.value.shape[axis + 1 :])
    return run_by_numpy(shown, operator.getitem, (a, key), {}, shown, shape=shape)  # type: ignore[no-any-return]


def _part(a: Tracer, axis: int, length: int, size: int, number: int) -> Tracer:
    """The part with this number of an axis that is cut into parts of equal size."""
    place = tuple(range(a.ndim))
    if size == 1:
        return a.view((*place[:axis], None, *place[axis + 1:]), ((axis, number),))
    shape = a.shape
    apart = a.reshape((*shape[:axis], length // size, size, *shape[axis + 1:]))
    return apart.view((*place[:axis], *(i + 1 for i in place[axis:])), ((axis, number),))  # type: ignore[no-any-return]


def _reversed(a: Tracer, v: Value, axis: int) -> Value | None:
    """A value that is computed from positions, in the opposite order along one of its dimensions; None for data."""
    r = a.recorder
    if v.shape[axis] == 1:
        return v
    if v.op == "arange":
        return r.ufunc(np.subtract, r.ufunc(np.subtract, r.size(v.shape[0]), r.const(1)), v)
    if v.op in ("ufunc", "where", "cast"):
        behind = v.ndim - axis
        inputs = [x if behind > x.ndim else _reversed(a, x, x.ndim - behind) for x in v.inputs]
        whole = [x for x in inputs if x is not None]
        return r.add(v.op, whole, v.shape, v.dtype, v.param) if len(whole) == len(inputs) else None
    if v.op == "view" and not v.param.fixed:
        inner = _reversed(a, v.inputs[0], v.param.dims[axis])
        return None if inner is None else r.view(inner, v.param.dims)
    return None


def split(ary: Tracer, indices_or_sections: Any, axis: int = 0) -> list[Tracer]:
    """np.split into parts of equal size"""
    place = operator.index(axis) % rank_of(ary)
    full = [slice(None)] * ary.ndim
    if isinstance(indices_or_sections, (list, tuple, np.ndarray)):
        edges = [None, *(operator.index(i) for i in indices_or_sections), None]
    else:
        r, dim = ary.recorder, ary.value.shape[place]
        length = int(r.specialise(r.size(dim), "np.split"))
        count = operator.index(indices_or_sections)
        if count < 1 or length % count:
            raise ShapeError(located(f"np.split of an axis of {length} into {count} parts: they would differ in size"))
        edges = [i * (length // count) for i in range(count + 1)]
    return [ary[(*full[:place], slice(i, j), *full[place + 1:])] for i, j in itertools.pairwise(edges)]


def rank_of(a: Tracer) -> int:
    """The number of dimensions of what is split."""
    if a.ndim == 0:
        raise ShapeError(located("np.split of a number; it takes an array"))
    return a.ndim


def hsplit(ary: Tracer, indices_or_sections: Any) -> list[Tracer]:
    """np.hsplit"""
    return split(ary, indices_or_sections, 1 if rank_of(ary) > 1 else 0)


def take(a: Tracer, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Tracer:
    """np.take: `a[..., indices, ...]`"""
    if out is not None or mode != "raise":
        raise TraceError(located("np.take with out= or mode= cannot be recorded; index with x[..., indices]"))
    if axis is None:
        a, axis = a.ravel(), 0
    place = operator.index(axis) % rank_of(a)
    return a[(*(slice(None),) * place, indices)].copy()


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[Any, ...]:
    """np.meshgrid of vectors"""
    if indexing not in ("xy", "ij"):
        raise ShapeError(located(f"np.meshgrid(indexing={indexing!r}) is neither 'xy' nor 'ij'"))
    rank = len(xi)
    order = [1, 0, *range(2, rank)] if indexing == "xy" and rank > 1 else list(range(rank))
    grids = [np.reshape(x, (*(1,) * i, -1, *(1,) * (rank - 1 - i))) for i, x in zip(order, xi, strict=True)]
    return tuple(grids) if sparse else tuple(np.broadcast_arrays(*grids))


def polyval(p: Any, x: Any) -> Any:
    """np.polyval by Horner's scheme, as NumPy computes it"""
    found: Any = np.zeros_like(x)
    traced = isinstance(p, Tracer) or any(isinstance(c, Tracer) for c in p)
    for coefficient in p if traced else np.asarray(p):  # numbers of an array have its dtype, and widen
        found = found * x + coefficient
    return found
