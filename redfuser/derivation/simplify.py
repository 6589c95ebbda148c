"""Collapse what becomes trivial when old and new values are the same: x - x, x + 0, x * 1, exp 0."""

from __future__ import annotations

from redfuser.ir import Const, Expr, Op, rewrite

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
