"""NumPy's elementwise operations as scalar expressions of the term language."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from redfuser.ir import Cast, Const, Expr, op, select
from redfuser.ir.dtypes import computed_in, is_float

Builder = Callable[[list[Expr], Sequence[str], str], Expr]
"""From operands, their dtypes and the result dtype to the expression."""


ONES = (Const(1), Const(1.0))
LARGEST_POWER = 64
"""Exponents up to which powers of integers are products."""


def numeric(e: Expr, dtype: str) -> Expr:
    """A truth value as 1 or 0; numbers stay."""
    return select(e, 1, 0) if dtype == "bool" else e


def cast_element(e: Expr, source: str, target: str) -> Expr:
    """Conversion between dtypes.

    Conversions that keep the value over the reals (integers to wider integers or to floats, a storage dtype to the one
    it is computed in) vanish: the term's arithmetic is over the reals. float32 <-> float64 and conversions that lose
    something stay.
    """
    if source == target:
        return e
    if target == "bool":
        return op("ne", e, 0)
    if source == "bool":
        return numeric(e, source)
    if is_float(source):
        return e if computed_in(source).name == target else Cast(target, e)
    keeps_value = is_float(target) or np.can_cast(source, target, "safe")
    return e if keeps_value else Cast(target, e)


def _plain(name: str) -> Builder:
    return lambda args, dtypes, _: op(name, *map(numeric, args, dtypes))


def _arithmetic(name: str, on_bool: str) -> Builder:
    """Arithmetic that NumPy defines as logic on bool."""

    def build(args: list[Expr], dtypes: Sequence[str], result: str) -> Expr:
        if result == "bool":
            return op(on_bool, *args)
        operands = list(map(numeric, args, dtypes))
        others = [e for e in operands if e not in ONES]  # w * np.ones_like(x) is w
        return others[0] if name == "mul" and len(others) == 1 else op(name, *operands)

    return build


def _logic(name: str) -> Builder:
    def build(args: list[Expr], dtypes: Sequence[str], _: str) -> Expr:
        return op(name, *(a if d == "bool" else op("ne", a, 0) for a, d in zip(args, dtypes, strict=True)))

    return build


def _exclusive_or(args: list[Expr], dtypes: Sequence[str], _: str) -> Expr:
    return op("ne", *(op("ne", numeric(a, d), 0) for a, d in zip(args, dtypes, strict=True)))


def _negative(args: list[Expr], dtypes: Sequence[str], _: str) -> Expr:
    value = args[0]
    return Const(-value.value) if isinstance(value, Const) and dtypes[0] != "bool" else op("neg", value)


def _power(args: list[Expr], dtypes: Sequence[str], result: str) -> Expr:
    """x ** 2 is x * x; integer powers stay powers; halves are roots, negative powers quotients."""
    base, exponent = (numeric(a, d) for a, d in zip(args, dtypes, strict=True))
    if not isinstance(exponent, Const):
        return op("pow", base, exponent)
    power = float(exponent.value)
    if power < 0 and is_float(result):
        return op("div", 1, _positive_power(base, -power))
    return _positive_power(base, power)


def _positive_power(base: Expr, power: float) -> Expr:
    simple = {0.0: Const(1), 0.5: op("sqrt", base), 1.0: base, 2.0: op("mul", base, base)}
    if power in simple:
        return simple[power]
    return op("pow", base, int(power) if power.is_integer() and power < 2**31 else power)


def _reciprocal(args: list[Expr], dtypes: Sequence[str], result: str) -> Expr:
    """Of integers rounded to zero: 1 and -1 are their own, that of 0 is left to chance by NumPy and 0 here."""
    x = numeric(args[0], dtypes[0])
    return op("div", 1, x) if is_float(result) else select(op("eq", op("abs", x), 1), x, 0)


def wrapped(name: str, args: list[Expr], dtypes: Sequence[str], result: str) -> Expr:
    """An elementwise operation whose value may leave the integer dtype of its result: the conversion wraps it around.

    It is opaque to the algebra, as a rounding is: laws of the reals hold for what is inside, not across it.
    """
    exponent = args[-1]
    if name == "power" and isinstance(exponent, Const) and 2 < exponent.value <= LARGEST_POWER:
        return _wrapped_power(numeric(args[0], dtypes[0]), int(exponent.value), result)
    value = UFUNCS[name](args, dtypes, result)
    if isinstance(value, Const):
        return Const(int(np.array(int(value.value), np.int64).astype(result)))
    return Cast(result, value)


def _wrapped_power(base: Expr, exponent: int, result: str) -> Expr:
    """A power by squaring: each product is exact, which the power itself need not be."""
    half = base if exponent < 4 else _wrapped_power(base, exponent // 2, result)
    square = Cast(result, op("mul", half, half))
    return Cast(result, op("mul", square, base)) if exponent % 2 else square


def _is_finite(args: list[Expr], dtypes: Sequence[str], _: str) -> Expr:
    return op("lt", op("abs", numeric(args[0], dtypes[0])), math.inf)


def _is_infinite(args: list[Expr], dtypes: Sequence[str], _: str) -> Expr:
    return op("eq", op("abs", numeric(args[0], dtypes[0])), math.inf)


def _is_nan(args: list[Expr], dtypes: Sequence[str], _: str) -> Expr:
    x = numeric(args[0], dtypes[0])
    return op("ne", x, x)


def _truncate(args: list[Expr], dtypes: Sequence[str], _: str) -> Expr:
    x = numeric(args[0], dtypes[0])
    return select(op("lt", x, 0), op("ceil", x), op("floor", x))


UFUNCS: dict[str, Builder] = {
    **{name: _plain(to) for name, to in {
        "subtract": "sub", "divide": "div", "sign": "sign", "sqrt": "sqrt", "exp": "exp", "exp2": "exp2",
        "expm1": "expm1", "log": "log", "log2": "log2", "log1p": "log1p", "tanh": "tanh", "sin": "sin", "cos": "cos",
        "floor": "floor", "ceil": "ceil", "rint": "rint", "less": "lt", "less_equal": "le", "greater": "gt",
        "greater_equal": "ge", "equal": "eq", "not_equal": "ne", "floor_divide": "idiv", "remainder": "imod",
        "fabs": "abs", "arctan": "atan",
    }.items()},
    "add": _arithmetic("add", "or"), "multiply": _arithmetic("mul", "and"), "maximum": _arithmetic("max", "or"),
    "minimum": _arithmetic("min", "and"), "logical_and": _logic("and"), "logical_or": _logic("or"),
    "logical_not": _logic("not"),
    "logical_xor": _exclusive_or,
    "absolute": lambda args, dtypes, result: args[0] if result == "bool" else op("abs", args[0]),
    "negative": _negative, "positive": lambda args, dtypes, _: args[0], "power": _power,
    "square": lambda args, dtypes, _: op("mul", args[0], args[0]),
    "reciprocal": _reciprocal,
    "log10": lambda args, dtypes, _: op("div", op("log", numeric(args[0], dtypes[0])), math.log(10)),
    "isnan": _is_nan, "isinf": _is_infinite, "isfinite": _is_finite, "trunc": _truncate,
}
"""Name of a NumPy ufunc -> its scalar expression."""
