"""What data are shifted by: that it keeps digits far from zero and costs none elsewhere. The loop in NumPy."""

from __future__ import annotations

from functools import cache, reduce

import numpy as np
import pytest
from derive_examples import MEAN, N, V, X, Y, cascade, reduction, row
from hard_rows import HARD_ROWS, hard_rows

from redfuser.derivation import derive_cascade, run_fused
from redfuser.derivation.probe import Prober
from redfuser.derivation.state import Chunk
from redfuser.derivation.streaming import Streamer, merge
from redfuser.ir import MONOIDS, run_cascade
from redfuser.ir.ops import PIVOT, nearer_zero, read_pivot
from redfuser.testing.fuzz import fuzz

WAYS = ({"chunks": 1}, {"chunks": 9}, {"chunks": 9, "tree": 4})
LENGTH = 4096


def square(e):
    return e * e


DEFINITIONS = {
    "moments": cascade("moments", [reduction("S", "sum", X), reduction("V", "sum", square(X - MEAN))], "x"),
    "weighted": cascade("weighted", [
        reduction("W", "sum", Y), reduction("S", "sum", Y * X),
        reduction("V", "sum", Y * square(X - row("S") / row("W")))], "x y"),
    "scaled": cascade("scaled", [
        reduction("f", "max", abs(X)), reduction("S", "sum", X / row("f")),
        reduction("V", "sum", square(X / row("f") - MEAN))], "x"),
    "standardised": cascade("standardised", [
        reduction("q", "sum", X * X), reduction("S", "sum", X * (1 / np.sqrt(row("q") / N))),
        reduction("V", "sum", square(X * (1 / np.sqrt(row("q") / N)) - MEAN))], "x"),
    "half": cascade("half", [reduction("S", "sum", X), reduction("V", "sum", square(0.5 * X - 0.5 * MEAN))], "x"),
    "softmax mean": cascade("softmax mean", [
        reduction("m", "max", X), reduction("l", "sum", np.exp(X - row("m"))),
        reduction("S", "sum", X * np.exp(X - row("m"))),
        reduction("V", "sum", np.exp(X - row("m")) * square(X - row("S") / row("l")))], "x"),
}


@cache
def fused(name):
    return derive_cascade(DEFINITIONS[name]).fused


LEAST = MONOIDS[PIVOT].reduce


def test_the_pivot_is_the_finite_element_nearest_to_zero():
    x = np.array([[np.nan, np.inf, -3.0, 2.0], [-np.inf, -1.0, 1.0, 5.0], [np.nan, np.inf, -np.inf, np.nan]])
    found = LEAST(x, axis=1, keepdims=False)
    assert found.tolist() == [2.0, -1.0, np.inf]  # of -1 and 1 the earlier; nothing in the last row
    assert read_pivot(found).tolist() == [2.0, -1.0, 0.0]
    assert LEAST(np.array([[4, -2]]), axis=1, keepdims=True).tolist() == [[-2]]


def test_laws_of_the_monoid():
    x = np.random.default_rng(0).integers(-4, 5, (6, 9)) * 1.0
    x[1:, 0], x[4, :] = np.nan, np.inf
    whole = LEAST(x, axis=0, keepdims=False)
    parts = [LEAST(x[i : i + 2], axis=0, keepdims=False) for i in (0, 2, 4)]
    a, b, c = parts
    np.testing.assert_array_equal(reduce(nearer_zero, parts), whole)
    np.testing.assert_array_equal(nearer_zero(a, nearer_zero(b, c)), whole)
    np.testing.assert_array_equal(nearer_zero(np.full(9, MONOIDS[PIVOT].identity), a), a)
    np.testing.assert_array_equal(nearer_zero(a, np.full(9, MONOIDS[PIVOT].identity)), a)


@pytest.mark.parametrize("kind", HARD_ROWS)
@pytest.mark.parametrize("name", ["moments", "half"])
def test_no_data_lose_digits(name, kind):
    x = hard_rows(kind)
    exact = run_cascade(DEFINITIONS[name], {"x": x}, np.longdouble)
    size = np.abs(x.astype(float)).sum(-1)
    for way in WAYS:
        got = run_fused(fused(name), {"x": x}, dtype=np.float32, **way)
        assert (np.abs(got["S"] - exact["S"]) < 1.3e-6 * size).all(), way
        assert (np.abs(got["V"] - exact["V"]) < 4e-6 * exact["V"]).all(), way


@pytest.mark.parametrize("name", sorted(DEFINITIONS))
def test_every_data_set_of_the_prober_is_within_the_contract(name):
    probe = Prober(DEFINITIONS[name], "float64")(fused(name))
    assert {"outlier", "location"} <= set(probe.errors)
    assert probe.worst <= 1, probe


@pytest.mark.parametrize("name", ["scaled", "standardised", "half"])
def test_scaled_data_are_shifted_as_well(name):
    assert [a.monoid for a in fused(name).accumulators].count(PIVOT) == 1
    x = (1e4 + 1e-1 * np.random.default_rng(0).standard_normal((3, LENGTH))).astype(np.float32)
    exact = run_cascade(DEFINITIONS[name], {"x": x}, np.longdouble)["V"]
    for way in WAYS:
        got = run_fused(fused(name), {"x": x}, dtype=np.float32, **way)["V"]
        assert (np.abs(got - exact) < 1e-5 * exact).all(), way
    one = run_fused(fused(name), {"x": np.full((1, 1), 3.3, np.float32)})["V"]
    assert one.tolist() == [0.0]


def test_a_scale_of_zero_gives_nan_like_the_definition():
    got = run_fused(fused("scaled"), {"x": np.zeros((1, 5), np.float32)}, chunks=2)["V"]
    assert np.isnan(got).all()


def test_weights_of_zero_do_not_choose_the_pivot():
    """Padding: 0 in the data, 0 in the weights, and the rest lies far from zero."""
    x, w = hard_rows("far"), np.ones((3, LENGTH), np.float32)
    x[:, ::3] = w[:, ::3] = 0
    exact = run_cascade(DEFINITIONS["weighted"], {"x": x, "y": w}, np.longdouble)["V"]
    got = run_fused(fused("weighted"), {"x": x, "y": w}, dtype=np.float32)["V"]
    assert (np.abs(got - exact) < 1e-5 * exact).all()


def test_a_dead_prefix_leaves_the_choice_to_later_chunks():
    f = fused("weighted")
    x, w = hard_rows("far")[:1, :8], np.array([[0, 0, 0, 0, 1, 1, 1, 1]], np.float32)
    streamer = Streamer(f)
    dead, live = (streamer.advance([], Chunk({"x": x, "y": w}, a, a + 4)) for a in (0, 4))
    assert dead["x_pivot"].tolist() == [np.inf]
    for state in (merge(streamer, dead, live), merge(streamer, live, dead)):
        np.testing.assert_array_equal(state["x_pivot"], live["x_pivot"])
        assert np.isfinite(state["S_shifted"]).all()
    nothing = run_fused(f, {"x": x[:, :4], "y": w[:, :4]}, chunks=2)
    assert nothing["S"].tolist() == [0.0]


def test_masked_standardised_deviations_do_not_cancel():
    assert not fuzz(1, seed=424206).findings


def test_a_pivot_is_no_reduction_of_users():
    import redfuser as rf

    with pytest.raises(rf.errors.ShapeError, match="known are sum"):
        rf.Cascade("c", axis=rf.axes("n")).reduce(PIVOT, "p", rf.tensor("x", rf.axes("n")))


def test_a_weight_with_more_axes_does_not_choose_the_pivot():
    """The pivot of x[p, n] has no axis d, whatever weighs x in a stage over d."""
    products = reduction("o", "sum", (X - row("S") / N) * V, ("p", "d"))
    c = cascade("weighted", [reduction("S", "sum", X), products], "x v", axes="pnd")
    found = derive_cascade(c).fused
    (shift,) = [a for a in found.accumulators if a.monoid == PIVOT]
    assert shift.axes == ("p",)
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=(2, 9)), rng.normal(size=(9, 3))
    got = run_fused(found, {"x": x, "v": weight})["o"]
    np.testing.assert_allclose(got, (x - x.mean(1, keepdims=True)) @ weight, rtol=1e-12)
