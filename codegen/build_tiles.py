"""The tile schedule: a tile of rows meets blocks of the stream; contractions and vector sums are matrix products.

    for every tile of rows (a task):
        row operand of the contraction into scratch, state at its identity
        for every block of the stream that some row may see:
            tile = rows . operand                                  (matrix product over the contraction)
            for every row: advance the state over the block, weights into the tile, vector state corrected
            vector state += weights . operand                      (matrix product over the stream)
        outputs
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from redfuser.codegen.block import PIVOT, Level, Row, Vector, levels_of, state_dtype
from redfuser.codegen.indexing import ceil_div, product, tidy, typed, unravel_sizes
from redfuser.codegen.lower import Env, Space, lower
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf, For, LetInt, MatMul, Phase, Put, Set, Stmt, Sweep
from redfuser.codegen.operands import Cell, Operand
from redfuser.codegen.passes.hoist import hoist
from redfuser.codegen.passes.prune import prune
from redfuser.codegen.passes.share import share
from redfuser.codegen.passes.unroll import unroll
from redfuser.derive.fusion import Accumulator
from redfuser.extract.choose import round_up
from redfuser.extract.plan import TileDecisions
from redfuser.extract.roles import TileRoles, VectorSum
from redfuser.ir import Const, Expr, Let, Out, Var, op, substitute, walk
from redfuser.ir.term import base_axis

I, J, K = Var("i_"), Var("j_"), Var("k_")
STATE_PAD = 16
"""Rows of a state array come in multiples of this: whole vectors of any width."""


def build_tiles(space: Space) -> tuple[tuple[Phase, ...], tuple[Buf, ...]]:
    """The phases (packing first) and the shared workspace of a tile schedule."""
    assert space.plan.tiles is not None
    decisions = space.plan.tiles
    space = space.restricted(decisions.roles.flat)
    globals_ = [b.name for b in (*space.tensors.values(), *space.outs.values())]
    workspace = Names(globals_)
    operands = _operands(space, decisions)
    packed: dict[Operand, Buf] = {}
    phases: list[Phase] = []
    for use, operand in operands.items():
        if decisions.operand(use).home == "panels" and operand not in packed:
            packed[operand] = buf = operand.panels(workspace.fresh(f"packed_{operand.load.tensor}"))
            phases.append(operand.pack_phase(buf, Names(workspace.taken)))
    main = _TilePhase(space, decisions, operands, packed, Names(workspace.taken))
    return (*phases, main.phase()), tuple(packed.values())


def _operands(space: Space, decisions: TileDecisions) -> dict[str, Operand]:
    roles, stream = decisions.roles, decisions.roles.flat.stream or ""
    uses = {v.name: Operand(space, v.operand, v.axis, stream, decisions.panel) for v in roles.vectors}
    c = roles.contraction
    if c is not None:
        return {"contraction": Operand(space, c.operand, stream, c.axis, decisions.panel), **uses}
    return uses


class _TilePhase:
    """Builds the main phase."""

    def __init__(
        self, space: Space, decisions: TileDecisions, operands: dict[str, Operand], packed: dict[Operand, Buf],
        names: Names,
    ) -> None:
        self.space, self.decisions, self.operands, self.packed, self.names = space, decisions, operands, packed, names
        self.roles: TileRoles = decisions.roles
        self.flat = decisions.roles.flat
        self.stream = self.flat.stream or ""
        self.length = space.size(self.stream)
        self.lanes = space.plan.profile.lanes(space.compute)
        self.rows = round_up(decisions.rows, decisions.mr)
        self.scratch: list[Buf] = []
        self.row_var, self.first = names.integer("r"), names.integer("first_row")
        self.count: Expr = names.integer("rows") if self.roles.row else Const(1)
        self.lo, self.hi = names.integer("lo"), names.integer("hi")
        self.before, self.positions, self.task, self.total = self._task()
        self.lane = names.fresh(self.stream)
        self.tile, self.row_operand = self._tile_buffers()
        self.cells = self._state()
        self.weights = self._weight_buffers()
        self.row = self._row()
        self.b0 = self.b1 = Var("")  # set on entering a loop over blocks
        self.levels = [levels_of(self.flat, p) for p in self.flat.passes]

    # -------------------------------- places

    def _task(self) -> tuple[list[Stmt], dict[str, Expr], Var, Expr]:
        """Position of the tile: batch axes, then the tile of rows, the heaviest first when a mask grows with them."""
        row = self.roles.row
        dims = [(a, self.space.size(a)) for a in self.roles.batch]
        task = self.names.integer("task")
        if row is None:
            before, positions = unravel_sizes(self.names, task, dims)
            return before, positions, task, product([n for _, n in dims])
        tiles = ceil_div(self.space.size(row), self.rows)
        before, positions = unravel_sizes(self.names, task, [*dims, ("row_tile", tiles)])
        number = positions.pop("row_tile")
        if any(b.kind == "hi" and b.slope(row) > 0 for b in self.roles.bounds):
            number = op("sub", op("sub", tiles, 1), number)
        before.append(LetInt(self.first.name, op("mul", number, self.rows)))
        left = op("sub", self.space.size(row), self.first)
        assert isinstance(self.count, Var)
        before.append(LetInt(self.count.name, op("min", left, self.rows)))
        return before, positions, task, product([*(n for _, n in dims), tiles])

    def _local(self, base: str, shape: tuple[int, ...], dtype: str | None = None) -> Buf:
        buf = Buf(self.names.fresh(base), tuple(map(Const, shape)), "local", dtype or self.space.compute)
        self.scratch.append(buf)
        return buf

    def _tile_buffers(self) -> tuple[Buf | None, Buf | None]:
        """The tile of the contraction and its row operand."""
        c = self.roles.contraction
        if c is None:
            return None, None
        depth = self.space.static[base_axis(c.axis)]
        return self._local("tile", self._tile_shape()), self._local("row_operand", (self.rows, round_up(depth, 16)))

    def _tile_shape(self) -> tuple[int, int]:
        """Columns hold whole register tiles and one more vector, which a sweep's tail may touch."""
        multiple = math.lcm(self.decisions.nr, self.decisions.panel, self.lanes)
        return self.rows, round_up(self.decisions.block + self.lanes, multiple)

    def _state(self) -> dict[str, At]:
        """State cells at the current row: arrays over the rows of the tile, matrices for vector accumulators."""
        cells: dict[str, At] = {}
        vectors = {v.name: v for v in self.roles.vectors}
        for a in self.flat.accumulators:
            if a.name not in vectors:
                shape = (round_up(self.rows, STATE_PAD),)
                cells[a.name] = At(self._local(a.name, shape, state_dtype(a, self.space.compute)), (self.row_var,))
        return cells

    def _row_position(self, r: Expr) -> dict[str, Expr]:
        return {self.roles.row: op("add", self.first, r)} if self.roles.row else {}

    def _row(self) -> Row:
        """The row of the tile that row loops work on, its weights and vector state."""
        env = Env({**self.positions, **self._row_position(self.row_var), self.stream: Var(self.lane)})
        row = Row(self.space, self.names, env, self.lane, lambda name: self.cells[name])
        homes = dict(self.decisions.in_output)
        lanes = {a: self.names.integer(a) for a in dict.fromkeys(v.axis for v in self.roles.vectors)}
        for v in self.roles.vectors:
            width, variable = self.space.static[base_axis(v.axis)], lanes[v.axis]
            extent = width if v.name in homes else round_up(width, self.lanes)
            self.cells[v.name] = self._vector_cell(v, self.row_var, variable)
            weight = At(self.weights[v.weight], (self.row_var, Const(0)))
            row.vectors[v.name] = Vector(variable.name, v.weight, weight, Const(extent))
        return row

    def _enter_block(self) -> None:
        """Names for the ends of a block; tile elements and weights lie relative to its start."""
        self.b0, self.b1 = self.names.integer("b0"), self.names.integer("b1")
        place = (self.row_var, op("sub", Var(self.lane), self.b0))
        if self.tile is not None:
            assert self.roles.contraction is not None
            self.row.env.given = {self.roles.contraction.tile: At(self.tile, place)}
        for name, v in self.row.vectors.items():
            self.row.vectors[name] = replace(v, weight_cell=At(v.weight_cell.buf, place))

    def _vector_cell(self, v: VectorSum, r: Expr, d: Expr) -> At:
        """Element of a vector accumulator: of scratch, or of the output it becomes."""
        home = dict(self.decisions.in_output).get(v.name)
        if home is not None:
            axes = next(o.axes for o in self.flat.outs if o.name == home)
            at = {**self.positions, **self._row_position(r), v.axis: d}
            return At(self.space.outs[home], tuple(at[a] for a in axes))
        known = self.cells.get(v.name)
        if known is None:
            width = round_up(self.space.static[base_axis(v.axis)], self.decisions.panel)
            return At(self._local(v.name, (self.rows, width)), (r, d))
        return At(known.buf, (r, d))

    def _weight_buffers(self) -> dict[Expr, Buf]:
        """One tile per distinct weight; the only one replaces the contraction's tile when nobody reads that later."""
        weights = list(dict.fromkeys(v.weight for v in self.roles.vectors))
        if len(weights) == 1 and self.tile is not None and self._tile_is_spent(weights[0]):
            return {weights[0]: self.tile}
        return {w: self._local("weight", self._tile_shape()) for w in weights}

    def _tile_is_spent(self, weight: Expr) -> bool:
        """No sweep reads the tile once the weight is stored, except through the weight."""
        assert self.roles.contraction is not None
        names = {v.name for v in self.roles.vectors}
        spent = False
        for levels in (levels_of(self.flat, p) for p in self.flat.passes):
            for level in levels:
                spent = spent or any(a.name in names for a in level.accumulators)
                bodies = [substitute(a.body, {weight: Const(0.0)}) for a in level.accumulators if a.name not in names]
                if spent and any(self.roles.contraction.tile in walk(b) for b in bodies):
                    return False
        return len(self.flat.passes) == 1

    # -------------------------------- bounds of the stream

    def _range(self, first: Expr, last: Expr) -> tuple[Expr, Expr]:
        """The part of the stream that rows first .. last (within the tile) may see."""
        lo, hi = Const(0), self.length
        row = self.roles.row
        for b in self.roles.bounds:
            at_last = (b.slope(row) >= 0) == (b.kind == "hi")
            place = Env({**self.positions, **self._row_position(last if at_last else first)})
            limit = tidy(lower(b.limit, place, self.space, self.names))
            if b.kind == "hi":
                hi = op("min", hi, limit)
            else:
                lo = op("max", lo, limit)
        return lo, hi

    def _register_rows(self, first: Expr) -> tuple[Expr, Expr]:
        """First and last row of the register tile that starts at `first`."""
        return first, op("min", op("add", first, self.decisions.mr - 1), op("sub", self.count, 1))

    def _within_block(self, lo: Expr, hi: Expr) -> tuple[Expr, Expr]:
        """A range of the stream relative to the block, clipped to it."""
        first = Const(0) if lo == Const(0) else op("max", op("sub", lo, self.b0), 0)
        return first, op("min", op("sub", hi, self.b0), op("sub", self.b1, self.b0))

    # -------------------------------- the phase

    def phase(self) -> Phase:
        """The task loop."""
        body: list[Stmt] = [*self.before, *self._prologue()]
        lo, hi = self._range(Const(0), op("sub", self.count, 1))
        block = self.decisions.block
        aligned = lo if lo == Const(0) else op("mul", op("idiv", lo, block), block)
        body += [LetInt(self.lo.name, aligned), LetInt(self.hi.name, hi)]
        for number, levels in enumerate(self.levels):
            if levels:
                body.append(self._stream_loop(number, levels))
        body += self._outputs()
        cleaned = unroll(prune(tuple(body)), self.space.plan.profile, self.space.compute)
        loop = For(self.task.name, Const(0), self.total, Const(1), cleaned, "task")
        return Phase(loop, tuple(self.scratch))

    def _rows_loop(self, body: Iterable[Stmt], extent: Expr | None = None) -> For:
        return For(self.row_var.name, Const(0), self.count if extent is None else extent, Const(1), tuple(body), "row")

    def _clean(self, body: list[Stmt]) -> tuple[Stmt, ...]:
        """Hoist, then share costly terms between the sweeps of one row."""
        hoisted = hoist(tuple(body), self.names, self.space.compute)
        extent = (Const(self.decisions.block + 64),)
        shared = share(hoisted, self.lane, extent, self.names, self.space.compute)
        self.scratch += shared.scratch
        return shared.body

    def _prologue(self) -> list[Stmt]:
        """Row operand, identities, pivots; vector state to zero over all rows of the tile."""
        body: list[Stmt] = []
        c = self.roles.contraction
        if c is not None:
            assert self.row_operand is not None
            k = self.names.integer(c.axis)
            value = self.row.lower(c.rows, self.row.env.at(**{c.axis: k}))
            put = Put(At(self.row_operand, (self.row_var, k)), value)
            body.append(Sweep(k.name, Const(0), self.space.size(c.axis), (), (put,)))
        body += self.row.start(self.flat.accumulators)
        body += self.row.read_pivots(self.flat.accumulators, self.length)
        out: list[Stmt] = [self._rows_loop(hoist(tuple(body), self.names, self.space.compute))]
        for v in self.roles.vectors:
            in_output = v.name in dict(self.decisions.in_output)
            cell = self.row.cell(v.name)
            width = self.row.vectors[v.name].extent if in_output else cell.buf.shape[1]
            zero = Sweep(self.row.vectors[v.name].lane, Const(0), width, (), (Put(cell, Const(0.0)),))
            out.append(self._rows_loop([zero], None if in_output else Const(self.rows)))
        return out

    def _stream_loop(self, number: int, levels: list[Level]) -> For:
        """One pass over the blocks of the stream."""
        self._enter_block()
        end = LetInt(self.b1.name, op("min", op("add", self.b0, self.decisions.block), self.hi))
        body: list[Stmt] = [end, *self._contraction(bounded=True)]
        row: list[Stmt] = []
        self._know_earlier(row, number)
        lo, hi = self._row_range(row)
        row += self.row.advance(levels, lo, hi, op("gt", self.b0, self.lo))
        row += self._clear_weights(lo, hi)
        body.append(self._rows_loop(self._clean(row)))
        here = {a.name for level in levels for a in level.accumulators}
        body += [self._vector_product(v) for v in self.roles.vectors if v.name in here]
        return For(self.b0.name, self.lo, self.hi, Const(self.decisions.block), tuple(body))

    def _know_earlier(self, row: list[Stmt], number: int) -> None:
        """In a row loop: final values of the passes before `number`."""
        pivots = {a.name: self.row.cell(a.name) for a in self.flat.accumulators if a.monoid == PIVOT}
        self.row.env.values, self.row.env.shifts = dict(pivots), {}
        if number == 0:
            self.row.know(row, self._pivot_dependencies())
        for names, levels in zip(self.flat.passes[:number], self.levels[:number], strict=True):
            self.row.finish(row, self._scalars(names), [d for level in levels for d in level.dependencies])

    def _pivot_dependencies(self) -> list[Let]:
        """Dependencies that belong to no level: they hang on pivots only."""
        levelled = {d.name for levels in self.levels for level in levels for d in level.dependencies}
        return [d for d in self.flat.dependencies if d.name not in levelled]

    def _scalars(self, names: Iterable[str]) -> list[Accumulator]:
        wanted = set(names)
        return [a for a in self.flat.accumulators if a.name in wanted]

    def _row_range(self, out: list[Stmt]) -> tuple[Expr, Expr]:
        """The part of the block this row may see, never negative."""
        if not self.roles.bounds:
            return self.b0, self.b1
        lo, hi = self._range(self.row_var, self.row_var)
        first, last = self.b0, self.names.integer("row_end")
        if self._bounded("lo"):
            first = self.names.integer("row_start")
            out.append(LetInt(first.name, op("max", lo, self.b0)))
        out.append(LetInt(last.name, op("max", op("min", hi, self.b1), first)))
        return first, last

    def _bounded(self, kind: str) -> bool:
        return any(b.kind == kind for b in self.roles.bounds)

    def _clear_weights(self, lo: Expr, hi: Expr) -> list[Stmt]:
        """Zero the columns that this row must not see but its register tile multiplies."""
        if not self.roles.bounds:
            return []
        start = op("mul", op("idiv", self.row_var, self.decisions.mr), self.decisions.mr)
        first, last = self._range(*self._register_rows(start))
        first, last = op("max", first, self.b0), op("min", last, self.b1)
        out: list[Stmt] = []
        for cell in dict.fromkeys(v.weight_cell for v in self.row.vectors.values()):
            put = Put(cell, Const(0.0))
            if self._bounded("lo"):
                out.append(Sweep(self.lane, first, op("min", lo, last), (), (put,)))
            if self._bounded("hi"):
                after = op("max", hi, first) if self._bounded("lo") else hi
                out.append(Sweep(self.lane, after, last, (), (put,)))
        return out

    # -------------------------------- matrix products

    def _cell_of(self, use: str) -> tuple[Cell, list[Stmt]]:
        """How the block reads an operand, and the packing it needs first."""
        operand, home = self.operands[use], self.decisions.operand(use).home
        if home == "panels":
            return operand.in_panels(self.packed[operand], self.positions), []
        if home == "place":
            return operand.in_place(self.positions), []
        buf = next((b for b in self.scratch if b.name == f"block_{use}"), None)
        if buf is None:
            buf = operand.block_buffer(f"block_{use}", self.decisions.block)
            self.names.taken.add(buf.name)
            self.scratch.append(buf)
        pack = operand.pack_block(buf, self.positions, self.b0, self.b1)
        return operand.in_block(buf, self.b0), [pack]

    def _contraction(self, bounded: bool) -> list[Stmt]:
        """tile = rows . operand, in slices of the depth that keep a panel in the level-1 cache."""
        c, d = self.roles.contraction, self.decisions
        if c is None:
            return []
        assert self.tile is not None
        assert self.row_operand is not None
        cell, out = self._cell_of("contraction")
        depth = self.space.static[base_axis(c.axis)]
        bound, lo, hi = "", None, None
        if bounded and self.roles.bounds:
            bound = "j"
            lo, hi = self._within_block(*self._range(*self._register_rows(I)))
        for k0 in range(0, depth, d.slice_):
            k = op("add", K, k0) if k0 else K
            out.append(
                MatMul(
                    At(self.tile, (I, J)), At(self.row_operand, (I, k)), cell(op("add", self.b0, J), k), self.count,
                    op("sub", self.b1, self.b0), Const(min(d.slice_, depth - k0)), d.mr, d.nr,
                    d.operand("contraction").form, k0 > 0, bound, lo, hi,
                )
            )
        return out

    def _vector_product(self, v: VectorSum) -> MatMul:
        """vector state += weights . operand, over the block."""
        cell, _ = self._cell_of(v.name)
        width = self.space.static[base_axis(v.axis)]
        padded = self.decisions.operand(v.name).home != "place" and v.name not in dict(self.decisions.in_output)
        weights = self.row.vectors[v.name].weight_cell.buf
        bound, lo, hi = "", None, None
        if self.roles.bounds:
            bound = "k"
            lo, hi = self._within_block(*self._range(*self._register_rows(I)))
        return MatMul(
            self._vector_cell(v, I, J), At(weights, (I, K)), cell(J, op("add", self.b0, K)), self.count,
            Const(round_up(width, self.decisions.panel) if padded else width), op("sub", self.b1, self.b0),
            self.decisions.mr, self.decisions.panel, "panel", True, bound, lo, hi,
        )

    # -------------------------------- outputs

    def _outputs(self) -> list[Stmt]:
        """Outputs with the stream axis in a second sweep over the blocks, the others once per row."""
        out: list[Stmt] = []
        streamed = [o for o in self.flat.outs if self.stream in o.axes]
        if streamed:
            self._enter_block()
            end = LetInt(self.b1.name, op("min", op("add", self.b0, self.decisions.block), self.length))
            row: list[Stmt] = []
            self._know_earlier(row, len(self.levels))
            row += [self._output(o) for o in streamed]
            body = [end, *self._contraction(bounded=False), self._rows_loop(self._clean(row))]
            out.append(For(self.b0.name, Const(0), self.length, Const(self.decisions.block), tuple(body)))
        row = []
        self._know_earlier(row, len(self.levels))
        row += [self._output(o) for o in self.flat.outs if self.stream not in o.axes]
        return [*out, self._rows_loop(self._clean(row))]

    def _output(self, o: Out) -> Stmt:
        """Store one output of the current row, by the definition's own arithmetic."""
        lanes = {v.axis: self.row.vectors[v.name].lane for v in self.roles.vectors}
        vector = next((a for a in o.axes if a in lanes), None)
        env = self.row.env.raw()
        env.values = dict(env.values)
        for v in self.roles.vectors:
            if v.axis in (vector, None):
                env.values[v.name] = self._vector_cell(v, self.row_var, Var(lanes[vector or v.axis]))
        if vector is not None:
            env = env.at(**{vector: Var(lanes[vector])})
        value = typed(self.row.lower(o.expr, env), o.dtype, self.names, self.space.compute)
        cell = At(self.space.outs[o.name], tuple(env.axes[a] for a in o.axes))
        if vector is not None:
            return Sweep(lanes[vector], Const(0), self.space.size(vector), (), (Put(cell, value),))
        if self.stream in o.axes:
            return self.row.sweep(self.b0, self.b1, (), (Put(cell, value),))
        return Set(cell, value)
