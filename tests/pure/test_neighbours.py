"""Plans around the chosen one, what they are predicted to take, and when two results count as the same."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from fused_examples import ROWS, attention, elementwise, softmax, variance

from redfuser.api.agreement import disagreement
from redfuser.codegen import build, check_kernel
from redfuser.extract import Options, Plan, Profile, plan
from redfuser.extract.neighbours import described, neighbours, variations
from redfuser.extract.plan_time import predict_plan
from redfuser.ir.dtypes import STORAGE_ONLY, finfo, numpy_dtype
from redfuser.runtime.tunings import octave, problem_key

TWO = Profile.generic(32).with_fields(threads=2)
HEADS = {"h": 8, "i": 1024, "n": 1024, "k": 64, "d": 64}


def plans(fused, sizes, profile=TWO, layouts=None):
    def replan(options=None) -> Plan:
        return plan(fused, sizes, profile, layouts, "float32", options)

    return replan(), replan


@pytest.mark.parametrize(
    ("fused", "sizes", "layouts"),
    [
        (attention(), HEADS, None),
        (attention(mask="causal"), {**HEADS, "i": 7, "n": 90_000}, None),
        (softmax(), {"p": 1024, "n": 1024}, None),
        (softmax(), {"p": 2, "n": 10_000_000}, None),
        (variance(), {"p": 4096, "n": 1000}, {"x": "p"}),
    ],
    ids=["attention", "few rows", "whole rows", "chunks", "columns"],
)
def test_each_neighbour_changes_one_decision_and_builds(fused, sizes, layouts):
    chosen, replan = plans(fused, sizes, layouts=layouts)
    found = neighbours(chosen, replan, sizes)
    assert found
    assert [n.seconds for n in found] == sorted(n.seconds for n in found)
    bare = [replace(n.plan, notes=()) for n in found]
    assert len({*bare, replace(chosen, notes=())}) == len(bare) + 1
    for n in found:
        assert sum(getattr(n.options, f.name) is not None for f in fields(Options)) == 1
        check_kernel(build(n.plan))


def test_options_that_change_nothing_are_left_out():
    chosen, _ = plans(attention(), HEADS)
    assert chosen.tiles is not None
    assert all(o.tile != chosen.tiles.rows and o.block != chosen.tiles.block for o in variations(chosen, HEADS))
    few = {**HEADS, "i": 4}  # a tile holds all rows: a larger one is the same
    chosen, _ = plans(attention(), few)
    assert chosen.tiles is not None
    assert not [o for o in variations(chosen, few) if o.tile and o.tile > chosen.tiles.rows]
    assert not list(variations(plans(elementwise(), {"p": 8, "n": 8})[0], {"p": 8, "n": 8}))


def test_options_in_words():
    assert described(Options()) == "as chosen"
    assert described(Options(register_tile=(4, 2))) == "register_tile=(4, 2)"
    assert described(Options(pack=False, chunk=0)) == "pack=False, chunk=0"


def test_predictions_of_plans_grow_with_the_problem():
    for name, make in ROWS.items():
        for layouts in (None, {"x": "p", "y": "p"}):
            times = []
            for rows, n in ((64, 64), (64, 2048), (4096, 2048), (4096, 100_000)):
                sizes = {"p": rows, "n": n}
                chosen, _ = plans(make("float32"), sizes, layouts=layouts)
                times.append(predict_plan(chosen, sizes).seconds)
            assert times == sorted(times), name
    for n in (1024, 4096):
        short, long = ({**HEADS, "i": m, "n": m} for m in (n, 2 * n))
        ratio = predict_plan(plans(attention(), long)[0], long).seconds
        ratio /= predict_plan(plans(attention(), short)[0], short).seconds
        assert 3.5 < ratio < 4.5


# -------------------------------- the same results


def agree(found, usual, wide=None, dtype="float32", finite=True):
    exact = None if wide is None else [np.asarray(wide)]
    return disagreement([np.asarray(found)], [np.asarray(usual)], dtype, finite, lambda: exact)


def test_rounding_is_no_disagreement():
    usual = np.random.default_rng(0).normal(size=(50, 40)).astype("f4")
    assert agree(usual * np.float32(1 + 1e-6), usual) is None
    assert agree(usual, usual, dtype="float64") is None
    noise = usual + np.float32(3.0)  # the definition itself hardly determines the result: so says the reference
    assert agree(noise, usual, usual + np.float32(0.5)) is None
    assert agree([True, False], [True, False]) is None
    assert agree(np.arange(1000), np.where(np.arange(1000) == 5, 6, np.arange(1000))) is None  # a tie


@pytest.mark.parametrize("dtype", sorted(STORAGE_ONLY))
def test_neighbours_of_a_storage_dtype_are_no_disagreement(dtype):
    one, less = np.float32(1), np.float32(1 - float(finfo(dtype).eps) / 2)
    low = np.float32(finfo(dtype).smallest_subnormal)
    for values, others in (([one, 0.5], [less, 0.5]), ([low, 3 * low], [2 * low, 3 * low])):
        usual = np.array(values, "float32").astype(numpy_dtype(dtype))
        found = np.array(others, "float32").astype(usual.dtype)
        assert (found != usual)[0]
        assert agree(found, usual, usual) is None
    usual = np.ones(5, numpy_dtype(dtype))
    assert "differs by" in str(agree(usual * usual.dtype.type(4), usual, usual))


def test_a_wrong_result_is_a_disagreement():
    usual = np.random.default_rng(0).normal(size=(50, 40)).astype("f4")
    wrong = usual.copy()
    wrong[17, 3] += 0.5
    assert "by 0.5 at a value" in str(agree(wrong, usual, usual))
    assert "by 0.5 at a value" in str(agree(wrong, usual, dtype="float64"))
    wrong[17, 3] = np.nan
    assert "nan instead of" in str(agree(wrong, usual, usual))
    assert agree(wrong, usual, usual, finite=False) is None  # an infinity may end as NaN
    assert "differ" in str(agree(np.arange(100), np.arange(100) + (np.arange(100) > 90)))


# -------------------------------- the key of a problem


class Cc:
    command = ("cc",)
    version = "1"


def key(fused, sizes, exact=(), profile=TWO, layouts=None, version="1"):
    return problem_key(fused, "float32", layouts or {"x": "n", "o": "n"}, sizes, frozenset(exact), profile,
                       Cc(), version)  # type: ignore[arg-type]


def test_names_are_no_part_of_a_problem_but_everything_else_is():
    fused = softmax()
    base = key(fused, {"p": 100, "n": 1000})
    other = replace(fused, cascade=replace(fused.cascade, name="another"))
    assert key(other, {"p": 128, "n": 600}) == base
    renamed = {"m": "peak", "l": "mass"}
    text = replace(
        fused,
        accumulators=tuple(replace(a, name=renamed[a.name]) for a in fused.accumulators),
    )
    assert key(text, {"p": 100, "n": 1000}) != base  # bodies still read the old names
    different = {
        key(fused, {"p": 129, "n": 1000}), key(fused, {"p": 100, "n": 1025}), key(fused, {"p": 100, "n": 512}),
        key(fused, {"p": 100, "n": 1000}, ("n",)), key(fused, {"p": 100, "n": 1001}, ("n",)),
        key(fused, {"p": 100, "n": 1000}, profile=TWO.with_fields(threads=1)),
        key(fused, {"p": 100, "n": 1000}, layouts={"x": "p", "o": "n"}), key(variance(), {"p": 100, "n": 1000}), base,
        key(fused, {"p": 100, "n": 1000}, version="2"),
    }
    assert len(different) == 10
    assert [octave(n) for n in (0, 1, 2, 3, 4, 1000, 1024, 1025)] == [0, 1, 2, 4, 4, 1024, 1024, 2048]


def test_the_same_problem_under_other_names_has_the_same_key():
    import redfuser as rf

    def first(x):
        return np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1)

    def second(scores):
        peak = scores.max(axis=1, keepdims=True)
        return np.exp(scores - peak).sum(axis=1)

    keys = set()
    for fn, name in ((first, "x"), (second, "scores")):
        (fused,) = rf.fuse(fn, target="interpret").lower(rf.spec(("rows", "n"), "float32")).fusion
        rows, n = fused.cascade.tensors[0].axes
        layouts = {name: n, fused.cascade.outs[0].name: rows}
        keys.add(key(fused, {rows: 9, n: 99}, layouts=layouts))
    assert len(keys) == 1
