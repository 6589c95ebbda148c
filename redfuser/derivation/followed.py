"""A fused form followed by hand: bodies, corrections and epilogue on numbers, over the reals or like floating point.

What certificates and proofs evaluate. `Skeletal` has no value where an expression has none; `HardForm` gives it the
meaning that every later level gives to it (see `redfuser.derivation.hard`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from redfuser.derivation.fusion import NOTHING, Accumulator, FusedCascade
from redfuser.derivation.hard import Ieee
from redfuser.derivation.parts import occupied
from redfuser.derivation.sample import Stream
from redfuser.derivation.skeleton import Skeleton
from redfuser.ir import MONOIDS, Expr, New, Old, find_parts, refs
from redfuser.ir.ops import PIVOT
from redfuser.rules.real import RealEvaluator, by_table


class Skeletal:
    """A fused cascade in skeleton form: scalar equations over units."""

    def __init__(self, fused: FusedCascade) -> None:
        state = {a.name: a.axes for a in fused.accumulators} | {d.name: d.axes for d in fused.dependencies}
        self.fused = fused
        self.skeleton = Skeleton(fused.cascade, state, fine=True)
        convert = self.skeleton.abstract
        self.bodies = {a.name: convert(a.body) for a in fused.accumulators}
        monoids = {a.name: a.monoid for a in fused.accumulators}
        self.dependencies = {d.name: convert(occupied(d.expr, monoids)) for d in fused.dependencies}
        self.corrections = {name: convert(e) for name, e in fused.corrections}
        self.epilogue = {name: convert(e) for name, e in fused.epilogue}
        self.passes = [[a for a in fused.accumulators if a.name in names] for names in fused.passes]
        self.pivots = frozenset(a.name for a in fused.accumulators if a.monoid == PIVOT)
        self.zero = RealEvaluator(by_table({}), 1).mp.mpf(0)

    def evaluator(self, lookup: Callable[[Expr], Any], stream: Stream, rounding: bool) -> RealEvaluator:
        """Evaluates bodies and corrections."""
        return RealEvaluator(lookup, stream.length, rounding, stream.start)

    def dependency(self, name: str, values: Mapping[str, Any], stream: Stream, rounding: bool) -> Any:
        """The value of a dependency inside the loop."""
        return RealEvaluator(stream.lookup(self.newest(values)), stream.length, rounding)(self.dependencies[name])

    def newest(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Values as bodies and corrections read them: a pivot that no element gave reads 0."""
        if not any(k in values and values[k] == math.inf for k in self.pivots):
            return values
        return {k: self.zero if k in self.pivots and v == math.inf else v for k, v in values.items()}

    def definition(self, members: list[Accumulator], stream: Stream, final: Mapping[str, Any],
                   rounding: bool) -> dict[str, Any]:
        """Accumulators and dependencies of one pass by their definitions, on a whole (part of a) stream."""
        values = dict(final)
        for a in members:
            self.add_dependencies(values, stream, rounding)
            evaluator = self.evaluator(stream.lookup(self.newest(values)), stream, rounding)
            values[a.name] = evaluator.reduce(a.monoid, evaluator(self.bodies[a.name]))
        self.add_dependencies(values, stream, rounding)
        return values

    def add_dependencies(self, values: dict[str, Any], stream: Stream, rounding: bool) -> None:
        """Evaluate the dependencies whose operands are known."""
        for name, e in self.dependencies.items():
            if name not in values and refs(e) <= set(values):
                values[name] = self.dependency(name, values, stream, rounding)

    def merge(self, members: list[Accumulator], parts: list[dict[str, Any]], stream: Stream, final: Mapping[str, Any],
              rounding: bool, chunk: Stream | None = None) -> dict[str, Any]:
        """The state of several parts from their states, by the corrections. `chunk`: elements that follow them, reduced
        at the newest dependencies."""
        values = dict(final)
        for a in members:
            self.add_dependencies(values, stream, rounding)
            moved = [self._corrected(a, part, values, stream, rounding) for part in parts]
            if chunk is not None:
                evaluator = self.evaluator(chunk.lookup(self.newest(values)), chunk, rounding)
                moved.append(evaluator.reduce(a.monoid, evaluator(self.bodies[a.name])))
            values[a.name] = self.combine(a.monoid, moved)
        self.add_dependencies(values, stream, rounding)
        return values

    def combine(self, monoid: str, values: list[Any]) -> Any:
        """Partial results in one."""
        return _combine(monoid, values)

    def _corrected(self, a: Accumulator, old: Mapping[str, Any], new: Mapping[str, Any], stream: Stream,
                   rounding: bool) -> Any:
        correction = self.corrections.get(a.name)
        if correction is None:
            return old[a.name]
        units, old, new = stream.lookup(old), Skeletal.newest(self, old), self.newest(new)

        def lookup(e: Expr) -> Any:
            if isinstance(e, (Old, New)):
                return (old if isinstance(e, Old) else new)[e.name]
            return units(e)

        return self.evaluator(lookup, stream, rounding).whole(a.monoid, correction)


class HardForm(Skeletal):
    """The same, with the meaning that every later level gives to what has no real value: see `hard`."""

    def __init__(self, fused: FusedCascade) -> None:
        super().__init__(fused)
        self.nothing = {a.name: NOTHING[a.monoid] for a in fused.accumulators if a.monoid in NOTHING}
        self.plain = {d.name: self.skeleton.abstract(d.expr) for d in fused.dependencies}
        self.final = frozenset[str]()

    def evaluator(self, lookup: Callable[[Expr], Any], stream: Stream, rounding: bool) -> RealEvaluator:
        """Like floating point."""
        return Ieee(lookup, stream.length, rounding, stream.start)

    def dependency(self, name: str, values: Mapping[str, Any], stream: Stream, rounding: bool) -> Any:
        """Inside the loop, a quotient with divisor 0 reads 0."""
        read = Skeletal.newest(self, values)
        return Ieee(stream.lookup(read), stream.length, rounding, loop=True)(self.dependencies[name])

    def newest(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """An extreme of nothing alive reads 0, unless it is final."""
        return super().newest({k: self.zero if v == self.nothing.get(k) and k not in self.final else v
                               for k, v in values.items()})

    def combine(self, monoid: str, values: list[Any]) -> Any:
        """Extremes of something undefined are undefined."""
        return Ieee(by_table({}), len(values)).reduce(monoid, tuple(values)) if monoid in NOTHING else _combine(
            monoid, values)

    def finished(self, state: Mapping[str, Any], stream: Stream) -> dict[str, Any]:
        """What later passes read: dependencies are the definition's own."""
        own = {a.name: state[a.name] for a in self.fused.accumulators if a.name in state}
        values = dict(Skeletal.newest(self, own))
        for name, e in self.plain.items():
            if refs(e) <= values.keys():
                values[name] = Ieee(stream.lookup(values), stream.length)(e)
        self.final = frozenset(values)
        return values

    def results(self, values: Mapping[str, Any], stream: Stream) -> dict[str, Any]:
        """The results from the final state."""
        monoids = {s.name: s.monoid for s in self.skeleton.stages}
        found: dict[str, Any] = {}
        for name, e in self.epilogue.items():
            found[name] = Ieee(stream.lookup({**found, **values}), stream.length).whole(monoids.get(name, "sum"), e)
        return found


def _combine(monoid: str, values: list[Any]) -> Any:
    if monoid == PIVOT:
        return min(values, key=abs)
    parts = find_parts(monoid)
    if parts is not None:
        return RealEvaluator(by_table({}), 1).combine_parts(parts, values)
    return reduce(RealEvaluator(by_table({}), 1).ops[MONOIDS[monoid].combine], values)
