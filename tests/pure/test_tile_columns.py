"""Column schedules: reductions over a strided stream, lanes on the contiguous parallel axis."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fused_examples import ROWS, arrays_for, entropy, logsumexp, softmax
from fused_parts import by_hand
from tile_runs import assert_runs, kernel_for, run

from redfuser.codegen.nodes import For, Sweep
from redfuser.codegen.passes.bodies import nested
from redfuser.derivation.fusion import COUNT, Accumulator, FusedCascade
from redfuser.extract import Options
from redfuser.ir import (
    Axis,
    Cascade,
    Const,
    Expr,
    Let,
    Load,
    New,
    Old,
    Out,
    Reduction,
    Ref,
    Size,
    Tensor,
    rewrite,
)


def transposed(fused: FusedCascade) -> FusedCascade:
    """The same fusion over tensors whose stream axis is the outer one."""

    def axes(a: tuple[str, ...]) -> tuple[str, ...]:
        return ("n", "p") if a == ("p", "n") else a

    def turn(e: Expr) -> Expr:
        return rewrite(e, lambda x: Load(x.tensor, axes(x.axes)) if isinstance(x, Load) else None)  # type: ignore[arg-type]

    c = fused.cascade
    cascade = replace(
        c,
        tensors=tuple(replace(t, axes=axes(t.axes)) for t in c.tensors),
        reductions=tuple(replace(r, body=turn(r.body)) for r in c.reductions),
        outs=tuple(replace(o, axes=axes(o.axes), expr=turn(o.expr)) for o in c.outs),
    )
    return replace(
        fused,
        cascade=cascade,
        accumulators=tuple(replace(a, body=turn(a.body)) for a in fused.accumulators),
    )


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("options", [Options(), Options(block=8, tile=8)], ids=["own", "small"])
def test_every_fusion(name: str, options: Options) -> None:
    for n in (1, 2, 19):
        kernel = assert_runs(transposed(ROWS[name]("float32")), {"p": 11, "n": n}, options)
        assert "schedule: columns" in kernel.notes


@pytest.mark.parametrize("name", ["variance", "softmax"])
def test_float64(name: str) -> None:
    assert_runs(transposed(ROWS[name]("float64")), {"p": 11, "n": 21}, Options(block=8), "float64")


def test_no_horizontal_reduction() -> None:
    kernel = kernel_for(transposed(softmax()), {"p": 64, "n": 64})
    sweeps = [s for s in nested(kernel.phases[0].loop.body) if isinstance(s, Sweep)]
    assert sweeps
    assert not any(s.reds for s in sweeps)


def test_narrow_or_contiguous_streams_take_rows() -> None:
    assert "schedule: rows" in kernel_for(transposed(softmax()), {"p": 3, "n": 64}).notes
    contiguous = kernel_for(transposed(softmax()), {"p": 64, "n": 64}, layouts={"x": "n"})
    assert "schedule: rows" in contiguous.notes


@pytest.mark.parametrize("make", [logsumexp, softmax])
def test_masked_prefix_and_dead_columns(make: object) -> None:
    fused = transposed(make())  # type: ignore[operator]
    arrays = arrays_for(fused, {"p": 9, "n": 20})
    for column in range(8):
        arrays["x"][: 2 * column + 1, column] = -np.inf
    assert_runs(fused, {"p": 9, "n": 20}, Options(block=4), arrays=arrays)
    arrays["x"][:, 3] = -np.inf
    kernel = kernel_for(fused, {"p": 9, "n": 20}, Options(block=4))
    got = run(kernel, fused, arrays, {"p": 9, "n": 20})["o"]
    dead = got[..., 3]
    assert (np.isnan(dead) if dead.ndim else dead == -np.inf).all()


def test_nan_stays_in_its_column() -> None:
    fused = transposed(entropy())
    arrays = arrays_for(fused, {"p": 9, "n": 20})
    arrays["x"][7, 2] = np.nan
    kernel = kernel_for(fused, {"p": 9, "n": 20}, Options(block=4))
    got = run(kernel, fused, arrays, {"p": 9, "n": 20})["o"]
    assert np.isnan(got[2])
    assert np.isfinite(np.delete(got, 2)).all()

def products_of_columns() -> FusedCascade:
    """sum over n of (x[n,p] - mean[p]) * x[n,p']: the means are the same for all p'."""
    x, other, at, pair = Load("x", ("n", "p")), Load("x", ("n", "p'")), ("p",), ("p'", "p")
    cascade = Cascade(
        "pairs",
        "n",
        (Axis("n"), Axis("p"), Axis("p'")),
        (Tensor("x", ("n", "p"), "float32"),),
        (),
        (Reduction("S", "sum", x, at), Reduction("o", "sum", (x - Ref("S", at) / Size("n")) * other, pair)),
        (Out("z", pair, Ref("o", pair), "float32"),),
    )
    accumulators = (
        Accumulator("S", "sum", x, at),
        Accumulator(COUNT, "sum", Const(1.0)),
        Accumulator("Y", "sum", other, ("p'",)),
        Accumulator("o", "sum", (x - Ref("d", at)) * other, pair),
    )
    means = (Let("d", at, Ref("S", at) / Ref(COUNT)),)
    return by_hand(cascade, accumulators, deps=means, corrections={"o": Old("o") + Old("Y") * (Old("d") - New("d"))})


@pytest.mark.parametrize("columns", [8, 11, 16, 40])
def test_rows_share_the_state_of_their_columns(columns: int) -> None:
    for options in (Options(strategy="columns"), Options(strategy="columns", block=4, tile=8)):
        kernel = assert_runs(products_of_columns(), {"p": columns, "n": 21}, options)
        assert "schedule: columns" in kernel.notes
        assert any("share" in note for note in kernel.notes)
        assert any(isinstance(s, For) and s.kind == "row" for s in nested(kernel.phases[0].loop.body))
