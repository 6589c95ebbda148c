"""`numerics="fast"` end to end: another form reaches the kernel, and it never exceeds its stated bound."""

from __future__ import annotations

import numpy as np
import pytest

import redfuser as rf
from redfuser import pipeline
from redfuser.extract.frontier import stated
from redfuser.ir.contract import expected_results


def moments(x):
    mean = np.mean(x, axis=1, keepdims=True)
    return mean[:, 0], np.mean((x - mean) ** 2, axis=1)


def softmax_dot(x, v):
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return np.sum(e / np.sum(e, axis=1, keepdims=True) * v, axis=1)


def bounded_softmax_dot(x, v):
    rf.assume(np.abs(x) <= 20)
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return np.sum(e / np.sum(e, axis=1, keepdims=True) * v, axis=1)


def piece_of(fused, *arrays):
    (piece,) = (p for p in fused.lower(*arrays).program.pieces if p.derivation is not None)
    return piece


def test_the_form_that_fast_takes_is_the_one_that_runs():
    stable, fast = rf.fuse(moments), rf.fuse(moments, numerics="fast")
    x = np.random.default_rng(0).normal(size=(3, 1000)).astype(np.float32)
    a, b = piece_of(stable, x), piece_of(fast, x)
    chosen, why = pipeline.frontier_of(b.cascade, fast.options).choice("fast")
    assert b.fused == chosen.variant.fused
    assert b.fused != a.fused
    assert "cheaper" in why
    assert b.derivation.verdict == a.derivation.verdict
    assert b.derivation.certificate.valid
    for got, wanted in zip(fast(x), moments(x.astype(np.float64)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
    assert fast.stats.kernel_runs == 1


def test_stable_derives_no_other_forms(monkeypatch):
    def refuse(*_):
        raise AssertionError("the frontier was searched")

    monkeypatch.setattr(pipeline, "_forms_cached", refuse)
    x = np.ones((2, 7), np.float32)
    rf.fuse(moments)(x)
    rf.fuse(moments).explain(x)
    with pytest.raises(AssertionError, match="searched"):
        rf.fuse(moments, numerics="fast")(x)


def test_fast_keeps_the_maximum_of_unbounded_scores():
    rng = np.random.default_rng(1)
    x = rng.uniform(-1e4, 1e4, (3, 400)).astype(np.float32)
    v = rng.normal(size=(3, 400)).astype(np.float32)
    got = rf.fuse(softmax_dot, numerics="fast")(x, v)
    np.testing.assert_allclose(got, softmax_dot(x.astype(np.float64), v), rtol=1e-5)


def test_fast_drops_the_maximum_of_bounded_scores():
    rng = np.random.default_rng(2)
    x = rng.uniform(-20, 20, (3, 400)).astype(np.float32)
    v = rng.normal(size=(3, 400)).astype(np.float32)
    stable, fast = rf.fuse(bounded_softmax_dot), rf.fuse(bounded_softmax_dot, numerics="fast")
    assert "max" in {a.monoid for a in piece_of(stable, x, v).fused.accumulators}
    assert "max" not in {a.monoid for a in piece_of(fast, x, v).fused.accumulators}
    wanted = softmax_dot(x.astype(np.float64), v)
    np.testing.assert_allclose(fast(x, v), wanted, rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(stable(x, v), wanted, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(12))
def test_fast_never_exceeds_its_stated_bound(seed):
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(2, 5)), int(rng.integers(2, 700)))
    x = (10.0 ** rng.uniform(-3, 3) * rng.normal(size=shape) + 10.0 ** rng.uniform(-3, 4)).astype(np.float32)
    v = rng.normal(size=shape).astype(np.float32)
    for fn, arrays in ((moments, (x,)), (softmax_dot, (x, v))):
        fast = rf.fuse(fn, numerics="fast")
        got = fast(*arrays)
        piece = piece_of(fast, *arrays)
        named = {t.name: a for t, a in zip(piece.cascade.tensors, arrays, strict=True)}
        exact = expected_results([piece.cascade], named)
        own = stated(piece.fused, named)
        for o, value in zip(piece.outputs, got if isinstance(got, tuple) else (got,), strict=True):
            error = np.abs(value.astype(np.longdouble) - exact[o.name].accepted[0])
            assert (error <= np.maximum(own[o.name].allowed, exact[o.name].allowed)).all()


def test_reference_computes_in_float64():
    x = (1e4 + 1e-3 * np.random.default_rng(3).normal(size=(2, 3000))).astype(np.float32)
    wanted = moments(x.astype(np.longdouble))[1]
    errors = {n: float(np.abs(rf.fuse(moments, numerics=n)(x)[1] - wanted).max()) for n in ("stable", "reference")}
    assert errors["reference"] <= np.abs(wanted).max() * 2 * np.finfo(np.float32).eps
    assert piece_of(rf.fuse(moments, numerics="reference"), x).dtype == "float64"
