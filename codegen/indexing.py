"""Positions and conversions that all builders need."""

from __future__ import annotations

from collections.abc import Sequence

from redfuser.codegen.kinds import BOOL, as_number, as_truth, kind_of
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import LetInt, Stmt
from redfuser.extract.algebra import affine, from_affine
from redfuser.ir import Const, Expr, op

LANE_PAD = 64
"""Elements after the end of a scratch row that a vector may touch: one vector of any supported width."""


def product(factors: Sequence[Expr]) -> Expr:
    """The product of integer expressions, 1 for none."""
    if not factors:
        return Const(1)
    e = factors[0]
    for f in factors[1:]:
        e = op("mul", e, f)
    return e


def ceil_div(a: Expr, b: int) -> Expr:
    """The number of pieces of `b` elements that cover `a`."""
    if isinstance(a, Const):
        return Const(-(-int(a.value) // b))
    return op("idiv", op("add", a, b - 1), b) if b != 1 else a


def tidy(e: Expr) -> Expr:
    """A linear integer expression in its shortest form (b0 + j - b0 is j); any other as it is."""
    form = affine(e)
    return e if form is None else from_affine(form)


def unravel_sizes(
    names: Names, index: Expr, extents: Sequence[tuple[str, Expr]]
) -> tuple[list[Stmt], dict[str, Expr]]:
    """Split a task number into positions, the last dimension fastest: statements, and name -> position."""
    out: list[Stmt] = []
    positions: dict[str, Expr] = {}
    rest = index
    for number in range(len(extents) - 1, -1, -1):
        name, extent = extents[number]
        position = names.integer(name)
        positions[name] = position
        if number == 0:
            out.append(LetInt(position.name, rest))
            break
        out.append(LetInt(position.name, op("imod", rest, extent)))
        quotient = names.integer("rest")
        out.append(LetInt(quotient.name, op("idiv", rest, extent)))
        rest = quotient
    return out, positions


def typed(value: Expr, dtype: str, names: Names, compute: str) -> Expr:
    """`value` as something that may be stored to a buffer of `dtype`: truth values and numbers do not mix."""
    if dtype == "bool":
        return as_truth(value, names.kinds)
    return as_number(value, names.kinds, compute) if kind_of(value, names.kinds) == BOOL else value
