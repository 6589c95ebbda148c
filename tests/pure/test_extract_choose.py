"""Scheduling formulas against the table of measured choices, and device profiles."""

from __future__ import annotations

import math

import pytest
from fused_examples import softmax

from redfuser.extract import Profile, choose, plan
from redfuser.extract.profile import available

AVX2 = Profile(
    vector_bytes=32, registers=16, l1=32 << 10, l2=512 << 10, llc=32 << 20, threads=2, gflops=100.0, l3_gbs=60.0,
    dram_gbs=18.0,
)  # fmt: skip
"""The machine the ratios in `choose` were measured on."""


def test_generic_profiles() -> None:
    assert available() == ["x86_64_16", "x86_64_32", "x86_64_64"]
    for width in (16, 32, 64):
        profile = Profile.generic(width)
        assert profile.lanes("float32") == width // 4
        assert profile.lanes("float64") == width // 8


def test_detected_fields_override() -> None:
    profile = Profile.generic(32).with_fields(l2=1 << 20, threads=None)
    assert profile.l2 == 1 << 20
    assert profile.threads == Profile.generic(32).threads


def test_unknown_profile_is_named() -> None:
    with pytest.raises(ValueError, match="no device profile 'abacus'; available: x86_64_16"):
        Profile.load("abacus")
    with pytest.raises(ValueError, match="device 'h100' is a GPU; profiles of CPUs: x86_64_16"):
        Profile.load("h100")


def test_unroll_leaves_registers_for_constants() -> None:
    assert [choose.unroll(AVX2, 1, loads) for loads in (1, 2, 11, 12, 13, 40)] == [4, 4, 3, 2, 1, 1]
    assert [choose.unroll(AVX2, reductions, 2) for reductions in (3, 4, 5, 6, 8)] == [4, 3, 2, 2, 1]
    assert choose.unroll(AVX2, 1, 1, costly=True) == 2
    assert choose.unroll(Profile.generic(64), 3, 2) == 4
    assert choose.unroll(AVX2, 0, 1) == 1  # no reduction: no chain to break


def test_block_is_a_quarter_of_the_first_cache() -> None:
    assert choose.block_length(AVX2, 4, 1, True) == 2048
    assert choose.block_length(AVX2, 8, 1, True) == 1024
    assert choose.block_length(AVX2, 4, 100, True) == 256
    assert choose.block_length(AVX2, 4, 1, False) == 8192


def test_whole_rows_fit_a_quarter_of_the_second_cache() -> None:
    limit = choose.whole_row_limit(AVX2, 4, 1)
    assert limit * 2 * 4 == AVX2.l2 // 4
    assert choose.whole_row_limit(AVX2, 4, 3) < limit
    assert choose.whole_row_limit(AVX2, 4, 1, costly=True) == 3 * limit


def test_groups_of_rows_leave_work_for_all_threads() -> None:
    assert choose.shared_rows(1, 1, 64, 64) == 32
    assert choose.shared_rows(2, 1, 64, 64) == 16
    assert choose.shared_rows(64, 1, 64, 64) == 1
    assert choose.shared_rows(2, 1, 64, 1024) == 2  # the state of a group stays in cache


def test_streaming_stores_beyond_the_last_cache() -> None:
    assert not choose.streaming_stores(AVX2, AVX2.llc)
    assert choose.streaming_stores(AVX2, AVX2.llc + 1)


@pytest.mark.parametrize(
    ("rows", "widths", "tile"),
    [
        (1024, (64,), (6, 2)),
        (1024, (128,), (6, 2)),
        (4, (128,), (4, 2)),
        (1024, (24,), (3, 3)),
        (1, (), (1, 4)),
    ],
)
def test_register_tile(rows: int, widths: tuple[int, ...], tile: tuple[int, int]) -> None:
    chosen = choose.register_tile(AVX2, 8, rows, widths)
    if rows > 1:
        assert chosen == tile
    m, v = chosen
    assert m * v + v + 1 < AVX2.registers


def test_register_tile_never_spills() -> None:
    for width in (16, 32, 64):
        profile = Profile.generic(width)
        for rows in (1, 2, 5, 16, 1000):
            for widths in ((), (1,), (40,), (64, 128)):
                m, v = choose.register_tile(profile, profile.lanes("float32"), rows, widths)
                assert 1 <= m <= max(1, min(rows, 16))
                assert m * v + v + 1 < profile.registers


def test_packing_pays_by_reuse() -> None:
    assert not choose.packs(True, 128, 64, 16)
    assert choose.packs(True, 129, 64, 16)
    assert choose.packs(False, 33, 64, 16)
    assert not choose.packs(False, 32, 64, 16)
    assert choose.packs(True, 33, 40, 16)
    assert not choose.packs(True, 1, 40, 16)


def test_blocks_are_whole_panels() -> None:
    assert choose.panel_block(10**6, 16) == 256
    assert choose.panel_block(10**6, 24) == 264
    assert choose.panel_block(5, 16) == 16
    assert choose.dot_block(AVX2, 4, 128, 128) % 16 == 0
    assert choose.local_panel_block(AVX2, 4, 576, 512, 16, 256) % 16 == 0


def test_slices_keep_a_panel_in_cache() -> None:
    assert choose.contraction_slice(AVX2, 4, 128, 16) == 128
    deep = choose.contraction_slice(AVX2, 4, 576, 16)
    assert deep * 16 * 4 <= AVX2.l1 * 3 // 4
    assert deep * 2 >= 576


def rows_per_tile(**changes: int) -> int:
    case = {
        "itemsize": 4, "rows": 1024, "length": 1024, "depth": 64, "width": 64, "block": 256, "batches": 8,
        "register_rows": 6,
    } | changes  # fmt: skip
    return choose.rows_per_tile(AVX2, **case)


def test_rows_per_tile() -> None:
    assert 60 <= rows_per_tile() <= 240
    assert rows_per_tile(rows=4, register_rows=4) == 4
    assert rows_per_tile(rows=128, length=4096, depth=576, width=512, batches=2) > 100
    assert all(rows_per_tile(register_rows=m) % m == 0 for m in (1, 3, 4, 6, 14))


def test_rows_per_tile_keeps_threads_busy() -> None:
    """One batch and few rows: two tiles for two threads rather than one."""
    assert rows_per_tile(rows=120, batches=1) <= 60


SOFTMAX = choose.RowCost.of(AVX2, slots=20, merge_slots=40, element_bytes=8, total_bytes=1e9)


def test_split_only_where_threads_would_idle() -> None:
    assert choose.few_rows(SOFTMAX, 2**20, threads=2) == 4  # three rows leave one of two threads idle at the end
    assert choose.few_rows(SOFTMAX, 2**20, threads=1) == 0
    assert choose.few_rows(SOFTMAX, 2**16, threads=2) == 0  # not worth a second phase


def test_an_element_costs_the_longer_of_arithmetic_and_memory() -> None:
    cheap = choose.RowCost.of(AVX2, slots=1, merge_slots=1, element_bytes=4, total_bytes=1e9)
    assert cheap.element == 4 / (AVX2.dram_gbs * 1e9)
    assert SOFTMAX.element == max(20 / (AVX2.gflops / 2 * 1e9), 8 / (AVX2.dram_gbs * 1e9))
    cached = choose.RowCost.of(AVX2, slots=1, merge_slots=1, element_bytes=4, total_bytes=1e6)
    assert cached.element < cheap.element


@pytest.mark.parametrize("threads", [2, 8, 64])
@pytest.mark.parametrize("slots", [1, 20, 400])
def test_segments_cross_over_once(threads: int, slots: float) -> None:
    """Longer rows never make a split worse, dearer elements never move the crossover up, and it is where costs meet."""
    cost = choose.RowCost.of(AVX2, slots, 40, 4, 1e9)
    pays = [cost.splits(1, k * choose.CHUNK, threads) for k in range(1, 200)]
    assert not pays[0]
    assert pays[pays.index(True) :].count(False) <= 2  # a last chunk alone in its round
    beyond = choose.split_beyond(cost, 1, threads)
    assert not cost.splits(1, beyond, threads)
    assert cost.splits(1, beyond + choose.CHUNK, threads)
    assert choose.split_beyond(choose.RowCost(cost.element * 4, cost.merge), 1, threads) <= beyond


def test_costs_are_monotone() -> None:
    for length in (2**17, 2**20, 2**23):
        times = [SOFTMAX.single(rows, length, 4) for rows in range(1, 20)]
        assert times == sorted(times)
        assert SOFTMAX.multi(2, length, 8) <= SOFTMAX.multi(2, length, 4) <= SOFTMAX.multi(2, length, 2)
    assert SOFTMAX.multi(1, 2**20, 2) < SOFTMAX.multi(1, 2**21, 2)
    assert not SOFTMAX.splits(100, 2**20, threads=4)  # many rows keep every thread busy


def test_round_up_and_useful_share() -> None:
    assert [choose.round_up(n, 8) for n in (0, 1, 8, 9)] == [0, 8, 8, 16]
    assert math.isclose(choose.useful_share(9, 8), 9 / 16)


def test_the_plan_says_what_the_cost_model_compares() -> None:
    """Where the example lengths leave a choice, the notes hold both predictions, whatever is chosen."""
    two = AVX2.with_fields(threads=2)

    def notes(rows: int, length: int, profile: Profile = two) -> list[str]:
        chosen = plan(softmax(), {"p": rows, "n": length}, profile)
        return [n for n in chosen.notes if "in one segment each" in n or "are split" in n]

    split = notes(1, 2**20)
    assert len(split) == 2
    assert "fewer than 4 rows" in split[0]
    kept = notes(64, 2**20)
    assert len(kept) == 1
    one, several = (float(kept[0].split(": ")[1].split(", ")[i].split(" us")[0]) for i in (0, 1))
    assert one <= several
    assert not notes(1, 2**16)
    assert not notes(1, 2**20, AVX2.with_fields(threads=1))


@pytest.mark.parametrize(("threads", "outer", "extent", "columns"), [
    (1, 1, 5000, 1000), (2, 1, 1024, 512), (2, 1, 1500, 752), (2, 8, 1024, 1024), (4, 1, 300, 128), (2, 1, 40, 40),
    (2, 1, 100_000, 1024), (3, 2, 1000, 1000),
])
def test_columns_leave_no_thread_idle(threads: int, outer: int, extent: int, columns: int) -> None:
    assert choose.columns_per_tile(threads, outer, extent, 8) == columns
