"""The definition: evaluate terms and cascades in NumPy, reduction by reduction. The oracle of every later level."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from redfuser.errors import ShapeError
from redfuser.ir.dtypes import computed_in, converted, is_float, numpy_dtype
from redfuser.ir.expr import RANK, Cast, Const, Expr, Idx, Load, Op, Part, Reduce, Ref, Size, Tuple
from redfuser.ir.monoids import PartsMonoid, find_parts
from redfuser.ir.ops import MONOIDS, OPS
from redfuser.ir.term import Cascade, Let, Out, Reduction, Tensor, Term, base_axis
from redfuser.ir.traverse import refs, rewrite
from redfuser.ir.views import as_results, viewed_sizes, with_products, with_views

Arrays = Mapping[str, Any]


def axis_sizes(tensors: Iterable[Tensor], arrays: Arrays, static: Mapping[str, int | None]) -> dict[str, int]:
    """Length of every axis, read off the arrays.

    Raises
    ------
    ShapeError
        naming the array, when ranks or lengths disagree.
    """
    sizes = {base_axis(a): n for a, n in static.items() if n is not None}
    for t in tensors:
        shape = np.shape(arrays[t.name])
        if len(shape) != len(t.axes):
            raise ShapeError(f"argument {t.name!r} has {len(shape)} dimensions, expected {len(t.axes)} ({t})")
        for a, n in zip(t.axes, shape, strict=True):
            known = sizes.setdefault(base_axis(a), n)
            if known != n:
                raise ShapeError(f"argument {t.name!r} has length {n} on axis {a}, where {known} is expected")
    return sizes


def broadcast(value: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """`value` as an array of the shape; `np.broadcast_to`, which is slow, only where it changes something."""
    array = np.asarray(value)
    return array if array.shape == shape else np.broadcast_to(array, shape)


class Evaluator:
    """Evaluates expressions with one array dimension per axis, in the order of `axes`.

    Arrays are aligned by inserting dimensions of size 1. With `dtype` given, every floating input is converted to it
    first (float64 or longdouble for a reference); otherwise each is taken in the dtype it is computed in, and NumPy's
    own promotion applies.
    """

    def __init__(
        self,
        axes: Iterable[str],
        sizes: Mapping[str, int],
        arrays: Arrays,
        tensors: Iterable[Tensor],
        dtype: Any = None,
    ) -> None:
        self.order = {a: i for i, a in enumerate(axes)}
        self.sizes = sizes
        self.dtype = dtype
        self.tensors = {t.name: t for t in tensors}
        self.arrays = arrays
        self.values: dict[str, tuple[tuple[str, ...], np.ndarray[Any, Any]]] = {}
        self.memo: dict[Expr, Any] = {}

    def size(self, axis: str) -> int:
        return self.sizes[base_axis(axis)]

    def start(self, axis: str) -> int:
        """Position of the first element along an axis."""
        return 0

    def align(self, array: np.ndarray[Any, Any], axes: tuple[str, ...]) -> np.ndarray[Any, Any]:
        """`array` with dimensions `axes` as an array over all axes (size 1 where absent)."""
        order = [self.order[a] for a in axes]
        shape = [1] * len(self.order)
        for position, length in zip(order, array.shape, strict=True):
            shape[position] = length
        if any(a > b for a, b in pairwise(order)):
            array = array.transpose(sorted(range(len(order)), key=order.__getitem__))
        return array.reshape(shape)

    def define(self, name: str, axes: tuple[str, ...], value: Any) -> None:
        """Bind a let; `value` is aligned over all axes."""
        self.values[name] = (axes, self.placed(value, axes))

    def placed(self, value: Any, axes: tuple[str, ...]) -> np.ndarray[Any, Any]:
        """A value aligned over all axes as an array with dimensions `axes`, the inverse of `align`."""
        full = broadcast(value, tuple(self.size(a) if a in axes else 1 for a in self.order))
        sorted_axes = tuple(a for a in self.order if a in axes)
        kept = full.reshape([self.size(a) for a in sorted_axes])
        return kept if sorted_axes == axes else kept.transpose([sorted_axes.index(a) for a in axes])

    def __call__(self, e: Expr) -> Any:
        value = self.memo.get(e)
        if value is None:
            with np.errstate(all="ignore"):
                value = self._kept(e)
        return value

    def _kept(self, e: Expr) -> Any:
        """The value of an expression, remembered; floating-point warnings are off already."""
        value = self.memo.get(e)
        if value is None:
            value = self.memo[e] = self._value(e)
        return value

    def _value(self, e: Expr) -> Any:
        if isinstance(e, Op):
            return OPS[e.fn].numpy(*map(self._kept, e.args))
        if isinstance(e, Const):
            value = e.value
            if isinstance(value, Fraction):
                value = (
                    float(value) if self.dtype is None else self.dtype(value.numerator) / self.dtype(value.denominator)
                )
            elif isinstance(value, float) and self.dtype is not None:
                value = self.dtype(value)
            return value
        if isinstance(e, Load):
            array = np.asarray(self.arrays[e.tensor])
            index = tuple(slice(None) if isinstance(a, str) else a for a in e.axes)
            return self._aligned_any(self.loaded(array[index]), tuple(a for a in e.axes if isinstance(a, str)))
        if isinstance(e, Ref):
            _, array = self.values[e.name]
            return self._aligned_any(array, e.axes)
        if isinstance(e, Idx):
            return self.align(np.arange(self.size(e.axis)), (e.axis,))
        if isinstance(e, Size):
            return self.size(e.axis)
        if isinstance(e, Cast):
            return self._cast(e)
        if isinstance(e, Reduce):
            return self.reduce(e.monoid, e.axis, e.body)
        if isinstance(e, Part):
            return self._part(e)
        raise TypeError(f"{type(e).__name__} has no value at the term level")

    def loaded(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Elements of an input as they are computed with: whole numbers wrap only where a conversion says so."""
        if not is_float(array.dtype):
            return array if array.dtype == bool else array.astype(np.int64, copy=False)
        return array.astype(computed_in(array.dtype) if self.dtype is None else self.dtype, copy=False)

    def _cast(self, e: Cast) -> np.ndarray[Any, Any]:
        """A converted value; one that was rounded to a storage dtype is computed with further."""
        value, target = np.asarray(self(e.body)), numpy_dtype(e.dtype)
        if target.kind in "iu":
            return np.asarray(converted(value, target).astype(np.int64, copy=False))
        if self.dtype is not None:
            return value.astype(self.dtype)
        return np.asarray(converted(value, target).astype(computed_in(e.dtype), copy=False))

    def _part(self, e: Part) -> np.ndarray[Any, Any]:
        """A part of a structured value; the places of a sorted list lie along an axis like any other."""
        value = np.asarray(self(e.body))[e.part]
        if not e.axes:
            return value
        place = e.axes[0]
        if isinstance(place, int):
            return np.asarray(value[..., place])
        position = self.order[place]
        return np.moveaxis(value.squeeze(position), -1, position)

    def structured(self, e: Expr, monoid: PartsMonoid) -> np.ndarray[Any, Any]:
        """A value with parts: that of a reference, or the one whose parts a `Tuple` defines."""
        if not isinstance(e, Tuple):
            return np.asarray(self(e))
        if monoid.rank is None:
            parts = [np.asarray(self(x)) for x in e.args]
        else:
            lists = [[np.asarray(self(at_place(x, r))) for r in range(monoid.rank)] for x in e.args]
            shape = np.broadcast_shapes(*(x.shape for places in lists for x in places))
            parts = [np.stack([np.broadcast_to(x, shape) for x in places], -1) for places in lists]
        return monoid.value(*parts, key=parts[0].dtype)

    def _aligned_any(self, array: np.ndarray[Any, Any], axes: tuple[str, ...]) -> np.ndarray[Any, Any]:
        """Like `align`, and a repeated axis takes the diagonal."""
        while len(set(axes)) < len(axes):
            first = next(a for a in axes if axes.count(a) > 1)
            i = axes.index(first)
            j = axes.index(first, i + 1)
            array = np.diagonal(array, axis1=i, axis2=j)
            axes = (*(a for k, a in enumerate(axes) if k not in (i, j)), first)
        return self.align(array, axes)

    def reduce(self, monoid: str, axis: str, body: Expr) -> np.ndarray[Any, Any]:
        """(+)_axis body, the axis kept with size 1; the identity for an axis of length 0."""
        position = self.order[axis]
        parts = find_parts(monoid)
        if parts is not None:
            args = body.args if isinstance(body, Tuple) else (body,)
            return parts.reduce(*(self._elements(a, axis) for a in args), axis=position, start=self.start(axis))
        value = self._elements(body, axis)
        shape = list(value.shape)
        op = MONOIDS[monoid]
        with np.errstate(all="ignore"):
            if monoid in ("max", "min") and value.dtype.kind == "f":
                return np.asarray(op.reduce(value, axis=position, keepdims=True, initial=op.identity))
            if shape[position] == 0:
                dtype = value.dtype if monoid in ("sum", "prod") else float
                return np.full([1 if i == position else n for i, n in enumerate(shape)], op.identity, dtype)
            return np.asarray(op.reduce(value, axis=position, keepdims=True))

    def _elements(self, body: Expr, axis: str) -> np.ndarray[Any, Any]:
        """A body with one element for every position of an axis."""
        value = np.asarray(self(body))
        shape = [1] * len(self.order) if value.ndim == 0 else list(value.shape)
        shape[self.order[axis]] = self.size(axis)
        return broadcast(value, tuple(shape))

    def output(self, o: Out) -> np.ndarray[Any, Any]:
        """The value of an output, dimensions in the order of `o.axes`."""
        value = self.placed(self(o.expr), o.axes)
        with np.errstate(all="ignore"):
            if self.dtype is None or numpy_dtype(o.dtype).kind in "iu":
                return np.array(converted(value, o.dtype))
            return np.array(value)


def at_place(e: Expr, place: int | str) -> Expr:
    """`e` with a place of the sorted list (or an axis along it) for the one that is being defined."""

    def fixed(x: Expr) -> Expr | None:
        return Part(x.part, (place,), x.body) if isinstance(x, Part) and x.axes == (RANK,) else None

    return rewrite(e, fixed)


def run_term(t: Term, arrays: Arrays, dtype: Any = None) -> dict[str, np.ndarray[Any, Any]]:
    """Outputs of a term by its definition (`dtype`: compute in this float type)."""
    sizes = axis_sizes(t.tensors, arrays, {a.name: a.size for a in t.axes})
    ev = Evaluator([a.name for a in t.axes], sizes, arrays, t.tensors, dtype)
    for let in t.lets:
        ev.define(let.name, let.axes, ev(let.expr))
    return {o.name: ev.output(o) for o in t.outs}


def given(
    c: Cascade, arrays: Arrays, sizes: Mapping[str, int] | None = None
) -> tuple[dict[str, Any], dict[str, int]]:
    """The arrays of a cascade, views of them among these, and the length of every axis.

    Raises
    ------
    ShapeError
        naming the array, when ranks or lengths disagree.
    """
    found = with_views(c, arrays, sizes)
    known = {**{a.name: a.size for a in c.axes}, **viewed_sizes(c.tensors, arrays), **(sizes or {})}
    return found, axis_sizes(c.tensors, found, with_products(c.axes, known))


def by_part(name: str, value: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """A result under its name; one with several parts under `name.part`."""
    fields = value.dtype.names
    return {name: value} if fields is None else {f"{name}.{p}": value[p] for p in fields}


def expr_of(stage: Let | Reduction) -> Expr:
    """What a stage is, or reduces."""
    return stage.expr if isinstance(stage, Let) else stage.body


def in_order(c: Cascade) -> Iterator[Let | Reduction]:
    """The producers and reductions of a cascade, each after those that it reads.

    Raises
    ------
    ShapeError
        when one reads a name that nothing defines.
    """
    pending: list[Let | Reduction] = [*c.producers, *c.reductions]
    known: set[str] = set()
    while pending:
        stage = next((x for x in pending if refs(expr_of(x)) <= known), None)
        if stage is None:
            raise ShapeError(f"cascade {c.name} reads an undefined name")
        pending.remove(stage)
        known.add(stage.name)
        yield stage


def run_cascade(
    c: Cascade, arrays: Arrays, dtype: Any = None, sizes: Mapping[str, int] | None = None
) -> dict[str, np.ndarray[Any, Any]]:
    """Reductions and outputs of a cascade by its definition, one full reduction after the other.

    A tensor that is a view may be given by its own name or by its source; outputs have the axes of a product apart.
    `sizes`: lengths of axes that no tensor of this cascade carries (a cascade of a larger term may still mention them).
    """
    arrays, sizes = given(c, arrays, sizes)
    ev = Evaluator([a.name for a in c.axes], sizes, arrays, c.tensors, dtype)
    results: dict[str, np.ndarray[Any, Any]] = {}
    for item in in_order(c):
        if isinstance(item, Let):
            ev.define(item.name, item.axes, ev(item.expr))
        else:
            assert c.axis is not None
            ev.define(item.name, item.axes, ev.reduce(item.monoid, c.axis, item.body))
            results |= by_part(item.name, ev.values[item.name][1])
    outs = {o.name: ev.output(o) for o in c.outs}
    return results | outs | as_results(c, outs, sizes)
