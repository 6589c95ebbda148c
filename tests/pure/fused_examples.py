"""Fused cascades written by hand, as the derivation would hand them over: shared by several test modules.

Every function returns a `FusedCascade` whose `cascade` is its definition; `arrays_for` draws inputs for any.
Axis names: h, i, p parallel; n the stream; k a contraction; d the vector axis of an accumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from fused_parts import COUNTER, MAX_X, ROW, SHIFT, SUM_EXP, L, M, X, Y, by_hand, inputs, over_rows
from fused_tiles import attention, decode, matmul, rms_dot

from redfuser.derivation.fusion import COUNT, Accumulator, FusedCascade
from redfuser.ir import Axis, Cascade, Let, Load, New, Old, Out, Reduction, Ref, Size, op, select

# -------------------------------- rows of a matrix


def sums(dtype: str = "float32") -> FusedCascade:
    """Row sums: one level, no correction."""
    cascade = over_rows(
        "sums", inputs(dtype, "x"), (Reduction("s", "sum", X, ROW),), (Out("o", ROW, Ref("s", ROW), dtype),)
    )
    return by_hand(cascade, (Accumulator("s", "sum", X, ROW),))


def logsumexp(dtype: str = "float32") -> FusedCascade:
    """m + log(sum exp(x - m)) per row."""
    cascade = over_rows(
        "logsumexp",
        inputs(dtype, "x"),
        (Reduction("m", "max", X, ROW), Reduction("l", "sum", np.exp(X - M), ROW)),
        (Out("o", ROW, M + np.log(L), dtype),),
    )
    return by_hand(cascade, (MAX_X, SUM_EXP), corrections={"l": Old("l") * SHIFT})


def softmax(dtype: str = "float32") -> FusedCascade:
    """exp(x - m) / l: the output carries the stream axis."""
    base = logsumexp(dtype)
    outs = (Out("o", ("p", "n"), np.exp(X - M) / L, dtype),)
    cascade = over_rows("softmax", base.cascade.tensors, base.cascade.reductions, outs)
    return by_hand(cascade, base.accumulators, corrections=dict(base.corrections))


def shifted_exp(dtype: str = "float32") -> FusedCascade:
    """exp(x - max x) without a quotient, and the sum: an all -inf row is NaN in the first output only."""
    base = logsumexp(dtype)
    outs = (Out("e", ("p", "n"), np.exp(X - M), dtype), Out("o", ROW, L, dtype))
    cascade = over_rows("shifted_exp", base.cascade.tensors, base.cascade.reductions, outs)
    return by_hand(cascade, base.accumulators, corrections=dict(base.corrections))


def _mean() -> tuple[Accumulator, Accumulator, Let]:
    return Accumulator("S", "sum", X, ROW), COUNTER, Let("mu", ROW, Ref("S", ROW) / Ref(COUNT))


def variance(dtype: str = "float32") -> FusedCascade:
    """Population variance of each row, with the centred correction of Chan and Welford."""
    total, count, mu = _mean()
    definition_mean = Ref("S", ROW) / Size("n")
    centred = X - definition_mean
    cascade = over_rows(
        "variance",
        inputs(dtype, "x"),
        (Reduction("S", "sum", X, ROW), Reduction("M2", "sum", centred * centred, ROW)),
        (Out("o", ROW, Ref("M2", ROW) / Size("n"), dtype),),
    )
    body = (X - Ref("mu", ROW)) * (X - Ref("mu", ROW))
    moved = Old("mu") - New("mu")
    return by_hand(
        cascade,
        (total, count, Accumulator("M2", "sum", body, ROW)),
        deps=(mu,),
        corrections={"M2": Old("M2") + Old(COUNT) * (moved * moved)},
    )


def pivoted_variance(dtype: str = "float32") -> FusedCascade:
    """Variance of data far from zero: everything is shifted by a pivot of the row."""
    base = variance(dtype)
    pivot = Ref("pivot", ROW)
    centred = (X - pivot) - Ref("mu", ROW)
    moved = Old("mu") - New("mu")
    accumulators = (
        Accumulator("pivot", "pivot", X, ROW),
        Accumulator("T", "sum", X - pivot, ROW),
        COUNTER,
        Accumulator("M2", "sum", centred * centred, ROW),
    )
    return by_hand(
        base.cascade,
        accumulators,
        deps=(Let("mu", ROW, Ref("T", ROW) / Ref(COUNT)),),
        corrections={"M2": Old("M2") + Old(COUNT) * (moved * moved)},
        epilogue={"S": Ref("T", ROW) + Ref(COUNT) * pivot},
    )


def layernorm(dtype: str = "float32") -> FusedCascade:
    """(x - mean) / sqrt(var + eps) * g + b."""
    base = variance(dtype)
    mean, var = Ref("S", ROW) / Size("n"), Ref("M2", ROW) / Size("n")
    outs = (
        Out("o", ("p", "n"), (X - mean) / np.sqrt(var + 1e-5) * Load("g", ("n",)) + Load("b", ("n",)), dtype),
    )
    cascade = over_rows("layernorm", inputs(dtype, "xgb"), base.cascade.reductions, outs)
    return by_hand(
        cascade, base.accumulators, deps=base.dependencies, corrections=dict(base.corrections)
    )


def cosine(dtype: str = "float32") -> FusedCascade:
    """<x, y> / sqrt(<x, x> <y, y>): three accumulators of one level."""
    a, b, c = (Ref(r, ROW) for r in "abc")
    bodies = {"a": X * Y, "b": X * X, "c": Y * Y}
    cascade = over_rows(
        "cosine",
        inputs(dtype, "xy"),
        tuple(Reduction(r, "sum", e, ROW) for r, e in bodies.items()),
        (Out("o", ROW, a / np.sqrt(b * c), dtype),),
    )
    return by_hand(cascade, tuple(Accumulator(r, "sum", e, ROW) for r, e in bodies.items()))


def entropy(dtype: str = "float32") -> FusedCascade:
    """log(l) - sum(exp(x - m) (x - m)) / l."""
    body = np.exp(X - M) * (X - M)
    base = logsumexp(dtype)
    cascade = over_rows(
        "entropy",
        base.cascade.tensors,
        (*base.cascade.reductions, Reduction("h", "sum", body, ROW)),
        (Out("o", ROW, np.log(L) - Ref("h", ROW) / L, dtype),),
    )
    corrected = (Old("h") + Old("l") * (Old("m") - New("m"))) * SHIFT
    return by_hand(
        cascade,
        (*base.accumulators, Accumulator("h", "sum", body, ROW)),
        corrections={"l": Old("l") * SHIFT, "h": corrected},
    )


def weighted_variance(dtype: str = "float32") -> FusedCascade:
    """Variance of y under the softmax weights of x: three levels, corrections in two dependencies."""
    weight, mean = np.exp(X - M), Ref("s1", ROW) / L
    base = logsumexp(dtype)
    cascade = over_rows(
        "weighted_variance",
        inputs(dtype, "xy"),
        (
            *base.cascade.reductions,
            Reduction("s1", "sum", weight * Y, ROW),
            Reduction("v", "sum", weight * ((Y - mean) * (Y - mean)), ROW),
        ),
        (Out("o", ROW, Ref("v", ROW) / L, dtype),),
    )
    mu = Ref("mu", ROW)
    moved = Old("mu") - New("mu")
    return by_hand(
        cascade,
        (
            *base.accumulators,
            Accumulator("s1", "sum", weight * Y, ROW),
            Accumulator("v", "sum", weight * ((Y - mu) * (Y - mu)), ROW),
        ),
        deps=(Let("mu", ROW, mean),),
        corrections={
            "l": Old("l") * SHIFT,
            "s1": Old("s1") * SHIFT,
            "v": (Old("v") + Old("l") * (moved * moved)) * SHIFT,
        },
    )


def mean_absolute_deviation(dtype: str = "float32") -> FusedCascade:
    """sum |x - mean| / count: not fusible into one sweep, hence two passes."""
    total, count, mu = _mean()
    cascade = over_rows(
        "mean_absolute_deviation",
        inputs(dtype, "x"),
        (Reduction("S", "sum", X, ROW), Reduction("D", "sum", abs(X - Ref("S", ROW) / Size("n")), ROW)),
        (Out("o", ROW, Ref("D", ROW) / Size("n"), dtype),),
    )
    deviation = Accumulator("D", "sum", abs(X - Ref("mu", ROW)), ROW)
    return by_hand(cascade, (total, count, deviation), deps=(mu,), passes=(("S", COUNT), ("D",)))


def count_above_mean(dtype: str = "float32") -> FusedCascade:
    """any/all/prod/min beside a comparison of the second pass: every monoid but the sum."""
    total, count, mu = _mean()
    bodies = {
        "low": ("min", X),
        "some": ("any", Load("x", ("p", "n")) > 2.0),
        "every": ("all", X > -9.0),
        "product": ("prod", 1.0 + X / 64.0),
    }
    above = select(Ref("S", ROW) / Size("n") < X, 1.0, 0.0)
    cascade = over_rows(
        "count_above_mean",
        inputs(dtype, "x"),
        (
            Reduction("S", "sum", X, ROW),
            *(Reduction(r, m, e, ROW) for r, (m, e) in bodies.items()),
            Reduction("c", "sum", above, ROW),
        ),
        (
            Out("o", ROW, Ref("c", ROW), dtype),
            Out("lo", ROW, Ref("low", ROW), dtype),
            Out("se", ROW, op("and", Ref("some", ROW), Ref("every", ROW)), "bool"),
            Out("pr", ROW, Ref("product", ROW), dtype),
        ),
    )
    first = (total, count, *(Accumulator(r, m, e, ROW) for r, (m, e) in bodies.items()))
    last = Accumulator("c", "sum", select(Ref("mu", ROW) < X, 1.0, 0.0), ROW)
    return by_hand(cascade, (*first, last), deps=(mu,), passes=(tuple(a.name for a in first), ("c",)))


# -------------------------------- no reduction at all


def elementwise(dtype: str = "float32") -> FusedCascade:
    """tanh(x) * g + b and a transposed copy: an elementwise piece."""
    outs = (
        Out("o", ("p", "n"), np.tanh(X) * Load("g", ("n",)) + Load("b", ("n",)), dtype),
        Out("t", ("n", "p"), X, dtype),
    )
    cascade = Cascade("elementwise", None, (Axis("p"), Axis("n")), inputs(dtype, "xgb"), (), (), outs)
    return FusedCascade(cascade, (), (), (), ())


ROWS: dict[str, Callable[[str], FusedCascade]] = {
    f.__name__: f
    for f in (
        sums,
        logsumexp,
        softmax,
        shifted_exp,
        variance,
        pivoted_variance,
        layernorm,
        cosine,
        entropy,
        weighted_variance,
        mean_absolute_deviation,
        count_above_mean,
    )
}
"""Cascades over the rows of x[p, n]."""

TILES: dict[str, Callable[[str], FusedCascade]] = {
    "rms_dot": rms_dot,
    "matmul": matmul,
    "decode": decode,
    **{
        f"attention_{m or 'dense'}": partial(attention, mask=m, lse=m == "causal")
        for m in ("", "causal", "window", "bool", "slopes", "scalar", "scores")
    },
}
"""Cascades with a contraction or a vector axis."""


def arrays_for(
    fused: FusedCascade, sizes: Mapping[str, int], seed: int = 0
) -> dict[str, np.ndarray[Any, Any]]:
    """Random inputs of the dtypes of `fused`. Booleans keep the first element of every row."""
    rng = np.random.default_rng(seed)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for t in fused.cascade.tensors:
        shape = [sizes[a] for a in t.axes]
        if t.dtype == "bool":
            array = rng.random(shape) < 0.6
            array[..., :1] = True
        else:
            array = rng.standard_normal(shape).astype(t.dtype)
        arrays[t.name] = np.asarray(array)
    return arrays
