"""Few tiles: chunks of the stream as tasks, partial states with vector axes, and the derived merge."""

from __future__ import annotations

import numpy as np
import pytest
from fused_examples import TILES, arrays_for, attention, decode, rms_dot
from tile_runs import assert_runs, kernel_for, run

from redfuser.extract import Options, Profile, choose

SIZES = {"h": 2, "i": 7, "p": 7, "n": 70, "k": 5, "d": 6}
SPLIT = [name for name in TILES if name != "attention_scores"]  # that one writes the stream: it needs final state


@pytest.mark.parametrize("name", SPLIT)
def test_merge_of_chunks(name: str) -> None:
    """One to nine chunks, ragged ones and such that a mask leaves empty; one row and several."""
    for n in (1, 8, 33, 70):
        for rows in (1, 7):
            sizes = {**SIZES, "n": n, "i": rows, "p": rows}
            kernel = assert_runs(TILES[name]("float32"), sizes, Options(block=8, tile=4, chunk=8))
            assert any("partial states are merged" in note for note in kernel.notes)
            assert any(b.name.startswith("part_") for b in kernel.shared)


@pytest.mark.parametrize("name", SPLIT)
def test_one_chunk_is_the_state_itself(name: str) -> None:
    assert_runs(TILES[name]("float64"), {**SIZES, "n": 12}, Options(block=8, tile=4, chunk=64), "float64")


def test_an_empty_stream_leaves_identities() -> None:
    assert_runs(rms_dot(), {**SIZES, "n": 0}, Options(block=8, chunk=8))


def test_chunks_without_a_live_element() -> None:
    """A mask that hides the first chunks, the last ones, or a whole row."""
    fused = attention(mask="bool")
    arrays = arrays_for(fused, SIZES)
    mask = next(a for a in arrays.values() if a.dtype == np.bool_)
    mask[...] = True
    rows = mask.reshape(-1, mask.shape[-1])
    rows[0, :20] = False
    rows[1, 9:] = False
    rows[2] = False
    assert_runs(fused, SIZES, Options(block=8, tile=4, chunk=8), arrays=arrays)


def test_nan_and_infinity_survive_a_merge() -> None:
    fused = decode()
    arrays = arrays_for(fused, SIZES)
    operand = next(t for t in fused.cascade.tensors if "n" in t.axes)
    position = tuple(33 if a == "n" else 0 for a in operand.axes)
    for value in (np.nan, np.inf):
        arrays[operand.name][position] = value
        assert_runs(fused, SIZES, Options(block=8, chunk=16), arrays=arrays)


def test_a_kernel_with_chunks_serves_every_length() -> None:
    kernel_sizes = {**SIZES, "i": 1, "h": 1, "n": 500_000, "k": 8, "d": 8}
    fused = attention()
    kernel = kernel_for(fused, kernel_sizes)
    assert any("partial states are merged" in note for note in kernel.notes)
    for n in (1, 100, 3000):
        assert_runs(fused, {**kernel_sizes, "n": n}, planned_for=kernel_sizes)
    arrays = arrays_for(fused, {**kernel_sizes, "n": 90})
    once, twice = (run(kernel, fused, arrays, {**kernel_sizes, "n": 90}) for _ in range(2))
    assert all(np.array_equal(once[name], twice[name]) for name in once)


def test_outputs_along_the_stream_are_never_split() -> None:
    kernel = kernel_for(TILES["attention_scores"]("float32"), SIZES, Options(block=8, chunk=8))
    assert not any(b.name.startswith("part_") for b in kernel.shared)


def test_only_idle_threads_are_worth_a_merge() -> None:
    two, one = Profile.generic(32).with_fields(threads=2), Profile.generic(32).with_fields(threads=1)
    few = {"tasks": 1, "rows": 4, "length": 100_000, "per_element": 128, "block": 64}
    assert choose.tile_chunk(two, **few) == 12_544  # eight chunks, whole blocks
    assert choose.tile_chunk(one, **few) == 0
    assert choose.tile_chunk(two, **{**few, "tasks": 4}) == 0
    assert choose.tile_chunk(two, **{**few, "length": 200}) == 0
