"""Bodies that visibly have a finite state, whatever a table of finite size says.

A sum of F(x, d) has one where F is a finite sum of products G(x) H(d): a moment of any degree, however its power is
written. A maximum has one where F is the largest of finitely many G(x) + H(d), or follows that in order: the largest L1
distance from a centroid is the largest of 2^k linear functions.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isfinite
from typing import Any

from redfuser.derivation.skeleton import reads_state
from redfuser.ir import Const, Expr, Op, free_axes
from redfuser.rules.language import STREAM

_PRODUCTS = frozenset({"mul", "div", "neg", "abs", "sqrt", "pow"})
_SUMS = frozenset({"add", "sub", "neg"})
_INCREASING = frozenset({"exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "tanh", "atan", "floor", "ceil",
                         "rint"})


def is_finite_sum(e: Expr) -> bool:
    """Whether an expression is visibly a finite sum of products G(x) H(d)."""
    return _Sums().finite(e)


def is_finite_extreme(e: Expr, largest: bool) -> bool:
    """Whether the largest (smallest) value of an expression visibly follows from those of finitely many G(x)."""
    return _Extremes().follows(e, largest)


class _Sums:
    """Expressions that were looked at, each once."""

    def __init__(self) -> None:
        self.known: dict[Expr, bool] = {}
        self.written: dict[Expr, dict[Expr, tuple[Fraction, bool]]] = {}

    def finite(self, e: Expr) -> bool:
        """Whether it is a finite sum of products."""
        if e not in self.known:
            self.known[e] = is_one_sided(e) or (isinstance(e, Op) and self._op(e))
        return self.known[e]

    def _op(self, e: Op) -> bool:
        if e.fn in _SUMS:
            return all(map(self.finite, e.args))
        if e.fn == "select":
            return is_one_sided(e.args[0]) and all(map(self.finite, e.args[1:]))
        if e.fn in ("exp", "exp2", "expm1", "sin", "cos"):
            return is_additive(e.args[0])
        if e.fn in ("log", "log2"):  # the sum of those of the factors
            return all(is_one_sided(b) or _exponent(b) is not None for b in self.factors(e.args[0]))
        if _exponent(e) is not None:
            return True
        factors = self.factors(e) if e.fn in _PRODUCTS else {e: (Fraction(1), True)}
        return e not in factors and all(self._power(b, p, signed) for b, (p, signed) in factors.items())

    def _power(self, base: Expr, power: Fraction, signed: bool) -> bool:
        """Whether |base|^power is one, with the sign of the base or without."""
        if is_one_sided(base) or _exponent(base) is not None:
            return True
        return power >= 0 and power.denominator == 1 and signed == bool(power % 2) and self.finite(base)

    def factors(self, e: Expr) -> dict[Expr, tuple[Fraction, bool]]:
        """`e` up to a sign of its own: base -> the power of its magnitude, and whether its sign counts."""
        if e not in self.written:
            self.written[e] = self._factors(e)
        return self.written[e]

    def _factors(self, e: Expr) -> dict[Expr, tuple[Fraction, bool]]:
        if not isinstance(e, Op) or e.fn not in _PRODUCTS:
            return {e: (Fraction(1), True)}
        first = self.factors(e.args[0])
        if e.fn == "neg":
            return first
        if e.fn == "abs":
            return {b: (p, False) for b, (p, _) in first.items()}
        if e.fn in ("sqrt", "pow"):
            power = Fraction(1, 2) if e.fn == "sqrt" else exact_number(e.args[1])
            if power is None:
                return {e: (Fraction(1), True)}
            odd = power.denominator == 1 and power % 2 == 1
            return {b: (p * power, s and odd) for b, (p, s) in first.items()}
        found = dict(first)
        for b, (p, s) in self.factors(e.args[1]).items():
            before, signed = found.get(b, (Fraction(0), False))
            found[b] = before + (p if e.fn == "mul" else -p), signed != s
        return found


class _Extremes:
    """Expressions that were looked at, each once."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, Expr, bool], bool] = {}

    def follows(self, e: Expr, largest: bool) -> bool:
        """Whether the extreme of `e` is a function of finitely many extremes of one-sided expressions."""
        return self._once(self._follows, e, largest)

    def pieces(self, e: Expr, largest: bool) -> bool:
        """Whether `e` is the largest (smallest) of finitely many sums of one-sided expressions."""
        return self._once(self._pieces, e, largest)

    def _once(self, test: Callable[[Expr, bool], bool], e: Expr, largest: bool) -> bool:
        key = test.__name__, e, largest
        if key not in self.known:
            self.known[key] = test(e, largest)
        return self.known[key]

    def _follows(self, e: Expr, largest: bool) -> bool:
        if self.pieces(e, largest):
            return True
        if not isinstance(e, Op):
            return False
        if e.fn in _INCREASING:
            return self.follows(e.args[0], largest)
        if e.fn == "neg":
            return self.follows(e.args[0], not largest)
        if e.fn in ("max", "min") and (e.fn == "max") == largest:
            return all(self.follows(x, largest) for x in e.args)
        if e.fn in ("add", "sub", "mul", "div"):
            return self._beside_results(e, largest)
        if e.fn in ("abs", "pow") and largest:
            power = Fraction(1) if e.fn == "abs" else exact_number(e.args[1])
            if power is not None and power.denominator == 1 and power > 0:
                inner = e.args[0]
                return self.follows(inner, True) and ((e.fn == "pow" and power % 2 == 1) or self.follows(inner, False))
        return False

    def _beside_results(self, e: Op, largest: bool) -> bool:
        """The extreme of what a result is added to, or that it scales."""
        a, b = e.args
        if STREAM not in free_axes(b):
            x, other = a, False
        elif STREAM not in free_axes(a) and e.fn != "div":
            x, other = b, e.fn == "sub"
        else:
            return False
        if e.fn in ("add", "sub"):
            return self.follows(x, largest != other)
        scale = exact_number(b if x is a else a)
        return all(self.follows(x, largest == up) for up in ((True, False) if scale is None else (scale >= 0,)))

    def _pieces(self, e: Expr, largest: bool) -> bool:
        if is_additive(e):
            return True
        if not isinstance(e, Op):
            return False
        if e.fn == "add":
            return all(self.pieces(x, largest) for x in e.args)
        if e.fn == "sub":
            return self.pieces(e.args[0], largest) and self.pieces(e.args[1], not largest)
        if e.fn == "neg":
            return self.pieces(e.args[0], not largest)
        if e.fn in ("max", "min"):
            return (e.fn == "max") == largest and all(self.pieces(x, largest) for x in e.args)
        if e.fn == "abs":
            return largest and self.pieces(e.args[0], True) and self.pieces(e.args[0], False)
        if e.fn in ("mul", "div"):
            a, b = e.args if e.fn == "div" or exact_number(e.args[1]) is not None else e.args[::-1]
            scale = exact_number(b)
            return scale is not None and self.pieces(a, largest == (scale >= 0))
        return False


def is_additive(e: Expr) -> bool:
    """Whether an expression is a sum of terms that each depend on the stream or on results, not on both."""
    if is_one_sided(e):
        return True
    if not isinstance(e, Op):
        return False
    if e.fn in _SUMS:
        return all(map(is_additive, e.args))
    if e.fn == "div":
        return exact_number(e.args[1]) is not None and is_additive(e.args[0])
    return e.fn == "mul" and any(exact_number(x) is not None for x in e.args) and all(map(is_additive, e.args))


def is_one_sided(e: Expr) -> bool:
    """Whether an expression depends on the stream or on results, not on both."""
    return STREAM not in free_axes(e) or not reads_state(e)


def exact_number(e: Expr) -> Fraction | None:
    """The value of a finite constant."""
    value: Any = e.value if isinstance(e, Const) else None
    if value is None or isinstance(value, bool) or not isfinite(value):
        return None
    return Fraction(value)


def _exponent(e: Expr) -> Expr | None:
    """Of a positive number to an exponent that is a sum of one-sided terms: that; any power of it is one again."""
    if not isinstance(e, Op):
        return None
    if e.fn in ("exp", "exp2"):
        found = e.args[0]
    elif e.fn == "pow" and (base := exact_number(e.args[0])) is not None and base > 0:
        found = e.args[1]
    else:
        return None
    return found if is_additive(found) else None
