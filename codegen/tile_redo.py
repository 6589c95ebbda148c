"""What a mask removes contributes nothing, NaN and infinities of the other operand included.

A matrix product multiplies removed elements by a weight of 0, and 0 * NaN is NaN. That costs nothing to repair where
all is finite: a row whose vector state ends finite met nothing else. A row whose state is not finite is summed again,
element by element, without the removed ones; a NaN or an infinity that the row does see comes back.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial, reduce

from redfuser.codegen.levels import levels_of, running
from redfuser.codegen.lower import Env, Space
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import For, If, LetInt, Put, Red, Stmt, Sweep
from redfuser.codegen.tile_inner import TileInner
from redfuser.codegen.tile_place import TilePlace
from redfuser.codegen.tile_state import TileState
from redfuser.extract.roles import VectorSum
from redfuser.ir import Const, Expr, Var, op


class Redo:
    """Statements for one row of a tile, after the loop over the stream."""

    def __init__(self, space: Space, place: TilePlace, state: TileState, names: Names, inner: TileInner) -> None:
        self.space, self.place, self.state, self.names, self.inner = space, place, state, names, inner
        self.roles, self.row, self.stream = state.roles, state.row, state.flat.stream or ""

    def statements(self, known: list[Stmt], lo: Expr, hi: Expr) -> list[Stmt]:
        """Look at the vector state of the row; sum it again where it is not finite.

        Parameters
        ----------
        known : bindings of the row's final values, needed only then
        lo, hi : the part of the stream that this task sees
        """
        out: list[Stmt] = []
        odd: list[Expr] = [self._is_odd(out, v) for v in self.roles.vectors]
        again = [*known, *(self._zero(v) for v in self.roles.vectors)]
        first, last = self.place.visible(self.place.row_var, self.place.row_var)
        start, end = self.names.integer("row_start"), self.names.integer("row_end")
        again.append(LetInt(start.name, op("max", first, lo) if self.place.bounded("lo") else lo))
        again.append(LetInt(end.name, op("min", last, hi) if self.place.bounded("hi") else hi))
        element = self.names.integer(self.stream)
        again.append(For(element.name, start, end, Const(1), tuple(self._element(element))))
        return [*out, If(reduce(partial(op, "or"), odd), tuple(again))]

    def _is_odd(self, out: list[Stmt], v: VectorSum) -> Var:
        """Does the row's state of `v` hold a NaN or an infinity?"""
        odd = self.names.scalar(f"{v.name}_odd", "bool")
        finite = op("lt", op("abs", self.row.cell(v.name)), math.inf)
        out.append(self._along(v, reds=(Red(odd.name, "any", op("not", finite)),)))
        return odd

    def _zero(self, v: VectorSum) -> Sweep:
        return self._along(v, puts=(Put(self.row.cell(v.name), Const(0.0)),))

    def _along(self, v: VectorSum, reds: tuple[Red, ...] = (), puts: tuple[Put, ...] = ()) -> Sweep:
        """A sweep along the vector axis."""
        lane = self.state.lanes[v.axis]
        return Sweep(lane.name, Const(0), self.place.width(v.axis), reds, puts)

    # -------------------------------- one element of the stream

    def _element(self, element: Var) -> list[Stmt]:
        """Add one element to every vector sum that its masks leave it to; equal masks are tested once."""
        groups: dict[tuple[tuple[str, ...], tuple[Expr, ...]], list[VectorSum]] = {}
        for v in self.roles.vectors:
            own = next(p for p in self.state.flat.passes if v.name in p)
            groups.setdefault((own, v.live), []).append(v)
        out: list[Stmt] = []
        for (own, live), vectors in groups.items():
            env = self._as_in(own, element)
            body: list[Stmt] = []
            here = self._with_contractions(body, env)
            for v in vectors:
                body += self._add(v, here)
            for condition in reversed(live):
                body = [If(self.row.lower(condition, env), tuple(body))]
            out += body
        return out

    def _as_in(self, own: tuple[str, ...], element: Var) -> Env:
        """The place of an element, its values guarded as in the loop of the pass of the accumulators `own`."""
        changing = running(levels_of(self.state.flat, own))
        shifts = {name: value for name, value in self.row.env.shifts.items() if name in changing}
        return replace(self.row.env.at(**{self.stream: element}), running=changing, shifts=shifts)

    def _with_contractions(self, out: list[Stmt], env: Env) -> Env:
        """The place of the element with its entries of the tiles, by sweeps of their own."""
        given: dict[Expr, Expr] = {}
        for c in self.roles.contractions:
            k = self.names.integer(c.axis)
            rows = self.state.row_operand_at(c, k)
            entry = self.names.scalar("entry", self.space.compute)
            operand = self.row.lower(c.operand, env.at(**{c.axis: k}))
            red = Red(entry.name, "sum", op("mul", rows, operand))
            out.append(Sweep(k.name, Const(0), self.space.size(c.axis), (red,)))
            given[c.tile] = entry
        for i in self.roles.inner:
            given[i.tile] = self.inner.entry(out, i, env)
        return replace(env, given=given) if given else env

    def _add(self, v: VectorSum, env: Env) -> list[Stmt]:
        """vector state += weight * operand at one element."""
        out: list[Stmt] = []
        weight = self.row.let(out, "weight", self.row.lower(v.weight, env), self.space.compute)
        lane = self.place.along(v.axis, self.state.lanes[v.axis])
        operand = self.row.lower(v.operand, env.at(**{v.axis: lane}))
        cell = self.row.cell(v.name)
        out.append(self._along(v, puts=(Put(cell, op("add", cell, op("mul", weight, operand))),)))
        return out
