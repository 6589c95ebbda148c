"""Decisions of the row and column schedules."""

from __future__ import annotations

import math

from redfuser.derivation.fusion import Accumulator
from redfuser.extract import choose
from redfuser.extract.algebra import reduces_in
from redfuser.extract.decisions import ColumnDecisions, RowDecisions, Setting
from redfuser.extract.device import CPU_SLOTS
from redfuser.extract.flatten import awaited_places
from redfuser.extract.work import row_costs
from redfuser.ir import Expr, find_parts, free_axes, is_costly, walk
from redfuser.ir.dtypes import numpy_dtype

Notes = tuple[str, ...]


def row_decisions(s: Setting) -> tuple[RowDecisions, Notes]:
    """Whole rows up to a length, blocks, chunks for few rows, stores; each with a note."""
    wide_outs = [o for o in s.flat.outs if s.stream in o.axes]
    rows = math.prod(s.hints[a] for o in s.flat.outs[:1] for a in o.axes if a != s.stream)
    length = s.hints.get(s.stream, 1)
    costly = any(_is_costly(o.expr, s.stream) for o in wide_outs)
    limit = choose.whole_row_limit(s.profile, s.itemsize, s.streams + len(wide_outs), costly)
    corrected = bool(s.flat.corrections)
    block = s.options.block or choose.block_length(s.profile, s.itemsize, s.streams, corrected)
    depth = awaited_places(s.flat)
    block = max(block, depth)
    bypass = bool(wide_outs or not s.stream) and choose.streaming_stores(s.profile, _total_bytes(s))
    cost = row_cost(s) if s.profile.threads > 1 and length > choose.CHUNK and s.options.chunk is None else None
    chunk, few, beyond = (0, 0, 0) if depth else _split(s, cost, rows, length, block)
    notes = [f"rows: one task per row, lanes on {s.stream}"]
    lists = [a.name for a in s.flat.accumulators if _is_list(a)]
    if lists and any(s.stream in t.axes and not s.contiguous(t.name, s.stream) for t in s.flat.tensors):
        notes.append(f"strided reads: the sorted list of {lists[0]} is kept per row, not per column")
    if s.options.block:
        notes.append(f"streamed in blocks of {block} (asked for)")
    else:
        between = "corrections" if corrected else "float64 sums"
        notes.append(f"up to {limit} elements a row stays in cache: its reductions run one after another")
        notes.append(f"longer rows stream in blocks of {block} with {between} between them")
    if depth:
        notes.append(f"never split: the loop reads place {depth} of a list, which a short part does not fill")
    if chunk:
        notes.append(f"fewer than {few} rows of more than {beyond} elements are split into chunks of {chunk}")
    if cost is not None:
        notes.append(_compared(cost, rows, length, s.profile.threads))
    if bypass:
        notes.append("non-temporal stores: inputs and outputs exceed the last-level cache")
    return RowDecisions(0 if s.options.block else limit, block, bypass, chunk, few, beyond), tuple(notes)


def _compared(cost: choose.RowCost, rows: int, length: int, threads: int) -> str:
    """What the cost model says of one segment per row and several."""
    one, many = cost.single(rows, length, threads) * 1e6, cost.multi(rows, length, threads) * 1e6
    times = f"{one:.3g} us in one segment each, {many:.3g} us in several"
    return f"predicted for {rows} row{'s' * (rows != 1)} of {length}: {times}"


def _is_list(a: Accumulator) -> bool:
    m = find_parts(a.monoid)
    return m is not None and m.rank is not None


def _is_costly(e: Expr, stream: str) -> bool:
    """Does an output along the stream compute exponentials or logarithms of its elements?"""
    return any(is_costly(x) and stream in free_axes(x) for x in walk(e))


def _total_bytes(s: Setting) -> int:
    """Bytes of all inputs and outputs at the example lengths."""
    arrays = [(t.axes, t.dtype) for t in s.flat.tensors] + [(o.axes, o.dtype) for o in s.flat.outs]
    return sum(numpy_dtype(d).itemsize * math.prod(s.hints[a] for a in axes) for axes, d in arrays)


def _split(s: Setting, cost: choose.RowCost | None, rows: int, length: int, block: int) -> tuple[int, int, int]:
    """(chunk, few rows, split beyond): planned for where the example lengths are such a case.

    `cost`: None where there is nothing to weigh, a single thread or a single chunk.
    """
    threads = s.profile.threads
    if s.options.chunk is not None:
        return choose.round_up(s.options.chunk, block), 2 * threads if threads > 1 else 0, 0
    if cost is None or not cost.splits(rows, length, threads):
        return 0, 0, 0
    few, beyond = choose.few_rows(cost, length, threads), choose.split_beyond(cost, rows, threads)
    return choose.round_up(choose.CHUNK, block), few, beyond


def row_cost(s: Setting) -> choose.RowCost:
    """What an element of a row and a merge of two states cost on the machine."""
    slots, merge = row_costs(s.flat, s.hints, CPU_SLOTS)
    wide = [(t.axes, t.dtype) for t in s.flat.tensors] + [(o.axes, o.dtype) for o in s.flat.outs]
    element = sum(numpy_dtype(d).itemsize for axes, d in wide if s.stream in axes)
    return choose.RowCost.of(s.profile, slots, merge, element, _total_bytes(s))


def column_decisions(s: Setting) -> tuple[ColumnDecisions, Notes] | None:
    """Lanes on a parallel axis when all tensors that vary along stream and rows are contiguous there.

    None where the stream itself is contiguous, no output has that axis (those without it take rows), or an inner
    reduction or a sorted list needs the row path.
    """
    forced = s.options.strategy == "columns"
    if s.options.strategy not in (None, "columns") or any(_is_list(a) for a in s.flat.accumulators):
        return None
    units = {s.layouts.get(t.name) for t in s.flat.tensors if s.stream in t.axes and len(t.axes) > 1}
    axis = units.pop() if len(units) == 1 else None
    if axis is None or axis == s.stream or not any(axis in o.axes for o in s.flat.outs):
        return None
    bodies = [a.body for a in s.flat.accumulators] + [d.expr for d in s.flat.dependencies]
    if any(reduces_in(e) for e in [*bodies, *(o.expr for o in s.flat.outs)]):
        return None
    if s.hints[axis] < s.lanes and not forced:
        return None
    outer = max(math.prod(s.hints[a] for a in o.axes if a not in (s.stream, axis)) for o in s.flat.outs)
    columns = s.options.tile or choose.columns_per_tile(s.profile.threads, outer, s.hints[axis], s.lanes)
    block = s.options.block or choose.column_block(s.profile, s.itemsize, s.streams, columns)
    notes: Notes = (
        f"columns: lanes on {axis}, the contiguous axis; the stream {s.stream} is strided",
        f"tiles of {columns} columns, blocks of {block} elements of {s.stream}",
    )
    row_axis, rows = _shared_rows(s, axis, columns)
    if rows > 1:
        notes = (*notes, f"groups of {rows} rows on {row_axis} share what is the same for all of them")
    return ColumnDecisions(axis, columns, block, row_axis if rows > 1 else "", rows), notes


def _shared_rows(s: Setting, axis: str, columns: int) -> tuple[str, int]:
    """A parallel axis that some state of the columns lacks, and the number of rows along it that share that state."""
    best = ("", 1)
    for o in s.flat.outs:
        outer = [a for a in o.axes if a not in (s.stream, axis)] if axis in o.axes else []
        for row in outer:
            if any(axis in a.axes and row not in a.axes for a in s.flat.accumulators):
                tasks = math.prod(s.hints[a] for a in outer if a != row) * -(-s.hints[axis] // columns)
                rows = choose.shared_rows(s.profile.threads, tasks, s.hints[row], columns)
                best = max(best, (row, rows), key=lambda found: found[1])
    return best
