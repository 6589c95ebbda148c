"""A fused form followed by hand: bodies, corrections and epilogue on numbers, over the reals or like floating point.

What certificates and proofs evaluate. `Skeletal` has no value where an expression has none; `HardForm` gives it the
meaning that every later level gives to it (see `redfuser.derivation.hard`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from redfuser.derivation.dead import from_dead_parts
from redfuser.derivation.fusion import NOTHING, Accumulator, FusedCascade
from redfuser.derivation.hard import Ieee
from redfuser.derivation.parts import occupied
from redfuser.derivation.sample import Stream
from redfuser.derivation.skeleton import Skeleton
from redfuser.ir import MONOIDS, Expr, Load, New, Old, Ref, find_parts, refs
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
        self.needs = {name: refs(e) for name, e in self.dependencies.items()}
        self.corrections = {name: convert(e) for name, e in fused.corrections}
        self.epilogue = {name: convert(e) for name, e in fused.epilogue}
        self.passes = [[a for a in fused.accumulators if a.name in names] for names in fused.passes]
        self.pivots = frozenset(a.name for a in fused.accumulators if a.monoid == PIVOT)
        self.zero = RealEvaluator(by_table({}), 1).mp.mpf(0)

    def evaluator(self, lookup: Callable[[Expr], Any], stream: Stream, rounding: bool) -> RealEvaluator:
        """Evaluates bodies and corrections."""
        return RealEvaluator(lookup, stream.length, rounding, stream.start)

    def of_dependencies(self, values: Mapping[str, Any], stream: Stream, rounding: bool) -> RealEvaluator:
        """Evaluates dependencies inside the loop."""
        return RealEvaluator(self.lookup(stream, values), stream.length, rounding)

    def read(self, name: str, value: Any) -> Any:
        """A value as bodies and corrections read it: a pivot that no element gave reads 0."""
        return self.zero if name in self.pivots and value == math.inf else value

    def lookup(self, stream: Stream, values: Mapping[str, Any]) -> Callable[[Expr], Any]:
        """Values of units, and of names as bodies read them. `values` may gain further names."""

        def find(e: Expr) -> Any:
            if isinstance(e, Load):
                return stream.values[e.tensor]
            return self.read(e.name, values[e.name]) if isinstance(e, Ref) else None

        return find

    def newest(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """All values as bodies and corrections read them."""
        return {k: self.read(k, v) for k, v in values.items()}

    def definition(self, members: list[Accumulator], stream: Stream, final: Mapping[str, Any],
                   rounding: bool) -> dict[str, Any]:
        """Accumulators and dependencies of one pass by their definitions, on a whole (part of a) stream."""
        values = dict(final)
        evaluate = self.evaluator(self.lookup(stream, values), stream, rounding)
        add_dependencies = self._adding(values, stream, rounding)
        for a in members:
            add_dependencies()
            values[a.name] = evaluate.reduce(a.monoid, evaluate(self.bodies[a.name]))
        add_dependencies()
        return values

    def _adding(self, values: dict[str, Any], stream: Stream, rounding: bool) -> Callable[[], None]:
        """A function that evaluates the dependencies whose operands are known by then."""
        missing = [name for name in self.dependencies if name not in values]
        evaluate = self.of_dependencies(values, stream, rounding)

        def add() -> None:
            for name in missing[:]:
                if self.needs[name] <= values.keys():
                    missing.remove(name)
                    values[name] = evaluate(self.dependencies[name])

        return add

    def merge(self, members: list[Accumulator], parts: list[dict[str, Any]], stream: Stream, final: Mapping[str, Any],
              rounding: bool, chunk: Stream | None = None) -> dict[str, Any]:
        """The state of several parts from their states, by the corrections. `chunk`: elements that follow them, reduced
        at the newest dependencies."""
        values = dict(final)
        correct = [self.evaluator(self._moving(part, values, stream), stream, rounding) for part in parts]
        reduced = None if chunk is None else self.evaluator(self.lookup(chunk, values), chunk, rounding)
        add_dependencies = self._adding(values, stream, rounding)
        for a in members:
            add_dependencies()
            correction = self.corrections.get(a.name)
            moved = [part[a.name] if correction is None else evaluate.whole(a.monoid, correction)
                     for part, evaluate in zip(parts, correct, strict=True)]
            if reduced is not None:
                moved.append(reduced.reduce(a.monoid, reduced(self.bodies[a.name])))
            values[a.name] = self.combine(a.monoid, moved)
        add_dependencies()
        return values

    def _moving(self, old: Mapping[str, Any], new: Mapping[str, Any], stream: Stream) -> Callable[[Expr], Any]:
        """Values that corrections read when a state moves from `old` to `new` values."""
        units = stream.lookup(old)

        def find(e: Expr) -> Any:
            if isinstance(e, Old):
                return Skeletal.read(self, e.name, old[e.name])
            return self.read(e.name, new[e.name]) if isinstance(e, New) else units(e)

        return find

    def combine(self, monoid: str, values: list[Any]) -> Any:
        """Partial results in one."""
        return _combine(monoid, values)


class HardForm(Skeletal):
    """The same, with the meaning that every later level gives to what has no real value: see `hard`."""

    def __init__(self, fused: FusedCascade) -> None:
        super().__init__(fused)
        self.nothing = {a.name: NOTHING[a.monoid] for a in fused.accumulators if a.monoid in NOTHING}
        self.plain = {d.name: self.skeleton.abstract(d.expr) for d in fused.dependencies}
        moved = from_dead_parts(fused.corrections, fused.accumulators, fused.dependencies)
        self.corrections = {name: self.skeleton.abstract(e) for name, e in moved}
        self.final = frozenset[str]()

    def evaluator(self, lookup: Callable[[Expr], Any], stream: Stream, rounding: bool) -> RealEvaluator:
        """Like floating point."""
        return Ieee(lookup, stream.length, rounding, stream.start)

    def of_dependencies(self, values: Mapping[str, Any], stream: Stream, rounding: bool) -> RealEvaluator:
        """Inside the loop, a quotient with divisor 0 reads 0."""
        return Ieee(self.lookup(stream, values), stream.length, rounding, loop=True)

    def read(self, name: str, value: Any) -> Any:
        """An extreme of nothing alive reads 0, unless it is final."""
        if name in self.nothing and name not in self.final and value == self.nothing[name]:
            return self.zero
        return super().read(name, value)

    def combine(self, monoid: str, values: list[Any]) -> Any:
        """Extremes of something undefined are undefined."""
        return Ieee(by_table({}), len(values)).reduce(monoid, tuple(values)) if monoid in NOTHING else _combine(
            monoid, values)

    def finished(self, state: Mapping[str, Any], stream: Stream) -> dict[str, Any]:
        """What later passes read: dependencies are the definition's own."""
        own = {a.name: state[a.name] for a in self.fused.accumulators if a.name in state}
        values = {k: Skeletal.read(self, k, v) for k, v in own.items()}
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
