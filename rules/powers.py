"""Powers, roots, reciprocals, absolute values; the binomial theorem for a varying term plus a stream-free one."""

from __future__ import annotations

from math import comb

import numpy as np

from redfuser.ir import Expr
from redfuser.rules.language import (
    Rule,
    expandable,
    exponent,
    last_resort,
    nonnegative,
    nonpositive,
    nonzero,
    positive,
    rule,
)

MAX_POWER = 7
"""Largest exponent that has a binomial rule."""
MAX_EXPANSION = 3
"""Largest exponent of a sum of two varying terms that is expanded."""


@rule("exact")
def inverse_product(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """1 / (a b) = (1 / a) (1 / b)"""
    return 1 / (a * b), (1 / a) * (1 / b)


@rule("exact", where=[nonzero("a")])
def inverse_inverse(a: Expr) -> tuple[Expr, Expr]:
    """1 / (1 / a) = a for a != 0"""
    return 1 / (1 / a), a


@rule("exact", phase="simplify")
def square(a: Expr) -> tuple[Expr, Expr]:
    """a a = a^2"""
    return a * a, a**2


@rule("exact", phase="simplify", where=[exponent("k")])
def raise_power(a: Expr, k: Expr) -> tuple[Expr, Expr]:
    """a a^k = a^(k + 1)"""
    return a * a**k, a ** (k + 1)


@rule("exact", phase="simplify", where=[exponent("k")])
def raise_power_right(a: Expr, k: Expr) -> tuple[Expr, Expr]:
    """a^k a = a^(k + 1)"""
    return a**k * a, a ** (k + 1)


@rule("exact", phase="simplify", where=[nonzero("a")])
def square_over_base(a: Expr) -> tuple[Expr, Expr]:
    """a^2 / a = a for a != 0"""
    return a**2 * (1 / a), a


@rule("exact", free_of="f", varying="a", where=[exponent("k")])
def power_of_product(a: Expr, f: Expr, k: Expr) -> tuple[Expr, Expr]:
    """(a f)^k = a^k f^k"""
    return (a * f) ** k, a**k * f**k


@rule("exact", free_of="f", varying="a", where=[positive("a"), positive("f")])
def real_power_of_product(a: Expr, f: Expr, p: Expr) -> tuple[Expr, Expr]:
    """(a f)^p = a^p f^p for a, f > 0 and any real p"""
    return (a * f) ** p, a**p * f**p


@rule("exact", free_of="f", varying="a", where=[nonnegative("a"), nonnegative("f")])
def root_of_product(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """sqrt(a f) = sqrt a sqrt f for a, f >= 0"""
    return np.sqrt(a * f), np.sqrt(a) * np.sqrt(f)


@rule("exact")
def abs_of_product(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """|a b| = |a| |b|"""
    return abs(a * b), abs(a) * abs(b)


@rule("exact", where=[nonnegative("a")])
def abs_of_nonnegative(a: Expr) -> tuple[Expr, Expr]:
    """|a| = a for a >= 0"""
    return abs(a), a


@rule("exact", where=[nonpositive("a")])
def abs_of_nonpositive(a: Expr) -> tuple[Expr, Expr]:
    """|a| = -a for a <= 0"""
    return abs(a), -a


@rule("exact")
def square_of_abs(a: Expr) -> tuple[Expr, Expr]:
    """|a|^2 = a^2"""
    return abs(a) ** 2, a**2


def _power(base: Expr, k: int) -> Expr:
    return base if k == 1 else base**k


def binomial(k: int) -> Rule:
    """(a + f)^k by the binomial theorem, stream-free factors on the outside."""

    def law(a: Expr, f: Expr) -> tuple[Expr, Expr]:
        expansion = _power(f, k)
        for j in range(1, k):
            expansion = _power(a, j) * (comb(k, j) * _power(f, k - j)) + expansion
        return (a + f) ** k, a**k + expansion

    law.__doc__ = f"(a + f)^{k} = sum of a^j f^({k} - j) times the binomial coefficient ({k} over j)"
    return rule("exact", free_of="f", varying="a", phase="expand", name=f"binomial-{k}", group="powers",
                where=lambda a, f: (expandable(a + f),))(law)


def expansion(k: int) -> Rule:
    """(a + b f)^k by the binomial theorem for varying a and b: as many sums as the expansion has terms."""

    def law(a: Expr, b: Expr, f: Expr) -> tuple[Expr, Expr]:
        terms = b**k * f**k
        for j in range(1, k):
            terms = (_power(a, j) * _power(b, k - j)) * (comb(k, j) * _power(f, k - j)) + terms
        return (a + b * f) ** k, a**k + terms

    law.__doc__ = f"(a + b f)^{k} = sum of a^j b^({k} - j) f^({k} - j) times the binomial coefficient ({k} over j)"
    return rule("exact", free_of="f", varying="a b", phase="expand", name=f"expansion-{k}", group="powers",
                where=[last_resort()])(law)


RULES = (
    inverse_product, inverse_inverse, square, raise_power, raise_power_right, square_over_base, power_of_product,
    real_power_of_product, root_of_product, abs_of_product, abs_of_nonnegative, abs_of_nonpositive, square_of_abs,
    *(binomial(k) for k in range(2, MAX_POWER + 1)), *(expansion(k) for k in range(2, MAX_EXPANSION + 1)),
)
