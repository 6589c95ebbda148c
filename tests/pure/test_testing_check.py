"""`check_fusion`: right fusions pass, one wrong number is found, made small, and printed as code."""

from __future__ import annotations

from dataclasses import replace

import functions as F
import numpy as np
import pytest
from derive_examples import EXAMPLES, derived

import redfuser as rf
from redfuser.derivation import derive_cascade
from redfuser.errors import ArgumentError
from redfuser.ir import New, Old, Ref, run_cascade
from redfuser.ir.contract import expected_results
from redfuser.testing import check_fusion, check_rule, random_cascade
from redfuser.testing.inputs import FINITE, KINDS
from redfuser.testing.minimise import minimise
from redfuser.testing.subjects import CascadeSubject
from redfuser.testing.text import IMPORTS, arrays_text, cascade_text

X, W = rf.spec((3, 5), "float32"), rf.spec((5,), "float32")
Q, K = rf.spec((2, 3, 4), "float32"), rf.spec((2, 6, 4), "float32")


@pytest.mark.parametrize(
    ("fn", "arguments"),
    [(F.softmax, (X,)), (F.softmax_first, (X,)), (F.logsumexp, (rf.spec(("rows", "n")),)), (F.variance_call, (X,)),
     (F.layernorm, (X, W, W)), (F.entropy, (X,)), (F.causal_attention, (Q, K, K)),
     (F.masked_attention, (Q, K, K, rf.spec((2, 3, 6), "bool")))],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_functions_pass_at_every_level_without_a_compiler(fn, arguments):
    check = check_fusion(fn, *arguments, targets=("interpret",), trials=len(KINDS))
    assert check.ok, check
    assert check.counterexample is None
    assert [s.split(":")[0] for s in check.steps] == [
        "the function itself", "fused stream in 1 to 17 parts and single elements",
        "random merge trees over 2 to 17 parts and single elements", "tile interpreter"]


def test_arguments_that_are_arrays_are_tried_first():
    x = np.arange(12.0).reshape(3, 4)
    check = check_fusion(F.softmax, x, targets=(), trials=0)
    assert check.ok
    assert "on given;" in check.steps[0]


def test_scalars_and_closures_stay_as_they_are():
    table = np.linspace(0, 1, 4)

    def scaled(x, factor):
        return (x * table * factor).sum(axis=-1, keepdims=True)

    assert check_fusion(scaled, np.ones((3, 4)), 2.0, targets=("interpret",), trials=6)


def scaled(x, delta=1.0, weights=(1.0, 2.0, 3.0), axis=-1):
    return (x * delta * np.asarray(weights)).sum(axis)


def test_defaults_are_bound_and_fix_lengths():
    assert check_fusion(scaled, rf.spec(("rows", "n")), targets=("interpret",), trials=3).ok
    assert check_fusion(scaled, np.ones((2, 3)), 2.0, targets=("interpret",), trials=3).ok


def size_outside(x):
    n = x.shape[1]
    return x.sum(-1) + np.abs(np.arange(n) / n - 0.5).sum()


def position_in_a_later_cascade(x, y):
    return np.abs(x - y.mean(-1, keepdims=True)).argmax(-1)


@pytest.mark.parametrize(("fn", "arguments"), [
    (size_outside, (rf.spec((3, "n"), "float64"),)),
    (position_in_a_later_cascade, (np.arange(12.0).reshape(3, 4),) * 2),
], ids=["size", "position"])
def test_lengths_that_no_tensor_of_a_cascade_carries(fn, arguments):
    check = check_fusion(fn, *arguments, targets=("interpret",), trials=len(KINDS))
    assert check.ok, check


def test_the_mathematical_level():
    p, n = rf.axes("p n")
    x = rf.tensor("x", p, n)
    c = rf.Cascade("lse", axis=n)
    c.sum("l", np.exp(x - c.max("m", x)))
    assert check_fusion(c, targets=("interpret",), trials=len(KINDS)).ok


def wrong_softmax():
    return replace(derived("softmax").fused, corrections=(("l", Old("l") * np.exp(New("m") - Old("m"))),))


def test_a_wrong_correction_gives_a_small_reproducible_counterexample():
    check = check_fusion(EXAMPLES["softmax"], fused=wrong_softmax(), targets=())
    assert not check.ok
    found = check.counterexample
    x = found.arrays["x"]
    assert x.shape == (1, 2)
    assert set(np.abs(x).ravel()) <= {0.0, 1.0, 2.0}
    scope = {"fused": wrong_softmax(), "print": lambda *a: None}
    exec(found.snippet, scope)
    name = found.name.removeprefix("out_")
    assert not np.allclose(scope["got"][name].astype(float), scope["want"][name].astype(float))
    assert found.name in str(check)
    assert "by definition" in str(check)


def test_the_same_seed_finds_the_same():
    first, second = (check_fusion(EXAMPLES["softmax"], fused=wrong_softmax(), targets=(), seed=3) for _ in range(2))
    assert str(first) == str(second)


def test_the_tile_program_is_checked_too():
    """A wrong form that no split shows: only a level below uses it."""
    check = check_fusion(EXAMPLES["softmax"], fused=wrong_softmax(), targets=("interpret",), kinds=("normal",))
    assert not check.ok


def test_an_exception_is_a_counterexample():
    fused = derived("softmax").fused
    broken = replace(fused, epilogue=(("m", Ref("nowhere", ("p",))), *fused.epilogue[1:]))
    check = check_fusion(EXAMPLES["softmax"], fused=broken, targets=())
    assert not check.ok
    assert "nowhere" in check.counterexample.error


def test_bad_arguments_are_named():
    c = EXAMPLES["softmax"]
    with pytest.raises(ValueError, match=r"targets=.*'gpu'"):
        check_fusion(c, targets=("gpu",))
    with pytest.raises(ValueError, match=r"kinds=.*'odd'"):
        check_fusion(c, kinds=("odd",))
    with pytest.raises(ArgumentError, match="takes 1 arrays"):
        check_fusion(c, np.zeros(3), np.zeros(3))
    with pytest.raises(ArgumentError, match="'fused' belongs to a cascade"):
        check_fusion(F.softmax, X, fused=derived("softmax").fused)


def test_data_far_from_zero_needs_the_pivot():
    """The plain recurrence is right over the reals; the contract still rejects it at mean 1e4 and spread 1e-3."""
    c = EXAMPLES["variance"]
    plain = derive_cascade(c, pivot=False).fused
    assert check_fusion(c, fused=plain, targets=(), kinds=("normal", "ties", "constant")).ok
    assert not check_fusion(c, fused=plain, targets=(), kinds=("far",), shrink=False).ok
    assert check_fusion(c, targets=(), kinds=("far",)).ok


@pytest.mark.parametrize("kind", FINITE)
def test_the_contract_accepts_numpy_itself_and_rejects_a_small_error(kind):
    c = replace(EXAMPLES["weighted_variance"], tensors=tuple(replace(t, dtype="float32")
                                                             for t in EXAMPLES["weighted_variance"].tensors))
    subject = CascadeSubject(c, ())
    for seed in range(4):
        arrays = subject.draw(kind, np.random.default_rng(seed))
        plain = run_cascade(c, arrays)
        expected = expected_results([c], arrays)
        for name, value in plain.items():
            assert not expected[name].wrong(value).any(), name
        off = plain["l"] * np.float32(1 + 1e-3)
        assert expected["l"].wrong(off).all()


def test_nan_and_infinities_must_be_where_the_definition_has_them():
    c = EXAMPLES["softmax"]
    expected = expected_results([c], {"x": np.array([[0.0, -np.inf], [np.nan, 1.0]])})
    right = run_cascade(c, {"x": np.array([[0.0, -np.inf], [np.nan, 1.0]])})
    assert not expected["l"].wrong(right["l"]).any()
    assert expected["l"].wrong(np.array([np.nan, np.nan])).tolist() == [True, False]
    assert expected["l"].wrong(np.array([1.0, 1.0])).tolist() == [False, True]
    assert expected["m"].wrong(np.array([np.inf, np.nan])).tolist() == [True, False]


def test_minimise_keeps_only_what_fails():
    c = EXAMPLES["softmax"]
    subject = CascadeSubject(c, ())
    x = np.random.default_rng(0).normal(size=(3, 19))
    x[2, 7] = 9.0
    assert minimise(subject, {"x": x}, lambda a: bool((a["x"] > 5).any()))["x"].tolist() == [[9.0]]
    pair = minimise(subject, {"x": x}, lambda a: a["x"].shape[1] >= 2)["x"]
    assert pair.tolist() in ([[0.0, 0.0]], [[1.0, 1.0]])


def test_cascades_are_printed_as_python_that_builds_them():
    scope: dict[str, object] = {}
    exec(IMPORTS, scope)
    for c in (*EXAMPLES.values(), *map(random_cascade, range(40))):
        assert eval(cascade_text(c), scope) == c


def test_rules_can_be_checked_from_here():
    assert check_rule is rf.check_rule


def test_long_arrays_are_named_and_not_printed():
    text = arrays_text({"x": np.zeros(100_000, "float32"), "y": np.ones(2)})
    assert "found.counterexample.arrays['x']" in text
    assert len(text) < 200
