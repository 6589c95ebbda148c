"""From the phases of a tile program to phases of teams: widths, staged inputs, homes, barriers, in this order."""

from __future__ import annotations

from dataclasses import replace

from redfuser.codegen.cuda.accesses import accesses
from redfuser.codegen.cuda.barriers import BarrierPass
from redfuser.codegen.cuda.homes import homes, touched
from redfuser.codegen.cuda.nodes import REGISTER, SHARED, TeamPhase, Width
from redfuser.codegen.cuda.normal import normal, without_dead_stores
from redfuser.codegen.cuda.ranges import Ranges, bounds_of
from redfuser.codegen.cuda.staging import Staging
from redfuser.codegen.cuda.target import CudaTarget
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf, For, Kernel, Phase, Set, Sweep
from redfuser.codegen.passes.bodies import Body, depends_on, lane_expressions, nested
from redfuser.extract import choose_gpu
from redfuser.ir import Expr, walk
from redfuser.ir.dtypes import numpy_dtype


def schedule(kernel: Kernel, phase: Phase, target: CudaTarget) -> TeamPhase:
    """Hand the tasks of a phase to teams of threads."""
    return _Schedule(kernel, phase, target).phase()


class _Schedule:
    def __init__(self, kernel: Kernel, phase: Phase, target: CudaTarget) -> None:
        self.kernel, self.source, self.target = kernel, phase, target
        self.bounds = bounds_of(phase.when)
        self.loop = replace(phase.loop, body=normal(without_dead_stores(phase.loop.body)))
        self.ranges = Ranges(self.loop.body, self.bounds)
        repeated = any(isinstance(s, For) and any(isinstance(x, Sweep) for x in nested(s.body))
                       for s in nested(self.loop.body))
        self.team = choose_gpu.team_threads(self._longest(self.loop.body), not repeated)
        self.teams = choose_gpu.teams_per_block(self.team)
        self.widths = {(w.lo, w.hi): w.elements for w in self._widths()}
        self.names = Names(_names(kernel, phase))

    def _longest(self, body: Body) -> int | None:
        """Elements of the longest sweep that a task waits for: those of a block where the stream comes in blocks."""
        sweeps = [s for s in nested(body) if isinstance(s, Sweep)]
        extents = [self.ranges.extent(s.lo, s.hi) for s in sweeps]
        known = [n for n in extents if n is not None]
        if None in extents and not known:
            return None
        return max([*known, choose_gpu.WARP_ROW + 1] if None in extents else known, default=1)

    def _widths(self) -> list[Width]:
        """Sweeps over the same range share a width, so that threads own the same elements in all of them."""
        found: dict[tuple[Expr, Expr], int] = {}
        for s in (s for s in nested(self.loop.body) if isinstance(s, Sweep)):
            cells = [c for c in _lane_cells(s) if _neighbours(c, s)]
            widest = max((numpy_dtype(c.buf.dtype).itemsize for c in cells), default=0)
            wanted = 1
            if widest:
                wanted = choose_gpu.elements_per_load(widest, self.ranges.extent(s.lo, s.hi), self.team)
            found[s.lo, s.hi] = max(found.get((s.lo, s.hi), 1), wanted)
        return [Width(lo, hi, n) for (lo, hi), n in found.items()]

    def width(self, s: Sweep) -> int:
        """Neighbours that a thread takes at a time."""
        return self.widths.get((s.lo, s.hi), 1)

    def phase(self) -> TeamPhase:
        """The scheduled phase."""
        budget = self.words = choose_gpu.register_words(self.team)
        self.shared = shared = (self.target.gpu.shared - 2048) // self.teams
        used = {a.buf for s in nested(self.loop.body) for a in accesses(s, 1)}
        local = tuple(b for b in self.source.local if b in used)
        before = homes(self.loop.body, local, self.ranges, self.team, self.width, self.words, shared)
        for h in before:
            if h.kind == REGISTER:
                self.words -= h.items * self._words(h.buf)
            elif h.kind == SHARED:
                self.shared -= self.ranges.bytes(h.buf) or 0
        staging = Staging(self.kernel.compute, self.ranges, self.names, self._fits)
        body = normal(staging.body(self.loop.body))
        scratch = (*local, *staging.scratch)
        homed = homes(body, scratch, self.ranges, self.team, self.width, budget, shared)
        private = {h.buf for h in homed if h.kind == REGISTER}
        watched = touched(body) - private
        body = BarrierPass(watched, self.width, self.team > choose_gpu.WARP).task(body)
        return TeamPhase(replace(self.loop, body=body), self.source.when, self.team, self.teams, homed,
                         tuple(Width(lo, hi, n) for (lo, hi), n in self.widths.items()), tuple(self.bounds.items()))

    def _words(self, buf: Buf) -> int:
        return max(1, numpy_dtype(buf.dtype).itemsize // 4) * max(self.widths.values(), default=1)

    def _fits(self, extent: int, itemsize: int) -> bool:
        """Whether another row still fits on chip: into registers, else into shared memory."""
        need = -(-extent // self.team) * max(1, itemsize // 4)
        if need <= self.words:
            self.words -= need
            return True
        if extent * itemsize > self.shared:
            return False
        self.shared -= extent * itemsize
        return True


def _lane_cells(s: Sweep) -> list[At]:
    """Elements of arrays that a sweep reads and writes."""
    read = [x for e in lane_expressions(s) for x in walk(e) if isinstance(x, At)]
    return [x for x in (*read, *(p.cell for p in s.puts)) if x.buf.home != "reg"]


def _neighbours(cell: At, s: Sweep) -> bool:
    """Whether neighbouring lanes touch neighbouring elements of an array."""
    unit = cell.buf.unit if cell.buf.home == "global" else None
    return unit is not None and [depends_on(i, s.var) for i in cell.idx] == [d == unit for d in range(len(cell.idx))]


def _names(kernel: Kernel, phase: Phase) -> set[str]:
    """Names that a phase uses already."""
    arrays = {b.name for b in (*kernel.tensors, *kernel.outs, *kernel.shared, *phase.local)}
    return arrays | {s.cell.buf.name for s in nested(phase.loop.body) if isinstance(s, Set)}
