"""Monoids whose values have several parts: the best element with its index, the k best, monoids of users.

A maximum is one number; where it is attained takes a second one, and both are combined together. `PartsMonoid` states
the parts, the value of nothing, and how two values combine, in expressions that every level reads. A value is read
through `Part`; in NumPy it is a structured array with one field per part.

Order of argmax and top-k: large values first (argmin, bottom-k: small ones), NaN before any number, among equal values
(and among NaN) the lower index first, empty places last. An empty place has index -1 and the value of nothing. As the
index decides ties, values may be combined in any order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from redfuser.errors import CheckError
from redfuser.ir.expr import Const, Expr, Op, Var, op, select
from redfuser.ir.ops import MONOIDS, OPS, Monoid, label

Array = np.ndarray[Any, Any]
KEY = "key"
"""Dtype of a part: that of the reduced expression."""
VALUE, INDEX = "value", "index"
NOWHERE = -1
"""Index of an empty place."""


@dataclass(frozen=True)
class PartsMonoid:
    """A reduction operator over values with several parts.

    name       what expressions call it
    parts      names of the parts
    dtypes     of the parts: `KEY`, or a NumPy dtype name
    identity   the value of nothing, part by part
    combine    the parts of the combined value, over `left(part)` and `right(part)`; () for sorted lists, of which the
               `rank` best elements of both remain
    rank       length of the sorted list; None when the value is no list
    largest    whether large values are good (top-k, argmax) or small ones; None when elements are not ordered
    ordered    whether only neighbours may be combined, the earlier one left
    """

    name: str
    parts: tuple[str, ...]
    dtypes: tuple[str, ...]
    identity: tuple[float | int, ...]
    combine: tuple[Expr, ...] = ()
    rank: int | None = None
    largest: bool | None = None
    ordered: bool = False

    @property
    def label(self) -> str:
        """The name as people read it."""
        return label(self.name)

    def dtype(self, key: Any) -> np.dtype[Any]:
        """The structured dtype of a value whose reduced expression has dtype `key`."""
        shape = () if self.rank is None else (self.rank,)
        fields: Any = [(p, np.dtype(key) if d == KEY else np.dtype(d), shape)
                       for p, d in zip(self.parts, self.dtypes, strict=True)]
        found: np.dtype[Any] = np.dtype(fields)
        return found

    def part_dtype(self, part: str) -> str:
        """Dtype of a part: `KEY`, or a NumPy dtype name."""
        return self.dtypes[self.parts.index(part)]

    def part_identity(self, part: str) -> float | int:
        """A part of the value of nothing."""
        return self.identity[self.parts.index(part)]

    def nothing(self, shape: tuple[int, ...], key: Any) -> Array:
        """The value of nothing, in an array of this shape."""
        value = np.empty(shape, self.dtype(key))
        for part, number in zip(self.parts, self.identity, strict=True):
            with np.errstate(invalid="ignore"):
                value[part] = np.asarray(number).astype(value.dtype[part].base)
        return value

    def combined(self, a: Array, b: Array) -> Array:
        """Both values in one, `a` the earlier."""
        if self.rank is not None:
            return self._best(np.concatenate([a[VALUE], b[VALUE]], -1), np.concatenate([a[INDEX], b[INDEX]], -1))
        given = {left(p): a[p] for p in self.parts} | {right(p): b[p] for p in self.parts}
        key = np.result_type(a[self.parts[0]], b[self.parts[0]])
        return self.value(*(evaluate(e, given) for e in self.combine), key=key)

    def value(self, *parts: Any, key: Any) -> Array:
        """The value with these parts, which broadcast to a common shape."""
        shape = np.broadcast_shapes(*(np.shape(p) for p in parts))
        dtype = self.dtype(key)
        result = np.empty(shape if self.rank is None else shape[:-1], dtype)
        for name, part in zip(self.parts, parts, strict=True):
            result[name] = part
        return result

    def reduce(self, *elements: Array, axis: int, start: int = 0) -> Array:
        """All elements along an axis in one value; the axis is kept with length 1.

        `elements`: the ordered numbers (their indices are their positions, from `start` on), or one array per part.
        """
        if self.largest is None:
            return self._folded(self.value(*elements, key=elements[0].dtype), axis)
        keys = np.moveaxis(np.asarray(elements[0]), axis, -1)
        indices = np.broadcast_to(np.arange(start, start + keys.shape[-1]), keys.shape)
        best = self._best(keys, indices, 1 if self.rank is None else self.rank)
        if self.rank is None:
            best = self.value(best[VALUE][..., 0], best[INDEX][..., 0], key=keys.dtype)
        return np.expand_dims(best, axis)

    def moved(self, value: Array, distance: int) -> Array:
        """A value whose elements lie further along the stream."""
        if self.largest is None or not distance:
            return value
        result = value.copy()
        result[INDEX] += np.where(result[INDEX] < 0, 0, distance)
        return result

    def _folded(self, value: Array, axis: int) -> Array:
        """Neighbours combined in rounds, so that the order of the elements is kept."""
        value = np.moveaxis(value, axis, 0)
        if not len(value):
            nothing = self.nothing(value.shape[1:], value.dtype[self.parts[0]].base)
            return np.moveaxis(nothing[None], 0, axis)
        while len(value) > 1:
            odd = value[len(value) - len(value) % 2 :]
            value = np.concatenate([self.combined(value[: len(value) - len(odd) : 2], value[1::2]), odd])
        return np.moveaxis(value, 0, axis)

    def _best(self, keys: Array, indices: Array, count: int | None = None) -> Array:
        """The best elements of the last axis, sorted; empty places fill up."""
        count = self.rank if count is None else count
        assert count is not None
        listed = PartsMonoid(self.name, self.parts, self.dtypes, self.identity, rank=count, largest=self.largest)
        order = np.lexsort(self._sort_keys(keys, indices), axis=-1)[..., :count]
        result = listed.nothing(keys.shape[:-1], keys.dtype)
        for name, part in ((VALUE, keys), (INDEX, indices)):
            result[name][..., : order.shape[-1]] = np.take_along_axis(part, order, -1)
        return result

    def _sort_keys(self, keys: Array, indices: Array) -> tuple[Array, ...]:
        """Columns to sort by, the last one first."""
        whole = keys.dtype.kind in "bu"
        number: Any = keys if keys.dtype.kind in "if" else keys.astype(np.int64 if whole else np.float32)
        if number.dtype.kind == "i":  # ~x is -x - 1, which exists for the smallest integer as well
            return indices, ~number if self.largest else number, indices < 0
        nan = np.isnan(number)
        return indices, np.where(nan, 0, -number if self.largest else number), ~nan, indices < 0


def left(part: str) -> str:
    """Name of the variable for a part of the earlier value in `combine`."""
    return f"a_{part}"


def right(part: str) -> str:
    """Name of the variable for a part of the later value in `combine`."""
    return f"b_{part}"


def evaluate(e: Expr, given: Mapping[str, Any]) -> Any:
    """An expression over variables, in NumPy."""
    if isinstance(e, Var):
        return given[e.name]
    if isinstance(e, Const):
        return float(e.value) if isinstance(e.value, Fraction) else e.value
    if isinstance(e, Op):
        with np.errstate(all="ignore"):
            return OPS[e.fn].numpy(*(evaluate(a, given) for a in e.args))
    raise TypeError(f"{type(e).__name__} cannot be part of the combination of two values")


def _arg(name: str, largest: bool) -> PartsMonoid:
    """The best element with its index."""
    value, index = [(Var(left(p)), Var(right(p))) for p in (VALUE, INDEX)]
    (a, b), (i, j) = value, index
    nan_a, nan_b = op("ne", a, a), op("ne", b, b)
    tie = op("or", op("eq", a, b), nan_a & nan_b)
    before = op("or", op("gt" if largest else "lt", b, a) & ~nan_a, nan_b & ~nan_a)
    later_wins = op("ge", j, 0) & (op("lt", i, 0) | before | (tie & op("lt", j, i)))
    best = select(later_wins, b, a), select(later_wins, j, i)
    nothing = -math.inf if largest else math.inf
    return PartsMonoid(name, (VALUE, INDEX), (KEY, "int64"), (nothing, NOWHERE), best, largest=largest)


_BUILT_IN = {m.name: m for m in (_arg("argmax", True), _arg("argmin", False))}
_LISTS = {"topk": True, "bottomk": False}
_OF_USERS: dict[str, PartsMonoid] = {}


def list_monoid(largest: bool, k: int) -> str:
    """Name of the monoid of the k best elements."""
    return f"{'topk' if largest else 'bottomk'}:{k}"


@lru_cache(maxsize=256)
def _list(name: str) -> PartsMonoid | None:
    kind, _, count = name.partition(":")
    if kind not in _LISTS or not count.isdecimal() or int(count) < 1:
        return None
    nothing = -math.inf if _LISTS[kind] else math.inf
    return PartsMonoid(name, (VALUE, INDEX), (KEY, "int64"), (nothing, NOWHERE), rank=int(count), largest=_LISTS[kind])


def find_parts(name: str) -> PartsMonoid | None:
    """The monoid with several parts of this name; None when there is none."""
    return _BUILT_IN.get(name) or _OF_USERS.get(name) or _list(name)


def has_parts(name: str) -> bool:
    """Whether values of this monoid are read through `Part`."""
    return find_parts(name) is not None


def parts_monoid(name: str) -> PartsMonoid:
    """The monoid with several parts of this name.

    Raises
    ------
    CheckError
        when there is none.
    """
    found = find_parts(name)
    if found is None:
        raise CheckError(f"unknown monoid {name!r}" + (
            ": it was defined by rf.monoid in another process; define it here as well" if "#" in name else ""))
    return found


def monoid(name: str) -> Monoid | PartsMonoid:
    """The monoid of this name.

    Raises
    ------
    CheckError
        when there is none.
    """
    return MONOIDS[name] if name in MONOIDS else parts_monoid(name)


def is_monoid(name: str) -> bool:
    """Whether a monoid of this name exists."""
    return name in MONOIDS or has_parts(name)


def register(m: PartsMonoid) -> None:
    """Make a monoid of a user known under its name (which holds a digest of its definition)."""
    _OF_USERS[m.name] = m


