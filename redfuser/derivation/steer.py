"""Streams on which selections select what is wanted: elements are drawn until their conditions are as they should be.

A computed mask (y > -0.5) is true of most random numbers, and one of positions (position >= 4) of none of a short
stream. So the units that conditions read are drawn anew from numbers beside the constants of the conditions.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import isfinite
from typing import Any

from redfuser.derivation.sample import Stream
from redfuser.derivation.skeleton import Skeleton, reads_state
from redfuser.ir import Const, Expr, Load, Op, free_axes, walk
from redfuser.rules.arithmetic import context
from redfuser.rules.language import STREAM
from redfuser.rules.real import RealEvaluator, Undefined

MOST_DRAWS = 40
"""Draws per element; then it stays as near to what is wanted as it came."""
BESIDE = (-1000, -7, -1, 0, 1, 7, 1000)
"""Distances from the constants of conditions."""


class Steering:
    """The selections of a skeleton whose conditions read inputs alone, and how to make them true or false."""

    def __init__(self, skeleton: Skeleton) -> None:
        self.skeleton = skeleton
        bodies = [s.body for s in skeleton.stages]
        found = [x.args[0] for e in bodies for x in walk(e) if isinstance(x, Op) and x.fn == "select"]
        self.conditions = [c for c in dict.fromkeys(found) if STREAM in free_axes(c) and not reads_state(c)]
        parts = [x for c in self.conditions for x in walk(c)]
        self.units = sorted({x.tensor for x in parts if isinstance(x, Load) and STREAM in x.axes})
        self.others = sorted({x.tensor for x in parts if isinstance(x, Load)} - set(self.units))
        constants = {0.0, *(float(x.value) for x in parts if isinstance(x, Const))}
        self.numbers = sorted({c + d for c in constants if isfinite(c) for d in BESIDE})

    def steered(self, stream: Stream, truth: Callable[[int], bool], rng: random.Random) -> Stream:
        """The stream with the elements changed of which a condition is not what `truth` says of their position."""
        if not self.units:
            return stream
        values = {k: list(v) if k in self.units else v for k, v in stream.values.items()}
        fixed = [v for k in self.others if not isinstance(v := stream.values[k], (bool, tuple))]
        beside = [*self.numbers, *(v + d for v in fixed for d in (-1, 0, 1))]
        for i in range(stream.length):
            best = {k: values[k][i] for k in self.units}
            missed = self._missed(stream, i, best, truth(i))
            for _ in range(MOST_DRAWS if missed else 0):
                drawn = {k: self._drawn(k, v, beside, rng) for k, v in best.items()}
                left = self._missed(stream, i, drawn, truth(i))
                if left < missed:
                    best, missed = drawn, left
                if not missed:
                    break
            for k, v in best.items():
                values[k][i] = v
        return Stream({k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}, stream.length,
                      stream.start)

    def _missed(self, stream: Stream, i: int, values: dict[str, Any], wanted: bool) -> int:
        """How many conditions are not as wanted at an element with these values."""

        def lookup(e: Expr) -> Any:
            if not isinstance(e, Load):
                return None
            if e.tensor in values:
                return values[e.tensor]
            other = stream.values[e.tensor]
            return other[i] if isinstance(other, tuple) else other

        missed = 0
        for c in self.conditions:
            try:
                missed += bool(RealEvaluator(lookup, 1)(c)) != wanted
            except Undefined:
                missed += 1
        return missed

    def _drawn(self, unit: str, value: Any, beside: list[Any], rng: random.Random) -> Any:
        if isinstance(value, bool):
            return rng.random() < 0.5
        return context().mpf(self.skeleton.domain.inside(self.skeleton.units[unit], rng.choice(beside)))
