"""Products over the stream. How a scaled product follows its scale: see `redfuser.rules.telescoping`."""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.ir import Expr, Reduce, wrap
from redfuser.rules.language import STREAM, Sum, rule


def Prod(body: Any) -> Expr:
    """Product over the stream."""
    return Reduce("prod", STREAM, wrap(body))


@rule("exact")
def product_of_exp(a: Expr) -> tuple[Expr, Expr]:
    """prod e^a = e^(sum a)"""
    return Prod(np.exp(a)), np.exp(Sum(a))


RULES = (product_of_exp,)
