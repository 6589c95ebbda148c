"""Conditions stated by `assume`: recorded without work, used by derivations, listed as conditions of the result."""

from __future__ import annotations

import numpy as np
import pytest
from assume_examples import X, Y, array, built, cascades_of, plain_theil, row, term_of, theil

import redfuser as rf
from redfuser.derivation import Verdict, derive_cascade, run_fused
from redfuser.derivation.accumulate import Model, _name_mixtures
from redfuser.derivation.derive import DEFAULT_LIMITS
from redfuser.derivation.quotients import quotients_inside
from redfuser.derivation.skeleton import Skeleton
from redfuser.derivation.taste import BOUNDED, STABLE
from redfuser.derivation.variants import variants
from redfuser.errors import AssumptionError, TraceError
from redfuser.frontend import assume
from redfuser.ir import Op, op, refs, run_cascade, run_term, select, walk

# ---- what is recorded

def test_conditions_are_split_into_comparisons():
    def fn(x, w):
        assume((w >= 0) & ~(w > 1) & (x <= w))
        assume((x != 0).all())
        return x.sum(axis=-1) + w.sum(axis=-1)

    assumptions = term_of(fn, x=array("i", "n"), w=array("i", "n")).assumptions
    assert list(map(str, assumptions)) == ["w[i,n] >= 0", "w[i,n] <= 1", "x[i,n] <= w[i,n]", "x[i,n] != 0"]


def test_a_condition_computes_nothing():
    def fn(x):
        assume(np.exp(x).sum(axis=-1) < 5)
        return plain_theil(x)

    with_it, without = term_of(fn, x=array("i", "n")), term_of(plain_theil, x=array("i", "n"))
    assert [str(let.expr) for let in with_it.lets] == [str(let.expr) for let in without.lets]
    assert with_it.assumptions == ()  # nobody else needs the sum


def test_a_condition_on_a_result_that_is_needed_is_kept():
    def fn(x):
        m = x.mean(axis=-1, keepdims=True)
        assume(m > 0)
        return (x / m).max(axis=-1)

    assert list(map(str, term_of(fn, x=array("i", "n")).assumptions)) == ["m_sum[i] / |n| > 0"]


def test_a_bound_on_a_maximum_is_one_on_every_element():
    def fn(x, w):
        assume(np.abs(x).max() <= 30)
        assume(w.min(axis=-1) > 0)
        assume(w.max(axis=-1) >= 2)  # says nothing of any one element
        return (x * w).sum(axis=-1)

    assumptions = term_of(fn, x=array("i", "n"), w=array("i", "n")).assumptions
    assert list(map(str, assumptions)) == ["abs(x[i,n]) <= 30", "w[i,n] > 0"]


def test_the_definition_is_the_same_with_conditions():
    x = np.random.default_rng(0).uniform(0.5, 2, (3, 7)).astype(np.float32)
    assert np.allclose(run_term(term_of(theil, x=array("i", "n")), {"x": x})["out"], plain_theil(x), rtol=1e-5)


def test_conditions_follow_the_scores_into_their_producer():
    def attention(q, k, v):
        s = q @ k.T
        assume(np.abs(s) <= 8)
        s = s * 0.5
        assume(s <= 4)
        p = np.exp(s - s.max(axis=-1, keepdims=True))
        return p @ v / p.sum(axis=-1, keepdims=True)

    (cascade,) = cascades_of(attention, q=array("i", "d"), k=array("n", "d"), v=array("n", "f"))
    (scores,) = cascade.producers
    assert str(scores.expr).endswith("* 0.5")
    last = cascade.assumptions[-1]
    assert str(last) == f"{scores.name}[i,n] <= 4"  # the scaled scores
    assert "sum_d" in str(cascade.assumptions[0])  # the others, written out


def test_conditions_are_flattened_with_the_stream():
    def fn(x):
        assume(x > 0)
        r = x / x.mean()
        return (r * np.log(r)).mean()

    (cascade,) = cascades_of(fn, x=array("h", "w"))
    (condition,) = cascade.assumptions
    assert condition.args[0].axes == (cascade.axis,)
    assert derive_cascade(cascade).verdict == Verdict.FUSIBLE


def test_elementwise_pieces_and_unread_tensors_have_no_conditions():
    def fn(x, w, y):
        assume(x > 0)
        assume(w > 0)
        return np.log(x).sum(axis=-1) * y

    for cascade in cascades_of(fn, x=array("i", "n"), w=array("j"), y=array("k", "i")):
        assert {a.args[0].tensor for a in cascade.assumptions} <= {t.name for t in cascade.tensors}


# ---- outside of fused code

def test_elsewhere_a_condition_is_checked_at_once():
    assume(np.arange(3) >= 0)
    with pytest.raises(AssumptionError, match="1 of 3"):
        assume(np.arange(3) > 0)
    with pytest.raises(ValueError, match="false"):
        rf.assume(False)
    with pytest.raises(TraceError, match="comparison"):
        assume(np.arange(3.0))
    with pytest.raises(TraceError, match=r"cascade\.assume"):
        assume(X > 0)


def test_a_traced_condition_must_be_bool():
    with pytest.raises(TraceError, match="assume"):
        term_of(lambda x: (assume(x), x.sum())[1], x=array("n"))


# ---- derivations

def derived(fn, **specs):
    (cascade,) = (c for c in cascades_of(fn, **specs) if len(c.reductions) > 1)
    return derive_cascade(cascade)


def test_positive_elements_let_a_logarithm_be_split():
    found, plain = derived(theil, x=array("i", "n")), derived(plain_theil, x=array("i", "n"))
    assert (found.verdict, found.passes, len(found.fused.accumulators)) == (Verdict.FUSIBLE, 1, 3)
    assert found.certificate.valid
    assert plain.verdict != Verdict.FUSIBLE


def test_a_clip_at_the_running_extreme_never_acts():
    """No assumption is needed: |x| <= max |x| holds for every prefix."""
    c = built([("m", "max", abs(X)), ("s", "sum", op("min", op("max", X / row("m"), -1.0), 1.0) * Y)])
    found = derive_cascade(c)
    assert (found.verdict, found.passes) == (Verdict.FUSIBLE, 1)
    assert not any("min" in str(a.body) or "max(" in str(a.body) for a in found.fused.accumulators)


def hinge(*assumptions):
    return built([("m", "max", X), ("s", "sum", op("max", X - row("m") + 1, 0))], *assumptions)


def test_bounds_of_elements_remove_a_hinge():
    found = derive_cascade(hinge(X >= 0, X <= 1))
    assert (found.verdict, found.passes) == (Verdict.FUSIBLE, 1)
    for less in ((X >= 0,), (X <= 1,), (X >= -0.1, X <= 1), ()):
        assert derive_cascade(hinge(*less)).passes == 2


def by_weight(x, w):
    t = w.sum(axis=-1, keepdims=True)
    assume(t > 0)
    return (x / t).max(axis=-1)


def test_what_is_known_of_the_finished_row_moves_work_to_the_epilogue():
    found = derived(by_weight, x=array("i", "n"), w=array("i", "n"))
    assert (found.passes, len(found.fused.accumulators)) == (1, 2)
    assert found.certificate.valid
    assert found.conditions == ("t[i] > 0 for the finished row",)


def test_running_values_may_break_what_holds_for_the_finished_row():
    """Prefixes whose weights sum to 0 or less, and partial states of such, do no harm."""
    found = derived(by_weight, x=array("i", "n"), w=array("i", "n"))
    x = np.array([[3.0, -1.0, 5.0, 2.0, -4.0]])
    w = np.array([[-1.0, 1.0, -7.0, 2.0, 9.0]])
    for chunks in ([1, 1, 1, 1, 1], [2, 3], [3, 2], [5]):
        for tree in (None, 0, 1):
            out = run_fused(found.fused, {"x": x, "w": w}, chunks=chunks, tree=tree)
            assert out["out"] == pytest.approx(x.max() / w.sum())


def test_a_fact_about_the_finished_row_is_not_used_while_the_loop_runs():
    """log(x / t) = log x - log t for t > 0 moves out; |t| = t for a running t would be wrong, and is not needed."""
    c = built([("t", "sum", Y), ("s", "sum", X * abs(row("t"))), ("u", "sum", np.exp(X) * row("s"))], row("t") > 0)
    found = derive_cascade(c)
    assert found.passes == 1
    assert found.certificate.valid
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(2, 9)), rng.normal(size=(2, 9)) - 1.0
    y[:, -1] = 30.0  # negative sums until the last element
    out = run_fused(found.fused, {"x": x, "y": y, "p": 1.0}, chunks=[1] * 9)
    s = x.sum(axis=1) * y.sum(axis=1)
    assert out["u"] == pytest.approx(np.exp(x).sum(axis=1) * s)


def softmax_dot(s, v):
    assume(np.abs(s) <= 20)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return (p / p.sum(axis=-1, keepdims=True) * v).sum(axis=-1)


def test_bounded_scores_need_no_running_maximum_if_asked_for():
    (cascade,) = cascades_of(softmax_dot, s=array("i", "n"), v=array("i", "n"))
    stable, bounded = derive_cascade(cascade), derive_cascade(cascade, taste=BOUNDED)
    assert [a.monoid for a in stable.fused.accumulators] == ["max", "sum", "sum"]  # the default stays safe
    assert [a.monoid for a in bounded.fused.accumulators] == ["sum", "sum"]
    assert bounded.certificate.valid
    assert not bounded.fused.corrections


def test_without_bounds_the_running_maximum_stays():
    def unbounded(s, v):
        p = np.exp(s - s.max(axis=-1, keepdims=True))
        return (p / p.sum(axis=-1, keepdims=True) * v).sum(axis=-1)

    (cascade,) = cascades_of(unbounded, s=array("i", "n"), v=array("i", "n"))
    assert "max" in [a.monoid for a in derive_cascade(cascade, taste=BOUNDED).fused.accumulators]


def bounded_attention(q, k, v):
    s = q @ k.T
    assume(np.abs(s) <= 20)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return p @ v / p.sum(axis=-1, keepdims=True)


def test_a_quotient_of_two_sums_is_one_sum():
    (cascade,) = cascades_of(bounded_attention, q=array("i", "d"), k=array("n", "d"), v=array("n", "f"))
    inside = quotients_inside(cascade)
    assert [str(o.expr) for o in inside.outs] == [f"{inside.reductions[-1].name}[i,f]"]
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=shape) for name, shape in (("q", (3, 2)), ("k", (7, 2)), ("v", (7, 4)))}
    assert np.allclose(run_cascade(inside, arrays)["out"], run_cascade(cascade, arrays)["out"])
    assert quotients_inside(inside) == inside


def test_a_sum_that_is_read_otherwise_too_stays():
    def both(x, w):
        t, s = w.sum(axis=-1), (x * w).sum(axis=-1)
        return s / t, s, t / s

    (cascade,) = cascades_of(both, x=array("i", "n"), w=array("i", "n"))
    assert quotients_inside(cascade) == cascade


def test_bounded_attention_without_a_maximum_is_among_the_forms():
    (cascade,) = cascades_of(bounded_attention, q=array("i", "d"), k=array("n", "d"), v=array("n", "f"))
    forms = [[a.monoid for a in v.fused.accumulators] for v in variants(derive_cascade(cascade))]
    assert forms[0] == ["max", "sum", "sum"]
    assert ["sum", "sum"] in forms


@pytest.mark.parametrize("taste", [BOUNDED, STABLE])
def test_no_loop_divides_inside_by_a_running_value(taste):
    """A quotient of running values is a dependency, which reads 0 where nothing has any weight yet."""
    weight = np.exp(select(Y > 0, X, float("-inf")) - row("m"))
    found = derive_cascade(built([
        ("m", "max", select(Y > 0, X, float("-inf"))), ("l", "sum", weight), ("a", "sum", weight * Y),
        ("s", "sum", weight * (Y - row("a") / row("l")) ** 2),
    ]), taste=taste)
    quotients = [e for a in found.fused.accumulators for e in walk(a.body) if isinstance(e, Op) and e.fn == "div"]
    assert not any(refs(e.args[1]) for e in quotients)
    x, y = np.random.default_rng(1).normal(size=(2, 1, 6))
    y[:, :3], y[:, 3:] = -1.0, np.abs(y[:, 3:]) + 0.1
    arrays = {"x": x, "y": y, "p": np.array(1.0)}
    expected, out = run_cascade(found.cascade, arrays), run_fused(found.fused, arrays, chunks=[2, 2, 2])
    assert out["s"] == pytest.approx(expected["s"])


def test_quotients_of_running_values_get_names():
    class Scope:
        def equate(self, a, b):
            pass

    model = Model(Skeleton(built([("a", "sum", X), ("l", "sum", Y), ("s", "sum", X * row("a"))])))
    x = model.skeleton.abstract(X)
    body = x * (row("a") / row("l"))
    assert _name_mixtures(Scope(), model, "s", body, fresh=False) == body
    assert _name_mixtures(Scope(), model, "s", body, fresh=True) == x * row("d1")
    assert model.dependencies == {"d1": row("a") / row("l")}
    assert _name_mixtures(Scope(), model, "s", body, fresh=False) == x * row("d1")
    assert _name_mixtures(Scope(), model, "s", x * row("a"), fresh=True) == x * row("a")


# ---- conditions in words

def test_only_assumptions_that_are_used_are_listed():
    def fn(x, w):
        assume((x > 0) & (w > 0))
        r = x / x.mean(axis=-1, keepdims=True)
        return np.log(r).mean(axis=-1), w.max(axis=-1)

    assert derived(fn, x=array("i", "n"), w=array("i", "n")).conditions == ("x[i,n] > 0",)


def test_domains_that_signs_do_not_prove_are_listed():
    c = built([("t", "sum", Y), ("s", "sum", X / row("t"))])
    (condition,) = derive_cascade(c).conditions
    assert condition.startswith("t[i] != 0 for the finished row")
    proven = built([("t", "sum", np.exp(Y)), ("s", "sum", X / row("t"))])
    assert derive_cascade(proven).conditions == ()
    masked = built([("t", "sum", np.exp(select(Y > 0, Y, float("-inf")))), ("s", "sum", X / row("t"))])
    assert len(derive_cascade(masked).conditions) == 1  # all elements may be masked


# ---- the mathematical level

def test_conditions_on_a_cascade_of_equations():
    n = rf.axes("n")
    x, w = rf.tensor("x", n), rf.tensor("w", n)
    c = rf.Cascade("peak", axis=n)
    t = c.sum("t", w)
    c.max("m", x / t)
    c.assume((t > 0) & (x >= 0))
    fusion = rf.derive(c, limits=DEFAULT_LIMITS)
    assert [a.name for a in fusion.accumulators] == ["t", "m"]
    assert fusion.conditions == ("t > 0 for the finished row",)
    assert "assume t > 0" in str(c)
    with pytest.raises(TraceError, match="condition"):
        c.assume(True)
