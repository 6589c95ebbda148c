"""The public face of `redfuser.testing`: assertions, checks of operators, strategies, tile mutants."""

from __future__ import annotations

import pickle

import functions as F
import numpy as np
import pytest
from derive_examples import EXAMPLES, derived
from hypothesis import given, settings
from hypothesis import strategies as st

import redfuser as rf
from redfuser import testing
from redfuser.errors import ArgumentError, SettingError
from redfuser.extract import Options
from redfuser.testing import (
    CheckFailed,
    assert_close,
    assert_fusion,
    assert_monoid,
    assert_rule,
    check_fusion,
    check_monoid,
    check_rule,
    monoid_values,
    monoids,
    mutate_tiles,
    shapes_and_strides,
    tile_mutants,
)
from redfuser.testing import targets as targets_module
from redfuser.testing.mutate_tiles import CHANGES
from redfuser.testing.subjects import CascadeSubject, Given
from redfuser.testing.targets import chosen_targets

X = rf.spec(("rows", "n"), "float32")


def test_every_public_name_exists():
    assert all(hasattr(testing, name) for name in testing.__all__)
    assert issubclass(CheckFailed, AssertionError)


def test_right_things_pass_in_silence():
    assert assert_fusion(F.softmax, X, trials=3, targets=()) is None
    assert assert_rule(rf.rules.default.laws[0]) is None
    assert assert_monoid(lambda a, b: a + b, identity=0.0, commutative=True) is None
    x = np.random.default_rng(0).normal(size=(2, 5)).astype(np.float32)
    assert assert_close(F.softmax(x), F.softmax, x) is None


def test_a_failure_is_an_assertion_with_code_to_paste():
    fused = derived("softmax").fused
    wrong = next(m for m, what in testing.mutants(fused) if what == "correction of l dropped")
    with pytest.raises(AssertionError) as caught:
        assert_fusion(EXAMPLES["softmax"], fused=wrong, targets=())
    assert isinstance(caught.value, CheckFailed)
    assert str(caught.value) == str(caught.value.check)
    assert "arrays = {" in str(caught.value)
    assert caught.value.check.counterexample.arrays["x"].size == 2
    assert "correct" not in str(pickle.loads(pickle.dumps(CheckFailed("text"))))


def test_a_wrong_rule_fails_on_simple_numbers():
    @rf.rule("exact")
    def root(a):
        """sqrt(a^2) = a, false for a < 0"""
        return np.sqrt(a**2), a

    with pytest.raises(CheckFailed, match=r"at a = -1\n  left: .* = 1\n  right: a = -1"):
        assert_rule(root)
    assert check_rule(root).counterexample == {"a": -1.0}


def difference(a, b):
    return a - b


def test_a_wrong_operator_fails_with_its_law():
    check = check_monoid(difference, identity=0.0)
    assert (check.ok, check.law) == (False, "associative")
    assert all(x in (0.0, 1.0) for v in check.counterexample for x in v)
    with pytest.raises(CheckFailed, match=r"monoid difference is not associative: a = 0, b = 0, c = 1 gives -1 and 1"):
        assert_monoid(difference, identity=0.0)
    assert check_monoid(lambda a, b: a + b, identity=1.0).law == "neutral on the left of its identity"
    with pytest.raises(ArgumentError, match="with identity="):
        check_monoid(difference)


def test_a_counterexample_holds_only_values_that_draw_gives():
    check = check_monoid(difference, identity=0.0, draw=lambda rng: float(rng.randint(5, 9)))
    assert not check.ok
    assert all(5 <= x <= 9 for v in check.counterexample for x in v)


def test_an_operator_remembers_what_it_is_meant_for():
    root = rf.monoid("root", identity=0.0, combine=lambda a, b: np.sqrt(a * a + b * b), commutative=True,
                     draw=lambda rng: abs(rng.gauss(0, 3)))
    assert check_monoid(root, samples=20)
    again = pickle.loads(pickle.dumps(root))
    assert again == root
    assert not check_monoid(again, samples=20), "a function cannot travel: any numbers are drawn, also negative ones"


def test_results_are_compared_as_their_condition_allows():
    """A mean of data far from zero may be off by their rounding, not by more."""
    x = (1e4 + np.random.default_rng(0).normal(size=(2, 50))).astype(np.float32)
    mean = x.mean(-1)
    assert_close(mean * np.float32(1 + 2e-7), lambda x: x.mean(-1), x)
    with pytest.raises(CheckFailed, match=r"1 of 2 elements of out are off, by up to .*\n  out\[1\] is"):
        assert_close(mean + np.float32([0, 1]), lambda x: x.mean(-1), x)
    with pytest.raises(CheckFailed, match="do not have the shapes"):
        assert_close(mean[:1], lambda x: x.mean(-1), x)
    c = EXAMPLES["softmax"]
    good = {"l": np.array([2.0])}
    assert_close(good, c, np.zeros((1, 2)))
    with pytest.raises(CheckFailed, match=r"l(\[0\])? is 2.1"):
        assert_close({"l": np.array([2.1])}, c, np.zeros((1, 2)))
    with pytest.raises(ArgumentError, match="results of the cascade are"):
        assert_close({"nothing": 1.0}, c, np.zeros((1, 2)))
    with pytest.raises(ArgumentError, match="compares numbers"):
        assert_close(mean, F.softmax, X)


def test_targets_are_those_at_hand(monkeypatch):
    monkeypatch.setattr(targets_module, "has_compiler", lambda: False)
    monkeypatch.setattr(targets_module, "has_cuda_host", lambda: True)
    assert chosen_targets(None, cascade=True) == ("interpret", "blocks")
    assert chosen_targets("all", cascade=False) == ("interpret", "cuda-host")
    assert chosen_targets("c", cascade=True) == ("c",)
    with pytest.raises(SettingError, match="'gpu' is not one of"):
        chosen_targets(("gpu",), cascade=True)
    with pytest.raises(ArgumentError, match="'blocks' belongs to a cascade"):
        check_fusion(F.softmax, X, targets=("blocks",))
    with pytest.raises(ArgumentError, match="'plant' belongs to a cascade"):
        check_fusion(F.softmax, X, targets=(), plant=lambda kernel: kernel)


@settings(max_examples=15, deadline=None)
@given(monoids(), st.data())
def test_drawn_operators_reduce_one_element_to_itself(m, data):
    value = np.atleast_1d(data.draw(monoid_values(m)))
    found = m(*([v] for v in value))
    np.testing.assert_allclose(np.ravel(found), value, rtol=1e-9)


@settings(max_examples=10, deadline=None)
@given(monoids(commutative=True))
def test_drawn_operators_are_commutative_where_asked(m):
    assert not m.definition.ordered


@settings(max_examples=25, deadline=None)
@given(shapes_and_strides((3, 5), "float64"), shapes_and_strides(ndim=3, empty=True), shapes_and_strides((4,), "bool"))
def test_layouts_have_the_shape_and_values_that_were_asked_for(a, b, c):
    assert (a.shape, a.dtype) == ((3, 5), np.float64)
    assert (b.ndim, b.dtype) == (3, np.float32)
    assert (c.shape, c.dtype) == ((4,), np.bool_)
    assert (np.abs(a) <= 8).all()


def test_layouts_are_awkward():
    seen = set()

    @settings(max_examples=60, deadline=None, database=None, derandomize=True)
    @given(shapes_and_strides((3, 5)))
    def collect(a):
        seen.update(np.sign(a.strides).tolist())
        seen.add("C" if a.flags.c_contiguous else "other")

    collect()
    assert {-1, 0, 1, "C", "other"} <= seen


def tiles(name, block=4):
    subject = CascadeSubject(EXAMPLES[name], (), Given(derived(name).fused, Options(block=block)))
    subject.run("interpret", subject.draw("normal", np.random.default_rng(0)))
    return subject.kernels[0][1]


def test_tile_mutants_are_well_formed_different_and_by_seed():
    kernel = tiles("softmax")
    found = list(tile_mutants(kernel))
    assert kernel not in [m for m, _ in found]
    assert {what.split(":")[0] for _, what in found} >= set(CHANGES) - {"product or packing dropped",
                                                                         "product overwritten"}
    assert mutate_tiles(kernel, 3) == mutate_tiles(kernel, 3)
    with pytest.raises(ValueError, match="no statement for the mistake 'product overwritten'"):
        mutate_tiles(kernel, 0, "product overwritten")


def test_short_blocks_show_a_correction_that_is_missing_in_the_tile_program_alone():
    kernel = tiles("softmax", block=8)
    mutant = next(m for m, what in tile_mutants(kernel, "correction dropped"))
    right = check_fusion(EXAMPLES["softmax"], fused=derived("softmax").fused, targets=("blocks",), trials=3)
    assert right.ok
    assert right.steps[-1].startswith("tile interpreter in short blocks: 3 runs")
    check = check_fusion(EXAMPLES["softmax"], fused=derived("softmax").fused, targets=("blocks",),
                         plant=lambda _: mutant, trials=8)
    assert not check.ok
    assert check.counterexample.arrays["x"].shape == (1, 9)
    assert "plant: what was given to check_fusion" in check.counterexample.snippet


def test_a_result_that_no_kernel_writes_is_found():
    """Memory may hold the right result of an earlier run."""
    kernel = tiles("softmax")
    unwritten = next(m for m, what in tile_mutants(kernel, "first element lost") if "0 .. |n|" in what)
    check = check_fusion(EXAMPLES["softmax"], fused=derived("softmax").fused, targets=("interpret",),
                         schedule=Options(block=4), plant=lambda _: unwritten, trials=2)
    assert not check.ok
