"""Random cascades from a small typed grammar: chains of reductions as people write them.

A move adds one reduction. Each move needs facts of a certain type (a shift and its maximum, a location and the data it
belongs to, a mass and its weights), so later stages depend on earlier ones in ways that are often fusible. A few moves
are not fusible on purpose. Choices come from a `Chooser`: the standard generator of a seed, or hypothesis.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np

from redfuser.ir import (
    NEG_INF,
    Axis,
    Cascade,
    Const,
    Expr,
    Let,
    Load,
    Out,
    Reduce,
    Reduction,
    Ref,
    Size,
    Tensor,
    check_cascade,
    free_axes,
    op,
    select,
    walk,
)

T = TypeVar("T")

AXES: dict[str, tuple[str, ...]] = {
    "x": ("p", "n"), "y": ("p", "n"), "w": ("n",), "v": ("n", "d"), "q": ("p", "k"), "K": ("n", "k"),
}
"""The inputs of the grammar: rows p, the stream n, vectors d, inner axis k."""

STREAM = "n"
X, Y, W, V = (Load(t, AXES[t]) for t in "xywv")
LENGTH = Size(STREAM)
SCORES = Let("s", ("p", "n"), Const(0.25) * Reduce("sum", "k", Load("q", AXES["q"]) * Load("K", AXES["K"])))
MASKED = Let("t", ("p", "n"), select(op("gt", Y, Const(-0.5)), X, NEG_INF))
UNFUSIBLE = 8
"""One move in this many is one that has no incremental form."""


class Chooser(Protocol):
    """Where the choices come from."""

    def choice(self, options: Sequence[T], /) -> T:
        """One of the options."""
        ...


@dataclass
class _Draft:
    """A cascade under construction, and what is known of its results."""

    choose: Chooser
    dtype: str
    reductions: list[Reduction] = field(default_factory=list)
    shifts: list[tuple[Expr, Ref]] = field(default_factory=list)  # data, its maximum (or minimum)
    masses: list[tuple[Expr, Ref]] = field(default_factory=list)  # weights, their sum
    locations: list[tuple[Expr, Expr]] = field(default_factory=list)  # data, a mean of it
    scales: list[Expr] = field(default_factory=list)  # positive numbers that data is divided by

    def reduce(self, monoid: str, body: Expr) -> Ref:
        """Add a stage."""
        axes = tuple(a for a in ("p", "d") if a in free_axes(body))
        name = f"r{len(self.reductions)}"
        self.reductions.append(Reduction(name, monoid, body, axes))
        return Ref(name, axes)

    def data(self) -> Expr:
        """An expression over the inputs that varies along the stream and the rows."""
        return self.choose.choice((X, X, Y, X * W, X + Y, X * Const(0.5), Ref("s", ("p", "n"))))

    def weighted(self, weight: Expr) -> Expr:
        """A term of a weighted sum."""
        return weight * self.choose.choice((X, Y, W, V, Y * Y, X - Y))


def _maximum(s: _Draft) -> None:
    data = s.choose.choice((s.data(), Ref("t", ("p", "n"))))
    s.shifts.append((data, s.reduce("max", data)))


def _mean(s: _Draft) -> None:
    data = s.data()
    s.locations.append((data, s.reduce("sum", data) / LENGTH))


def _norm(s: _Draft) -> None:
    data = s.data()
    s.scales.append(np.sqrt(s.reduce("sum", data * data) / LENGTH + Const(0.01)))


def _largest(s: _Draft) -> None:
    s.scales.append(s.reduce("max", abs(s.data())) + Const(0.5))


def _extent(s: _Draft) -> None:
    s.reduce(s.choose.choice(("min", "max")), s.data())


def _mass(s: _Draft) -> None:
    data, top = s.choose.choice(s.shifts)
    weight = np.exp(data - top)
    s.masses.append((weight, s.reduce("sum", weight)))


def _surprise(s: _Draft) -> None:
    data, top = s.choose.choice([(d, m) for d, m in s.shifts if d != Ref("t", ("p", "n"))] or [(X, Const(0.0))])
    s.reduce("sum", np.exp(data - top) * (data - top))


def _average(s: _Draft) -> None:
    weight, mass = s.choose.choice(s.masses)
    s.reduce("sum", s.weighted(weight / mass))


def _centre(s: _Draft) -> None:
    weight, mass = s.choose.choice(s.masses)
    data = s.choose.choice((X, Y))
    if s.choose.choice(range(2)):
        s.locations.append((data, s.reduce("sum", weight / mass * data)))
    else:
        s.locations.append((data, s.reduce("sum", weight * data) / mass))


def _spread(s: _Draft) -> None:
    (a, mean_a), (b, mean_b) = s.choose.choice(s.locations), s.choose.choice(s.locations)
    s.reduce("sum", (a - mean_a) * (b - mean_b))


def _weighted_spread(s: _Draft) -> None:
    weight, mass = s.choose.choice(s.masses)
    data, mean = s.choose.choice(s.locations)
    s.reduce("sum", weight / mass * ((data - mean) * (data - mean)))


def _centred_dot(s: _Draft) -> None:
    data, mean = s.choose.choice(s.locations)
    s.reduce("sum", (data - mean) * s.choose.choice((Y, W, V)))


def _farthest(s: _Draft) -> None:
    data, mean = s.choose.choice(s.locations)
    s.reduce("max", abs(data - mean))


def _scaled_dot(s: _Draft) -> None:
    s.reduce("sum", s.data() / s.choose.choice(s.scales) * s.choose.choice((W, V, Y)))


def _deviation(s: _Draft) -> None:
    data, mean = s.choose.choice(s.locations)
    s.reduce("sum", abs(data - mean))


def _squashed(s: _Draft) -> None:
    data, mean = s.choose.choice(s.locations)
    s.reduce("sum", np.tanh(data - mean))


Move = Callable[[_Draft], None]


def _dependent_moves(s: _Draft) -> list[Move]:
    """The moves whose facts exist; those that lengthen a chain count more often, until it is that long."""
    if s.shifts and not s.masses:
        return [_mass, _mass, _mass, _surprise]
    moves: list[Move] = [_average, _average, _centre, _centre, _centre, _mass] if s.masses else []
    moves += [_spread, _centred_dot, _farthest] if s.locations else []
    moves += [_weighted_spread] * 4 if s.masses and s.locations else []
    return moves + ([_scaled_dot] if s.scales else [])


def _next_move(s: _Draft) -> Move:
    """Three of four moves depend on earlier results; one in `UNFUSIBLE` of those that could is not fusible."""
    if s.locations and s.choose.choice(range(UNFUSIBLE)) == UNFUSIBLE - 1:
        return s.choose.choice((_deviation, _squashed))
    if s.choose.choice(range(4)) < 3:
        return s.choose.choice(_dependent_moves(s))
    return s.choose.choice((_maximum, _mean, _norm, _largest, _extent))


def draw_cascade(choose: Chooser, stages: int = 4, name: str = "random") -> Cascade:
    """A cascade of 3 to `stages` + 1 reductions over the axis n, every result and sometimes a weight among its outs."""
    s = _Draft(choose, choose.choice(("float64", "float32")))
    choose.choice((_maximum, _maximum, _maximum, _mean, _norm, _largest))(s)
    for _ in range(choose.choice(range(2, stages + 1))):
        _next_move(s)(s)
    return _finish(s, name)


def _finish(s: _Draft, name: str) -> Cascade:
    """The cascade with the tensors, axes and producers it uses."""
    outs = [Out(f"out_{r.name}", r.axes, Ref(r.name, r.axes), s.dtype) for r in s.reductions]
    if s.choose.choice(range(2)) and s.masses:
        weight, mass = s.choose.choice(s.masses)
        outs.append(Out("out_w", ("p", "n"), weight / mass, s.dtype))
    exprs = [*(r.body for r in s.reductions), *(o.expr for o in outs)]
    read = {x.name for e in exprs for x in walk(e) if isinstance(x, Ref)}
    producers = tuple(p for p in (SCORES, MASKED) if p.name in read)
    loads = {x.tensor for e in (*exprs, *(p.expr for p in producers)) for x in walk(e) if isinstance(x, Load)}
    tensors = tuple(Tensor(t, axes, s.dtype) for t, axes in AXES.items() if t in loads)
    used = {a for t in tensors for a in t.axes} | {STREAM}
    built = Cascade(name, STREAM, tuple(Axis(a) for a in "pnkd" if a in used), tensors, producers,
                    tuple(s.reductions), tuple(outs))
    check_cascade(built)
    return built


def random_cascade(seed: int, stages: int = 4) -> Cascade:
    """The cascade of a seed."""
    return draw_cascade(random.Random(f"cascade {seed}"), stages, f"random{seed}")
