"""What follows from conditions: intervals, facts of elements and of finished rows, random streams that meet them."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from assume_examples import P, X, Y, built, row

from redfuser.derivation import derive_cascade, run_fused
from redfuser.derivation.assumptions import Fact, known_intervals
from redfuser.derivation.batch import BatchSampler
from redfuser.derivation.interval import Intervals, ends
from redfuser.derivation.sample import Sampler
from redfuser.derivation.skeleton import Skeleton
from redfuser.ir import Cast, Idx, Load, Size, op, run_cascade, select
from redfuser.rules import check_rule, fact
from redfuser.rules.arithmetic import context, precision
from redfuser.rules.language import Max, at_most, nonnegative, nonpositive, positive
from redfuser.rules.real import RealEvaluator, Undefined
from redfuser.testing import random_cascade
from redfuser.testing.trial import LIMITS

# ---- intervals

def random_expression(rng, depth):
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([X, Y, P, X, Idx("n"), op("add", 1, 0)])
    a, b = random_expression(rng, depth - 1), random_expression(rng, depth - 1)
    unary = ["exp", "log", "sqrt", "abs", "neg", "tanh", "sin", "cos", "atan", "exp2", "log1p", "expm1", "sign", "rint"]
    return rng.choice([
        a + b, a - b, a * b, a / b, op("max", a, b), op("min", a, b), Cast("float16", a), Cast("int64", a), a**2,
        a**3, a**-1, a**0.5, a - 1.5, 3 * a,
        *(op(name, a) for name in rng.sample(unary, 5)), select(a > b, a, b)])


@pytest.mark.parametrize("seed", range(12))
def test_intervals_hold_what_can_occur(seed):
    """Values of random expressions of bounded elements lie in their intervals."""
    rng = random.Random(seed)
    cascade = built([("s", "sum", X)], X >= -2, X <= 3, Y > 0, abs(P) <= 1.5)
    intervals = known_intervals(Skeleton(cascade))
    checked = 0
    with precision(30):
        for _ in range(150):
            e = random_expression(rng, 4)
            low, high = ends(intervals(e))
            for x, y, p in [(rng.uniform(-2, 3), rng.expovariate(0.3), rng.uniform(-1.5, 1.5)) for _ in range(3)] + [
                    (-2, 1e-9, 1.5), (3, 1e6, -1.5), (0, 1, 0)]:
                number = context().mpf
                table = {X: number(x), Y: number(y), P: number(p), Idx("n"): number(rng.randrange(9))}
                try:
                    value = RealEvaluator(table.get, 1)(e)
                except (Undefined, OverflowError, ValueError, RuntimeWarning):  # or no float16
                    continue
                if isinstance(value, bool) or context().isnan(value):
                    continue
                slack = 1e-12 * (1 + abs(value))
                assert float(low) - slack <= value <= float(high) + slack, (e, table, low, high)
                checked += 1
    assert checked > 200


@pytest.mark.parametrize(("e", "expected"), [
    (1 / (1 + np.exp(-Y)), (0, 1)), (np.tanh(Y), (-1, 1)), (np.tanh(X), (0, 1)), (X * X, (0, 4)), (2 * X - 1, (-1, 3)),
    (abs(X - 3), (1, 3)), (np.sqrt(X), (0, 2**0.5)), (np.exp(-X), (np.exp(-2), 1)), (row("m"), (0, 2)),
    (row("s") / Size("n"), (0, 2)), (op("min", X, 1), (0, 1)), (row("m") - X + 2, (0, 4)),
])
def test_intervals_of_elements_and_running_results(e, expected):
    skeleton = Skeleton(built([("m", "max", X), ("s", "sum", X)], X >= 0, X <= 2))
    low, high = ends(known_intervals(skeleton)(e))
    assert float(low) == pytest.approx(expected[0])
    assert float(high) == pytest.approx(expected[1])


def test_bounds_are_pushed_into_the_operands():
    skeleton = Skeleton(built([("s", "sum", X)], abs(2 * X - 1) <= 3, X <= Y, Y < 1.5))
    low, high = ends(known_intervals(skeleton)(X))
    assert (float(low), float(high)) == (-1, 1.5)
    low, high = ends(known_intervals(Skeleton(built([("s", "sum", X)], 1 - -X / 4 <= 3, 2 - X >= -2)))(X))
    assert (float(low), float(high)) == (-float("inf"), 4)


def test_contradicting_bounds_do_not_break_the_analysis():
    intervals = Intervals(built([("s", "sum", X)]))
    intervals.narrow(X, 1, 2)
    intervals.narrow(X, 5, 6)
    low, high = ends(intervals(X))
    assert low <= high


# ---- facts

def test_facts_of_elements_and_of_finished_rows_are_kept_apart():
    c = built([("m", "max", X), ("s", "sum", X / row("m"))], X >= 0, row("m") > 2)
    facts = Skeleton(c).known
    assert Fact("pos", (row("m"),)) in facts.final
    assert Fact("nneg", (row("m"),)) in facts.element  # a running maximum of what is never negative
    assert Fact("pos", (row("m"),)) not in facts.element


def test_facts_hold_at_every_axis_a_tensor_is_read_with():
    primed = Load("x", ("i", "k"))
    c = built([("m", "max", X), ("s", "sum", np.exp(X - row("m")))], primed > 0)
    assert any(f.relation == "pos" and "x[i,n]" in str(f.args[0]) for f in Skeleton(c).known.element)


@pytest.mark.parametrize("unsound", ["positive_max", "bounded_quotient", "sign_of_product"])
def test_wrong_facts_are_caught(unsound):
    def positive_max(a):
        """a >= 0 gives max a > 0"""
        return positive(Max(a))

    def bounded_quotient(a, f):
        """a <= f gives a / f <= 1, whatever the signs"""
        return at_most(a / f, 1)

    def sign_of_product(a, b):
        """a <= 0 gives a b <= 0"""
        return nonpositive(a * b)

    where = {"positive_max": [nonnegative("a")], "bounded_quotient": [at_most("a", "f")],
             "sign_of_product": [nonpositive("a")]}
    assert not check_rule(fact(where=where[unsound])(locals()[unsound]), samples=200)


# ---- random streams

CONDITIONS = (X > 0, X <= Y, Y <= 7, abs(P) >= 0.5)


@pytest.mark.parametrize("fine", [False, True])
def test_random_streams_meet_the_conditions(fine):
    skeleton = Skeleton(built([("m", "max", X), ("s", "sum", (X - row("m")) * Y * P)], *CONDITIONS), fine=fine)
    for seed in range(5):
        stream = Sampler(skeleton, random.Random(seed), signed=seed % 2 == 0).units(6, spread=3.0)
        x, y, p = (stream.values[skeleton.unit(e).tensor] for e in (X, Y, P))
        assert all(0 < a <= b <= 7 for a, b in zip(x, y, strict=True))
        assert abs(p) >= 0.5


def test_batches_of_streams_meet_the_conditions():
    skeleton = Skeleton(built([("m", "max", X), ("s", "sum", (X - row("m")) * Y * P)], *CONDITIONS))
    drawn = BatchSampler(skeleton, np.random.default_rng(0)).streams(50, 6, 3.0).values
    x, y, p = (drawn[skeleton.unit(e).tensor] for e in (X, Y, P))
    assert ((x > 0) & (x <= y) & (y <= 7)).all()
    assert (np.abs(p) >= 0.5).all()


def test_conditions_that_nothing_meets_leave_the_certificate_undecided():
    found = derive_cascade(built([("m", "max", X), ("s", "sum", np.exp(X - row("m")) / row("m"))], X > 1, X < 1))
    assert not found.certificate.valid
    assert not found.certificate.refuted
    assert "assumptions" in found.certificate.steps[0]


@pytest.mark.parametrize("seed", range(300, 310))
def test_random_cascades_under_conditions(seed):
    """What is derived under conditions on elements equals the definition on data that meet them."""
    cascade, rng = random_cascade(seed), np.random.default_rng(seed)
    menu = [(lambda e: (e > 0,), 0.1, 2.0), (lambda e: (e >= 0, e <= 1), 0.0, 1.0), (lambda e: (e < 0,), -2.0, -0.1),
            (lambda e: (abs(e) <= 2,), -2.0, 2.0)]
    conditions, arrays = [], {}
    for t in cascade.tensors:
        states, low, high = menu[rng.integers(len(menu))]
        shape = [7 if a == cascade.axis else 3 for a in t.axes]
        arrays[t.name] = rng.random(shape) < 0.6
        if t.dtype != "bool":
            conditions += states(Load(t.name, t.axes))
            arrays[t.name] = rng.uniform(low, high, shape)
    found = derive_cascade(replace(cascade, assumptions=tuple(conditions)), limits=LIMITS)
    assert not found.certificate.refuted
    expected, out = run_cascade(cascade, arrays), run_fused(found.fused, arrays, chunks=[2, 3, 2], tree=seed)
    for o in cascade.outs:
        fine = np.isfinite(expected[o.name])
        assert np.allclose(out[o.name][fine], expected[o.name][fine], rtol=1e-5, atol=1e-6), o.name
