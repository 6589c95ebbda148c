"""The term language: structural equality, printing, capture-free renaming, checking, and the definition."""

import pickle
from fractions import Fraction

import numpy as np
import pytest

from redfuser.errors import CheckError, ShapeError, TraceError
from redfuser.ir import (
    NEG_INF,
    Axis,
    Cascade,
    Const,
    Idx,
    Let,
    Load,
    Op,
    Out,
    Reduce,
    Reduction,
    Ref,
    Size,
    Tensor,
    Term,
    check_cascade,
    check_term,
    free_axes,
    op,
    refs,
    rename_axes,
    rewrite,
    run_cascade,
    run_term,
    select,
    substitute,
)

x, y = Load("x", ("i", "n")), Load("y", ("n",))


def softmax_term() -> Term:
    m = Let("m", ("i",), Reduce("max", "n", x))
    e = np.exp(x - Ref("m", ("i",)))
    total = Let("l", ("i",), Reduce("sum", "n", e))
    out = Out("out0", ("i", "n"), e / Ref("l", ("i",)))
    return Term("softmax", (Axis("i"), Axis("n")), (Tensor("x", ("i", "n")),), (m, total), (out,))


def test_equality_is_structural_and_hash_is_stable_across_pickling():
    a, b = np.exp(x - 1) * 2, np.exp(x - 1) * 2
    assert a == b
    assert hash(a) == hash(b)
    assert pickle.loads(pickle.dumps(a)) == a
    assert np.exp(x - 1) * 2 != np.exp(x - 2) * 2


def test_numbers_of_different_kinds_stay_apart_but_exact_values_meet():
    assert Const(1) != Const(1.0)
    assert Const(True) != Const(1)
    assert Const(0.5) == Const(Fraction(1, 2))
    assert Const(float("nan")) == Const(float("nan"))


def test_integer_constants_fold_and_floats_do_not():
    assert op("add", 2, 3) == Const(5)
    assert isinstance(op("add", 2.0, 3.0), Op)


def test_text_has_minimal_parentheses():
    assert str(-(x + y) * 2 - (x - y)) == "-(x[i,n] + y[n]) * 2 - (x[i,n] - y[n])"
    assert str(x * (1 / y) + (x + (y - 1))) == "x[i,n] * (1 / y[n]) + x[i,n] + (y[n] - 1)"
    assert str(x / (y / 2)) == "x[i,n] / (y[n] / 2)"
    assert str(select(Idx("n") <= Idx("i"), x, NEG_INF)) == "select(#n <= #i, x[i,n], -inf)"


def test_an_expression_has_no_truth_value():
    with pytest.raises(TraceError, match=r"np\.where"):
        bool(x < y)


def test_free_axes_stop_at_the_reduction_that_binds_them():
    e = Reduce("sum", "n", x * y) + Load("z", ("j",))
    assert free_axes(e) == {"i", "j"}
    assert refs(Ref("a", ("i",)) + Ref("b")) == {"a", "b"}


def test_renaming_does_not_capture():
    e = Reduce("sum", "n", x * Load("w", ("j", "n")))
    renamed = rename_axes(e, {"j": "n"})
    assert free_axes(renamed) == {"i", "n"}
    a = np.arange(6.0).reshape(2, 3)
    w = np.arange(9.0).reshape(3, 3) + 1
    out = Term("t", (Axis("i"), Axis("n"), Axis("n'")), (Tensor("x", ("i", "n")), Tensor("w", ("n", "n'"))),
               (Let("s", ("i", "n"), renamed),), (Out("o", ("i", "n"), Ref("s", ("i", "n"))),))
    np.testing.assert_allclose(run_term(out, {"x": a, "w": w})["o"], a @ w.T)


def test_rewrite_is_bottom_up_and_substitute_is_outermost_first():
    assert rewrite(x + x, lambda e: y if e == x else None) == y + y
    assert substitute(np.exp(x) + x, {np.exp(x): y, x: Const(1)}) == y + 1


def test_the_definition_of_softmax_is_softmax():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 5))
    check_term(softmax_term())
    expected = np.exp(a) / np.exp(a).sum(1, keepdims=True)
    np.testing.assert_allclose(run_term(softmax_term(), {"x": a})["out0"], expected, rtol=1e-14)
    assert run_term(softmax_term(), {"x": a}, np.longdouble)["out0"].dtype == np.longdouble


def test_reductions_of_an_empty_axis_give_the_identity():
    c = Cascade("c", "n", (Axis("i"), Axis("n")), (Tensor("x", ("i", "n")),), (),
                (Reduction("m", "max", x, ("i",)), Reduction("s", "sum", x, ("i",))), ())
    r = run_cascade(c, {"x": np.zeros((2, 0))})
    assert r["m"].tolist() == [-np.inf, -np.inf]
    assert r["s"].tolist() == [0.0, 0.0]


def test_size_and_index_are_integers():
    t = Term("t", (Axis("n"),), (Tensor("y", ("n",)),), (Let("s", (), Reduce("sum", "n", y * Idx("n"))),),
             (Out("o", (), Ref("s") / Size("n")),))
    assert run_term(t, {"y": np.ones(4)})["o"] == 1.5


@pytest.mark.parametrize(("breakage", "message"), [
    (lambda t: Term(t.name, t.axes, (), t.lets, t.outs), "unknown tensor x"),
    (lambda t: Term(t.name, t.axes, t.tensors, t.lets[::-1], t.outs), "before its definition"),
    (lambda t: Term(t.name, t.axes, t.tensors, (t.lets[0], t.lets[0]), ()), "bound twice"),
    (lambda t: Term(t.name, t.axes, t.tensors, t.lets, (Out("o", ("i",), x),)), "axis n is free"),
    (lambda t: Term(t.name, t.axes, t.tensors, t.lets, (Out("o", ("i",), Reduce("sum", "n", x)),)), "let of its own"),
    (lambda t: Term(t.name, t.axes, (Tensor("x", ("i",)),), t.lets, ()), "2 indices"),
])
def test_the_checker_names_what_is_wrong(breakage, message):
    with pytest.raises(CheckError, match=message):
        check_term(breakage(softmax_term()))


def test_a_stage_may_not_read_a_later_one():
    c = Cascade("c", "n", (Axis("n"),), (Tensor("y", ("n",)),), (),
                (Reduction("a", "sum", y * Ref("b")), Reduction("b", "sum", y)), ())
    with pytest.raises(CheckError, match="before its definition"):
        check_cascade(c)


def test_lengths_that_disagree_name_the_argument():
    t = Term("t", (Axis("n"),), (Tensor("y", ("n",)), Tensor("z", ("n",))), (), (Out("o", ("n",), y),))
    with pytest.raises(ShapeError, match="'z' has length 4 on axis n, where 3 is expected"):
        run_term(t, {"y": np.ones(3), "z": np.ones(4)})
