"""The certificate: evidence for a fused cascade that does not come from the e-graph.

Always, before first use: split a random stream into segments, merge their states in a random tree by the corrections,
and compare every accumulator with its definition on the whole stream, and every result with the original reductions,
in 50-digit arithmetic (Schwartz-Zippel style: a wrong correction fails with probability practically 1). On request
(`Certificate.prove`): a symbolic proof of every correction, see `redfuser.derivation.proof`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.derivation.sample import Sampler, Stream, evaluate_results
from redfuser.derivation.skeleton import Skeleton
from redfuser.ir import Expr, New, Old, Ref, op, refs
from redfuser.rules.real import RealEvaluator, Undefined, by_table, difference

DIGITS = 50
EXACT = 1e-25
TRIALS = 3
MOST_TRIALS = 24
"""Streams drawn before giving up to find `TRIALS` on which everything is defined."""
SEGMENTS = (2, 1, 3)
"""Elements per segment of the random stream."""
_COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}


@dataclass(frozen=True)
class Certificate:
    """What speaks for a fused cascade.

    valid    checked and not refuted; False also when nothing could be decided
    refuted  a counterexample was found
    method   how it was established
    steps    what was checked, one line each
    """

    valid: bool
    method: str
    steps: tuple[str, ...]
    refuted: bool = False
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
        self.dependencies = {d.name: convert(d.expr) for d in fused.dependencies}
        self.corrections = {name: convert(e) for name, e in fused.corrections}
        self.epilogue = {name: convert(e) for name, e in fused.epilogue}
        self.passes = [[a for a in fused.accumulators if a.name in names] for names in fused.passes]

    def definition(self, members: list[Accumulator], stream: Stream, final: Mapping[str, Any],
                   rounding: bool) -> dict[str, Any]:
        """Accumulators and dependencies of one pass by their definitions, on a whole (part of a) stream."""
        values = dict(final)
        for a in members:
            self.add_dependencies(values, stream, rounding)
            evaluator = RealEvaluator(stream.lookup(values), stream.length, rounding)
            values[a.name] = evaluator.reduce(a.monoid, evaluator(self.bodies[a.name]))
        self.add_dependencies(values, stream, rounding)
        return values

    def add_dependencies(self, values: dict[str, Any], stream: Stream, rounding: bool) -> None:
        """Evaluate the dependencies whose operands are known."""
        for name, e in self.dependencies.items():
            if name not in values and refs(e) <= set(values):
                values[name] = RealEvaluator(stream.lookup(values), stream.length, rounding)(e)

    def merge(self, members: list[Accumulator], parts: list[dict[str, Any]], stream: Stream, final: Mapping[str, Any],
              rounding: bool) -> dict[str, Any]:
        """The state of several parts from their states, by the corrections."""
        values = dict(final)
        for a in members:
            self.add_dependencies(values, stream, rounding)
            moved = [self._corrected(a, part, values, stream, rounding) for part in parts]
            values[a.name] = _combine(a.monoid, moved)
        self.add_dependencies(values, stream, rounding)
        return values

    def _corrected(self, a: Accumulator, old: Mapping[str, Any], new: Mapping[str, Any], stream: Stream,
                   rounding: bool) -> Any:
        correction = self.corrections.get(a.name)
        if correction is None:
            return old[a.name]
        units = stream.lookup(old)

        def lookup(e: Expr) -> Any:
            if isinstance(e, (Old, New)):
                return (old if isinstance(e, Old) else new)[e.name]
            return units(e)

        return RealEvaluator(lookup, stream.length, rounding)(correction)


def _combine(monoid: str, values: list[Any]) -> Any:
    if monoid == "first":
        return values[0]
    units = [Ref(f"{i}") for i in range(len(values))]
    e: Expr = units[0]
    for r in units[1:]:
        e = op(_COMBINE[monoid], e, r)
    return RealEvaluator(by_table(dict(zip(units, values, strict=True))), 1)(e)


def certify(fused: FusedCascade, *, rounding: bool = True, seed: int = 0) -> Certificate:
    """Check a fused cascade at random points in high precision.

    Parameters
    ----------
    rounding
        False: casts and rint count as the identity (for derivations that were allowed to move roundings).
    """
    import mpmath

    method = f"identities at {TRIALS} random streams in {DIGITS}-digit arithmetic, merged in random trees"
    form = Skeletal(fused)
    rng = random.Random(f"{seed}:{fused.cascade.name}")
    done = 0
    with mpmath.workdps(DIGITS):
        for trial in range(MOST_TRIALS):
            try:
                problem = _trial(form, Sampler(form.skeleton, rng, signed=trial < MOST_TRIALS // 2), rounding)
            except Undefined:
                continue
            if problem:
                return Certificate(False, method, (problem,), refuted=True, fused=fused)
            done += 1
            if done == TRIALS:
                break
    if done < TRIALS:
        return Certificate(False, method, ("no stream was found on which every expression is defined",), fused=fused)
    return Certificate(True, method, _steps(fused), fused=fused)


def _steps(fused: FusedCascade) -> tuple[str, ...]:
    corrected = dict(fused.corrections)
    lines = [f"{a.name}: merged states equal {a.monoid} over the whole stream"
             + ("" if a.name in corrected else " (no correction needed)") for a in fused.accumulators]
    return (*lines, *(f"{name}: the epilogue equals the original reduction" for name, _ in fused.epilogue))


def _trial(form: Skeletal, sampler: Sampler, rounding: bool) -> str:
    """One random stream. Returns what failed, "" when nothing did."""
    total = sum(SEGMENTS)
    stream = sampler.units(total, spread=sampler.rng.uniform(0.3, 3.0))
    final: dict[str, Any] = {}
    for members in form.passes:
        whole = form.definition(members, stream, final, rounding)
        merged = _merged(form, members, stream, final, sampler.rng, rounding)
        for a in members:
            if difference(whole[a.name], merged[a.name]) > EXACT:
                return f"{a.name}: merging states by the correction differs from {a.monoid}({a.body})"
        final = whole
    expected = evaluate_results(form.skeleton, stream, rounding=rounding)
    evaluator = RealEvaluator(stream.lookup(final), total, rounding)
    for name, e in form.epilogue.items():
        if name in expected and difference(evaluator(e), expected[name]) > EXACT:
            return f"{name}: the epilogue differs from the original reduction"
    return ""


def _merged(form: Skeletal, members: list[Accumulator], stream: Stream, final: Mapping[str, Any], rng: random.Random,
            rounding: bool) -> dict[str, Any]:
    """States of the segments, merged in a random order of neighbours."""
    states, start = [], 0
    for length in SEGMENTS:
        states.append(form.definition(members, stream.part(start, start + length), final, rounding))
        start += length
    while len(states) > 1:
        i = rng.randrange(len(states) - 1)
        states[i : i + 2] = [form.merge(members, states[i : i + 2], stream, final, rounding)]
    return states[0]


