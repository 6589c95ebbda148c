"""Signs and bounds: what may be concluded about an expression from what is known of its parts.

Every fact must hold for every non-empty prefix of the stream: a running maximum of absolute values may be 0, so it is
nonnegative but never positive.
"""

from __future__ import annotations

import numpy as np

from redfuser.ir import Expr, Size, op
from redfuser.rules.language import (
    STREAM,
    Condition,
    Max,
    Min,
    Sum,
    at_most,
    fact,
    nonnegative,
    nonpositive,
    nonzero,
    number,
    positive,
)


@fact(where=[number("q"), positive("q")])
def positive_number(q: Expr) -> Condition:
    """a number above 0 is positive"""
    return positive(q)


@fact(where=[number("q"), nonnegative("q")])
def nonnegative_number(q: Expr) -> Condition:
    """a number from 0 on is nonnegative"""
    return nonnegative(q)


@fact(where=[number("q"), nonzero("q")])
def nonzero_number(q: Expr) -> Condition:
    """a number other than 0 is nonzero"""
    return nonzero(q)


@fact(where=[positive("a")])
def positive_is_nonzero(a: Expr) -> Condition:
    """a > 0 gives a != 0"""
    return nonzero(a)


@fact(where=[positive("a")])
def positive_is_nonnegative(a: Expr) -> Condition:
    """a > 0 gives a >= 0"""
    return nonnegative(a)


@fact()
def positive_exp(a: Expr) -> Condition:
    """e^a > 0"""
    return positive(np.exp(a))


@fact()
def positive_exp2(a: Expr) -> Condition:
    """2^a > 0"""
    return positive(np.exp2(a))


@fact()
def positive_length() -> Condition:
    """a non-empty stream has a positive length"""
    return positive(Size(STREAM))


@fact(where=[positive("a"), positive("b")])
def positive_product(a: Expr, b: Expr) -> Condition:
    """a, b > 0 gives a b > 0"""
    return positive(a * b)


@fact(where=[positive("a"), nonnegative("b")])
def positive_sum(a: Expr, b: Expr) -> Condition:
    """a > 0 and b >= 0 give a + b > 0"""
    return positive(a + b)


@fact(where=[positive("a")])
def positive_inverse(a: Expr) -> Condition:
    """a > 0 gives 1 / a > 0"""
    return positive(1 / a)


@fact(where=[positive("a")])
def positive_root(a: Expr) -> Condition:
    """a > 0 gives sqrt a > 0"""
    return positive(np.sqrt(a))


@fact(where=[positive("a")])
def positive_total(a: Expr) -> Condition:
    """a > 0 everywhere gives sum a > 0"""
    return positive(Sum(a))


@fact(where=[positive("a")])
def positive_max(a: Expr) -> Condition:
    """a > 0 everywhere gives max a > 0"""
    return positive(Max(a))


@fact(where=[positive("a")])
def positive_min(a: Expr) -> Condition:
    """a > 0 everywhere gives min a > 0"""
    return positive(Min(a))


@fact(where=[positive("a")])
def positive_larger(a: Expr, b: Expr) -> Condition:
    """a > 0 gives max(a, b) > 0"""
    return positive(op("max", a, b))


@fact(where=[positive("b")])
def positive_larger_right(a: Expr, b: Expr) -> Condition:
    """b > 0 gives max(a, b) > 0"""
    return positive(op("max", a, b))


@fact(where=[nonnegative("b")])
def nonnegative_larger_right(a: Expr, b: Expr) -> Condition:
    """b >= 0 gives max(a, b) >= 0"""
    return nonnegative(op("max", a, b))


@fact(where=[nonnegative("a")])
def nonnegative_larger(a: Expr, b: Expr) -> Condition:
    """a >= 0 gives max(a, b) >= 0"""
    return nonnegative(op("max", a, b))


@fact()
def nonnegative_abs(a: Expr) -> Condition:
    """|a| >= 0"""
    return nonnegative(abs(a))


@fact()
def nonnegative_square(a: Expr) -> Condition:
    """a^2 >= 0"""
    return nonnegative(a**2)


@fact()
def nonnegative_fourth_power(a: Expr) -> Condition:
    """a^4 >= 0"""
    return nonnegative(a**4)


@fact()
def nonnegative_sixth_power(a: Expr) -> Condition:
    """a^6 >= 0"""
    return nonnegative(a**6)


@fact(where=[nonnegative("a"), nonnegative("b")])
def nonnegative_product(a: Expr, b: Expr) -> Condition:
    """a, b >= 0 gives a b >= 0"""
    return nonnegative(a * b)


@fact(where=[nonnegative("a"), nonnegative("b")])
def nonnegative_sum(a: Expr, b: Expr) -> Condition:
    """a, b >= 0 gives a + b >= 0"""
    return nonnegative(a + b)


@fact(where=[nonnegative("a")])
def nonnegative_total(a: Expr) -> Condition:
    """a >= 0 everywhere gives sum a >= 0"""
    return nonnegative(Sum(a))


@fact(where=[nonnegative("a")])
def nonnegative_max(a: Expr) -> Condition:
    """a >= 0 everywhere gives max a >= 0"""
    return nonnegative(Max(a))


@fact(where=[nonnegative("a"), nonzero("a")])
def nonnegative_inverse(a: Expr) -> Condition:
    """a >= 0 and a != 0 give 1 / a >= 0"""
    return nonnegative(1 / a)


@fact(where=[nonzero("a"), nonzero("b")])
def nonzero_product(a: Expr, b: Expr) -> Condition:
    """a, b != 0 gives a b != 0"""
    return nonzero(a * b)


@fact(where=[nonzero("a")])
def nonzero_inverse(a: Expr) -> Condition:
    """a != 0 gives 1 / a != 0"""
    return nonzero(1 / a)


@fact(where=[at_most("a", "b")])
def ordered_difference(a: Expr, b: Expr) -> Condition:
    """a <= b gives a - b <= 0"""
    return nonpositive(a - b)


@fact(free_of="f", where=[nonpositive("a"), nonnegative("f")])
def nonpositive_scaled(a: Expr, f: Expr) -> Condition:
    """a <= 0 and f >= 0 give a f <= 0"""
    return nonpositive(a * f)


RULES = (
    positive_number, nonnegative_number, nonzero_number, positive_is_nonzero, positive_is_nonnegative, positive_exp,
    positive_exp2, positive_length, positive_product, positive_sum, positive_inverse, positive_root, positive_total,
    positive_max, positive_min, positive_larger, positive_larger_right,
    nonnegative_larger, nonnegative_larger_right, nonnegative_abs, nonnegative_square,
    nonnegative_fourth_power,
    nonnegative_sixth_power, nonnegative_product, nonnegative_sum, nonnegative_total, nonnegative_max,
    nonnegative_inverse, nonzero_product, nonzero_inverse, ordered_difference, nonpositive_scaled,
)
