"""The homomorphism from sums to products, in base e and base 2."""

from __future__ import annotations

import numpy as np

from redfuser.ir import Expr
from redfuser.rules.language import positive, rule


@rule("exact", free_of="f", varying="a")
def exp_sum(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """e^(a + f) = e^a e^f"""
    return np.exp(a + f), np.exp(a) * np.exp(f)


@rule("exact", free_of="f g")
def exp_join(f: Expr, g: Expr) -> tuple[Expr, Expr]:
    """e^f e^g = e^(f + g)"""
    return np.exp(f) * np.exp(g), np.exp(f + g)


@rule("exact")
def exp_inverse(a: Expr) -> tuple[Expr, Expr]:
    """1 / e^a = e^(-a)"""
    return 1 / np.exp(a), np.exp(-a)


@rule("exact", where=[positive("a")])
def exp_of_log(a: Expr) -> tuple[Expr, Expr]:
    """e^(log a) = a for a > 0"""
    return np.exp(np.log(a)), a


@rule("exact", free_of="f", varying="a")
def exp2_sum(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """2^(a + f) = 2^a 2^f"""
    return np.exp2(a + f), np.exp2(a) * np.exp2(f)


@rule("exact", free_of="f g")
def exp2_join(f: Expr, g: Expr) -> tuple[Expr, Expr]:
    """2^f 2^g = 2^(f + g)"""
    return np.exp2(f) * np.exp2(g), np.exp2(f + g)


@rule("exact")
def exp2_inverse(a: Expr) -> tuple[Expr, Expr]:
    """1 / 2^a = 2^(-a)"""
    return 1 / np.exp2(a), np.exp2(-a)


@rule("exact", where=[positive("a")])
def exp2_of_log2(a: Expr) -> tuple[Expr, Expr]:
    """2^(log2 a) = a for a > 0"""
    return np.exp2(np.log2(a)), a


RULES = (exp_sum, exp_join, exp_inverse, exp_of_log, exp2_sum, exp2_join, exp2_inverse, exp2_of_log2)
