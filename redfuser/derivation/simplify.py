"""Collapse what becomes trivial: x - x, x + 0, x * 1, exp 0, and exponentials common to both sides of a quotient."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TypeGuard

from redfuser.ir import Const, Expr, Op, children, op, rewrite, with_children, written_size

ZERO, ONE = Const(0), Const(1)
LARGEST = 10_000
"""Nodes of a product whose factors are looked at."""


def _is(e: Expr, value: int) -> bool:
    return isinstance(e, Const) and not isinstance(e.value, bool) and e.value == value


def _step(e: Expr) -> Expr | None:
    if not isinstance(e, Op):
        return None
    a, b = e.args[0], e.args[-1]
    if e.fn in ("add", "sub") and _is(b, 0):
        return a
    if e.fn == "add" and _is(a, 0):
        return b
    if e.fn == "sub":
        return ZERO if a == b else -b if _is(a, 0) else None
    if e.fn == "mul":
        return ZERO if _is(a, 0) or _is(b, 0) else b if _is(a, 1) else a if _is(b, 1) else None
    if e.fn == "div" and _is(b, 1):
        return a
    if e.fn == "neg" and _is(a, 0):
        return ZERO
    return ONE if e.fn in ("exp", "exp2") and _is(a, 0) else None


def collapse(e: Expr) -> Expr:
    """`e` without terms that are 0 and factors that are 1. Exact over the reals."""
    return rewrite(e, _step)


def cancel_exponentials(e: Expr) -> Expr:
    """`e` without exponentials that are factors of both sides of a quotient: they are never 0. Exact over the reals."""
    known: dict[Expr, Expr] = {}

    def go(x: Expr) -> Expr:
        if x not in known:
            known[x] = _cancelled(x, go)
        return known[x]

    return go(e)


def _cancelled(e: Expr, inner: Callable[[Expr], Expr]) -> Expr:
    """One node; `inner`: the same for what it is made of."""
    if not _is_product(e):
        return with_children(e, tuple(map(inner, children(e))))
    above, below = (list(map(inner, side)) for side in _factors(e))
    common = [x for x in above if isinstance(x, Op) and x.fn in ("exp", "exp2") and x in below]
    if not common:
        return with_children(e, tuple(map(inner, children(e))))
    for x in common:
        if x in below:
            above.remove(x)
            below.remove(x)
    numerator = _product(above)
    return op("div", numerator, _product(below)) if below else numerator


def _is_product(e: Expr) -> TypeGuard[Op]:
    """Whether it is looked at factor by factor: a very large one may be a product of itself, again and again."""
    return isinstance(e, Op) and e.fn in ("mul", "div") and written_size(e) <= LARGEST


def _product(factors: list[Expr]) -> Expr:
    return reduce(lambda a, b: op("mul", a, b), factors) if factors else ONE


def _factors(e: Expr) -> tuple[list[Expr], list[Expr]]:
    """Factors above and below of products and quotients."""
    if not _is_product(e):
        return [e], []
    (a, b), (c, d) = map(_factors, e.args)
    return (a + c, b + d) if e.fn == "mul" else (a + d, b + c)
