"""No reduction at all: one phase per output, lanes along its contiguous axis, long rows cut into chunks."""

from __future__ import annotations

from collections.abc import Iterable

from redfuser.codegen.block import Row
from redfuser.codegen.indexing import LANE_PAD, ceil_div, product, typed, unravel_sizes
from redfuser.codegen.lower import Env, Space
from redfuser.codegen.materialise import Materialiser
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf, For, LetInt, Phase, Put, Set, Stmt, Sweep
from redfuser.codegen.passes.hoist import hoist
from redfuser.codegen.passes.prune import prune
from redfuser.codegen.passes.unroll import unroll
from redfuser.extract.algebra import reduces_in
from redfuser.ir import Const, Expr, Out, op

CHUNK = 4096
"""Elements of a row per task: enough to hide the hand-out, little enough to share a single row between threads."""


def build_elementwise(space: Space, outs: Iterable[Out], when: Expr | None = None) -> tuple[Phase, ...]:
    """One phase per output, run under the condition `when`."""
    return tuple(_phase(space, o, when) for o in outs)


def _phase(space: Space, o: Out, when: Expr | None) -> Phase:
    names = Names([b.name for b in (*space.tensors.values(), *space.outs.values())])
    task = names.integer("task")
    unit = space.plan.layout(o.name)
    lane_axis = unit if unit in o.axes else o.axes[-1] if o.axes else None
    outer = [(a, space.size(a)) for a in o.axes if a != lane_axis]
    chunks = [] if lane_axis is None else [("chunk", ceil_div(space.size(lane_axis), CHUNK))]
    before, places = unravel_sizes(names, task, [*outer, *chunks])
    axes = {a: places[a] for a, _ in outer}
    body: list[Stmt] = list(before)
    row = Row(space, names, Env(axes), "", lambda n: At(space.outs[o.name]))
    scratch: list[Buf] = []
    if lane_axis is None:
        _scalar_output(row, o, body, scratch)
    else:
        _row_output(row, o, lane_axis, places["chunk"], body, scratch)
    cleaned = unroll(prune(hoist(tuple(body), names, space.compute)), space.plan.profile, space.compute)
    total = product([extent for _, extent in (*outer, *chunks)])
    length = space.size(lane_axis) if lane_axis is not None else Const(1)
    grab = op("max", op("idiv", CHUNK, op("max", length, 1)), 1)  # short rows: many tasks at a time
    return Phase(For(task.name, Const(0), total, grab, cleaned, "task"), tuple(scratch), when)


def _scalar_output(row: Row, o: Out, body: list[Stmt], scratch: list[Buf]) -> None:
    inner = Materialiser(row, "", (), scratch)
    value = row.lower(o.expr, inner.env(body, Const(0), Const(1)))
    body.append(Set(At(row.space.outs[o.name]), typed(value, o.dtype, row.names, row.space.compute)))


def _row_output(row: Row, o: Out, lane_axis: str, chunk: Expr, body: list[Stmt], scratch: list[Buf]) -> None:
    """Sweep one chunk of a row of the output."""
    space, names = row.space, row.names
    lo, hi = names.integer("lo"), names.integer("hi")
    lane = names.integer(lane_axis)
    row.lane = lane.name
    row.env.axes[lane_axis] = lane
    end = op("min", op("add", lo, CHUNK), space.size(lane_axis))
    body += [LetInt(lo.name, op("mul", chunk, CHUNK)), LetInt(hi.name, end)]
    inner = Materialiser(row, lane_axis, (Const(CHUNK + LANE_PAD),), scratch)
    env = inner.env(body, lo, hi) if reduces_in(o.expr) else row.env
    value = typed(row.lower(o.expr, env), o.dtype, names, space.compute)
    cell = At(space.outs[o.name], tuple(row.env.axes[a] for a in o.axes))
    body.append(Sweep(lane.name, lo, hi, (), (Put(cell, value, space.plan.rows.streaming_stores),)))
