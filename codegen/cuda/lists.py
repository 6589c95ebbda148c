"""Elements of a sweep into a sorted list, as CUDA: one round of the whole team per place of the list.

In every round each thread looks for the best of its elements, and of the old list, that comes after the one found last;
the best of all threads is next. Equal keys keep their order: places of the old list count as earlier than all elements.
Where a full list is better than every new element, one look at the elements shows it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from redfuser.codegen.c.scalars import bare
from redfuser.codegen.c.types import INT, SCALAR
from redfuser.codegen.cuda.context import CudaContext
from redfuser.codegen.cuda.lanes import Element, Range
from redfuser.codegen.nodes import At, Sweep
from redfuser.ir import Const


class ListPrinter:
    """Prints a sweep with one insertion and nothing else."""

    def __init__(self, ctx: CudaContext, sweep: Sweep) -> None:
        self.ctx, self.sweep, self.node = ctx, sweep, sweep.inserts[0]
        self.real = SCALAR[ctx.kernel.compute]
        self.sign = "true" if self.node.largest else "false"
        self.length = self.node.length

    def print(self) -> None:
        """The vote, the rounds, and the new list in place of the old one."""
        ctx, out, k = self.ctx, self.ctx.out, self.length
        ctx.fresh_places = max(ctx.fresh_places, k)
        ctx.reductions = max(ctx.reductions, 3)
        keys, indices = (self._list(cell) for cell in (self.node.keys, self.node.indices))
        with out.block():
            out.line(f"{self.real} *const list_keys = {keys};")
            out.line(f"int64_t *const list_indices = {indices};")
            out.line("int enters = 0; /* whether any element does */")
            with self._elements() as element:
                key, index = self._pair(element)
                better = f"list_indices[{k - 1}] < 0 || key_before<{self.sign}>({key}, list_keys[{k - 1}])"
                out.line(f"if ({index} >= 0 && ({better})) enters = 1;")
            self._team_any()
            with out.block("if (enters)"):
                self._rounds()
            out.line(ctx.barrier)

    def _list(self, cell: At) -> str:
        """Pointer to the first place."""
        return self.ctx.scalars.pointer(cell, "z_", Const(0))

    def _elements(self) -> AbstractContextManager[Element]:
        return Range(self.ctx, self.sweep, [self.node.key, self.node.index]).elements()

    def _pair(self, element: Element) -> tuple[str, str]:
        return element.name(self.node.key, self.ctx.kernel.compute), element.name(self.node.index, INT)

    def _team_any(self) -> None:
        out, ctx = self.ctx.out, self.ctx
        if ctx.warps == 1:
            out.line(f"enters = __any_sync({ctx.mask}, enters);")
        else:
            out.line("enters = __syncthreads_or(enters);")

    def _rounds(self) -> None:
        ctx, out, k = self.ctx, self.ctx.out, self.length
        state = f"candidate<{self.real}>"
        out.line(f"{state} last = nothing<{self.real}>();")
        out.line("int count = 0;")
        with out.block(f"for (; count < {k}; count++)"):
            out.line(f"{state} best = nothing<{self.real}>();")
            with out.block(f"for (int z = lane; z < {k}; z += {ctx.team.team})"):
                out.line(f"if (list_indices[z] >= 0) offer<{self.sign}>(best, last, "
                         f"{{list_keys[z], z - {k}, list_indices[z]}});")
            with self._elements() as element:
                key, index = self._pair(element)
                var = ctx.names.get("variable", self.sweep.var)
                lo = bare(ctx.scalars.integer(self.sweep.lo))
                place = var if lo == "0" else f"{var} - ({lo})"
                out.line(f"if ({index} >= 0) offer<{self.sign}>(best, last, {{{key}, {place}, {index}}});")
            part = "" if ctx.lanes == 32 else f", {ctx.lanes}"
            out.line(f"best = warp_best<{self.sign}{part}>({'best' if ctx.lanes == 32 else 'best, team_lanes'});")
            if ctx.warps > 1:
                self._block_best()
            out.line("if (best.index < 0) break;")
            out.line("last = best;")
            with out.block("if (lane == 0)"):
                out.line("fresh_keys[count] = best.key;")
                out.line("fresh_indices[count] = best.index;")
        out.line(ctx.barrier)
        with out.block(f"for (int z = lane; z < count; z += {ctx.team.team})"):
            out.line(f"list_keys[z] = ({self.real})fresh_keys[z];")
            out.line("list_indices[z] = fresh_indices[z];")

    def _block_best(self) -> None:
        ctx, out = self.ctx, self.ctx.out
        out.line("turn ^= 1;")
        with out.block("if (lane % 32 == 0)"):
            for i, (part, kind) in enumerate((("key", self.real), ("place", "int64_t"), ("index", "int64_t"))):
                out.line(f"*({kind} *)&slots[turn][{i}][lane / 32] = best.{part};")
        out.line(ctx.barrier)
        out.line(f"best = nothing<{self.real}>();")
        with out.block(f"for (int w = 0; w < {ctx.warps}; w++)"):
            out.line(f"const candidate<{self.real}> one = {{*({self.real} *)&slots[turn][0][w], "
                     "(int64_t)slots[turn][1][w], (int64_t)slots[turn][2][w]};")
            out.line(f"if (candidate_before<{self.sign}>(one, best)) best = one;")
