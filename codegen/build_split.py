"""Few long rows: the stream is cut into chunks for all threads; partial states meet in the derived merge.

Per pass: one phase of partial states (task = row x chunk), one that merges them (task = row). Outputs that carry the
stream are written by a last phase, again by chunk.
"""

from __future__ import annotations

from redfuser.codegen.block import PIVOT, state_dtype
from redfuser.codegen.indexing import ceil_div
from redfuser.codegen.lower import Space
from redfuser.codegen.merge import Merge
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf, For, LetInt, Phase, Set, Stmt
from redfuser.codegen.passes.hoist import hoist
from redfuser.codegen.row_phase import RowPhase
from redfuser.derivation.fusion import Accumulator
from redfuser.extract.flatten import Flat
from redfuser.ir import Const, Expr, op


def build_split(space: Space, flat: Flat, when: Expr, workspace: Names) -> tuple[list[Phase], list[Buf]]:
    """The phases, run under `when`, and the workspace for partial and final states."""
    return _Split(space, flat, when, workspace).build()


class _Split:
    def __init__(self, space: Space, flat: Flat, when: Expr, workspace: Names) -> None:
        self.space, self.flat, self.when = space, flat, when
        self.chunk = space.plan.rows.chunk
        self.chunks = ceil_div(space.size(flat.stream or ""), self.chunk)
        self.parallel = tuple(a for a in flat.outs[0].axes if a != flat.stream)
        rows = tuple(space.size(a) for a in self.parallel)
        carried = [a for a in flat.accumulators if a.monoid != PIVOT]
        self.partial = {
            a.name: self._shared(workspace, f"part_{a.name}", (*rows, self.chunks), a) for a in carried
        }
        self.final = {a.name: self._shared(workspace, f"final_{a.name}", rows, a) for a in carried}
        self.taken = list(workspace.taken)

    def _shared(self, names: Names, base: str, shape: tuple[Expr, ...], a: Accumulator) -> Buf:
        return Buf(names.fresh(base), shape, "shared", state_dtype(a, self.space.compute))

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
        row = self._row_index(p)
        body += [Set(At(self.partial[a.name], (*row, p.extra["chunk"])), p.row.cell(a.name)) for a in own]
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
            body += [Set(p.row.cell(a.name), At(self.final[a.name], self._row_index(p))) for a in own]
            p.row.finish(body, own, p.completed(p.levels[number]))

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
        first = (*row, Const(0))
        body += [Set(p.row.cell(a.name), At(self.partial[a.name], first)) for a in own]
        chunk = p.names.integer("chunk")
        there = {a.name: At(self.partial[a.name], (*row, chunk)) for a in own}
        merged = Merge(p.row, self.flat, there).statements(p.levels[number])
        body.append(For(chunk.name, Const(1), self.chunks, Const(1), tuple(merged)))
        p.row.finish(body, own, p.completed(p.levels[number]))
        body += [Set(At(self.final[a.name], row), p.row.cell(a.name)) for a in own]
        if number == len(self.flat.passes) - 1:
            body += p.row_outputs()
        return p.phase(hoist(tuple(body), p.names, self.space.compute), self.when)
