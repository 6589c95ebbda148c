"""The plan: which schedule a fusion gets, with every decision as a number and in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from redfuser.derive.fusion import FusedCascade, check_fusion_node
from redfuser.errors import DTypeError
from redfuser.extract import choose
from redfuser.extract.flatten import Flat, flatten
from redfuser.extract.profile import Profile
from redfuser.extract.roles import NoTiles, TileRoles, tile_roles
from redfuser.ir import COSTLY, Expr, Op, free_axes, refs, walk
from redfuser.ir.interpret import numpy_dtype
from redfuser.ir.term import base_axis

BOUNDED_MONOIDS = ("max", "min")


@dataclass(frozen=True)
class Options:
    """Overrides of single decisions (None: decide). Tests and tuning use them.

    block : elements of the stream between corrections; also forces streaming of every row
    tile : rows of a tile
    register_tile : (rows, vectors) of the matrix product
    pack : copy matrix operands into panels
    strategy : "rows" or "tiles"
    """

    block: int | None = None
    tile: int | None = None
    register_tile: tuple[int, int] | None = None
    pack: bool | None = None
    strategy: str | None = None


@dataclass(frozen=True)
class RowDecisions:
    """Rows: one task per row. `whole_row`: longest stream kept in cache; 0 streams every row."""

    whole_row: int
    block: int
    streaming_stores: bool
    rows_per_grab: int


@dataclass(frozen=True)
class OperandDecision:
    """How a matrix product reads an operand: "place" (as it lies), "panels" (packed) or "block" (packed per tile).

    form "panel" has lanes along the operand's lane axis, "dot" along the contraction.
    """

    home: str
    form: str


@dataclass(frozen=True)
class TileDecisions:
    """Tiles: `rows` x `block` elements of the stream; the register tile is `mr` x `panel` elements.

    nr : columns of the contraction's register tile: `panel`, or 2 in dot form
    static : (axis, length) that the program is specialised for
    operands : tensor use ("contraction" or the accumulator's name) -> how it is read
    slice_ : depth of one partial contraction
    in_output : vector accumulators whose state lives in the output array they become
    """

    roles: TileRoles
    rows: int
    block: int
    mr: int
    panel: int
    nr: int
    slice_: int
    static: tuple[tuple[str, int], ...]
    operands: tuple[tuple[str, OperandDecision], ...]
    in_output: tuple[tuple[str, str], ...] = ()

    def operand(self, use: str) -> OperandDecision:
        """The decision for one operand."""
        return dict(self.operands)[use]


@dataclass(frozen=True)
class Plan:
    """A schedule for one fusion: everything `redfuser.codegen.build` reads.

    strategy is "elementwise", "rows" or "tiles"; `notes` gives the reasons in words.
    """

    flat: Flat
    profile: Profile
    dtype: str
    layouts: tuple[tuple[str, str | None], ...]
    strategy: str
    rows: RowDecisions
    tiles: TileDecisions | None = None
    notes: tuple[str, ...] = field(default=())

    def layout(self, name: str) -> str | None:
        """The contiguous axis of a tensor or an output."""
        return dict(self.layouts)[name]

    def __str__(self) -> str:
        return "\n".join([f"plan {self.flat.name}: {self.strategy}", *(f"  {n}" for n in self.notes)])


def plan(
    fused: FusedCascade,
    sizes: Mapping[str, int],
    profile: Profile,
    layouts: Mapping[str, str | None] | None = None,
    dtype: str = "float32",
    options: Options | None = None,
) -> Plan:
    """Choose a schedule from axis roles, example lengths, memory layouts and the machine.

    Parameters
    ----------
    sizes : example length of every axis; hints, except that a tile schedule is specialised for the lengths of its
        contraction and vector axes
    layouts : tensor or output name -> its axis of element stride 1, or None; the last axis where not given
    dtype : float32 or float64, the dtype vector arithmetic runs in

    Raises
    ------
    DTypeError
        for another compute dtype.
    """
    if dtype not in ("float32", "float64"):
        raise DTypeError(f"dtype {dtype!r} is no compute dtype; use 'float32' or 'float64'")
    check_fusion_node(fused)
    options = options or Options()
    flat = flatten(fused, dtype)
    known = {x.name: x.axes[-1] if x.axes else None for x in (*flat.tensors, *flat.outs)} | dict(layouts or {})
    hints = {a.name: max(1, _hint(a.name, sizes, flat)) for a in flat.axes}
    rows, row_notes = _row_decisions(flat, hints, profile, dtype, options)
    common = (flat, profile, dtype, tuple(sorted(known.items())))
    if flat.stream is None:
        return Plan(*common, "elementwise", rows, None, ("no reduction: one sweep per output",))
    if options.strategy != "rows":
        try:
            tiles, notes = _tile_decisions(flat, hints, sizes, profile, known, dtype, options)
            return Plan(*common, "tiles", rows, tiles, notes)
        except NoTiles as reason:
            if options.strategy == "tiles":
                raise
            row_notes = (f"no tiles: {reason}", *row_notes)
    return Plan(*common, "rows", rows, None, row_notes)


def _hint(axis: str, sizes: Mapping[str, int], flat: Flat) -> int:
    fixed = next((a.size for a in flat.axes if a.name == axis), None)
    return fixed if fixed is not None else sizes.get(base_axis(axis), 1)


# -------------------------------- rows


def _row_decisions(
    flat: Flat, hints: Mapping[str, int], profile: Profile, dtype: str, options: Options
) -> tuple[RowDecisions, tuple[str, ...]]:
    itemsize = numpy_dtype(dtype).itemsize
    stream = flat.stream
    streams = sum(stream in t.axes for t in flat.tensors)
    wide_outs = [o for o in flat.outs if stream in o.axes]
    length = hints.get(stream or "", 1)
    rows = math.prod(hints[a] for o in flat.outs[:1] for a in o.axes if a != stream)
    limit = choose.whole_row_limit(profile, itemsize, streams + len(wide_outs))
    block = options.block or choose.block_length(profile, itemsize, streams, bool(flat.corrections))
    total = rows * length * itemsize * (streams + len(wide_outs))
    nt = bool(wide_outs) and choose.streaming_stores(profile, total)
    decisions = RowDecisions(
        0 if options.block else limit, block, nt, choose.rows_per_grab(profile, rows, length)
    )
    notes = [f"rows: one task per row, lanes on {stream}"]
    if options.block:
        notes.append(f"streamed in blocks of {block} (asked for)")
    else:
        notes.append(f"up to {limit} elements a row stays in cache: its reductions run one after another")
        notes.append(f"longer rows stream in blocks of {block} with corrections between them")
    if nt:
        notes.append("non-temporal stores: inputs and outputs exceed the last-level cache")
    return decisions, tuple(notes)


def is_costly(e: Expr) -> bool:
    """True when a transcendental operation occurs."""
    return any(isinstance(x, Op) and x.fn in COSTLY for x in walk(e))


# -------------------------------- tiles


def _tile_decisions(
    flat: Flat,
    hints: Mapping[str, int],
    sizes: Mapping[str, int],
    profile: Profile,
    layouts: Mapping[str, str | None],
    dtype: str,
    options: Options,
) -> tuple[TileDecisions, tuple[str, ...]]:
    """Tile sizes, register tile, operand homes; each with a note.

    Raises
    ------
    NoTiles
        when the tile schedule does not apply.
    """
    roles = tile_roles(flat, hints, layouts)
    stream = flat.stream
    assert stream is not None
    itemsize, lanes = numpy_dtype(dtype).itemsize, profile.lanes(dtype)
    static = _static_axes(roles, sizes, hints)
    rows = hints[roles.row] if roles.row else 1
    widths = tuple(hints[v.axis] for v in roles.vectors)
    mr, vectors = options.register_tile or choose.register_tile(profile, lanes, rows, widths)
    panel = vectors * lanes
    depth = hints[roles.contraction.axis] if roles.contraction else 0
    width = sum(choose.round_up(w, panel) for w in widths)
    length = hints[stream]
    operands: dict[str, OperandDecision] = {}
    notes = [_role_note(roles)]
    nr, block = panel, choose.panel_block(length, panel)
    if roles.contraction is not None:
        first = _contraction_operand(roles, layouts, hints, rows, panel, lanes, options)
        if first.form == "dot":
            nr, block = 2, choose.dot_block(profile, itemsize, depth, width)
        operands["contraction"] = first
    block = choose.round_up(options.block or block, math.lcm(panel, nr))
    tile = options.tile or choose.rows_per_tile(
        profile, itemsize=itemsize, rows=rows, length=length, depth=depth, width=width, block=block,
        batches=math.prod(hints[a] for a in roles.batch), register_rows=mr,
    )
    tile = choose.round_up(tile, mr)
    packed = operands.get("contraction")
    if packed is not None and packed.home == "panels" and tile >= rows and options.pack is None:
        operands["contraction"] = OperandDecision("block", "panel")
        if options.block is None:
            block = choose.local_panel_block(profile, itemsize, depth, width, panel, block)
    for v in roles.vectors:
        contiguous = layouts.get(v.operand.tensor) == v.axis
        pack = options.pack if options.pack is not None else choose.packs(contiguous, rows, hints[v.axis], panel)
        operands[v.name] = OperandDecision("panels" if pack or not contiguous else "place", "panel")
    homes = _output_homes(roles, layouts, hints, tile, itemsize, panel, profile, dtype)
    slice_ = choose.contraction_slice(profile, itemsize, depth, panel) if depth else 0
    if operands.get("contraction") == OperandDecision("place", "dot"):
        slice_ = depth
    decisions = TileDecisions(
        roles, tile, block, mr, panel, nr, slice_, static, tuple(operands.items()), tuple(homes.items())
    )
    notes += [f"bounds of the stream: {', '.join(map(str, roles.bounds))}"] if roles.bounds else []
    notes.append(f"tiles of {tile} rows x {block} elements of {stream}, register tile {mr} x {panel}")
    notes += [f"operand of {use}: {d.home}, {d.form} form" for use, d in operands.items()]
    notes += [f"{a} accumulates in the output {o}" for a, o in homes.items()]
    notes += [f"specialised for {a} = {n}" for a, n in static]
    return decisions, tuple(notes)


def _role_note(roles: TileRoles) -> str:
    row = roles.row or "one row"
    parts = []
    if roles.contraction is not None:
        c = roles.contraction
        parts.append(f"matrix product {c.tile} (rows {row}, lanes {roles.flat.stream})")
    parts += [f"matrix product {v.name} += E . {v.operand} (rows {row}, lanes {v.axis})" for v in roles.vectors]
    return "; ".join(parts)


def _static_axes(
    roles: TileRoles, sizes: Mapping[str, int], hints: Mapping[str, int]
) -> tuple[tuple[str, int], ...]:
    """Contraction and vector axes, by base name.

    Raises
    ------
    NoTiles
        when one of them is empty, or is the stream or a row under another name.
    """
    inner = [v.axis for v in roles.vectors] + ([roles.contraction.axis] if roles.contraction else [])
    outer = {base_axis(a) for a in (roles.flat.stream, roles.row, *roles.batch) if a}
    static: dict[str, int] = {}
    for a in inner:
        base = base_axis(a)
        if base in outer:
            raise NoTiles(f"axis {a} shares its length with an outer loop")
        if sizes.get(base, hints[a]) < 1:
            raise NoTiles(f"axis {a} is empty")
        static[base] = hints[a]
    return tuple(static.items())


def _contraction_operand(
    roles: TileRoles, layouts: Mapping[str, str | None], hints: Mapping[str, int], rows: int, panel: int,
    lanes: int, options: Options,
) -> OperandDecision:
    """Lanes on the stream when it is contiguous or copying pays, else lanes on the contraction (dot form)."""
    c = roles.contraction
    assert c is not None
    unit = layouts.get(c.operand.tensor)
    contiguous = unit == roles.flat.stream
    pack = options.pack
    if pack is None:
        pack = choose.packs(contiguous, rows, panel, panel)  # the stream's tail is one panel of many
    if pack:
        return OperandDecision("panels", "panel")
    if contiguous:
        return OperandDecision("place", "panel")
    if unit == c.axis and hints[c.axis] % lanes == 0:
        return OperandDecision("place", "dot")
    return OperandDecision("panels", "panel")


def _output_homes(
    roles: TileRoles, layouts: Mapping[str, str | None], hints: Mapping[str, int], tile: int, itemsize: int,
    panel: int, profile: Profile, dtype: str,
) -> dict[str, str]:
    """A vector accumulator larger than the cache lives in the output that is computed from it alone."""
    homes: dict[str, str] = {}
    for v in roles.vectors:
        if tile * hints[v.axis] * itemsize <= 2 * profile.l2 or hints[v.axis] % panel:
            continue
        for o in roles.flat.outs:
            alone = v.name in refs(o.expr) and sum(v.name in refs(p.expr) for p in roles.flat.outs) == 1
            own = {x.name for x in roles.vectors} & refs(o.expr) == {v.name}
            shape = v.axis in o.axes and o.dtype == dtype and layouts.get(o.name) == v.axis
            if alone and own and shape and o.name not in homes.values():
                homes[v.name] = o.name
    return homes


def stream_axes(e: Expr, flat: Flat) -> bool:
    """True when `e` varies along the stream."""
    return flat.stream in free_axes(e)
