"""The scratch of a tile: the tiles of contractions, weights, and the state of all its rows."""

from __future__ import annotations

import math

from redfuser.codegen.block import Row, Vector
from redfuser.codegen.levels import levels_of, state_dtype
from redfuser.codegen.lower import Env, Space
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf
from redfuser.codegen.parts import PLACE, list_length, state_shapes
from redfuser.codegen.tile_place import TilePlace
from redfuser.extract.choose import round_up
from redfuser.extract.decisions import DOT_COLUMNS, TileDecisions
from redfuser.extract.roles import Contraction, VectorSum
from redfuser.ir import Const, Expr, Var, op, substitute, walk
from redfuser.ir.term import base_axis

PAD = 16
"""State arrays and row operands come in multiples of this: whole vectors of any width."""


class TileState:
    """Buffers of one tile, and the `Row` that row loops work on.

    lanes : vector axis -> variable of its sweeps
    scratch : every local buffer of the phase
    """

    def __init__(self, space: Space, decisions: TileDecisions, place: TilePlace, names: Names) -> None:
        self.space, self.decisions, self.place, self.names = space, decisions, place, names
        self.roles, self.flat = decisions.roles, decisions.roles.flat
        self.vector_lanes = space.plan.profile.lanes(space.compute)
        self.scratch: list[Buf] = []
        self.homes = dict(decisions.in_output)
        self.tiles: dict[Expr, Buf] = {c.tile: self.local("tile", self._tile_shape()) for c in self.roles.contractions}
        self.tiles |= {i.tile: self.local("tile", self._tile_shape()) for i in self.roles.inner}
        depths = {c.tile: round_up(self.static(c.axis), PAD) for c in self.roles.contractions}
        dtype = decisions.units
        self.row_operands = {t: self.local("row_operand", (place.rows, depth), dtype) for t, depth in depths.items()}
        self.cells = self._row_state()
        self.matrices = {v.name: self._matrix(v) for v in self.roles.vectors if v.name not in self.homes}
        self.weights = self._weight_buffers()
        axes = dict.fromkeys(v.axis for v in self.roles.vectors)
        self.lanes = {a: names.integer(a) for a in axes}
        self.lane = names.fresh(self.flat.stream or "")
        self.row = self._row()

    def static(self, axis: str) -> int:
        """The length of an axis the kernel is specialised for."""
        return self.space.static[base_axis(axis)]

    def width(self, v: VectorSum) -> int:
        """Positions of the vector axis in one task, at most."""
        return self.decisions.span or self.static(v.axis)

    def local(self, base: str, shape: tuple[int, ...], dtype: str = "") -> Buf:
        """A new scratch buffer."""
        buf = Buf(self.names.fresh(base), tuple(map(Const, shape)), "local", dtype or self.space.compute)
        self.scratch.append(buf)
        return buf

    def _tile_shape(self) -> tuple[int, int]:
        """Columns hold whole register tiles and one more vector, which a sweep's tail may touch; of matrix units just
        the block."""
        if self.decisions.units:
            return self.place.rows, self.decisions.block
        multiple = math.lcm(DOT_COLUMNS, self.decisions.panel, self.vector_lanes)
        return self.place.rows, round_up(self.decisions.block + self.vector_lanes, multiple)

    def _row_state(self) -> dict[str, At]:
        """Arrays over the rows of the tile for state without a vector axis: name of a state cell -> the cell."""
        compute, rows = self.space.compute, round_up(self.place.rows, PAD)
        vectors = {v.name for v in self.roles.vectors}
        found: dict[str, At] = {}
        for a in self.flat.accumulators:
            if a.name not in vectors:
                for name, (shape, dtype) in state_shapes(a, compute, state_dtype(a, compute)).items():
                    buf = self.local(name, (rows, *([list_length(a.monoid)] if shape else [])), dtype)
                    found[name] = At(buf, (self.place.row_var, *([PLACE] if shape else [])))
        return found

    def _matrix(self, v: VectorSum) -> Buf:
        """Rows x vector axis, in whole panels."""
        return self.local(v.name, (self.place.rows, round_up(self.width(v), self.decisions.panel)))

    def vector_cell(self, v: VectorSum, r: Expr, d: Expr) -> At:
        """Element of a vector accumulator: of scratch, or of the output it becomes."""
        home = self.homes.get(v.name)
        if home is None:
            return At(self.matrices[v.name], (r, d))
        axes = next(o.axes for o in self.flat.outs if o.name == home)
        at = {**self.place.at_row(r), v.axis: d}
        return At(self.space.outs[home], tuple(at[a] for a in axes))

    def row_operand_at(self, c: Contraction, k: Expr) -> At:
        """Element `k` of a contraction's row operand at the current row."""
        return At(self.row_operands[c.tile], (self.place.row_var, k))

    # -------------------------------- weights

    def _weight_buffers(self) -> dict[Expr, Buf]:
        """One tile per distinct weight; a single one replaces a contraction's tile if nobody reads that later."""
        weights = list(dict.fromkeys(v.weight for v in self.roles.vectors))
        spent = [buf for tile, buf in self.tiles.items() if len(weights) == 1 and self._is_spent(tile, weights[0])]
        if spent:
            return {weights[0]: spent[0]}
        return {w: self.local("weight", self._tile_shape()) for w in weights}

    def _is_spent(self, tile: Expr, weight: Expr) -> bool:
        """Once the weight is stored, no sweep reads the tile except through the weight."""
        names = {v.name for v in self.roles.vectors}
        stored = False
        for levels in (levels_of(self.flat, p) for p in self.flat.passes):
            for level in levels:
                stored = stored or any(a.name in names for a in level.accumulators)
                scalars = [a.body for a in level.accumulators if a.name not in names]
                others = [substitute(body, {weight: Const(0.0)}) for body in scalars]
                if stored and any(tile in walk(e) for e in others):
                    return False
        return len(self.flat.passes) == 1

    # -------------------------------- the row

    def _row(self) -> Row:
        """The row of the tile that row loops work on, with its weights and vector state."""
        at = self.place.at_row(self.place.row_var)
        env = Env({**at, self.flat.stream or "": Var(self.lane)})
        row = Row(self.space, self.names, env, self.lane, lambda name: self.cells[name], scratch=self.scratch)
        for v in self.roles.vectors:
            width, lane = self.width(v), self.lanes[v.axis]
            extent = width if v.name in self.homes else round_up(width, self.vector_lanes)
            self.cells[v.name] = self.vector_cell(v, self.place.row_var, lane)
            weight = self._in_tile(self.weights[v.weight], Const(0))
            row.vectors[v.name] = Vector(lane.name, v.weight, weight, Const(extent))
        return row

    def _in_tile(self, buf: Buf, start: Expr) -> At:
        """The element of a tile at the current row and lane, in the block that starts at `start`."""
        return At(buf, (self.place.row_var, op("sub", Var(self.lane), start)))

    def enter_block(self, start: Expr) -> None:
        """Let the row's tile elements and weights lie relative to the start of a block."""
        self.row.env.given = {tile: self._in_tile(buf, start) for tile, buf in self.tiles.items()}
        for v in self.roles.vectors:
            old = self.row.vectors[v.name]
            weight = self._in_tile(self.weights[v.weight], start)
            self.row.vectors[v.name] = Vector(old.lane, old.weight, weight, old.extent)
