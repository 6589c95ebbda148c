"""Tile schedules: contractions and vector axes as matrix products, masks as bounds, odd sizes, forced options."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from fused_examples import TILES, arrays_for, attention, decode, matmul, rms_dot
from tile_runs import assert_runs, kernel_for

from redfuser.codegen import Kernel
from redfuser.codegen.nodes import MatMul, Pack, Stmt
from redfuser.codegen.passes.bodies import nested
from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.extract import Options
from redfuser.ir import Axis, Expr, Let, Load, New, Old, Out, Reduction, Ref, Size, Tensor, rewrite

SIZES = {"h": 2, "i": 7, "p": 7, "n": 19, "k": 5, "d": 6}
SMALL = Options(block=8, tile=4)


def statements(kernel: Kernel) -> Iterator[Stmt]:
    for phase in kernel.phases:
        yield from nested(phase.loop.body)


def count(kernel: Kernel, kind: type[Stmt]) -> int:
    return sum(isinstance(s, kind) for s in statements(kernel))


@pytest.mark.parametrize("name", TILES)
@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(block=8, tile=3),
        Options(tile=6, register_tile=(2, 1)),
        Options(pack=True, block=16, tile=4),
        Options(pack=False, tile=8, register_tile=(3, 2)),
    ],
    ids=["own", "small", "register tile", "packed", "in place"],
)
def test_sizes(name: str, options: Options) -> None:
    for n in (1, 2, 8, 37):
        for rows in (1, 7):
            sizes = {**SIZES, "n": n, "i": rows, "p": rows}
            kernel = assert_runs(TILES[name]("float32"), sizes, options)
            assert count(kernel, MatMul)


@pytest.mark.parametrize("name", TILES)
def test_float64(name: str) -> None:
    assert_runs(TILES[name]("float64"), SIZES, SMALL, "float64")


@pytest.mark.parametrize("vector_bytes", [16, 64])
def test_vector_widths(vector_bytes: int) -> None:
    for name in ("attention_causal", "rms_dot", "decode"):
        assert_runs(TILES[name]("float32"), SIZES, vector_bytes=vector_bytes)
        assert_runs(TILES[name]("float32"), {**SIZES, "k": 16}, SMALL, vector_bytes=vector_bytes)


@pytest.mark.parametrize("k", [1, 8, 16, 24])
@pytest.mark.parametrize("d", [1, 8, 40])
def test_contraction_and_vector_lengths(k: int, d: int) -> None:
    assert_runs(attention(), {**SIZES, "k": k, "d": d})
    assert_runs(attention(mask="causal"), {**SIZES, "k": k, "d": d}, SMALL)


def test_no_rows_and_no_batch() -> None:
    assert_runs(attention(), {**SIZES, "i": 0})
    assert_runs(attention(), {**SIZES, "h": 0})


def test_nothing_to_sum_over() -> None:
    """Sums over an empty stream are 0, although the running form ends in 0 / 0."""
    assert_runs(rms_dot(), {**SIZES, "n": 0})
    assert_runs(matmul(), {**SIZES, "n": 0})


def test_empty_contraction_takes_the_row_schedule() -> None:
    kernel = assert_runs(attention(), {**SIZES, "k": 0})
    assert "schedule: rows" in kernel.notes
    assert any("is empty" in note for note in kernel.notes)


def test_a_kernel_serves_all_run_time_lengths() -> None:
    fused = attention(mask="causal", lse=True)
    kernel = kernel_for(fused, SIZES, SMALL)
    assert dict(kernel.static) == {"k": 5, "d": 6}
    assert kernel.sizes == ("h", "i", "n")
    for sizes in ({"h": 1, "i": 1, "n": 1}, {"h": 3, "i": 40, "n": 33}):
        assert_runs(fused, {**SIZES, **sizes}, SMALL, planned_for=SIZES)


# -------------------------------- masks


def test_causal_mask_becomes_bounds() -> None:
    kernel = kernel_for(attention(mask="causal"), SIZES, SMALL)
    assert "select(n" not in str(kernel)
    assert any("n < #i + 1" in note for note in kernel.notes)
    products = [s for s in statements(kernel) if isinstance(s, MatMul)]
    assert {s.bound for s in products} == {"j", "k"}


def test_bool_mask_stays_a_select() -> None:
    kernel = kernel_for(attention(mask="bool"), SIZES, SMALL)
    assert "select(keep[" in str(kernel)
    assert all(not s.bound for s in statements(kernel) if isinstance(s, MatMul))


def test_rows_that_see_nothing_in_the_first_blocks() -> None:
    """A window: late rows skip the first blocks, early rows the last."""
    assert_runs(attention(mask="window"), {**SIZES, "i": 33, "n": 33}, SMALL)


def test_fully_masked_rows() -> None:
    fused = attention(mask="bool")
    arrays = arrays_for(fused, SIZES)
    arrays["keep"][2] = False
    assert_runs(fused, SIZES, SMALL, arrays=arrays)


def test_masked_first_tile() -> None:
    fused = attention(mask="bool")
    arrays = arrays_for(fused, SIZES)
    arrays["keep"][:, :9] = False
    assert_runs(fused, SIZES, SMALL, arrays=arrays)


def test_mask_that_is_not_neutral_is_not_a_bound() -> None:
    """A count beside the sums sees masked elements as well: the select must stay."""
    fused = attention(mask="causal")
    number = Accumulator("count", "sum", Ref("s", ("h", "i", "n")) * 0.0 + 1.0, ("h", "i"))
    fused = replace(fused, accumulators=(*fused.accumulators, number), passes=((*fused.passes[0], "count"),))
    kernel = kernel_for(fused, SIZES, SMALL)
    assert all(not s.bound for s in statements(kernel) if isinstance(s, MatMul))


def test_scores_as_a_second_output_keep_their_mask() -> None:
    fused = attention(mask="causal")
    base = attention(mask="scores")
    cascade = replace(fused.cascade, outs=(*fused.cascade.outs, base.cascade.outs[1]))
    assert_runs(replace(fused, cascade=cascade), SIZES, SMALL)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nan_and_infinity_in_the_scores(value: float) -> None:
    fused = attention()
    arrays = arrays_for(fused, SIZES)
    arrays["q"][0, 3, 2] = value
    assert_runs(fused, SIZES, SMALL, arrays=arrays)


# -------------------------------- operands


def test_keys_with_a_contiguous_stream_are_read_in_place() -> None:
    kernel = assert_runs(attention(), SIZES, Options(block=8, pack=False), layouts={"kk": "n"})
    assert count(kernel, Pack) == 0


def test_single_query_reads_keys_in_dot_form() -> None:
    kernel = assert_runs(decode(), {**SIZES, "k": 16, "n": 45, "d": 16})
    assert [s.form for s in statements(kernel) if isinstance(s, MatMul)] == ["dot", "panel"]
    assert count(kernel, Pack) == 0


def test_operands_reused_by_many_rows_are_packed_once() -> None:
    kernel = kernel_for(attention(), {"h": 2, "i": 4096, "n": 4096, "k": 64, "d": 64})
    assert len(kernel.phases) == 3
    assert [b.name for b in kernel.shared] == ["packed_kk", "packed_v"]


def test_one_tile_of_rows_packs_per_block() -> None:
    kernel = kernel_for(attention(), {"h": 2, "i": 40, "n": 4096, "k": 64, "d": 64})
    (main,) = [p.loop.body for p in kernel.phases if any(isinstance(s, MatMul) for s in nested(p.loop.body))]
    assert any(isinstance(s, Pack) for s in nested(main))


def test_deep_contractions_are_cut_into_slices() -> None:
    sizes = {**SIZES, "k": 1000, "i": 200, "n": 40}
    kernel = kernel_for(attention(), sizes)
    products = [s for s in statements(kernel) if isinstance(s, MatMul)]
    assert len(products) > 2
    assert [s.accumulate for s in products[:2]] == [False, True]
    assert_runs(attention(scale=0.01), {**SIZES, "k": 300, "i": 8, "n": 12}, SMALL)


def test_a_vector_accumulator_larger_than_the_cache_lives_in_its_output() -> None:
    sizes, big_tile = {"p": 40, "n": 21, "d": 16384}, Options(tile=36)
    kernel = assert_runs(matmul(), sizes, big_tile)
    assert any("accumulates in the output y" in note for note in kernel.notes)


def test_the_only_weight_replaces_the_tile_it_came_from() -> None:
    def scratch(fused: FusedCascade) -> set[str]:
        return {b.name for phase in kernel_for(fused, SIZES, SMALL).phases for b in phase.local}

    assert "weight" not in scratch(attention())
    assert "weight" in scratch(rms_dot())


def two_sums(dtype: str = "float32") -> FusedCascade:
    """Attention with two value tensors, one of them weighted by the score itself as well: two weights, one tile."""
    fused = attention(dtype)
    c = fused.cascade
    row_d, s = ("h", "i", "d"), Ref("s", ("h", "i", "n"))
    weight = np.exp(s - Ref("m", ("h", "i")))
    other = weight * s * Load("z", ("h", "n", "d"))
    reductions = (*c.reductions, Reduction("y", "sum", other, row_d))
    outs = (*c.outs, replace(c.outs[0], name="out2", expr=Ref("y", row_d)))
    cascade = replace(
        c, tensors=(*c.tensors, Tensor("z", ("h", "n", "d"), dtype)), reductions=reductions, outs=outs
    )
    shift = np.exp(Old("m") - New("m"))
    return replace(
        fused,
        cascade=cascade,
        accumulators=(*fused.accumulators, Accumulator("y", "sum", other, row_d)),
        corrections=(*fused.corrections, ("y", Old("y") * shift)),
        epilogue=(*fused.epilogue, ("y", Ref("y", row_d))),
        passes=((*fused.passes[0], "y"),),
    )


def test_two_vector_sums_with_different_weights() -> None:
    for options in (SMALL, Options()):
        kernel = assert_runs(two_sums(), SIZES, options)
        assert count(kernel, MatMul) == 3


def centred_product(dtype: str = "float32") -> FusedCascade:
    """sum_n (x - mean) w[n, d]: a correction that reads another vector accumulator, sum_n w[n, d]."""
    base = rms_dot(dtype)
    row_d, x, w = ("p", "d"), Load("x", ("p", "n")), Load("w", ("n", "d"))
    mean = Ref("S", ("p",)) / Size("n")
    cascade = replace(
        base.cascade,
        tensors=tuple(t for t in base.cascade.tensors if t.name != "g"),
        reductions=(Reduction("S", "sum", x, ("p",)), Reduction("o", "sum", (x - mean) * w, row_d)),
        outs=(Out("y", row_d, Ref("o", row_d), dtype),),
    )
    mu = Ref("mu", ("p",))
    return FusedCascade(
        cascade,
        (
            Accumulator("S", "sum", x, ("p",)),
            base.accumulators[1],
            Accumulator("W", "sum", w, ("d",)),
            Accumulator("o", "sum", (x - mu) * w, row_d),
        ),
        (Let("mu", ("p",), Ref("S", ("p",)) / Ref("count")),),
        (("o", Old("o") + Old("W") * (Old("mu") - New("mu"))),),
        (("S", Ref("S", ("p",))), ("o", Ref("o", row_d))),
        passes=(("S", "count", "W", "o"),),
    )


@pytest.mark.parametrize("options", [SMALL, Options(), Options(block=4, strategy="rows")])
def test_corrections_between_vector_accumulators(options: Options) -> None:
    assert_runs(centred_product(), SIZES, options)


def test_grouped_heads() -> None:
    """Several query heads per key head: the longest axis the keys lack becomes the rows, the other is batch."""
    fused = attention(mask="causal")

    def axes_of(axes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(x for a in axes for x in (("g", "i") if a == "i" else (a,)))

    def leaf(e: Expr) -> Expr | None:
        if isinstance(e, Load):
            return Load(e.tensor, axes_of(e.axes))  # type: ignore[arg-type]
        return Ref(e.name, axes_of(e.axes)) if isinstance(e, Ref) else None

    c = fused.cascade
    cascade = replace(
        c,
        axes=(*c.axes, Axis("g")),
        tensors=tuple(replace(t, axes=axes_of(t.axes)) for t in c.tensors),
        producers=tuple(replace(p, axes=axes_of(p.axes), expr=rewrite(p.expr, leaf)) for p in c.producers),
        reductions=tuple(replace(r, axes=axes_of(r.axes), body=rewrite(r.body, leaf)) for r in c.reductions),
        outs=tuple(replace(o, axes=axes_of(o.axes), expr=rewrite(o.expr, leaf)) for o in c.outs),
    )
    fused = replace(
        fused,
        cascade=cascade,
        accumulators=tuple(
            replace(a, axes=axes_of(a.axes), body=rewrite(a.body, leaf)) for a in fused.accumulators
        ),
        epilogue=tuple((n, rewrite(e, leaf)) for n, e in fused.epilogue),
    )
    for i, g in ((7, 3), (1, 4)):
        assert_runs(fused, {**SIZES, "i": i, "g": g}, SMALL)
