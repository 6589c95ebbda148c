"""Random streams for a skeleton, and its definition over the reals: the ground truth of rank test and certificate."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from redfuser.derivation.skeleton import Skeleton
from redfuser.ir import Cast, Expr, Load, Op, Ref, Size
from redfuser.ir.ops import OPS
from redfuser.rules.language import STREAM
from redfuser.rules.real import RealEvaluator

_BOOLEAN_KINDS = frozenset({"compare", "logic"})


@dataclass(frozen=True)
class Stream:
    """Values of all units: a tuple along the stream for those that carry it, a number for the others."""

    values: Mapping[str, Any]
    length: int

    def lookup(self, named: Mapping[str, Any]) -> Callable[[Expr], Any]:
        """Values of units, and of refs by name."""

        def find(e: Expr) -> Any:
            if isinstance(e, Load):
                return self.values[e.tensor]
            return named[e.name] if isinstance(e, Ref) else None

        return find

    def part(self, start: int, stop: int) -> Stream:
        """The elements in [start, stop)."""
        return Stream({k: v[start:stop] if isinstance(v, tuple) else v for k, v in self.values.items()}, stop - start)


class Sampler:
    """Draws streams. `signed` False: positive numbers only (for logarithms and roots of inputs)."""

    def __init__(self, skeleton: Skeleton, rng: random.Random, signed: bool = True) -> None:
        self.skeleton = skeleton
        self.rng = rng
        self.signed = signed
        self.dtypes = {t.name: t.dtype for t in skeleton.cascade.tensors}
        self.axis = skeleton.cascade.axis

    def units(self, length: int, spread: float = 1.0) -> Stream:
        """A stream of `length` random elements of standard deviation `spread`."""
        values: dict[str, Any] = {}
        for name, e in self.skeleton.units.items():
            varying = STREAM in self.skeleton.unit(e).axes
            if varying:
                strata = self.rng.sample(range(length), length)
                values[name] = tuple(self._value(e, spread, (i + self.rng.random()) / length) for i in strata)
            else:
                values[name] = self._value(e, spread, self.rng.random())
        return Stream(values, length)

    def extended(self, base: Stream, length: int, extra: int, spread: float) -> Stream:
        """The first `length` elements of `base` followed by `extra` new ones."""
        more = self.units(extra, spread).values
        values = {k: v[:length] + more[k] if isinstance(v, tuple) else v for k, v in base.values.items()}
        return Stream(values, length + extra)

    def _value(self, e: Expr, spread: float, quantile: float) -> Any:
        """A value of a unit at a quantile of the normal distribution: strata keep elements apart from each other."""
        import mpmath

        if self._is_boolean(e):
            return self.rng.random() < 0.5
        if isinstance(e, Size):
            return mpmath.mpf(self.rng.randint(1, 9))
        value = mpmath.mpf(NormalDist(0.1, spread).inv_cdf(max(quantile, 1e-9)))
        return value if self.signed else abs(value) + mpmath.mpf("0.05")

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
    for stage in skeleton.stages:
        if stage.name == before:
            break
        if fixed and stage.name in fixed:
            results[stage.name] = fixed[stage.name]
            continue
        evaluator = RealEvaluator(stream.lookup(results), stream.length, rounding)
        results[stage.name] = evaluator.reduce(stage.monoid, evaluator(stage.body))
    return results
