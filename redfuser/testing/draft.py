"""A random cascade under construction: the inputs it reads, and what is known of its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from redfuser.ir import NEG_INF, Const, Expr, Idx, Let, Load, Reduce, Reduction, Ref, Size, free_axes, op, select

T = TypeVar("T")

AXES: dict[str, tuple[str, ...]] = {
    "x": ("p", "n"), "y": ("p", "n"), "w": ("n",), "v": ("n", "d"), "q": ("p", "k"), "K": ("n", "k"),
}
"""The inputs of the grammar: rows p, the stream n, vectors d, inner axis k."""

STREAM = "n"
ROWS = ("p", "n")
X, Y, W, V = (Load(t, AXES[t]) for t in "xywv")
LENGTH = Size(STREAM)
KEPT = op("gt", Y, Const(-0.5))
"""The mask of `where=`."""

WEIGHT = abs(W) + Const(0.25)
"""A positive weight of every element."""

SCORES = Let("s", ROWS, Const(0.25) * Reduce("sum", "k", Load("q", AXES["q"]) * Load("K", AXES["K"])))
BIASED = Let("u", ROWS, Ref("s", ROWS) - Const(0.125) * Idx(STREAM) + X)
MASKED = Let("t", ROWS, select(KEPT, X, NEG_INF))
CAUSAL = Let("c", ROWS, select(op("le", Idx(STREAM), Idx("p") * Const(3) + Const(2)), X, NEG_INF))
PRODUCERS = (SCORES, BIASED, MASKED, CAUSAL)
"""Scores of a product, with a bias by position on top; data under a mask, and under a mask of positions."""

BROKEN = (Ref("t", ROWS), Ref("c", ROWS))
"""Data that may be -inf: only its exponential is summed."""


class Chooser(Protocol):
    """Where the choices come from."""

    def choice(self, options: Sequence[T], /) -> T:
        """One of the options."""
        ...


@dataclass
class Draft:
    """A cascade under construction, and what is known of its results.

    shifts     data and its maximum or minimum
    masses     positive weights and their sum
    locations  data and a mean of it
    scales     positive numbers that data is divided by
    """

    choose: Chooser
    dtype: str
    reductions: list[Reduction] = field(default_factory=list)
    shifts: list[tuple[Expr, Ref]] = field(default_factory=list)
    masses: list[tuple[Expr, Ref]] = field(default_factory=list)
    locations: list[tuple[Expr, Expr]] = field(default_factory=list)
    scales: list[Expr] = field(default_factory=list)

    def reduce(self, monoid: str, body: Expr) -> Ref:
        """Add a stage."""
        axes = tuple(a for a in ("p", "d") if a in free_axes(body))
        name = f"r{len(self.reductions)}"
        self.reductions.append(Reduction(name, monoid, body, axes))
        return Ref(name, axes)

    def pick(self, *options: Any) -> Any:
        """One of the options."""
        return self.choose.choice(options)

    def data(self) -> Expr:
        """An expression over the inputs that varies along the stream and the rows."""
        return self.choose.choice((X, X, Y, X * W, X + Y, X * Const(0.5), Ref("s", ROWS), Ref("u", ROWS)))

    def weighted(self, weight: Expr) -> Expr:
        """A term of a weighted sum."""
        factor: Expr = self.choose.choice((X, Y, W, V, Y * Y, X - Y, Idx(STREAM) * X))
        return weight * factor

    def clean_shifts(self) -> list[tuple[Expr, Ref]]:
        """Shifts of data that is never infinite."""
        return [(data, top) for data, top in self.shifts if data not in BROKEN]

    def exponential(self) -> Expr:
        """e^(data - its maximum)."""
        data, top = self.choose.choice(self.shifts)
        weight: Expr = np.exp(data - top)
        return weight
