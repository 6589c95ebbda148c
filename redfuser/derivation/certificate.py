"""The certificate: evidence for a fused cascade that does not come from the e-graph.

Always, before first use: split a random stream into segments, merge their states by the corrections in two orders, and
compare every accumulator with its definition on the whole stream, and every result with the original reductions,
in 50-digit arithmetic (Schwartz-Zippel style: a wrong correction fails with probability practically 1). On request
(`Certificate.prove`): a symbolic proof of every correction, see `redfuser.derivation.proof`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate
from typing import Any

from redfuser.derivation.fusion import NOTHING, Accumulator, FusedCascade
from redfuser.derivation.hard import Ieee, agrees, hard_streams, has_conditions
from redfuser.derivation.parts import occupied
from redfuser.derivation.sample import Sampler, Stream, evaluate_results
from redfuser.derivation.skeleton import Skeleton
from redfuser.derivation.steer import Steering
from redfuser.ir import MONOIDS, Expr, New, Old, Part, Ref, find_parts, refs, walk
from redfuser.ir.ops import PIVOT
from redfuser.rules.real import Parts, RealEvaluator, Undefined, by_table, difference, precision

SEED = 0
DIGITS = 50
EXACT = 1e-25
SIGNS = ((1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1))
"""Signs of the sums of three inputs, stream after stream: each pair of inputs meets all four combinations. Without them
a sum would hardly ever be negative, and a law that holds for positive factors only would pass."""

TRIALS = len(SIGNS)
MOST_TRIALS = 24
"""Streams drawn before giving up to find `TRIALS` on which everything is defined."""
SEGMENTS = ((2, 1, 3), (3, 2, 3), (5, 4, 6))
"""Elements per segment of the random stream; longer ones where shorter ones leave something undefined."""


@dataclass(frozen=True)
class Certificate:
    """What speaks for a fused cascade.

    valid    checked and not refuted; False also when nothing could be decided
    refuted  a counterexample was found
    wrong    the results whose form was refuted
    method   how it was established
    steps    what was checked, one line each
    """

    valid: bool
    method: str
    steps: tuple[str, ...]
    refuted: bool = False
    wrong: tuple[str, ...] = ()
    fused: FusedCascade | None = field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        word = "valid" if self.valid else "refuted" if self.refuted else "undecided"
        return f"{word}: {self.method}"

    def __bool__(self) -> bool:
        return self.valid

    def prove(self) -> Certificate:
        """Prove the corrections symbolically. An undecided step gives a certificate that is not valid."""
        from redfuser.derivation.proof import prove

        if self.fused is None or self.refuted:
            return self
        return prove(self.fused, self)


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


def certify(fused: FusedCascade, *, rounding: bool = True, seed: int = SEED) -> Certificate:
    """Check a fused cascade at random points in high precision.

    Parameters
    ----------
    rounding
        False: casts and rint count as the identity (for derivations that were allowed to move roundings).
    """
    streams = "random streams and at hard ones" if rounding else "random streams, with roundings left out,"
    method = f"identities at {TRIALS} {streams} in {DIGITS}-digit arithmetic, merged in two orders"
    form = Skeletal(fused)
    rng = random.Random(f"{seed}:{fused.cascade.name}")
    steering = Steering(form.skeleton)
    done = 0
    with precision(DIGITS):
        for trial in range(MOST_TRIALS):
            try:
                segments = SEGMENTS[trial * len(SEGMENTS) // MOST_TRIALS]
                signed = trial < TRIALS or trial % 2 == 0
                sampler = Sampler(form.skeleton, rng, signed, signs=SIGNS[trial % len(SIGNS)])
                name, problem = _trial(form, sampler, segments, rounding, steering if trial % 3 else None)
            except Undefined:
                continue
            if problem:
                return _refuted(fused, method, name, problem)
            done += 1
            if done == TRIALS:
                break
        if rounding and has_conditions(fused):
            try:
                name, problem = _hard_trial(HardForm(fused), SEGMENTS[0], rng)
            except Undefined:  # no stream meets the assumptions
                name = problem = ""
            if problem:
                return _refuted(fused, method, name, problem)
    if done < TRIALS:
        nothing = "no stream was found that meets all assumptions and on which every expression is defined"
        return Certificate(False, method, (nothing,), fused=fused)
    return Certificate(True, method, _steps(fused), fused=fused)


def _refuted(fused: FusedCascade, method: str, name: str, problem: str) -> Certificate:
    """`name`: the result or the accumulator that is wrong."""
    results = dict(fused.epilogue)
    wrong = (name,) if name in results else tuple(r for r, e in fused.epilogue if name in refs(e)) or tuple(results)
    return Certificate(False, method, (f"{name}: {problem}",), refuted=True, wrong=wrong, fused=fused)


def _steps(fused: FusedCascade) -> tuple[str, ...]:
    corrected = dict(fused.corrections)
    lines = [f"{a.name}: merged states equal {a.monoid} over the whole stream"
             + ("" if a.name in corrected else " (no correction needed)") for a in fused.accumulators]
    return (*lines, *(f"{name}: the epilogue equals the original reduction" for name, _ in fused.epilogue))


def _trial(form: Skeletal, sampler: Sampler, segments: tuple[int, ...], rounding: bool,
           steering: Steering | None) -> tuple[str, str]:
    """One random stream, with selections that select about half of it. Returns the result or accumulator that is wrong
    and how, twice "" when none is."""
    total = sum(segments)
    stream = sampler.units(total, spread=sampler.rng.uniform(0.3, 3.0))
    if steering is not None:
        stream = steering.steered(stream, lambda i: (i > 0 and i % 2 == 0) or i == total - 1, sampler.rng)
    expected = evaluate_results(form.skeleton, stream, rounding=rounding)
    if not form.skeleton.domain.admits(stream.lookup(expected), total):
        raise Undefined("the finished row does not meet the assumptions on results")
    final: dict[str, Any] = {}
    for members in form.passes:
        whole = form.definition(members, stream, final, rounding)
        for merged in _merged(form, members, stream, segments, final, rounding):
            for a in members:
                if difference(whole[a.name], merged[a.name]) > EXACT:
                    return a.name, f"merging or updating states by the correction differs from {a.monoid}({a.body})"
        final = whole
    _check_alive(form, final)
    evaluator = RealEvaluator(stream.lookup(form.newest(final)), total, rounding)
    monoids = {s.name: s.monoid for s in form.skeleton.stages}
    for name, e in form.epilogue.items():
        if name in expected and _differs(evaluator.whole(monoids[name], e), expected[name], total):
            return name, "the epilogue differs from the original reduction"
    return "", ""


def _check_alive(form: Skeletal, final: Mapping[str, Any]) -> None:
    """A place of a list that a dependency reads must hold something alive: else the definition has no real value."""
    import mpmath

    for e in form.dependencies.values():
        for x in walk(e):
            if isinstance(x, Part) and isinstance(x.body, Ref) and x.axes not in ((), (0,)):
                found = final[x.body.name].parts[x.part]
                if not mpmath.isfinite(found[x.axes[0] if isinstance(x.axes[0], int) else 0]):
                    raise Undefined("a place that is read is masked")


def _differs(found: Any, expected: Any, total: int) -> bool:
    """Whether two results differ. Places beyond the end of the stream hold nothing: a finished stream has no such."""
    if isinstance(expected, Parts):
        found, expected = found.first(total), expected.first(total)
    return bool(difference(found, expected) > EXACT)


def _merged(form: Skeletal, members: list[Accumulator], stream: Stream, segments: tuple[int, ...],
            final: Mapping[str, Any], rounding: bool) -> Iterator[dict[str, Any]]:
    """States of the segments, merged in the two orders that differ most; and one state updated segment by segment."""
    ends = list(accumulate(segments))
    parts = [stream.part(end - length, end) for end, length in zip(ends, segments, strict=True)]
    states = [form.definition(members, part, final, rounding) for part in parts]

    def joined(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        return form.merge(members, [a, b], stream, final, rounding)

    yield reduce(joined, states)
    if form.corrections:  # else merging is that of the monoids
        yield reduce(lambda later, earlier: joined(earlier, later), states[::-1])
    yield reduce(lambda state, part: form.merge(members, [state], stream, final, rounding, part), parts[1:], states[0])


def _hard_trial(form: HardForm, segments: tuple[int, ...], rng: random.Random) -> tuple[str, str]:
    """Streams that are hard for conditions. Returns the result that is wrong and how, twice "" when none is."""
    for what, stream in hard_streams(Sampler(form.skeleton, rng), segments, rng):
        expected = _by_definition(form.skeleton, stream)
        if not form.skeleton.domain.admits(stream.lookup(expected), stream.length):
            continue
        form.final = frozenset()
        final: dict[str, Any] = {}
        for members in form.passes:
            final = form.finished(next(_merged(form, members, stream, segments, final, True)), stream)
        found = form.results(final, stream)
        nothing_alive = any(final.get(k) == v for k, v in form.nothing.items())
        other = _by_definition(form.skeleton, stream, stated=True) if nothing_alive else expected
        for name, value in expected.items():
            if name in found and not any(agrees(found[name], x, EXACT) for x in (value, other[name])):
                return name, f"with {what} it is {found[name]} where the definition gives {value}"
    return "", ""


def _by_definition(skeleton: Skeleton, stream: Stream, stated: bool = False) -> dict[str, Any]:
    """Every result by its definition, like floating point. `stated`: with the deviation that the numerical contract
    states, an extreme of nothing alive is subtracted as 0 (logsumexp of nothing alive is -inf and not NaN)."""
    results: dict[str, Any] = {}
    read: dict[str, Any] = {}
    for stage in skeleton.stages:
        evaluator = Ieee(stream.lookup(read), stream.length)
        value = results[stage.name] = evaluator.reduce(stage.monoid, evaluator(stage.body))
        nothing = stated and value == NOTHING.get(stage.monoid)
        read[stage.name] = evaluator.mp.mpf(0) if nothing else value
    return results
