"""Move stream-free terms and factors outward, distribute over sums that vary, pull factors out of a Sum.

There is no associativity: with it the e-graph explodes. What the derivation needs of it are the directed forms below,
which collect everything free of the stream on the outside.
"""

from __future__ import annotations

from redfuser.ir import Expr
from redfuser.rules.language import Sum, at_most, nontrivial, number, rule, separable, varies


@rule("exact", free_of="f", varying="a b")
def float_factor(a: Expr, b: Expr, f: Expr) -> tuple[Expr, Expr]:
    """(a f) b = (a b) f: a stream-free factor moves outward"""
    return (a * f) * b, (a * b) * f


@rule("exact", free_of="f", varying="a b")
def float_term(a: Expr, b: Expr, f: Expr) -> tuple[Expr, Expr]:
    """(a + f) + b = (a + b) + f: a stream-free term moves outward"""
    return (a + f) + b, (a + b) + f


@rule("exact", free_of="f g", varying="a")
def join_factors(a: Expr, f: Expr, g: Expr) -> tuple[Expr, Expr]:
    """(a f) g = a (f g): stream-free factors join"""
    return (a * f) * g, a * (f * g)


@rule("exact", free_of="f g", varying="a")
def join_terms(a: Expr, f: Expr, g: Expr) -> tuple[Expr, Expr]:
    """(a + f) + g = a + (f + g): stream-free terms join"""
    return (a + f) + g, a + (f + g)


@rule("exact", free_of="f g", varying="a", where=[at_most("a", "f")])
def split_bound(a: Expr, f: Expr, g: Expr) -> tuple[Expr, Expr]:
    """a - (f + g) = (a - f) - g for a <= f: the difference that has a bound stands alone"""
    return a - (f + g), (a - f) - g


@rule("exact", where=[number("q")])
def float_number(q: Expr, a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """(q a) b = q (a b) for a number q"""
    return (q * a) * b, q * (a * b)


@rule("exact", where=lambda a, b, c: (separable(b + c), varies(b + c), nontrivial(b + c), *map(nontrivial, (a, b, c))))
def distribute(a: Expr, b: Expr, c: Expr) -> tuple[Expr, Expr]:
    """a (b + c) = a b + a c"""
    return a * (b + c), a * b + a * c


@rule("exact")
def sum_of_sum(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """sum (a + b) = sum a + sum b"""
    return Sum(a + b), Sum(a) + Sum(b)


@rule("exact", free_of="f", varying="a")
def sum_factor(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """sum (a f) = (sum a) f for f free of the stream"""
    return Sum(a * f), Sum(a) * f


RULES = (float_factor, float_term, join_factors, join_terms, split_bound, float_number, distribute, sum_of_sum,
         sum_factor)
