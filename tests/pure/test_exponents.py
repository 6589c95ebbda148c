"""Which exponentials are of numbers that are never positive: proven by order and sign, of any cascade."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from expression_values import evaluate
from fused_examples import logsumexp, softmax, variance
from fused_parts import ROW, M, X, Y

from redfuser.derivation.fusion import Accumulator
from redfuser.extract import Profile, exponents, plan
from redfuser.extract.exponents import mark_exponents, never_positive, scaled
from redfuser.extract.flatten import Flat, flatten
from redfuser.ir import Axis, Cast, Const, Expr, Idx, Let, Load, Old, Op, Part, Reduce, Ref, Tensor, op, select, walk
from redfuser.ir.ops import BELOW

CELL = ("p", "n")
SHOWN, WHOLE, T, SINK, B = Load("shown", CELL), Load("whole", CELL), Load("t"), Load("sink", ROW), Load("b", ("n",))
N, MEAN = Ref("least", ROW), Ref("mean", ROW)
Z = Load("z", ("p", "n", "k"))
MASKED = select(SHOWN, X, -math.inf)
STATE: Mapping[str, tuple[str, Expr]] = {
    "m": ("max", X),
    "least": ("min", X),
    "other": ("max", Y),
    "scaled": ("max", X * 0.1),
    "turned": ("max", -X),
    "masked": ("max", MASKED),
    "biased": ("max", X * 0.1 + B),
    "size": ("max", abs(X)),
    "moved": ("max", X - MEAN),
    "whole": ("max", WHOLE),
    "inner": ("max", Reduce("max", "k", Z)),
    "total": ("sum", X),
}
DEPENDENCIES = {
    "mean": Ref("total", ROW) / 100.0,
    "doubled": M * 2.0,
    "with_sink": op("max", M, SINK),
    "whole_mean": Cast("int64", Ref("total", ROW)),
}


def state(name: str) -> Ref:
    return Ref(name, ROW)


def flat_of(body: Expr = X) -> Flat:
    """All of the state above, and a sum of `body`."""
    tensors = tuple(Tensor(x.tensor, tuple(map(str, x.axes)), dtype) for x, dtype in (
        (X, "float32"), (Y, "float32"), (Z, "float32"), (SHOWN, "bool"), (WHOLE, "int32"), (T, "float32"),
        (SINK, "float32"), (B, "float32")))
    accumulators = (*(Accumulator(name, m, e, ROW) for name, (m, e) in STATE.items()),
                    Accumulator("s", "sum", body, ROW))
    corrections = (("moved", Old("moved") + Old("mean") - Old("mean")),)
    return Flat("f", "n", tuple(map(Axis, ("p", "n", "k"))), tensors, accumulators,
                tuple(Let(name, ROW, e) for name, e in DEPENDENCIES.items()), corrections, (),
                (tuple(a.name for a in accumulators),))


PROVEN: Mapping[str, Expr] = {
    "less the maximum": X - M,
    "less itself": X - X,
    "the minimum less it": N - X,
    "minus the distance from the minimum": -(X - N),
    "negated": -X - state("turned"),
    "scaled": X * 0.1 - state("scaled"),
    "scaled as a quotient": X / 10 - op("max", M / 10, 0.5),
    "another way round": X * Fraction(1, 3) * 3 - M,
    "in base 2": X * 1.4426950408889634 - M * 1.4426950408889634,
    "a temperature": (X - M) / 0.07,
    "a negative factor": (M - X) * -2.0,
    "with the minimum scaled": -3.0 * X + N * 3.0,
    "half of two": 0.5 * ((X - M) + (Y - state("other"))),
    "weighted by what is not negative": (X - M) * abs(Y),
    "a bias": X * 0.1 + B - state("biased"),
    "masked": MASKED - state("masked"),
    "masked, less the maximum of all": MASKED - M,
    "masked alike": select(SHOWN, X * 0.1, -math.inf) - select(SHOWN, state("scaled"), math.inf),
    "a sink": X - op("max", M, SINK),
    "a sink as a dependency": X - Ref("with_sink", ROW),
    "the sink itself": SINK - op("max", M, SINK),
    "a dependency": X * 2.0 - Ref("doubled", ROW),
    "the largest magnitude": -X - state("size"),
    "the largest magnitude, scaled": X * -4.0 - state("size") * 4.0,
    "the maximum of maxima": Reduce("max", "k", Z) - state("inner"),
    "below the maximum of maxima": Z - state("inner"),
    "over the inner axis": Z - Reduce("max", "k", Z),
    "clipped": op("min", X, 0.0),
    "the smaller of two": op("min", X - M, Y),
    "minus a square": -(X * Y) * (X * Y),
    "a multiple of a square": X * -0.5 * X,
    "a square over a number": (X - MEAN) * (X - MEAN) / -8.0,
    "minus a power": -(op("pow", X, 2)),
    "minus a magnitude": -abs(X - MEAN),
    "minus a sum of squares": -Reduce("sum", "k", (Z - X) * (Z - X)) * 0.5,
    "a number": op("add", op("mul", X, 0.0), -1.0),
    "of positions": -abs(op("sub", Idx("n"), Idx("p"))) * 0.5,
    "a rounded difference": Cast("float16", X - M),
    "two numbers": op("sub", Const(1.0), Const(2.5)),
    "minus a root": -(op("sqrt", abs(X)) + op("exp", Y)),
}

UNKNOWN: Mapping[str, Expr] = {
    "itself": X,
    "less the mean": X - MEAN,
    "less the maximum of others": X - state("other"),
    "the maximum less it": M - X,
    "less the minimum": X - N,
    "a factor of unknown sign": (X - M) * T,
    "a divisor of unknown sign": (X - M) / T,
    "the wrong sign": (X - M) * -1.0,
    "scaled otherwise": X * 0.2 - state("scaled"),
    "negated, less the maximum": -X - M,
    "without the mask": X - state("masked"),
    "masked by something else": select(op("not", SHOWN), X, -math.inf) - state("masked"),
    "without the bias": X * 0.1 - state("biased"),
    "a corrected maximum": X - MEAN - state("moved"),
    "at another row": Load("x", ("q", "n")) - M,
    "at another place": Load("x", ("p", 0)) - M,
    "a value before the block": X - Old("m"),
    "integers, which wrap around": WHOLE - state("whole"),
    "rounded to an integer": Cast("int8", X - M),
    "a dependency rounded to an integer": op("min", Ref("whole_mean", ROW), 0.5) - Ref("mean", ROW),
    "a product of positions": -(Idx("n") * Idx("n")) * 0.5,
    "a list": X - Part("value", (0,), state("m")),
    "without an element": N - M,
    "an odd power": -(op("pow", X, 3)),
    "a product": -(X * Y),
    "a truth value": Cast("bool", X - M),
    "the larger of two": op("max", X - M, Y),
    "the smaller maximum": X - op("min", M, SINK),
    "one alternative": select(SHOWN, X - M, Y),
    "a sum over an axis it is free of": X - Reduce("max", "k", Z),
    "minus a logarithm": -(op("log", abs(X))),
    "infinite": op("add", X, math.inf),
}


@pytest.mark.parametrize("name", PROVEN)
def test_never_positive(name: str) -> None:
    assert never_positive(PROVEN[name], flat_of())


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown(name: str) -> None:
    assert not never_positive(UNKNOWN[name], flat_of())


def test_factors() -> None:
    assert scaled(-(X * 2.0) / 8 * Fraction(1, 2)) == (Fraction(-1, 8), X)
    assert scaled(Const(0.0)) == (0, Const(1))
    assert scaled(X / 0.0) == (1, X / 0.0)
    assert scaled(X * math.inf) == (1, X * math.inf)


def test_a_deep_or_wide_expression_is_left_alone() -> None:
    deep: Expr = X - M
    for _ in range(5000):
        deep = op("min", deep, deep)
    assert not never_positive(op("max", deep, deep), flat_of())
    many: Expr = Const(-1.0)
    for _ in range(5000):
        many = many - abs(X)
    assert never_positive(many, flat_of()) in (True, False)


# -------------------------------- what is proven holds


def leaves(rng: np.random.Generator) -> Callable[[Expr], Any]:
    """Values of all loads and of the state, for one row of 40 elements; some are infinite."""
    values: dict[Expr, Any] = {}
    for e in (X, Y, B):
        values[e] = rng.normal(size=40) * 10.0 ** rng.integers(-1, 4)
        values[e][rng.random(40) < 0.1] = -math.inf
    values |= {SHOWN: rng.random(40) < 0.5, T: rng.normal(), SINK: rng.normal(), Z: rng.normal(size=(40, 1))}

    def leaf(e: Expr) -> Any:
        if e in values:
            return values[e]
        assert isinstance(e, Ref)
        if e.name in DEPENDENCIES:
            return evaluate(DEPENDENCIES[e.name], leaf)
        monoid, body = STATE[e.name]
        with np.errstate(all="ignore"):
            return {"max": np.max, "min": np.min, "sum": np.sum}[monoid](evaluate(body, leaf))

    return leaf


def grown(rng: random.Random, size: int) -> Expr:
    """A random expression over elements, extremes and numbers."""
    if size <= 1:
        names = ("m", "least", "other", "scaled", "turned", "masked", "biased", "size", "mean", "doubled", "with_sink")
        atoms = (X, Y, MASKED, X * 0.1, X * 0.1 + B, SINK, Const(rng.choice((-2.0, -0.5, 0.0, 1.5))))
        return rng.choice((*atoms, *map(state, names)))
    fn = rng.choice(("add", "sub", "sub", "sub", "mul", "min", "max", "neg", "abs", "select", "scale"))
    a = grown(rng, size // 2)
    if fn in ("neg", "abs"):
        return op(fn, a)
    if fn == "scale":
        return rng.choice((a * rng.choice((-1.0, 0.1, 2.0)), a / rng.choice((-4.0, 10.0))))
    b = a if rng.random() < 0.2 else grown(rng, size - size // 2)
    return select(SHOWN, a, b) if fn == "select" else op(fn, a, b)


def test_what_is_proven_holds_of_random_expressions() -> None:
    """Up to the rounding of what is subtracted, which is below 1e4 in size."""
    rng, flat, proven = random.Random(7), flat_of(), 0
    for trial in range(6000):
        e = grown(rng, rng.randint(2, 5))
        if not never_positive(e, flat):
            continue
        proven += 1
        values = np.asarray(evaluate(e, leaves(np.random.default_rng(trial))))
        assert not (values > 1e-6).any(), e
    assert proven > 300


# -------------------------------- marking


def marks(e: Expr) -> list[str]:
    return [x.fn for x in walk(e) if isinstance(x, Op) and x.fn in (*BELOW, *BELOW.values())]


def test_bodies_and_outputs_are_marked_and_nothing_else() -> None:
    flat = flatten(softmax(), "float32")
    done = mark_exponents(flat)
    assert [marks(a.body) for a in done.accumulators] == [[], ["exp_below"]]
    assert [marks(o.expr) for o in done.outs] == [["exp_below"]]
    assert done.corrections == flat.corrections
    assert [marks(e) for _, e in done.corrections] == [["exp"]]


def test_an_exponential_inside_another() -> None:
    inner = op("exp", X - M)
    for outer, expected in ((-inner, ["exp_below", "exp_below"]), (inner, ["exp", "exp_below"])):
        body = mark_exponents(flat_of(op("exp", outer))).accumulators[-1].body
        assert marks(body) == expected
    assert marks(mark_exponents(flat_of(op("exp2", X - M))).accumulators[-1].body) == ["exp2_below"]


def test_dependencies_are_left_alone() -> None:
    """They are also computed from values before the block."""
    flat = replace(flat_of(op("exp", X - M)), dependencies=(Let("d", ROW, op("exp", -abs(M))),))
    assert [marks(d.expr) for d in mark_exponents(flat).dependencies] == [["exp"]]


def test_nothing_to_mark() -> None:
    flat = flatten(variance(), "float32")
    assert mark_exponents(flat) is flat


def test_a_plan_marks() -> None:
    made = plan(logsumexp(), {"p": 8, "n": 100}, Profile.generic(32))
    assert [marks(a.body) for a in made.flat.accumulators] == [[], ["exp_below"]]


def test_without_a_stream_signs_still_count() -> None:
    flat = replace(flat_of(), stream=None, accumulators=(), dependencies=())
    assert exponents.never_positive(-(X * X), flat)
    assert not exponents.never_positive(X - M, flat)
