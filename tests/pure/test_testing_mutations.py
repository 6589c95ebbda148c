"""Tests of the tests: every planted mistake that changes a result is caught."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from derive_examples import EXAMPLES, derived

import redfuser as rf
from redfuser.derivation import certify, derive_cascade
from redfuser.ir import Const
from redfuser.ir.ops import PIVOT
from redfuser.testing import check_fusion, mutants, mutate_fused

CASCADES = ("softmax", "logsumexp", "attention", "variance", "rms_dot", "entropy", "cross_entropy",
            "weighted_variance", "largest_deviation", "masked_mass", "distance_to_max", "sum_tanh")
KINDS = ("normal", "far", "wide", "ties", "nan", "masked prefix", *["nothing alive"] * 4, "normal", "wide")


def is_pivot(description: str) -> bool:
    """Whether a mutant only chooses another pivot. Any value serves as one: corrections follow its changes, so results
    are equal over the reals, and only accuracy far from zero depends on it."""
    return description.startswith(("x_pivot:", "body of x_pivot:", "y_pivot:", "body of y_pivot:"))


@pytest.mark.parametrize("name", CASCADES)
def test_every_mutant_that_changes_a_result_is_caught(name):
    fused = derived(name).fused
    found = [(m, what) for m, what in mutants(fused) if not is_pivot(what)]
    assert len(found) >= 4
    for mutant, what in found:
        check = check_fusion(EXAMPLES[name], fused=mutant, targets=(), kinds=KINDS, trials=len(KINDS), shrink=False)
        assert not check.ok, f"{what}\n{mutant}"


@pytest.mark.parametrize("name", ["variance", "weighted_variance", "largest_deviation"])
def test_mutants_of_the_pivot_are_equal_over_the_reals(name):
    found = [(m, what) for m, what in mutants(derived(name).fused) if is_pivot(what)]
    assert found
    assert [what for m, what in found if not certify(m).valid] == []


def test_a_variance_without_its_pivot_is_caught():
    fused = derived("variance").fused
    dropped = replace(fused, accumulators=tuple(
        replace(a, body=Const(0)) if a.monoid == PIVOT else a for a in fused.accumulators))
    assert not check_fusion(EXAMPLES["variance"], fused=dropped, targets=(), kinds=("far",), shrink=False).ok


def test_bodies_of_a_user_monoid_have_mutants():
    magnitude = rf.monoid("magnitude", identity=0.0, combine=lambda a, b: np.sqrt(a * a + b * b), commutative=True,
                          draw=lambda rng: abs(rng.gauss(0, 3)))
    n = rf.axes("n")
    x = rf.tensor("x", n)
    c = rf.Cascade("norm", axis=n)
    c.reduce(magnitude, "r", np.exp(x) * 2.0)
    text = "\n".join(what for _, what in mutants(derive_cascade(c.build()).fused))
    assert "body of r: factor" in text
    assert "for magnitude" not in text


def test_mutants_are_different_and_described():
    fused = derived("weighted_variance").fused
    found = list(mutants(fused))
    assert len({m for m, _ in found}) == len(found)
    assert fused not in {m for m, _ in found}
    text = "\n".join(what for _, what in found)
    for kind in ("correction of l dropped", "old and new exchanged", "max for sum", "factor", "term", "divisor"):
        assert kind in text


def test_one_mutant_by_seed():
    fused = derived("softmax").fused
    assert mutate_fused(fused, 7) == mutate_fused(fused, 7)
    assert len({mutate_fused(fused, s)[1] for s in range(20)}) > 3


@pytest.mark.parametrize("name", CASCADES)
def test_every_mutant_that_is_wrong_over_the_reals_is_refuted_by_the_certificate(name):
    """The certificate needs no floating-point numbers to see what finite data show to be wrong algebra."""
    refuted = 0
    for mutant, what in mutants(derived(name).fused):
        check = check_fusion(EXAMPLES[name], fused=mutant, targets=(), kinds=("normal", "ties", "wide"), trials=3,
                             shrink=False, thorough=False)
        if not check.ok and check.counterexample.kind == "unsound":
            assert certify(mutant).refuted, f"{what}\n{mutant}"
            refuted += 1
    assert refuted >= 3
