"""The plan of a fusion for a GPU: tiles on matrix units, rows or columns, by the numbers of the device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from redfuser.derivation.fusion import FusedCascade
from redfuser.extract import choose_gpu
from redfuser.extract.algebra import reduces_in
from redfuser.extract.choose import round_up
from redfuser.extract.decisions import ColumnDecisions, Options, RowDecisions
from redfuser.extract.flatten import awaited_places
from redfuser.extract.gpu import Gpu
from redfuser.extract.plan import Plan, plan
from redfuser.extract.plan_gpu_tiles import matrix_tiles
from redfuser.extract.profile import Profile
from redfuser.extract.roles import NoTiles
from redfuser.ir import Load, walk
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.term import base_axis

Notes = tuple[str, ...]
Layouts = Mapping[str, str | None]


def gpu_plan(fused: FusedCascade, sizes: Mapping[str, int], gpu: Gpu, layouts: Layouts | None = None,
             dtype: str = "float32", options: Options | None = None) -> Plan:
    """Choose a schedule for a GPU. Parameters as for `plan`; products that matrix units do not take are computed row
    by row.

    `options`: block, chunk, tile (rows of a tile, columns of a task) and strategy count.
    """
    asked = options or Options()
    as_cpu = Profile.generic(16).with_fields(threads=gpu.units)
    tiled, reasons = _tiles(fused, sizes, gpu, layouts, dtype, asked)
    if tiled is not None:
        return tiled
    found = plan(fused, sizes, as_cpu, layouts, dtype, _as_rows(fused, sizes, as_cpu, layouts, dtype, asked))
    if found.strategy == "columns" and found.columns is not None:
        columns, notes = _columns(found, sizes, gpu, asked)
        return replace(found, rows=_streamed(found, asked), columns=columns, notes=notes)
    rows, notes = _rows(found, sizes, gpu, asked)
    return replace(found, rows=rows, notes=(*notes, *reasons))


def _tiles(fused: FusedCascade, sizes: Mapping[str, int], gpu: Gpu, layouts: Layouts | None, dtype: str,
           asked: Options) -> tuple[Plan | None, Notes]:
    """Tiles on matrix units, or None and the reason.

    Raises
    ------
    NoTiles
        with the reason, when the caller asked for tiles by name.
    """
    if asked.strategy not in (None, "tiles"):
        return None, ()
    found: Plan | None = None
    try:
        found = plan(fused, sizes, Profile.generic(16), layouts, dtype, Options(strategy="tiles"))
        if found.tiles is None:
            return None, ()
        tiles, notes = matrix_tiles(found, sizes, gpu, asked)
    except NoTiles as reason:
        if asked.strategy == "tiles":
            raise
        return None, () if found is None else (f"no matrix units: {reason}",)
    return replace(found, tiles=tiles, notes=notes), ()


def _as_rows(fused: FusedCascade, sizes: Mapping[str, int], profile: Profile, layouts: Layouts | None, dtype: str,
             asked: Options) -> Options:
    """Rows instead of tiles; columns where the layout asks for them."""
    usual = Options(strategy=asked.strategy if asked.strategy in ("rows", "columns") else None)
    strategy = plan(fused, sizes, profile, layouts, dtype, usual).strategy
    if strategy != "tiles":
        return replace(usual, strategy=strategy if strategy == "columns" else usual.strategy)
    columns = plan(fused, sizes, profile, layouts, dtype, Options(strategy="columns"))
    return Options(strategy=columns.strategy if columns.strategy == "columns" else "rows")


def team_text(threads: int) -> str:
    """Who does a task."""
    if threads < choose_gpu.WARP:
        return f"{threads} lanes of a warp"
    return "a warp" if threads == choose_gpu.WARP else f"a block of {threads} threads"


def _hints(p: Plan, sizes: Mapping[str, int]) -> dict[str, int]:
    return {a.name: max(1, a.size if a.size is not None else sizes.get(base_axis(a.name), 1)) for a in p.flat.axes}


def _streamed(p: Plan, asked: Options) -> RowDecisions:
    """Rows beside columns: streamed by blocks."""
    itemsize = numpy_dtype(p.dtype).itemsize
    return RowDecisions(0, asked.block or choose_gpu.stream_block(itemsize, _streams(p)), True)


def _streams(p: Plan) -> int:
    return sum((p.flat.stream or "") in t.axes for t in p.flat.tensors)


def _kept(p: Plan) -> int:
    """Inputs along the stream that reductions read: outputs read them again, and a sweep per level does."""
    read = {x.tensor for a in p.flat.accumulators for x in walk(a.body) if isinstance(x, Load)}
    return sum((p.flat.stream or "") in t.axes for t in p.flat.tensors if t.name in read)


def _rows(p: Plan, sizes: Mapping[str, int], gpu: Gpu, asked: Options) -> tuple[RowDecisions, Notes]:
    """Rows in registers up to a length, blocks beyond it, chunks for few rows; each with a note."""
    flat, hints, itemsize = p.flat, _hints(p, sizes), numpy_dtype(p.dtype).itemsize
    length = hints.get(flat.stream or "", 1)
    depth = awaited_places(flat)
    whole = 0 if asked.block else choose_gpu.whole_row(length, itemsize, _kept(p) + 1, gpu.shared)
    block = max(asked.block or choose_gpu.stream_block(itemsize, _streams(p)), depth)
    rows = math.prod(hints[a] for o in flat.outs[:1] for a in o.axes if a != flat.stream)
    few, chunk = choose_gpu.few_rows(gpu.units), 0
    if not depth and (asked.chunk or (rows < few and length > max(whole, 8 * block))):
        chunk = round_up(asked.chunk, block) if asked.chunk else choose_gpu.chunk(gpu.units, rows, length, block)
    notes = ["rows: a team of threads per row" if flat.stream else "elementwise: a team of threads per row"]
    if whole:
        who = team_text(choose_gpu.team_threads(whole))
        notes.append(f"up to {whole} elements a row stays on chip, each by {who}: it is read once")
    notes.append(f"longer rows stream in blocks of {block}")
    if depth:
        notes.append(f"never split: the loop reads place {depth} of a list, which a short part does not fill")
    if chunk:
        notes.append(f"fewer than {few} longer rows are split into chunks of {chunk}")
    if any(reduces_in(a.body) for a in flat.accumulators):
        notes.append("inner reductions are computed element by element")
    return RowDecisions(whole, block, True, chunk, few if chunk else 0, 0), tuple(notes)


def _columns(p: Plan, sizes: Mapping[str, int], gpu: Gpu, asked: Options) -> tuple[ColumnDecisions, Notes]:
    """A thread per column, neighbours side by side."""
    assert p.columns is not None
    hints, axis = _hints(p, sizes), p.columns.axis
    outer = max(math.prod(hints[a] for a in o.axes if a not in (p.flat.stream, axis)) for o in p.flat.outs)
    columns = asked.tile or choose_gpu.columns_per_tile(gpu.units, outer, hints[axis])
    block = asked.block or choose_gpu.column_block()
    notes = (f"columns: a thread per position of {axis}, the contiguous axis; the stream {p.flat.stream} is strided",
             f"tiles of {columns} columns, blocks of {block} elements of {p.flat.stream}")
    return ColumnDecisions(axis, columns, block), notes
