"""Exponentials of numbers that are never positive: x less the maximum of x, the minimum of x less x, minus a square.

Kernels compute them without looking for overflow (`exp_below` and `exp2_below` of `redfuser.ir.ops`). No function is
known by name: what is proven follows from the order of the operations' results, what is not proven stays as it is.

An element is at most the maximum that it has entered. Bodies and outputs are evaluated nowhere else: bodies of a level
after the extrema below it have taken in the block, outputs on final values. Corrections and dependencies see older
values as well and are left alone, and no bound is taken from an extreme that is corrected itself: rounding may leave it
below its elements. An extreme of nothing alive reads 0, where all elements are infinite and the difference is too.

The difference of ordered numbers never rounds to a positive one. One value rounded in two ways may differ: c x less
the maximum of c x, as one fused multiply-add, is positive by up to the rounding of c x, which overflows e^x from
|c x| = 2^30 on. So the C printer rounds the products of such a difference before it is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from redfuser.derivation.fusion import Accumulator
from redfuser.extract.flatten import Flat
from redfuser.ir import (
    Cast,
    Const,
    Expr,
    Load,
    Op,
    Out,
    Reduce,
    Ref,
    children,
    free_axes,
    op,
    rewrite,
    walk,
)
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.ops import BELOW

PLAIN = {marked: plain for plain, marked in BELOW.items()}
MOST_QUESTIONS = 100
"""Questions asked for one exponential: a bound on time, and on depth."""
ONE = Const(1)


class Scaled(NamedTuple):
    """A finite factor, and what it multiplies."""

    factor: Fraction
    core: Expr

    def times(self, number: Fraction | int) -> Scaled:
        """The product with a number."""
        return Scaled(self.factor * number, self.core)

    def outer(self, extreme: str) -> str:
        """The extreme of which this is a multiple, where it is itself `extreme`: a negative factor turns it around."""
        return extreme if self.factor > 0 else {"max": "min", "min": "max"}[extreme]

    def operands(self, *functions: str) -> tuple[Scaled, ...]:
        """Multiples of the last two operands where the core is one of these functions, nothing otherwise."""
        if not isinstance(self.core, Op) or self.core.fn not in functions:
            return ()
        return tuple(scaled(x).times(self.factor) for x in self.core.args[-2:])

    def is_infinite(self, sign: int) -> bool:
        """Is it the infinity of this sign?"""
        return isinstance(self.core, Const) and self.core.value * self.factor * sign == math.inf


def scaled(e: Expr) -> Scaled:
    """`e` as a number times the rest."""
    factor = Fraction(1)
    while isinstance(e, Op):
        last = _number(e.args[-1])
        if e.fn == "neg":
            factor, e = -factor, e.args[0]
        elif e.fn == "div" and last:
            factor, e = factor / last, e.args[0]
        elif e.fn == "mul" and last is not None:
            factor, e = factor * last, e.args[0]
        elif e.fn == "mul" and (first := _number(e.args[0])) is not None:
            factor, e = factor * first, e.args[1]
        else:
            break
    number = _number(e)
    return Scaled(factor, e) if number is None else Scaled(factor * number, ONE)


def _number(e: Expr) -> Fraction | None:
    """The value of a finite constant."""
    return Fraction(e.value) if isinstance(e, Const) and math.isfinite(e.value) else None


def mark_exponents(flat: Flat) -> Flat:
    """The same fusion; in bodies and outputs, exponentials of what is never positive are marked as such."""
    exprs = [*(a.body for a in flat.accumulators), *(o.expr for o in flat.outs)]
    found = dict.fromkeys(x for e in exprs for x in walk(e) if isinstance(x, Op) and x.fn in BELOW)
    proven = {x for x in found if never_positive(x.args[0], flat)}
    if not proven:
        return flat

    def step(x: Expr) -> Expr | None:
        """`x` has its parts marked already."""
        if isinstance(x, Op) and x.fn in BELOW and rewrite(x, _unmarked) in proven:
            return op(BELOW[x.fn], *x.args)
        return None

    return replace(
        flat,
        accumulators=tuple(Accumulator(a.name, a.monoid, rewrite(a.body, step), a.axes) for a in flat.accumulators),
        outs=tuple(Out(o.name, o.axes, rewrite(o.expr, step), o.dtype) for o in flat.outs),
    )


def _unmarked(x: Expr) -> Expr | None:
    return op(PLAIN[x.fn], *x.args) if isinstance(x, Op) and x.fn in PLAIN else None


def never_positive(e: Expr, flat: Flat) -> bool:
    """Is `e`, read in a body or an output of the fusion, at most 0 or NaN wherever it is evaluated?"""
    return not _wraps(e, flat) and _Order(e, flat).has_sign(e, -1)


def _wraps(e: Expr, flat: Flat) -> bool:
    """Does `e` compute with integers that may wrap around? Those of conditions do not count."""
    whole = {t.name for t in flat.tensors if numpy_dtype(t.dtype).kind in "iu"}
    todo, seen = [e], {e}
    while todo:
        x = todo.pop()
        if isinstance(x, Load) and x.tensor in whole:
            return True
        if isinstance(x, Cast) and numpy_dtype(x.dtype).kind in "iu":
            return True
        if isinstance(x, Op) and x.fn in ("mul", "pow") and all(map(_is_of_positions, x.args)):
            return True
        read = x.args[1:] if isinstance(x, Op) and x.fn == "select" else children(x)
        todo += [c for c in read if c not in seen]
        seen.update(read)
    return False


def _is_of_positions(e: Expr) -> bool:
    """Is `e` computed from positions, lengths and integers alone?"""
    real = (x for x in walk(e) if isinstance(x, (Load, Ref)) or (isinstance(x, Const) and type(x.value) is not int))
    return next(real, None) is None


def _square_has_sign(a: Scaled, b: Scaled, sign: int) -> bool:
    """Is a b a multiple of a square, of this sign?"""
    return a.core == b.core and a.factor * b.factor * sign >= 0


class _Order:
    """What is known of the order of values inside one exponential; False stands for unknown."""

    def __init__(self, argument: Expr, flat: Flat) -> None:
        self.flat, self.axes = flat, free_axes(argument)
        self.asked = 0

    # -------------------------------- signs

    def has_sign(self, e: Expr, sign: int) -> bool:
        """Is `e` >= 0 (`sign` 1), or <= 0 (-1)?"""
        self.asked += 1
        if self.asked > MOST_QUESTIONS:
            return False
        if isinstance(e, Const):
            return e.value * sign >= 0
        if isinstance(e, Cast):
            return numpy_dtype(e.dtype).kind not in "biu" and self.has_sign(e.body, sign)
        if isinstance(e, Reduce):
            return e.monoid == "sum" and self.has_sign(e.body, sign)
        return isinstance(e, Op) and self._result_has_sign(e.fn, e.args[-2:], sign)

    def _result_has_sign(self, fn: str, args: tuple[Expr, ...], sign: int) -> bool:
        """As `has_sign`, of an operation (of a select: its alternatives)."""
        a, b = args[0], args[-1]
        if fn == "neg":
            return self.has_sign(a, -sign)
        if fn == "add":
            return self._differs(a, scaled(b).times(-1), sign) or self._all_have_sign(args, sign)
        if fn == "sub":
            return self._differs(a, scaled(b), sign) or (self.has_sign(a, sign) and self.has_sign(b, -sign))
        if fn == "mul":
            return _square_has_sign(scaled(a), scaled(b), sign) or any(
                self.has_sign(a, s) and self.has_sign(b, s * sign) for s in (1, -1)
            )
        if fn == "div":
            return isinstance(b, Const) and b.value != 0 and self.has_sign(a, sign if b.value > 0 else -sign)
        if fn == ("max" if sign > 0 else "min"):
            return any(self.has_sign(x, sign) for x in args)
        if fn in ("max", "min", "select"):
            return self._all_have_sign(args, sign)
        even = fn == "pow" and isinstance(b, Const) and b.value % 2 == 0
        return sign > 0 and (even or fn in ("abs", "sqrt", *BELOW))

    def _all_have_sign(self, args: tuple[Expr, ...], sign: int) -> bool:
        return all(self.has_sign(x, sign) for x in args)

    def _differs(self, a: Expr, b: Scaled, sign: int) -> bool:
        """Has a - b this sign?"""
        return self.at_most(b, scaled(a)) if sign > 0 else self.at_most(scaled(a), b)

    # -------------------------------- order

    def at_most(self, a: Scaled, b: Scaled) -> bool:
        """a <= b"""
        self.asked += 1
        return self.asked <= MOST_QUESTIONS and self._at_most(a, b)

    def _at_most(self, a: Scaled, b: Scaled) -> bool:
        if a == b or a.is_infinite(-1) or b.is_infinite(1):
            return True
        if a.factor == 0 or b.factor == 0:
            return self._signed(b, 1) if a.factor == 0 else self._signed(a, -1)
        if a.core == b.core:
            return self.has_sign(a.core, 1 if a.factor < b.factor else -1)
        return (
            self._by_branches(a, b)
            or any(self.at_most(a, x) for x in self._reached(b, "max"))
            or any(self.at_most(x, b) for x in self._reached(a, "min"))
        )

    def _signed(self, a: Scaled, sign: int) -> bool:
        return a.factor == 0 or self.has_sign(a.core, sign if a.factor > 0 else -sign)

    def _by_branches(self, a: Scaled, b: Scaled) -> bool:
        """Whatever `a` or `b` chooses among its operands."""
        mine, theirs = a.operands("select"), b.operands("select")
        alike = bool(mine and theirs) and children(a.core)[0] == children(b.core)[0]
        if alike and all(map(self.at_most, mine, theirs)):
            return True
        mine, theirs = a.operands("select", a.outer("max")), b.operands("select", b.outer("min"))
        return (bool(mine) and all(self.at_most(x, b) for x in mine)) or (
            bool(theirs) and all(self.at_most(a, x) for x in theirs)
        )

    def _reached(self, a: Scaled, extreme: str) -> Iterable[Scaled]:
        """Values that `a` is at least (`extreme` "max"), or at most ("min")."""
        kind, core = a.outer(extreme), a.core
        if isinstance(core, Reduce):  # at the position of the element
            return [scaled(core.body).times(a.factor)] if core.monoid == kind and core.axis in self.axes else []
        if isinstance(core, Op) and core.fn == "abs" and kind == "max":
            return [scaled(core.args[0]).times(a.factor * sign) for sign in (1, -1)]
        if not isinstance(core, Ref):
            return a.operands(kind)
        known = self._read(core.name, kind)
        return [] if known is None or _wraps(known, self.flat) else [scaled(known).times(a.factor)]

    def _read(self, name: str, extreme: str) -> Expr | None:
        """What a dependency equals, or the element at hand that has entered an extreme which was not moved since."""
        dependency, accumulator = self.flat.dependency(name), self.flat.accumulator(name)
        if dependency is not None:
            return dependency.expr
        if accumulator is None or accumulator.monoid != extreme or self.flat.stream not in self.axes:
            return None
        return accumulator.body if self.flat.correction(name) is None else None
