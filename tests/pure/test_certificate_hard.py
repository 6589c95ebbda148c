"""Certificates on data that are hard for conditions: what a random stream lets pass is caught."""

from __future__ import annotations

from dataclasses import replace

import mpmath
import numpy as np
import pytest

from redfuser import Cascade, axes, tensor
from redfuser.derivation import certify, derive_cascade
from redfuser.derivation.certificate import HardForm
from redfuser.derivation.hard import Ieee, agrees, has_conditions
from redfuser.ir import Const, New, Old, Ref, op, select
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
    with mpmath.workdps(50):
        values = form.newest({"m": mpmath.mpf("-inf"), "other": mpmath.mpf(3)})
        assert values == {"m": 0, "other": 3}


@pytest.mark.parametrize(("fn", "args"), [
    ("div", (1, 0)), ("div", (0, 0)), ("div", (-2, 0)), ("log", (0,)), ("log", (-1,)), ("sqrt", (-1,)),
    ("pow", (0, -1)), ("sub", (np.inf, np.inf)), ("mul", (0, np.inf)), ("exp", (-np.inf,)), ("exp", (np.nan,)),
    ("max", (np.nan, 1)),
    ("min", (1, np.nan)), ("tanh", (np.inf,)), ("expm1", (-np.inf,)), ("sign", (np.nan,)), ("div", (np.inf, np.inf))])
def test_values_without_a_real_value_are_numpys(fn, args):
    from redfuser.ir import OPS

    with np.errstate(all="ignore"):
        expected = float(OPS[fn].numpy(*map(np.float64, args)))
    refs = [Ref(str(i)) for i in range(len(args))]
    table = {r: mpmath.mpf(float(a)) for r, a in zip(refs, args, strict=True)}
    found = float(Ieee(by_table(table), 1)(op(fn, *refs)))
    np.testing.assert_equal(found, expected)


def test_agreement():
    nan, inf = mpmath.nan, mpmath.inf
    assert agrees(nan, nan, 1e-20)
    assert agrees(nan, inf, 1e-20)
    assert not agrees(mpmath.mpf(0), nan, 1e-20)
    assert not agrees(nan, mpmath.mpf(0), 1e-20)
    assert not agrees(mpmath.mpf(1), mpmath.mpf(2), 1e-20)
