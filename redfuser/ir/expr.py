"""Expressions in index notation: one language for terms, fusions and tile programs.

An expression is a frozen tree. Structural equality is `==`; comparisons that *compute* (`<`, `<=`, ...) build
expressions, and equality that computes is `np.equal(a, b)`. NumPy ufuncs work on expressions.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from redfuser.errors import TraceError
from redfuser.ir.node import Node, node
from redfuser.ir.ops import COSTLY, OPS

Number = int | float | Fraction


class Expr(Node):
    """Base of all expressions. Arithmetic and NumPy ufuncs on expressions build expressions."""

    __array_priority__ = 1000

    def __post_init__(self) -> None:
        hash(self)  # while those of its parts are known: later, a deep expression would need a deep stack

    def __add__(self, other: Any) -> Expr:
        return _of_operands("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return _of_operands("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return _of_operands("sub", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return _of_operands("sub", other, self)

    def __mul__(self, other: Any) -> Expr:
        return _of_operands("mul", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return _of_operands("mul", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return _of_operands("div", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return _of_operands("div", other, self)

    def __pow__(self, other: Any) -> Expr:
        return _of_operands("pow", self, other)

    def __rpow__(self, other: Any) -> Expr:
        return _of_operands("pow", other, self)

    def __neg__(self) -> Expr:
        return op("neg", self)

    def __abs__(self) -> Expr:
        return op("abs", self)

    def __lt__(self, other: Any) -> Expr:
        return _of_operands("lt", self, other)

    def __le__(self, other: Any) -> Expr:
        return _of_operands("le", self, other)

    def __gt__(self, other: Any) -> Expr:
        return _of_operands("gt", self, other)

    def __ge__(self, other: Any) -> Expr:
        return _of_operands("ge", self, other)

    def __and__(self, other: Any) -> Expr:
        return _of_operands("and", self, other)

    def __or__(self, other: Any) -> Expr:
        return _of_operands("or", self, other)

    def __rand__(self, other: Any) -> Expr:
        return _of_operands("and", other, self)

    def __ror__(self, other: Any) -> Expr:
        return _of_operands("or", other, self)

    def __invert__(self) -> Expr:
        return op("not", self)

    def __bool__(self) -> bool:
        raise TraceError(
            f"the truth value of the expression {self} is unknown while the program is being built; "
            "use np.where instead of `if`"
        )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Expr:
        name = _UFUNC_TO_OP.get(ufunc)
        if ufunc is np.square and method == "__call__" and not kwargs:
            return op("mul", inputs[0], inputs[0])
        if method != "__call__" or kwargs or name is None:
            raise TraceError(f"np.{ufunc.__name__} (method {method}) has no meaning on the expression {self}")
        return _of_operands(name, *inputs)

    def __array_function__(self, function: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Expr:
        if function is np.where and len(args) == 3 and not kwargs:
            return op("select", computed(args[0]), *args[1:])
        raise TraceError(f"np.{function.__name__} has no meaning on the expression {self}; use arithmetic and ufuncs")

    def __str__(self) -> str:
        from redfuser.ir.show import show

        return show(self)

    __repr__ = __str__


@node
class Const(Expr):
    """A number. `Fraction` holds exact constants that the algebra folded."""

    value: Number

    def _key(self) -> tuple[Any, ...]:
        kind = "bool" if isinstance(self.value, (bool, np.bool_)) else "int" if isinstance(self.value, int) else "real"
        value: Any = self.value
        return ("Const", kind, "nan" if value != value else value)


@node
class Load(Expr):
    """The element of an input array at named axes; an entry that is an int is a fixed position."""

    tensor: str
    axes: tuple[str | int, ...] = ()


@node
class Idx(Expr):
    """The (integer) position along an axis."""

    axis: str


@node
class Size(Expr):
    """The (integer) length of an axis. In a cascade over that axis: the number of elements reduced so far."""

    axis: str


@node
class Op(Expr):
    """A scalar operation of `redfuser.ir.ops.OPS`."""

    fn: str
    args: tuple[Expr, ...]


@node
class Cast(Expr):
    """Conversion to a NumPy dtype, rounding as NumPy does."""

    dtype: str
    body: Expr


RANK = "@rank"
"""Within a `Tuple` that defines the sorted list of a top-k: the place being defined, read as an axis of `Part`."""


@node
class Part(Expr):
    """A part of a value that has several (`redfuser.ir.monoids`): the index of a maximum, the values of a top-k.

    `body` is the `Ref` (`Old`, `New`, `Reduce`) of such a value, which means nothing without this node. `axes` has an
    entry when the value is a sorted list: the name of the axis along it, or an int: a place in it.
    """

    part: str
    axes: tuple[str | int, ...]
    body: Expr


@node
class Tuple(Expr):
    """A value with several parts, given by one expression each, in the order of the monoid's parts."""

    args: tuple[Expr, ...]


@node
class Reduce(Expr):
    """(+)_{axis} body for a monoid of `redfuser.ir.monoids`. Binds `axis` in `body`."""

    monoid: str
    axis: str
    body: Expr


@node
class Ref(Expr):
    """The value of a definition (a let, a reduction, an accumulator, a dependency) at named axes."""

    name: str
    axes: tuple[str, ...] = ()


@node
class Old(Expr):
    """In corrections: the value of an accumulator or a dependency before the chunk."""

    name: str


@node
class New(Expr):
    """In corrections: the value of an accumulator or a dependency after the chunk."""

    name: str


@node
class Var(Expr):
    """Tile programs only: a local integer or scalar variable."""

    name: str


def wrap(value: Any) -> Expr:
    """An expression for a Python or NumPy scalar; expressions pass through.

    Raises
    ------
    TraceError
        if `value` is neither a scalar nor an expression.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, (bool, np.bool_)):
        return Const(bool(value))
    if isinstance(value, (int, np.integer)):
        return Const(int(value))
    if isinstance(value, Fraction):
        return Const(value)
    if isinstance(value, (float, np.floating)):
        return Const(float(value))
    raise TraceError(f"a {type(value).__name__} cannot be part of an expression; use rf.tensor for arrays")


def computed(value: Any) -> Any:
    """The value, unless it is what `==` says of two expressions.

    Raises
    ------
    TraceError
        for a bool.
    """
    if isinstance(value, (bool, np.bool_)):
        raise TraceError(f"{value} where an expression is expected: a == b and a != b tell how two expressions are "
                         "written; to compare their values use np.equal(a, b) and np.not_equal(a, b)")
    return value


def _of_operands(fn: str, *args: Any) -> Expr:
    """`fn(*args)` of what a user wrote."""
    return op(fn, *map(computed, args))


_INTEGER_FOLDS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "max": max,
    "min": min,
}


def op(fn: str, *args: Any) -> Expr:
    """Build `fn(*args)`; integer constants are folded."""
    exprs = tuple(wrap(a) for a in args)
    if len(exprs) != OPS[fn].arity:
        raise TypeError(f"{fn} takes {OPS[fn].arity} operands, not {len(exprs)}")
    fold = _INTEGER_FOLDS.get(fn)
    if fold is not None:
        values = [e.value for e in exprs if isinstance(e, Const) and type(e.value) is int]
        if len(values) == 2:
            return Const(fold(values[0], values[1]))
    return Op(fn, exprs)


def select(condition: Any, a: Any, b: Any) -> Expr:
    """`a` where the condition holds, else `b` (np.where on expressions)."""
    return op("select", condition, a, b)


SMALL_POWER = 4
"""Integer powers up to here are products, as in NumPy's fast paths."""


def small_power(exponent: Expr) -> int | None:
    """The exponent, where it makes the power a short product."""
    if not isinstance(exponent, Const):
        return None
    value = float(exponent.value)
    return int(value) if value.is_integer() and abs(value) <= SMALL_POWER else None


def is_costly(e: Expr) -> bool:
    """Is it a transcendental operation, worth computing once and keeping? A small power is none."""
    return isinstance(e, Op) and e.fn in COSTLY and not (e.fn == "pow" and small_power(e.args[1]) is not None)


_UFUNC_TO_OP: dict[np.ufunc, str] = {
    **{o.numpy: o.name for o in OPS.values() if isinstance(o.numpy, np.ufunc)},
    np.floor_divide: "idiv", np.remainder: "imod",
}
NEG_INF, POS_INF = Const(-math.inf), Const(math.inf)
