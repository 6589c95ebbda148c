"""Fused cascades written by hand, as the derivation would hand them over: shared by several test modules.

Every function returns a `FusedCascade` whose `cascade` is its definition; `arrays_for` draws inputs for any.
Axis names: h, i, p parallel; n the stream; k a contraction; d the vector axis of an accumulator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from redfuser.derivation.fusion import COUNT, Accumulator, FusedCascade
from redfuser.ir import (
    NEG_INF,
    Axis,
    Cascade,
    Const,
    Expr,
    Idx,
    Let,
    Load,
    New,
    Old,
    Out,
    Reduce,
    Reduction,
    Ref,
    Size,
    Tensor,
    op,
    select,
)

ROW = ("p",)
X, Y = Load("x", ("p", "n")), Load("y", ("p", "n"))
M, L = Ref("m", ROW), Ref("l", ROW)
SHIFT = np.exp(Old("m") - New("m"))
COUNTER = Accumulator(COUNT, "sum", Const(1.0), ())
MAX_X = Accumulator("m", "max", X, ROW)
SUM_EXP = Accumulator("l", "sum", np.exp(X - M), ROW)


def _tensors(dtype: str, names: str) -> tuple[Tensor, ...]:
    axes = {"x": ("p", "n"), "y": ("p", "n"), "g": ("n",), "b": ("n",)}
    return tuple(Tensor(name, axes[name], dtype) for name in names)


def _rows(
    name: str,
    tensors: tuple[Tensor, ...],
    reductions: tuple[Reduction, ...],
    outs: tuple[Out, ...],
    axes: tuple[Axis, ...] = (),
) -> Cascade:
    return Cascade(name, "n", (Axis("p"), Axis("n"), *axes), tensors, (), reductions, outs)


def _single_pass(
    cascade: Cascade,
    accumulators: tuple[Accumulator, ...],
    *,
    deps: tuple[Let, ...] = (),
    corrections: Mapping[str, Expr] | None = None,
    epilogue: Mapping[str, Expr] | None = None,
) -> FusedCascade:
    by_default = {r.name: Ref(r.name, r.axes) for r in cascade.reductions}
    return FusedCascade(
        cascade,
        accumulators,
        deps,
        tuple((corrections or {}).items()),
        tuple((by_default | dict(epilogue or {})).items()),
        passes=(tuple(a.name for a in accumulators),),
    )


# -------------------------------- rows of a matrix


def sums(dtype: str = "float32") -> FusedCascade:
    """Row sums: one level, no correction."""
    cascade = _rows(
        "sums", _tensors(dtype, "x"), (Reduction("s", "sum", X, ROW),), (Out("o", ROW, Ref("s", ROW), dtype),)
    )
    return _single_pass(cascade, (Accumulator("s", "sum", X, ROW),))


def logsumexp(dtype: str = "float32") -> FusedCascade:
    """m + log(sum exp(x - m)) per row."""
    cascade = _rows(
        "logsumexp",
        _tensors(dtype, "x"),
        (Reduction("m", "max", X, ROW), Reduction("l", "sum", np.exp(X - M), ROW)),
        (Out("o", ROW, M + np.log(L), dtype),),
    )
    return _single_pass(cascade, (MAX_X, SUM_EXP), corrections={"l": Old("l") * SHIFT})


def softmax(dtype: str = "float32") -> FusedCascade:
    """exp(x - m) / l: the output carries the stream axis."""
    base = logsumexp(dtype)
    outs = (Out("o", ("p", "n"), np.exp(X - M) / L, dtype),)
    cascade = _rows("softmax", base.cascade.tensors, base.cascade.reductions, outs)
    return _single_pass(cascade, base.accumulators, corrections=dict(base.corrections))


def shifted_exp(dtype: str = "float32") -> FusedCascade:
    """exp(x - max x) without a quotient, and the sum: an all -inf row is NaN in the first output only."""
    base = logsumexp(dtype)
    outs = (Out("e", ("p", "n"), np.exp(X - M), dtype), Out("o", ROW, L, dtype))
    cascade = _rows("shifted_exp", base.cascade.tensors, base.cascade.reductions, outs)
    return _single_pass(cascade, base.accumulators, corrections=dict(base.corrections))


def _mean() -> tuple[Accumulator, Accumulator, Let]:
    return Accumulator("S", "sum", X, ROW), COUNTER, Let("mu", ROW, Ref("S", ROW) / Ref(COUNT))


def variance(dtype: str = "float32") -> FusedCascade:
    """Population variance of each row, with the centred correction of Chan and Welford."""
    total, count, mu = _mean()
    definition_mean = Ref("S", ROW) / Size("n")
    centred = X - definition_mean
    cascade = _rows(
        "variance",
        _tensors(dtype, "x"),
        (Reduction("S", "sum", X, ROW), Reduction("M2", "sum", centred * centred, ROW)),
        (Out("o", ROW, Ref("M2", ROW) / Size("n"), dtype),),
    )
    body = (X - Ref("mu", ROW)) * (X - Ref("mu", ROW))
    moved = Old("mu") - New("mu")
    return _single_pass(
        cascade,
        (total, count, Accumulator("M2", "sum", body, ROW)),
        deps=(mu,),
        corrections={"M2": Old("M2") + Old(COUNT) * (moved * moved)},
    )


def pivoted_variance(dtype: str = "float32") -> FusedCascade:
    """Variance of data far from zero: everything is shifted by the first element of the row."""
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
    return _single_pass(
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
    cascade = _rows("layernorm", _tensors(dtype, "xgb"), base.cascade.reductions, outs)
    return _single_pass(
        cascade, base.accumulators, deps=base.dependencies, corrections=dict(base.corrections)
    )


def cosine(dtype: str = "float32") -> FusedCascade:
    """<x, y> / sqrt(<x, x> <y, y>): three accumulators of one level."""
    a, b, c = (Ref(r, ROW) for r in "abc")
    bodies = {"a": X * Y, "b": X * X, "c": Y * Y}
    cascade = _rows(
        "cosine",
        _tensors(dtype, "xy"),
        tuple(Reduction(r, "sum", e, ROW) for r, e in bodies.items()),
        (Out("o", ROW, a / np.sqrt(b * c), dtype),),
    )
    return _single_pass(cascade, tuple(Accumulator(r, "sum", e, ROW) for r, e in bodies.items()))


def entropy(dtype: str = "float32") -> FusedCascade:
    """log(l) - sum(exp(x - m) (x - m)) / l."""
    body = np.exp(X - M) * (X - M)
    base = logsumexp(dtype)
    cascade = _rows(
        "entropy",
        base.cascade.tensors,
        (*base.cascade.reductions, Reduction("h", "sum", body, ROW)),
        (Out("o", ROW, np.log(L) - Ref("h", ROW) / L, dtype),),
    )
    corrected = (Old("h") + Old("l") * (Old("m") - New("m"))) * SHIFT
    return _single_pass(
        cascade,
        (*base.accumulators, Accumulator("h", "sum", body, ROW)),
        corrections={"l": Old("l") * SHIFT, "h": corrected},
    )


def weighted_variance(dtype: str = "float32") -> FusedCascade:
    """Variance of y under the softmax weights of x: three levels, corrections in two dependencies."""
    weight, mean = np.exp(X - M), Ref("s1", ROW) / L
    base = logsumexp(dtype)
    cascade = _rows(
        "weighted_variance",
        _tensors(dtype, "xy"),
        (
            *base.cascade.reductions,
            Reduction("s1", "sum", weight * Y, ROW),
            Reduction("v", "sum", weight * ((Y - mean) * (Y - mean)), ROW),
        ),
        (Out("o", ROW, Ref("v", ROW) / L, dtype),),
    )
    mu = Ref("mu", ROW)
    moved = Old("mu") - New("mu")
    return _single_pass(
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
    cascade = _rows(
        "mean_absolute_deviation",
        _tensors(dtype, "x"),
        (Reduction("S", "sum", X, ROW), Reduction("D", "sum", abs(X - Ref("S", ROW) / Size("n")), ROW)),
        (Out("o", ROW, Ref("D", ROW) / Size("n"), dtype),),
    )
    deviation = Accumulator("D", "sum", abs(X - Ref("mu", ROW)), ROW)
    return FusedCascade(
        cascade,
        (total, count, deviation),
        (mu,),
        (),
        (("S", Ref("S", ROW)), ("D", Ref("D", ROW))),
        passes=(("S", COUNT), ("D",)),
    )


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
    cascade = _rows(
        "count_above_mean",
        _tensors(dtype, "x"),
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
    return FusedCascade(
        cascade,
        (*first, last),
        (mu,),
        (),
        tuple((r.name, Ref(r.name, ROW)) for r in cascade.reductions),
        passes=(tuple(a.name for a in first), ("c",)),
    )


# -------------------------------- accumulators with a vector axis


def rms_dot(dtype: str = "float32") -> FusedCascade:
    """(x / sqrt(mean x^2 + eps) * g) @ w: the row factor has left the sum, g stays inside."""
    row_d, w = ("p", "d"), Load("w", ("n", "d"))
    scaled = X * Load("g", ("n",)) * w
    root = np.sqrt(Ref("q", ROW) / Size("n") + 1e-6)
    tensors = (*_tensors(dtype, "xg"), Tensor("w", ("n", "d"), dtype))
    cascade = _rows(
        "rms_dot",
        tensors,
        (Reduction("q", "sum", X * X, ROW), Reduction("o", "sum", scaled / root, row_d)),
        (Out("y", row_d, Ref("o", row_d), dtype),),
        (Axis("d"),),
    )
    root_now = np.sqrt(Ref("q", ROW) / Ref(COUNT) + 1e-6)
    return _single_pass(
        cascade,
        (Accumulator("q", "sum", X * X, ROW), COUNTER, Accumulator("u", "sum", scaled, row_d)),
        epilogue={"o": Ref("u", row_d) / root_now},
    )


def matmul(dtype: str = "float32") -> FusedCascade:
    """x @ w: one accumulator, no dependency."""
    row_d = ("p", "d")
    body = X * Load("w", ("n", "d"))
    cascade = _rows(
        "matmul",
        (*_tensors(dtype, "x"), Tensor("w", ("n", "d"), dtype)),
        (Reduction("o", "sum", body, row_d),),
        (Out("y", row_d, Ref("o", row_d), dtype),),
        (Axis("d"),),
    )
    return _single_pass(cascade, (Accumulator("o", "sum", body, row_d),))


# -------------------------------- attention-shaped: a contraction feeds the stream


def attention(dtype: str = "float32", mask: str = "", scale: float = 0.3, lse: bool = False) -> FusedCascade:
    """softmax(scale q K^T + ...) V for heads h, queries i, keys n.

    mask: "" dense; "causal" n <= i; "window" also n > i - 3; "bool" an array keep[i, n]; "slopes"
    causal with the bias slope[h] * (n - i); "scalar" the scale is a run-time argument; "scores" dense, and
    the weights are an output as well. lse: m + log(l) is a second output.
    """
    q, keys, values = Load("q", ("h", "i", "k")), Load("kk", ("h", "n", "k")), Load("v", ("h", "n", "d"))
    tensors = [Tensor("q", q.axes, dtype), Tensor("kk", keys.axes, dtype), Tensor("v", values.axes, dtype)]  # type: ignore[arg-type]
    score: Expr = (Load("scale", ()) if mask == "scalar" else Const(scale)) * Reduce("sum", "k", q * keys)
    visible = Idx("n") <= Idx("i")
    if mask == "scalar":
        tensors.append(Tensor("scale", (), dtype))
    if mask == "slopes":
        tensors.append(Tensor("slope", ("h",), dtype))
        score = score + Load("slope", ("h",)) * (Idx("n") - Idx("i"))
    if mask == "bool":
        tensors.append(Tensor("keep", ("i", "n"), "bool"))
        visible = Load("keep", ("i", "n"))
    if mask == "window":
        visible = op("and", visible, Idx("n") > Idx("i") - 3)
    if mask in ("causal", "window", "bool", "slopes"):
        score = select(visible, score, NEG_INF)
    row, row_d = ("h", "i"), ("h", "i", "d")
    s, m, mass = Ref("s", ("h", "i", "n")), Ref("m", row), Ref("l", row)
    weight = np.exp(s - m)
    outs = [Out("out", row_d, Ref("o", row_d), dtype)]
    if lse:
        outs.append(Out("lse", row, m + np.log(mass), dtype))
    if mask == "scores":
        outs.append(Out("w", ("h", "i", "n"), weight / mass, dtype))
    cascade = Cascade(
        "attention",
        "n",
        tuple(map(Axis, "hinkd")),
        tuple(tensors),
        (Let("s", ("h", "i", "n"), score),),
        (
            Reduction("m", "max", s, row),
            Reduction("l", "sum", weight, row),
            Reduction("o", "sum", weight / mass * values, row_d),
        ),
        tuple(outs),
    )
    return _single_pass(
        cascade,
        (
            Accumulator("m", "max", s, row),
            Accumulator("l", "sum", weight, row),
            Accumulator("u", "sum", weight * values, row_d),
        ),
        corrections={"l": Old("l") * SHIFT, "u": Old("u") * SHIFT},
        epilogue={"o": Ref("u", row_d) / mass},
    )


def decode(dtype: str = "float32") -> FusedCascade:
    """One query per head: no axis is left to be the rows of a tile."""
    base = attention(dtype)
    drop = {
        ("h", "i", "k"): ("h", "k"),
        ("h", "i"): ("h",),
        ("h", "i", "d"): ("h", "d"),
        ("h", "i", "n"): ("h", "n"),
    }

    def one(e: Expr) -> Expr:
        from redfuser.ir import rewrite

        def leaf(x: Expr) -> Expr | None:
            if isinstance(x, Load) and x.axes in drop:
                return Load(x.tensor, drop[x.axes])  # type: ignore[index]
            if isinstance(x, Ref) and x.axes in drop:
                return Ref(x.name, drop[x.axes])
            return None

        return rewrite(e, leaf)

    c = base.cascade
    cascade = Cascade(
        "decode",
        "n",
        tuple(map(Axis, "hnkd")),
        tuple(Tensor(t.name, drop.get(t.axes, t.axes), t.dtype) for t in c.tensors),
        tuple(Let(p.name, drop[p.axes], one(p.expr)) for p in c.producers),
        tuple(Reduction(r.name, r.monoid, one(r.body), drop[r.axes]) for r in c.reductions),
        tuple(Out(o.name, drop[o.axes], one(o.expr), o.dtype) for o in c.outs),
    )
    return FusedCascade(
        cascade,
        tuple(Accumulator(a.name, a.monoid, one(a.body), drop[a.axes]) for a in base.accumulators),
        (),
        base.corrections,
        tuple((name, one(e)) for name, e in base.epilogue),
        passes=base.passes,
    )


# -------------------------------- no reduction at all


def elementwise(dtype: str = "float32") -> FusedCascade:
    """tanh(x) * g + b and a transposed copy: an elementwise piece."""
    outs = (
        Out("o", ("p", "n"), np.tanh(X) * Load("g", ("n",)) + Load("b", ("n",)), dtype),
        Out("t", ("n", "p"), X, dtype),
    )
    cascade = Cascade("elementwise", None, (Axis("p"), Axis("n")), _tensors(dtype, "xgb"), (), (), outs)
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
