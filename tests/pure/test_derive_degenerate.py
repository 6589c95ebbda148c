"""Where nothing is selected, a mass is 0 or something is infinite, a fused form gives what the definition gives."""

from __future__ import annotations

import random
import sys
from dataclasses import replace

import numpy as np
import pytest
from derive_examples import N, X, Y, cascade, reduction, row

from redfuser.derivation import certify, derive_cascade, run_fused
from redfuser.derivation.sample import Sampler
from redfuser.derivation.selected import mark_unselected
from redfuser.derivation.skeleton import Skeleton
from redfuser.derivation.steer import Steering
from redfuser.derivation.taste import BASE_SUMS
from redfuser.derivation.verdict import Verdict
from redfuser.errors import EngineError
from redfuser.ir import NEG_INF, Idx, Load, Op, op, select, walk
from redfuser.ir.contract import expected_results
from redfuser.ir.interpret import run_cascade
from redfuser.rules import default, online
from redfuser.zoo import ENTRIES

LIVE = op("gt", Y, -0.5)


def masked(e):
    return select(LIVE, e, 0)


MASSES = [reduction("a", "sum", masked(Y)), reduction("l", "sum", masked(X))]
PRODUCT = cascade("product", [*MASSES, reduction("s", "sum", masked(row("a") / row("l") * X))], "x y")
SQUARES = cascade("squares", [*MASSES, reduction("s", "sum", masked((Y - row("a") / row("l")) ** 2))], "x y")
COUNTED = cascade("counted", [reduction("a", "sum", masked(X)), reduction("l", "sum", masked(1)),
                              reduction("s", "sum", masked((X - row("a") / row("l")) ** 2))], "x y")
LARGEST = cascade("largest", [*MASSES, reduction("s", "max", select(LIVE, row("a") / row("l") * X, Y))], "x y")


def rows():
    """A usual row, one with nothing selected, one with a mass of 0, one that is dead at first."""
    x = np.random.default_rng(0).normal(size=(4, 9))
    y = np.abs(x[:, ::-1]).copy()
    y[1], x[2] = -1, 0
    y[3, :4] = -1
    return {"x": x, "y": y}


@pytest.mark.parametrize("c", [PRODUCT, SQUARES, COUNTED, LARGEST], ids=lambda c: c.name)
@pytest.mark.parametrize("taste", [None, BASE_SUMS], ids=["stable", "base sums"])
def test_nothing_selected_is_nothing_and_no_mass_is_undefined(c, taste):
    d = derive_cascade(c) if taste is None else derive_cascade(c, taste=taste)
    assert d.certificate.valid
    arrays = rows()
    with np.errstate(all="ignore"):
        wanted = run_cascade(c, arrays)["s"]
        assert np.isfinite(wanted[[0, 1, 3]]).all()
        for chunks in (1, 4):
            found = run_fused(d.fused, arrays, chunks=chunks)["s"]
            np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))
            np.testing.assert_allclose(found[np.isfinite(wanted)], wanted[np.isfinite(wanted)], atol=1e-9)


def test_a_sum_of_selected_quotients_is_one_pass():
    d = derive_cascade(PRODUCT)
    assert d.verdict == Verdict.FUSIBLE
    assert [a.monoid for a in d.fused.accumulators].count("any") == 1


def test_a_count_of_what_is_selected_says_whether_anything_is():
    assert all(a.monoid != "any" for a in derive_cascade(COUNTED).fused.accumulators)


def test_marking_changes_nothing_where_no_quotient_is_selected():
    fused = derive_cascade(ENTRIES["variance"].cascade()).fused
    assert mark_unselected(fused) is fused


def test_a_form_without_the_marks_is_refuted():
    d = derive_cascade(PRODUCT)
    plain = {r: next(x for x in walk(e) if isinstance(x, Op) and x.fn == "mul") if r == "s" else e
             for r, e in d.fused.epilogue}
    found = certify(replace(d.fused, epilogue=tuple(plain.items())))
    assert found.refuted
    assert found.wrong == ("s",)
    assert "nothing selected" in found.steps[0]


def test_what_a_dead_prefix_subtracts_is_what_is_corrected():
    """The masked maximum of a prefix in which nothing is alive reads 0, in the elements and in the correction."""
    c = cascade("margin", [reduction("m", "max", select(LIVE, X, NEG_INF)), reduction("s", "max", X - row("m"))], "x y")
    d = derive_cascade(c)
    assert d.certificate.valid
    assert (d.passes, d.verdict) == (1, Verdict.FUSIBLE)
    arrays = rows()
    found, wanted = run_fused(d.fused, arrays, chunks=4)["s"], run_cascade(c, arrays)["s"]
    np.testing.assert_allclose(found[[0, 2, 3]], wanted[[0, 2, 3]])  # of nothing alive, 0 is subtracted


def test_a_refuted_form_is_replaced_by_a_later_pass():
    """Nothing tells the first pass that all squares are 0: what is divided by their sum waits for it."""
    c = cascade("ratio", [reduction("a", "sum", X * X), reduction("b", "sum", Load("w", ("n",)) / row("a")),
                          reduction("c", "max", Y / row("b"))], "x y w")
    d = derive_cascade(c)
    assert d.certificate.valid
    assert dict(d.settings.late)
    assert d.passes > 1
    assert any("is not right everywhere" in str(s) or "may do" in str(s) for s in d.stages)


@pytest.mark.parametrize("first", [4, 40])
def test_masks_of_positions_are_decided(first):
    live = op("ge", Idx("n"), first)
    c = cascade("tail", [reduction("a", "sum", select(live, X, 0)), reduction("l", "sum", select(live, abs(X), 0)),
                         reduction("s", "sum", select(live, (X - row("a") / row("l")) ** 2, 0))], "x")
    d = derive_cascade(c)
    assert d.certificate.valid
    assert d.verdict == Verdict.FUSIBLE


def test_elements_are_steered_to_what_is_wanted():
    skeleton = Skeleton(SQUARES, fine=True)
    steering = Steering(skeleton)
    assert len(steering.conditions) == 1
    stream = Sampler(skeleton, random.Random(0)).units(12)
    (unit,) = steering.units
    for truth in (lambda i: False, lambda i: True, lambda i: i > 5):
        found = steering.steered(stream, truth, random.Random(1))
        assert [v > -0.5 for v in found.values[unit]] == [truth(i) for i in range(12)]


@pytest.mark.parametrize("name", ["variance", "layernorm_projection", "masked_layernorm", "skewness"])
def test_locations_without_the_online_laws(name):
    """The shift by a pivot cannot be corrected then: the form is another one, or there are more passes."""
    d = derive_cascade(ENTRIES[name].cascade(), rules=default - online)
    assert d.certificate.valid
    assert not any(a.monoid == "pivot" for a in d.fused.accumulators) or d.passes > 1


SCALE = np.sqrt(row("q") / 9 + 0.01)
NORMALISED = cascade("normalised", [reduction("q", "sum", X * X), reduction("s", "max", X / SCALE)], "x")


@pytest.mark.parametrize("value", [-np.inf, np.inf, np.nan])
def test_an_infinite_scale_hides_no_element_without_a_value(value):
    d = derive_cascade(NORMALISED)
    assert d.passes == 1
    x = np.random.default_rng(1).normal(size=(1, 9))
    x[0, 4] = value
    with np.errstate(all="ignore"):
        assert np.isnan(run_cascade(NORMALISED, {"x": x})["s"]).all()
        assert np.isnan(run_fused(d.fused, {"x": x}, chunks=3)["s"]).all()


@pytest.mark.parametrize("body", [
    op("min", op("max", row("a"), 2) / row("a"), (Y - X) * 0 * X), np.exp(-abs(Y) * (1 / row("a"))),
    np.tanh(Y * (2 / row("a"))), Y / (1 / row("a"))], ids=["minimum", "exp", "tanh", "quotient"])
def test_an_infinite_scale_may_leave_every_element_a_value(body):
    c = cascade("absorbed", [reduction("a", "max", X), reduction("s", "max", body)], "x y")
    d = derive_cascade(c)
    assert d.passes == 1
    arrays = {"x": np.array([[-3.0, 0.0, -1.0]]), "y": np.array([[1.0, 2.0, 3.0]])}
    with np.errstate(all="ignore"):
        wanted = run_cascade(c, arrays)["s"]
        assert np.isfinite(wanted).all()
        np.testing.assert_allclose(run_fused(d.fused, arrays, chunks=2)["s"], wanted, atol=1e-12)


@pytest.mark.parametrize("monoid", ["sum", "prod"])
def test_what_is_no_number_refutes_nothing(monoid):
    total = reduction("a", "sum", select(op("gt", X, 0), X, NEG_INF))  # a / min(y, a) is inf / inf
    c = cascade("dead", [total, reduction("s", monoid, Y * row("a") / op("min", Y, row("a")))], "x y")
    d = derive_cascade(c)
    assert not d.certificate.refuted
    assert d.verdict == Verdict.NOT_FOUND


def test_only_the_documented_deviations_of_infinite_inputs_are_accepted():
    x = np.array([[-np.inf, 1.0, 2.0]])
    with np.errstate(all="ignore"):
        expected = expected_results([NORMALISED], {"x": x})["s"]
    assert not expected.wrong(np.array([np.nan])).any()
    assert expected.wrong(np.array([0.0])).all()
    strict = expected_results([NORMALISED], {"x": x}, strict=True)["s"]
    assert strict.wrong(np.array([np.inf])).all()
    assert not expected.wrong(np.array([np.inf])).any()


def test_when_every_form_is_refuted_each_stage_has_its_own_pass(monkeypatch):
    """The last resort before an error: nothing is fused, and the report says what refuted the rest."""
    module = sys.modules["redfuser.derivation.derive"]
    honest = module.certify

    def doubtful(fused, **options):
        found = honest(fused, **options)
        return found if len(fused.passes) == 2 and not fused.dependencies else replace(
            found, valid=False, refuted=True, wrong=(), steps=("planted",))

    monkeypatch.setattr(module, "certify", doubtful)
    c = cascade("centred", [reduction("m", "max", X), reduction("s", "sum", np.exp(X - row("m")))], "x")
    d = derive_cascade(c)
    assert (d.passes, d.verdict) == (2, Verdict.NOT_FOUND)
    assert "planted" in d.stages[0].reason
    monkeypatch.setattr(module, "certify", lambda fused, **_: replace(
        honest(fused), valid=False, refuted=True, wrong=(), steps=("planted",)))
    with pytest.raises(EngineError, match="planted"):
        derive_cascade(c)


def test_infinite_constants_survive_the_engine():
    """A selection that reads results is looked into, down to the -inf of what is not selected."""
    body = select(LIVE, row("a") / row("l") * X, NEG_INF)
    c = cascade("masked largest", [*MASSES, reduction("s", "max", body)], "x y")
    d = derive_cascade(c)
    assert d.certificate.valid
    arrays = rows()
    with np.errstate(all="ignore"):
        found, wanted = run_fused(d.fused, arrays, chunks=3)["s"], run_cascade(c, arrays)["s"]
    assert wanted[1] == -np.inf
    np.testing.assert_allclose(found[[0, 1, 3]], wanted[[0, 1, 3]])


def test_a_mass_may_be_called_like_the_count_of_elements():
    """What counts is told by what it is: a mass can be 0 whatever its name is."""
    weight = op("abs", Y)
    c = cascade("weighted", [reduction("count_live", "sum", weight), reduction("a", "sum", weight * X),
                             reduction("v", "sum", (X - row("a") / row("count_live")) ** 2)], "x y")
    d = derive_cascade(c)
    assert d.certificate.valid
    assert any("count_live" in text for text in d.conditions)
    data = {"x": np.arange(6.0).reshape(2, 3), "y": np.array([[1.0, 2, 1], [0, 0, 0]])}
    with np.errstate(all="ignore"):
        found = run_fused(d.fused, data)["v"]
    assert np.isfinite(found[0])
    assert np.isnan(found[1])


def test_the_count_of_a_later_pass_avoids_names_of_results():
    """Two passes, both count; the second has a result that is called like its counter."""
    deviation = op("abs", X - row("a") / N)
    c = cascade("spread", [reduction("a", "sum", X), reduction("count_2", "sum", deviation),
                           reduction("v", "sum", (deviation - row("count_2") / N) ** 2)], "x")
    d = derive_cascade(c)
    assert (d.passes, d.certificate.valid) == (2, True)
    assert len([a for a in d.fused.accumulators if a.counts]) == 2
    assert len({a.name for a in d.fused.accumulators}) == len(d.fused.accumulators)


def test_a_selection_that_reads_an_undefined_mean_is_undefined():
    """The mean is a reduction of its own here: the quotient that has no value is not in the stage that reads it."""
    weight = np.exp(X - row("m"))
    c = cascade("about_the_mean", [
        reduction("m", "max", X), reduction("l", "sum", weight), reduction("a", "sum", weight / row("l") * Y),
        reduction("s", "sum", masked((Y - row("a")) ** 2))], "x y")
    fused = derive_cascade(c).fused
    x, y = np.full((2, 4), -np.inf), np.array([[1.0, 2.0, 0.0, -1.0], [-1.0, -2.0, -3.0, -1.0]])
    with np.errstate(all="ignore"):
        got = run_fused(fused, {"x": x, "y": y})["s"]
    np.testing.assert_array_equal(got, [np.nan, 0.0])
