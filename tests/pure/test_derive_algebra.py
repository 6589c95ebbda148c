"""What the algebra finds: squares around a scaled dependency, order, ties, products, masks, fewest accumulators.

Each law is needed: without it the catalogue's entry is not found. Unsound variants are refused.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

import redfuser as rf
from redfuser.derivation import Limits, Verdict, derive_cascade, run_fused
from redfuser.derivation.combine import affine
from redfuser.ir import Const, New, Old, Ref, Size, op, select
from redfuser.rules import check_rule, default, rule, ruleset
from redfuser.rules.language import STREAM, Max, Sum, at_most, changes, equals, nonzero
from redfuser.rules.logic import All, Some
from redfuser.rules.products import Prod
from redfuser.zoo import ENTRIES

BY_NODES = Limits(seconds=120.0)  # the machine that runs the tests may be slow: judge by nodes
LAWS = {law.name: law for law in default}


@cache
def derived(name, *without, pivot=True):
    missing = ruleset("missing", [LAWS[w] for w in without])
    return derive_cascade(ENTRIES[name].cascade(), rules=default - missing, limits=BY_NODES, pivot=pivot)


def accumulators(d):
    return [a.name for a in d.fused.accumulators if a.monoid != "pivot" and not a.name.startswith("count")]


NEEDED = [
    ("expansion-2", "brier_score"), ("square-of-sine", "sine_squared_about_mean"),
    ("some-greater", "any_above_mean"), ("all-less-equal", "all_within_three_rms"),
    ("max-of-square", "largest_squared_deviation"), ("max-of-multiple", "largest_product_with_mean"),
    ("product-of-exp", "shifted_likelihood"), ("product-after-update", "scaled_product"),
    ("equal-after-increase", "value_at_maximum"), ("select-both", "ties_of_maximum"),
    ("sum-of-choice", "ties_of_maximum"),
]


@pytest.mark.parametrize(("law", "name"), NEEDED, ids=[f"{n}-by-{law}" for law, n in NEEDED])
def test_the_entry_needs_the_law(law, name):
    entry = ENTRIES[name]
    full = derived(name)
    assert (full.verdict, full.passes) == (Verdict.FUSIBLE, 1)
    assert len(accumulators(full)) == entry.accumulators
    assert full.certificate.valid, full.certificate
    less = derived(name, law)
    assert less.passes > 1 or len(accumulators(less)) > entry.accumulators


def test_a_scaled_dependency_is_telescoped_around_its_old_value():
    d = derived("gain_and_residual")
    (correction,) = (str(e) for _, e in d.fused.corrections)
    assert correction == "sum2_old + sum1_old * (d1_old - d1_new) * (d1_old - d1_new)"
    expanded = derived("gain_and_residual", "telescope-scaled", "telescope-scaled-from")
    assert expanded.verdict == Verdict.FUSIBLE  # by sum x^2, sum x y and sum y^2
    rng = np.random.default_rng(3)
    x = rng.uniform(1, 2, (1, 400)).astype(np.float32)
    y = (3 * x + 1e-3 * rng.standard_normal(x.shape)).astype(np.float32)
    wide = ENTRIES["gain_and_residual"].fn(*(a.astype(float) for a in (x, y)))[1]
    errors = [abs(run_fused(f.fused, {"x": x, "y": y}, chunks=7, dtype=np.float32)["out_1"] - wide) / wide
              for f in (d, expanded)]
    assert errors[0].max() < 0.02 < 1 < errors[1].max()  # the difference of large squares has no digit left


def test_a_square_with_three_terms_is_kept_as_its_products():
    bodies = {str(a.body) for a in derived("brier_score").fused.accumulators}
    assert {"t[i,n] * t[i,n]", "exp(x[i,n] - max0[i]) * t[i,n]"} <= bodies


def test_the_mean_of_a_mask_is_centred_and_shifted():
    fused = derived("masked_layernorm").fused
    assert str(fused.correction("sum2")) == (
        "sum2_old + sum1_old * (x_pivot_old - x_pivot_new + (d1_old - d1_new))"
        " * (x_pivot_old - x_pivot_new + (d1_old - d1_new))")
    pivot = next(a for a in fused.accumulators if a.monoid == "pivot")
    assert str(pivot.body).startswith("select(m[i,n], ")
    assert len(accumulators(derived("masked_layernorm", "solve-masked-mean"))) == 3  # with the difference that is 0


def test_a_masked_pivot_never_reads_what_is_masked_out():
    fused = derived("masked_layernorm").fused
    x = np.array([[1e30, 1.0, 2.0, 4.0, np.nan]], np.float32)
    m = np.array([[False, True, True, True, False]])
    out = run_fused(fused, {"x": x, "m": m}, chunks=2, dtype=np.float32)
    assert out["out_0"].item() == pytest.approx(7 / 3, rel=1e-6)
    assert out["out_1"].item() == pytest.approx(14 / 9, rel=1e-5)


@pytest.mark.parametrize("tree", [None, 0, 1])
def test_ties_survive_merging(tree):
    fused = derived("ties_of_maximum").fused
    x = np.array([[1, 3, 3, 2, 3, 0, 3, 3, 1], [-2, -2, -2, -2, -2, -2, -2, -2, -2]], np.float32)
    for chunks in (1, 2, 4):
        out = run_fused(fused, {"x": x}, chunks=chunks, tree=tree)
        assert out["out"].ravel().tolist() == [5, 9]


def test_sums_of_one_combination_are_one():
    fused = derived("quadrupole").fused
    assert len(accumulators(derived("quadrupole"))) == 5
    assert " - " in str(next(a.body for a in fused.accumulators if a.name == "sum4"))
    later = derived("jensen_shannon")
    assert len(later.fused.passes[1]) == 1  # weighted by final results


def test_affine_forms():
    a, b, f = Ref("a"), Ref("b"), Ref("f")
    names = {"a", "b"}
    assert affine((a * f - b) / 2 + f, names) == ({"a": f * (1 / Const(2)), "b": Const(-1) * (1 / Const(2))}, f)
    assert affine(a * b, names) is None
    assert affine(op("exp", a), names) is None
    assert affine(f, names) == ({}, f)


@pytest.mark.parametrize("zero_point", [False, True])
def test_an_asymmetric_quantisation_is_requantised_when_allowed(zero_point):
    n, d = rf.axes("n d")
    x, w = rf.tensor("x", n), rf.tensor("w", n, d)
    c = rf.Cascade("asymmetric", axis=n)
    low, high = c.min("low", x), c.max("high", x)
    step = (high - low) / 255 + 1e-6
    z = np.rint(-low / step)
    q = np.rint(x / step + z) - z if zero_point else np.rint((x - low) / step)
    c.sum("o", q * w)
    with pytest.raises(rf.NotFusible):
        rf.derive(c)
    fusion = rf.derive(c, allow=("requantize",))
    assert fusion.passes == 1
    rng = np.random.default_rng(0)
    own, fused = [], []
    for _ in range(20):
        xs, ws = rng.standard_normal(200), rng.standard_normal((200, 3))
        s = fusion.init()
        for at in range(0, 200, 9):
            s = fusion.update(s, x=xs[at:at + 9], w=ws[at:at + 9])
        lo, width = xs.min(), (xs.max() - xs.min()) / 255 + 1e-6
        exact = (xs / width if zero_point else (xs - lo) / width) @ ws
        shift = np.rint(-lo / width)
        rounded = np.rint(xs / width + shift) - shift if zero_point else np.rint((xs - lo) / width)
        own.append(rounded @ ws - exact)
        fused.append(fusion.finalize(s)["o"] - exact)
    assert np.sqrt(np.mean(np.square(fused))) <= 1.2 * np.sqrt(np.mean(np.square(own)))


# ---- planted mistakes


def unsound():
    @rule("exact", where=lambda a, old, new: (changes(old, new), at_most("a", "old")))
    def equal_without_order(a, old, new):
        """a = new exactly when a = old and old = new, but new may be below old"""
        return np.equal(a, new), np.equal(a, old) & np.equal(old, new)

    @rule("exact", varying="a", where=[changes("old", "new")])
    def product_by_zero(a, old, new):
        """prod (a / new) = prod (a / old) (old / new)^n, also for old = 0"""
        return Prod(a * (1 / new)), Prod(a * (1 / old)) * (old * (1 / new)) ** Size(STREAM)

    @rule("exact", free_of="f", varying="a")
    def some_of_all(a, f):
        """some a > f exactly when all are"""
        return Some(a > f), All(a > f)

    @rule("exact", free_of="f", varying="a")
    def largest_multiple(a, f):
        """max (a f) = (max a) f for any sign of f"""
        return Max(a * f), Max(a) * f

    @rule("exact", varying="a b", where=lambda a, b, old, new: (changes(old, new), equals(old, Sum(a) / Sum(b))))
    def mean_of_anything(a, b, old, new):
        """sum a = old sum b, also where sum b = 0"""
        return Sum(a), old * Sum(b)

    @rule("exact", free_of="f", varying="a x", where=[nonzero("f")])
    def square_with_half_a_cross_term(a, x, f):
        """(a + x f)^2 = a^2 + a x f + x^2 f^2"""
        return (a + x * f) ** 2, a**2 + a * x * f + x**2 * f**2

    @rule("exact", varying="a")
    def sum_of_any_choice(d, a):
        """a condition that varies leaves the sum"""
        return Sum(select(d > 0, a, 0)), select(d > 0, Sum(a), 0)

    return [equal_without_order, product_by_zero, some_of_all, largest_multiple, mean_of_anything,
            square_with_half_a_cross_term, sum_of_any_choice]


@pytest.mark.parametrize("law", unsound(), ids=lambda law: law.name)
def test_an_unsound_variant_has_a_counterexample(law):
    assert not check_rule(law, samples=200)


def test_expansions_are_a_last_resort():
    """Without the guide, the variance would be kept as a difference of squares just as well."""
    assert [c.kind for c in LAWS["expansion-2"].conditions if not c.args] == ["last_resort"]
    names = {s.reconsidered for s in derived("variance").timeline}
    assert names == {""}
    assert {s.reconsidered for s in derived("brier_score").timeline} == {"", "sum1"}


def test_corrections_read_old_and_new_values_only_where_they_are_known():
    for name in ("regression_residual", "template_snr"):
        fused = derived(name).fused
        known = {a.name for a in fused.accumulators} | {d.name for d in fused.dependencies}
        for _, e in fused.corrections:
            todo = [e]
            while todo:
                x = todo.pop()
                todo += getattr(x, "args", ())
                assert not isinstance(x, (Old, New)) or x.name in known


def test_numbers_of_a_ratio_are_exact():
    from redfuser.derivation.combine import _ratio

    f = Ref("f")
    assert _ratio(f * Const(-0.5), f) == Fraction(-1, 2)
    assert _ratio(-(f / Const(4)), f * Const(3)) == Fraction(-1, 12)
    assert _ratio(f, Ref("g")) is None
