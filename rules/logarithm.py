"""The homomorphism from products to sums, in base e and base 2. Arguments must be positive."""

from __future__ import annotations

import numpy as np

from redfuser.ir import Expr
from redfuser.rules.language import positive, rule


@rule("exact", free_of="f", varying="a", where=[positive("a"), positive("f")])
def log_product(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """log(a f) = log a + log f for a, f > 0"""
    return np.log(a * f), np.log(a) + np.log(f)


@rule("exact")
def log_of_exp(a: Expr) -> tuple[Expr, Expr]:
    """log(e^a) = a"""
    return np.log(np.exp(a)), a


@rule("exact", where=[positive("a")])
def log_inverse(a: Expr) -> tuple[Expr, Expr]:
    """log(1 / a) = -log a for a > 0"""
    return np.log(1 / a), -np.log(a)


@rule("exact", free_of="f", varying="a", where=[positive("a"), positive("f")])
def log2_product(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """log2(a f) = log2 a + log2 f for a, f > 0"""
    return np.log2(a * f), np.log2(a) + np.log2(f)


@rule("exact")
def log2_of_exp2(a: Expr) -> tuple[Expr, Expr]:
    """log2(2^a) = a"""
    return np.log2(np.exp2(a)), a


@rule("exact", where=[positive("a")])
def log2_inverse(a: Expr) -> tuple[Expr, Expr]:
    """log2(1 / a) = -log2 a for a > 0"""
    return np.log2(1 / a), -np.log2(a)


RULES = (log_product, log_of_exp, log_inverse, log2_product, log2_of_exp2, log2_inverse)
