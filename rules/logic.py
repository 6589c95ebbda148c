"""Some and all: comparisons with something free of the stream are decided by an extreme.

An empty stream decides them by its monoid: nothing of nothing exceeds a bound, all of nothing stays within it, also
where the bound is undefined.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from redfuser.ir import Expr, Reduce, Size, op, wrap
from redfuser.rules.language import STREAM, Max, Min, Rule, rule


def Some(body: Any) -> Expr:
    """Whether a condition holds for some element of the stream."""
    return Reduce("any", STREAM, wrap(body))


def All(body: Any) -> Expr:
    """Whether a condition holds for all elements of the stream."""
    return Reduce("all", STREAM, wrap(body))


def _some(name: str, compare: Callable[[Any, Any], Expr], extreme: Callable[[Any], Expr]) -> Rule:
    """Some element is beyond a bound exactly when the extreme is."""

    def law(a: Expr, f: Expr) -> tuple[Expr, Expr]:
        return Some(compare(a, f)), compare(extreme(a), f)

    law.__doc__ = f"some a {_SIGNS[name]} f exactly when {extreme.__name__.lower()} a {_SIGNS[name]} f"
    return rule("exact", free_of="f", varying="a", name=f"some-{name}", group="logic")(law)


def _all(name: str, compare: Callable[[Any, Any], Expr], extreme: Callable[[Any], Expr]) -> Rule:
    """All elements are within a bound exactly when the extreme is, or there are none."""

    def law(a: Expr, f: Expr) -> tuple[Expr, Expr]:
        return All(compare(a, f)), compare(extreme(a), f) | op("eq", Size(STREAM), 0)

    law.__doc__ = f"all a {_SIGNS[name]} f exactly when {extreme.__name__.lower()} a {_SIGNS[name]} f, or n = 0"
    return rule("exact", free_of="f", varying="a", name=f"all-{name}", group="logic")(law)


def _turned(name: str, compare: Callable[[Any, Any], Expr], other: Callable[[Any, Any], Expr]) -> Rule:
    """The same comparison with the varying operand first."""

    def law(a: Expr, f: Expr) -> tuple[Expr, Expr]:
        return compare(f, a), other(a, f)

    law.__doc__ = f"f {_SIGNS[name]} a is the same comparison read from the right"
    return rule("exact", free_of="f", varying="a", name=f"turn-{name}", group="logic")(law)


_SIGNS = {"greater": ">", "greater-equal": ">=", "less": "<", "less-equal": "<="}
_UPPER = (("greater", operator.gt), ("greater-equal", operator.ge))
_LOWER = (("less", operator.lt), ("less-equal", operator.le))

RULES = (
    *(_some(name, compare, Max) for name, compare in _UPPER), *(_some(name, compare, Min) for name, compare in _LOWER),
    *(_all(name, compare, Min) for name, compare in _UPPER), *(_all(name, compare, Max) for name, compare in _LOWER),
    *(_turned(name, compare, other) for (name, compare), (_, other) in
      (*zip(_UPPER, _LOWER, strict=True), *zip(_LOWER, _UPPER, strict=True))),
)
