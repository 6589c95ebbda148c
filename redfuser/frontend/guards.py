"""What must still hold for a trace to be valid: answers about sizes, and what the function read from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from redfuser.frontend.source import SourceLine

_DEPTH = 3  # containers and objects are looked into this deep
_SIMPLE = (bool, int, float, complex, str, bytes, type(None), np.generic, np.dtype, slice)


@dataclass(frozen=True)
class SizeGuard:
    """A question about sizes that decided a branch: the trace is valid while node `node` evaluates to `expected`."""

    node: int
    expected: bool
    source: SourceLine | None

    def __str__(self) -> str:
        where = "" if self.source is None else f" ({self.source})"
        return f"the condition %{self.node} on sizes is {self.expected}{where}"


@dataclass(frozen=True)
class ScopeGuard:
    """A name read from outside the function: the trace is valid while what it holds has the same fingerprint.

    `attributes`: names the code mentions, which may be read from an object. `kept` is the object itself, held so that
    identities in the fingerprint stay unique.
    """

    scope: Mapping[str, Any]
    name: str
    attributes: frozenset[str]
    seen: Any
    kept: Any = field(repr=False)

    @staticmethod
    def of(scope: Mapping[str, Any], name: str, attributes: frozenset[str]) -> ScopeGuard:
        """The guard for the present value of a name."""
        return ScopeGuard(scope, name, attributes, fingerprint(scope[name], attributes), scope[name])

    def holds(self) -> bool:
        """True while the name is bound to an equal number or string, or to the same object with the same contents."""
        return self.name in self.scope and fingerprint(self.scope[self.name], self.attributes) == self.seen

    def __str__(self) -> str:
        shown = repr(self.kept) if isinstance(self.kept, _SIMPLE) else f"the same {type(self.kept).__name__}"
        return f"{self.name} is {shown}"


def fingerprint(value: Any, attributes: frozenset[str], depth: int = _DEPTH) -> Any:
    """A comparable picture of a value: numbers and strings by value, containers by their contents, objects by identity
    and the named `attributes`, functions by identity, arrays by identity and shape (elements are read at each call)."""
    if isinstance(value, _SIMPLE):
        return type(value), repr(value)  # repr tells 0.0 from -0.0 and lets NaN equal itself
    if depth and isinstance(value, (list, tuple, set, frozenset)):
        return type(value), tuple(fingerprint(x, attributes, depth - 1) for x in value)
    if depth and isinstance(value, dict):
        items = [(fingerprint(key, attributes, 1), fingerprint(x, attributes, depth - 1)) for key, x in value.items()]
        return dict, tuple(items)
    if isinstance(value, np.ndarray):
        return id(value), value.dtype, value.shape
    if not depth or isinstance(value, (FunctionType, ModuleType, type)):
        return id(value)
    contents = getattr(value, "__dict__", {})
    read = sorted(attributes & contents.keys())
    return id(value), tuple((name, fingerprint(contents[name], attributes, depth - 1)) for name in read)
