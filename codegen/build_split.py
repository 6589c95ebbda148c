"""Few long rows: the stream is cut into chunks for all threads; partial states meet in the derived merge.

Per pass: one phase of partial states (task = row x chunk), one that merges them (task = row). Outputs that carry the
stream are written by a last phase, again by chunk.
"""

from __future__ import annotations

from collections.abc import Mapping

from redfuser.codegen.indexing import ceil_div
from redfuser.codegen.levels import state_dtype
from redfuser.codegen.lower import Space
from redfuser.codegen.merge import Merge
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf, For, LetInt, Phase, Stmt
from redfuser.codegen.parts import PLACE, assign, cell_names, state_shapes
from redfuser.codegen.passes.hoist import hoist
from redfuser.codegen.row_phase import RowPhase
from redfuser.derivation.fusion import Accumulator
from redfuser.extract.flatten import Flat
from redfuser.ir import Const, Expr, op
from redfuser.ir.ops import PIVOT


def build_split(space: Space, flat: Flat, when: Expr, workspace: Names) -> tuple[list[Phase], list[Buf]]:
    """The phases, run under `when`, and the workspace for partial and final states."""
    return _Split(space, flat, when, workspace).build()


class _Split:
    def __init__(self, space: Space, flat: Flat, when: Expr, workspace: Names) -> None:
        self.space, self.flat, self.when = space, flat, when
        self.chunk = space.plan.rows.chunk
        self.chunks = ceil_div(space.size(flat.stream or ""), self.chunk)
        self.parallel = flat.row_axes(flat.outs[0])
        rows = tuple(space.size(a) for a in self.parallel)
        self.partial = self._shared(workspace, "part", (*rows, self.chunks))
        self.final = self._shared(workspace, "final", rows)
        self.taken = list(workspace.taken)

    def _shared(self, names: Names, prefix: str, outer: tuple[Expr, ...]) -> dict[str, Buf]:
        """One buffer per state cell: name of the cell -> workspace over `outer` (and the places of a list)."""
        compute = self.space.compute
        return {
            name: Buf(names.fresh(f"{prefix}_{name}"), (*outer, *shape), "shared", dtype)
            for a in self.flat.accumulators
            if a.monoid != PIVOT
            for name, (shape, dtype) in state_shapes(a, compute, state_dtype(a, compute)).items()
        }

    def _stored(self, buffers: dict[str, Buf], own: list[Accumulator], where: tuple[Expr, ...]) -> dict[str, At]:
        """Name of a state cell -> its cell in workspace."""
        names = (name for a in own for name in cell_names(a).values())
        return {n: At(buffers[n], (*where, *([PLACE] if len(buffers[n].shape) > len(where) else []))) for n in names}

    def _copy(self, p: RowPhase, to: Mapping[str, Expr], source: Mapping[str, Expr]) -> list[Stmt]:
        return assign(p.names, *((cell, source[name]) for name, cell in to.items() if isinstance(cell, At)))

    def _cells(self, p: RowPhase, own: list[Accumulator]) -> dict[str, At]:
        return {name: p.row.cell(name) for a in own for name in cell_names(a).values()}

    def build(self) -> tuple[list[Phase], list[Buf]]:
        """Partial and merge phases of every pass, then the outputs that carry the stream."""
        phases: list[Phase] = []
        for number in range(len(self.flat.passes)):
            phases += [self._partial_phase(number), self._merge_phase(number)]
        if any(self.flat.stream in o.axes for o in self.flat.outs):
            phases.append(self._output_phase())
        buffers = [*self.partial.values(), *self.final.values()]
        return phases, buffers

    # -------------------------------- by chunk

    def _by_chunk(self) -> tuple[RowPhase, list[Stmt], Expr, Expr]:
        """A phase over rows x chunks, with the range of its chunk."""
        p = RowPhase(self.space, self.flat, (("chunk", self.chunks),), self.taken)
        p.materialiser(p.block_extent())
        lo, hi = p.names.integer("lo"), p.names.integer("hi")
        body: list[Stmt] = [LetInt(lo.name, op("mul", p.extra["chunk"], self.chunk))]
        body.append(LetInt(hi.name, op("min", op("add", lo, self.chunk), p.length)))
        return p, body, lo, hi

    def _partial_phase(self, number: int) -> Phase:
        """The state of one chunk, as in the streaming loop."""
        p, body, lo, hi = self._by_chunk()
        body += p.opening()
        self._know_passes(p, body, number)
        own = self._own(number)
        body += p.row.start(own)
        if p.levels[number]:
            body.append(p.block_loop(p.levels[number], lo, hi))
        there = self._stored(self.partial, own, (*self._row_index(p), p.extra["chunk"]))
        body += self._copy(p, there, self._cells(p, own))
        return p.phase(hoist(tuple(body), p.names, self.space.compute), self.when)

    def _output_phase(self) -> Phase:
        """The second sweep over a chunk, from final states."""
        p, body, lo, hi = self._by_chunk()
        body += p.opening()
        self._know_passes(p, body, len(self.flat.passes))
        p.row.env = p.row.env.raw()
        for o in p.stream_outs():
            body += p.second_sweep(o, lo, hi)
        return p.phase(hoist(tuple(body), p.names, self.space.compute), self.when)

    def _know_passes(self, p: RowPhase, body: list[Stmt], count: int) -> None:
        """Final states of the first `count` passes, read back from the workspace."""
        for number in range(count):
            own = self._own(number)
            body += self._copy(p, self._cells(p, own), self._stored(self.final, own, self._row_index(p)))
            p.row.finish(body, own, p.completed(p.levels[number]))
        p.row.next_pass()

    def _own(self, number: int) -> list[Accumulator]:
        names = self.flat.passes[number]
        return [a for a in self.flat.accumulators if a.name in names and a.monoid != PIVOT]

    def _row_index(self, p: RowPhase) -> tuple[Expr, ...]:
        return tuple(p.place.axes[a] for a in self.parallel)

    # -------------------------------- the merge

    def _merge_phase(self, number: int) -> Phase:
        """Partial states in chunk order; after the last pass, the outputs without the stream."""
        p = RowPhase(self.space, self.flat, (), self.taken)
        p.materialiser(p.block_extent())
        body: list[Stmt] = p.opening()
        self._know_passes(p, body, number)
        own, row = self._own(number), self._row_index(p)
        body += self._copy(p, self._cells(p, own), self._stored(self.partial, own, (*row, Const(0))))
        chunk = p.names.integer("chunk")
        there = self._stored(self.partial, own, (*row, chunk))
        merged = Merge(p.row, self.flat, there).statements(p.levels[number])
        body.append(For(chunk.name, Const(1), self.chunks, Const(1), tuple(merged)))
        p.row.finish(body, own, p.completed(p.levels[number]))
        body += self._copy(p, self._stored(self.final, own, row), self._cells(p, own))
        if number == len(self.flat.passes) - 1:
            body += p.row_outputs()
        return p.phase(hoist(tuple(body), p.names, self.space.compute), self.when)
