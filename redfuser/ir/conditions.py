"""Conditions as lists of comparisons: `0 <= p & p <= 1` states two facts."""

from __future__ import annotations

from collections.abc import Iterator

from redfuser.ir.expr import Const, Expr, Op

_NEGATED = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}
COMPARISONS = frozenset(_NEGATED)


def comparisons(e: Expr) -> Iterator[Expr]:
    """The comparisons whose conjunction a condition is.

    Parts that state nothing about numbers (flags, literal truth values, alternatives joined by `|`) are left out: a
    fact less is never wrong.
    """
    if not isinstance(e, Op):
        return
    if e.fn in COMPARISONS:
        if not all(isinstance(a, Const) for a in e.args):
            yield e
    elif e.fn == "and":
        for part in e.args:
            yield from comparisons(part)
    elif e.fn == "not" and isinstance(e.args[0], Op):
        inner = e.args[0]
        if inner.fn in COMPARISONS:
            yield Op(_NEGATED[inner.fn], inner.args)
        elif inner.fn == "or":
            for part in inner.args:
                yield from comparisons(Op("not", (part,)))
        elif inner.fn == "not":
            yield from comparisons(inner.args[0])
