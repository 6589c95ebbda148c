"""Selections: a value where a condition holds, a neutral value elsewhere."""

from __future__ import annotations

from redfuser.ir import NEG_INF, POS_INF, Expr, op, select
from redfuser.rules.language import Sum, at_most, nonunit, rule


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


@rule("exact", free_of="f", varying="c", where=[nonunit("f")])
def masked_constant(c: Expr, f: Expr) -> tuple[Expr, Expr]:
    """(f where c, else 0) = (1 where c, else 0) f"""
    return select(c, f, 0), select(c, 1, 0) * f


@rule("exact", free_of="d", varying="c")
def select_both(c: Expr, d: Expr, a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a where c and d, else b: first by c, then by d"""
    return select(c & d, a, b), select(d, select(c, a, b), b)


@rule("exact", free_of="d", varying="a")
def sum_of_choice(d: Expr, a: Expr) -> tuple[Expr, Expr]:
    """sum (a where d, else 0) = (sum a where d, else 0) for d free of the stream"""
    return Sum(select(d, a, 0)), select(d, Sum(a), 0)


@rule("exact", where=[at_most("a", "b")])
def reaches_upper(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a >= b is a = b for a <= b"""
    return a >= b, op("eq", a, b)


@rule("exact", where=[at_most("b", "a")])
def reaches_lower(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a <= b is a = b for b <= a"""
    return a <= b, op("eq", a, b)


@rule("exact", free_of="f", varying="a")
def turn_equal(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """f = a is a = f"""
    return op("eq", f, a), op("eq", a, f)


RULES = (
    select_both, sum_of_choice, reaches_upper, reaches_lower, turn_equal, masked_factor, masked_sum, masked_term,
    masked_term_above, masked_constant,
)
