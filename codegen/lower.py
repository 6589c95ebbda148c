"""From term expressions to tile expressions: loads become buffer elements, references become cells and variables.

Two guards of running values are applied here, both only where the value may still be that of an empty or dead prefix,
never to results of earlier passes, which are final:
a max (min) reads 0 while it is -inf (+inf), so that exp(-inf - max) is 0 and not NaN; a quotient by a running value
that is 0 reads 0. Where the block is the whole stream, a max that is subtracted reads 0 all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from redfuser.codegen.kinds import BOOL, INT, REAL, as_number, as_truth, kind_of
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf
from redfuser.codegen.parts import at_place, part_name
from redfuser.derivation.dead import alive
from redfuser.derivation.fusion import NOTHING
from redfuser.errors import CheckError
from redfuser.extract import Plan
from redfuser.extract.flatten import Flat
from redfuser.ir import (
    OPS,
    Cast,
    Const,
    Expr,
    Idx,
    Load,
    New,
    Old,
    Op,
    Part,
    Reduce,
    Ref,
    Size,
    Var,
    free_axes,
    op,
    select,
    walk,
)
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.monoids import VALUE, parts_monoid
from redfuser.ir.term import base_axis


class Space:
    """Facts of one kernel: buffers of its arrays, lengths of its axes, the compute dtype."""

    def __init__(self, plan: Plan, static: dict[str, int] | None = None) -> None:
        self.plan = plan
        self.flat = plan.flat
        self.compute = plan.dtype
        fixed = {base_axis(a.name): a.size for a in self.flat.axes if a.size is not None}
        self.static = {**fixed, **(static or {})}
        self.tensors = {t.name: self._array(t.name, t.axes, t.dtype) for t in self.flat.tensors}
        self.outs = {o.name: self._array(o.name, o.axes, o.dtype) for o in self.flat.outs}
        self.tensor_axes = {t.name: t.axes for t in self.flat.tensors}

    def _array(self, name: str, axes: tuple[str, ...], dtype: str) -> Buf:
        unit = self.plan.layout(name)
        shape = tuple(self.size(a) for a in axes)
        return Buf(name, shape, "global", dtype, axes.index(unit) if unit in axes else None)

    def size(self, axis: str) -> Expr:
        """Length of an axis: a constant where the kernel is specialised for it."""
        base = base_axis(axis)
        return Const(self.static[base]) if base in self.static else Size(base)

    def restricted(self, flat: Flat) -> Space:
        """The same kernel, seen from a part of its fusion."""
        part = copy(self)
        part.__dict__.pop("integers", None)
        part.flat = flat
        return part

    @cached_property
    def integers(self) -> dict[str, str]:
        """Dependencies that are conversions to integers -> the dtype."""
        return {d.name: d.expr.dtype for d in self.flat.dependencies
                if isinstance(d.expr, Cast) and numpy_dtype(d.expr.dtype).kind in "iu"}

    @property
    def sizes(self) -> tuple[str, ...]:
        """Axes whose length is a run-time argument."""
        bases = dict.fromkeys(base_axis(a.name) for a in self.flat.axes)
        return tuple(a for a in bases if a not in self.static)


@dataclass
class Env:
    """What names mean at one place of the program.

    axes : axis -> integer expression
    values : accumulator, part of one (`part_name`) or dependency -> its newest (or final) value
    shifts : max or min accumulator -> its value as an exponent shift, never the identity
    old : accumulator or dependency -> value before the block
    reduce : called for a reduction inside an expression, returns its value
    running : names whose values are those of a prefix: quotients by them are guarded
    """

    axes: dict[str, Expr]
    values: dict[str, Expr] = field(default_factory=dict)
    shifts: dict[str, Expr] = field(default_factory=dict)
    old: dict[str, Expr] = field(default_factory=dict)
    reduce: Callable[[Reduce, Env], Expr] | None = None
    running: frozenset[str] = frozenset()
    given: dict[Expr, Expr] = field(default_factory=dict)

    def at(self, **axes: Expr) -> Env:
        """The same place with other positions."""
        return replace(self, axes={**self.axes, **axes})

    def raw(self) -> Env:
        """The same values without guards: the definition's own arithmetic."""
        return replace(self, shifts={}, running=frozenset())


def lower(e: Expr, env: Env, space: Space, names: Names) -> Expr:
    """The tile expression of a term expression.

    Raises
    ------
    CheckError
        when the expression reads a name that has no value here.
    """
    return _Lowering(env, space, names).expr(e, False)


class _Lowering:
    def __init__(self, env: Env, space: Space, names: Names) -> None:
        self.env, self.space = env, space
        self.kinds = names.kinds
        self.memo: dict[tuple[Expr, bool], Expr] = {}

    def expr(self, e: Expr, shift: bool) -> Expr:
        """Lower `e`; `shift` tells that its value is subtracted from something."""
        key = (e, shift)
        if key not in self.memo:
            self.memo[key] = self.env.given[e] if e in self.env.given else self._lower(e, shift)
        return self.memo[key]

    def _lower(self, e: Expr, shift: bool) -> Expr:
        if isinstance(e, Const):
            return Const(float(e.value)) if isinstance(e.value, Fraction) else e
        if isinstance(e, Load):
            return self._load(e)
        if isinstance(e, Idx):
            return self.env.axes[e.axis]
        if isinstance(e, Size):
            return self.space.size(e.axis)
        if isinstance(e, (Ref, New)):
            return self._newest(e.name, shift)
        if isinstance(e, Old):
            return self._whole(e.name, self._named(self.env.old, e.name))
        if isinstance(e, Part):
            return self._part(e)
        if isinstance(e, (Var, At)):
            return e
        if isinstance(e, Cast):
            return self._cast(e.dtype, self.expr(e.body, False))
        if isinstance(e, Reduce):
            if self.env.reduce is None:
                raise CheckError(f"{e} cannot be evaluated here")
            value = self.env.reduce(e, self.env)
            return value
        if isinstance(e, Op):
            return self._operation(e, shift)
        raise CheckError(f"{type(e).__name__} has no place in a fusion")

    def _named(self, table: dict[str, Expr], name: str) -> Expr:
        if name not in table:
            raise CheckError(f"{self.space.flat.name}: {name} has no value here")
        return table[name]

    def _whole(self, name: str, value: Expr) -> Expr:
        """The value of a dependency that is a conversion to integers, as one: it is kept as a real number."""
        dtype = self.space.integers.get(name)
        return value if dtype is None or kind_of(value, self.kinds) == INT else Cast(dtype, value)

    def _newest(self, name: str, shift: bool) -> Expr:
        runs = name in self.env.running
        if (shift or runs) and name in self.env.shifts:
            return self.env.shifts[name]
        value = self._whole(name, self._named(self.env.values, name))
        a = self.space.flat.accumulator(name) if runs else None
        return value if a is None or a.monoid not in NOTHING else alive(value, a.monoid)

    def _part(self, e: Part) -> Expr:
        """A part of a state; of a list, the one at a place.

        In a prefix, the value of an empty place and of a masked element reads 0 (but for the list itself, which moves
        it as it is).
        """
        assert isinstance(e.body, (Ref, Old, New))
        table, name = self.env.old if isinstance(e.body, Old) else self.env.values, e.body.name
        place: Expr = Const(0)
        if e.axes:
            place = self.env.axes[e.axes[0]] if isinstance(e.axes[0], str) else Const(e.axes[0])
        value = at_place(self._named(table, part_name(name, e.part)), place)
        accumulator = self.space.flat.accumulator(name)
        runs = name in self.env.running and not isinstance(e.body, Old)
        if not runs or e.part != VALUE or accumulator is None:
            return value
        monoid = parts_monoid(accumulator.monoid)
        return value if monoid.largest is None else select(op("eq", value, monoid.identity[0]), 0.0, value)

    def _load(self, e: Load) -> Expr:
        indices: list[Expr] = []
        for a, axis in zip(e.axes, self.space.tensor_axes[e.tensor], strict=True):
            if isinstance(a, str):
                indices.append(self.env.axes[a])
            else:
                indices.append(Const(a) if a >= 0 else op("add", self.space.size(axis), a))
        return At(self.space.tensors[e.tensor], tuple(indices))

    def _cast(self, dtype: str, body: Expr) -> Expr:
        """Conversions between real types stay only where they round below the compute dtype."""
        kind = kind_of(body, self.kinds)
        if dtype == "bool":
            return as_truth(body, self.kinds)
        if numpy_dtype(dtype).kind in "iu":
            return Cast(dtype, body)
        if numpy_dtype(dtype).itemsize < numpy_dtype(self.space.compute).itemsize:
            return Cast(dtype, body)
        return body if kind == REAL else Cast(self.space.compute, body)

    def _operation(self, e: Op, shift: bool) -> Expr:
        args = [self.expr(a, s) for a, s in zip(e.args, _shift_positions(e, shift), strict=True)]
        group = OPS[e.fn].kind
        kinds, compute = self.kinds, self.space.compute
        if group == "logic":
            return op(e.fn, *(as_truth(a, kinds) for a in args))
        if group == "select":
            condition, a, b = as_truth(args[0], kinds), args[1], args[2]
            if kind_of(a, kinds) != kind_of(b, kinds):
                a, b = as_number(a, kinds, compute), as_number(b, kinds, compute)
            return select(condition, a, b)
        if group == "integer":
            return op(e.fn, *(_as_integer(a, kinds) for a in args))
        args = [as_number(a, kinds, compute) for a in args]
        real_result = e.fn == "div" or (group == "unary" and e.fn not in ("neg", "abs", "sign"))
        if real_result and all(kind_of(a, kinds) == INT for a in args):
            args = [Cast(compute, a) for a in args]
        value = op(e.fn, *args)
        if e.fn == "div" and self._runs(e.args[1]):
            return select(op("eq", args[1], 0.0), 0.0, value)
        return value

    def _runs(self, divisor: Expr) -> bool:
        """Does the divisor change along the stream through state only?"""
        if not self.env.running or self.space.flat.stream in free_axes(divisor):
            return False
        return any(isinstance(x, (Ref, Old, New)) and x.name in self.env.running for x in walk(divisor))


def _as_integer(e: Expr, kinds: Mapping[str, str]) -> Expr:
    """`e` as an operand of integer division: reductions of integers accumulate whole numbers in a real dtype."""
    return e if kind_of(e, kinds) == INT else Cast("int64", e)


def _shift_positions(e: Op, shift: bool) -> list[bool]:
    """For every operand: is it (part of) a value that is subtracted, or subtracted from?"""
    if e.fn in ("sub", "neg"):
        return [True] * len(e.args)
    if e.fn == "mul":
        negative = any(isinstance(a, Const) and a.value < 0 for a in e.args)
        return [shift or negative] * 2
    if e.fn == "add":
        return [shift] * 2
    if e.fn == "div":
        return [shift, False]
    if e.fn == "select":
        return [False, shift, shift]
    return [False] * len(e.args)


def is_truth(e: Expr, names: Names) -> bool:
    """True for bool expressions."""
    return kind_of(e, names.kinds) == BOOL
