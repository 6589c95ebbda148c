"""Laws that no entry of the catalogue calls upon: for each a small cascade that is worse off without it.

`passes`: one sweep becomes two; `accumulators`: the loop carries more of them; `form`: as many of both, but the other
form is worse to compute in floating-point arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytest
from assume_examples import X, Y, built, row

from redfuser.derivation import Derivation, Verdict, derive_cascade, run_fused
from redfuser.ir import NEG_INF, POS_INF, Cascade, Expr, Part, Size, op, run_cascade, select
from redfuser.rules import default, ruleset
from redfuser.zoo.ablation import LIMITS
from redfuser.zoo.outcome import carried

Lost = Literal["passes", "accumulators", "form"]
Stage = tuple[str, str, Expr]
N = Size("n")


@dataclass(frozen=True)
class Use:
    """What is lost of a cascade without a law."""

    law: str
    lost: Lost
    cascade: Cascade


def use(law: str, lost: Lost, *stages: Stage, given: tuple[Expr, ...] = ()) -> Use:
    """The last of the stages (name, monoid, body) needs the law; `given`: what is assumed of the elements."""
    return Use(law, lost, built(stages, *given))


def first(name: str) -> Expr:
    """The very best value of a list."""
    return Part("value", (0,), row(name))


TOP, LOW, TOTAL, SUM_Y = ("a", "max", X), ("i", "min", X), ("t", "sum", X), ("s", "sum", Y)
MASS = ("l", "sum", np.exp(Y))
PEAK = ("m", "max", Y)
DOT, NORM = ("p", "sum", X * Y), ("r", "sum", X * X)
a, t, s, m, mass = (row(name) for name in "atsml")
SLOPE = row("p") / row("r")

GAP = X - Y
"""Never above 0 given x <= y, which relates two elements: no interval of numbers says so, the laws must."""
GAPS, LEAST_GAP = ("q", "sum", GAP), ("g", "min", GAP)
q, g = row("q"), row("g")


def increasing(function: np.ufunc, before: Stage, body: Expr, lost: Lost) -> list[Use]:
    """An extreme and the best elements of a function that keeps their order."""
    monoids = (("max", "max"), ("min", "min"), *((f"{word}-{part}", monoid) for word, monoid in (
        ("largest", "topk:2"), ("smallest", "bottomk:2")) for part in ("value", "index")))
    return [use(f"{law}-of-{function.__name__}", lost, before, ("c", monoid, X), ("b", monoid, body))
            for law, monoid in monoids]


FUNCTIONS = [
    *increasing(np.exp2, SUM_Y, np.exp2(X - s), "accumulators"),  # 2^-s is a factor: one accumulator more will do
    *increasing(np.log, MASS, np.log(np.exp(X) + mass), "passes"),
    *increasing(np.log2, MASS, np.log2(np.exp(X) + mass), "passes"),
    *increasing(np.sqrt, MASS, np.sqrt(np.exp(X) + mass), "passes"),
    use("min-of-tanh", "passes", SUM_Y, ("b", "min", np.tanh(X - s))),
    use("min-of-arctan", "passes", SUM_Y, ("b", "min", np.arctan(X - s))),
]

NEGATIVES = [
    use("max-of-negative", "accumulators", LOW, SUM_Y, ("b", "max", s - X)),
    use("min-of-negative", "accumulators", TOP, SUM_Y, ("b", "min", s - X)),
    *(use(f"{word}-{part}-of-negative", "accumulators", ("c", other, X), SUM_Y, ("b", monoid, s - X))
      for word, monoid, other in (("largest", "topk:2", "bottomk:2"), ("smallest", "bottomk:2", "topk:2"))
      for part in ("value", "index")),
]

EXTREMES = [
    use("max-constant", "passes", PEAK, ("b", "max", m * m)),
    use("min-constant", "passes", PEAK, ("b", "min", m * m)),
    use("max-with", "passes", SUM_Y, ("b", "max", op("max", X, s))),
    use("min-with", "passes", SUM_Y, ("b", "min", op("min", X, s))),
    use("masked-term", "passes", SUM_Y, ("b", "max", select(Y > 0, X - s, NEG_INF))),
    use("masked-term-above", "passes", SUM_Y, ("b", "min", select(Y > 0, X - s, POS_INF))),
]

BASE_TWO = [
    use("exp2-inverse", "accumulators", ("c", "sum", np.exp2(-X)), SUM_Y, ("b", "sum", s / np.exp2(X))),
    use("exp2-of-log2", "form", SUM_Y, ("c", "sum", np.exp2(X)), ("b", "sum", np.exp2(X + np.log2(s))),
        given=(Y > 0,)),
    use("log2-product", "passes", TOTAL, ("b", "sum", Y * np.log2(X / t)), given=(X > 0,)),
    use("log2-of-exp2", "passes", SUM_Y, ("b", "sum", np.log2(np.exp2(X * s)))),
    use("log2-inverse", "accumulators", SUM_Y, ("c", "sum", np.log2(X)), ("b", "sum", s - np.log2(1 / X)),
        given=(X > 0,)),
]

POWERS = [
    use("binomial-7", "passes", TOTAL, ("b", "sum", (X - t / N) ** 7)),
    use("square-after-increase", "form", DOT, NORM, ("b", "sum", (X * SLOPE - Y) ** 2)),
]

SIGNS = [
    use("positive-largest", "passes", ("c", "topk:2", X), ("b", "sum", np.log(Y * first("c"))), given=(X > 0, Y > 0)),
    use("positive-smallest", "passes", ("c", "bottomk:2", X), ("b", "sum", np.log(Y * first("c"))),
        given=(X > 0, Y > 0)),
    use("sign-of-product-8", "accumulators", GAPS, LEAST_GAP, ("b", "max", Y * (g / (q - 1))), given=(X <= Y,)),
    use("sign-of-extreme-5", "accumulators", GAPS, TOTAL, ("b", "max", Y * (op("min", q, t) * q)), given=(X <= Y,)),
    use("sign-of-extreme-7", "accumulators", GAPS, LEAST_GAP, ("b", "max", Y * (op("max", q, g) * q)),
        given=(X <= Y,)),
]

BOUNDS = [
    use("larger-is-second", "accumulators", SUM_Y, ("b", "sum", op("max", X, Y) * s), given=(X <= Y,)),
    use("smaller-is-second", "accumulators", TOTAL, ("b", "sum", op("min", Y, X) * t), given=(X <= Y,)),
    use("max-turned", "passes", TOP, ("b", "sum", op("max", 0, a - X))),
    use("max-limit", "passes", TOP, ("b", "sum", op("max", X - a, 0))),
    use("min-turned", "passes", TOP, ("b", "sum", op("min", 0, X - a))),
    use("min-value", "passes", TOP, ("b", "sum", op("min", X - a, 0))),
    use("min-limit", "passes", TOP, ("b", "sum", op("min", a - X, 0))),
]

USES = [*FUNCTIONS, *NEGATIVES, *EXTREMES, *BASE_TWO, *POWERS, *SIGNS, *BOUNDS]


def derived(cascade: Cascade, without: str = "") -> Derivation:
    """The derivation by all laws but one."""
    return derive_cascade(cascade, rules=ruleset("kept", [x for x in default if x.name != without]), limits=LIMITS)


def loss(full: Derivation, rest: Derivation) -> str:
    """The gravest loss."""
    if rest.passes > full.passes:
        return "passes"
    if carried(rest.fused) > carried(full.fused):
        return "accumulators"
    return "nothing" if rest.fused == full.fused else "form"


@pytest.mark.parametrize("use", USES, ids=lambda use: use.law)
def test_a_law_that_the_catalogue_leaves_alone_is_of_use(use):
    full = derived(use.cascade)
    assert full.verdict is Verdict.FUSIBLE
    assert full.certificate.valid
    assert use.law in full.matched
    assert loss(full, derived(use.cascade, without=use.law)) == use.lost


def test_each_law_is_stated_once():
    names = [x.law for x in USES]
    assert len(set(names)) == len(names)
    assert set(names) <= {x.name for x in default}


def test_squares_of_residuals_do_not_cancel():
    """What square-after-increase is for: without it the squares are those of the data, and nothing is left of a small
    difference between them."""
    known = next(x for x in USES if x.law == "square-after-increase")
    rng = np.random.default_rng(5)
    x = rng.normal(size=(3, 400))
    arrays = {"x": x, "y": 3 * x + 1e-4 * rng.normal(size=x.shape), "p": np.asarray(0.0)}
    exact = run_cascade(known.cascade, arrays)["b"]
    single = {k: v.astype(np.float32) for k, v in arrays.items()}

    def error(d: Derivation) -> float:
        return float(np.max(np.abs(run_fused(d.fused, single, chunks=5)["b"] / exact - 1)))

    assert error(derived(known.cascade)) < 0.01
    assert error(derived(known.cascade, without=known.law)) > 1
