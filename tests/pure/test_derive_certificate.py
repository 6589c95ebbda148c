"""Certificates accept what was derived and reject planted mistakes."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from derive_examples import X, Y, cascade, derived, reduction, row

from redfuser.derivation import certify, derive_cascade
from redfuser.derivation.fusion import check_fusion_node
from redfuser.errors import CheckError
from redfuser.ir import Const, New, Old, Op, Ref, op, rewrite, select

CORRECTED = [(name, a) for name in ("softmax", "attention", "variance", "layernorm_dot", "entropy", "weighted_variance",
                                    "third_moment", "pearson", "largest_deviation", "phase", "distance_to_max")
             for a, _ in derived(name).fused.corrections]


def with_correction(fused, name, e):
    return replace(fused, corrections=tuple((n, e if n == name else old) for n, old in fused.corrections))


def swapped(e):
    """Every difference old - new turned into new - old."""
    return rewrite(e, lambda x: Op("sub", (x.args[1], x.args[0])) if isinstance(x, Op) and x.fn == "sub" else None)


@pytest.mark.parametrize(("name", "accumulator"), CORRECTED)
def test_planted_mistakes_are_refuted(name, accumulator):
    fused = derived(name).fused
    right = fused.correction(accumulator)
    assert certify(fused).valid
    mistakes = [Old(accumulator), 2 * right, right + 1]
    if isinstance(right, Op) and right.fn in ("add", "mul"):
        mistakes += list(right.args)
    if name in ("softmax", "attention", "entropy"):
        mistakes.append(swapped(right))
    for wrong in mistakes:
        certificate = certify(with_correction(fused, accumulator, wrong))
        assert certificate.refuted, wrong
        assert not certificate
        assert "differs" in certificate.steps[0]


def test_wrong_epilogue_is_refuted():
    fused = derived("attention").fused
    wrong = replace(fused, epilogue=(*fused.epilogue[:-1], ("o", Ref("o", ("p", "d")))))
    assert certify(wrong).refuted


@pytest.mark.parametrize("name", ["softmax", "attention", "variance", "layernorm_dot", "entropy", "weighted_variance",
                                  "third_moment", "pearson", "largest_deviation", "distance_to_max", "norm_softmax",
                                  "masked_mass", "mean_absolute_deviation"])
def test_corrections_are_proved(name):
    proved = derived(name).certificate.prove()
    assert proved.valid, proved.steps
    assert "SymPy" in proved.method


def test_variance_is_proved_modulo_its_invariant():
    steps = derived("variance", False).certificate.prove().steps
    assert any("M2" in s and "S[p] / count = d1" in s for s in steps)


def test_an_undecided_proof_is_no_certificate():
    """Right corrections written so that they are not linear in the accumulators are decided, a wrong one is not."""
    fused = derived("softmax").fused
    odd = with_correction(fused, "l", fused.correction("l") * (Old("l") / Old("l")) ** 2)
    checked = certify(odd)
    assert checked.valid
    assert checked.prove().valid
    unproved = with_correction(fused, "l", fused.correction("l") + Old("l") * Old("l") * Const(0))
    assert certify(unproved).prove().valid
    wrong = with_correction(fused, "l", Old("l"))
    forced = replace(certify(fused), fused=wrong)
    assert not forced.prove().valid
    assert any("undecided" in s for s in forced.prove().steps)


def test_the_method_names_the_streams_that_decided():
    mean = reduction("a", "sum", X)
    for stages, words in (([mean], "4 random streams in 50"),
                          ([mean, reduction("s", "sum", X / row("a"))], "4 random streams and 6 hard ones in 50")):
        assert words in derive_cascade(cascade("c", stages, "x")).certificate.method
    bounds = (op("gt", X, 1), op("lt", X, 1.5))  # no stream of zeros, nor one of small integers
    bounded = replace(cascade("c", [mean, reduction("s", "sum", X / row("a"))], "x"), assumptions=bounds)
    assert "4 random streams and 1 hard one in 50" in derive_cascade(bounded).certificate.method


def test_a_certificate_does_not_depend_on_names(monkeypatch):
    drawn = []
    module = sys.modules["redfuser.derivation.certificate"]
    honest = module.random.Random
    monkeypatch.setattr(module.random, "Random", lambda seed: drawn.append(seed) or honest(seed))
    fused = derived("softmax").fused
    for name in ("softmax", "other"):
        assert certify(replace(fused, cascade=replace(fused.cascade, name=name)))
    assert drawn == [0, 0]


def test_a_refuted_certificate_is_not_proved():
    fused = derived("softmax").fused
    refuted = certify(with_correction(fused, "l", Old("l")))
    assert refuted.prove() is refuted
    assert str(refuted).startswith("refuted")


def test_units_are_the_same_however_a_selection_is_written():
    """min(r - x where c, else 0) with r = 0 becomes -max(x where c, else 0): x and c must be seen in both."""
    c = cascade("selected", [reduction("r", "sum", X - X),
                             reduction("least", "min", select(Y > 0, row("r") - X, 0))], "x y")
    assert derive_cascade(c).certificate.valid


@pytest.mark.parametrize(("name", "accumulator"), CORRECTED)
def test_a_correction_that_reads_its_own_new_value_is_no_fusion(name, accumulator):
    fused = with_correction(derived(name).fused, accumulator, New(accumulator))
    with pytest.raises(CheckError, match=accumulator):
        check_fusion_node(fused)
