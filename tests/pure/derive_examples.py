"""Cascades as definitions, shared by the tests of the derivation.

Axis names: p rows, n the stream, d vectors, k inner.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from redfuser.derivation import Derivation, derive_cascade
from redfuser.ir import (
    NEG_INF,
    Axis,
    Cascade,
    Const,
    Expr,
    Idx,
    Let,
    Load,
    Out,
    Reduce,
    Reduction,
    Ref,
    Size,
    Tensor,
    select,
)

ROW = ("p",)
SHAPES: Mapping[str, tuple[str, ...]] = {
    "x": ("p", "n"), "y": ("p", "n"), "w": ("n",), "v": ("n", "d"), "q": ("p", "k"), "K": ("n", "k"), "eps": (),
}
SIZES = {"p": 3, "n": 23, "d": 2, "k": 4}
X, Y, W, V = (Load(t, SHAPES[t]) for t in "xywv")
N = Size("n")


def row(name: str) -> Ref:
    """A result with one value per row."""
    return Ref(name, ROW)


def reduction(name: str, monoid: str, body: Expr, axes: tuple[str, ...] = ROW) -> Reduction:
    """A stage with one value per row unless told otherwise."""
    return Reduction(name, monoid, body, axes)


def cascade(name: str, reductions: list[Reduction], tensors: str, outs: tuple[Out, ...] = (),
            producers: tuple[Let, ...] = (), axes: str = "pn") -> Cascade:
    """A cascade over n."""
    inputs = tuple(Tensor(t, SHAPES[t]) for t in tensors.split())
    return Cascade(name, "n", tuple(map(Axis, axes)), inputs, producers, tuple(reductions), outs)


MEAN = row("S") / N
WEIGHT = np.exp(X - row("m"))
TOP, MASS = reduction("m", "max", X), reduction("l", "sum", WEIGHT)
TOTAL = reduction("S", "sum", X)
SPREAD = reduction("M2", "sum", (X - MEAN) * (X - MEAN))
NORMAL = (X - MEAN) / np.sqrt(row("M2") / N + 1e-5)
SCORE = Let("s", ("p", "n"), select(
    Idx("n") <= Idx("p"), Const(0.125) * Reduce("sum", "k", Load("q", ("p", "k")) * Load("K", ("n", "k"))), NEG_INF))
S = Ref("s", ("p", "n"))
CENTRE = row("s1") / row("l")

EXAMPLES: dict[str, Cascade] = {
    c.name: c for c in (
        cascade("softmax", [TOP, MASS], "x", (Out("o", ("p", "n"), WEIGHT / row("l")),)),
        cascade("logsumexp", [TOP, MASS], "x", (Out("o", ROW, row("m") + np.log(row("l"))),)),
        cascade("attention", [reduction("m", "max", S), reduction("l", "sum", np.exp(S - row("m"))),
                              reduction("o", "sum", np.exp(S - row("m")) / row("l") * V, ("p", "d"))],
                "q K v", (Out("out", ("p", "d"), Ref("o", ("p", "d"))),), (SCORE,), "pnkd"),
        cascade("variance", [TOTAL, SPREAD], "x", (Out("o", ROW, row("M2") / N),)),
        cascade("layernorm", [TOTAL, SPREAD], "x w", (Out("o", ("p", "n"), NORMAL * W),)),
        cascade("layernorm_dot", [TOTAL, SPREAD, reduction("o", "sum", NORMAL * W)], "x w"),
        cascade("rms_dot", [reduction("A", "sum", X * X), reduction(
            "o", "sum", X / np.sqrt(row("A") / N + Load("eps")) * V, ("p", "d"))], "x v eps", axes="pnd"),
        cascade("entropy", [TOP, MASS, reduction(
            "h", "sum", WEIGHT / row("l") * np.log(WEIGHT / row("l")))], "x"),
        cascade("cross_entropy", [TOP, MASS, reduction("h", "sum", Y * np.log(WEIGHT / row("l")))], "x y"),
        cascade("weighted_variance", [TOP, MASS, reduction("s1", "sum", WEIGHT * Y), reduction(
            "v", "sum", WEIGHT * ((Y - CENTRE) * (Y - CENTRE)))], "x y"),
        cascade("third_moment", [TOTAL, reduction("M3", "sum", (X - MEAN) ** 3)], "x"),
        cascade("pearson", [TOTAL, reduction("T", "sum", Y), SPREAD, reduction(
            "C", "sum", (X - MEAN) * (Y - row("T") / N))], "x y"),
        cascade("largest_deviation", [TOTAL, reduction("D", "max", abs(X - MEAN))], "x"),
        cascade("phase", [TOTAL, reduction("D", "sum", np.sin(X - MEAN))], "x"),
        cascade("distance_to_max", [reduction("a", "max", X), reduction("D", "sum", abs(X - row("a")))], "x"),
        cascade("masked_mass", [reduction("m", "max", select(Y > 0, X, NEG_INF)), reduction(
            "l", "sum", select(Y > 0, WEIGHT, 0))], "x y"),
        cascade("mean_absolute_deviation", [TOTAL, reduction("D", "sum", abs(X - MEAN))], "x",
                (Out("o", ROW, row("D") / N),)),
        cascade("sum_tanh", [TOTAL, reduction("D", "sum", np.tanh(X - MEAN))], "x"),
        cascade("norm_softmax", [TOTAL, SPREAD, reduction("m", "max", NORMAL), reduction(
            "l", "sum", np.exp(NORMAL - row("m")))], "x",
                (Out("o", ("p", "n"), np.exp(NORMAL - row("m")) / row("l")),)),
    )
}
@cache
def derived(name: str, shifted: bool = True) -> Derivation:
    """The derivation of an example, made once."""
    return derive_cascade(EXAMPLES[name], pivot=shifted)


TWO_PASSES = ("mean_absolute_deviation", "sum_tanh", "norm_softmax")


def arrays_for(c: Cascade, rng: np.random.Generator, length: int = 23, scale: float = 1.0, shift: float = 0.0,
               dtype: Any = np.float64) -> dict[str, Any]:
    """Random inputs; `scale` and `shift` apply to x."""
    sizes = SIZES | {"n": length}
    arrays = {t.name: rng.normal(size=[sizes[a] for a in t.axes]).astype(dtype) for t in c.tensors}
    if "x" in arrays:
        arrays["x"] = (arrays["x"] * scale + shift).astype(dtype)
    if "eps" in arrays:
        arrays["eps"] = np.asarray(1e-3, dtype)
    return arrays
