"""Selections: a value where a condition holds, a neutral value elsewhere."""

from __future__ import annotations

from redfuser.ir import NEG_INF, POS_INF, Expr, select
from redfuser.rules.language import rule


@rule("exact", free_of="f", varying="a")
def masked_factor(c: Expr, a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """(a f where c, else 0) = (a where c, else 0) f"""
    return select(c, a * f, 0), select(c, a, 0) * f


@rule("exact")
def masked_sum(c: Expr, a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """(a + b where c, else 0) = (a where c, else 0) + (b where c, else 0)"""
    return select(c, a + b, 0), select(c, a, 0) + select(c, b, 0)


@rule("exact", free_of="f", varying="a")
def masked_term(c: Expr, a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """(a + f where c, else -inf) = (a where c, else -inf) + f"""
    return select(c, a + f, NEG_INF), select(c, a, NEG_INF) + f


@rule("exact", free_of="f", varying="a")
def masked_term_above(c: Expr, a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """(a + f where c, else +inf) = (a where c, else +inf) + f"""
    return select(c, a + f, POS_INF), select(c, a, POS_INF) + f


@rule("exact", free_of="f", varying="c")
def masked_constant(c: Expr, f: Expr) -> tuple[Expr, Expr]:
    """(f where c, else 0) = (1 where c, else 0) f"""
    return select(c, f, 0), select(c, 1, 0) * f


RULES = (masked_factor, masked_sum, masked_term, masked_term_above, masked_constant)
