"""What an expression is for certain, whatever finite numbers it reads: intervals that know about infinities.

A mask is worth leaving out of a loop only if the element that it puts in is the identity of the reduction whatever the
data are: exp(-inf - m) is 0, exp(-1e4 - m) is so for most m only. Leaves stand for finite numbers (a removed element
adds nothing even where they are not, see docs/numerics.md), divisors for numbers other than 0; functions are taken to
be defined where they are evaluated. Arithmetic is that of the reals: exp of a finite number is positive.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from redfuser.ir import OPS, Cast, Const, Expr, Idx, Load, Op, Size
from redfuser.ir.dtypes import numpy_dtype


@dataclass(frozen=True)
class Number:
    """One number, infinite ones included, where low == high; else a finite one of [low, high].

    `nonzero`: none of them is 0.
    """

    low: float
    high: float
    nonzero: bool = False

    @property
    def exact(self) -> bool:
        """Whether it is known."""
        return self.low == self.high

    @property
    def infinite(self) -> bool:
        """Whether it is an infinity."""
        return self.exact and math.isinf(self.low)

    @property
    def sign(self) -> int:
        """1 or -1 where all of them have that sign, else 0."""
        if self.low > 0 or (self.low == 0 and self.nonzero):
            return 1
        return -1 if self.high < 0 or (self.high == 0 and self.nonzero) else 0


Truth = frozenset[bool]
Known = Number | Truth | None
"""None: nothing is known, it may be NaN."""

ANY = Number(-math.inf, math.inf)
EITHER: Truth = frozenset((True, False))
LARGEST, SMALLEST = float(np.finfo(np.float64).max), float(np.finfo(np.float64).smallest_subnormal)
"""Bounds of exponentials that over- or underflow: finite and positive over the reals."""
_INCREASING = frozenset({"expm1", "tanh", "atan", "floor", "ceil", "rint", "log", "log2", "log1p", "sqrt"})
_EXPONENTIALS = frozenset({"exp", "exp2", "exp_below", "exp2_below"})


def certainly(e: Expr, value: float | bool, dtypes: Mapping[str, str]) -> bool:
    """Does `e` have this value whatever it reads? `dtypes`: of tensors."""
    found = _known(e, dtypes, {})
    if isinstance(found, frozenset):
        return found == {bool(value)} and value in (0, 1)
    return found is not None and found.exact and found.low == value


def _known(e: Expr, dtypes: Mapping[str, str], memo: dict[Expr, Known]) -> Known:
    if e not in memo:
        memo[e] = _of(e, dtypes, memo)
    return memo[e]


def _of(e: Expr, dtypes: Mapping[str, str], memo: dict[Expr, Known]) -> Known:
    if isinstance(e, Const):
        return frozenset((e.value,)) if isinstance(e.value, bool) else _exactly(float(e.value))
    if isinstance(e, Load):
        return EITHER if dtypes.get(e.tensor) == "bool" else ANY
    if isinstance(e, (Idx, Size)):
        return Number(0.0, math.inf)
    if isinstance(e, Cast):
        return _converted(_known(e.body, dtypes, memo), e.dtype)
    if not isinstance(e, Op):
        return ANY
    args = [_known(a, dtypes, memo) for a in e.args]
    kind = OPS[e.fn].kind
    if kind == "select":
        return _chosen(_truth(args[0]), args[1], args[2])
    if kind == "logic":
        return _logic(e.fn, [_truth(a) for a in args])
    numbers = [_number(a) for a in args]
    found = [n for n in numbers if n is not None]
    if len(found) < len(numbers):
        return EITHER if kind == "compare" else None
    if kind == "compare":
        return _compared(e.fn, *found)
    if e.fn == "div" and found[1].exact and found[1].low == 0:
        return None  # of an infinity of either sign: zeros have lost theirs
    if all(n.exact for n in found):
        return _computed(e.fn, [n.low for n in found])
    if e.fn == "mul" and e.args[0] == e.args[1]:
        return _square(found[0])
    return _BINARY[e.fn](*found) if e.fn in _BINARY else _unary(e.fn, found[0])


# ---- kinds of values


def _exactly(value: float) -> Known:
    return None if math.isnan(value) else Number(value, value, value != 0)


def _computed(fn: str, args: list[float]) -> Known:
    """The operation on known numbers. What overflows or underflows is finite, and not 0, over the reals."""
    try:
        with np.errstate(all="ignore", over="raise", under="raise"):
            return _exactly(float(OPS[fn].numpy(*map(np.float64, args))))
    except FloatingPointError:
        return Number(0.0, math.inf, True) if fn in _EXPONENTIALS else ANY


def _truth(a: Known) -> Truth:
    if isinstance(a, frozenset):
        return a
    if a is None:
        return EITHER
    if a.exact:
        return frozenset((a.low != 0,))
    return frozenset((True,)) if a.nonzero or a.sign else EITHER


def _number(a: Known) -> Number | None:
    return Number(float(min(a)), float(max(a)), min(a)) if isinstance(a, frozenset) else a


def _converted(a: Known, dtype: str) -> Known:
    if dtype == "bool":
        return _truth(a)
    n = _number(a)
    if n is None or numpy_dtype(dtype).kind not in "iu":
        return n
    if n.infinite:
        return None
    return _exactly(float(math.trunc(n.low))) if n.exact else ANY


def _chosen(condition: Truth, a: Known, b: Known) -> Known:
    if len(condition) == 1:
        return a if True in condition else b
    if isinstance(a, frozenset) and isinstance(b, frozenset):
        return a | b
    x, y = _number(a), _number(b)
    if x is None or y is None:
        return None
    if x == y:
        return x
    if x.infinite or y.infinite:
        return None
    return Number(min(x.low, y.low), max(x.high, y.high), x.nonzero and y.nonzero)


def _logic(fn: str, args: list[Truth]) -> Truth:
    function = OPS[fn].numpy
    return frozenset(bool(function(*given)) for given in itertools.product(*args))


# ---- comparisons


def _below(a: Number, b: Number) -> bool:
    """Is a < b for certain? A finite number lies between the infinities."""
    if a.high < b.low or (a.high == b.low == 0 and (a.nonzero or b.nonzero)):
        return True
    return (a.infinite or b.infinite) and not (a.infinite and b.infinite) and (a.high == -math.inf or b.low == math.inf)


def _at_most(a: Number, b: Number) -> bool:
    return _below(a, b) or a.high <= b.low


def _compared(fn: str, a: Number, b: Number) -> Truth:
    if fn in ("gt", "ge"):
        return _compared({"gt": "lt", "ge": "le"}[fn], b, a)
    if fn in ("eq", "ne"):
        same = a.exact and b.exact and a.low == b.low
        known = same or _below(a, b) or _below(b, a)
        return frozenset((same == (fn == "eq"),)) if known else EITHER
    yes, no = (_below(a, b), _at_most(b, a)) if fn == "lt" else (_at_most(a, b), _below(b, a))
    return frozenset((True,)) if yes else frozenset((False,)) if no else EITHER


# ---- arithmetic; at least one operand is not exact, hence finite


def _between(low: float, high: float, nonzero: bool = False) -> Number:
    """A finite number of [low, high]."""
    return Number(low, high, nonzero or low > 0 or high < 0)


def _add(a: Number, b: Number) -> Known:
    for n in (a, b):
        if n.infinite:
            return n
    return _between(a.low + b.low, a.high + b.high)


def _negative(a: Number) -> Number:
    return Number(-a.high, -a.low, a.nonzero)


def _mul(a: Number, b: Number) -> Known:
    for x, y in ((a, b), (b, a)):
        if x.exact and x.low == 0:
            return x
        if x.infinite:
            return _exactly(x.low * y.sign) if y.sign else None
    ends = [0.0 if 0 in (x, y) else x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return _between(min(ends), max(ends), a.nonzero and b.nonzero)


def _square(a: Number) -> Known:
    ends = (a.low * a.low, a.high * a.high)
    return _between(0.0 if a.low < 0 < a.high else min(ends), max(ends), a.nonzero)


def _div(a: Number, b: Number) -> Known:
    if b.infinite:
        return _exactly(0.0)
    if a.exact and a.low == 0:
        return a
    sign = _between(b.low, b.high, True).sign
    if a.infinite:
        return _exactly(a.low * sign) if sign else None
    both = a.sign * sign
    return _between(0.0 if both > 0 else -math.inf, 0.0 if both < 0 else math.inf, a.nonzero)


def _max(a: Number, b: Number) -> Known:
    for x, y in ((a, b), (b, a)):
        if x.infinite:
            return x if x.low > 0 else y
    return _between(max(a.low, b.low), max(a.high, b.high), 1 in (a.sign, b.sign) or (a.nonzero and b.nonzero))


def _min(a: Number, b: Number) -> Known:
    found = _max(_negative(a), _negative(b))
    return _negative(found) if isinstance(found, Number) else found


def _pow(a: Number, b: Number) -> Known:
    if a.infinite or b.infinite:
        return None
    if b.exact and b.low > 0 and b.low % 2 == 0:
        return _between(0.0, math.inf, a.nonzero)
    return _between(0.0, math.inf, True) if a.sign > 0 else ANY


def _whole(a: Number, b: Number) -> Known:
    return None if a.infinite or b.infinite else ANY


_BINARY: Mapping[str, Callable[[Number, Number], Known]] = {
    "add": _add, "sub": lambda a, b: _add(a, _negative(b)), "mul": _mul, "div": _div, "max": _max, "min": _min,
    "pow": _pow, "idiv": _whole, "imod": _whole,
}


def _unary(fn: str, a: Number) -> Known:
    if fn == "neg":
        return _negative(a)
    if fn == "abs":
        ends = (abs(a.low), abs(a.high))
        return _between(0.0 if a.low < 0 < a.high else min(ends), max(ends), a.nonzero)
    if fn == "sign":
        return _exactly(float(a.sign)) if a.sign else _between(-1.0, 1.0)
    if fn in ("sin", "cos"):
        return _between(-1.0, 1.0)
    if fn in _EXPONENTIALS:
        low, high = _applied(fn, a.low, 0.0), _applied(fn, a.high, math.inf)
        return _between(min(low, LARGEST), max(high, SMALLEST), True)
    if fn in _INCREASING:
        return _between(_applied(fn, a.low, -math.inf), _applied(fn, a.high, math.inf))
    return None


def _applied(fn: str, at: float, otherwise: float) -> float:
    """The function at a bound; `otherwise` where it is not defined there."""
    with np.errstate(all="ignore"):
        value = float(OPS[fn].numpy(at))
    return otherwise if math.isnan(value) else value
