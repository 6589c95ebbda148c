"""Kernels for state of several parts, interpreted: every schedule of rows against the definition."""

from __future__ import annotations

import numpy as np
import pytest
from order_examples import ORDER_EXAMPLES, SHORTEST, TILE_EXAMPLES, best, peak, routing
from tile_runs import assert_runs, kernel_for, run

from redfuser.extract import Options
from redfuser.ir import run_cascade

SCHEDULES = {
    "whole row": Options(),
    "blocks": Options(block=4),
    "one block": Options(block=64),
    "split": Options(block=2, chunk=4),
}


def integers(rows: int, length: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Small integers: plenty of ties, every sum exact."""
    rng = np.random.default_rng(seed)
    return {t: rng.integers(-3, 4, (rows, length)).astype("f4") for t in ("x", "y")}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("example", ORDER_EXAMPLES)
def test_equal_to_the_definition(example, schedule):
    """Lengths below, at and above the length of the list and of blocks; ties."""
    fused = ORDER_EXAMPLES[example]("float32")
    for length in (1, 2, 3, 7, 8, 13, 33):
        for rows in (1, 3):
            sizes = {"p": rows, "n": length, "k": fused.cascade.axes[-1].size or 0}
            if length < SHORTEST.get(example, 1):
                continue
            assert_runs(fused, sizes, SCHEDULES[schedule], arrays=integers(rows, length, length))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("monoid", ["argmax", "argmin", "topk:3", "bottomk:3"])
def test_nan_infinities_and_masked_elements(monoid, schedule):
    """NaN first, in order of position; an infinity of the wrong sign is an element with its own index."""
    fused = peak(monoid=monoid) if monoid.startswith("arg") else best(monoid=monoid)
    rng = np.random.default_rng(5)
    for length in (1, 2, 4, 9, 21):
        x = rng.choice([np.nan, np.inf, -np.inf, 0.0, 1.0], (6, length)).astype("f4")
        x[0], x[1] = -np.inf, np.inf
        sizes = {"p": 6, "n": length, "k": 3}
        got = run(kernel_for(fused, sizes, SCHEDULES[schedule]), fused, {"x": x, "y": x}, sizes)
        want = run_cascade(fused.cascade, {"x": x, "y": x}, np.float64)
        for name in ("v", "i"):
            np.testing.assert_array_equal(got[name], want[name])
        if monoid.startswith("arg"):
            np.testing.assert_array_equal(got["i"], getattr(np, monoid)(x, 1))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_empty_stream_leaves_empty_places(schedule):
    fused = best()
    sizes = {"p": 2, "n": 0, "k": 3}
    kernel = kernel_for(fused, {**sizes, "n": 9}, SCHEDULES[schedule])
    got = run(kernel, fused, {t: np.empty((2, 0), "f4") for t in ("x", "y")}, sizes)
    assert (got["v"] == -np.inf).all()
    assert (got["i"] == -1).all()


def test_one_sweep_reads_the_elements_for_all_of_a_level():
    """The maximum and the list of the raw scores fill in one loop; the softmax is not computed for the list."""
    text = str(kernel_for(routing(), {"p": 4, "n": 1000, "k": 4}))
    sweep = next(s for s in text.split("sweep") if "insert" in s)
    assert "max(" in sweep
    assert "exp" not in sweep


LAYOUTS = {"x": "p", "y": "p", "v": "k", "i": "p"}


def test_lists_over_a_strided_stream_say_that_they_read_strided():
    kernel = kernel_for(best(), {"p": 64, "n": 100, "k": 3}, layouts=LAYOUTS)
    assert "the sorted list of t is kept per row, not per column" in str(kernel)


@pytest.mark.parametrize("block", [None, 4])
@pytest.mark.parametrize("example", ["peak", "lowest", "composed", "spread"])
def test_columns_hold_every_part_in_an_array(example, block):
    """Lanes on the rows: a state without a list has one array per part."""
    fused = ORDER_EXAMPLES[example]("float32")
    outs = dict.fromkeys((o.name for o in fused.cascade.outs), "p")
    for length in (1, 3, 4, 9):
        for rows in (1, 5, 40):
            options = Options(block=block, strategy="columns")
            kernel = assert_runs(fused, {"p": rows, "n": length}, options, arrays=integers(rows, length, rows),
                                 layouts={"x": "p", "y": "p", **outs})
            assert "columns: lanes on p" in str(kernel)


@pytest.mark.parametrize("options", [Options(), Options(block=8, tile=5)], ids=["chosen", "small"])
@pytest.mark.parametrize("example", TILE_EXAMPLES)
def test_tiles_hold_lists_for_all_their_rows(example, options):
    """Lists filled from the tile of a matrix product, beside vector accumulators of the same rows."""
    fused = TILE_EXAMPLES[example]("float32")
    axes = {a.name.rstrip("'") for a in fused.cascade.axes}
    for length, rows in ((3, 1), (8, 7), (21, 12)):
        sizes = {a: {"n": length, "i": rows, "k": 3}.get(a, 5) for a in axes}
        kernel = assert_runs(fused, sizes, options)
        assert "schedule: tiles" in str(kernel)
        assert "insert" in str(kernel)


def test_a_loop_that_waits_for_a_place_is_not_split():
    """The second best of a part with one element does not exist."""
    kernel = kernel_for(ORDER_EXAMPLES["peaked"]("float32"), {"p": 1, "n": 10**6}, Options(block=64, chunk=128))
    assert "never split: the loop reads place 2 of a list" in str(kernel)
    assert len(kernel.phases) == 1
