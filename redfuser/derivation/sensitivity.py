"""How much a result moves with each element of a prefix: exact derivatives through a cascade.

The reductions are taken by their definitions, one after the other; `final` ones are given numbers that nothing moves.
Where a reduction picks elements (max, min), the derivative is that of the elements picked. Once in float64 for many
streams, and once in high precision for one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from redfuser.derivation.batch import Array, BatchEvaluator, Streams, reduce
from redfuser.derivation.differentiate import ZERO, derivative
from redfuser.derivation.sample import Stream
from redfuser.derivation.skeleton import Skeleton, Stage
from redfuser.ir import Expr, Load, Ref, walk
from redfuser.ir.ops import PIVOT
from redfuser.rules.real import RealEvaluator, Undefined

DIFFERENTIABLE = frozenset({"sum", "prod", "max", "min", PIVOT, "any", "all"})
"""Monoids whose derivative is known; that of `any` and `all` is 0."""


class Sensitivity:
    """Derivatives of the results of a cascade up to one stage, by the elements of a stream.

    Raises
    ------
    Undefined
        when a stage is not differentiable.
    """

    def __init__(self, skeleton: Skeleton, target: Stage, final: frozenset[str]) -> None:
        self.stages: list[Stage] = []
        for stage in skeleton.stages:
            if stage.name not in final:
                self.stages.append(target if stage.name == target.name else stage)
            if stage.name == target.name:
                break
        if any(s.crossed or s.monoid not in DIFFERENTIABLE for s in self.stages):
            raise Undefined("derivative")
        self.target = target.name
        known = {s.name for s in self.stages}
        self.by_unit = {s.name: _partials(s.body, lambda x: isinstance(x, Load)) for s in self.stages}
        self.by_result = {s.name: _partials(s.body, lambda x: isinstance(x, Ref) and x.name in known)
                          for s in self.stages}

    def rows(self, streams: Streams, direction: Mapping[str, Array], fixed: Mapping[str, Any]) -> dict[str, Array]:
        """Derivatives of the results of every stream by its first elements: [streams, elements] for each.

        `direction`: unit -> how fast each of those elements moves.
        """
        values: dict[str, Any] = dict(fixed)
        known: dict[str, Array] = {}
        for stage in self.stages:
            evaluator = BatchEvaluator(streams, values)
            body = evaluator.elements(stage.body)
            value = reduce(stage.monoid, body)
            with np.errstate(all="ignore"):
                weights = _batch_weights(stage.monoid, body, value)
                total: Any = 0.0
                for unit, e in self.by_unit[stage.name].items():
                    if unit.tensor in direction:
                        moves = direction[unit.tensor]
                        total = total + (weights * evaluator.elements(e))[:, : len(moves)] * moves
                for r, e in self.by_result[stage.name].items():
                    factor = (weights * evaluator.elements(e)).sum(axis=-1, keepdims=True)
                    total = total + factor * known[r.name]
            count = len(next(iter(direction.values())))
            known[stage.name] = np.broadcast_to(total, (len(body), count))
            values[stage.name] = value
        return known

    def row(self, stream: Stream, direction: Mapping[str, Array], fixed: Mapping[str, Any]) -> list[Any]:
        """The same of the last result for one stream, in the precision of mpmath."""
        values: dict[str, Any] = dict(fixed)
        known: dict[str, list[Any]] = {}
        count = len(next(iter(direction.values())))
        for stage in self.stages:
            evaluator = RealEvaluator(stream.lookup(values), stream.length)
            body = evaluator.elements(evaluator(stage.body))
            value = evaluator.reduce(stage.monoid, body)
            weights = _weights(evaluator, stage.monoid, body, value)
            total: list[Any] = [evaluator.mp.mpf(0)] * count
            for unit, e in self.by_unit[stage.name].items():
                if unit.tensor in direction:
                    slopes = evaluator.elements(evaluator(e))
                    moves = direction[unit.tensor]
                    total = [t + weights[i] * slopes[i] * moves[i] for i, t in enumerate(total)]
            for r, e in self.by_result[stage.name].items():
                slopes = evaluator.elements(evaluator(e))
                factor = evaluator.mp.fsum(w * v for w, v in zip(weights, slopes, strict=True))
                total = [t + factor * g for t, g in zip(total, known[r.name], strict=True)]
            known[stage.name] = total
            values[stage.name] = value
        return known[self.target]


def _batch_weights(monoid: str, body: Array, value: Array) -> Any:
    """Derivatives of the reduction by the value at each element."""
    if monoid == "sum":
        return 1.0
    if monoid == "prod":
        return value / body
    if monoid in ("max", "min"):
        chosen = body.argmax(axis=-1) if monoid == "max" else body.argmin(axis=-1)
    else:
        chosen = np.abs(body).argmin(axis=-1) if monoid == PIVOT else np.full(len(body), -1)
    return (np.arange(body.shape[1]) == chosen[:, None]) * 1.0


def _weights(evaluator: RealEvaluator, monoid: str, body: Sequence[Any], value: Any) -> list[Any]:
    if monoid == "sum":
        return [evaluator.mp.mpf(1)] * len(body)
    if monoid == "prod":
        if 0 in body:
            raise Undefined("derivative of a product that is 0")
        return [value / b for b in body]
    chosen = list(body).index(value) if monoid in ("max", "min", PIVOT) and value in body else -1
    return [evaluator.mp.mpf(i == chosen) for i in range(len(body))]


def _partials(e: Expr, wanted: Any) -> dict[Any, Expr]:
    """Nonzero derivatives of `e` by its parts that are wanted."""
    found = {x: derivative(e, x) for x in sorted(filter(wanted, set(walk(e))), key=str)}
    return {x: d for x, d in found.items() if d != ZERO}
