"""Reductions of something constant along the stream."""

from __future__ import annotations

from redfuser.ir import Expr, Size
from redfuser.rules.language import STREAM, Max, Min, Sum, rule


@rule("exact", free_of="f")
def sum_constant(f: Expr) -> tuple[Expr, Expr]:
    """sum f = n f for f free of the stream of length n"""
    return Sum(f), Size(STREAM) * f


@rule("exact", free_of="f")
def max_constant(f: Expr) -> tuple[Expr, Expr]:
    """max f = f for f free of a non-empty stream"""
    return Max(f), f


@rule("exact", free_of="f")
def min_constant(f: Expr) -> tuple[Expr, Expr]:
    """min f = f for f free of a non-empty stream"""
    return Min(f), f


RULES = (sum_constant, max_constant, min_constant)
