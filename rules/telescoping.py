"""The update step (group `online`): replace a dependency by its old value and the difference between old and new.

These rules turn "the sum as it would be at the new dependency" into "the sum we have, corrected". Without them the
algebra can only rebuild results from base sums such as sum e^x and sum x^2, which overflow and cancel.
"""

from __future__ import annotations

from redfuser.ir import Expr, Size, op, select
from redfuser.rules.language import STREAM, Rule, Sum, at_most, changes, equals, nonzero, rule
from redfuser.rules.products import Prod


@rule("exact", group="online", varying="a", phase="telescope", where=[changes("old", "new")])
def telescope(a: Expr, old: Expr, new: Expr) -> tuple[Expr, Expr]:
    """a - new = (a - old) + (old - new)"""
    return a - new, (a - old) + (old - new)


@rule("exact", group="online", varying="a", phase="telescope", where=[changes("old", "new")])
def telescope_from(a: Expr, old: Expr, new: Expr) -> tuple[Expr, Expr]:
    """new + a = (old + a) + (new - old)"""
    return new + a, (old + a) + (new - old)


@rule("exact", group="online", varying="a x", phase="telescope", where=[changes("old", "new")])
def telescope_scaled(a: Expr, x: Expr, old: Expr, new: Expr) -> tuple[Expr, Expr]:
    """a - x new = (a - x old) + x (old - new)"""
    return a - x * new, (a - x * old) + x * (old - new)


@rule("exact", group="online", varying="a x", phase="telescope", where=[changes("old", "new")])
def telescope_scaled_from(a: Expr, x: Expr, old: Expr, new: Expr) -> tuple[Expr, Expr]:
    """x new + a = (x old + a) + x (new - old)"""
    return x * new + a, (x * old + a) + x * (new - old)


def _square_after_update(name: str, sign: int) -> Rule:
    """Once a scaled dependency has been updated, its square expands around the old value."""

    def law(a: Expr, x: Expr, old: Expr, new: Expr) -> tuple[Expr, Expr]:
        step = old - new if sign > 0 else new - old
        return (a + x * step) ** 2, a**2 + ((a * x) * (2 * step) + x**2 * step**2)

    law.__doc__ = "(a + x f)^2 = a^2 + 2 a x f + x^2 f^2 for the change f of a dependency"
    return rule("exact", group="online", varying="a x", phase="telescope", name=name,
                where=[changes("old", "new")])(law)


@rule("exact", group="online", phase="telescope",
      where=lambda a, b, old, new: (changes(old, new), equals(old, a / b), nonzero(b)))
def solve_quotient(a: Expr, b: Expr, old: Expr, new: Expr) -> tuple[Expr, Expr]:
    """old = a / b gives a = old b for b != 0"""
    return a, old * b


@rule("exact", group="online", varying="a", phase="telescope",
      where=[changes("old", "new"), at_most("a", "old"), at_most("old", "new")])
def equal_after_increase(a: Expr, old: Expr, new: Expr) -> tuple[Expr, Expr]:
    """a = new exactly when a = old and old = new, for a <= old <= new"""
    return op("eq", a, new), op("eq", a, old) & op("eq", old, new)


@rule("exact", group="online", varying="a", phase="telescope",
      where=[changes("old", "new"), at_most("old", "a"), at_most("new", "old")])
def equal_after_decrease(a: Expr, old: Expr, new: Expr) -> tuple[Expr, Expr]:
    """a = new exactly when a = old and old = new, for new <= old <= a"""
    return op("eq", a, new), op("eq", a, old) & op("eq", old, new)


@rule("exact", group="online", varying="a", phase="telescope", where=[changes("old", "new"), nonzero("old")])
def product_after_update(a: Expr, old: Expr, new: Expr) -> tuple[Expr, Expr]:
    """prod (a / new) = prod (a / old) (old / new)^n for old != 0"""
    return Prod(a * (1 / new)), Prod(a * (1 / old)) * (old * (1 / new)) ** Size(STREAM)


@rule("exact", group="online", varying="a b", phase="telescope",
      where=lambda a, b, old, new: (changes(old, new), equals(old, Sum(a * b) / Sum(a**2))))
def solve_projection(a: Expr, b: Expr, old: Expr, new: Expr) -> tuple[Expr, Expr]:
    """sum a b = old sum a^2 for the projection old of b on a: both are 0 where all a are 0"""
    return Sum(a * b), old * Sum(a**2)


@rule("exact", group="online", varying="a c", phase="telescope",
      where=lambda c, a, old, new: (changes(old, new), equals(old, Sum(select(c, a, 0)) / Sum(select(c, 1, 0)))))
def solve_masked_mean(c: Expr, a: Expr, old: Expr, new: Expr) -> tuple[Expr, Expr]:
    """sum (a where c) = old sum (1 where c) for the mean old of a where c: both are 0 where c holds nowhere"""
    return Sum(select(c, a, 0)), old * Sum(select(c, 1, 0))


RULES = (
    telescope, telescope_from, telescope_scaled, telescope_scaled_from,
    _square_after_update("square-after-decrease", 1), _square_after_update("square-after-increase", -1),
    equal_after_increase, equal_after_decrease, product_after_update,
    solve_quotient, solve_projection,
    solve_masked_mean,
)
