"""Intervals of expressions, from what the caller guarantees of elements: rigorous enclosures by `mpmath.iv`.

Every interval holds for each element, and for each non-empty prefix of the stream where an expression reads results:
a running maximum lies between the bounds of its elements, a running mean too. Bounds are closed; whether a bound is
attained is a matter of signs (`redfuser.derivation.assumptions`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from redfuser.errors import AssumptionError
from redfuser.ir import (
    Cascade,
    Cast,
    Const,
    Expr,
    Idx,
    Load,
    Op,
    Reduce,
    Ref,
    Size,
    free_axes,
    rename_axes,
    show,
    walk,
)
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.ops import PIVOT

Interval = Any
"""An `mpmath.iv` number: a closed interval, infinite where nothing is known."""

LARGEST_EXPONENT = 10**6
"""The exponential of anything beyond counts as infinite or 0."""
_TRUTH = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not"})
_INVERSE = {"add": "sub", "sub": "add", "mul": "div", "div": "mul"}


def _context() -> Any:
    from mpmath import iv

    return iv


def interval(low: Any, high: Any) -> Interval:
    """[low, high]; "-inf" and "inf" for no bound.

    Raises
    ------
    AssumptionError
        when nothing lies between them: the caller's conditions contradict each other.
    """
    iv = _context()
    if iv.mpf(low).a > iv.mpf(high).b:
        raise AssumptionError(f"no number meets all conditions of assume: at least {low} and at most {high}")
    return iv.mpf([low, high])


def ends(a: Interval) -> tuple[Any, Any]:
    """Lower and upper bound as mpmath numbers."""
    from mpmath import mp

    low, high = a._mpi_
    return mp.make_mpf(low), mp.make_mpf(high)


def everywhere(e: Expr) -> str:
    """A key that expressions share which differ in the names of their axes only."""
    if isinstance(e, Load) and all(isinstance(a, str) for a in e.axes) and len(set(e.axes)) == len(e.axes):
        return e.tensor  # any element of the tensor
    free = free_axes(e)
    axes = [a for x in walk(e) for a in (x.axes if isinstance(x, (Load, Ref)) else (x.axis,) if isinstance(x, Idx)
                                         else ()) if a in free]
    return show(rename_axes(e, {str(a): f"@{i}" for i, a in enumerate(dict.fromkeys(axes))}))


class Intervals:
    """Intervals of the expressions of a cascade, the stream axis under its own name.

    `narrow` states what is known of an expression wherever it occurs; ask afterwards.
    """

    def __init__(self, cascade: Cascade) -> None:
        self.cascade = cascade
        self.definitions = {p.name: p.expr for p in cascade.producers}
        self.reductions = {r.name: r for r in cascade.reductions}
        self.dtypes = {t.name: t.dtype for t in cascade.tensors}
        self.known: dict[str, Interval] = {}
        self._memo: dict[Expr, Interval] = {}

    def __call__(self, e: Expr) -> Interval:
        """The interval of an expression."""
        found = self._memo.get(e)
        if found is None:
            found = self._structural(e)
            known = self.known.get(everywhere(e)) if self.known else None
            if known is None and isinstance(e, Load):
                known = self.known.get(e.tensor)
            found = self._memo[e] = found if known is None else _intersection(found, known)
        return found

    def narrow(self, e: Expr, low: Any, high: Any) -> None:
        """State that e lies in [low, high], and what follows for its operands."""
        given = interval(low, high)
        key = everywhere(e)
        self.known[key] = _intersection(given, self.known.get(key, given))
        self._memo.clear()
        if not isinstance(e, Op):
            return
        a, b = e.args[0], e.args[-1]
        if e.fn == "abs" and high >= 0:
            self.narrow(a, -high, high)
        elif e.fn == "neg":
            self.narrow(a, -high, -low)
        elif e.fn in _INVERSE and isinstance(b, Const) and b.value:
            self.narrow(a, *ends(_operations()[_INVERSE[e.fn]](given, self(b))))
        elif e.fn in ("add", "mul") and isinstance(a, Const) and a.value:
            self.narrow(b, *ends(_operations()[_INVERSE[e.fn]](given, self(a))))
        elif e.fn == "sub" and isinstance(a, Const):
            self.narrow(b, *ends(self(a) - given))

    def _structural(self, e: Expr) -> Interval:
        if isinstance(e, Const):
            return _constant(e.value)
        if isinstance(e, Size):
            return interval(1, "inf")
        if isinstance(e, Idx) or (isinstance(e, Load) and self.dtypes.get(e.tensor, "")[:1] == "u"):
            return interval(0, "inf")
        if isinstance(e, Cast):
            return _converted(e.dtype, self(e.body))
        if isinstance(e, Reduce):
            return _reduced(e.monoid, self(e.body))
        if isinstance(e, Ref) and e.name in self.definitions:
            return self(self.definitions[e.name])
        if isinstance(e, Ref) and e.name in self.reductions:
            return _reduced(self.reductions[e.name].monoid, self(self.reductions[e.name].body))
        return self._operation(e) if isinstance(e, Op) else interval("-inf", "inf")

    def _operation(self, e: Op) -> Interval:
        if e.fn in _TRUTH:
            return interval(0, 1)
        if e.fn == "select":
            return _hull(self(e.args[1]), self(e.args[2]))
        mean = self._mean(e)
        known = _operations().get(e.fn)
        if mean is not None or known is None:
            return interval("-inf", "inf") if mean is None else mean
        return known(*map(self, e.args))

    def _mean(self, e: Op) -> Interval | None:
        """A sum over the stream divided by the number of its elements lies where the elements lie; when the number is
        that of the whole row and the sum still runs (in a later pass), between that and 0."""
        total, length = e.args[0], e.args[-1]
        if e.fn != "div" or length != Size(self.cascade.axis or "") or not isinstance(total, Ref):
            return None
        r = self.reductions.get(total.name)
        return _hull(self(r.body), interval(0, 0)) if r is not None and r.monoid == "sum" else None


def _converted(dtype: str, body: Interval) -> Interval:
    """Of a value converted to a dtype; and of the value itself, for derivations may be allowed to move roundings."""
    from mpmath import mp

    if dtype == "bool":
        return interval(0, 1)
    kind = numpy_dtype(dtype)
    low, high = ends(body)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        inside = low >= info.min and high <= info.max
        truncated = (mp.floor(x) if x > 0 else mp.ceil(x) for x in (low, high))
        return _hull(body, interval(*truncated)) if inside else interval("-inf", "inf")
    with np.errstate(over="ignore"):
        return _hull(body, interval(*(float(kind.type(float(x))) for x in (low, high))))


def _constant(value: Any) -> Interval:
    iv = _context()
    if value != value:
        return interval("-inf", "inf")
    if isinstance(value, (bool, float)):
        return iv.mpf(float(value))
    return iv.mpf(int(value.numerator)) / int(value.denominator)


def _intersection(a: Interval, b: Interval) -> Interval:
    """What lies in both; `a` where they contradict each other: no data meet the conditions then."""
    (a_low, a_high), (b_low, b_high) = ends(a), ends(b)
    low, high = max(a_low, b_low), min(a_high, b_high)
    return interval(low, high) if low <= high else a


def _hull(a: Interval, b: Interval) -> Interval:
    (a_low, a_high), (b_low, b_high) = ends(a), ends(b)
    return interval(min(a_low, b_low), max(a_high, b_high))


def _reduced(monoid: str, body: Interval) -> Interval:
    """Of at least one element."""
    low, high = ends(body)
    if monoid in ("max", "min"):
        return body
    if monoid == PIVOT:
        return _hull(body, interval(0, 0))  # 0 where no element gave one
    if monoid == "sum":
        return interval(low if low >= 0 else "-inf", high if high <= 0 else "inf")
    if monoid == "prod" and low >= 0:
        return interval(low if low >= 1 else 0, high if high <= 1 else "inf")
    return interval("-inf", "inf")


@lru_cache(maxsize=1)
def _operations() -> Mapping[str, Callable[..., Interval]]:
    """Operation -> its interval from those of the operands."""
    from mpmath import mp

    iv = _context()

    def product(a: Interval, b: Interval) -> Interval:
        if a == 0 or b == 0:
            return iv.mpf(0)  # also of an unbounded interval: every number in it is finite
        low, high = ends(a * b)
        return interval(max(low, 0), high) if ends(a)[0] >= 0 and ends(b)[0] >= 0 else interval(low, high)

    def larger(a: Interval, b: Interval) -> Interval:
        (a_low, a_high), (b_low, b_high) = ends(a), ends(b)
        return interval(max(a_low, b_low), max(a_high, b_high))

    def exp(a: Interval) -> Interval:
        low, high = (max(min(x, LARGEST_EXPONENT), -LARGEST_EXPONENT) for x in ends(a))
        found = ends(iv.exp(interval(low, high)))
        return interval(found[0] if low == ends(a)[0] else 0, found[1] if high == ends(a)[1] else "inf")

    def nonnegative(a: Interval) -> Interval:
        low, high = ends(a)
        return interval(max(low, 0), max(high, 0))

    def log(a: Interval) -> Interval:
        domain = nonnegative(a)
        return iv.log(domain) if ends(domain)[1] > 0 else interval("-inf", "inf")

    def power(a: Interval, b: Interval) -> Interval:
        low, high = ends(b)
        if low == high and mp.isint(low) and abs(low) < 100:
            return a ** int(low) if low >= 0 else 1 / a ** int(-low)
        if ends(a)[0] > 0:
            return exp(product(b, log(a)))
        return interval(0 if ends(a)[0] >= 0 else "-inf", "inf")

    def odd_up_to(most: Any) -> Callable[[Interval], Interval]:
        def bounds(a: Interval) -> Interval:
            low, high = ends(a)
            return interval(0 if low >= 0 else -most, 0 if high <= 0 else most)

        return bounds

    def rounded(f: Callable[[Any], Any]) -> Callable[[Interval], Interval]:
        return lambda a: _hull(a, interval(*(x if mp.isinf(x) else f(x) for x in ends(a))))

    return {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": product, "div": lambda a, b: product(a, 1 / b),
        "pow": power, "neg": lambda a: -a, "abs": abs, "max": larger, "min": lambda a, b: -larger(-a, -b),
        "exp": exp, "exp2": lambda a: exp(product(a, iv.log(2))), "expm1": lambda a: exp(a) - 1,
        "log": log, "log2": lambda a: log(a) / iv.log(2), "log1p": lambda a: log(a + 1),
        "sqrt": lambda a: iv.sqrt(nonnegative(a)), "sin": iv.sin, "cos": iv.cos, "tanh": odd_up_to(1),
        "sign": odd_up_to(1), "atan": odd_up_to(1.5708), "floor": rounded(mp.floor), "ceil": rounded(mp.ceil),
        "rint": rounded(mp.nint),
    }
