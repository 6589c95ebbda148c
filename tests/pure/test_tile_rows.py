"""Row schedules: whole rows, forced blocks with corrections, edges of the number line, sizes 0 and 1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from fused_examples import (
    ROWS,
    TILES,
    arrays_for,
    elementwise,
    entropy,
    layernorm,
    logsumexp,
    mean_absolute_deviation,
    pivoted_variance,
    shifted_exp,
    softmax,
    variance,
    weighted_variance,
)
from tile_runs import assert_runs, definition, error, kernel_for, run

from redfuser.codegen.nodes import For, If, Sweep
from redfuser.codegen.passes.bodies import nested
from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.extract import Options
from redfuser.ir import Axis, Cascade, Const, Let, Load, Out, Reduce, Reduction, Ref, Tensor

LENGTHS = (0, 1, 2, 7, 8, 31, 101)
BLOCKS = (None, 1, 8, 16)
NO_EMPTY = {"logsumexp", "softmax", "shifted_exp", "entropy", "weighted_variance", "count_above_mean"}


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("name", ROWS)
def test_every_length(name: str, block: int | None) -> None:
    for n in LENGTHS:
        if n or name not in NO_EMPTY:
            assert_runs(ROWS[name]("float32"), {"p": 3, "n": n}, Options(block=block))


@pytest.mark.parametrize("name", ROWS)
def test_float64(name: str) -> None:
    assert_runs(ROWS[name]("float64"), {"p": 2, "n": 45}, Options(block=16), "float64")


@pytest.mark.parametrize("vector_bytes", [16, 64])
def test_other_vector_widths(vector_bytes: int) -> None:
    assert_runs(softmax(), {"p": 2, "n": 45}, vector_bytes=vector_bytes)


def test_no_rows() -> None:
    assert_runs(softmax(), {"p": 0, "n": 5})


def test_a_kernel_serves_every_length() -> None:
    """Planned for short rows, run on long ones: the streaming phase takes over, and no length is baked in."""
    fused = softmax()
    kernel = assert_runs(fused, {"p": 1, "n": 30000}, planned_for={"p": 7, "n": 3})
    assert kernel == kernel_for(fused, {"p": 7, "n": 5})
    assert len(kernel.phases) == 2
    assert kernel.static == ()


def test_whole_rows_carry_no_state_and_no_correction() -> None:
    whole, streaming = kernel_for(weighted_variance(), {"p": 4, "n": 100}).phases
    kinds = [type(s) for s in nested(whole.loop.body)]
    assert If not in kinds
    assert For not in kinds
    assert sum(isinstance(s, If) for s in nested(streaming.loop.body)) == 2  # one per level with corrections


def test_costly_terms_are_computed_once_per_block() -> None:
    whole = kernel_for(weighted_variance(), {"p": 4, "n": 100}).phases[0]
    exps = [str(s).count("exp_below(") for s in whole.loop.body if isinstance(s, Sweep)]
    assert exps == [0, 1, 0]


def test_softmax_keeps_its_exponentials_in_the_output_row() -> None:
    whole = kernel_for(softmax(), {"p": 4, "n": 100}).phases[0]
    assert whole.local == ()
    assert str(whole.loop.body[3]).startswith("sweep n in 0 .. |n|")
    assert "o[p, n] <- exp_below(x[p, n] - m_shift)" in str(whole.loop.body[3])


def test_streamed_output_goes_to_scratch_when_stores_bypass_the_cache() -> None:
    whole = kernel_for(softmax(), {"p": 4096, "n": 4096}).phases[0]
    assert len(whole.local) == 1
    assert "<-nt" in str(whole.loop)


# -------------------------------- edges of the number line


def with_prefix(fused: FusedCascade, n: int, dead: int, value: float = -np.inf) -> dict[str, Any]:
    """Inputs whose first `dead` elements of x are `value` in every row."""
    arrays = arrays_for(fused, {"p": 2, "n": n})
    arrays["x"][:, :dead] = value
    return arrays


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("make", [logsumexp, softmax, weighted_variance, shifted_exp])
def test_masked_prefix(make: Any, block: int | None) -> None:
    """Blocks that hold nothing but -inf come first: the state stays empty and alive."""
    for dead in (1, 8, 17):
        fused = make()
        assert_runs(fused, {"p": 2, "n": 21}, Options(block=block), arrays=with_prefix(fused, 21, dead))


@pytest.mark.parametrize("block", [None, 8])
def test_all_minus_infinity(block: int | None) -> None:
    """A row without a live element: NaN where the definition divides 0 by 0, -inf for logsumexp."""
    fused = softmax()
    arrays = with_prefix(fused, 9, 9)
    kernel = kernel_for(fused, {"p": 2, "n": 9}, Options(block=block))
    assert np.isnan(run(kernel, fused, arrays, {"p": 2, "n": 9})["o"]).all()
    fused = logsumexp()
    kernel = kernel_for(fused, {"p": 2, "n": 9}, Options(block=block))
    assert (run(kernel, fused, arrays, {"p": 2, "n": 9})["o"] == -np.inf).all()


@pytest.mark.parametrize("block", [None, 8])
def test_guards_do_not_leak_into_outputs(block: int | None) -> None:
    """exp(x - max x) of an all -inf row is NaN by definition although the running sum is guarded."""
    fused = shifted_exp()
    arrays = with_prefix(fused, 9, 9)
    arrays["x"][1, 3] = 0.5
    kernel = kernel_for(fused, {"p": 2, "n": 9}, Options(block=block))
    got = run(kernel, fused, arrays, {"p": 2, "n": 9})
    assert np.isnan(got["e"][0]).all()
    np.testing.assert_array_equal(got["e"][1], np.where(np.arange(9) == 3, 1, 0))
    np.testing.assert_array_equal(got["o"], [0, 1])


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("make", [logsumexp, softmax, variance, weighted_variance])
def test_nan_and_infinity_reach_the_result(make: Any, value: float) -> None:
    for position, block in ((0, 8), (20, 8), (5, None)):
        fused = make()
        arrays = arrays_for(fused, {"p": 2, "n": 21})
        arrays["x"][0, position] = value
        kernel = kernel_for(fused, {"p": 2, "n": 21}, Options(block=block))
        got = run(kernel, fused, arrays, {"p": 2, "n": 21})["o"]
        with np.errstate(all="ignore"):
            want = definition(fused, arrays)["o"]
        assert np.isnan(got[0]).any() == np.isnan(want[0]).any()
        np.testing.assert_allclose(got[1], want[1], rtol=1e-4)


def test_huge_logits() -> None:
    fused = softmax()
    arrays = arrays_for(fused, {"p": 2, "n": 40})
    arrays["x"] *= 1e14
    assert_runs(fused, {"p": 2, "n": 40}, Options(block=8), arrays=arrays)


@pytest.mark.parametrize("scale", [1e-42, 1e38])
def test_quotients_by_tiny_and_huge_scalars(scale: float) -> None:
    """x / s with s at the ends of the float32 range: the reciprocal alone would overflow or lose its digits."""
    x, s = Load("x", ("p", "n")), Ref("s", ("p",))
    body = abs(x)
    cascade = Cascade(
        "normalise",
        "n",
        (Axis("p"), Axis("n")),
        (Tensor("x", ("p", "n"), "float32"),),
        (),
        (Reduction("s", "max", body, ("p",)),),
        (Out("o", ("p", "n"), x / s, "float32"),),
    )
    fused = FusedCascade(
        cascade, (Accumulator("s", "max", body, ("p",)),), (), (), (("s", s),), passes=(("s",),)
    )
    arrays = {"x": (np.linspace(-1, 1, 18).reshape(2, 9) * scale).astype(np.float32)}
    assert_runs(fused, {"p": 2, "n": 9}, arrays=arrays)


def test_data_far_from_zero() -> None:
    """Mean 1e4, spread 1e-1: the pivoted form keeps float32 digits that sums of squares would lose."""
    fused = pivoted_variance()
    rng = np.random.default_rng(1)
    arrays = {"x": (1e4 + 0.1 * rng.standard_normal((2, 500))).astype(np.float32)}
    kernel = kernel_for(fused, {"p": 2, "n": 500}, Options(block=64))
    got = run(kernel, fused, arrays, {"p": 2, "n": 500})
    assert error(got, definition(fused, arrays)) < 1e-7


# -------------------------------- inner reductions, other shapes


@pytest.mark.parametrize("name", [n for n in TILES if n != "decode"])
@pytest.mark.parametrize("block", [None, 4])
def test_rows_are_right_where_tiles_would_be_faster(name: str, block: int | None) -> None:
    """The general path takes every fusion: contractions become inner sweeps, vector axes become rows."""
    sizes = {"h": 2, "i": 3, "p": 3, "n": 11, "k": 5, "d": 2}
    assert_runs(TILES[name]("float32"), sizes, Options(block=block, strategy="rows"))


def test_nested_inner_reductions() -> None:
    """max over n of sum over k of (a[n,k] * max over j of b[k,j])."""
    inner = Reduce("max", "j", Load("b", ("k", "j")))
    body = Reduce("sum", "k", Load("a", ("n", "k")) * inner)
    cascade = Cascade(
        "nested",
        "n",
        tuple(map(Axis, "nkj")),
        (Tensor("a", ("n", "k"), "float32"), Tensor("b", ("k", "j"), "float32")),
        (Let("s", ("n",), body),),
        (Reduction("m", "max", Ref("s", ("n",)), ()),),
        (Out("o", (), Ref("m"), "float32"),),
    )
    fused = FusedCascade(
        cascade, (Accumulator("m", "max", body),), (), (), (("m", Ref("m")),), passes=(("m",),)
    )
    for block in (None, 4):
        assert_runs(fused, {"n": 9, "k": 3, "j": 4}, Options(block=block))


def test_outputs_with_different_parallel_axes_get_their_own_phases() -> None:
    fused = TILES["attention_causal"]("float32")
    kernel = assert_runs(fused, {"h": 2, "i": 3, "n": 5, "k": 4, "d": 2}, Options(block=4, strategy="rows"))
    assert len(kernel.phases) == 2  # out[h, i, d] and lse[h, i]


def test_reference_under_renamed_axes() -> None:
    """An outer product of a reduction with itself: r[p] * r[q], both from x."""
    body = Load("x", ("p", "n"))
    cascade = Cascade(
        "outer",
        "n",
        (Axis("p"), Axis("p'"), Axis("n")),
        (Tensor("x", ("p", "n"), "float32"),),
        (),
        (Reduction("r", "sum", body, ("p",)),),
        (Out("o", ("p", "p'"), Ref("r", ("p",)) * Ref("r", ("p'",)), "float32"),),
    )
    fused = FusedCascade(
        cascade,
        (Accumulator("r", "sum", body, ("p",)),),
        (),
        (),
        (("r", Ref("r", ("p",))),),
        passes=(("r",),),
    )
    assert_runs(fused, {"p": 4, "n": 7}, Options(block=4))


def test_strided_stream_and_fixed_positions() -> None:
    x = Load("x", ("n", "p"))
    body = x * Load("x", (0, "p")) + Load("x", (-1, "p"))
    cascade = Cascade(
        "fixed",
        "n",
        (Axis("p"), Axis("n")),
        (Tensor("x", ("n", "p"), "float32"),),
        (),
        (Reduction("r", "sum", body, ("p",)),),
        (Out("o", ("p",), Ref("r", ("p",)), "float32"),),
    )
    fused = FusedCascade(
        cascade,
        (Accumulator("r", "sum", body, ("p",)),),
        (),
        (),
        (("r", Ref("r", ("p",))),),
        passes=(("r",),),
    )
    assert_runs(fused, {"p": 4, "n": 7}, Options(block=4))


def test_names_that_collide() -> None:
    """Accumulators, axes and tensors all called n, m and l: nothing is captured."""
    x, m = Load("l", ("m", "n")), Ref("n", ("m",))
    body = np.exp(x - m)
    cascade = Cascade(
        "names",
        "n",
        (Axis("m"), Axis("n")),
        (Tensor("l", ("m", "n"), "float32"),),
        (),
        (Reduction("n", "max", x, ("m",)), Reduction("m", "sum", body, ("m",))),
        (Out("row", ("m",), Ref("m", ("m",)), "float32"),),
    )
    fused = softmax()
    corrected = fused.corrections[0][1]
    from redfuser.ir import New, Old, rewrite

    table = {"m": "n", "l": "m"}
    corrected = rewrite(corrected, lambda e: type(e)(table[e.name]) if isinstance(e, (Old, New)) else None)
    fused = FusedCascade(
        cascade,
        (Accumulator("n", "max", x, ("m",)), Accumulator("m", "sum", body, ("m",))),
        (),
        (("m", corrected),),
        (("n", m), ("m", Ref("m", ("m",)))),
        passes=(("n", "m"),),
    )
    for block in (None, 4):
        assert_runs(fused, {"m": 3, "n": 13}, Options(block=block))


@pytest.mark.parametrize("n", [0, 1, 37])
def test_elementwise(n: int) -> None:
    assert_runs(elementwise(), {"p": 3, "n": n})


def test_elementwise_rows_are_cut_into_chunks() -> None:
    fused = elementwise()
    fused = replace(fused, cascade=replace(fused.cascade, outs=fused.cascade.outs[:1]))
    assert_runs(fused, {"p": 1, "n": 9001})


def test_scalar_elementwise_output() -> None:
    cascade = Cascade(
        "scalar",
        None,
        (Axis("n", 1),),
        (Tensor("a", (), "float32"),),
        (),
        (),
        (Out("o", (), Load("a") * 2.0 + Const(1.0), "float32"),),
    )
    assert_runs(FusedCascade(cascade, (), (), (), ()), {"n": 1})


def test_second_pass_reads_final_results_of_the_first() -> None:
    kernel = assert_runs(mean_absolute_deviation(), {"p": 3, "n": 50}, Options(block=8))
    loops = [s for s in kernel.phases[0].loop.body if isinstance(s, For)]
    assert len(loops) == 2


def test_row_vectors_are_shared_by_rows() -> None:
    assert_runs(layernorm(), {"p": 5, "n": 33}, Options(block=16))


def test_entropy_of_equal_scores() -> None:
    fused = entropy()
    assert_runs(fused, {"p": 1, "n": 40}, Options(block=8), arrays={"x": np.full((1, 40), 3.0, np.float32)})


def test_a_length_known_while_tracing_is_part_of_the_kernel() -> None:
    fused = softmax()
    fused = replace(fused, cascade=replace(fused.cascade, axes=(Axis("p"), Axis("n", 9))))
    kernel = assert_runs(fused, {"p": 3, "n": 9})
    assert kernel.static == (("n", 9),)
    assert kernel.sizes == ("p",)
    assert len(kernel.phases) == 1
