"""The tile schedule: a tile of rows meets blocks of the stream; contractions and vector sums are matrix products.

for every tile of rows (a task):
    row operands of the contractions into scratch, state at its identity
    for every block of the stream that some row may see:
        tile = rows . operand                                  (matrix product over each contraction)
        other reductions that feed the stream, row by row      (see `tile_inner`)
        for every row: advance the state over the block, weights into the tile, vector state corrected
        vector state += weights . operand                      (matrix product over the stream)
    outputs

Where tiles are few, a task is a tile and a chunk of the stream, and partial states are merged (`tile_split`).
"""

from __future__ import annotations

from collections.abc import Iterable

from redfuser.codegen.indexing import LANE_PAD
from redfuser.codegen.levels import Level, levels_of
from redfuser.codegen.lower import Space
from redfuser.codegen.materialise import Materialiser
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf, For, LetInt, MatMul, Phase, Put, Stmt, Sweep
from redfuser.codegen.operands import Cell, Operand
from redfuser.codegen.passes.hoist import hoist
from redfuser.codegen.passes.prune import prune
from redfuser.codegen.passes.share import share
from redfuser.codegen.passes.unroll import unroll
from redfuser.codegen.tile_inner import TileInner
from redfuser.codegen.tile_outputs import output_value, store_output
from redfuser.codegen.tile_place import TilePlace
from redfuser.codegen.tile_redo import Redo
from redfuser.codegen.tile_split import TileSplit
from redfuser.codegen.tile_state import TileState
from redfuser.extract.choose import round_up
from redfuser.extract.decisions import TileDecisions
from redfuser.extract.plan_tiles import BLOCK, PANELS, PLACE
from redfuser.extract.roles import Contraction, VectorSum
from redfuser.ir import Const, Expr, Let, Out, Var, op
from redfuser.ir.ops import PIVOT

ROW, COLUMN, DEPTH = Var("i_"), Var("j_"), Var("k_")
"""Indices of a matrix product."""
Ahead = tuple[At, Expr]
"""A first element to prefetch, and the number of rows from there."""


def build_tiles(space: Space) -> tuple[tuple[Phase, ...], tuple[Buf, ...]]:
    """The phases (packing first) and the shared workspace of a tile schedule."""
    assert space.plan.tiles is not None
    decisions = space.plan.tiles
    space = space.restricted(decisions.roles.flat)
    workspace = Names([b.name for b in (*space.tensors.values(), *space.outs.values())])
    operands = _operands(space, decisions)
    packed: dict[Operand, Buf] = {}
    phases: list[Phase] = []
    for use, operand in operands.items():
        if decisions.operand(use).home == PANELS and operand not in packed:
            packed[operand] = buf = operand.panels(workspace.fresh(f"packed_{operand.load.tensor}"))
            phases.append(operand.pack_phase(buf, Names(workspace.taken)))
    split = TileSplit(space, decisions, workspace) if decisions.chunk else None
    phases.append(_TilePhase(space, decisions, operands, packed, Names(workspace.taken), split).phase())
    if split is None:
        return tuple(phases), tuple(packed.values())
    return (*phases, split.merge_phase()), (*packed.values(), *split.partial.values())


def _operands(space: Space, decisions: TileDecisions) -> dict[str, Operand]:
    """Use -> operand: one per contraction, then one per vector accumulator."""
    roles, stream = decisions.roles, decisions.roles.flat.stream or ""
    uses = {c.use: Operand(space, c.operand, stream, c.axis, decisions.panel) for c in roles.contractions}
    return uses | {v.name: Operand(space, v.operand, v.axis, stream, decisions.panel) for v in roles.vectors}


class _TilePhase:
    """Builds the main phase. `b0`, `b1` are the ends of the block whose loop is being built."""

    def __init__(
        self,
        space: Space,
        decisions: TileDecisions,
        operands: dict[str, Operand],
        packed: dict[Operand, Buf],
        names: Names,
        split: TileSplit | None = None,
    ) -> None:
        self.space, self.decisions, self.names, self.split = space, decisions, names, split
        self.operands, self.packed = operands, packed
        self.roles, self.flat = decisions.roles, decisions.roles.flat
        self.stream = self.flat.stream or ""
        self.place = TilePlace(space, decisions, names)
        self.state = TileState(space, decisions, self.place, names)
        self.row = self.state.row
        self.inner = TileInner(self.state)
        self.lo, self.hi = names.integer("lo"), names.integer("hi")
        self.b0, self.b1 = self.lo, self.hi  # until a loop over blocks is entered
        self.levels = [levels_of(self.flat, p) for p in self.flat.passes]
        self.block_panels: dict[Operand, Buf] = {}

    # -------------------------------- the phase

    def phase(self) -> Phase:
        """The task loop."""
        lo, hi = self.place.of_tile(self.decisions.block)
        body: list[Stmt] = [*self.place.before, *self._prologue()]
        body += [LetInt(self.lo.name, lo), LetInt(self.hi.name, hi)]
        body += [self._stream_loop(i, levels) for i, levels in enumerate(self.levels) if levels]
        body += self._redo()
        if self.split is None:
            body += self._outputs()
        else:
            body.append(self._rows_loop(self.split.stores(self.place, self.state)))
        cleaned = unroll(prune(tuple(body)), self.space.plan.profile, self.space.compute)
        loop = For(self.place.task.name, Const(0), self.place.total, Const(1), cleaned, "task")
        return Phase(loop, tuple(self.state.scratch))

    def _rows_loop(self, body: Iterable[Stmt], extent: Expr | None = None) -> For:
        count = self.place.count if extent is None else extent
        return For(self.place.row_var.name, Const(0), count, Const(1), tuple(body), "row")

    def _clean(self, body: list[Stmt]) -> tuple[Stmt, ...]:
        """Hoist, then share costly terms between the sweeps of one row."""
        hoisted = hoist(tuple(body), self.names, self.space.compute)
        extent = (Const(self.decisions.block + LANE_PAD),)
        shared = share(hoisted, self.state.lane, extent, self.names, self.space.compute)
        self.state.scratch += shared.scratch
        return shared.body

    def _prologue(self) -> list[Stmt]:
        """Row operands, identities, pivots; vector state to zero over all rows of the tile."""
        body: list[Stmt] = []
        for c in self.roles.contractions:
            k = self.names.integer(c.axis)
            value = self.row.lower(c.rows, self.row.env.at(**{c.axis: k}))
            put = Put(self.state.row_operand_at(c, k), value)
            body.append(Sweep(k.name, Const(0), self.space.size(c.axis), (), (put,)))
        body += self.row.start(self.flat.accumulators)
        body += Materialiser(self.row, self.stream, (), self.state.scratch).pivots(self.place.length)
        out: list[Stmt] = [self._rows_loop(hoist(tuple(body), self.names, self.space.compute))]
        return out + [self._zero(v) for v in self.roles.vectors]

    def _zero(self, v: VectorSum) -> For:
        """Vector state to zero: padded rows and columns too where it lies in scratch."""
        cell, vector = self.row.cell(v.name), self.row.vectors[v.name]
        in_scratch = v.name not in self.state.homes
        width = cell.buf.shape[1] if in_scratch else vector.extent
        sweep = Sweep(vector.lane, Const(0), width, (), (Put(cell, Const(0.0)),))
        return self._rows_loop([sweep], Const(self.place.rows) if in_scratch else None)

    # -------------------------------- one pass over the stream

    def _stream_loop(self, number: int, levels: list[Level]) -> For:
        """The loop over blocks of pass `number`."""
        end = self._enter_block(self.hi)
        row: list[Stmt] = []
        self._know_earlier(row, number)
        lo, hi = self._row_range(row)
        row += self.inner.fill(self.b0, lo, hi)
        row += self.row.advance(levels, lo, hi, op("gt", self.b0, self.lo))
        row += self._clear_weights(lo, hi)
        here = {a.name for level in levels for a in level.accumulators}
        products = [self._vector_product(v) for v in self.roles.vectors if v.name in here]
        tiles = (*self.inner.pack(self.b0, self.b1), *self._contractions(bounded=True))
        body = (end, *tiles, self._rows_loop(self._clean(row)), *products)
        return For(self.b0.name, self.lo, self.hi, Const(self.decisions.block), body)

    def _enter_block(self, end: Expr) -> LetInt:
        """New names for the ends of a block; the binding of its end."""
        self.b0, self.b1 = self.names.integer("b0"), self.names.integer("b1")
        self.state.enter_block(self.b0)
        return LetInt(self.b1.name, op("min", op("add", self.b0, self.decisions.block), end))

    def _know_earlier(self, row: list[Stmt], number: int) -> None:
        """In a row loop: pivots, and final values of the passes before `number`."""
        pivots = {a.name: self.row.cell(a.name) for a in self.flat.accumulators if a.monoid == PIVOT}
        self.row.env.values, self.row.env.shifts = dict(pivots), {}
        self.row.know(row, self._pivot_dependencies())
        for names, levels in zip(self.flat.passes[:number], self.levels[:number], strict=True):
            own = [a for a in self.flat.accumulators if a.name in names]
            self.row.finish(row, own, [d for level in levels for d in level.dependencies])
        if number < len(self.levels):
            self.row.next_pass()

    def _pivot_dependencies(self) -> list[Let]:
        """Dependencies that belong to no level: they hang on pivots only."""
        levelled = {d.name for levels in self.levels for level in levels for d in level.dependencies}
        return [d for d in self.flat.dependencies if d.name not in levelled]

    def _row_range(self, out: list[Stmt]) -> tuple[Expr, Expr]:
        """The part of the block this row may see, never negative."""
        if not self.roles.bounds:
            return self.b0, self.b1
        lo, hi = self.place.visible(self.place.row_var, self.place.row_var)
        first, last = self.b0, self.names.integer("row_end")
        if self.place.bounded("lo"):
            first = self.names.integer("row_start")
            out.append(LetInt(first.name, op("max", lo, self.b0)))
        out.append(LetInt(last.name, op("max", op("min", hi, self.b1), first)))
        return first, last

    def _clear_weights(self, lo: Expr, hi: Expr) -> list[Stmt]:
        """Zero the columns that this row must not see but its register tile multiplies: none of a tile of one row."""
        if not self.roles.bounds or self.decisions.mr == 1:
            return []
        mr = self.decisions.mr
        first, last = self.place.of_register_tile(op("mul", op("idiv", self.place.row_var, mr), mr))
        first, last = op("max", first, self.b0), op("min", last, self.b1)
        out: list[Stmt] = []
        for cell in dict.fromkeys(v.weight_cell for v in self.row.vectors.values()):
            put = Put(cell, Const(0.0))
            if self.place.bounded("lo"):
                out.append(Sweep(self.state.lane, first, op("min", lo, last), (), (put,)))
            if self.place.bounded("hi"):
                after = op("max", hi, first) if self.place.bounded("lo") else hi
                out.append(Sweep(self.state.lane, after, last, (), (put,)))
        return out

    def _redo(self) -> list[Stmt]:
        """Under a mask: vector state that is not finite, summed again over the elements that are not removed."""
        if not self.roles.repairs:
            return []
        again = Redo(self.space, self.place, self.state, self.names, self.inner)
        row: list[Stmt] = []
        self._know_earlier(row, len(self.levels))
        return [self._rows_loop(self._clean(again.statements(row, self.lo, self.hi)))]

    # -------------------------------- matrix products

    def _cell_of(self, use: str) -> tuple[Cell, list[Stmt]]:
        """How the block reads an operand, and the packing it needs first."""
        operand, home = self.operands[use], self.decisions.operand(use).home
        if home == PANELS:
            return operand.in_panels(self.packed[operand], self.place.positions), []
        if home == PLACE:
            return operand.in_place(self.place.positions), []
        assert home == BLOCK
        if operand not in self.block_panels:
            name = self.names.fresh(f"panels_{operand.load.tensor}")
            self.block_panels[operand] = operand.block_buffer(name, self.decisions.block)
            self.state.scratch.append(self.block_panels[operand])
        pack = operand.pack_block(self.block_panels[operand], self.place.positions, self.b0, self.b1)
        return operand.in_block(self.block_panels[operand], self.b0), [pack]

    def _bound(self, index: str) -> tuple[str, Expr | None, Expr | None]:
        """Restrict an index of a product to what its register tile of rows may see, relative to the block."""
        if not self.roles.bounds:
            return "", None, None
        lo, hi = self.place.of_register_tile(ROW)
        first = op("max", op("sub", lo, self.b0), 0) if self.place.bounded("lo") else Const(0)
        return index, first, op("min", op("sub", hi, self.b0), op("sub", self.b1, self.b0))

    def _contractions(self, bounded: bool) -> list[Stmt]:
        """Every tile = rows . operand."""
        return [s for c in self.roles.contractions for s in self._contraction(c, bounded)]

    def _contraction(self, c: Contraction, bounded: bool) -> list[Stmt]:
        """tile = rows . operand, in slices of the depth that keep a panel in the level-1 cache."""
        d = self.decisions
        cell, out = self._cell_of(c.use)
        depth, form = self.state.static(c.axis), d.operand(c.use).form
        bound = self._bound("j") if bounded and not d.units else ("", None, None)
        for start in range(0, depth, d.slice_):
            k = op("add", DEPTH, start) if start else DEPTH
            dst, a = At(self.state.tiles[c.tile], (ROW, COLUMN)), At(self.state.row_operands[c.tile], (ROW, k))
            b, size = cell(op("add", self.b0, COLUMN), k), op("sub", self.b1, self.b0)
            slice_ = Const(min(d.slice_, depth - start))
            ahead = self._vector_rows_ahead() if start == 0 and c == self.roles.contractions[0] else ()
            shape = (self.place.count, size, slice_, d.mr, d.columns(c.use), form)
            out.append(MatMul(dst, a, b, *shape, start > 0, *bound, ahead, d.units))
        return out

    def _vector_product(self, v: VectorSum) -> MatMul:
        """vector state += weights . operand, over the block."""
        d = self.decisions
        cell, _ = self._cell_of(v.name)
        width = self.state.static(v.axis)
        padded = d.operand(v.name).home == PANELS and v.name not in self.state.homes
        columns = Const(round_up(width, d.panel)) if padded else self.place.width(v.axis)
        dst, a = self.state.vector_cell(v, ROW, COLUMN), At(self.state.weights[v.weight], (ROW, DEPTH))
        b, size = cell(self.place.along(v.axis, COLUMN), op("add", self.b0, DEPTH)), op("sub", self.b1, self.b0)
        bound, ahead = self._bound("k"), self._next_block_ahead()
        shape = (self.place.count, columns, size, d.mr, d.panel, "panel")
        return MatMul(dst, a, b, *shape, True, *bound, ahead, d.units)

    # -------------------------------- prefetch

    def _vector_rows_ahead(self) -> tuple[Ahead, ...]:
        """While the contraction runs: the rows that the vector products of this block read in place."""
        names = [v.name for v in self.roles.vectors if self._streams(v.name)]
        return tuple(self._rows_ahead(n, self.b0, op("sub", self.b1, self.b0)) for n in names)

    def _next_block_ahead(self) -> tuple[Ahead, ...]:
        """While a vector product runs: what the contractions of the next block read in place."""
        uses = [c.use for c in self.roles.contractions if self._streams(c.use)]
        return tuple(self._rows_ahead(use, self.b1, Const(self.decisions.block)) for use in uses)

    def _streams(self, use: str) -> bool:
        """Is the operand read in place, one contiguous row per element of the stream?"""
        if use not in self.operands or self.decisions.operand(use).home != PLACE or self.decisions.units:
            return False
        operand = self.operands[use]
        inner = {operand.lane, operand.depth} - {self.stream}
        return operand.load.axes[-2:-1] == (self.stream,) and operand.load.axes[-1] in inner

    def _rows_ahead(self, use: str, start: Expr, count: Expr) -> Ahead:
        """(first element, number of rows) of an operand read in place."""
        load = self.operands[use].load
        at = {**self.place.positions, self.stream: start}
        cell = At(self.space.tensors[load.tensor], tuple(at.get(str(a), Const(0)) for a in load.axes))
        return cell, count

    # -------------------------------- outputs

    def _outputs(self) -> list[Stmt]:
        """Outputs with the stream axis in a second sweep over all blocks, the others once per row."""
        out: list[Stmt] = []
        streamed = [o for o in self.flat.outs if self.stream in o.axes]
        if streamed:
            end = self._enter_block(self.place.length)
            row = self._output_row(streamed)
            tiles = (*self.inner.pack(self.b0, self.b1), *self._contractions(bounded=False))
            body = (end, *tiles, self._rows_loop(row))
            block = Const(self.decisions.block)
            out.append(For(self.b0.name, Const(0), self.place.length, block, body))
        once = [o for o in self.flat.outs if self.stream not in o.axes]
        return [*out, self._rows_loop(self._output_row(once))] if once else out

    def _output_row(self, outs: list[Out]) -> tuple[Stmt, ...]:
        row: list[Stmt] = []
        self._know_earlier(row, len(self.levels))
        if any(self.stream in o.axes for o in outs):
            row += self.inner.fill(self.b0, self.b0, self.b1)
        return self._clean([*row, *map(self._output, outs)])

    def _output(self, o: Out) -> Stmt:
        """Store one output of the current row, by the definition's own arithmetic."""
        vectors = {
            v.name: self.state.vector_cell(v, self.place.row_var, self.state.lanes[v.axis]) for v in self.roles.vectors
        }
        if self.stream not in o.axes:
            return store_output(self.row, o, self.state.lanes, vectors, self.place)
        cell, value = output_value(self.row, o, self.state.lanes, vectors)
        return self.row.sweep(self.b0, self.b1, (), (Put(cell, value),))
