"""Values of expressions, leaf by leaf: the independent arithmetic that proofs about expressions are held against."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from redfuser.ir import OPS, Cast, Const, Expr, Op


def evaluate(e: Expr, leaf: Callable[[Expr], Any], **errors: Any) -> Any:
    """The value of `e` in float64; `leaf` gives the values of everything that is not an operation or constant.

    `errors`: what `np.errstate` is to do, where it is not to ignore them.
    """
    if isinstance(e, Const):
        return float(e.value) if isinstance(e.value, Fraction) else e.value
    if isinstance(e, Op):
        with np.errstate(**{"all": "ignore", **errors}):
            return OPS[e.fn].numpy(*(evaluate(a, leaf, **errors) for a in e.args))
    if isinstance(e, Cast):
        return evaluate(e.body, leaf, **errors)
    return leaf(e)
