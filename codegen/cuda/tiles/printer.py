"""A phase of fragments as CUDA: the text of its task and what it needs of shared memory."""

from __future__ import annotations

from redfuser.codegen.c.context import Writer
from redfuser.codegen.c.scalars import bare
from redfuser.codegen.c.statements import print_plain
from redfuser.codegen.c.types import BOOL, INT, SCALAR, storage
from redfuser.codegen.cuda.context import CudaContext
from redfuser.codegen.cuda.nodes import Barrier
from redfuser.codegen.cuda.tiles.nodes import (
    CHUNK,
    COLUMN,
    COLUMNS,
    DEPTH,
    FRAGMENT,
    LIST,
    PIECE_ROWS,
    ROW,
    STATE,
    STRIP,
    Commit,
    Copy,
    FragmentPhase,
    Held,
    Multiply,
    Panel,
    Take,
    Wait,
    Whole,
)
from redfuser.codegen.cuda.tiles.rows import RowPrinter, TileScalars
from redfuser.codegen.nodes import At, For, Set, Stmt
from redfuser.codegen.passes.bodies import Body
from redfuser.errors import CheckError
from redfuser.ir import Const, Expr, rewrite


class TilePrinter:
    """Prints one phase into the context's writer."""

    def __init__(self, ctx: CudaContext, phase: FragmentPhase) -> None:
        self.ctx, self.phase = ctx, phase
        self.rows = RowPrinter(ctx, phase)
        self.operands = {o.buf: o for o in phase.operands}

    def body(self) -> str:
        """The text of one task, with the registers that it works on."""
        ctx, p = self.ctx, self.phase
        ctx.enter(dict(p.variables), 2)
        usual, ctx.scalars = ctx.scalars, TileScalars(ctx)
        for buf in p.scalars:
            ctx.out.line(f"{SCALAR[ctx.types.converted(buf.dtype)]} {ctx.addresses.base(buf)} = 0;")
        for h in p.held:
            size = self._size(h)
            ctx.out.line(f"{storage(h.buf.dtype)} {ctx.addresses.base(h.buf)}{size};")
        for o in (o for o in p.operands if o.kept):
            ctx.out.line(f"uint32_t {ctx.addresses.base(o.buf)}[{p.pieces}][{o.depth // DEPTH}][4];")
        self._statements(p.loop.body)
        ctx.scalars = usual
        return ctx.out.text()

    def _size(self, h: Held) -> str:
        """The dimensions of a scratch buffer in registers."""
        p, columns = self.phase, h.columns // COLUMNS
        return {STATE: f"[{p.parts}]", LIST: f"[{p.parts}][{h.columns}]", STRIP: f"[{columns}][2]",
                FRAGMENT: f"[{p.pieces}][{columns}][4]"}[h.kind]

    def head(self) -> str:
        """What a thread knows before its first task."""
        w = Writer()
        w.line("const int lane = threadIdx.x % 32;")
        w.line(f"const int warp_row = threadIdx.x / 32 * {self.phase.pieces * PIECE_ROWS};")
        w.line("extern __shared__ __align__(128) uint8_t shared_bytes[];")
        offset = 0
        for p in self.phase.panels:
            w.line(f"uint16_t *const {self._panel(p)} = (uint16_t *)(shared_bytes + {offset});")
            offset += p.stage_bytes * p.stages
        return w.text()

    def worker(self) -> str:
        """What does a task."""
        p = self.phase
        return f"{p.warps} warps: a tile of {p.rows} rows, {p.pieces * PIECE_ROWS} for each of them"

    # ---- statements

    def _statements(self, body: Body) -> None:
        for s in body:
            self._statement(s)

    def _statement(self, s: Stmt) -> None:
        ctx, out = self.ctx, self.ctx.out
        if isinstance(s, For) and s.kind == "row":
            self.rows.loop(s)
        elif print_plain(ctx.scalars, s, self._statements):
            return
        elif isinstance(s, Barrier):
            out.line("__syncthreads();")
        elif isinstance(s, Commit):
            out.line("commit_copies();")
        elif isinstance(s, Wait):
            out.line(f"wait_for_copies<{s.pending}>();")
        elif isinstance(s, Copy):
            self._copy(s)
        elif isinstance(s, Take):
            to, panel = ctx.addresses.base(s.operand.buf), s.operand.panel
            out.line(f"take_operand<{_chunks(panel)}>({to}, {self._panel(panel)}, warp_row);")
        elif isinstance(s, Multiply):
            self._multiply(s)
        elif isinstance(s, Whole):
            self._whole(s)
        elif isinstance(s, Set):
            out.line(ctx.scalars.store(s.cell, s.expr))
        else:
            raise CheckError(f"{type(s).__name__} has no form in a tile")

    def _panel(self, p: Panel) -> str:
        return self.ctx.names.get("panel", p.name)

    def _stage(self, p: Panel, stage: Expr) -> str:
        """The first element of a stage of a panel."""
        if stage == Const(0):
            return self._panel(p)
        return f"{self._panel(p)} + {self.ctx.scalars.of(stage, INT)} * {p.rows * p.columns}"

    def _copy(self, s: Copy) -> None:
        scalars, addresses = self.ctx.scalars, self.ctx.addresses
        corner = rewrite(s.source, lambda x: Const(0) if x in (ROW, COLUMN) else None)
        assert isinstance(corner, At)
        steps = [addresses.step(s.source, v.name) for v in (ROW, COLUMN)]
        assert None not in steps
        numbers = [bare(scalars.integer(e)) for e in (*steps, s.rows, s.columns) if e is not None]
        shape = f"{s.panel.rows}, {_chunks(s.panel)}, {self.phase.warps * 32}"
        self.ctx.out.line(f"copy_panel<{shape}>({self._stage(s.panel, s.stage)}, {scalars.pointer(corner)}, "
                          f"{', '.join(numbers)});")

    def _multiply(self, s: Multiply) -> None:
        out, base = self.ctx.out, self.ctx.addresses.base
        units = f"{s.panel.dtype}_units"
        call = f"multiply<{units}, {'true' if s.transposed else 'false'}, {_chunks(s.panel)}>"
        if not s.accumulate:
            out.line(f"clear_fragments({base(s.dst)});")
        if s.a in self.operands and not self.operands[s.a].kept:
            own = self.operands[s.a].panel
            shape = f"{_chunks(own)}, {_chunks(s.panel)}, {s.depth // DEPTH}"
            call = f"multiply_panels<{units}, {'true' if s.transposed else 'false'}, {shape}>"
            out.line(f"{call}({base(s.dst)}, {self._panel(own)}, warp_row, {self._stage(s.panel, s.stage)});")
            return
        if s.a in self.operands:
            out.line(f"{call}({base(s.dst)}, {base(s.a)}, {self._stage(s.panel, s.stage)});")
            return
        with out.block():
            out.line(f"uint32_t rounded[{self.phase.pieces}][{s.depth // DEPTH}][4];")
            out.line(f"rounded_operand<{units}>(rounded, {base(s.a)});")
            out.line(f"{call}({base(s.dst)}, rounded, {self._stage(s.panel, s.stage)});")

    def _whole(self, s: Whole) -> None:
        """The choice is the same for all lanes of a warp: their collectives meet."""
        out, scalars = self.ctx.out, self.ctx.scalars
        if s.rows is None:
            test = bare(scalars.of(s.test, BOOL))
        else:
            test = self.ctx.names.fresh("whole")
            out.line(f"bool {test} = true;")
            with self.rows.parts(s.rows):
                self.rows.statements(s.rows.body)
                out.line(f"{test} = {test} && {scalars.of(s.test, BOOL)};")
            test = f"__all_sync(ALL_LANES, {test})"
        with out.block(f"if ({test})"):
            self._statements(s.full)
        with out.block("else"):
            self._statements(s.ragged)


def _chunks(p: Panel) -> int:
    """Chunks of a row of a panel."""
    return p.columns // CHUNK


