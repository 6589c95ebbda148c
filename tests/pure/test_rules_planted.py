"""Unsound rules, planted: each is refused by its own test, and forced past it never yields a wrong fused form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from derive_examples import EXAMPLES, X, Y, cascade, reduction, row

from redfuser.derivation import derive_cascade
from redfuser.errors import EngineError, RuleError
from redfuser.ir import Cascade, Load, Size
from redfuser.rules import check_rule, default, fact, rule, ruleset
from redfuser.rules.language import Best, Law, Max, Sum, changes, nonnegative, part, positive
from redfuser.testing import check_fusion

W = Load("w", ("n",))
N = Size("n")


@dataclass(frozen=True)
class Planted:
    """A wrong rule, and cascades that it would get wrong.

    instead    rules or groups in whose place it is planted: right rules would win otherwise
    existence  the two sides agree where both have a value: it changes where a result exists
    """

    law: Law
    victims: tuple[Cascade, ...]
    instead: tuple[str, ...]
    existence: bool


def planted(*victims: Cascade, instead: str = "", existence: bool = False,
            **options: Any) -> Callable[[Callable[..., Any]], Planted]:
    """Decorator: a rule function with the cascades it threatens."""

    def build(fn: Callable[..., Any]) -> Planted:
        return Planted(rule("exact", group="planted", **options)(fn), victims, tuple(instead.split()), existence)

    return build


SCALED = cascade("scaled", [reduction("s", "sum", X), reduction("m", "max", X * row("s"))], "x")
MEAN = reduction("s", "sum", X)
NEGATIVE = cascade("negative", [
    MEAN, reduction("t", "sum", np.log((-1 - abs(X)) * (-1 - row("s") * row("s"))))], "x")
LOGS = cascade("logs", [MEAN, reduction("t", "sum", np.log(X * row("s")))], "x")


@planted(EXAMPLES["softmax"], EXAMPLES["entropy"], instead="exponential", free_of="f", varying="a")
def exponential_of_the_wrong_sign(a, f):
    """e^(a + f) = e^a e^(-f), which is false"""
    return np.exp(a + f), np.exp(a) * np.exp(-f)


@planted(SCALED, free_of="f", varying="a")
def scaled_maximum_of_any_sign(a, f):
    """max (a f) = (max a) f also for f < 0, which is false"""
    return Max(a * f), Max(a) * f


@planted(cascade("own share", [MEAN, reduction("t", "sum", np.tanh(row("s") * (X / X)))], "x"), existence=True)
def quotient_by_itself(a):
    """a / a = 1 also for a = 0, which is false"""
    return a * (1 / a), 1


@planted(cascade("size", [MEAN, reduction("t", "sum", np.sqrt((X - row("s")) ** 2))], "x"))
def root_of_square(a):
    """sqrt(a^2) = a also for a < 0, which is false"""
    return np.sqrt(a**2), a


@planted(EXAMPLES["softmax"], instead="exponential", free_of="f", varying="a")
def additive_exponential(a, f):
    """e^(a + f) = e^a + e^f, which is false"""
    return np.exp(a + f), np.exp(a) + np.exp(f)


@planted(cascade("products", [MEAN, reduction("u", "sum", Y), reduction("t", "sum", X * (Y + row("s")))], "x y"),
         varying="a b")
def sum_of_products(a, b):
    """sum (a b) = sum a sum b, which is false"""
    return Sum(a * b), Sum(a) * Sum(b)


@planted(cascade("deviation", [MEAN, reduction("t", "sum", abs(X - row("s") / N))], "x"), free_of="f", varying="a")
def triangle_equation(a, f):
    """|a + f| = |a| + |f|, which is false"""
    return abs(a + f), abs(a) + abs(f)


@planted(NEGATIVE, existence=True, instead="logarithm products", free_of="f", varying="a")
def logarithm_of_any_product(a, f):
    """log(a f) = log a + log f also for a, f < 0, which is false"""
    return np.log(a * f), np.log(a) + np.log(f)


@planted(LOGS, existence=True, free_of="f", varying="a")
def logarithm_of_absolute_values(a, f):
    """log(a f) = log|a| + log|f| also for a f < 0, which is false"""
    return np.log(a * f), np.log(abs(a)) + np.log(abs(f))


@planted(EXAMPLES["variance"], EXAMPLES["softmax"], varying="a", phase="telescope", where=[changes("old", "new")])
def telescoping_without_the_difference(a, old, new):
    """a - new = a - old, which is false"""
    return a - new, a - old


@planted(cascade("squares", [MEAN, reduction("t", "sum", (X - row("s")) ** 2)], "x"), instead="binomial-2", free_of="f",
         varying="a")
def wrong_binomial(a, f):
    """(a + f)^2 = a^2 + a f + f^2, which is false"""
    return (a + f) ** 2, a**2 + (a * f + f**2)


@planted(cascade("reach", [reduction("a", "max", X), reduction("b", "max", row("a") - X)], "x"),
         instead="max-of-negative min-of-negative")
def maximum_of_negative(a):
    """max (-a) = -max a, which is false"""
    return Max(-a), -Max(a)


@planted(cascade("reach", [MEAN, reduction("m", "max", X * W + row("s") * X)], "x w"), varying="a b")
def maximum_of_sum(a, b):
    """max (a + b) = max a + max b, which is false"""
    return Max(a + b), Max(a) + Max(b)


@planted(cascade("total", [MEAN, reduction("t", "sum", X * row("s") + row("s"))], "x"), free_of="f")
def uncounted_constant(a, f):
    """sum (a f + f) = (sum a) f, which forgets how many there are"""
    return Sum(a * f + f), Sum(a) * f


@planted(EXAMPLES["sum_tanh"], cascade("squashed", [MEAN, reduction("t", "sum", np.tanh(X - row("s") / N))], "x"),
         free_of="f", varying="a")
def shift_inside_tanh(a, f):
    """tanh(a + f) = tanh a + f, which is false"""
    return np.tanh(a + f), np.tanh(a) + f


@planted(varying="a")
def position_of_the_largest_square(a):
    """a^2 is largest where a is, which is false"""
    return part("index", Best(a * a)), part("index", Best(a))


@planted(cascade("rounded", [MEAN, reduction("t", "sum", np.rint(X * row("s")))], "x"), free_of="f", varying="a")
def rounding_of_product(a, f):
    """round(a f) = round(a) f, which is false"""
    return np.rint(a * f), np.rint(a) * f


def positive_though_it_may_be_zero():
    @fact(where=[nonnegative("a")])
    def zero_is_positive(a):
        """a >= 0 gives a > 0, which is false"""
        return positive(a)

    return zero_is_positive


PLANTED = [x for x in globals().values() if isinstance(x, Planted)]


def test_there_are_enough():
    assert len(PLANTED) >= 10


@pytest.mark.parametrize("case", PLANTED, ids=lambda p: p.law.name)
def test_it_is_refused_by_its_own_test(case):
    check = check_rule(case.law)
    assert not check.ok
    assert set(check.counterexample) == set(case.law.variables)


def test_a_wrong_fact_is_refused():
    assert not check_rule(positive_though_it_may_be_zero())


@pytest.mark.parametrize("case", [p for p in PLANTED if p.victims and not p.existence], ids=lambda p: p.law.name)
def test_forced_past_it_gives_no_wrong_result(case):
    """Where it would change a result the derivation is refused, with the rule named or the contradiction; elsewhere
    the fused form is right."""
    assert any(refusal(c, case) for c in case.victims), "it threatens none of its cascades: the test shows nothing"


@pytest.mark.parametrize("case", [p for p in PLANTED if p.existence], ids=lambda p: p.law.name)
def test_a_rule_that_changes_where_a_result_exists(case):
    """A fused form that has a value where the definition has none, or none where it has one, is refused too."""
    assert all(refusal(c, case) for c in case.victims)


def refusal(c: Cascade, case: Planted) -> str:
    """The error that stops the derivation with a wrong rule; "" when its result is right anyhow."""
    right = [law for law in default if not {law.name, law.group} & set(case.instead)]
    try:
        found = derive_cascade(c, rules=ruleset("planted", [*right, case.law]))
    except RuleError as error:
        if case.law.name not in str(error):
            raise
        return str(error)
    except EngineError as error:
        if "0 = 1" not in str(error):
            raise
        return str(error)
    assert found.certificate.valid
    check = check_fusion(c, fused=found.fused, targets=(), kinds=("normal", "wide", "ties"), trials=6, shrink=False)
    assert check.ok, f"{found.fused}\n{check}"
    return ""


def test_a_wrong_fact_gives_no_wrong_result():
    wrong = Planted(positive_though_it_may_be_zero(), (), (), False)
    for name in ("softmax", "rms_dot", "largest_deviation"):
        refusal(EXAMPLES[name], wrong)


def test_the_table_names_every_operation():
    """The planted rules reach the exponential, products, extrema, powers, roots, logarithms and the update step."""
    text = " ".join(str(p.law) for p in PLANTED)
    for word in ("exp", "max", "sqrt", "log", "tanh", "rint", "old"):
        assert word in text
