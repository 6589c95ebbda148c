"""Reductions inside expressions of a row schedule: computed by an inner sweep, per element of the stream.

An inner reduction that varies along the stream fills a row of scratch, one element after the other; one that does
not becomes a scalar. Equal reductions of one range are computed once.
"""

from __future__ import annotations

from dataclasses import replace

from redfuser.codegen.block import Row
from redfuser.codegen.kinds import BOOL, kind_of
from redfuser.codegen.levels import identity
from redfuser.codegen.lower import Env
from redfuser.codegen.nodes import At, Buf, For, Red, Set, Stmt, Sweep
from redfuser.ir import MONOIDS, Cast, Const, Expr, Reduce, Var, free_axes, op, refs


class Materialiser:
    """Evaluates inner reductions for the sweeps of one row.

    `extent` is the shape of a scratch row; `scratch` collects the buffers that were needed.
    """

    def __init__(self, row: Row, stream: str, extent: tuple[Expr, ...], scratch: list[Buf]) -> None:
        self.row, self.stream, self.extent, self.scratch = row, stream, extent, scratch
        self.done: dict[tuple[Reduce, tuple[object, ...]], Expr] = {}
        self.range: tuple[Expr, Expr] | None = None

    def env(self, out: list[Stmt], lo: Expr, hi: Expr) -> Env:
        """The row's environment; reductions met while lowering append their statements to `out`."""
        if self.range != (lo, hi):
            self.done, self.range = {}, (lo, hi)
        return replace(self.row.env, reduce=lambda e, env: self._value(e, env, out, lo, hi))

    def pivots(self, length: Expr) -> list[Stmt]:
        """The row's pivots, where nothing else in it is evaluated this way: elements of contractions one by one."""
        before, self.row.materialise = self.row.materialise, self.env
        body = self.row.read_pivots(self.row.space.flat.accumulators, length)
        self.row.materialise = before
        return body

    def _value(self, e: Reduce, env: Env, out: list[Stmt], lo: Expr, hi: Expr) -> Expr:
        lane = env.axes.get(self.stream)
        along = self.stream in free_axes(e) and lane == Var(self.row.lane)
        if not along:
            return self._scalar(e, env, out)
        key = e, tuple((n, env.values.get(n), env.shifts.get(n)) for n in sorted(refs(e)))
        if key not in self.done:
            probe: list[Stmt] = []
            element = self.row.names.integer(self.stream)
            value = self._scalar(e, env.at(**{self.stream: element}), probe)
            dtype = "bool" if kind_of(value, self.row.names.kinds) == BOOL else self.row.space.compute
            buf = Buf(self.row.names.fresh(f"{e.monoid}_{e.axis}"), self.extent, "local", dtype)
            self.scratch.append(buf)
            store = Set(At(buf, (op("sub", element, lo),)), value)
            out.append(For(element.name, lo, hi, Const(1), (*probe, store)))
            self.done[key] = At(buf, (op("sub", lane, lo),))
        return self.done[key]

    def _scalar(self, e: Reduce, env: Env, out: list[Stmt]) -> Expr:
        """The value at one position: a sweep over the inner axis, or a loop of sweeps when it is nested itself."""
        names, compute = self.row.names, self.row.space.compute
        var = names.integer(e.axis)
        truth = e.monoid in ("any", "all")
        inner: list[Stmt] = []
        nested = replace(env.at(**{e.axis: var}), reduce=lambda r, place: self._scalar(r, place, inner))
        body = self.row.lower(e.body, nested)
        if not truth and kind_of(body, names.kinds) == BOOL:
            body = Cast(compute, body)
        size = self.row.space.size(e.axis)
        result = names.scalar(f"{e.monoid}_{e.axis}", "bool" if truth else compute)
        if not inner:
            out.append(Sweep(var.name, Const(0), size, (Red(result.name, e.monoid, body),)))
            return result
        total = At(Buf(names.fresh("total"), (), "reg", names.dtypes[result.name]))
        update = Set(total, op(MONOIDS[e.monoid].combine, total, body))
        out += [Set(total, identity(e.monoid)), For(var.name, Const(0), size, Const(1), (*inner, update))]
        return total
