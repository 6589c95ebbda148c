"""Expressions over the real numbers, evaluated at high precision.

The reference for sampling rules and for certificates. A value is a number, or a tuple of numbers: one per element of
the stream. Other axes do not exist here: every element of an array obeys the same scalar equation.

Masked elements are infinite: shifted by the extremum of nothing alive (as infinite as they are) they stay what they
are, so that e^(x - max x) of a masked x is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from itertools import repeat
from typing import Any

import numpy as np

from redfuser.ir import Cast, Const, Expr, Op, Part, PartsMonoid, Reduce, Size, Tuple, Var, find_parts
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.interpret import at_place
from redfuser.ir.monoids import left, right
from redfuser.ir.ops import PIVOT
from redfuser.rules.arithmetic import context
from redfuser.rules.language import ANY

Value = Any
"""A number of `redfuser.rules.arithmetic` (or bool), or a tuple of them along the stream."""


class Undefined(ArithmeticError):
    """The expression has no real value here: 1/0, log of a number <= 0, root of a negative one. Or none that could be
    computed in time: exponentials of huge numbers."""


LARGEST_EXPONENT = 10**5
LARGEST_ANGLE = 10**9


@lru_cache(maxsize=32)
def _scalar_ops(mp: Any) -> Mapping[str, Callable[..., Any]]:
    def number(found: Any, *args: Any) -> Any:
        """What was found of some operands: a number, if they are."""
        if found != found and all(a == a for a in args):
            raise Undefined("no number")
        return found

    def sub(a: Any, b: Any) -> Any:
        found = a - b
        return a if found != found and a == b else found

    def div(a: Any, b: Any) -> Any:
        if b == 0:
            raise Undefined("division by 0")
        return number(a / b, a, b)

    def log(a: Any) -> Any:
        if a <= 0:
            raise Undefined("log of a number <= 0")
        return mp.log(a)

    def sqrt(a: Any) -> Any:
        if a < 0:
            raise Undefined("root of a negative number")
        return mp.sqrt(a)

    def power(a: Any, b: Any) -> Any:
        if (a == 0 and b < 0) or (a < 0 and not mp.isint(b)):
            raise Undefined("power")
        found = number(a**b, a, b)
        if a and mp.isfinite(a) and mp.isfinite(b) and (mp.isinf(found) or not found):
            raise Undefined("power too large or too small")
        return found

    def bounded(f: Callable[[Any], Any], most: int) -> Callable[[Any], Any]:
        def apply(a: Any) -> Any:
            if abs(a) > most and not mp.isinf(a):
                raise Undefined("argument too large")
            return number(f(a), a)

        return apply

    return {
        "add": lambda a, b: number(a + b, a, b), "sub": sub, "mul": lambda a, b: number(a * b, a, b),
        "div": div, "pow": power, "max": max, "min": min, "neg": lambda a: -a, "abs": abs, "sign": mp.sign,
        "sqrt": sqrt, "exp": bounded(mp.exp, LARGEST_EXPONENT),
        "exp2": bounded(lambda a: mp.mpf(2) ** a, LARGEST_EXPONENT),
        "expm1": bounded(mp.expm1, LARGEST_EXPONENT), "log": log, "log2": lambda a: log(a) / mp.log(2),
        "log1p": lambda a: log(1 + a), "tanh": bounded(mp.tanh, LARGEST_EXPONENT),
        "atan": lambda a: number(mp.atan(a), a),
        "sin": bounded(mp.sin, LARGEST_ANGLE), "cos": bounded(mp.cos, LARGEST_ANGLE), "floor": mp.floor,
        "ceil": mp.ceil, "rint": mp.nint, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
        "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
        "and": lambda a, b: bool(a) and bool(b), "or": lambda a, b: bool(a) or bool(b), "not": lambda a: not a,
        "select": lambda c, a, b: a if c else b, "idiv": lambda a, b: mp.floor(div(a, b)) if b else mp.mpf(0),
        "imod": lambda a, b: a - b * mp.floor(div(a, b)) if b else mp.mpf(0),
    }


@lru_cache(maxsize=64)
def real_operations(mp: Any, rounding: bool, ieee: bool = True) -> Mapping[str, Callable[..., Any]]:
    """Operation -> its function of the numbers of a context; without `rounding`, rint is the identity.

    `ieee`: for those that replace what is undefined: the sum of opposite infinities, alone of what they keep, is NaN.
    """
    found = dict(_scalar_ops(mp))
    if not rounding:
        found["rint"] = lambda a: a
    if ieee:
        found["add"] = lambda a, b: a + b
    return found


class RealEvaluator:
    """Evaluates expressions whose units `lookup` knows.

    lookup    the value of a unit (load, ref, old, new, pattern variable), None for anything else
    length    number of elements of the stream
    start     position of the first of them
    rounding  False: rounding casts and rint are the identity (for laws that hold up to rounding); integers still wrap
    """

    def __init__(self, lookup: Callable[[Expr], Value | None], length: int, rounding: bool = True,
                 start: int = 0) -> None:
        self.mp = context()
        self.ops = self.operations(rounding)
        self.rounding = rounding
        self.lookup = lookup
        self.length = length
        self.start = start
        self.memo: dict[Expr, Value] = {}

    def operations(self, rounding: bool) -> Mapping[str, Callable[..., Any]]:
        """Operation -> its function of numbers."""
        return real_operations(self.mp, rounding, ieee=False)

    def __call__(self, e: Expr) -> Value:
        value = self.memo.get(e)
        if value is None:
            value = self.memo[e] = self._value(e)
        return value

    def _value(self, e: Expr) -> Value:
        if isinstance(e, Op):
            return self._map(self.ops[e.fn], *map(self, e.args))
        found = self.lookup(e)
        if found is not None:
            return found
        if isinstance(e, Const):
            return self._constant(e.value)
        if isinstance(e, Size):
            return self.mp.mpf(self.length)
        if isinstance(e, Cast):
            return self._map(lambda a: self._round(e.dtype, a), self(e.body))
        if isinstance(e, Reduce):
            return self.reduce(self._sampled(e.monoid), self(e.body))
        if isinstance(e, Part):
            return self._part(e)
        if isinstance(e, Tuple):
            return Elements(tuple(self(x) for x in e.args))
        raise TypeError(f"{type(e).__name__} {e} has no real value")

    def _constant(self, value: Any) -> Value:
        if isinstance(value, bool):
            return value
        if hasattr(value, "numerator") and not isinstance(value, float):
            return self.mp.mpf(int(value.numerator)) / int(value.denominator)
        return self.mp.mpf(float(value))

    def _round(self, dtype: str, a: Any) -> Any:
        target = numpy_dtype(dtype)
        if target.kind not in "iu":
            with np.errstate(over="ignore"):
                return self.mp.mpf(float(target.type(float(a)))) if self.rounding else a
        if not self.mp.isfinite(a):
            return self.no_integer()
        whole = a if not self.rounding else self.mp.floor(a) if a >= 0 else self.mp.ceil(a)
        info = np.iinfo(target)
        low, count = int(info.min), 2**info.bits
        return self.mp.mpf(whole if low - 1 < whole < low + count else
                           whole - self.mp.floor((whole - low) / count) * count)

    def no_integer(self) -> Any:
        """The value of a conversion to an integer type that has none: of NaN, or of an infinity."""
        raise Undefined("no integer")

    def _map(self, f: Callable[..., Any], *args: Value) -> Value:
        """`f` of numbers, element by element where an argument has elements."""
        for a in args:
            if isinstance(a, tuple):
                return tuple(map(f, *[a if isinstance(a, tuple) else repeat(a) for a in args]))
        return f(*args)

    def whole(self, monoid: str, e: Expr) -> Value:
        """A value of a reduction: when a `Tuple` defines it, part by part and place by place."""
        found = find_parts(monoid)
        if found is None or not isinstance(e, Tuple):
            return self(e)
        places = range(found.rank or 1)
        return Parts({p: tuple(self(at_place(x, r)) for r in places) for p, x in zip(found.parts, e.args, strict=True)})

    def _sampled(self, monoid: str) -> str:
        """The monoid that a pattern stands for in this sample: lists no longer than the stream."""
        return monoid.replace(ANY, "2" if self.length > 1 else "1")

    def _part(self, e: Part) -> Value:
        """A part of a value. Axes do not exist here: a place of a list is as good as any other."""
        places = self(e.body).parts[e.part]
        place = e.axes[0] if e.axes else 0
        if isinstance(place, int) and place >= len(places):
            raise Undefined("no such place")
        return places[place if isinstance(place, int) else self.length // 2 % len(places)]

    def elements(self, value: Value) -> tuple[Any, ...]:
        """One value per element of the stream."""
        return value if isinstance(value, tuple) else (value,) * self.length

    def reduce(self, monoid: str, value: Value) -> Value:
        """The reduction of one value per element over the stream."""
        parts = find_parts(monoid)
        if parts is not None:
            args = value.args if isinstance(value, Elements) else (value,)
            return self.reduce_parts(parts, [self.elements(a) for a in args])
        items = self.elements(value)
        if monoid == "sum":
            return self._number("add", self.mp.fsum(items), items)
        if monoid == "prod":
            return self._number("mul", self.mp.fprod(items), items)
        if monoid == PIVOT:
            return min(filter(self.mp.isfinite, items), key=abs, default=self.mp.inf)
        if monoid in ("any", "all"):
            return any(items) if monoid == "any" else all(items)
        return max(items) if monoid == "max" else min(items)

    def _number(self, fn: str, found: Any, items: tuple[Any, ...]) -> Any:
        """What was found of all items at once; where that is no number, what one after the other gives."""
        return found if found == found else reduce(self.ops[fn], items)

    def reduce_parts(self, monoid: PartsMonoid, elements: Sequence[tuple[Any, ...]]) -> Parts:
        """The reduction by a monoid with several parts; positions count from `start`."""
        if monoid.largest is not None:
            elements = [elements[0], tuple(self.mp.mpf(self.start + i) for i in range(self.length))]
        states = [Parts({p: (x,) for p, x in zip(monoid.parts, element, strict=True)})
                  for element in zip(*elements, strict=True)]
        return self.combine_parts(monoid, states)

    def combine_parts(self, monoid: PartsMonoid, states: Sequence[Parts]) -> Parts:
        """Values with several parts in one, in order."""
        nothing = Parts({p: (self.mp.mpf(x),) * (monoid.rank or 1)
                         for p, x in zip(monoid.parts, monoid.identity, strict=True)})
        if monoid.rank is not None:
            return self._best(monoid, [*states, nothing])
        return reduce(partial(self.pair, monoid), states, nothing)

    def pair(self, monoid: PartsMonoid, a: Parts, b: Parts) -> Parts:
        """Two values in one, `a` the earlier."""
        given: dict[Expr, Any] = {Var(left(p)): a.parts[p][0] for p in monoid.parts}
        given |= {Var(right(p)): b.parts[p][0] for p in monoid.parts}
        evaluate = RealEvaluator(by_table(given), 1)
        return Parts({p: (evaluate(e),) for p, e in zip(monoid.parts, monoid.combine, strict=True)})

    def _best(self, monoid: PartsMonoid, lists: Sequence[Parts]) -> Parts:
        value, index = monoid.parts
        places = [x for s in lists for x in zip(s.parts[value], s.parts[index], strict=True)]
        places.sort(key=lambda x: (x[1] < 0, -x[0] if monoid.largest else x[0], x[1]))
        kept = places[: monoid.rank]
        return Parts({value: tuple(v for v, _ in kept), index: tuple(i for _, i in kept)})


@dataclass(frozen=True)
class Parts:
    """A value with several parts: for each its numbers, one per place of a sorted list."""

    parts: Mapping[str, tuple[Any, ...]]

    def first(self, count: int) -> Parts:
        """The first places."""
        return Parts({p: places[:count] for p, places in self.parts.items()})


@dataclass(frozen=True)
class Elements:
    """The elements of a stream of values with several parts, part by part."""

    args: tuple[Value, ...]


def difference(a: Value, b: Value) -> Any:
    """Largest |a - b| relative to 1 + |a| + |b|, over the elements. NaN agrees with NaN."""
    mp = context()
    worst = mp.mpf(0)
    if isinstance(a, Parts):
        return max(difference(a.parts[p], b.parts[p]) for p in a.parts)
    for x, y in zip(*_paired(a, b), strict=True):
        if x == y or (x != x and y != y):
            continue
        gap = abs(x - y) / (1 + abs(x) + abs(y))
        worst = mp.inf if mp.isnan(gap) else max(worst, gap)
    return worst


def _paired(a: Value, b: Value) -> tuple[Sequence[Any], Sequence[Any]]:
    if not isinstance(a, tuple) and not isinstance(b, tuple):
        return (a,), (b,)
    n = len(a) if isinstance(a, tuple) else len(b)
    return (a if isinstance(a, tuple) else (a,) * n), (b if isinstance(b, tuple) else (b,) * n)


def by_table(table: Mapping[Expr, Value]) -> Callable[[Expr], Value | None]:
    """A lookup that reads a table."""
    return table.get
