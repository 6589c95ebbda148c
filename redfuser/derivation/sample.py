"""Random streams for a skeleton, and its definition over the reals: the ground truth of rank test and certificate."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from redfuser.derivation.domain import INTEGERS, MOST_DRAWS, mixed
from redfuser.derivation.skeleton import Skeleton
from redfuser.ir import Cast, Expr, Idx, Load, Op, Ref, Size
from redfuser.ir.ops import OPS
from redfuser.rules.arithmetic import context
from redfuser.rules.language import STREAM
from redfuser.rules.real import RealEvaluator, Undefined

FAR = 1.2
"""Distance of the middle from 0, in standard deviations, where its sign is wanted: sums then have that sign too."""
SKEW = 2
"""Factor of distances towards 0 then: the element farthest from the mean lies below it or above it, by the sign."""

_BOOLEAN_KINDS = frozenset({"compare", "logic"})


@dataclass(frozen=True)
class Stream:
    """Values of all units: a tuple along the stream for those that carry it, a number for the others.

    `start`: position of the first element, for a part of a longer stream.
    """

    values: Mapping[str, Any]
    length: int
    start: int = 0

    def lookup(self, named: Mapping[str, Any]) -> Callable[[Expr], Any]:
        """Values of units, and of refs by name."""

        def find(e: Expr) -> Any:
            if isinstance(e, Load):
                return self.values[e.tensor]
            return named[e.name] if isinstance(e, Ref) else None

        return find

    def part(self, start: int, stop: int) -> Stream:
        """The elements in [start, stop)."""
        return Stream({k: v[start:stop] if isinstance(v, tuple) else v for k, v in self.values.items()}, stop - start,
                      self.start + start)


class Sampler:
    """Draws streams.

    signed     False: positive numbers only (for logarithms and roots of inputs)
    center     mean of the elements
    signs      where given, the middles of the units are `FAR` from 0 with these signs in turn, and the elements skewed
    """

    def __init__(self, skeleton: Skeleton, rng: random.Random, signed: bool = True, center: float = 0.1,
                 signs: Sequence[int] = ()) -> None:
        self.skeleton = skeleton
        self.rng = rng
        self.signed = signed
        self.center = center
        self.signs = signs
        self.dtypes = {t.name: t.dtype for t in skeleton.cascade.tensors}
        self.domain = skeleton.domain

    def units(self, length: int, spread: float = 1.0) -> Stream:
        """A stream of `length` random elements of standard deviation `spread`, within the bounds that are assumed.

        Raises
        ------
        Undefined
            when no stream is found that meets the assumptions on elements.
        """
        stream = self._drawn(length, spread)
        for _ in range(MOST_DRAWS if self.domain.elements else 0):
            broken = self.domain.violations(stream.lookup({}), length)
            if not any(broken):
                return stream
            stream = Stream(mixed(stream.values, self._drawn(length, spread).values, broken), length)
        if self.domain.elements:
            raise Undefined("no stream that meets the assumptions")
        return stream

    def _drawn(self, length: int, spread: float) -> Stream:
        values: dict[str, Any] = {}
        for k, (name, e) in enumerate(self.skeleton.units.items()):
            center = FAR * max(spread, 1) * self.signs[k % len(self.signs)] if self.signs else self.center
            varying = STREAM in self.skeleton.unit(e).axes
            if varying:
                strata = self.rng.sample(range(length), length)
                drawn = tuple(self._value(e, center, spread, (i + self.rng.random()) / length) for i in strata)
                values[name] = tuple(map(context().mpf, range(length))) if self.domain.position(e) else drawn
            else:
                values[name] = self._value(e, center, spread, self.rng.random())
        return Stream(values, length)

    def _value(self, e: Expr, center: float, spread: float, quantile: float) -> Any:
        """A value of a unit at a quantile of the normal distribution: strata keep elements apart from each other."""
        mp = context()
        if self._is_boolean(e):
            return self.rng.random() < 0.5
        if isinstance(e, Size):
            return mp.mpf(self.rng.randint(1, 9))
        if isinstance(e, Idx):
            return mp.mpf(self.rng.randrange(6))
        drawn = NormalDist(center, spread).inv_cdf(max(quantile, 1e-9))
        if self.signs and (drawn - center) * center < 0:
            drawn = center + SKEW * (drawn - center)
        value = mp.mpf(drawn)
        value = value if self.signed else abs(value) + mp.mpf("0.05")
        if self.domain.whole(e):
            value = mp.nint(INTEGERS * value)
            value = value if self.signed else max(value, mp.mpf(1))
        return mp.mpf(self.domain.moved(e, value, lambda: mp.mpf(self.rng.random())))

    def _is_boolean(self, e: Expr) -> bool:
        if isinstance(e, Load):
            return self.dtypes[e.tensor] == "bool"
        if isinstance(e, Cast):
            return e.dtype == "bool"
        if isinstance(e, Ref) and e.name in self.skeleton.producers:
            return self._is_boolean(self.skeleton.producers[e.name].expr)
        return isinstance(e, Op) and OPS[e.fn].kind in _BOOLEAN_KINDS


def evaluate_results(skeleton: Skeleton, stream: Stream, before: str | None = None,
                     fixed: Mapping[str, Any] | None = None, rounding: bool = True) -> dict[str, Any]:
    """Every result by its definition, one reduction after the other, up to the stage `before`.

    `fixed` gives results that are not to be computed.
    """
    results: dict[str, Any] = {}
    evaluator = RealEvaluator(stream.lookup(results), stream.length, rounding)
    for stage in skeleton.stages:
        if stage.name == before:
            break
        if fixed and stage.name in fixed:
            results[stage.name] = fixed[stage.name]
            continue
        results[stage.name] = evaluator.reduce(stage.monoid, evaluator(stage.body))
    return results
