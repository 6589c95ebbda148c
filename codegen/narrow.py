"""Reductions that a single element enters: `sum over n of (x[n] where n == j, else 0)` is x[j], if there is one."""

from __future__ import annotations

from collections.abc import Mapping

from redfuser.codegen.kinds import INT, kind_of
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf, If, LetInt, LetScalar, Red, Set, Stmt
from redfuser.ir import MONOIDS, Const, Expr, Op, Var, op, substitute, walk


def only_place(r: Red, var: str, kinds: Mapping[str, str]) -> tuple[Expr, Expr] | None:
    """(place, expression) when only the element at `place` enters a reduction over `var`; None for others.

    Every other element must be the identity of the monoid, and the place the same for all of them.
    """
    e = r.expr
    if not (isinstance(e, Op) and e.fn == "select"):
        return None
    condition, value, rest = e.args
    neutral = isinstance(rest, Const) and r.monoid in MONOIDS and rest.value == MONOIDS[r.monoid].identity
    if not (neutral and isinstance(condition, Op) and condition.fn == "eq"):
        return None
    for lane, place in (condition.args, condition.args[::-1]):
        if lane == Var(var) and Var(var) not in walk(place) and kind_of(place, kinds) == INT:
            return place, value
    return None


def read_place(r: Red, var: str, found: tuple[Expr, Expr], lo: Expr, hi: Expr, names: Names) -> list[Stmt]:
    """Statements that give such a reduction over [lo, hi) its value. `found`: what `only_place` told of it."""
    place, value = found
    at, dtype = names.integer("place"), names.dtypes[r.name]
    cell = At(Buf(names.fresh(f"{r.name}_place"), (), "reg", dtype))
    inside = op("and", op("le", lo, at), op("lt", at, hi))
    return [LetInt(at.name, place), Set(cell, Const(MONOIDS[r.monoid].identity)),
            If(inside, (Set(cell, substitute(value, {Var(var): at})),)), LetScalar(r.name, cell, dtype)]
