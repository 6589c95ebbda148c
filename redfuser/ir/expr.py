"""Expressions in index notation: one language for terms, fusions and tile programs.

An expression is a frozen tree. Structural equality is `==`; comparisons that *compute* (`<`, `<=`, ...) build
expressions, and equality that computes is `np.equal(a, b)`. NumPy ufuncs work on expressions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from redfuser.errors import TraceError
from redfuser.ir.node import Node, node
from redfuser.ir.ops import OPS

Number = int | float | Fraction


class Expr(Node):
    """Base of all expressions. Arithmetic and NumPy ufuncs on expressions build expressions."""

    __array_priority__ = 1000

    def __post_init__(self) -> None:
        hash(self)  # while those of its parts are known: later, a deep expression would need a deep stack

    def __add__(self, other: Any) -> Expr:
        return op("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return op("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return op("sub", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return op("sub", other, self)

    def __mul__(self, other: Any) -> Expr:
        return op("mul", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return op("mul", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return op("div", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return op("div", other, self)

    def __pow__(self, other: Any) -> Expr:
        return op("pow", self, other)

    def __rpow__(self, other: Any) -> Expr:
        return op("pow", other, self)

    def __neg__(self) -> Expr:
        return op("neg", self)

    def __abs__(self) -> Expr:
        return op("abs", self)

    def __lt__(self, other: Any) -> Expr:
        return op("lt", self, other)

    def __le__(self, other: Any) -> Expr:
        return op("le", self, other)

    def __gt__(self, other: Any) -> Expr:
        return op("gt", self, other)

    def __ge__(self, other: Any) -> Expr:
        return op("ge", self, other)

    def __and__(self, other: Any) -> Expr:
        return op("and", self, other)

    def __or__(self, other: Any) -> Expr:
        return op("or", self, other)

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
        return op(name, *inputs)

    def __array_function__(self, function: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Expr:
        if function is np.where and len(args) == 3 and not kwargs:
            return op("select", *args)
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


_UFUNC_TO_OP: dict[np.ufunc, str] = {o.numpy: o.name for o in OPS.values() if isinstance(o.numpy, np.ufunc)}
NEG_INF, POS_INF = Const(-math.inf), Const(math.inf)


def children(e: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions."""
    if isinstance(e, (Op, Tuple)):
        return e.args
    if isinstance(e, (Reduce, Cast, Part)):
        return (e.body,)
    extra = getattr(e, "idx", None)  # tile-level At
    return extra if extra is not None else ()


def with_children(e: Expr, new: tuple[Expr, ...]) -> Expr:
    """The same node over other subexpressions."""
    if new == children(e):
        return e
    if isinstance(e, Op):
        return Op(e.fn, new)
    if isinstance(e, Reduce):
        return Reduce(e.monoid, e.axis, new[0])
    if isinstance(e, Cast):
        return Cast(e.dtype, new[0])
    if isinstance(e, Part):
        return Part(e.part, e.axes, new[0])
    if isinstance(e, Tuple):
        return Tuple(new)
    return e.with_idx(new)  # type: ignore[attr-defined, no-any-return]


def walk(e: Expr) -> Iterator[Expr]:
    """Every distinct subexpression once, the root first: written out, an expression may be exponentially larger."""
    seen: set[Expr] = set()
    todo = [e]
    while todo:
        x = todo.pop()
        if x not in seen:
            seen.add(x)
            yield x
            todo.extend(reversed(children(x)))


def _mapped(e: Expr, before: Callable[[Expr], Expr | None], after: Callable[[Expr], Expr | None]) -> Expr:
    """Bottom-up map of every distinct subexpression. `before` may replace one whole; `after` sees it with its parts
    replaced. Without recursion: expressions are deep."""
    memo: dict[Expr, Expr] = {}
    todo = [e]
    while todo:
        x = todo[-1]
        if x in memo:
            todo.pop()
            continue
        whole = before(x)
        waiting = [c for c in children(x) if c not in memo] if whole is None else []
        if waiting:
            todo.extend(reversed(waiting))
            continue
        if whole is None:
            y = with_children(x, tuple(memo[c] for c in children(x)))
            changed = after(y)
            whole = y if changed is None else changed
        memo[todo.pop()] = whole
    return memo[e]


def _unchanged(_: Expr) -> None:
    return None


def rewrite(e: Expr, f: Callable[[Expr], Expr | None]) -> Expr:
    """Bottom-up map: `f` returns a replacement or None. Each distinct subexpression is rewritten once."""
    return _mapped(e, _unchanged, f)


def substitute(e: Expr, table: Mapping[Expr, Expr]) -> Expr:
    """Replace whole subexpressions (outermost match first)."""
    return _mapped(e, table.get, _unchanged)


def _noted(e: Expr, name: str, value: Callable[[Expr], Any]) -> Any:
    """What `value` says of a node, from what it says of its parts. Kept at every node, and found without recursion."""
    todo = [e]
    while todo:
        x = todo[-1]
        waiting = [] if name in x.__dict__ else [c for c in children(x) if name not in c.__dict__]
        if waiting:
            todo += waiting
            continue
        if name not in x.__dict__:
            object.__setattr__(x, name, value(x))
        todo.pop()
    return e.__dict__[name]


def free_axes(e: Expr) -> frozenset[str]:
    """Axes an expression depends on: those of its loads, indices and refs that no Reduce binds."""
    found: frozenset[str] | None = e.__dict__.get("_free_axes")
    return _noted(e, "_free_axes", _free_axes) if found is None else found


def _free_axes(e: Expr) -> frozenset[str]:
    if isinstance(e, (Load, Ref)):
        return frozenset(a for a in e.axes if isinstance(a, str))
    if isinstance(e, Idx):
        return frozenset((e.axis,))
    inner = frozenset[str]().union(*(c.__dict__["_free_axes"] for c in children(e)))
    if isinstance(e, Reduce):
        return inner - {e.axis}
    return inner | {a for a in e.axes if isinstance(a, str) and a != RANK} if isinstance(e, Part) else inner


def written_size(e: Expr) -> int:
    """The number of nodes of an expression when it is written out: what is shared counts every time it is read."""
    return _noted(e, "_size", lambda x: 1 + sum(c.__dict__["_size"] for c in children(x)))  # type: ignore[no-any-return]


def depth(e: Expr) -> int:
    """The number of nodes on the longest way down."""
    return _noted(e, "_depth", lambda x: 1 + max((c.__dict__["_depth"] for c in children(x)), default=0))  # type: ignore[no-any-return]


def refs(e: Expr) -> frozenset[str]:
    """Names of the definitions an expression reads."""
    return frozenset(x.name for x in walk(e) if isinstance(x, Ref))


def names_read(exprs: Iterable[Expr], definitions: Mapping[str, Expr]) -> frozenset[str]:
    """Names that expressions read, directly or through the given definitions of names."""
    found: set[str] = set()
    todo = list(exprs)
    while todo:
        new = refs(todo.pop()) - found
        found |= new
        todo += [definitions[n] for n in new if n in definitions]
    return frozenset(found)


def rename_axes(e: Expr, table: Mapping[str, str]) -> Expr:
    """Rename free axes. A bound axis that would capture a new name gets primes."""
    table = {a: b for a, b in table.items() if a != b}

    def leaf(x: Expr) -> Expr | None:
        if free_axes(x).isdisjoint(table):
            return x
        if isinstance(x, Load):
            return Load(x.tensor, tuple(table.get(a, a) if isinstance(a, str) else a for a in x.axes))
        if isinstance(x, Ref):
            return Ref(x.name, tuple(table.get(a, a) for a in x.axes))
        if isinstance(x, Idx):
            return Idx(table[x.axis])
        return _rename_bound(x, table) if isinstance(x, Reduce) else None

    def place(x: Expr) -> Expr | None:
        if not isinstance(x, Part):
            return None
        return Part(x.part, tuple(table.get(a, a) if isinstance(a, str) else a for a in x.axes), x.body)

    return _mapped(e, leaf, place)


def _rename_bound(e: Reduce, table: Mapping[str, str]) -> Expr:
    inner = {a: b for a, b in table.items() if a != e.axis and a in free_axes(e.body)}
    axis = e.axis
    while axis in inner.values():
        axis += "'"
    return Reduce(e.monoid, axis, rename_axes(e.body, {**inner, e.axis: axis}))
