"""Addition theorems: sine and cosine of a shifted angle have rank two."""

from __future__ import annotations

import numpy as np

from redfuser.ir import Expr
from redfuser.rules.language import last_resort, rule


@rule("exact", free_of="f", varying="a")
def sine_of_sum(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """sin(a + f) = sin a cos f + cos a sin f"""
    return np.sin(a + f), np.sin(a) * np.cos(f) + np.cos(a) * np.sin(f)


@rule("exact", free_of="f", varying="a")
def cosine_of_sum(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """cos(a + f) = cos a cos f - sin a sin f"""
    return np.cos(a + f), np.cos(a) * np.cos(f) - np.sin(a) * np.sin(f)


@rule("exact", varying="a", where=[last_resort()])
def square_of_sine(a: Expr) -> tuple[Expr, Expr]:
    """sin(a)^2 = 1/2 - cos(2 a) / 2"""
    return np.sin(a) ** 2, 0.5 + -0.5 * np.cos(2 * a)


RULES = (sine_of_sum, cosine_of_sum, square_of_sine)
