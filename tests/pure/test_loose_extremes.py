"""Extremes that need not look for NaN: only where every output that reads them is NaN all the same."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from fused_examples import arrays_for, attention, entropy, logsumexp, shifted_exp, softmax
from fused_parts import MAX_X, ROW, SUM_EXP, L, M, X, Y, inputs
from tile_runs import definition, error, kernel_for, run

from redfuser.derivation.fusion import Accumulator
from redfuser.extract import Options
from redfuser.extract.flatten import Flat, flatten
from redfuser.extract.nans import loose_extremes
from redfuser.ir import Axis, Cast, Expr, Let, Out, Ref, op, select

T, D = Ref("t", ROW), Ref("d", ROW)
MASKED = select(op("gt", Y, 0.0), X, -math.inf)
UNMASKED = Accumulator("t", "sum", np.exp(MASKED - M), ROW)
MEAN = Accumulator("t", "sum", X, ROW)


def flat_of(*outs: Expr, sums: tuple[Accumulator, ...] = (SUM_EXP,), extreme: Accumulator = MAX_X,
            dtype: str = "float32") -> Flat:
    accumulators = (extreme, *sums)
    return Flat("f", "n", (Axis("p"), Axis("n")), inputs("float32", "xy"), accumulators,
                (Let("d", ROW, L * 2.0),), (), tuple(Out(f"o{i}", ROW, e, dtype) for i, e in enumerate(outs)),
                (tuple(a.name for a in accumulators),))


LOOSE: Mapping[str, Flat] = {
    "log of the sum": flat_of(M + np.log(L)),
    "weights": flat_of(np.exp(X - M) / L),
    "by a dependency": flat_of(M / D),
    "less the mean": flat_of(M - T / 100.0, sums=(MEAN,)),
    "the larger of two": flat_of(op("max", M, L)),
    "narrow": flat_of(Cast("float16", M * L), dtype="float16"),
    "several outputs": flat_of(M + L, L, np.exp(M) * np.log(L)),
    "an output that reads it not": flat_of(M + L, T, sums=(SUM_EXP, MEAN)),
    "masked alike": flat_of(T * M, sums=(UNMASKED,), extreme=Accumulator("m", "max", MASKED, ROW)),
    "a minimum": flat_of(M * L, extreme=Accumulator("m", "min", X, ROW)),
}
STRICT: Mapping[str, Flat] = {
    "the extreme itself": flat_of(M),
    "one output of two": flat_of(M + L, M * 2.0),
    "read through a sum of other elements": flat_of(T, sums=(Accumulator("t", "sum", np.exp(Y - M), ROW),)),
    "a sum of other elements": flat_of(M + T, sums=(Accumulator("t", "sum", Y, ROW),)),
    "a sum that a mask leaves elements out of": flat_of(M + T, sums=(UNMASKED,)),
    "a term that a mask removes": flat_of(M + T, sums=(Accumulator("t", "sum", select(op("gt", Y, 0.0), X, 0.0), ROW),
                                                       )),
    "a quotient by running state": flat_of(M + T, sums=(SUM_EXP, Accumulator("t", "sum", X / L, ROW))),
    "a choice": flat_of(select(op("gt", L, 0.0), M, 0.0)),
    "a comparison": flat_of(op("gt", M, L), dtype="bool"),
    "whole numbers": flat_of(Cast("int64", M + L), dtype="int64"),
    "of all rows together": flat_of(M + T, sums=(Accumulator("t", "sum", X, ()),)),
}


@pytest.mark.parametrize("name", LOOSE)
def test_a_nan_shows_anyhow(name: str) -> None:
    assert loose_extremes(LOOSE[name]) == {"m"}


@pytest.mark.parametrize("name", STRICT)
def test_a_nan_might_be_lost(name: str) -> None:
    assert not loose_extremes(STRICT[name])


def test_outputs_along_the_stream() -> None:
    """exp(x - m) of other elements says nothing of a NaN, exp(x - m) / l does."""
    assert loose_extremes(flatten(softmax(), "float32")) == {"m"}
    assert not loose_extremes(flatten(shifted_exp(), "float32"))


def test_sweeps_say_so() -> None:
    sizes = {"p": 8, "n": 100}
    assert str(kernel_for(logsumexp(), sizes)).count("loose max(") == 2
    assert "loose" not in str(kernel_for(shifted_exp(), sizes))


OPTIONS = (None, Options(block=16), Options(chunk=32), Options(strategy="columns"))


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("make", [logsumexp, softmax, shifted_exp, entropy])
def test_nan_in_every_schedule(make: Any, options: Options | None) -> None:
    fused, sizes = make("float64"), {"p": 5, "n": 77}
    layouts = {"x": "p", "o": "p", "e": "p"} if options is not None and options.strategy else None
    arrays = arrays_for(fused, sizes)
    for row, at in ((0, 0), (1, 76), (3, 40)):
        arrays["x"][row, at] = np.nan
    kernel = kernel_for(fused, sizes, options, "float64", layouts=layouts)
    assert error(run(kernel, fused, arrays, sizes), definition(fused, arrays)) < 1e-9


def test_nan_in_tiles() -> None:
    fused, sizes = attention("float64"), {"h": 2, "i": 13, "n": 29, "k": 5, "d": 6}
    arrays = arrays_for(fused, sizes)
    arrays["q"][0, 3, 1] = arrays["kk"][1, 7, 2] = np.nan
    kernel = kernel_for(fused, sizes, Options(strategy="tiles"), "float64")
    assert "loose max(" in str(kernel)
    assert error(run(kernel, fused, arrays, sizes), definition(fused, arrays)) < 1e-9


def test_a_wrong_claim_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes the liberty: a loose maximum passes over NaN."""
    fused, sizes = shifted_exp("float64"), {"p": 2, "n": 40}
    arrays = arrays_for(fused, sizes)
    arrays["x"][0, 11] = np.nan
    want = definition(fused, arrays)
    assert error(run(kernel_for(fused, sizes, dtype="float64"), fused, arrays, sizes), want) < 1e-9
    monkeypatch.setattr(sys.modules["redfuser.extract.plan"], "loose_extremes", lambda flat: frozenset({"m"}))
    assert error(run(kernel_for(fused, sizes, dtype="float64"), fused, arrays, sizes), want) == np.inf
