"""The scalar operations and the monoids of the term language: one table each, read by every level."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Kind = Literal["arith", "unary", "compare", "logic", "select", "integer"]


@dataclass(frozen=True)
class OpInfo:
    """What every level needs to know of one scalar operation."""

    name: str
    arity: int
    kind: Kind
    numpy: Callable[..., Any]
    symbol: str | None = None  # infix symbol for printing
    precedence: int = 9


def _select(condition: Any, a: Any, b: Any) -> Any:
    return np.where(condition, a, b)


def _of_never_positive(exponential: Callable[..., Any]) -> Callable[..., Any]:
    """An exponential that is undefined, here NaN, where it overflows."""

    def function(x: Any) -> Any:
        found = exponential(x)
        return np.where(np.isposinf(found), np.nan, found)[()]

    return function


def _by_zero_is_zero(integer: Callable[..., Any]) -> Callable[..., Any]:
    """A division of integers, also of whole numbers in a real dtype, as reductions of integers leave them."""

    def function(a: Any, b: Any) -> Any:
        found = integer(a, b)
        return np.where(np.equal(b, 0), 0, found) if np.asarray(found).dtype.kind == "f" else found

    return function


OPS: dict[str, OpInfo] = {
    o.name: o
    for o in (
        OpInfo("add", 2, "arith", np.add, "+", 4),
        OpInfo("sub", 2, "arith", np.subtract, "-", 4),
        OpInfo("mul", 2, "arith", np.multiply, "*", 5),
        OpInfo("div", 2, "arith", np.true_divide, "/", 5),
        OpInfo("pow", 2, "arith", np.power, "**", 7),
        OpInfo("max", 2, "arith", np.maximum),
        OpInfo("min", 2, "arith", np.minimum),
        OpInfo("neg", 1, "unary", np.negative, "-", 6),
        OpInfo("abs", 1, "unary", np.abs),
        OpInfo("sign", 1, "unary", np.sign),
        OpInfo("sqrt", 1, "unary", np.sqrt),
        OpInfo("exp", 1, "unary", np.exp),
        OpInfo("exp2", 1, "unary", np.exp2),
        OpInfo("exp_below", 1, "unary", _of_never_positive(np.exp)),
        OpInfo("exp2_below", 1, "unary", _of_never_positive(np.exp2)),
        OpInfo("expm1", 1, "unary", np.expm1),
        OpInfo("log", 1, "unary", np.log),
        OpInfo("log2", 1, "unary", np.log2),
        OpInfo("log1p", 1, "unary", np.log1p),
        OpInfo("tanh", 1, "unary", np.tanh),
        OpInfo("sin", 1, "unary", np.sin),
        OpInfo("cos", 1, "unary", np.cos),
        OpInfo("atan", 1, "unary", np.arctan),
        OpInfo("floor", 1, "unary", np.floor),
        OpInfo("ceil", 1, "unary", np.ceil),
        OpInfo("rint", 1, "unary", np.rint),
        OpInfo("lt", 2, "compare", np.less, "<", 3),
        OpInfo("le", 2, "compare", np.less_equal, "<=", 3),
        OpInfo("gt", 2, "compare", np.greater, ">", 3),
        OpInfo("ge", 2, "compare", np.greater_equal, ">=", 3),
        OpInfo("eq", 2, "compare", np.equal, "==", 3),
        OpInfo("ne", 2, "compare", np.not_equal, "!=", 3),
        OpInfo("and", 2, "logic", np.logical_and, "&", 2),
        OpInfo("or", 2, "logic", np.logical_or, "|", 1),
        OpInfo("not", 1, "logic", np.logical_not),
        OpInfo("select", 3, "select", _select),
        OpInfo("idiv", 2, "integer", _by_zero_is_zero(np.floor_divide), "//", 5),
        OpInfo("imod", 2, "integer", _by_zero_is_zero(np.mod), "%", 5),
    )
}
"""Operation name -> facts. Comparisons and logic give bool; `idiv` and `imod` divide integers, rounding
down, and give 0 where the divisor is 0. `exp_below` and `exp2_below` are exponentials of numbers that are never
positive but for rounding, or NaN: schedules put them in where they prove it (`redfuser.extract.exponents`)."""

BELOW = {"exp": "exp_below", "exp2": "exp2_below"}
"""Exponential -> the same of numbers that are never positive."""

COSTLY = frozenset(
    {"exp", "exp2", *BELOW.values(), "expm1", "log", "log2", "log1p", "tanh", "sin", "cos", "atan", "pow"}
)
"""Transcendental operations: worth computing once and keeping."""


def _least(value: Any, axis: int, keepdims: bool) -> Any:
    """The finite element of least magnitude, +inf where there is none, in the calling form of a NumPy reduction."""
    size = np.abs(value)
    if np.asarray(value).dtype.kind == "f":
        finite = size < np.inf
        size, value = np.where(finite, size, np.inf), np.where(finite, value, np.inf)
    kept = np.take_along_axis(value, np.argmin(size, axis=axis, keepdims=True), axis)
    return kept if keepdims else kept.squeeze(axis)


def nearer_zero(a: Any, b: Any) -> Any:
    """The combination of two pivots: that of smaller magnitude, the left one of two equal."""
    return np.where(np.abs(b) < np.abs(a), b, a)


def read_pivot(value: Any) -> Any:
    """A pivot as it is subtracted: 0 where no element gave one."""
    return np.where(np.isinf(value), 0, value) if np.asarray(value).dtype.kind == "f" else value


def label(monoid: str) -> str:
    """The name of a monoid as people read it: those of users carry a digest of their definition."""
    return monoid.partition("#")[0]


PIVOT = "pivot"
"""The monoid of numbers that data are shifted by."""


@dataclass(frozen=True)
class Monoid:
    """A reduction operator: an associative `combine` with its neutral element `identity`.

    `pivot` is the finite element of least magnitude (of x and -x the earlier). It has no scalar operation. Results do
    not depend on the value of a pivot, only their rounding does: a kernel takes the least of a few elements.
    """

    name: str
    identity: float
    combine: str  # scalar operation of two partial results
    reduce: Callable[..., Any]  # NumPy reduction of a whole axis


MONOIDS: dict[str, Monoid] = {
    m.name: m
    for m in (
        Monoid("sum", 0.0, "add", np.add.reduce),
        Monoid("prod", 1.0, "mul", np.multiply.reduce),
        Monoid("max", float("-inf"), "max", np.maximum.reduce),
        Monoid("min", float("inf"), "min", np.minimum.reduce),
        Monoid("any", 0.0, "or", np.logical_or.reduce),
        Monoid("all", 1.0, "and", np.logical_and.reduce),
        Monoid(PIVOT, float("inf"), PIVOT, _least),
    )
}
"""Monoid name -> facts. -inf is the true identity of max: it never becomes a finite sentinel."""
