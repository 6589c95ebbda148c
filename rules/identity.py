"""Zero, one, inverses, order of operands, arithmetic of literal numbers."""

from __future__ import annotations

from redfuser.ir import Expr
from redfuser.rules.language import nonzero, number, rule


@rule("exact", phase="commute")
def commute_add(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a + b = b + a"""
    return a + b, b + a


@rule("exact", phase="commute")
def commute_mul(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a b = b a"""
    return a * b, b * a


@rule("exact", phase="simplify")
def add_zero(a: Expr) -> tuple[Expr, Expr]:
    """a + 0 = a"""
    return a + 0, a


@rule("exact", phase="simplify")
def zero_add(a: Expr) -> tuple[Expr, Expr]:
    """0 + a = a"""
    return 0 + a, a


@rule("exact", phase="simplify")
def mul_one(a: Expr) -> tuple[Expr, Expr]:
    """a 1 = a"""
    return a * 1, a


@rule("exact", phase="simplify")
def one_mul(a: Expr) -> tuple[Expr, Expr]:
    """1 a = a"""
    return 1 * a, a


@rule("exact", phase="simplify")
def mul_zero(a: Expr) -> tuple[Expr, int]:
    """a 0 = 0"""
    return a * 0, 0


@rule("exact", phase="simplify")
def zero_mul(a: Expr) -> tuple[Expr, int]:
    """0 a = 0"""
    return 0 * a, 0


@rule("exact", phase="simplify")
def cancel(a: Expr) -> tuple[Expr, int]:
    """a - a = 0"""
    return a - a, 0


@rule("exact", phase="simplify", where=[nonzero("a")])
def inverse(a: Expr) -> tuple[Expr, int]:
    """a / a = 1 for a != 0"""
    return a * (1 / a), 1


@rule("exact", where=[nonzero("b")])
def cancel_factor(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """a b / b = a for b != 0"""
    return (a * b) * (1 / b), a


@rule("exact", phase="simplify", where=[number("p"), number("q")])
def fold_add(p: Expr, q: Expr) -> tuple[Expr, Expr]:
    """the sum of two numbers is a number"""
    return p + q, p + q


@rule("exact", phase="simplify", where=[number("p"), number("q")])
def fold_mul(p: Expr, q: Expr) -> tuple[Expr, Expr]:
    """the product of two numbers is a number"""
    return p * q, p * q


@rule("exact", phase="simplify", where=[number("q"), nonzero("q")])
def fold_inverse(q: Expr) -> tuple[Expr, Expr]:
    """the inverse of a number other than 0 is a number"""
    return 1 / q, 1 / q


RULES = (commute_add, commute_mul, add_zero, zero_add, mul_one, one_mul, mul_zero, zero_mul, cancel, inverse,
         cancel_factor, fold_add, fold_mul, fold_inverse)
