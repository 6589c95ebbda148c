"""Several forms of one cascade: what is found, that each is certified, and what the measurements say of them."""

from __future__ import annotations

import numpy as np
import pytest

from redfuser.derivation import derive_cascade
from redfuser.derivation.probe import DATA_SETS, Prober
from redfuser.derivation.run import run_fused
from redfuser.derivation.simplify import cancel_exponentials
from redfuser.derivation.taste import BASE_SUMS
from redfuser.derivation.variants import loop_of, variants
from redfuser.frontend import Spec
from redfuser.ir import Var, op
from redfuser.ir.interpret import run_cascade
from redfuser.pipeline import partition_step, term_step, trace_step


def softmax_dot(x, v):
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return np.sum(e / np.sum(e, axis=1, keepdims=True) * v, axis=1)


def moments(x):
    mean = np.mean(x, axis=1, keepdims=True)
    return mean[:, 0], np.mean((x - mean) ** 2, axis=1)


def cascade_of(fn, **shapes):
    traced = trace_step(fn, {n: Spec(s, "float32") for n, s in shapes.items()}, fn.__name__)
    (only,) = (c for c in partition_step(term_step(traced)).cascades if c.reductions)
    return only


SOFTMAX = cascade_of(softmax_dot, x=("rows", "n"), v=("rows", "n"))
MOMENTS = cascade_of(moments, x=("rows", "n"))


@pytest.fixture(scope="module")
def of_softmax():
    return {v.name: v for v in variants(derive_cascade(SOFTMAX))}


@pytest.fixture(scope="module")
def of_moments():
    return {v.name: v for v in variants(derive_cascade(MOMENTS))}


def monoids(variant):
    return sorted(a.monoid for a in variant.fused.accumulators)


def test_the_first_form_is_the_default(of_softmax):
    first, *_ = of_softmax.values()
    assert first.name == "stable"
    assert first.fused == derive_cascade(SOFTMAX).fused


def test_softmax_needs_no_running_maximum_over_the_reals(of_softmax):
    assert monoids(of_softmax["stable"]) == ["max", "sum", "sum"]
    plain = of_softmax["base sums"]
    assert monoids(plain) == ["sum", "sum"]  # no output reads the maximum: it cancels
    assert not plain.fused.corrections


def test_moments_telescoped_or_over_base_sums_shifted_or_not(of_moments):
    assert {"stable", "base sums", "base sums, pivot", "stable, no pivot", "stage by stage"} <= set(of_moments)
    assert not of_moments["base sums"].fused.corrections
    assert "pivot" in monoids(of_moments["base sums, pivot"])
    assert "pivot" not in monoids(of_moments["stable, no pivot"])


def test_stage_by_stage_corrects_nothing(of_softmax, of_moments):
    for found, passes in ((of_softmax, 3), (of_moments, 2)):
        assert len(found["stage by stage"].fused.passes) == passes
        assert not found["stage by stage"].fused.corrections


def test_every_form_is_certified_and_streams_to_the_definition(of_softmax, of_moments):
    rng = np.random.default_rng(0)
    arrays = {"x": rng.normal(size=(3, 50)), "v": rng.normal(size=(3, 50))}
    for cascade, found in ((SOFTMAX, of_softmax), (MOMENTS, of_moments)):
        needed = {t.name: arrays[t.name] for t in cascade.tensors}
        wanted = run_cascade(cascade, needed)
        for v in found.values():
            assert v.derivation.certificate.valid, v.name
            for tree in (None, 3):
                got = run_fused(v.fused, needed, tree=tree)
                for o in cascade.outs:
                    np.testing.assert_allclose(got[o.name], wanted[o.name], rtol=1e-6, err_msg=v.name)


def test_no_two_forms_have_the_same_loop(of_softmax, of_moments):
    for found in (of_softmax, of_moments):
        assert len({loop_of(v.fused) for v in found.values()}) == len(found)


def test_a_lean_form_computes_only_what_outputs_read():
    lean = derive_cascade(SOFTMAX, taste=BASE_SUMS).fused
    assert len(dict(lean.epilogue)) == 1
    assert len(dict(derive_cascade(SOFTMAX).fused.epilogue)) == 3


def test_exponentials_common_to_both_sides_of_a_quotient_cancel():
    a, b, m = Var("a"), Var("b"), Var("m")
    e = op("exp", op("neg", m))
    assert cancel_exponentials(a * e / (b * e)) == a / b
    assert cancel_exponentials(a * (e / (b * e))) == a / b
    assert cancel_exponentials(e / (a * e * e)) == op("div", 1, a * e)
    assert cancel_exponentials(a * m / (b * m)) == a * m / (b * m)  # m may be 0


# -------------------------------- measurements


def test_large_scores_overflow_without_the_maximum(of_softmax):
    prober = Prober(SOFTMAX)
    stable, plain = prober(of_softmax["stable"].fused), prober(of_softmax["base sums"].fused)
    assert stable.worst <= 1
    assert plain.ordinary <= 1
    assert plain.errors["scores"] == float("inf")


def test_sums_of_squares_cancel_far_from_zero(of_moments):
    prober = Prober(MOMENTS)
    assert prober(of_moments["base sums"].fused).errors["location"] > 1000
    for name in ("stable", "stable, no pivot", "base sums, pivot", "stage by stage"):
        assert prober(of_moments[name].fused).errors["location"] <= 1, name


def test_float64_sums_lose_nothing_to_float32(of_moments):
    """The unit is the contract of the arithmetic in use: in float64 the same form is far better."""
    single, double = Prober(MOMENTS), Prober(MOMENTS, "float64")
    fused = of_moments["base sums"].fused
    assert double(fused).errors["location"] < 1e-3 * single(fused).errors["location"]


def test_data_sets_obey_what_the_definition_needs():
    def spread_of_logs(x):
        y = np.log(x)
        mean = np.mean(y, axis=1, keepdims=True)
        return np.mean((y - mean) ** 2, axis=1)

    prober = Prober(cascade_of(spread_of_logs, x=("rows", "n")))
    assert set(prober.cases) == set(DATA_SETS)
    assert all((case.arrays["x"] > 0).all() for case in prober.cases.values())


def test_long_fixed_axes_are_measured_small():
    def weighted(x, w):
        m = np.max(x, axis=1, keepdims=True)
        return np.sum(np.exp(x - m)[:, :, None] * w.reshape(1, -1, 4096), axis=1)

    c = cascade_of(weighted, x=("rows", "n"), w=("n", 4096))
    prober = Prober(c)
    assert all(max(a.shape) <= 400 for case in prober.cases.values() for a in case.arrays.values())
    assert prober(derive_cascade(c).fused).ordinary <= 1


def test_the_default_subtracts_no_sums_of_raw_scores():
    """sum t (x - m) over sum t x - m sum t: the second form loses everything when scores sit far from zero."""
    def focal(x, t):
        shifted = x - np.max(x, axis=1, keepdims=True)
        z = np.sum(np.exp(shifted), axis=1, keepdims=True)
        return -np.sum(t * (1.0 - np.exp(shifted) / z) ** 2 * (shifted - np.log(z)), axis=1)

    c = cascade_of(focal, x=("rows", "n"), t=("rows", "n"))
    assert Prober(c)(derive_cascade(c).fused).errors["location"] <= 1
