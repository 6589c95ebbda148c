"""Sizes of a reshaped array: which dimensions are merged, which are split.

The lengths seen while tracing decide how the dimensions of the target correspond to those of the source. Both become
products of common parts ("atoms").
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from redfuser.errors import ShapeError, TraceError
from redfuser.frontend.dims import Dim, Shape, show_shape
from redfuser.frontend.record import Value, refuse_argument
from redfuser.frontend.source import located
from redfuser.frontend.tracer import Tracer


class _Entry:
    """One entry of a target shape. `free`: it follows from the others (-1), or is the size `own` itself."""

    def __init__(self, entry: Any) -> None:
        value = entry.value if isinstance(entry, Tracer) else None
        self.own: Dim | None = value.param.find() if value is not None and value.op == "size" else None
        self.mentioned = [] if value is None else list(_sizes(value))
        self.number = entry if value is None else _number(value)

    @property
    def free(self) -> bool:
        return self.number == -1 or self.own is not None


def _sizes(v: Value) -> Iterator[Dim]:
    """The sizes that a number was computed from."""
    if v.op == "size":
        yield v.param.find()
    for x in v.inputs:
        yield from _sizes(x)


def _number(v: Value) -> Any:
    """The length that arithmetic on sizes gives while tracing, None when a size is only a name."""
    if v.op == "size":
        return v.param.find().value
    if v.op == "const":
        return v.param
    inputs = [_number(x) for x in v.inputs]
    if v.op not in ("ufunc", "cast") or None in inputs:
        return None
    return getattr(np, v.param)(*inputs).item() if v.op == "ufunc" else inputs[0]


def regrouped(a: Value, entries: Sequence[Any]) -> Shape:
    """The shape of `a` reshaped (in C order) to `entries`: sizes, numbers, one of them may be -1.

    Raises
    ------
    ShapeError
        when the number of elements differs.
    TraceError
        when the correspondence of dimensions cannot be read off the lengths.
    """
    atoms = [x for d in a.shape if isinstance(d, Dim) for x in d.atoms()]
    lengths = [x.value for x in atoms]
    target = [_Entry(e) for e in entries]
    for e in entries:
        if isinstance(e, Tracer):
            refuse_argument(e.value, "the shape of a reshape")
    if not all(lengths) or any(not isinstance(t.number, (int, np.integer)) for t in target):
        raise TraceError(located(f"reshape of {show_shape(a.shape)} merges or splits axes, which takes known lengths "
                                 "other than 0; pass the array with its axes apart"))
    numbers = _completed([int(t.number) for t in target], math.prod(n for n in lengths if n is not None), a)
    groups = _groups(atoms, numbers, a)
    for t, group in zip(target, groups, strict=True):
        if not t.free or (t.own is not None and t.own.atoms() != tuple(x.find() for x in group)):
            for d in (*t.mentioned, *group):
                d.find().fixed = True
    return tuple(_dim(t, group) for t, group in zip(target, groups, strict=True))


def _completed(numbers: list[int], total: int, a: Value) -> list[int]:
    """The target lengths with -1 replaced."""
    known = math.prod(n for n in numbers if n != -1)
    found = [total // known if n == -1 and known > 0 else n for n in numbers]
    if numbers.count(-1) > 1 or math.prod(found) != total or any(n < 1 for n in found):
        raise ShapeError(located(f"{show_shape(a.shape)} with {total} elements cannot be reshaped to "
                                 f"({', '.join(map(str, numbers))})"))
    return found


def _groups(atoms: list[Dim], numbers: Sequence[int], a: Value) -> list[list[Dim]]:
    """For every target length the atoms whose product it is; atoms of the source are split where they must be."""
    todo, groups = list(atoms), []
    for number in numbers:
        group, left = [], number
        while left > 1:
            atom = todo.pop(0)
            length = atom.value or 1
            if length > left and length % left == 0:
                atom, rest = _split(atom, left)
                todo.insert(0, rest)
            elif left % length:
                raise TraceError(located(f"reshape of {show_shape(a.shape)} to ({', '.join(map(str, numbers))}) cuts "
                                         "across axes; pass the array in the new shape"))
            group.append(atom)
            left //= atom.value or 1
        groups.append(group)
    return groups


def _split(atom: Dim, first: int) -> tuple[Dim, Dim]:
    """Make a size the product of two; all three are static from now on."""
    parts = (Dim(value=first), Dim(value=(atom.value or first) // first))
    atom.parts = parts
    for d in (atom, *parts):
        d.fixed = True
    return parts


def _dim(t: _Entry, group: Sequence[Dim]) -> Dim | int:
    """The size of a target dimension."""
    if not group:
        return 1
    if t.own is not None and t.own.atoms() == tuple(x.find() for x in group):
        return t.own
    if len(group) == 1:
        return group[0].find()
    merged = Dim(value=math.prod(x.value or 1 for x in group))
    merged.parts = tuple(group)
    return merged
