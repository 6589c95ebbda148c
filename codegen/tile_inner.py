"""Inner reductions of a tile that are no matrix products (distances): element by element, lanes on the stream.

Operands that all rows of the tile read are copied once per block, with the stream across. A row then fills its part of
the tile in sweeps that take several positions of the inner axis each, so that the tile is read and written seldom.
"""

from __future__ import annotations

from dataclasses import replace

from redfuser.codegen.indexing import LANE_PAD, ceil_div
from redfuser.codegen.kinds import as_number
from redfuser.codegen.lower import Env
from redfuser.codegen.nodes import At, Buf, For, Pack, Put, Red, Stmt, Sweep
from redfuser.codegen.operands import DEPTH, LANE, Operand
from redfuser.codegen.tile_state import TileState
from redfuser.extract.roles import Inner
from redfuser.ir import MONOIDS, Const, Expr, Load, Var, op

AT_ONCE = 8
"""Positions of the inner axis per sweep: their values of the row stay in registers."""


class TileInner:
    """Statements for the inner reductions of one tile."""

    def __init__(self, state: TileState) -> None:
        self.state, self.names, self.row = state, state.names, state.row
        self.roles, self.decisions = state.roles, state.decisions
        self.stream = state.flat.stream or ""
        self.copies: dict[tuple[Load, str], Buf] = {}
        for i in self.roles.inner:
            for x in i.operands:
                if x in self.decisions.packed:
                    self.copies[x, i.axis] = self._copy(x, i.axis)

    def _copy(self, x: Load, axis: str) -> Buf:
        columns = self.decisions.block + LANE_PAD
        return self.state.local(f"block_{x.tensor}", (self.state.static(axis), columns))

    def pack(self, b0: Expr, b1: Expr) -> list[Stmt]:
        """Copy the block [b0, b1) of every operand that is not read in place."""
        count, width = op("sub", b1, b0), self.decisions.panel
        out: list[Stmt] = []
        for (x, axis), buf in self.copies.items():
            operand = Operand(self.state.space, x, self.stream, axis, width)
            source = operand.in_place(self.state.place.positions)(op("add", b0, LANE), DEPTH)
            depth = Const(self.state.static(axis))
            out.append(Pack(At(buf, (DEPTH, LANE)), source, Const(0), ceil_div(count, width), count, depth, width))
        return out

    def fill(self, b0: Expr, lo: Expr, hi: Expr) -> list[Stmt]:
        """The elements [lo, hi) of the current row, in the block that begins with `b0`."""
        return [s for i in self.roles.inner for s in self._fill(i, b0, lo, hi)]

    def _fill(self, i: Inner, b0: Expr, lo: Expr, hi: Expr) -> list[Stmt]:
        depth, cell = self.state.static(i.axis), self.row.env.given[i.tile]
        assert isinstance(cell, At)
        first = min(depth, AT_ONCE)
        out: list[Stmt] = [self._sweep(i, cell, b0, lo, hi, [Const(k) for k in range(first)], None)]
        whole = depth // AT_ONCE * AT_ONCE
        if whole > first:
            k = self.names.integer(i.axis)
            positions = [op("add", k, n) for n in range(AT_ONCE)]
            body = (self._sweep(i, cell, b0, lo, hi, positions, cell),)
            out.append(For(k.name, Const(first), Const(whole), Const(AT_ONCE), body))
        if depth > max(whole, first):
            out.append(self._sweep(i, cell, b0, lo, hi, [Const(k) for k in range(whole, depth)], cell))
        return out

    def _sweep(self, i: Inner, cell: At, b0: Expr, lo: Expr, hi: Expr, positions: list[Expr],
               before: At | None) -> Sweep:
        """Combine the elements at some positions of the inner axis with what the tile holds."""
        values = [self._element(i, k, b0) for k in positions]
        combine = MONOIDS[i.tile.monoid].combine
        while len(values) > 1:  # pairwise: short chains
            pairs = [op(combine, a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
            values = [*pairs, *values[2 * len(pairs):]]
        value = values[0] if before is None else op(combine, before, values[0])
        return self.row.sweep(lo, hi, puts=(Put(cell, value),))

    def _element(self, i: Inner, k: Expr, b0: Expr) -> Expr:
        """What is reduced, at position `k` of the inner axis and the current lane."""
        env = self.row.env.at(**{i.axis: k})
        column = op("sub", Var(self.state.lane), b0)
        given: dict[Expr, Expr] = {
            x: At(buf, (k, column)) for (x, axis), buf in self.copies.items() if axis == i.axis
        }
        return self._number(i, replace(env, given=given))

    def _number(self, i: Inner, env: Env) -> Expr:
        return as_number(self.row.lower(i.tile.body, env), self.names.kinds, self.state.space.compute)

    def entry(self, out: list[Stmt], i: Inner, env: Env) -> Expr:
        """One element of a tile, by a sweep of its own along the inner axis."""
        k = self.names.integer(i.axis)
        entry = self.names.scalar("entry", self.state.space.compute)
        body = self._number(i, replace(env.at(**{i.axis: k}), given={}))
        out.append(Sweep(k.name, Const(0), self.state.space.size(i.axis), (Red(entry.name, i.tile.monoid, body),)))
        return entry
