"""Nested results: tuples, lists, dicts and named tuples of arrays, taken apart and put together again.

Arrays that are joined (`np.stack`) are such a structure too, which NumPy puts together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redfuser.frontend.join import Join, Joined


@dataclass(frozen=True)
class Leaf:
    """Stands for the array at `position` in the flat list. `path` leads to it: tuple positions and dict keys."""

    position: int
    path: tuple[str, ...] = ()


def flatten(value: Any, is_leaf: Callable[[Any], bool]) -> tuple[list[Any], Any]:
    """The leaves of a nested value in order, and the template with a `Leaf` in the place of each."""
    leaves: list[Any] = []

    def go(x: Any, path: tuple[str, ...]) -> Any:
        if is_leaf(x):
            leaves.append(x)
            return Leaf(len(leaves) - 1, path)
        if isinstance(x, (tuple, list)):
            return _same_kind(x, [go(item, (*path, str(i))) for i, item in enumerate(x)])
        if isinstance(x, Joined) and x.known is not None:  # it may have been changed since
            return go(x.known, path)
        if isinstance(x, (Joined, Join)):
            parts = tuple([go(item, (*path, str(i))) for i, item in enumerate(x.parts)])
            return Join(x.function, parts, x.keywords, x.source)
        if isinstance(x, dict):
            return {key: go(item, (*path, str(key))) for key, item in x.items()}
        return x

    template = go(value, ())
    return leaves, template


def unflatten(template: Any, leaves: Sequence[Any], wrap: Callable[[Any], Any] | None = None) -> Any:
    """The nested value with `leaves` in the places of the template's `Leaf`s. `wrap`: done to each array of the result.

    Raises
    ------
    ShapeError
        when arrays that are to be joined do not fit together.
    """
    if isinstance(template, Leaf):
        return leaves[template.position] if wrap is None else wrap(leaves[template.position])
    if isinstance(template, (tuple, list)):
        return _same_kind(template, [unflatten(item, leaves, wrap) for item in template])
    if isinstance(template, Mapping):
        return {key: unflatten(item, leaves, wrap) for key, item in template.items()}
    if isinstance(template, Join):
        array = template.apply([unflatten(part, leaves) for part in template.parts])
        return array if wrap is None else wrap(array)
    return template


def leaves_of(template: Any) -> list[Leaf]:
    """The `Leaf`s of a template in order."""
    return flatten(template, lambda x: isinstance(x, Leaf))[0]


def joins_of(template: Any) -> list[Join]:
    """The joined arrays of a template, those inside others excepted."""
    return [x for x in flatten(template, lambda x: isinstance(x, (Leaf, Join)))[0] if isinstance(x, Join)]


def _same_kind(like: tuple[Any, ...] | list[Any], items: list[Any]) -> Any:
    if isinstance(like, list):
        return items
    return type(like)(*items) if hasattr(like, "_fields") else tuple(items)
