"""Operands of matrix products: read in place, packed into panels by a phase of their own, or packed per block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from redfuser.codegen.indexing import ceil_div, product, tidy, unravel_sizes
from redfuser.codegen.lower import Space
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf, For, LetInt, Pack, Phase, Stmt
from redfuser.ir import Const, Expr, Load, Var, op

Cell = Callable[[Expr, Expr], At]
"""(position along the lanes, position along the depth) -> element."""

LANE, DEPTH = Var("l_"), Var("c_")
LANES_PER_TASK = 256


@dataclass(frozen=True)
class Operand:
    """How a matrix product reads a tensor with its `lane` axis across and its `depth` axis down.

    positions : the other axes -> their positions
    width : lanes of a panel
    """

    space: Space = field(compare=False)
    load: Load
    lane: str
    depth: str
    width: int

    @property
    def batch(self) -> list[str]:
        """The axes that are neither lanes nor depth."""
        return [a for a in self.load.axes if isinstance(a, str) and a not in (self.lane, self.depth)]

    def in_place(self, positions: dict[str, Expr]) -> Cell:
        """Elements where they lie."""
        buf = self.space.tensors[self.load.tensor]

        def cell(lane: Expr, depth: Expr) -> At:
            at = {**positions, self.lane: lane, self.depth: depth}
            return At(buf, tuple(at[a] for a in self.load.axes if isinstance(a, str)))

        return cell

    def _panel(self, buf: Buf, before: tuple[Expr, ...], lane: Expr, depth: Expr) -> At:
        return At(buf, (*before, op("idiv", lane, self.width), depth, op("imod", lane, self.width)))

    # -------------------------------- packed once, for all tiles

    def panels(self, name: str) -> Buf:
        """Workspace [batch..., panel, depth, lane of the panel]."""
        outer = tuple(self.space.size(a) for a in self.batch)
        inner = (
            ceil_div(self.space.size(self.lane), self.width),
            self.space.size(self.depth),
            Const(self.width),
        )
        return Buf(name, (*outer, *inner), "shared", self.space.compute)

    def in_panels(self, buf: Buf, positions: dict[str, Expr]) -> Cell:
        """Elements of the packed workspace."""
        before = tuple(positions[a] for a in self.batch)
        return lambda lane, depth: self._panel(buf, before, lane, depth)

    def pack_phase(self, buf: Buf, names: Names) -> Phase:
        """Fill the workspace: tasks are groups of panels, or groups of depth rows where the lane axis is short."""
        lanes, depth = self.space.size(self.lane), self.space.size(self.depth)
        panels = ceil_div(lanes, self.width)
        task = names.integer("task")
        long_lanes = not isinstance(lanes, Const)
        group = max(1, LANES_PER_TASK // self.width) if long_lanes else LANES_PER_TASK
        groups = ceil_div(panels if long_lanes else depth, group)
        dims = [(a, self.space.size(a)) for a in self.batch] + [("group", groups)]
        before, positions = unravel_sizes(names, task, dims)
        first = names.integer("first")
        body: list[Stmt] = [*before, LetInt(first.name, op("mul", positions["group"], group))]
        ends: tuple[Expr, Expr] = (Const(0), panels)
        row, count = op("add", first, DEPTH), op("min", op("sub", depth, first), group)
        if long_lanes:
            ends, row, count = (first, op("min", op("add", first, group), panels)), DEPTH, depth
        target = self.in_panels(buf, positions)(LANE, row)
        body.append(Pack(target, self.in_place(positions)(LANE, row), *ends, lanes, count, self.width))
        total = product([extent for _, extent in dims])
        return Phase(For(task.name, Const(0), total, Const(1), tuple(body), "task"))

    # -------------------------------- packed per block, in the cache of one thread

    def block_buffer(self, name: str, block: int) -> Buf:
        """Scratch for the panels of one block of lanes."""
        depth = self.space.size(self.depth)
        return Buf(
            name, (Const(-(-block // self.width)), depth, Const(self.width)), "local", self.space.compute
        )

    def in_block(self, buf: Buf, start: Expr) -> Cell:
        """Elements of the block's panels; `start` is the lane the block begins with."""
        return lambda lane, depth: self._panel(buf, (), tidy(op("sub", lane, start)), depth)

    def pack_block(self, buf: Buf, positions: dict[str, Expr], start: Expr, end: Expr) -> Pack:
        """Pack the lanes [start, end)."""
        count = op("sub", end, start)
        source = self.in_place(positions)(op("add", start, LANE), DEPTH)
        panels = op("idiv", op("add", count, self.width - 1), self.width)
        depth = self.space.size(self.depth)
        return Pack(self._panel(buf, (), LANE, DEPTH), source, Const(0), panels, count, depth, self.width)
