"""The mathematical level: equations in, a streaming object out."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

from redfuser.derivation import Cascade, NotFusible, Verdict, axes, derive, run_fused, tensor
from redfuser.errors import ArgumentError, ShapeError, TraceError
from redfuser.rules import default, online


def attention():
    n, d = axes("n d")
    x, v = tensor("x", n), tensor("v", n, d)
    c = Cascade("attention", axis=n)
    m = c.max("m", x)
    mass = c.sum("l", np.exp(x - m))
    c.sum("o", np.exp(x - m) / mass * v)
    return c


def moments():
    p, n = axes("p n")
    x = tensor("x", p, n)
    c = Cascade("moments", axis=n)
    total = c.sum("S", x)
    c.sum("M2", (x - total / c.size) ** 2)
    return c


@pytest.fixture(scope="module")
def fusion():
    return derive(attention())


@pytest.fixture
def data():
    rng = np.random.default_rng(2)
    return rng.normal(size=60).astype(np.float32), rng.normal(size=(60, 3)).astype(np.float32)


def test_attributes(fusion):
    assert [a.name for a in fusion.accumulators] == ["m", "l", "o"]
    assert [a.monoid for a in fusion.accumulators] == ["max", "sum", "sum"]
    assert fusion.accumulators[2].axes == ("d",)
    assert {k: str(e) for k, e in fusion.corrections.items()} == {
        "l": "l_old * exp(m_old - m_new)", "o": "o_old * exp(m_old - m_new)"}
    assert str(fusion.epilogue["o"]) == "o[d] / l"
    assert (fusion.passes, fusion.verdict, fusion.conditions) == (1, Verdict.FUSIBLE, ())
    assert fusion.certificate.valid
    assert "SymPy" in fusion.certificate.method
    assert r"l_{\mathrm{old}} \, e^{m_{\mathrm{old}} - m_{\mathrm{new}}}" in fusion.latex()


def test_update_and_merge_equal_the_definition(fusion, data):
    x, v = data
    p = np.exp(x.astype(float) - x.max())
    expected = p / p.sum() @ v
    s = fusion.init()
    for i in range(0, 40, 7):
        s = fusion.update(s, x=x[i : min(i + 7, 40)], v=v[i : min(i + 7, 40)])
    t = fusion.update(fusion.init(), x=x[40:], v=v[40:])
    got = fusion.finalize(fusion.merge(s, t))
    np.testing.assert_allclose(got["o"], expected, rtol=2e-6)
    assert got["o"].dtype == np.float32
    assert set(got) == {"m", "l", "o"}
    wide = fusion.update(fusion.init(), acc_dtype="float64", x=x, v=v)
    np.testing.assert_allclose(fusion.finalize(wide)["o"], expected, rtol=1e-12)


def test_empty_state_is_neutral_bit_for_bit(fusion, data):
    x, v = data
    s = fusion.update(fusion.init(), x=x, v=v)
    for merged in (fusion.merge(fusion.init(), s), fusion.merge(s, fusion.init())):
        assert all(np.array_equal(merged[k], s[k]) for k in s.values)
    assert fusion.merge(fusion.init(), fusion.init()).length == 0
    same = fusion.update(s, x=x[:0], v=v[:0])
    assert all(np.array_equal(same[k], s[k]) for k in s.values)


def test_merge_is_associative_and_masked_parts_do_not_matter(fusion, data):
    x, v = (a.astype(float) for a in data)
    x[:20] = -np.inf
    a, b, c = (fusion.update(fusion.init(), x=x[i : i + 20], v=v[i : i + 20]) for i in (0, 20, 40))
    left = fusion.finalize(fusion.merge(fusion.merge(a, b), c))["o"]
    right = fusion.finalize(fusion.merge(a, fusion.merge(b, c)))["o"]
    live = fusion.finalize(fusion.merge(b, c))["o"]
    np.testing.assert_allclose(left, right, rtol=1e-13)
    np.testing.assert_allclose(left, live, rtol=1e-13)
    assert np.isfinite(left).all()


def test_state_is_frozen_and_pickles(fusion, data):
    x, v = data
    s = fusion.update(fusion.init(), x=x, v=v)
    copy = pickle.loads(pickle.dumps(s))
    assert all(np.array_equal(copy[k], s[k]) for k in s.values)
    with pytest.raises(ValueError, match="read-only"):
        s["l"][...] = 0
    with pytest.raises(AttributeError):
        s.length = 3  # type: ignore[misc]
    assert "l: float32[]" in repr(s)


def test_other_axes_are_vectorised():
    fusion = derive(moments())
    x = np.random.default_rng(0).normal(size=(4, 30)) + 1e6
    s, t = fusion.update(fusion.init(), x=x[:, :11]), fusion.update(fusion.init(), x=x[:, 11:])
    got = fusion.finalize(fusion.merge(s, t))
    np.testing.assert_allclose(got["M2"], ((x - x.mean(1, keepdims=True)) ** 2).sum(1), rtol=1e-8)
    np.testing.assert_allclose(got["S"], x.sum(1), rtol=1e-14)


def test_finalize_of_nothing():
    n = axes("n")
    c = Cascade("total", axis=n)
    c.sum("S", tensor("x", n))
    fusion = derive(c)
    assert fusion.finalize(fusion.init())["S"] == 0
    with pytest.raises(ShapeError, match="empty"):
        derive(attention()).finalize(derive(attention()).init())


def test_chunks_are_checked(fusion, data):
    x, v = data
    with pytest.raises(ShapeError, match=r"v\[n,d\]"):
        fusion.update(fusion.init(), x=x)
    with pytest.raises(ShapeError, match="'y' is no tensor"):
        fusion.update(fusion.init(), x=x, v=v, y=v)
    with pytest.raises(ShapeError, match="'v' has 1 dimensions"):
        fusion.update(fusion.init(), x=x, v=x)
    with pytest.raises(ShapeError, match="length"):
        fusion.update(fusion.init(), x=x[:5], v=v)


def test_not_fusible_carries_a_plan_that_runs():
    p, n = axes("p n")
    x = tensor("x", p, n)
    c = Cascade("deviation", axis=n)
    total = c.sum("S", x)
    c.sum("D", abs(x - total / c.size))
    with pytest.raises(NotFusible, match="D: sum of") as caught:
        derive(c)
    error = caught.value
    assert (error.verdict, error.stage) == (Verdict.NOT_FUSIBLE, "D")
    assert "rank" in error.reason
    assert error.hint
    data = np.random.default_rng(0).normal(size=(2, 40))
    np.testing.assert_allclose(run_fused(error.plan, {"x": data})["D"],
                               abs(data - data.mean(1, keepdims=True)).sum(1))
    assert pickle.loads(pickle.dumps(error)).stage == "D"
    with pytest.raises(NotFusible):
        derive(attention(), rules=default - online)


def test_builder_reports_mistakes():
    n, d = axes("n d")
    c = Cascade("mistakes", axis=n)
    with pytest.raises(ShapeError, match="no reduction"):
        derive(c)
    with pytest.raises(ShapeError, match="monoid"):
        c.reduce("median", "m", tensor("x", n))
    c.sum("S", tensor("x", n))
    with pytest.raises(ShapeError, match="name"):
        c.sum("S", tensor("x", n))
    with pytest.raises(ShapeError, match="number of elements seen"):
        c.sum("count", tensor("x", n))
    c.sum("T", tensor("x", n, d))
    with pytest.raises(ShapeError, match="tensor x is used"):
        c.build()
    with pytest.raises(ShapeError, match="names"):
        axes("n n")
    with pytest.raises(ShapeError, match="identifier"):
        tensor("two words", n)


def test_importing_stays_light():
    code = "import sys, redfuser.derivation; print([m for m in ('egglog', 'sympy', 'mpmath') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_merging_states_of_different_precision_keeps_the_higher_one(fusion):
    chunk = {"x": np.ones(2), "v": np.ones((2, 3))}
    narrow = fusion.update(fusion.init(), **{k: a.astype("float32") for k, a in chunk.items()})
    wide = fusion.update(fusion.init(), **chunk)
    for a, b in ((narrow, wide), (wide, narrow)):
        assert fusion.merge(a, b)["o"].dtype == "float64"


def test_a_state_goes_on_with_the_sizes_it_began_with(fusion):
    three, one = (fusion.update(fusion.init(), x=np.ones(2), v=np.ones((2, d))) for d in (3, 1))
    with pytest.raises(ShapeError, match="axis d has length 4, the state began with 3"):
        fusion.update(three, x=np.ones(2), v=np.ones((2, 4)))
    with pytest.raises(ShapeError, match="axis d has length 1"):
        fusion.merge(three, one)


def test_states_of_another_cascade_are_refused(fusion):
    other = derive(moments())
    state = other.update(other.init(), x=np.ones((2, 3)))
    own = fusion.update(fusion.init(), x=np.ones(2), v=np.ones((2, 3)))
    for call in (lambda: fusion.merge(own, state), lambda: fusion.merge(state, own),
                 lambda: fusion.update(state, x=np.ones(2), v=np.ones((2, 3)))):
        with pytest.raises(ShapeError, match="no state of attention"):
            call()


def test_stream_free_inputs_are_kept_and_must_not_change():
    n = axes("n")
    x, w = tensor("x", n), tensor("w")
    c = Cascade("scaled", axis=n)
    m = c.max("m", x * w)
    c.sum("l", np.exp(x * w - m))
    f = derive(c)
    scale = np.array(2.0)
    state = f.update(f.init(), x=np.ones(3), w=scale)
    scale[...] = 3.0
    assert state.inputs["w"] == 2.0
    with pytest.raises(ShapeError, match="w does not vary along axis n"):
        f.update(state, x=np.ones(3), w=scale)


def test_sums_of_nothing_are_zero_also_with_a_pivot():
    n = axes("n")
    x = tensor("x", n)
    c = Cascade("variance", axis=n)
    c.sum("M2", (x - c.sum("S", x) / c.size) ** 2)
    f = derive(c)
    assert any(a.monoid == "pivot" for a in f.accumulators)
    assert f.finalize(f.init()) == {"S": 0.0, "M2": 0.0}


def test_arguments_of_the_wrong_kind_are_named() -> None:
    fusion = derive(attention())
    state = fusion.init()
    n = axes("n")
    for call, message in (
        (lambda: fusion.update(3, x=np.ones(2), v=np.ones((2, 1))), "'state' is 3"),
        (lambda: fusion.finalize(3), "'state' is 3"),
        (lambda: fusion.merge(state, 3), "'b' is 3"),
        (lambda: fusion.merge(3, state), "'a' is 3"),
        (lambda: tensor("x", "n"), "'where' of tensor 'x' holds 'n'"),
        (lambda: tensor("x", n, 2), "'where' of tensor 'x' holds 2"),
        (lambda: axes(3), "'names' is 3"),
        (lambda: Cascade("c", axis="n"), "'axis' of cascade 'c' is 'n'"),
        (lambda: derive(attention), "'cascade' of derive is .* rf.fuse"),
    ):
        with pytest.raises(ArgumentError, match=message):
            call()


@pytest.mark.parametrize("use", [
    lambda c, x, m: np.where(x == m, x, 0), lambda c, x, m: np.where(np.logical_not(x == m), x, 0),
    lambda c, x, m: (x == m) * x, lambda c, x, m: x + (x != m), lambda c, x, m: (x > 0) & (x == m),
    lambda c, x, m: (x == m) | (x > 0), lambda c, x, m: np.logical_or(x == m, x > 0),
    lambda c, x, m: c.sum("s", x == m), lambda c, x, m: c.reduce("any", "s", x == m), lambda c, x, m: c.assume(x != m)])
def test_what_equality_says_of_expressions_is_no_operand(use):
    n = axes("n")
    x = tensor("x", n)
    c = Cascade("ties", axis=n)
    m = c.max("m", x)
    with pytest.raises(TraceError, match=r"use np\.equal\(a, b\)"):
        use(c, x, m)
    assert [r.name for r in c.build().reductions] == ["m"]


def test_constants_are_selected():
    n = axes("n")
    x = tensor("x", n)
    assert str(np.where(np.equal(x, 1), True, False)) == "select(x[n] == 1, True, False)"


def test_an_assumption_names_tensors_that_are_read():
    n = axes("n")
    c = Cascade("total", axis=n)
    c.sum("s", tensor("x", n))
    c.assume(tensor("w", n) > 0)
    with pytest.raises(TraceError, match="no reduction reads w"):
        c.build()
    c.sum("t", tensor("w", n))
    assert len(c.build().assumptions) == 1
