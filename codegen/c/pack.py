"""Packing: an operand copied into panels of `width` lanes, zero where there is no lane."""

from __future__ import annotations

from redfuser.codegen.c.context import Context
from redfuser.codegen.c.scalars import Scalars, bare
from redfuser.codegen.c.types import storage
from redfuser.codegen.nodes import At, Pack
from redfuser.errors import CheckError
from redfuser.ir import Const
from redfuser.ir.dtypes import STORAGE_ONLY

LANE, DEPTH = "l_", "c_"


class PackPrinter:
    """Prints one Pack: per panel whole squares by transposes or whole rows by vectors, the rest element by element."""

    def __init__(self, ctx: Context, node: Pack) -> None:
        self.ctx = ctx
        self.node = node
        self.scalars = Scalars(ctx)

    def print(self) -> None:
        """The copy of all panels."""
        n, out = self.node, self.ctx.out
        src_type, dst_type = storage(n.src.buf.dtype), storage(n.dst.buf.dtype)
        p0, p1 = (bare(self.scalars.integer(p)) for p in (n.p0, n.p1))
        with out.block(f"for (int64_t panel = {p0}; panel < {p1}; panel++)"):
            out.line(f"const int64_t l_ = panel * {n.width}, depth_ = {bare(self.scalars.integer(n.depth))};")
            out.line(
                f"const int64_t live = max_int(min_int({bare(self.scalars.integer(n.lanes))} - l_, {n.width}), 0);"
            )
            out.line(f"const {src_type} *const from = {self.scalars.pointer(n.src, DEPTH, Const(0))};")
            out.line(f"{dst_type} *const to = {self.scalars.pointer(n.dst, DEPTH, Const(0))};")
            out.line(
                f"const int64_t lane_step = {self._step(n.src, LANE)}, depth_step = {self._step(n.src, DEPTH)};"
            )
            out.line(f"const int64_t to_step = {self._step(n.dst, DEPTH)};")
            out.line("int64_t c_ = 0;")
            if n.width % self.ctx.lanes == 0 and n.dst.buf.dtype == self.ctx.kernel.compute:
                self._vectors()
            with out.block("for (; c_ < depth_; c_++)"):
                out.line(
                    f"for (int64_t z_ = 0; z_ < {n.width}; z_++) "
                    f"to[c_ * to_step + z_] = z_ < live ? {self._element()} : 0;"
                )

    def _step(self, cell: At, var: str) -> str:
        step = self.ctx.addresses.step(cell, var)
        if step is None:
            raise CheckError(f"Pack: {cell.buf.name} has no constant stride along {var}")
        return bare(self.scalars.integer(step))

    def _element(self) -> str:
        dtype, text = self.node.src.buf.dtype, "from[z_ * lane_step + c_ * depth_step]"
        if dtype in STORAGE_ONLY:
            text = f"scalar_from_{dtype}({text})"
        return text if dtype == self.node.dst.buf.dtype else f"({storage(self.node.dst.buf.dtype)}){text}"

    def _vectors(self) -> None:
        """Full panels: lanes contiguous -> vector copies; depth contiguous -> transposed squares; else gathers."""
        n, out, lanes = self.node, self.ctx.out, self.ctx.lanes
        native = n.src.buf.dtype == self.ctx.kernel.compute
        suffix = "" if native else f"_{n.src.buf.dtype}_real"
        groups = f"for (int64_t z_ = 0; z_ < {n.width}; z_ += {lanes})"
        with out.block(f"if (live == {n.width} && lane_step == 1)"):
            out.line(f"for (; c_ < depth_; c_++) {groups}")
            out.line(f"  store(to + c_ * to_step + z_, load{suffix}(from + c_ * depth_step + z_));")
        if native:
            with out.block(f"if (live == {n.width} && depth_step == 1)"):
                out.line(f"for (; c_ + {lanes} <= depth_; c_ += {lanes}) {groups}")
                out.line(
                    "  transpose_square(from + z_ * lane_step + c_, lane_step, to + c_ * to_step + z_, to_step);"
                )
