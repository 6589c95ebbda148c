"""Extremes that are infinite on one part of the stream only: merges and updates agree with the definition."""

from __future__ import annotations

import numpy as np
import pytest

from redfuser import Cascade, axes, derive, tensor
from redfuser.derivation import derive_cascade, run_fused
from redfuser.derivation.dead import from_dead_parts
from redfuser.ir import Const, New, Old, op, select

N = axes("n")
Y, W = tensor("y", N), tensor("w", N)
DEAD = {"y": np.ones(3), "w": np.zeros(3)}
ALIVE = {"y": np.array([2.0, 3.0]), "w": np.array([1.0, 1.5])}


def plain():
    c = Cascade("plain", axis=N)
    b = c.min("b", Y / W)
    c.sum("d", b - W)
    return c


def shifted():
    c = Cascade("shifted", axis=N)
    b = c.min("b", Y / W)
    c.sum("d", (b + 1) - W)
    return c


def scaled():
    c = Cascade("scaled", axis=N)
    b = c.min("b", Y / W)
    c.sum("d", (2 * b + 1) - W)
    return c


def squares():
    c = Cascade("squares", axis=N)
    b = c.min("b", Y / W)
    c.sum("d", (b - W) ** 2)
    return c


def weights():
    c = Cascade("weights", axis=N)
    b = c.max("b", np.log(W))
    c.sum("d", np.exp(Y - b))
    return c


CASES = [(plain, lambda b, y, w: b - w), (shifted, lambda b, y, w: b + 1 - w),
         (scaled, lambda b, y, w: 2 * b + 1 - w), (squares, lambda b, y, w: (b - w) ** 2)]


@pytest.mark.parametrize(("make", "body"), CASES)
def test_updates_and_merges_agree(make, body):
    f = derive(make())
    for first, second in ((DEAD, ALIVE), (ALIVE, DEAD)):
        y, w = (np.concatenate([first[k], second[k]]) for k in "yw")
        want = body(2.0, y, w).sum()
        a, b = f.update(f.init(), **first), f.update(f.init(), **second)
        for state in (f.merge(a, b), f.update(a, **second)):
            assert f.finalize(state)["d"] == pytest.approx(want)


def test_sum_of_what_is_not_masked_is_moved_from_a_dead_part():
    f = derive(weights())
    y, w = np.concatenate([DEAD["y"], ALIVE["y"]]), np.concatenate([DEAD["w"], ALIVE["w"]])
    with np.errstate(all="ignore"):
        merged = f.merge(f.update(f.init(), **DEAD), f.update(f.init(), **ALIVE))
    assert f.finalize(merged)["d"] == pytest.approx(np.exp(y - np.log(w.max())).sum())


@pytest.mark.parametrize("top", [-1000.0, 1000.0])
def test_masked_part_is_neutral_whatever_the_scores(top):
    c = Cascade("softmax", axis=N)
    m = c.max("m", Y)
    c.sum("l", np.exp(Y - m) * W)
    fused = derive_cascade(c.build()).fused
    y = np.array([-np.inf] * 4 + [top, top - 1])
    for tree in (None, 1):
        got = run_fused(fused, {"y": y, "w": np.ones(6)}, chunks=3, tree=tree)
        assert got["l"] == pytest.approx(1 + np.exp(-1))


def test_nothing_but_dead_elements_is_undefined_by_way_of_a_dependency():
    f = derive(scaled())
    with np.errstate(all="ignore"):
        assert not np.isfinite(f.finalize(f.update(f.init(), **DEAD))["d"])


def test_what_a_correction_reads_of_a_dead_part():
    c = Cascade("softmax", axis=N)
    m = c.max("m", Y)
    c.sum("l", np.exp(Y - m))
    fused = derive_cascade(c.build()).fused
    ((_, e),) = from_dead_parts(fused.corrections, fused.accumulators, fused.dependencies)
    dead = op("eq", Old("m"), -np.inf)
    moved = Old("l") * np.exp(select(dead, Const(0.0), Old("m")) - New("m"))
    assert e == select(op("and", dead, op("eq", Old("l"), 0)), Old("l"), moved)
