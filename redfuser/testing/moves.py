"""The moves of the grammar: each adds one reduction, from facts of the type it needs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from redfuser.ir import Const, Idx, op, select
from redfuser.testing.draft import BROKEN, KEPT, LENGTH, STREAM, WEIGHT, Draft, V, W, X, Y

UNFUSIBLE = 8
"""One move in this many is one that has no incremental form."""

Move = Callable[[Draft], None]


# ---- moves that need nothing

def maximum(s: Draft) -> None:
    data = s.pick(s.data(), *BROKEN)
    s.shifts.append((data, s.reduce("max", data)))


def mean(s: Draft) -> None:
    data = s.data()
    s.locations.append((data, s.reduce("sum", data) / LENGTH))


def masked_mean(s: Draft) -> None:
    count = s.reduce("sum", select(KEPT, Const(1.0), Const(0.0)))
    s.locations.append((X, s.reduce("sum", select(KEPT, X, Const(0.0))) / (count + Const(0.5))))


def total_weight(s: Draft) -> None:
    s.masses.append((WEIGHT, s.reduce("sum", WEIGHT)))


def norm(s: Draft) -> None:
    data = s.data()
    s.scales.append(np.sqrt(s.reduce("sum", data * data) / LENGTH + Const(0.01)))


def largest(s: Draft) -> None:
    s.scales.append(s.reduce("max", abs(s.data())) + Const(0.5))


def extent(s: Draft) -> None:
    s.reduce(s.pick("min", "max"), s.data())


def positions(s: Draft) -> None:
    s.locations.append((X, s.reduce("sum", Idx(STREAM) * X) / (LENGTH * LENGTH)))


def truth(s: Draft) -> None:
    s.reduce(s.pick("any", "all"), op(s.pick("gt", "le"), X, Y))


# ---- moves that read earlier results

def mass(s: Draft) -> None:
    weight = s.exponential()
    s.masses.append((weight, s.reduce("sum", weight)))


def surprise(s: Draft) -> None:
    data, top = s.choose.choice(s.clean_shifts() or [(X, Const(0.0))])
    s.reduce("sum", np.exp(data - top) * (data - top))


def average(s: Draft) -> None:
    weight, total = s.choose.choice(s.masses)
    s.reduce("sum", s.weighted(weight / total))


def centre(s: Draft) -> None:
    weight, total = s.choose.choice(s.masses)
    data = s.pick(X, Y)
    if s.pick(0, 1):
        s.locations.append((data, s.reduce("sum", weight / total * data)))
    else:
        s.locations.append((data, s.reduce("sum", weight * data) / total))


def spread(s: Draft) -> None:
    (a, mean_a), (b, mean_b) = s.choose.choice(s.locations), s.choose.choice(s.locations)
    second = s.reduce("sum", (a - mean_a) * (b - mean_b))
    if a == b and mean_a == mean_b:
        s.scales.append(np.sqrt(second / LENGTH + Const(0.01)))


def weighted_spread(s: Draft) -> None:
    weight, total = s.choose.choice(s.masses)
    data, location = s.choose.choice(s.locations)
    s.reduce("sum", weight / total * ((data - location) * (data - location)))


def moment(s: Draft) -> None:
    data, location = s.choose.choice(s.locations)
    s.reduce("sum", (data - location) ** Const(s.pick(3, 3, 3, 4, 4, 5, 6)))


def centred_dot(s: Draft) -> None:
    data, location = s.choose.choice(s.locations)
    s.reduce("sum", (data - location) * s.pick(Y, W, V))


def masked_spread(s: Draft) -> None:
    data, location = s.choose.choice(s.locations)
    s.reduce("sum", select(KEPT, (data - location) * (data - location), Const(0.0)))


def farthest(s: Draft) -> None:
    data, location = s.choose.choice(s.locations)
    s.reduce("max", abs(data - location))


def scaled_dot(s: Draft) -> None:
    s.reduce("sum", s.data() / s.choose.choice(s.scales) * s.pick(W, V, Y))


def standardised(s: Draft) -> None:
    """Two dependencies in one term: a location and a scale."""
    data, location = s.choose.choice(s.locations)
    s.reduce("sum", (data - location) / s.choose.choice(s.scales) * s.pick(W, V, Y, X))


def scaled_maximum(s: Draft) -> None:
    data = s.data() / s.choose.choice(s.scales)
    s.shifts.append((data, s.reduce("max", data)))


def scaled_mean(s: Draft) -> None:
    data = s.data() / s.choose.choice(s.scales)
    s.locations.append((data, s.reduce("sum", data) / LENGTH))


def scaled_product(s: Draft) -> None:
    s.reduce("prod", (abs(s.pick(X, Y)) + Const(0.25)) / s.choose.choice(s.scales))


def tempered(s: Draft) -> None:
    """Another power of the same weights."""
    data, top = s.choose.choice(s.shifts)
    s.reduce("sum", np.exp((data - top) * Const(s.pick(2, 0.5))))


def place(s: Draft) -> None:
    """Where the best element is: among data themselves, so that no rounding makes or breaks a tie."""
    s.reduce(s.pick("argmax", "argmin", "topk:1", "bottomk:1"), s.pick(X, Y))


# ---- moves without an incremental form

def deviation(s: Draft) -> None:
    data, location = s.choose.choice(s.locations)
    s.reduce("sum", abs(data - location))


def squashed(s: Draft) -> None:
    data, location = s.choose.choice(s.locations)
    s.reduce("sum", np.tanh(data - location))


def above(s: Draft) -> None:
    data, location = s.choose.choice(s.locations)
    s.reduce("sum", select(op("gt", data, location), Const(1.0), Const(0.0)))


def bell(s: Draft) -> None:
    data, location = s.choose.choice(s.locations)
    s.reduce("sum", np.exp((location - data) * (data - location)))


INDEPENDENT: tuple[Move, ...] = (maximum, maximum, mean, norm, largest, extent, masked_mean, total_weight, positions,
                                 truth, place)
FIRST: tuple[Move, ...] = (maximum, maximum, maximum, mean, norm, largest, total_weight, masked_mean)
REFUSED: tuple[Move, ...] = (deviation, squashed, above, bell)


def _dependent(s: Draft) -> list[Move]:
    """The moves whose facts exist; those that lengthen a chain count more often, until it is that long."""
    if s.shifts and not s.masses:
        return [mass, mass, mass, surprise]
    moves: list[Move] = [average, average, centre, centre, centre] if s.masses else []
    moves += [mass, tempered] if s.shifts else []
    moves += [spread, spread, centred_dot, farthest, moment, masked_spread] if s.locations else []
    moves += [weighted_spread] * 4 if s.masses and s.locations else []
    moves += [scaled_dot, scaled_maximum, scaled_mean, scaled_product] if s.scales else []
    return moves + ([standardised] * 2 if s.scales and s.locations else [])


def next_move(s: Draft) -> Move:
    """Three of four moves depend on earlier results; one in `UNFUSIBLE` of those that could is not fusible."""
    if s.locations and s.choose.choice(range(UNFUSIBLE)) == UNFUSIBLE - 1:
        return s.choose.choice(REFUSED)
    if s.choose.choice(range(4)) < 3:
        return s.choose.choice(_dependent(s) or INDEPENDENT)
    return s.choose.choice(INDEPENDENT)
