"""Fused cascades whose accumulators have several parts, written by hand: lists of the best elements, users' monoids.

Axis names as in `fused_examples`: p rows, n the stream, k the places of a list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from fused_examples import attention
from fused_parts import MAX_X, ROW, SHIFT, SUM_EXP, L, M, X, Y, by_hand, inputs, over_rows

from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.ir import (
    RANK,
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
    Part,
    PartsMonoid,
    Reduce,
    Reduction,
    Ref,
    Tensor,
    Tuple,
    Var,
    op,
    select,
)
from redfuser.ir.monoids import left, register, right


def of(name: str, part: str, place: str | int | None = None) -> Part:
    """A part of a state or a result over the rows."""
    return Part(part, () if place is None else (place,), Ref(name, ROW))


def _cascade(name: str, dtype: str, reductions, outs, k: int = 0) -> Cascade:
    return over_rows(name, inputs(dtype, "xy"), reductions, outs, (Axis("k", k),) if k else ())


def peak(dtype: str = "float32", monoid: str = "argmax") -> FusedCascade:
    """The best element and where it is."""
    r = Reduction("a", monoid, X, ROW)
    outs = (Out("v", ROW, of("a", "value"), dtype), Out("i", ROW, of("a", "index"), "int64"))
    return by_hand(_cascade(monoid, dtype, (r,), outs), (Accumulator("a", monoid, X, ROW),))


def best(dtype: str = "float32", monoid: str = "topk:3", body: Expr = X) -> FusedCascade:
    """The k best elements with their places, the axis of the list first in one output."""
    k = int(monoid.partition(":")[2])
    r = Reduction("t", monoid, body, ROW)
    outs = (Out("v", ("p", "k"), of("t", "value", "k"), dtype), Out("i", ("k", "p"), of("t", "index", "k"), "int64"))
    return by_hand(_cascade("best", dtype, (r,), outs, k), (Accumulator("t", monoid, body, ROW),))


def routing(dtype: str = "float32", k: int = 4) -> FusedCascade:
    """Softmax, its k largest and the share of the first two: values corrected after the loop."""
    m, e = Reduction("m", "max", X, ROW), Reduction("l", "sum", np.exp(X - M), ROW)
    t = Reduction("t", f"topk:{k}", np.exp(X - M) / L, ROW)
    share = of("t", "value", 0) / (of("t", "value", 0) + of("t", "value", 1))
    outs = (
        Out("w", ("p", "k"), of("t", "value", "k"), dtype),
        Out("i", ("p", "k"), of("t", "index", "k"), "int64"),
        Out("share", ROW, share, dtype),
        Out("p", ("p", "n"), np.exp(X - M) / L, dtype),
    )
    value = np.exp(of("t", "value", RANK) - M) / L
    epilogue = {"t": Tuple((value, of("t", "index", RANK)))}
    accumulators = (MAX_X, SUM_EXP, Accumulator("t", f"topk:{k}", X, ROW))
    c = _cascade("routing", dtype, (m, e, t), outs, k)
    return by_hand(c, accumulators, corrections={"l": Old("l") * SHIFT}, epilogue=epilogue)


def centred(dtype: str = "float32", k: int = 3) -> FusedCascade:
    """The k smallest distances below the maximum: the list itself moves with the maximum."""
    body = M - X
    m, t = Reduction("m", "max", X, ROW), Reduction("t", f"bottomk:{k}", body, ROW)
    outs = (Out("v", ("p", "k"), of("t", "value", "k"), dtype), Out("i", ("p", "k"), of("t", "index", "k"), "int64"))
    value = Part("value", (RANK,), Old("t")) + (New("m") - Old("m"))
    moved = Tuple((value, Part("index", (RANK,), Old("t"))))
    return by_hand(_cascade("centred", dtype, (m, t), outs, k), (MAX_X, Accumulator("t", f"bottomk:{k}", body, ROW)),
                   corrections={"t": moved})


def peaked(dtype: str = "float32") -> FusedCascade:
    """A sum that hangs on the value at the argmax, and one on the second best: dependencies that read parts."""
    a, t = Reduction("a", "argmax", X, ROW), Reduction("t", "topk:2", Y, ROW)
    top, second = of("a", "value"), of("t", "value", 1)
    s, q = Reduction("s", "sum", np.exp(X - top), ROW), Reduction("q", "sum", X * np.exp(Y - second), ROW)
    index = Out("i", ROW, of("a", "index"), "int64")
    outs = (Out("s_", ROW, Ref("s", ROW), dtype), index, Out("q_", ROW, Ref("q", ROW), dtype))
    accumulators = (
        Accumulator("a", "argmax", X, ROW),
        Accumulator("t", "topk:2", Y, ROW),
        Accumulator("s", "sum", np.exp(X - Ref("d", ROW)), ROW),
        Accumulator("q", "sum", X * np.exp(Y - Ref("e", ROW)), ROW),
    )
    dependencies = (Let("d", ROW, top), Let("e", ROW, second))
    corrections = {
        "s": select(op("eq", Old("s"), 0), 0, Old("s") * np.exp(Old("d") - New("d"))),
        "q": select(op("eq", Old("q"), 0), 0, Old("q") * np.exp(Old("e") - New("e"))),
    }
    return by_hand(_cascade("peaked", dtype, (a, t, s, q), outs), accumulators, deps=dependencies,
                   corrections=corrections)


def above_second(dtype: str = "float32") -> FusedCascade:
    """Two passes: how many elements reach the second best."""
    t = Reduction("t", "topk:2", X, ROW)
    reached = select(op("ge", X, of("t", "value", 1)), 1.0, 0.0)
    outs = (Out("c_", ROW, Ref("c", ROW), dtype), Out("i", ("p", "k"), of("t", "index", "k"), "int64"))
    c = _cascade("above_second", dtype, (t, Reduction("c", "sum", reached, ROW)), outs, 2)
    accumulators = (Accumulator("t", "topk:2", X, ROW), Accumulator("c", "sum", reached, ROW))
    return by_hand(c, accumulators, passes=(("t",), ("c",)))


def _both(parts: tuple[str, ...]) -> tuple[list[Expr], list[Expr]]:
    return [Var(left(p)) for p in parts], [Var(right(p)) for p in parts]


def _affine() -> PartsMonoid:
    """Composition of t -> m t + c: not commutative."""
    parts = ("m", "c")
    (m, c), (p, q) = _both(parts)
    found = PartsMonoid("affine#tests", parts, ("key", "key"), (1.0, 0.0), (m * p, p * c + q), ordered=True)
    register(found)
    return found


def _spread() -> PartsMonoid:
    """Count, mean and squared deviations of both sides together."""
    parts = ("n", "mean", "m2")
    (n, mean, m2), (k, other, q) = _both(parts)
    total = np.maximum(n + k, 1.0)
    gap = other - mean
    law = (n + k, mean + gap * (k / total), m2 + q + gap * gap * (n * k / total))
    found = PartsMonoid("spread#tests", parts, ("key",) * 3, (0.0, 0.0, 0.0), law)
    register(found)
    return found


AFFINE, SPREAD = _affine(), _spread()


def composed(dtype: str = "float32") -> FusedCascade:
    """A recurrence, as the composition of its steps in order."""
    body = Tuple((X * 0.25, Y))
    r = Reduction("u", AFFINE.name, body, ROW)
    outs = (Out("last", ROW, of("u", "m") * 0.5 + of("u", "c"), dtype), Out("gain", ROW, of("u", "m"), dtype))
    return by_hand(_cascade("composed", dtype, (r,), outs), (Accumulator("u", AFFINE.name, body, ROW),))


def spread(dtype: str = "float32") -> FusedCascade:
    """Variance of y minus a running maximum, by a monoid that is corrected part by part."""
    body = Tuple((Const(1.0), Y - M, Const(0.0)))
    r = Reduction("u", SPREAD.name, body, ROW)
    outs = (Out("mean", ROW, of("u", "mean"), dtype), Out("var", ROW, of("u", "m2") / of("u", "n"), dtype))
    old = {p: Part(p, (), Old("u")) for p in SPREAD.parts}
    moved = Tuple((old["n"], old["mean"] + select(op("gt", old["n"], 0), Old("m") - New("m"), 0.0), old["m2"]))
    c = _cascade("spread", dtype, (Reduction("m", "max", X, ROW), r), outs)
    return by_hand(c, (MAX_X, Accumulator("u", SPREAD.name, body, ROW)), corrections={"u": moved})


def distances(dtype: str = "float32") -> FusedCascade:
    """The five nearest."""
    return best(dtype, "bottomk:5", (X - Y) * (X - Y))


def top_positions(dtype: str = "float32") -> FusedCascade:
    """The best of elements that depend on their position."""
    return best(dtype, "topk:2", select(op("lt", Idx("n"), 3), X, Y))


def lowest(dtype: str = "float32") -> FusedCascade:
    """The smallest element and where it is."""
    return peak(dtype, "argmin")


def gating(dtype: str = "float32", k: int = 3) -> FusedCascade:
    """Scores x . w, their softmax, and its k largest: a matrix product feeds the list."""
    score = Reduce("sum", "d", Load("x", ("i", "d")) * Load("w", ("n", "d")))
    at = ("i",)
    m, total = Ref("m", at), Ref("l", at)
    reductions = (
        Reduction("m", "max", score, at),
        Reduction("l", "sum", np.exp(score - m), at),
        Reduction("t", f"topk:{k}", np.exp(score - m) / total, at),
    )
    value, index = (Part(p, ("k",), Ref("t", at)) for p in ("value", "index"))
    lse = Out("s", at, np.log(total) + m, dtype)
    outs = (Out("v", ("i", "k"), value, dtype), Out("e", ("i", "k"), index, "int64"), lse)
    axes = (Axis("i"), Axis("n"), Axis("d"), Axis("k", k))
    tensors = (Tensor("x", ("i", "d"), dtype), Tensor("w", ("n", "d"), dtype))
    c = Cascade("gating", "n", axes, tensors, (), reductions, outs)
    listed = Part("value", (RANK,), Ref("t", at))
    epilogue = {"t": Tuple((np.exp(listed - m) / total, Part("index", (RANK,), Ref("t", at))))}
    accumulators = (
        Accumulator("m", "max", score, at),
        Accumulator("l", "sum", np.exp(score - m), at),
        Accumulator("t", f"topk:{k}", score, at),
    )
    return by_hand(c, accumulators, corrections={"l": Old("l") * SHIFT}, epilogue=epilogue)


def attention_peak(dtype: str = "float32") -> FusedCascade:
    """Attention, with the key that each query attends to most."""
    fused = attention(dtype)
    c = fused.cascade
    at, score = fused.accumulators[0].axes, fused.accumulators[0].body
    outs = (*c.outs, Out("where", at, Part("index", (), Ref("a", at)), "int64"))
    c = replace(c, reductions=(*c.reductions, Reduction("a", "argmax", score, at)), outs=outs)
    return replace(
        fused,
        cascade=c,
        accumulators=(*fused.accumulators, Accumulator("a", "argmax", score, at)),
        epilogue=(*fused.epilogue, ("a", Ref("a", at))),
        passes=((*fused.passes[0], "a"),),
    )


ORDER_EXAMPLES: dict[str, Callable[[str], FusedCascade]] = {
    f.__name__: f
    for f in (peak, lowest, best, distances, top_positions, routing, centred, peaked, above_second, composed, spread)
}
SHORTEST = {"peaked": 2, "above_second": 2, "routing": 4}
"""Fewer elements leave places of a list empty that these read."""
TILE_EXAMPLES: dict[str, Callable[[str], FusedCascade]] = {f.__name__: f for f in (gating, attention_peak)}
