"""Streams that are hard for conditions: zeros, equal elements, ties, masked ones; with NaN as the definition has it.

A random stream never divides by 0, so a wrong guard passes it. Here expressions are evaluated exactly where they can
be, and like floating point where they cannot: c/0 is infinite, 0/0 and inf - inf are no number. The loop is followed as
every later level runs it: inside it a quotient with divisor 0 reads 0, and the extreme of nothing alive reads 0. At the
end every result must be what the definition gives, or undefined where that is undefined.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from redfuser.derivation.fusion import NOTHING, FusedCascade
from redfuser.derivation.sample import Sampler, Stream
from redfuser.derivation.skeleton import Skeleton
from redfuser.derivation.steer import Steering
from redfuser.ir import Load, Op, Ref, walk
from redfuser.ir.monoids import INDEX, NOWHERE, VALUE
from redfuser.rules.arithmetic import context
from redfuser.rules.real import LARGEST_ANGLE, LARGEST_EXPONENT, Parts, RealEvaluator, real_operations

FEW = (-1, 1, 2, 3)
"""Few numbers make ties."""
MOST_ALONE = 3
"""Units that are tried as the only one that is 0."""


class Ieee(RealEvaluator):
    """Like floating point where there is no real value, without its rounding. `loop`: quotients by 0 read 0."""

    def __init__(self, lookup: Callable[[Any], Any], length: int, rounding: bool = True, start: int = 0,
                 loop: bool = False) -> None:
        self.loop = loop
        super().__init__(lookup, length, rounding, start)

    def operations(self, rounding: bool) -> Mapping[str, Callable[..., Any]]:
        """Those of floating point."""
        return _operations(self.mp, rounding, self.loop)

    def no_integer(self) -> Any:
        """Undefined, as what is no number."""
        return self.mp.nan

    def reduce(self, monoid: str, value: Any) -> Any:
        """The reduction; an extreme of something undefined is undefined."""
        if monoid in NOTHING:
            items = self.elements(value)
            return next((x for x in items if self.mp.isnan(x)), None) or super().reduce(monoid, items)
        return super().reduce(monoid, value)


@lru_cache(maxsize=128)
def _operations(mp: Any, rounding: bool, loop: bool) -> Mapping[str, Callable[..., Any]]:
    return {**real_operations(mp, rounding), **_ieee(mp, loop)}


@lru_cache(maxsize=64)
def _ieee(mp: Any, loop: bool) -> Mapping[str, Callable[..., Any]]:
    nan, inf = mp.nan, mp.inf

    def div(a: Any, b: Any) -> Any:
        if b == 0:
            return mp.mpf(0) if loop else nan if a == 0 or mp.isnan(a) else inf * mp.sign(a)
        return nan if mp.isinf(a) and mp.isinf(b) else a / b

    def log(a: Any) -> Any:
        return -inf if a == 0 else nan if a < 0 or mp.isnan(a) else mp.log(a)

    def power(a: Any, b: Any) -> Any:
        if b == 0 or a == 1:
            return mp.mpf(1)
        if mp.isinf(b) and not mp.isnan(a):
            size = abs(a)
            return mp.mpf(1) if size == 1 else inf if (size > 1) == (b > 0) else mp.mpf(0)
        if a == 0 and b < 0:
            return inf
        return nan if a < 0 and not mp.isint(b) else a**b

    def floored(a: Any, b: Any) -> Any:
        if b == 0:
            return mp.mpf(0)
        if mp.isinf(b) and mp.isfinite(a):
            return mp.mpf(-1 if mp.sign(a) * b < 0 else 0)
        quotient = div(a, b)
        return mp.floor(quotient) if mp.isfinite(quotient) else quotient

    def remainder(a: Any, b: Any) -> Any:
        if b == 0:
            return mp.mpf(0)
        if mp.isnan(b) or not mp.isfinite(a):
            return nan
        if mp.isinf(b):
            return b if mp.sign(a) * b < 0 else a
        return a - b * floored(a, b)

    def extreme(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        return lambda a, b: nan if mp.isnan(a) or mp.isnan(b) else f(a, b)

    def bounded(f: Callable[[Any], Any], most: int, beyond: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda a: a if mp.isnan(a) else beyond(a) if abs(a) > most else f(a)

    def grows(a: Any) -> Any:
        return inf if a > 0 else mp.mpf(0)

    most = LARGEST_EXPONENT
    return {
        "sub": lambda a, b: nan if mp.isinf(b) and a == b else a - b,
        "mul": lambda a, b: nan if (mp.isinf(a) and b == 0) or (mp.isinf(b) and a == 0) else a * b,
        "div": div, "log": log, "log2": lambda a: log(a) / mp.log(2), "log1p": lambda a: log(1 + a), "pow": power,
        "sqrt": lambda a: nan if a < 0 or mp.isnan(a) else mp.sqrt(a), "max": extreme(max), "min": extreme(min),
        "exp": bounded(mp.exp, most, grows), "exp2": bounded(lambda a: mp.mpf(2) ** a, most, grows),
        "expm1": bounded(mp.expm1, most, lambda a: grows(a) - (a < 0)),
        "tanh": bounded(mp.tanh, most, mp.sign), "atan": mp.atan,
        "sin": bounded(mp.sin, LARGEST_ANGLE, lambda _: nan), "cos": bounded(mp.cos, LARGEST_ANGLE, lambda _: nan),
        "sign": lambda a: a if mp.isnan(a) else mp.sign(a), "idiv": floored, "imod": remainder,
    }


def has_conditions(fused: FusedCascade) -> bool:
    """Whether anything in a fused cascade is undefined somewhere, or selects."""
    found = (*(a.body for a in fused.accumulators), *(d.expr for d in fused.dependencies),
             *(e for _, e in (*fused.corrections, *fused.epilogue)), *(r.body for r in fused.cascade.reductions),
             *(p.expr for p in fused.cascade.producers))
    return any(isinstance(x, Op) and x.fn in _CONDITIONAL for e in found for x in walk(e))


_CONDITIONAL = frozenset({"div", "log", "log2", "log1p", "sqrt", "pow", "select", "eq", "ne", "lt", "le", "gt", "ge"})


def hard_streams(sampler: Sampler, segments: tuple[int, ...], rng: random.Random) -> Iterator[tuple[str, Stream]]:
    """Streams with a name each; they need not meet assumptions. Some have no first segment, being many.

    Raises
    ------
    Undefined
        when no stream meets the assumptions.
    """
    mp = context()
    total = sum(segments)
    first = segments[0]
    drawn = sampler.units(total)
    steering = Steering(sampler.skeleton)
    domain, units = sampler.domain, sampler.skeleton.units

    def stream(number: Callable[[int], Any], truth: Callable[[int], bool]) -> Stream:
        def element(unit: str, value: Any, i: int) -> Any:
            return truth(i) if isinstance(value, bool) else mp.mpf(domain.inside(units[unit], number(i)))

        def is_free(unit: str, value: Any) -> bool:
            return isinstance(value, tuple) and not domain.position(units[unit])

        plain = {k: tuple(element(k, v, i) for i, v in enumerate(value)) if is_free(k, value) else value
                 for k, value in drawn.values.items()}
        return steering.steered(Stream(plain, total), truth, rng)

    def few(_: int) -> int:
        return rng.choice(FEW)

    def positive(i: int) -> int:
        return rng.choice(FEW[2:]) if i else FEW[1]

    def alternating(i: int) -> int:
        return rng.choice(FEW[1:]) * (-1 if i % 2 else 1)

    def only(unit: str, dead: Callable[[int], bool], others: Callable[[int], int]) -> Stream:
        plain = stream(others, coin)
        number = mp.mpf(domain.inside(units[unit], 0))
        changed = tuple(number if dead(i) else v for i, v in enumerate(plain.values[unit]))
        return Stream({**plain.values, unit: changed}, total).part(0, sum(segments[1:]))

    def coin(_: int) -> bool:
        return rng.random() < 0.5

    yield "all elements 0 and nothing selected", stream(lambda i: 0, lambda i: False)
    yield "all elements 0", stream(lambda i: 0, lambda i: True)
    yield "all elements equal", stream(lambda i: 2, lambda i: True)
    if steering.conditions:
        yield "nothing selected", stream(few, lambda i: False)
    for unit in _alone(sampler.skeleton, drawn, rng):
        yield f"{unit} alone 0", only(unit, lambda i: True, positive)
        yield f"{unit} alone 0, and numbers of both signs", only(unit, lambda i: True, alternating)
        yield f"{unit} alone 0 in a prefix", only(unit, lambda i: i < segments[1], few)
    yield "a dead prefix", stream(lambda i: 0 if i < first else few(i), lambda i: i >= first)
    yield "few different numbers", stream(few, coin)


def _alone(skeleton: Skeleton, drawn: Stream, rng: random.Random) -> list[str]:
    """Some of the units that quotients, logarithms and conditions read, directly or by results: where only one of them
    is 0, what is divided by it is not."""
    free = [k for k, v in drawn.values.items() if isinstance(v, tuple) and not isinstance(v[0], bool)
            and not skeleton.domain.position(skeleton.units[k])]
    if len(free) < 2:
        return []
    bodies = {s.name: s.body for s in skeleton.stages}
    todo = [x.args[1] if x.fn == "div" else x.args[0] if x.fn == "select" else x
            for e in bodies.values() for x in walk(e) if isinstance(x, Op) and x.fn in _CONDITIONAL]
    read, seen = set[str](), set[str]()
    while todo:
        for x in walk(todo.pop()):
            if isinstance(x, Load):
                read.add(x.tensor)
            elif isinstance(x, Ref) and x.name in bodies and x.name not in seen:
                seen.add(x.name)
                todo.append(bodies[x.name])
    found = [k for k in free if k in read]
    return found if len(found) <= MOST_ALONE else rng.sample(found, MOST_ALONE)


def _is_empty(value: Parts, place: int) -> bool:
    """Whether a place of a sorted list was never filled: a result has no such place, so it may hold any value."""
    index = value.parts.get(INDEX)
    return VALUE in value.parts and index is not None and bool(index[place] == NOWHERE)


def agrees(found: Any, expected: Any, exact: float) -> bool:
    """Whether a result is what the definition gives: not a finite number exactly where that has none."""
    mp = context()
    if isinstance(expected, Parts):
        return all(agrees(a, b, exact) for p in expected.parts
                   for i, (a, b) in enumerate(zip(found.parts[p], expected.parts[p], strict=True))
                   if p == INDEX or not (_is_empty(found, i) and _is_empty(expected, i)))
    if not mp.isfinite(expected):
        return not mp.isfinite(found)
    return bool(mp.isfinite(found) and abs(found - expected) <= exact * (1 + abs(found) + abs(expected)))
