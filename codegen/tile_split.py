"""Few tiles: a task takes one chunk of the stream; the partial states of a row meet in the derived merge.

The tile phase stores the state of each chunk in workspace; a phase with one task per row merges them in chunk order
and writes the outputs.
"""

from __future__ import annotations

from redfuser.codegen.block import Row
from redfuser.codegen.indexing import LANE_PAD, product, unravel_sizes
from redfuser.codegen.levels import levels_of, state_dtype
from redfuser.codegen.lower import Env, Space
from redfuser.codegen.materialise import Materialiser
from redfuser.codegen.merge import Merge
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf, For, Phase, Put, Set, Stmt, Sweep
from redfuser.codegen.passes.hoist import hoist
from redfuser.codegen.passes.prune import prune
from redfuser.codegen.passes.unroll import unroll
from redfuser.codegen.tile_outputs import store_output
from redfuser.codegen.tile_place import TilePlace, chunks_of
from redfuser.codegen.tile_state import TileState
from redfuser.extract.decisions import TileDecisions
from redfuser.ir import Const, Expr, op
from redfuser.ir.ops import PIVOT


class TileSplit:
    """partial : accumulator -> workspace [parallel axes..., chunk], and the vector axis last where there is one."""

    def __init__(self, space: Space, decisions: TileDecisions, workspace: Names) -> None:
        self.space, self.roles, self.flat = space, decisions.roles, decisions.roles.flat
        self.stream = self.flat.stream or ""
        self.length = space.size(self.stream)
        self.chunks = chunks_of(self.length, decisions.chunk)
        self.parallel = (*self.roles.batch, *((self.roles.row,) if self.roles.row else ()))
        self.vectors = {v.name: v for v in self.roles.vectors}
        self.carried = [a for a in self.flat.accumulators if a.monoid != PIVOT]
        outer = (*(space.size(a) for a in self.parallel), self.chunks)
        self.partial: dict[str, Buf] = {}
        for a in self.carried:
            vector = self.vectors.get(a.name)
            shape = outer if vector is None else (*outer, space.size(vector.axis))
            dtype = state_dtype(a, space.compute) if vector is None else space.compute
            self.partial[a.name] = Buf(workspace.fresh(f"part_{a.name}"), shape, "shared", dtype)
        self.names = Names(workspace.taken)

    def stores(self, place: TilePlace, state: TileState) -> list[Stmt]:
        """In a loop over the rows of a tile: the state of this chunk into workspace."""
        assert place.chunk is not None
        at = place.at_row(place.row_var)
        where = (*(at[a] for a in self.parallel), place.chunk)
        out: list[Stmt] = []
        for a in self.carried:
            vector = self.vectors.get(a.name)
            if vector is None:
                out.append(Set(At(self.partial[a.name], where), state.cells[a.name]))
                continue
            lane = state.lanes[vector.axis]
            there = place.along(vector.axis, lane)
            put = Put(At(self.partial[a.name], (*where, there)), state.cells[a.name])
            out.append(Sweep(lane.name, Const(0), place.width(vector.axis), (), (put,)))
        return out

    def merge_phase(self) -> Phase:
        """One task per row: partial states in chunk order, then the outputs."""
        names = self.names
        task = names.integer("task")
        dims = [(a, self.space.size(a)) for a in self.parallel]
        before, positions = unravel_sizes(names, task, dims)
        self.lanes = {a: names.integer(a) for a in dict.fromkeys(v.axis for v in self.vectors.values())}
        cells = {a.name: self._cell(a.name) for a in self.flat.accumulators}
        row = Row(self.space, names, Env(dict(positions)), names.fresh(self.stream), lambda name: cells[name])
        body: list[Stmt] = [*before, *Materialiser(row, self.stream, (), []).pivots(self.length)]
        levels = levels_of(self.flat, self.flat.passes[0])
        levelled = {d.name for level in levels for d in level.dependencies}
        row.know(body, [d for d in self.flat.dependencies if d.name not in levelled])
        where = tuple(positions[a] for a in self.parallel)
        body += self._first(cells, where)
        chunk = names.integer("chunk")
        there = {a.name: self._partial(a.name, (*where, chunk)) for a in self.carried}
        lanes = {n: (self.lanes[v.axis].name, self.space.size(v.axis)) for n, v in self.vectors.items()}
        merged = Merge(row, self.flat, there, lanes).statements(levels)
        body.append(For(chunk.name, Const(1), self.chunks, Const(1), tuple(merged)))
        scalars = [a for a in self.carried if a.name not in self.vectors]
        row.finish(body, scalars, [d for level in levels for d in level.dependencies])
        vectors = {n: cells[n] for n in self.vectors}
        body += [store_output(row, o, self.lanes, vectors) for o in self.flat.outs]
        cleaned = prune(hoist(tuple(body), names, self.space.compute))
        cleaned = unroll(cleaned, self.space.plan.profile, self.space.compute)
        total = product([n for _, n in dims])
        scratch = tuple(cells[n].buf for n in self.vectors)
        return Phase(For(task.name, Const(0), total, Const(1), cleaned, "task"), scratch)

    def _cell(self, name: str) -> At:
        """State of the merge: a scalar, or a row of scratch."""
        fresh, vector = self.names.fresh(name), self.vectors.get(name)
        if vector is None:
            accumulator = self.flat.accumulator(name)
            assert accumulator is not None
            return At(Buf(fresh, (), "reg", state_dtype(accumulator, self.space.compute)))
        extent = op("add", self.space.size(vector.axis), LANE_PAD)
        return At(Buf(fresh, (extent,), "local", self.space.compute), (self.lanes[vector.axis],))

    def _partial(self, name: str, where: tuple[Expr, ...]) -> At:
        """A partial state's value, at the current lane of a vector axis."""
        vector = self.vectors.get(name)
        return At(self.partial[name], where if vector is None else (*where, self.lanes[vector.axis]))

    def _first(self, cells: dict[str, At], where: tuple[Expr, ...]) -> list[Stmt]:
        """The state of the first chunk."""
        out: list[Stmt] = []
        for a in self.carried:
            value, vector = self._partial(a.name, (*where, Const(0))), self.vectors.get(a.name)
            if vector is None:
                out.append(Set(cells[a.name], value))
            else:
                put = Put(cells[a.name], value)
                lane = self.lanes[vector.axis].name
                out.append(Sweep(lane, Const(0), self.space.size(vector.axis), (), (put,)))
        return out
