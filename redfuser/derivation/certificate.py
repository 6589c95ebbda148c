"""The certificate: evidence for a fused cascade that does not come from the e-graph.

Always, before first use: split a random stream into segments, merge their states by the corrections in two orders, and
compare every accumulator with its definition on the whole stream, and every result with the original reductions,
in 50-digit arithmetic (Schwartz-Zippel style: a wrong correction fails with probability practically 1). On request
(`Certificate.prove`): a symbolic proof of every correction, see `redfuser.derivation.proof`.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from itertools import accumulate
from typing import Any

from redfuser.derivation.followed import HardForm, Skeletal
from redfuser.derivation.fusion import NOTHING, Accumulator, FusedCascade
from redfuser.derivation.hard import Ieee, agrees, hard_streams, has_conditions
from redfuser.derivation.sample import Sampler, Stream, evaluate_results
from redfuser.derivation.skeleton import Skeleton
from redfuser.derivation.steer import Steering
from redfuser.ir import Const, Load, Op, Part, Ref, refs, walk
from redfuser.rules.arithmetic import context, precision
from redfuser.rules.real import Parts, RealEvaluator, Undefined, difference

SEED = 0
DIGITS = 50
EXACT = 1e-25
SIGNS = ((1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1))
"""Signs of the sums of three inputs, stream after stream: each pair of inputs meets all four combinations. Without them
a sum would hardly ever be negative, and a law that holds for positive factors only would pass."""

TRIALS = len(SIGNS)
MOST_TRIALS = 24
"""Streams drawn before giving up to find `TRIALS` on which everything is defined."""
_ORDINARY = "on a random stream, on which every definition has a value,"
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


def certify(fused: FusedCascade, *, rounding: bool = True, seed: int = SEED) -> Certificate:
    """Check a fused cascade at random points in high precision.

    Parameters
    ----------
    rounding
        False: casts and rint count as the identity (for derivations that were allowed to move roundings).
    """
    form = Skeletal(fused)
    rng = random.Random(seed)
    steering = Steering(form.skeleton)
    done = hard = 0

    def refuted(name: str, problem: str) -> Certificate:
        return _refuted(fused, _method(done, hard, rounding), name, problem)

    with precision(DIGITS):
        for trial in range(MOST_TRIALS):
            segments = SEGMENTS[trial * len(SEGMENTS) // MOST_TRIALS]
            sampler = Sampler(form.skeleton, rng, trial < TRIALS or trial % 2 == 0, signs=SIGNS[trial % len(SIGNS)])
            decided, name, problem = _tried(form, sampler, segments, rounding, steering if trial % 3 else None)
            done += decided
            if problem:
                return refuted(name, problem)
            if done == TRIALS:
                break
        if _has_domains(fused):
            _, name, problem = _tried(form, Negative(form.skeleton, rng, False), SEGMENTS[0], rounding, None)
            if problem:
                return refuted(name, problem)
        if rounding and has_conditions(fused):
            hard, name, problem = _hard_trial(HardForm(fused), SEGMENTS[0], rng)
            if problem:
                return refuted(name, problem)
    method = _method(done, hard, rounding)
    if done < TRIALS:
        nothing = "no stream was found that meets all assumptions and on which every expression is defined"
        return Certificate(False, method, (nothing,), fused=fused)
    return Certificate(True, method, _steps(fused), fused=fused)


def _method(done: int, hard: int, rounding: bool) -> str:
    """How it was checked: on so many random streams and so many hard ones, those that decided something."""
    streams = f"{done} random {'stream' if done == 1 else 'streams'}"
    if hard:
        streams += f" and {hard} hard {'one' if hard == 1 else 'ones'}"
    left_out = "" if rounding else ", with roundings left out,"
    return f"identities at {streams}{left_out} in {DIGITS}-digit arithmetic, merged in two orders"


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


class Negative(Sampler):
    """Draws inputs that are all negative: a product of two of them is in the domain of a logarithm, they are not."""

    def units(self, length: int, spread: float = 1.0) -> Stream:
        """A stream of negative numbers, where the assumptions let them be."""
        drawn = super().units(length, spread)
        values = {k: self._mirrored(v) if isinstance(self.skeleton.units[k], Load) else v
                  for k, v in drawn.values.items()}
        stream = Stream(values, length)
        if any(self.domain.violations(stream.lookup({}), length)):
            raise Undefined("the assumptions do not let them be negative")
        return stream

    def _mirrored(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._mirrored, value))
        return value if isinstance(value, bool) else -abs(value)


def _has_domains(fused: FusedCascade) -> bool:
    """Whether logarithms, roots or powers with computed exponents are taken."""
    found = (*(a.body for a in fused.accumulators), *(d.expr for d in fused.dependencies),
             *(e for _, e in fused.epilogue))
    return any(isinstance(x, Op) and (x.fn in ("log", "log2", "sqrt") or (x.fn == "pow" and not isinstance(
        x.args[1], Const))) for e in found for x in walk(e))


def _tried(form: Skeletal, sampler: Sampler, segments: tuple[int, ...], rounding: bool,
           steering: Steering | None) -> tuple[bool, str, str]:
    """One random stream: whether it decides anything, the result or accumulator that is wrong, and how."""
    try:
        stream, expected = _drawn(form, sampler, sum(segments), rounding, steering)
    except Undefined:
        return False, "", ""
    try:
        return True, *_trial(form, stream, expected, segments, rounding)
    except Undefined:  # somewhere in the loop alone, which floating point may survive
        if not rounding:
            return False, "", ""
    try:
        return False, *_compared(HardForm(form.fused), stream, segments, _ORDINARY)
    except Undefined:
        return False, "", ""


def _drawn(form: Skeletal, sampler: Sampler, total: int, rounding: bool,
           steering: Steering | None) -> tuple[Stream, dict[str, Any]]:
    """A random stream, with selections that select about half of it, and the results on it by their definitions.

    Raises
    ------
    Undefined
        when one has no real value, or the assumptions are not met.
    """
    stream = sampler.units(total, spread=sampler.rng.uniform(0.3, 3.0))
    if steering is not None:
        stream = steering.steered(stream, lambda i: (i > 0 and i % 2 == 0) or i == total - 1, sampler.rng)
    expected = evaluate_results(form.skeleton, stream, rounding=rounding)
    if not form.skeleton.domain.admits(stream.lookup(expected), total):
        raise Undefined("the finished row does not meet the assumptions on results")
    return stream, expected


def _trial(form: Skeletal, stream: Stream, expected: Mapping[str, Any], segments: tuple[int, ...],
           rounding: bool) -> tuple[str, str]:
    """One random stream. Returns the result or accumulator that is wrong and how, twice "" when none is."""
    total = stream.length
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
    mp = context()
    for e in form.dependencies.values():
        for x in walk(e):
            if isinstance(x, Part) and isinstance(x.body, Ref) and x.axes not in ((), (0,)):
                found = final[x.body.name].parts[x.part]
                if not mp.isfinite(found[x.axes[0] if isinstance(x.axes[0], int) else 0]):
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


def _hard_trial(form: HardForm, segments: tuple[int, ...], rng: random.Random) -> tuple[int, str, str]:
    """Streams that are hard for conditions. Returns how many decided something, the result that is wrong and how, twice
    "" when none is."""
    sampler = Sampler(form.skeleton, rng)
    try:
        streams = [*hard_streams(sampler, segments, rng), ("any elements", sampler.units(sum(segments)))]
    except Undefined:  # none meets the assumptions
        return 0, "", ""
    decided = 0
    for what, stream in streams:
        try:
            split = segments if stream.length == sum(segments) else segments[1:]
            name, problem = _compared(form, stream, split, f"with {what}")
        except Undefined:  # it breaks an assumption, or floating point says nothing of an operation either
            continue
        decided += 1
        if problem:
            return decided, name, problem
    return decided, "", ""


def _compared(form: HardForm, stream: Stream, segments: tuple[int, ...], where: str) -> tuple[str, str]:
    """The results of a stream in parts, followed like floating point, beside the definition's.

    Raises
    ------
    Undefined
        when nothing can be said.
    """
    expected = _by_definition(form.skeleton, stream)
    if not form.skeleton.domain.admits(stream.lookup(expected), stream.length):
        raise Undefined("the stream does not meet the assumptions")
    form.final = frozenset()
    final: dict[str, Any] = {}
    for members in form.passes:
        final = form.finished(next(_merged(form, members, stream, segments, final, True)), stream)
    found = form.results(final, stream)
    nothing_alive = any(final.get(k) == v for k, v in form.nothing.items())
    other = _by_definition(form.skeleton, stream, stated=True) if nothing_alive else expected
    for name, value in expected.items():
        if name in found and not any(agrees(found[name], x, EXACT) for x in (value, other[name])):
            return name, f"{where} it is {found[name]} where the definition gives {value}"
    return "", ""


def _by_definition(skeleton: Skeleton, stream: Stream, stated: bool = False) -> dict[str, Any]:
    """Every result by its definition, like floating point. `stated`: with the deviation that the numerical contract
    states, an extreme of nothing alive is subtracted as 0 (logsumexp of nothing alive is -inf and not NaN)."""
    results: dict[str, Any] = {}
    read: dict[str, Any] = {}
    evaluator = Ieee(stream.lookup(read), stream.length)
    for stage in skeleton.stages:
        value = results[stage.name] = evaluator.reduce(stage.monoid, evaluator(stage.body))
        nothing = stated and value == NOTHING.get(stage.monoid)
        read[stage.name] = evaluator.mp.mpf(0) if nothing else value
    return results
