"""Approximate: rounding commutes with a change of scale. Used only under `allow=("requantize",)`.

A value quantised under a scale that is still changing, round(x new), is kept as the rounding under the old scale
times the ratio of the scales. Equal up to one rounding of the narrow type, not over the reals.
"""

from __future__ import annotations

import numpy as np

from redfuser.ir import Cast, Expr
from redfuser.rules.language import Rule, changes, nonzero, rule

ROUNDOFF = {"float16": 2**-11, "float32": 2**-24, "bfloat16": 2**-8, "float8_e4m3fn": 2**-4, "float8_e5m2": 2**-3}
"""Type that values are rounded to -> its unit roundoff."""


@rule("approximate", tolerance=1.0, varying="a", phase="telescope", where=[changes("old", "new"), nonzero("old")])
def round_rescaled(a: Expr, old: Expr, new: Expr) -> tuple[Expr, Expr]:
    """round(a new) is about round(a old) new / old"""
    return np.rint(a * new), np.rint(a * old) * (new / old)


@rule("approximate", tolerance=1.0, varying="a", phase="telescope", where=[changes("old", "new"), nonzero("old")])
def round_rescaled_quotient(a: Expr, old: Expr, new: Expr) -> tuple[Expr, Expr]:
    """round(a / new) is about round(a / old) old / new"""
    return np.rint(a / new), np.rint(a / old) * (old / new)


@rule("approximate", tolerance=1.0, free_of="f", varying="a")
def round_shifted(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """round(a + f) is about round(a) + f: the zero point of an asymmetric quantisation leaves the rounding"""
    return np.rint(a + f), np.rint(a) + f


def _cast_rescaled(dtype: str, tolerance: float) -> Rule:
    def law(a: Expr, old: Expr, new: Expr) -> tuple[Expr, Expr]:
        return Cast(dtype, a * new), Cast(dtype, a * old) * (new / old)

    law.__doc__ = f"{dtype}(a new) is about {dtype}(a old) new / old"
    return rule("approximate", tolerance=tolerance, varying="a", phase="telescope", name=f"cast-{dtype}-rescaled",
                group="requantize", where=[changes("old", "new"), nonzero("old")])(law)


def _cast_rescaled_quotient(dtype: str, tolerance: float) -> Rule:
    def law(a: Expr, old: Expr, new: Expr) -> tuple[Expr, Expr]:
        return Cast(dtype, a / new), Cast(dtype, a / old) * (old / new)

    law.__doc__ = f"{dtype}(a / new) is about {dtype}(a / old) old / new"
    return rule("approximate", tolerance=tolerance, varying="a", phase="telescope",
                name=f"cast-{dtype}-rescaled-quotient", group="requantize",
                where=[changes("old", "new"), nonzero("old")])(law)


RULES = (round_rescaled, round_rescaled_quotient, round_shifted,
         *(law(dtype, 4 * roundoff) for dtype, roundoff in ROUNDOFF.items()
           for law in (_cast_rescaled, _cast_rescaled_quotient)))
