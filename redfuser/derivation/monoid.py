"""Reduction operators of users: defined by how two values combine, their laws sampled before first use."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from redfuser.errors import ArgumentError, LawViolation, ShapeError, TraceError
from redfuser.frontend.record import promote
from redfuser.frontend.reductions import axis_tuple
from redfuser.frontend.tracer import Tracer, lift, recorder_of
from redfuser.ir import PartsMonoid, Var, walk, wrap
from redfuser.ir.monoids import KEY, VALUE, evaluate, left, register, right

Draw = Callable[[random.Random], Any]

SAMPLES = 60
DIGITS = 50
EXACT = 1e-30
"""Relative difference above which two real values differ."""
ROUNDED = 1e-6
"""The same in float64 arithmetic, relative to the largest value in play."""


@dataclass(frozen=True)
class UserMonoid:
    """A reduction operator made by `rf.monoid`: call it like a reduction of NumPy, in fused functions and outside.

    `definition` is what compiler levels read.
    """

    definition: PartsMonoid

    @property
    def name(self) -> str:
        """The name it was given."""
        return self.definition.label

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the parts of its values."""
        return self.definition.parts

    def __call__(self, *elements: Any, axis: int | tuple[int, ...] | None = -1, keepdims: bool = False) -> Any:
        """The reduction along an axis; several parts are given as several arrays, and a tuple of arrays comes back.

        Along several axes, or all with None, elements are taken in the order in which they lie in a C-contiguous array.

        Raises
        ------
        ShapeError
            for another number of arrays than there are parts, or an axis that does not exist.
        ArgumentError
            when the axis is no integer and no tuple of integers.
        """
        if len(elements) != len(self.parts):
            raise ShapeError(f"{self.name} takes {len(self.parts)} arrays ({', '.join(self.parts)}), not "
                             f"{len(elements)}")
        recorder = recorder_of(*elements)
        if recorder is None:
            found = self._reduced(elements, axis, keepdims)
        else:
            values = [lift(recorder, x) for x in elements]
            shape, dtype = recorder.common_shape(self.name, values), promote(*values)
            values = [recorder.broadcast(recorder.cast(v, dtype), shape) for v in values]
            for place in sorted(axis_tuple(Tracer(recorder, values[0]), axis), reverse=True):
                values = [recorder.parts(self.definition, values, place, p, keepdims) for p in self.parts]
            found = [Tracer(recorder, v) for v in values]
        return found[0] if len(found) == 1 else tuple(found)

    def _reduced(self, elements: Sequence[Any], axis: Any, keepdims: bool) -> list[Any]:
        dtype = np.result_type(*(x if isinstance(x, (bool, int, float)) else np.asarray(x) for x in elements))
        arrays: list[Any] = list(np.broadcast_arrays(*(np.asarray(x, dtype) for x in elements)))
        try:
            places = normalize_axis_tuple(range(arrays[0].ndim) if axis is None else axis, arrays[0].ndim, "axis")
        except ValueError as error:
            raise ShapeError(f"axis={axis!r} does not fit shape {arrays[0].shape}: {error}") from None
        except TypeError:
            raise ArgumentError(f"argument 'axis' of {self.name} is {axis!r}; give an int, a tuple of them, or "
                                "None") from None
        for place in sorted(places, reverse=True):
            value = self.definition.reduce(*arrays, axis=place)
            arrays = [value[p] if keepdims else value[p].squeeze(place) for p in self.parts]
        return arrays

    def __repr__(self) -> str:
        return f"<monoid {self.name}({', '.join(self.parts)})>"


def monoid(name: str, *, identity: Any, combine: Callable[[Any, Any], Any], parts: Sequence[str] = (VALUE,),
           commutative: bool = False, draw: Draw | None = None) -> UserMonoid:
    """Define a reduction operator.

    Parameters
    ----------
    name
        an identifier.
    identity
        the value that changes nothing: a number, or a tuple with one number per part.
    combine
        function of two values, the earlier one first; it is called once, with expressions (tuples of them when there
        are several parts), and uses arithmetic, NumPy ufuncs, and np.where in the place of `if`.
    parts
        names of the numbers a value consists of.
    commutative
        the order of elements does not matter: values may be combined in any order, which is faster.
    draw
        a function of a `random.Random` that returns a random value (a tuple when there are several parts), for
        operators that are defined for some numbers only.

    Raises
    ------
    LawViolation
        with a counterexample, when `combine` is not associative, `identity` is not neutral, or `commutative` is stated
        and false. Laws are sampled at random numbers in 50-digit and in float64 arithmetic.
    ArgumentError
        when `identity` or what `draw` returns are no numbers, or `draw` returns another number of them than of parts.
    TraceError
        when `combine` does anything that cannot be recorded, `identity` has another number of numbers than there are
        parts, or `name` and `parts` are no identifiers.
    """
    names = tuple(parts)
    if not all(x.isidentifier() for x in (name, *names)) or len(set(names)) != len(names):
        raise TraceError(f"argument 'name' or 'parts' of monoid {name!r} is no identifier, or a part is named twice")
    neutral = _numbers(name, "identity", identity)
    if len(neutral) != len(names):
        raise TraceError(f"argument 'identity' of monoid {name!r} has {len(neutral)} numbers for {len(names)} parts")
    given: list[Any] = [tuple(Var(side(p)) for p in names) for side in (left, right)]
    result = combine(*(x if len(names) > 1 else x[0] for x in given))
    combined = tuple(wrap(x) for x in _as_tuple(result))
    if len(combined) != len(names):
        raise TraceError(f"argument 'combine' of monoid {name!r} gives {len(combined)} values for {len(names)} parts")
    loose = {x for e in combined for x in walk(e) if isinstance(x, Var)} - {v for side in given for v in side}
    if loose:
        raise TraceError(f"argument 'combine' of monoid {name!r} reads {', '.join(map(str, loose))} from outside")
    text = f"{names} {neutral} {[repr(e) for e in combined]} {commutative}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    definition = PartsMonoid(f"{name}#{digest}", names, (KEY,) * len(names), neutral, combined,
                             ordered=not commutative)
    _check_laws(definition, draw or _any_numbers(len(names)))
    register(definition)
    return UserMonoid(definition)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _numbers(monoid: str, argument: str, value: Any) -> tuple[float, ...]:
    try:
        return tuple(map(float, _as_tuple(value)))
    except (TypeError, ValueError):
        raise ArgumentError(f"argument {argument!r} of monoid {monoid!r} gives {value!r}, which is no number and no "
                            "tuple of numbers") from None


def _any_numbers(count: int) -> Draw:
    """Random numbers of both signs and several magnitudes, zero and whole numbers among them."""
    def draw(rng: random.Random) -> tuple[float, ...]:
        return tuple(rng.choice((0.0, 1.0, -2.0, rng.gauss(0, 1), rng.gauss(0, 1), rng.gauss(0, 30)))
                     for _ in range(count))

    return draw


def _check_laws(m: PartsMonoid, draw: Draw) -> None:
    """Sample every law; LawViolation with the values that break it."""
    from redfuser.rules.arithmetic import precision
    from redfuser.rules.real import Undefined

    rng = random.Random(m.name)
    done = 0
    for _ in range(SAMPLES):
        values = [_numbers(m.label, "draw", draw(rng)) for _ in range(3)]
        for v in values:
            if len(v) != len(m.parts):
                raise ArgumentError(f"argument 'draw' of monoid {m.label!r} gives {len(v)} numbers for {len(m.parts)} "
                                    "parts")
        for arithmetic in (_Reals(m), _Floats(m)):
            try:
                with precision(DIGITS):
                    _sample(m, arithmetic, values)
            except Undefined:
                break
        else:
            done += 1
    if not done:
        raise LawViolation(f"monoid {m.label}: its combination is defined for none of {SAMPLES} random values; give "
                           "draw=, a function that returns values it is defined for", "defined", ())


def _sample(m: PartsMonoid, arithmetic: _Reals | _Floats, values: Sequence[tuple[float, ...]]) -> None:
    a, b, c = values
    f = arithmetic.combine
    for law, one, other, shown in _laws(m, f, a, b, c):
        if not arithmetic.same(one, other, shown):
            raise LawViolation(f"monoid {m.label} is not {law}: {_text(m, shown)} gives {_show(one)} and {_show(other)}"
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
