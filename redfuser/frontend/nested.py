"""Nested arguments: dicts, tuples, lists, named tuples and dataclasses of arrays, taken apart into named leaves."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from redfuser.errors import ArgumentError
from redfuser.frontend.spec import Spec

Kind = Any
"""What an argument is made of, hashable: None for a leaf, else (class, keys, kinds of the items)."""

MOST_LEVELS = 64
"""Levels of nesting that are followed; a list that holds itself has no end."""

_NUMBERS = (bool, int, float, np.generic)


class LeafName(str):
    """The name of a leaf, an identifier (`params_layers_0`). Messages show the path that leads there:
    its `repr` is `params['layers'][0]`."""

    path: str

    def __new__(cls, name: str, path: str) -> LeafName:
        made = super().__new__(cls, name)
        made.path = path
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return LeafName, (str(self), self.path)

    def __repr__(self) -> str:
        return self.path


@dataclass(frozen=True)
class Nested:
    """An argument of `trace` that is made of several: its kind, and what stands for each leaf, by name."""

    kind: Kind
    leaves: Mapping[LeafName, Any]

    def build(self, stand_in: Callable[[LeafName, Any], Any]) -> Any:
        """The same structure around what `stand_in` gives for each leaf."""
        return put_together(self.kind, iter([stand_in(name, x) for name, x in self.leaves.items()]))


def _items(value: Any) -> tuple[tuple[Any, ...], Sequence[Any]] | None:
    """The keys and items of a structure; None for anything else."""
    if isinstance(value, dict):
        return tuple((type(k), k) for k in value), tuple(value.values())
    if isinstance(value, (tuple, list)):
        return getattr(value, "_fields", ()), value
    if is_dataclass(value) and not isinstance(value, (type, Spec)) and not hasattr(value, "__array__"):
        names = tuple(f.name for f in fields(value))
        return names, [getattr(value, n) for n in names]
    return None


def is_structure(value: Any) -> bool:
    """True for what is taken apart. A list or tuple of numbers alone is one array, however it is nested."""
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return not _only_numbers(value)
    return _items(value) is not None


def _only_numbers(value: Sequence[Any], level: int = 0) -> bool:
    return level < MOST_LEVELS and all(
        isinstance(x, _NUMBERS) or (type(x) in (list, tuple) and _only_numbers(x, level + 1)) for x in value)


def take_apart(value: Any, leaves: list[Any], where: str, level: int = 0) -> Kind:
    """The kind of a structure; its leaves are appended to `leaves`, in order.

    Raises
    ------
    ArgumentError
        naming `where`, when there is no end to the nesting.
    """
    found = None if type(value) is np.ndarray else _items(value)
    if found is None:
        leaves.append(value)
        return None
    if level == MOST_LEVELS:
        raise ArgumentError(f"{where} nests more than {MOST_LEVELS} levels; pass the arrays it holds in a flatter one")
    keys, items = found
    return type(value), keys, tuple([take_apart(x, leaves, where, level + 1) for x in items])


def put_together(kind: Kind, leaves: Iterator[Any]) -> Any:
    """A structure of this kind around the `leaves`."""
    if kind is None:
        return next(leaves)
    cls, keys, kinds = kind
    items = [put_together(k, leaves) for k in kinds]
    if issubclass(cls, dict):
        pairs = zip((k for _, k in keys), items, strict=True)
        if issubclass(cls, OrderedDict):
            return cls(pairs)
        made = cls.__new__(cls)
        dict.update(made, pairs)
        return made
    if issubclass(cls, list):
        return items
    if issubclass(cls, tuple):
        return cls(*items) if keys else tuple(items)
    made = object.__new__(cls)  # without __init__, which may convert what it is given
    for name, item in zip(keys, items, strict=True):
        object.__setattr__(made, name, item)
    return made


def leaf_names(parameter: str, kind: Kind, taken: Collection[str]) -> tuple[LeafName, ...]:
    """A name for each leaf of an argument, none of them among those `taken`."""
    names: list[LeafName] = []
    used = set(taken)
    for path in _paths(kind, parameter):
        words = re.sub(r"\W+", "_", path).strip("_") or parameter
        name, suffix = words, 1
        while name in used:
            suffix += 1
            name = f"{words}_{suffix}"
        used.add(name)
        names.append(LeafName(name, path))
    return tuple(names)


def _paths(kind: Kind, path: str) -> Iterator[str]:
    if kind is None:
        yield path
        return
    cls, keys, kinds = kind
    for i, k in enumerate(kinds):
        step = f"[{keys[i][1]!r}]" if issubclass(cls, dict) else f".{keys[i]}" if keys else f"[{i}]"
        yield from _paths(k, path + step)
