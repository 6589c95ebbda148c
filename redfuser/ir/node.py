"""Base of the frozen trees of all levels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar, dataclass_transform


class Node:
    """Base of all nodes: immutable, with structural equality and a hash that is computed once."""

    _names: ClassVar[tuple[str, ...]] = ()
    _key_cache: ClassVar[tuple[Any, ...] | None] = None
    _hash_cache: ClassVar[int | None] = None

    def _key(self) -> tuple[Any, ...]:
        key = self._key_cache
        if key is None:
            key = (type(self).__name__, *(getattr(self, name) for name in self._names))
            object.__setattr__(self, "_key_cache", key)
        return key

    def __hash__(self) -> int:
        value = self._hash_cache
        if value is None:
            value = hash(self._key())
            object.__setattr__(self, "_hash_cache", value)
        return value

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Node) or type(self) is not type(other) or hash(self) != hash(other):
            return False
        if self._key() != other._key():
            return False
        object.__setattr__(other, "_key_cache", self._key())  # the next comparison finds the parts identical
        return True

    def __getstate__(self) -> dict[str, Any]:  # caches stay behind: string hashes differ between processes
        return {name: getattr(self, name) for name in self._names}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        for name, value in state.items():
            object.__setattr__(self, name, value)


NodeType = TypeVar("NodeType", bound=type)


@dataclass_transform(frozen_default=True, eq_default=False)
def node(cls: NodeType) -> NodeType:
    """Class decorator: a frozen dataclass with the equality of `Node`."""
    made: Any = dataclass(frozen=True, eq=False, repr=False)(cls)
    made._names = tuple(f.name for f in fields(made))
    return made  # type: ignore[no-any-return]
