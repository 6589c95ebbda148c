"""From a phase with products to fragments: homes, panels, copies ahead of their products, barriers, in this order."""

from __future__ import annotations

from dataclasses import replace

from redfuser.codegen.c.variables import registers, variable_types
from redfuser.codegen.cuda.nodes import Barrier
from redfuser.codegen.cuda.target import CudaTarget
from redfuser.codegen.cuda.tiles.homes import Homes, NoFragments, Source, operand_of, renamed, renewed, source_of
from redfuser.codegen.cuda.tiles.nodes import (
    COLUMN,
    DEPTH,
    FRAGMENT,
    LIST,
    PIECE_ROWS,
    ROW,
    STRIP,
    Clear,
    Commit,
    Copy,
    FragmentPhase,
    Held,
    Multiply,
    Operand,
    Panel,
    Take,
    Wait,
)
from redfuser.codegen.cuda.tiles.whole import aligned, columns_of, split_whole
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf, For, If, Kernel, LetInt, LetScalar, MatMul, Pack, Phase, Set, Stmt, Sweep
from redfuser.codegen.passes.bodies import Body, lane_expressions, map_bodies, map_lanes, nested
from redfuser.extract import choose_fragments
from redfuser.extract.choose import round_up
from redfuser.ir import Const, Expr, Var, op, rewrite, select, walk

FIRST = Var("first_")
"""Stands for the first element of a block where loops over blocks are compared."""


def fragment_phase(kernel: Kernel, phase: Phase, target: CudaTarget) -> FragmentPhase:
    """A phase with matrix products on matrix units.

    Raises
    ------
    NoFragments
        when it has no form as fragments, with the reason.
    """
    return _Schedule(kernel, phase, target).phase()


def obstacle(kernel: Kernel, target: CudaTarget) -> str:
    """Why a phase with products has no form as fragments; empty where all have."""
    for phase in kernel.phases:
        if any(isinstance(s, MatMul) for s in nested(phase.loop.body)):
            try:
                fragment_phase(kernel, phase, target)
            except NoFragments as reason:
                return str(reason)
    return ""


class _Schedule:
    def __init__(self, kernel: Kernel, phase: Phase, target: CudaTarget) -> None:
        self.kernel, self.source, self.target = kernel, phase, target
        self.homes = Homes(phase)
        if not self.homes.products:
            raise NoFragments("no product")
        arrays = {b.name for b in (*kernel.tensors, *kernel.outs, *kernel.shared, *phase.local)}
        names = {*variable_types(kernel.compute, phase.loop), *arrays}
        self.names = Names(names)
        self.rows = self._rows()
        self.warps = choose_fragments.tile_warps(self.rows)
        if self.rows % (self.warps * PIECE_ROWS):
            raise NoFragments(f"{self.rows} rows are no whole number of fragments for {self.warps} warps")
        kept = self._keeps_operands()
        self.operands = {b: operand_of(self.homes, b, self.rows, kept) for b in self.homes.sources}
        self.waiting: list[Operand] = []
        self.panels: list[Panel] = [o.panel for o in self.operands.values()]
        self.slots: list[Buf] = []
        self.shared: dict[At, Panel] = {}  # with the first element of a block as `FIRST`

    def _keeps_operands(self) -> bool:
        """Whether row operands stay in registers."""
        rows = self.rows // self.warps
        columns = sum(h.columns for h in self.homes.held.values() if h.kind == FRAGMENT)
        operands = (choose_fragments.operand_words(d, rows) for d in self.homes.depths.values())
        return choose_fragments.keeps_operands(rows * columns // 32, sum(operands))

    def _rows(self) -> int:
        fragments = [h.buf for h in self.homes.held.values() if h.kind == FRAGMENT]
        rows = {b.shape[0] for b in fragments}
        extent = next(iter(rows))
        if len(rows) != 1 or not isinstance(extent, Const):
            raise NoFragments("fragments have different numbers of rows")
        return int(extent.value)

    def phase(self) -> FragmentPhase:
        """The scheduled phase."""
        loop = self.source.loop
        body = (*self._task(loop.body), Barrier())  # the next task copies into panels that this one reads
        variables = variable_types(self.kernel.compute, loop)
        scalars = sorted((*registers(loop.body), *self.slots), key=lambda b: b.name)
        held = [self._widened(h.buf) for h in self.homes.held.values()]
        made = FragmentPhase(
            replace(loop, body=body), self.source.when, self.warps,
            self.rows // (self.warps * PIECE_ROWS), tuple(held), tuple(self.operands.values()), tuple(self.panels),
            tuple(scalars), tuple(variables.items()),
        )
        if made.shared > self.target.gpu.shared:
            raise NoFragments(f"panels take {made.shared} bytes of shared memory, {self.target.gpu.shared} are there")
        return made

    def _widened(self, buf: Buf) -> Held:
        """A strip has as many columns as the fragments that it goes with."""
        h = self.homes.held[buf]
        if h.kind != STRIP:
            return h
        loops = [s for s in nested(self.source.loop.body) if isinstance(s, For) and s.kind == "row"]
        sweeps = [s for x in loops for s in nested(aligned(x.body, self.homes.held)) if isinstance(s, Sweep)]
        found = [c.count for s in sweeps if buf in _bufs(s) and (c := columns_of(s, self.homes.held)) is not None]
        return replace(h, columns=max([h.columns, *found]))

    # ---- statements of a task

    def _task(self, body: Body) -> Body:
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, For) and s.kind == "row":
                out += self._rows_loop(s)
            elif isinstance(s, For) and any(isinstance(x, MatMul) for x in nested(s.body)):
                out += self._stream(s)
            elif isinstance(s, (LetInt, LetScalar)):
                out.append(s)
            else:
                raise NoFragments(f"{type(s).__name__} has no place in a tile")
        return tuple(out)

    def _rows_loop(self, loop: For) -> list[Stmt]:
        """A row loop without the row operands that it stores: these are copied instead."""
        kept, operands = [], []
        for s in loop.body:
            if isinstance(s, Sweep):
                mine = [p for p in s.puts if p.cell.buf in self.operands]
                operands += [(self.operands[p.cell.buf], s.hi) for p in mine]
                s = replace(s, puts=tuple(p for p in s.puts if p not in mine))
                if not (s.puts or s.reds or s.inserts):
                    continue
            kept.append(s)
        out: list[Stmt] = [self._row_body(replace(loop, body=tuple(kept)))] if kept else []
        for o, columns in operands:
            out.append(Copy(o.panel, Const(0), self.homes.sources[o.buf], loop.hi, columns))
            self.waiting.append(o)
        return [*out, Commit()] if operands else out

    def _row_body(self, loop: For) -> For:
        """Reads of row operands become reads of memory, strips lie beside fragments."""
        for s in nested(loop.body):
            if isinstance(s, (MatMul, Pack)) or (isinstance(s, Sweep) and s.folds):
                raise NoFragments(f"{type(s).__name__} has no place in a row of a tile")
            if isinstance(s, Sweep):
                kinds = {self.homes.held[b].kind for b in _bufs(s) if b in self.homes.held}
                if LIST in kinds and kinds & {FRAGMENT, STRIP}:
                    raise NoFragments("a sweep along a list reads lanes of the stream")

        def read(x: Expr) -> Expr | None:
            if isinstance(x, At) and x.buf in self.homes.sources:
                places = {ROW: x.idx[0], COLUMN: x.idx[1]}
                return rewrite(self.homes.sources[x.buf], lambda y: places.get(y) if isinstance(y, Var) else None)
            return None

        def visit(body: Body) -> Body:
            return tuple(map_lanes(s, lambda e: rewrite(e, read)) if isinstance(s, Sweep) else map_bodies(s, visit)
                         for s in body)

        return replace(loop, body=aligned(visit(loop.body), self.homes.held))

    # ---- the loop over the stream

    def _stream(self, loop: For) -> list[Stmt]:
        """Copies of the next block are under way while the products of this one run."""
        products = [s for s in loop.body if isinstance(s, MatMul)]
        if len(products) != sum(isinstance(s, MatMul) for s in nested(loop.body)) or not isinstance(loop.step, Const):
            raise NoFragments("a product in a loop of its own")
        lets = {s.name: s.expr for s in loop.body if isinstance(s, LetInt)}
        stages = choose_fragments.STAGES
        sources = [source_of(s) for s in products]
        used = set(self.panels)
        panels = self._panels(products, sources, stages, loop.var)
        copies = self._copies(products, sources, panels)
        slot = At(Buf(self.names.fresh("slot"), (), "reg", "int64"))
        self.slots.append(slot.buf)

        def ahead(first: Expr, stage: Expr) -> list[Stmt]:
            """The copies of the block that begins at `first`."""

            def at(x: Expr) -> Expr | None:
                if isinstance(x, Var) and x.name in lets:
                    return rewrite(lets[x.name], at)
                return first if x == Var(loop.var) else None

            started = (Copy(c.panel, stage, renewed(c.source, at), rewrite(c.rows, at), rewrite(c.columns, at))
                       for c in copies)
            return [If(op("lt", first, loop.hi), tuple(started)), Commit()]

        out: list[Stmt] = [Barrier()] if used & set(panels) else []  # an earlier loop reads them
        out.append(Set(slot, Const(0)))
        for i in range(stages - 1):
            out += ahead(op("add", loop.lo, int(loop.step.value) * i) if i else loop.lo, Const(i))
        out += [Wait(stages - 1), Barrier(), *(Take(o) for o in self.waiting if o.kept)] if self.waiting else []
        self.waiting = []
        later = op("add", Var(loop.var), int(loop.step.value) * (stages - 1))
        body: list[Stmt] = [Wait(stages - 2), Barrier()]
        body += ahead(later, select(op("eq", slot, 0), stages - 1, op("sub", slot, 1)))
        body += self._block(loop.body, products, sources, panels, slot)
        body.append(Set(slot, select(op("eq", slot, stages - 1), 0, op("add", slot, 1))))
        return [*out, replace(loop, body=tuple(body)), Wait(0)]

    def _panels(self, products: list[MatMul], sources: list[Source], stages: int, block: str) -> list[Panel]:
        """A panel per operand; products that read the same rows of the same memory share one, those of later loops
        too. `block`: the variable of the loop."""
        found: dict[At, Panel] = {}
        for s, source in zip(products, sources, strict=True):
            across, down = (s.n, s.k) if source.transposed else (s.k, s.n)
            rows, columns = (round_up(self.homes.extent(e), DEPTH) for e in (down, across))
            before = found.get(source.cell)
            name = before.name if before else self.names.fresh(f"panel_{source.cell.buf.name}")
            if before:
                rows, columns = max(rows, before.rows), max(columns, before.columns)
            found[source.cell] = Panel(name, s.rounds, rows, columns, stages)
        for cell, panel in found.items():
            known = self.shared.setdefault(renamed(cell, {block: FIRST}), panel)
            if (known.rows, known.columns) == (panel.rows, panel.columns):
                found[cell] = known
        self.panels += (p for p in found.values() if p not in self.panels)
        return [found[s.cell] for s in sources]

    def _copies(self, products: list[MatMul], sources: list[Source], panels: list[Panel]) -> list[Copy]:
        """One copy per panel, of the widest matrix that a product reads of it."""
        found: dict[Panel, Copy] = {}
        for s, source, panel in zip(products, sources, panels, strict=True):
            across, down = (s.n, s.k) if source.transposed else (s.k, s.n)
            before = found.get(panel)
            if before is None or self.homes.extent(across) > self.homes.extent(before.columns):
                found[panel] = Copy(panel, Const(0), source.cell, down, across)
        return list(found.values())

    def _block(self, body: Body, products: list[MatMul], sources: list[Source], panels: list[Panel],
               slot: At) -> list[Stmt]:
        """The statements of one block of the stream."""
        out: list[Stmt] = []
        for i, s in enumerate(body):
            if isinstance(s, MatMul):
                at = products.index(s)
                depth = round_up(self.homes.extent(s.k), DEPTH)
                columns = self.homes.held[s.dst.buf].columns
                out.append(Multiply(s.dst.buf, s.a.buf, panels[at], slot, columns, depth, sources[at].transposed,
                                    s.accumulate))
            elif isinstance(s, For) and s.kind == "row":
                row = self._row_body(s)
                out.append(split_whole(row, self._clears(row, body[i + 1:]), self.homes.held))
            elif isinstance(s, LetInt):
                out.append(s)
            else:
                raise NoFragments(f"{type(s).__name__} has no place in a block of a tile")
        return out

    def _clears(self, row: For, after: Body) -> tuple[Clear, ...]:
        """Weights that the products after this row loop, before the next one, must not see."""
        found: dict[Clear, None] = {}
        for s in after:
            if isinstance(s, For):
                break
            if isinstance(s, MatMul) and s.a.buf in self.homes.held:
                lo, hi = (s.lo, s.hi) if s.bound else (Const(0), s.k)
                assert lo is not None
                assert hi is not None
                ends = (rewrite(e, lambda x: Var(row.var) if x == Var("i_") else None) for e in (lo, hi))
                found[Clear(s.a.buf, *ends)] = None
        return tuple(found)


def _bufs(s: Sweep) -> set[Buf]:
    return {x.buf for e in (*lane_expressions(s), *(p.cell for p in s.puts)) for x in walk(e) if isinstance(x, At)}
