"""Collapse what becomes trivial: x - x, x + 0, x * 1, exp 0, and exponentials common to both sides of a quotient."""

from __future__ import annotations

from functools import reduce

from redfuser.ir import Const, Expr, Op, children, op, rewrite, with_children

ZERO, ONE = Const(0), Const(1)


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
    if not isinstance(e, Op) or e.fn not in ("mul", "div"):
        return with_children(e, tuple(map(cancel_exponentials, children(e))))
    above, below = (list(map(cancel_exponentials, side)) for side in _factors(e))
    common = [x for x in above if isinstance(x, Op) and x.fn in ("exp", "exp2") and x in below]
    if not common:
        return with_children(e, tuple(map(cancel_exponentials, children(e))))
    for x in common:
        if x in below:
            above.remove(x)
            below.remove(x)
    numerator = _product(above)
    return op("div", numerator, _product(below)) if below else numerator


def _product(factors: list[Expr]) -> Expr:
    return reduce(lambda a, b: op("mul", a, b), factors) if factors else ONE


def _factors(e: Expr) -> tuple[list[Expr], list[Expr]]:
    """Factors above and below of products and quotients."""
    if not isinstance(e, Op) or e.fn not in ("mul", "div"):
        return [e], []
    (a, b), (c, d) = map(_factors, e.args)
    return (a + c, b + d) if e.fn == "mul" else (a + d, b + c)
