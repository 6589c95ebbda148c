"""The laws of a reduction operator, sampled: associativity, its identity, the order of its operands."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from redfuser.errors import ArgumentError, LawViolation
from redfuser.ir import PartsMonoid
from redfuser.ir.monoids import evaluate, left, right

Draw = Callable[[random.Random], Any]
Value = tuple[float, ...]

SAMPLES = 60
DIGITS = 50
EXACT = 1e-30
"""Relative difference above which two real values differ."""
ROUNDED = 1e-6
"""The same in float64 arithmetic, relative to the largest value in play."""
SIMPLE = (0.0, 1.0, -1.0, 2.0, 0.5)
"""Numbers that a counterexample is made of where they break the law as well, simpler ones first."""
REDRAWN = 100
"""Further values among which the simplest that break a law are looked for, where only some values are allowed."""


def broken_law(m: PartsMonoid, draw: Draw | None = None, samples: int = SAMPLES,
               seed: int = 0) -> tuple[LawViolation | None, int]:
    """The first law that a sample breaks, on simple numbers (None when there is none), and the number of samples.

    Raises
    ------
    ArgumentError
        when what `draw` returns are no numbers, or another number of them than of parts.
    """
    rng = random.Random(f"{m.name}:{seed}" if seed else m.name)
    drawn = draw or any_numbers(len(m.parts))
    done = 0
    for _ in range(samples):
        found = _violation(m, _three(m, drawn, rng))
        if isinstance(found, LawViolation):
            return _simplest(m, found, draw, rng), done
        done += found
    if not done:
        return LawViolation(f"monoid {m.label}: its combination is defined for none of {samples} random values; give "
                            "draw=, a function that returns values it is defined for", "defined", ()), 0
    return None, done


def as_tuple(value: Any) -> tuple[Any, ...]:
    """Several values as a tuple, one as a tuple of one."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def numbers(monoid: str, argument: str, value: Any) -> Value:
    """One or several numbers as floats; ArgumentError for anything else."""
    try:
        return tuple(map(float, as_tuple(value)))
    except (TypeError, ValueError):
        raise ArgumentError(f"argument {argument!r} of monoid {monoid!r} gives {value!r}, which is no number and no "
                            "tuple of numbers") from None


def any_numbers(count: int) -> Draw:
    """Random numbers of both signs and several magnitudes, zero and whole numbers among them."""
    def draw(rng: random.Random) -> Value:
        return tuple(rng.choice((0.0, 1.0, -2.0, rng.gauss(0, 1), rng.gauss(0, 1), rng.gauss(0, 30)))
                     for _ in range(count))

    return draw


def _three(m: PartsMonoid, draw: Draw, rng: random.Random) -> list[Value]:
    values = [numbers(m.label, "draw", draw(rng)) for _ in range(3)]
    for v in values:
        if len(v) != len(m.parts):
            raise ArgumentError(f"argument 'draw' of monoid {m.label!r} gives {len(v)} numbers for {len(m.parts)} "
                                "parts")
    return values


def _violation(m: PartsMonoid, values: Sequence[Value]) -> LawViolation | bool:
    """The law that three values break; otherwise whether they gave it a value."""
    from redfuser.rules.arithmetic import precision
    from redfuser.rules.real import Undefined

    for arithmetic in (_Reals(m), _Floats(m)):
        try:
            with precision(DIGITS):
                _sample(m, arithmetic, values)
        except Undefined:
            return False
        except LawViolation as error:
            return error
    return True


def _simplest(m: PartsMonoid, found: LawViolation, draw: Draw | None, rng: random.Random) -> LawViolation:
    """The same law broken by simpler numbers, as far as some are found. Where the caller says which values there are,
    only those are tried."""
    shown: list[Value] = [as_tuple(v) for v in found.counterexample]
    values = shown + [m.identity] * (3 - len(shown))
    if draw is not None:
        further = (_violation(m, _three(m, draw, rng)) for _ in range(REDRAWN))
        same = [v for v in further if isinstance(v, LawViolation) and v.law == found.law]
        return min([found, *same], key=lambda v: len(str(v)))
    for i in range(len(shown)):
        for p in range(len(m.parts)):
            for number in SIMPLE:
                if values[i][p] == number:
                    break
                changed = [(*v[:p], number, *v[p + 1 :]) if k == i else v for k, v in enumerate(values)]
                again = _violation(m, changed)
                if isinstance(again, LawViolation) and again.law == found.law:
                    values, found = changed, again
                    break
    return found


def _sample(m: PartsMonoid, arithmetic: _Reals | _Floats, values: Sequence[Value]) -> None:
    a, b, c = values
    f = arithmetic.combine
    for law, one, other, shown in _laws(m, f, a, b, c):
        if not arithmetic.same(one, other, shown):
            results = [_show(x) for x in (one, other)]
            if results[0] == results[1]:  # they differ in later digits
                results = [", ".join(map(str, x)) for x in (one, other)]
            raise LawViolation(f"monoid {m.label} is not {law}: {_text(m, shown)} gives {' and '.join(results)}"
                               f"{arithmetic.where}", law, shown)


def _laws(m: PartsMonoid, f: Callable[..., Any], a: Any, b: Any,
          c: Any) -> Iterator[tuple[str, Any, Any, tuple[Any, ...]]]:
    """Name of the law, two values that must be equal, the values they are made of."""
    yield "associative", f(f(a, b), c), f(a, f(b, c)), (a, b, c)
    yield "neutral on the left of its identity", f(m.identity, a), a, (a,)
    yield "neutral on the right of its identity", f(a, m.identity), a, (a,)
    if not m.ordered:
        yield "commutative", f(a, b), f(b, a), (a, b)


def _text(m: PartsMonoid, values: Sequence[Any]) -> str:
    return ", ".join(f"{name} = {_show(v)}" for name, v in zip("abc", values, strict=False))


def _show(value: Sequence[Any]) -> str:
    numbers = [f"{float(x):.6g}" for x in value]
    return numbers[0] if len(numbers) == 1 else f"({', '.join(numbers)})"


class _Reals:
    """The combination over the reals."""

    where = ""

    def __init__(self, m: PartsMonoid) -> None:
        self.m = m

    def combine(self, a: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
        """Both values in one."""
        from redfuser.rules.arithmetic import context
        from redfuser.rules.real import Parts, RealEvaluator

        mp = context()
        states = [Parts({p: (mp.mpf(x),) for p, x in zip(self.m.parts, v, strict=True)}) for v in (a, b)]
        found = RealEvaluator(lambda _: None, 1).pair(self.m, *states)
        return tuple(found.parts[p][0] for p in self.m.parts)

    def same(self, a: Sequence[Any], b: Sequence[Any], _: Sequence[Any]) -> bool:
        """Whether two values are equal up to the last digits."""
        return all(x == y or abs(x - y) <= EXACT * (1 + abs(x) + abs(y)) for x, y in zip(a, b, strict=True))


class _Floats:
    """The combination in float64 arithmetic."""

    where = " in float64 arithmetic"

    def __init__(self, m: PartsMonoid) -> None:
        self.m = m
        self.largest = 1.0

    def combine(self, a: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
        """Both values in one."""
        given = {left(p): np.float64(x) for p, x in zip(self.m.parts, a, strict=True)}
        given |= {right(p): np.float64(x) for p, x in zip(self.m.parts, b, strict=True)}
        found = tuple(evaluate(e, given) for e in self.m.combine)
        self.largest = max([self.largest, *(abs(float(x)) for x in (*a, *b, *found) if np.isfinite(x))])
        return found

    def same(self, a: Sequence[Any], b: Sequence[Any], shown: Sequence[Any]) -> bool:
        """Whether two values are equal up to rounding; NaN is equal to nothing else. One value with the identity must
        not lose digits, however large the identity is."""
        scale = self.largest if len(shown) > 1 else max([1.0, *(abs(x) for x in shown[0])])
        return all((x != x and y != y) or x == y or abs(x - y) <= ROUNDED * scale for x, y in zip(a, b, strict=True))
