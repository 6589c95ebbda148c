"""The update step (group `online`): replace a dependency by its old value and the difference between old and new.

These rules turn "the sum as it would be at the new dependency" into "the sum we have, corrected". Without them the
algebra can only rebuild results from base sums such as sum e^x and sum x^2, which overflow and cancel.
"""

from __future__ import annotations

from redfuser.ir import Expr
from redfuser.rules.language import changes, equals, nonzero, rule


@rule("exact", group="online", varying="a", phase="telescope", where=[changes("old", "new")])
def telescope(a: Expr, old: Expr, new: Expr) -> tuple[Expr, Expr]:
    """a - new = (a - old) + (old - new)"""
    return a - new, (a - old) + (old - new)


@rule("exact", group="online", varying="a", phase="telescope", where=[changes("old", "new")])
def telescope_from(a: Expr, old: Expr, new: Expr) -> tuple[Expr, Expr]:
    """new - a = (old - a) + (new - old)"""
    return new - a, (old - a) + (new - old)


@rule("exact", group="online", phase="telescope",
      where=lambda a, b, old, new: (changes(old, new), equals(old, a / b), nonzero(b)))
def solve_quotient(a: Expr, b: Expr, old: Expr, new: Expr) -> tuple[Expr, Expr]:
    """old = a / b gives a = old b for b != 0"""
    return a, old * b


RULES = (telescope, telescope_from, solve_quotient)
