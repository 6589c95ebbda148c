"""Certificates on data that are hard for conditions: what a random stream lets pass is caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from redfuser import Cascade, axes, tensor
from redfuser.derivation import Verdict, certify, derive_cascade, run_fused
from redfuser.derivation.followed import HardForm
from redfuser.derivation.hard import Ieee, agrees, has_conditions
from redfuser.errors import RuleError
from redfuser.ir import Const, New, Old, Reduce, Ref, op, select
from redfuser.rules import default, rule, ruleset
from redfuser.rules.arithmetic import context, precision
from redfuser.rules.real import by_table
from redfuser.zoo import ENTRIES

N = axes("n")
X = tensor("x", N)


def scaled():
    c = Cascade("scaled", axis=N)
    m = c.max("m", abs(X))
    c.sum("r", X / m)
    return derive_cascade(c.build()).fused


def test_wrong_guard_is_caught():
    fused = scaled()
    assert certify(fused).valid
    results = dict(fused.epilogue)
    guarded = select(op("eq", results["m"], 0), Const(0.0), results["r"])
    wrong = replace(fused, epilogue=tuple((n, guarded if n == "r" else e) for n, e in fused.epilogue))
    found = certify(wrong)
    assert found.refuted
    assert "with all elements 0" in found.steps[0]


def test_correction_that_fails_on_a_dead_prefix_is_caught():
    c = Cascade("normalised", axis=N)
    m = c.max("m", abs(X))
    c.sum("r", (X / m) ** 2)
    fused = derive_cascade(c.build()).fused
    (name,) = [a.name for a in fused.accumulators if a.monoid == "sum"]
    body = (X / Ref("m")) ** 2
    moved = Old(name) * (Old("m") / New("m")) ** 2
    assert all(a.name != "m" or a.monoid == "max" for a in fused.accumulators)
    wrong = replace(
        fused, accumulators=tuple(replace(a, body=body) if a.name == name else a for a in fused.accumulators),
        corrections=((name, moved),), epilogue=(("m", Ref("m")), ("r", Ref(name))))
    found = certify(wrong)
    assert found.refuted
    assert "with a dead prefix" in found.steps[0] or "with all elements 0" in found.steps[0]


@pytest.mark.parametrize("name", ["regression_residual", "template_snr"])
def test_longer_segments_decide_what_short_ones_cannot(name):
    fused = derive_cascade(ENTRIES[name].cascade()).fused
    assert certify(fused).valid
    assert has_conditions(fused)


def test_an_extreme_of_nothing_reads_zero():
    form = HardForm(scaled())
    with precision(50):
        values = form.newest({"m": context().mpf("-inf"), "other": context().mpf(3)})
        assert values == {"m": 0, "other": 3}


@pytest.mark.parametrize(("fn", "args"), [
    ("div", (1, 0)), ("div", (0, 0)), ("div", (-2, 0)), ("log", (0,)), ("log", (-1,)), ("sqrt", (-1,)),
    ("pow", (0, -1)), ("sub", (np.inf, np.inf)), ("mul", (0, np.inf)), ("exp", (-np.inf,)), ("exp", (np.nan,)),
    ("max", (np.nan, 1)),
    ("min", (1, np.nan)), ("tanh", (np.inf,)), ("atan", (-np.inf,)), ("atan", (np.nan,)), ("idiv", (3, 0)),
    ("expm1", (-np.inf,)), ("sign", (np.nan,)), ("div", (np.inf, np.inf))])
def test_values_without_a_real_value_are_numpys(fn, args):
    from redfuser.ir import OPS

    with np.errstate(all="ignore"):
        expected = float(OPS[fn].numpy(*map(np.float64, args)))
    refs = [Ref(str(i)) for i in range(len(args))]
    table = {r: context().mpf(float(a)) for r, a in zip(refs, args, strict=True)}
    found = float(Ieee(by_table(table), 1)(op(fn, *refs)))
    np.testing.assert_equal(found, expected)


def test_agreement():
    nan, inf = context().nan, context().inf
    assert agrees(nan, nan, 1e-20)
    assert agrees(nan, inf, 1e-20)
    assert not agrees(context().mpf(0), nan, 1e-20)
    assert not agrees(nan, context().mpf(0), 1e-20)
    assert not agrees(context().mpf(1), context().mpf(2), 1e-20)


@pytest.mark.parametrize("law", ["log", "sqrt"])
def test_a_form_that_is_undefined_where_the_definition_is_not_is_refused(law):
    """x = (-1, -2, -3): the products with the sum are positive, their factors are not."""
    f = getattr(np, law)

    def parted(a, b):
        return f(a * b), f(a) + f(b) if law == "log" else f(a) * f(b)

    parted.__doc__ = f"{law} of a product, whatever the signs"
    c = Cascade("parted", axis=N)
    s = c.sum("s", X)
    c.sum("r", f(X * s))
    with pytest.raises(RuleError, match="parted"):
        derive_cascade(c.build(), rules=default + ruleset("mine", [rule("exact", free_of="b")(parted)]))


def test_one_undefined_hard_stream_does_not_hide_the_others():
    """imod(v, v) has no value where v is 0; the minimum with 1/s must still be refused there."""
    v = tensor("v", N)
    c = Cascade("hidden", axis=N)
    s = c.sum("s", abs(X))
    c.sum("h", op("imod", v, v))
    c.sum("g", op("min", X, 1 / s))
    found = derive_cascade(c.build())
    got = run_fused(found.fused, {"x": np.zeros(3), "v": np.ones(3)})
    assert got["g"] == 0


def test_what_cannot_be_checked_is_computed_stage_by_stage():
    c = Cascade("out_of_reach", axis=N)
    m = c.max("m", X)
    c.sum("r", np.exp(X - m) * np.log(X - 10**6))
    found = derive_cascade(c.build())
    assert not found.certificate.valid
    assert found.verdict is Verdict.NOT_FOUND
    assert "could be checked" in found.stages[0].reason


def test_a_tensor_may_be_called_like_a_unit():
    """The names that long expressions get are no tensor's."""
    e = [tensor(f"e{i}") for i in range(6)]
    names = "weights_of_the_first_kind", "weights_of_the_second_kind"
    p, q = (tensor(n, axes("d")) for n in names)
    c = Cascade("named", axis=N)
    m = c.max("m", X)
    product = Reduce("sum", "d", p * q)
    c.sum("g", np.exp(X - m) * (sum(e[1:], e[0]) - product))
    fused = derive_cascade(c.build()).fused
    rng = np.random.default_rng(0)
    x, scalars, vectors = rng.normal(size=7), rng.normal(size=6), rng.normal(size=(2, 3))
    arrays = {"x": x, **{f"e{i}": e for i, e in enumerate(scalars)}, **dict(zip(names, vectors, strict=True))}
    want = np.exp(x - x.max()).sum() * (scalars.sum() - vectors[0] @ vectors[1])
    assert run_fused(fused, arrays)["g"] == pytest.approx(want)


@pytest.mark.parametrize("values", [(0.25, 1.5, 1.0), (0.0, 0.0, 0.0), (-1.0, 2.0, 0.5)])
def test_an_infinite_dependency_may_be_absorbed(values):
    """min(x, 1/s) of s = 0 is x: what is final before the pass is read as it is."""
    c = Cascade("absorbed", axis=N)
    s = c.max("s", X)
    c.sum("r", op("min", X, 1 / (s - 1.5)))
    found = derive_cascade(c.build())
    x = np.array(values)
    with np.errstate(divide="ignore"):
        want = np.minimum(x, 1 / (x.max() - 1.5)).sum()
    assert run_fused(found.fused, {"x": x})["r"] == pytest.approx(want)


@pytest.mark.parametrize("monoid", ["sum", "prod"])
def test_what_reads_an_undefined_result_by_way_of_another_is_undefined(monoid):
    """An average without mass, its spread, and elements scaled by that: nothing alive makes all three undefined."""
    c = Cascade("scaled", axis=N)
    y = tensor("y", N)
    m = c.max("m", X)
    mass = c.sum("l", np.exp(X - m))
    mean = c.sum("a", np.exp(X - m) / mass * y)
    spread = c.sum("v", (y - mean) ** 2)
    body = (abs(y) + 0.25) / np.sqrt(spread / c.size + 0.01)
    (c.sum if monoid == "sum" else c.prod)("r", body)
    fused = derive_cascade(c.build()).fused
    for x, undefined in ((-np.inf, True), (0.0, False)):
        got = run_fused(fused, {"x": np.array([x, x]), "y": np.array([0.0, 1.0])})
        assert np.isnan(got["r"]) == undefined


def test_what_reads_a_finished_infinity_is_what_it_makes_of_it():
    """Scores divided by a maximum of an earlier pass: by an infinite one they are all 0, and their weights 1."""
    c = Cascade("tempered", axis=N)
    y = tensor("y", N)
    z = y / (c.max("m", abs(X)) + 0.5)
    top = c.max("p", z)
    c.sum("r", np.exp(z - top))
    c.sum("s", np.exp(z - top) * y)
    fused = derive_cascade(c.build()).fused
    assert len(fused.passes) == 2
    got = run_fused(fused, {"x": np.array([np.inf, 1.0]), "y": np.array([2.0, 3.0])})
    assert (got["r"], got["s"]) == (2.0, 5.0)
