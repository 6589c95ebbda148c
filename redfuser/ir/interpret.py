"""The definition: evaluate terms and cascades in NumPy, reduction by reduction. The oracle of every later level."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from redfuser.errors import ShapeError
from redfuser.ir.expr import Cast, Const, Expr, Idx, Load, Op, Reduce, Ref, Size
from redfuser.ir.ops import MONOIDS, OPS
from redfuser.ir.term import Cascade, Let, Out, Reduction, Tensor, Term, base_axis

Arrays = Mapping[str, Any]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a dtype name; `bfloat16` needs ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes

        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(name)


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


class Evaluator:
    """Evaluates expressions with one array dimension per axis, in the order of `axes`.

    Arrays are aligned by inserting dimensions of size 1. With `dtype` given, every floating input is converted to it
    first (float64 or longdouble for a reference); otherwise NumPy's own promotion applies.
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

    def align(self, array: np.ndarray[Any, Any], axes: tuple[str, ...]) -> np.ndarray[Any, Any]:
        """`array` with dimensions `axes` as an array over all axes (size 1 where absent)."""
        order = [self.order[a] for a in axes]
        shape = [1] * len(self.order)
        for position, length in zip(order, array.shape, strict=True):
            shape[position] = length
        return array.transpose(np.argsort(order)).reshape(shape)

    def define(self, name: str, axes: tuple[str, ...], value: Any) -> None:
        """Bind a let; `value` is aligned over all axes."""
        full = np.broadcast_to(value, [self.size(a) if a in axes else 1 for a in self.order])
        kept = full.reshape([self.size(a) for a in self.order if a in axes])
        sorted_axes = tuple(a for a in self.order if a in axes)
        self.values[name] = (axes, kept.transpose([sorted_axes.index(a) for a in axes]))

    def __call__(self, e: Expr) -> Any:
        if e not in self.memo:
            with np.errstate(all="ignore"):
                self.memo[e] = self._value(e)
        return self.memo[e]

    def _value(self, e: Expr) -> Any:
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
            array = array[index]
            if self.dtype is not None and array.dtype.kind not in "iub":
                array = array.astype(self.dtype)
            return self._aligned_any(array, tuple(a for a in e.axes if isinstance(a, str)))
        if isinstance(e, Ref):
            _, array = self.values[e.name]
            return self._aligned_any(array, e.axes)
        if isinstance(e, Idx):
            return self.align(np.arange(self.size(e.axis)), (e.axis,))
        if isinstance(e, Size):
            return self.size(e.axis)
        if isinstance(e, Cast):
            return np.asarray(self(e.body)).astype(numpy_dtype(e.dtype) if self.dtype is None else self.dtype)
        if isinstance(e, Op):
            return OPS[e.fn].numpy(*(self(a) for a in e.args))
        if isinstance(e, Reduce):
            return self.reduce(e.monoid, e.axis, e.body)
        raise TypeError(f"{type(e).__name__} has no value at the term level")

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
        value = np.asarray(self(body))
        shape = [1] * len(self.order) if value.ndim == 0 else list(value.shape)
        shape[position] = self.size(axis)
        value = np.broadcast_to(value, shape)
        op = MONOIDS[monoid]
        with np.errstate(all="ignore"):
            if monoid in ("max", "min") and value.dtype.kind == "f":
                return np.asarray(op.reduce(value, axis=position, keepdims=True, initial=op.identity))
            if shape[position] == 0:
                dtype = value.dtype if monoid in ("sum", "prod") else float
                return np.full([1 if i == position else n for i, n in enumerate(shape)], op.identity, dtype)
            return np.asarray(op.reduce(value, axis=position, keepdims=True))

    def output(self, o: Out) -> np.ndarray[Any, Any]:
        """The value of an output, dimensions in the order of `o.axes`."""
        value = np.broadcast_to(self(o.expr), [self.size(a) if a in o.axes else 1 for a in self.order])
        kept = [a for a in self.order if a in o.axes]
        array = value.reshape([self.size(a) for a in kept]).transpose([kept.index(a) for a in o.axes])
        return np.array(array, dtype=numpy_dtype(o.dtype) if self.dtype is None else None)


def run_term(t: Term, arrays: Arrays, dtype: Any = None) -> dict[str, np.ndarray[Any, Any]]:
    """Outputs of a term by its definition (`dtype`: compute in this float type)."""
    sizes = axis_sizes(t.tensors, arrays, {a.name: a.size for a in t.axes})
    ev = Evaluator([a.name for a in t.axes], sizes, arrays, t.tensors, dtype)
    for let in t.lets:
        ev.define(let.name, let.axes, ev(let.expr))
    return {o.name: ev.output(o) for o in t.outs}


def run_cascade(
    c: Cascade, arrays: Arrays, dtype: Any = None, sizes: Mapping[str, int] | None = None
) -> dict[str, np.ndarray[Any, Any]]:
    """Reductions and outputs of a cascade by its definition, one full reduction after the other.

    `sizes`: lengths of axes that no tensor of this cascade carries (a cascade of a larger term may still mention them).
    """
    sizes = axis_sizes(c.tensors, arrays, {**{a.name: a.size for a in c.axes}, **(sizes or {})})
    ev = Evaluator([a.name for a in c.axes], sizes, arrays, c.tensors, dtype)
    pending: list[Let | Reduction] = [*c.producers, *c.reductions]
    from redfuser.ir.expr import refs

    results: dict[str, np.ndarray[Any, Any]] = {}
    while pending:
        for item in pending:
            expr = item.expr if isinstance(item, Let) else item.body
            if refs(expr) <= set(ev.values):
                break
        else:
            raise ShapeError(f"cascade {c.name} reads an undefined name")
        pending.remove(item)
        if isinstance(item, Let):
            ev.define(item.name, item.axes, ev(item.expr))
        else:
            assert c.axis is not None
            ev.define(item.name, item.axes, ev.reduce(item.monoid, c.axis, item.body))
            results[item.name] = ev.values[item.name][1]
    return results | {o.name: ev.output(o) for o in c.outs}
