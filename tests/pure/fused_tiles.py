"""Cascades fused by hand with a contraction or a vector axis: normalised products, attention and its masks."""

from __future__ import annotations

import numpy as np
from fused_parts import COUNTER, ROW, SHIFT, X, by_hand, inputs, over_rows

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

# -------------------------------- accumulators with a vector axis


def rms_dot(dtype: str = "float32") -> FusedCascade:
    """(x / sqrt(mean x^2 + eps) * g) @ w: the row factor has left the sum, g stays inside."""
    row_d, w = ("p", "d"), Load("w", ("n", "d"))
    scaled = X * Load("g", ("n",)) * w
    root = np.sqrt(Ref("q", ROW) / Size("n") + 1e-6)
    tensors = (*inputs(dtype, "xg"), Tensor("w", ("n", "d"), dtype))
    cascade = over_rows(
        "rms_dot",
        tensors,
        (Reduction("q", "sum", X * X, ROW), Reduction("o", "sum", scaled / root, row_d)),
        (Out("y", row_d, Ref("o", row_d), dtype),),
        (Axis("d"),),
    )
    root_now = np.sqrt(Ref("q", ROW) / Ref(COUNT) + 1e-6)
    return by_hand(
        cascade,
        (Accumulator("q", "sum", X * X, ROW), COUNTER, Accumulator("u", "sum", scaled, row_d)),
        epilogue={"o": Ref("u", row_d) / root_now},
    )


def matmul(dtype: str = "float32") -> FusedCascade:
    """x @ w: one accumulator, no dependency."""
    row_d = ("p", "d")
    body = X * Load("w", ("n", "d"))
    cascade = over_rows(
        "matmul",
        (*inputs(dtype, "x"), Tensor("w", ("n", "d"), dtype)),
        (Reduction("o", "sum", body, row_d),),
        (Out("y", row_d, Ref("o", row_d), dtype),),
        (Axis("d"),),
    )
    return by_hand(cascade, (Accumulator("o", "sum", body, row_d),))


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
    return by_hand(
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
