"""The row schedule, right for every fusion: one task per point of the parallel axes, lanes along the stream.

Outputs with the same parallel axes share their phases. A row that fits in cache runs its reductions one after the
other (no state, no correction); a longer one streams in blocks. Which of the two is decided when the kernel runs.
"""

from __future__ import annotations

from redfuser.codegen.build_columns import build_columns
from redfuser.codegen.build_split import build_split
from redfuser.codegen.indexing import LANE_PAD, product
from redfuser.codegen.levels import SHIFTS, identity
from redfuser.codegen.lower import Space
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import Buf, If, Phase, Stmt
from redfuser.codegen.passes.hoist import hoist
from redfuser.codegen.passes.prefetch import prefetch
from redfuser.codegen.passes.share import share
from redfuser.codegen.row_phase import RowPhase
from redfuser.extract.flatten import Flat
from redfuser.extract.restrict import restrict
from redfuser.ir import Const, Expr, Out, op


def build_rows(space: Space) -> tuple[tuple[Phase, ...], tuple[Buf, ...]]:
    """All phases of the row schedule, and the workspace they share."""
    groups: dict[frozenset[str], list[Out]] = {}
    for o in space.flat.outs:
        groups.setdefault(frozenset(space.flat.row_axes(o)), []).append(o)
    workspace = Names([b.name for b in (*space.tensors.values(), *space.outs.values())])
    phases: list[Phase] = []
    shared: list[Buf] = []
    for outs in groups.values():
        more, buffers = _group_phases(space, restrict(space.flat, outs), workspace)
        phases += more
        shared += buffers
    return tuple(phases), tuple(shared)


def _group_phases(space: Space, flat: Flat, workspace: Names) -> tuple[list[Phase], list[Buf]]:
    """Whole rows up to a length; beyond it blocks, or chunks for all threads where rows are few."""
    assert flat.stream is not None
    columns, decisions = space.plan.columns, space.plan.rows
    if columns is not None and flat.accumulators and columns.axis in flat.outs[0].axes:
        return [build_columns(space, flat, columns)], []
    length = space.size(flat.stream)
    if not flat.accumulators:
        return [streaming(space, flat, None)], []
    long = op("gt", length, decisions.whole_row)
    phases = [whole_rows(space, flat, op("le", length, decisions.whole_row))] if decisions.whole_row else []
    if isinstance(length, Const) and phases:
        return phases if int(length.value) <= decisions.whole_row else [streaming(space, flat, None)], []
    if not decisions.chunk:
        return [*phases, streaming(space, flat, long if phases else None)], []
    few = op(
        "and", op("lt", rows_of(space, flat), decisions.few_rows), op("gt", length, decisions.split_beyond)
    )
    many = op("not", few)
    if phases:
        few, many = op("and", long, few), op("and", long, many)
    split, buffers = build_split(space, flat, few, workspace)
    return [*phases, streaming(space, flat, many), *split], buffers


def rows_of(space: Space, flat: Flat) -> Expr:
    """Number of rows of a group of outputs."""
    return product([space.size(a) for a in flat.row_axes(flat.outs[0])])


def whole_rows(space: Space, flat: Flat, when: Expr | None) -> Phase:
    """The row stays in cache: its reductions run one after another, then the outputs."""
    p = RowPhase(space, flat)
    extent = (op("add", p.length, LANE_PAD),)
    p.materialiser(extent)
    body = p.opening()
    for levels in p.levels:
        p.row.next_pass()
        body += p.row.whole(levels, Const(0), p.length)
    for o in p.stream_outs():
        body += _cached_output(p, o)
    body += p.row_outputs()
    hoisted = hoist(tuple(body), p.names, space.compute)
    shared = share(hoisted, p.place.lane, extent, p.names, space.compute)
    p.scratch += shared.scratch
    return p.phase(prefetch(shared.body, p.place.lane, p.next_row()), when, p.rows_per_grab())


def _cached_output(p: RowPhase, o: Out) -> list[Stmt]:
    """The output from guarded values, so that it shares terms; again by the definition where a guard acted."""
    out: list[Stmt] = []
    guarded = p.output_sweep(o, out, Const(0), p.length)
    out.append(guarded)
    before: list[Stmt] = []
    env, p.row.env = p.row.env, p.row.env.raw()
    plain = p.output_sweep(o, before, Const(0), p.length)
    p.row.env = env
    if plain == guarded:
        return out
    extrema = [a for a in p.flat.accumulators if a.monoid in SHIFTS and a.name in env.values]
    dead = [op("eq", env.values[a.name], identity(a.monoid)) for a in extrema]
    condition = dead[0]
    for d in dead[1:]:
        condition = op("or", condition, d)
    return [*out, If(condition, (*before, plain))]


def streaming(space: Space, flat: Flat, when: Expr | None) -> Phase:
    """One loop over blocks per pass, then a second sweep for outputs that carry the stream."""
    p = RowPhase(space, flat)
    p.materialiser(p.block_extent())
    body = p.opening()
    for names, levels in zip(flat.passes, p.levels, strict=True):
        own = [a for a in flat.accumulators if a.name in names]
        p.row.next_pass()
        if levels:
            body += p.row.start(own)
            body.append(p.block_loop(levels, Const(0), p.length))
        p.row.finish(body, own, p.completed(levels))
    p.row.env = p.row.env.raw()
    for o in p.stream_outs():
        body += p.second_sweep(o, Const(0), p.length)
    body += p.row_outputs()
    return p.phase(hoist(tuple(body), p.names, space.compute), when, p.rows_per_grab())
