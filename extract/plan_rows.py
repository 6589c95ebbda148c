"""Decisions of the row and column schedules."""

from __future__ import annotations

import math

from redfuser.extract import choose
from redfuser.extract.algebra import reduces_in
from redfuser.extract.decisions import ColumnDecisions, RowDecisions, Setting
from redfuser.ir.interpret import numpy_dtype

Notes = tuple[str, ...]


def row_decisions(s: Setting) -> tuple[RowDecisions, Notes]:
    """Whole rows up to a length, blocks, chunks for few rows, stores; each with a note."""
    wide_outs = [o for o in s.flat.outs if s.stream in o.axes]
    rows = math.prod(s.hints[a] for o in s.flat.outs[:1] for a in o.axes if a != s.stream)
    length = s.hints.get(s.stream, 1)
    limit = choose.whole_row_limit(s.profile, s.itemsize, s.streams + len(wide_outs))
    corrected = bool(s.flat.corrections)
    block = s.options.block or choose.block_length(s.profile, s.itemsize, s.streams, corrected)
    bypass = bool(wide_outs or not s.stream) and choose.streaming_stores(s.profile, _total_bytes(s))
    chunk, few, beyond = _split(s, rows, length, block)
    notes = [f"rows: one task per row, lanes on {s.stream}"]
    if s.options.block:
        notes.append(f"streamed in blocks of {block} (asked for)")
    else:
        between = "corrections" if corrected else "float64 sums"
        notes.append(f"up to {limit} elements a row stays in cache: its reductions run one after another")
        notes.append(f"longer rows stream in blocks of {block} with {between} between them")
    if chunk:
        notes.append(f"fewer than {few} rows of more than {beyond} elements are split into chunks of {chunk}")
    if bypass:
        notes.append("non-temporal stores: inputs and outputs exceed the last-level cache")
    return RowDecisions(0 if s.options.block else limit, block, bypass, chunk, few, beyond), tuple(notes)


def _total_bytes(s: Setting) -> int:
    """Bytes of all inputs and outputs at the example lengths."""
    arrays = [(t.axes, t.dtype) for t in s.flat.tensors] + [(o.axes, o.dtype) for o in s.flat.outs]
    return sum(numpy_dtype(d).itemsize * math.prod(s.hints[a] for a in axes) for axes, d in arrays)


def _split(s: Setting, rows: int, length: int, block: int) -> tuple[int, int, int]:
    """(chunk, few rows, split beyond): planned for where the example lengths are such a case."""
    few = choose.few_rows(s.profile)
    if s.options.chunk is not None:
        return choose.round_up(s.options.chunk, block), few, 0
    if rows >= few or length <= choose.SPLIT_BEYOND:
        return 0, 0, 0
    return choose.round_up(choose.CHUNK, block), few, choose.SPLIT_BEYOND


def column_decisions(s: Setting) -> tuple[ColumnDecisions, Notes] | None:
    """Lanes on a parallel axis when all tensors that vary along stream and rows are contiguous there.

    None where the stream itself is contiguous, an output lacks that axis, or an inner reduction needs the row path.
    """
    forced = s.options.strategy == "columns"
    if s.options.strategy not in (None, "columns"):
        return None
    units = {s.layouts.get(t.name) for t in s.flat.tensors if s.stream in t.axes and len(t.axes) > 1}
    axis = units.pop() if len(units) == 1 else None
    if axis is None or axis == s.stream or any(axis not in o.axes for o in s.flat.outs):
        return None
    bodies = [a.body for a in s.flat.accumulators] + [d.expr for d in s.flat.dependencies]
    if any(reduces_in(e) for e in [*bodies, *(o.expr for o in s.flat.outs)]):
        return None
    if s.hints[axis] < s.lanes and not forced:
        return None
    columns = s.options.tile or min(choose.COLUMNS, choose.round_up(s.hints[axis], s.lanes))
    block = s.options.block or choose.column_block(s.profile, s.itemsize, s.streams, columns)
    notes = (
        f"columns: lanes on {axis}, the contiguous axis; the stream {s.stream} is strided",
        f"tiles of {columns} columns, blocks of {block} elements of {s.stream}",
    )
    return ColumnDecisions(axis, columns, block), notes
