"""Decisions of the tile schedule: tile sizes, register tile, homes of operands and of vector state."""

from __future__ import annotations

import math
from collections.abc import Mapping

from redfuser.extract import choose
from redfuser.extract.decisions import DOT_COLUMNS, OperandDecision, Setting, TileDecisions
from redfuser.extract.roles import Contraction, NoTiles, TileRoles, VectorSum, tile_roles
from redfuser.ir import Load, has_parts, refs
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.term import base_axis

PLACE, PANELS, BLOCK = "place", "panels", "block"


def tile_decisions(s: Setting, sizes: Mapping[str, int]) -> tuple[TileDecisions, tuple[str, ...]]:
    """Everything the tile builder reads, with a note per decision.

    Raises
    ------
    NoTiles
        when the tile schedule does not apply.
    """
    roles = tile_roles(s.flat, s.hints, s.layouts)
    static = _static_axes(s, roles, sizes)
    return _Tiles(s, roles, static).decide()


def _static_axes(s: Setting, roles: TileRoles, sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Contraction and vector axes, by base name, with their lengths.

    Raises
    ------
    NoTiles
        when one of them is empty, or is the stream or a row under another name.
    """
    inner = [v.axis for v in roles.vectors] + [c.axis for c in roles.contractions]
    inner += [i.axis for i in roles.inner]
    outer = {base_axis(a) for a in (roles.flat.stream, roles.row, *roles.batch) if a}
    static: dict[str, int] = {}
    for a in inner:
        base = base_axis(a)
        if base in outer:
            raise NoTiles(f"axis {a} shares its length with an outer loop")
        if sizes.get(base, s.hints[a]) < 1:
            raise NoTiles(f"axis {a} is empty")
        static[base] = s.hints[a]
    return tuple(static.items())


class _Tiles:
    """One set of decisions; the numbers depend on each other in the order of `decide`."""

    def __init__(self, s: Setting, roles: TileRoles, static: tuple[tuple[str, int], ...]) -> None:
        self.s, self.roles, self.static = s, roles, static
        self.rows = s.hints[roles.row] if roles.row else 1
        self.length = s.hints[s.stream]
        widths = tuple(s.hints[v.axis] for v in roles.vectors)
        tile = s.options.register_tile or choose.register_tile(s.profile, s.lanes, self.rows, widths)
        self.mr, self.panel = tile[0], tile[1] * s.lanes
        self.depths = [s.hints[c.axis] for c in roles.contractions]
        self.depth = sum(self.depths) + sum(s.hints[i.axis] for i in roles.inner)
        self.width = sum(choose.round_up(w, self.panel) for w in widths)

    def decide(self) -> tuple[TileDecisions, tuple[str, ...]]:
        """Operand forms, block, tile, packing, homes of vector state."""
        options = self.s.options
        operands = {c.use: self._contraction_operand(c) for c in self.roles.contractions}
        dot = bool(operands) and all(o.form == "dot" for o in operands.values())
        block = options.block or self._own_block(dot)
        block = choose.round_up(block, math.lcm(self.panel, DOT_COLUMNS if dot else 1))
        if self.roles.inner and options.block is None:
            block = self._local_block(block)
        tile = choose.round_up(options.tile or self._own_tile(block), self.mr)
        for use, operand in operands.items():
            if operand == OperandDecision(PANELS, "panel") and self._packs_per_block(tile):
                operands[use] = OperandDecision(BLOCK, "panel")
            if options.block is None:
                block = self._local_block(block)
        operands |= {v.name: self._vector_operand(v) for v in self.roles.vectors}
        homes = self._output_homes(tile)
        decisions = TileDecisions(
            self.roles,
            tile,
            block,
            self.mr,
            self.panel,
            self._slice(dot),
            self.static,
            tuple(operands.items()),
            tuple(homes.items()),
            0 if homes else self._chunk(tile, block),
            self._packed(),
        )
        return decisions, self._notes(decisions)

    # -------------------------------- sizes

    def _own_block(self, dot: bool) -> int:
        if dot:
            return choose.dot_block(self.s.profile, self.s.itemsize, self.depth, self.width)
        return choose.panel_block(self.length, self.panel)

    def _local_block(self, block: int) -> int:
        return choose.local_panel_block(self.s.profile, self.s.itemsize, self.depth, self.width, self.panel, block)

    def _own_tile(self, block: int) -> int:
        return choose.rows_per_tile(
            self.s.profile,
            itemsize=self.s.itemsize,
            rows=self.rows,
            length=self.length,
            depth=self.depth,
            width=self.width,
            block=block,
            batches=math.prod(self.s.hints[a] for a in self.roles.batch),
            register_rows=self.mr,
        )

    def _chunk(self, tile: int, block: int) -> int:
        """Split the stream over threads? A second pass and outputs along the stream would need the final state."""
        flat, forced = self.roles.flat, self.s.options.chunk
        if len(flat.passes) != 1 or any(self.s.stream in o.axes for o in flat.outs):
            return 0
        if any(has_parts(a.monoid) for a in flat.accumulators):
            return 0
        if forced is not None:
            return choose.round_up(forced, block)
        batches = math.prod(self.s.hints[a] for a in self.roles.batch)
        tasks = batches * -(-self.rows // tile)
        rows = min(self.rows, tile)
        return choose.tile_chunk(self.s.profile, tasks, rows, self.length, self.depth + self.width, block)

    def _slice(self, dot: bool) -> int:
        """Depth of a partial contraction; the dot form has no panel to keep in cache."""
        deepest = max(self.depths, default=0)
        if dot or not deepest:
            return deepest
        return choose.contraction_slice(self.s.profile, self.s.itemsize, deepest, self.panel)

    # -------------------------------- operands

    def _contraction_operand(self, c: Contraction) -> OperandDecision:
        """Lanes on the stream when it is contiguous or copying pays, else lanes on the contraction (dot form)."""
        contiguous = self.s.contiguous(c.operand.tensor, self.s.stream)
        pack = self._converted(c.operand.tensor) or self.s.options.pack
        if pack is None:  # the ragged end of the stream is one panel of many: its width counts as whole
            pack = choose.packs(contiguous, self.rows, self.panel, self.panel)
        if not pack and contiguous:
            return OperandDecision(PLACE, "panel")
        if not pack and self.s.contiguous(c.operand.tensor, c.axis) and self.s.hints[c.axis] % self.s.lanes == 0:
            return OperandDecision(PLACE, "dot")
        return OperandDecision(PANELS, "panel")

    def _converted(self, name: str) -> bool:
        """Integers become real numbers when they are copied: a matrix product cannot read them where they lie."""
        return any(t.name == name and numpy_dtype(t.dtype).kind in "biu" for t in self.roles.flat.tensors)

    def _packed(self) -> tuple[Load, ...]:
        """Operands of inner reductions are copied unless their lanes lie side by side: all rows of a tile read them."""
        loads = dict.fromkeys(x for i in self.roles.inner for x in i.operands)
        pack = self.s.options.pack
        return tuple(x for x in loads if pack or (pack is None and not self.s.contiguous(x.tensor, self.s.stream)))

    def _packs_per_block(self, tile: int) -> bool:
        """One tile of rows sees every block once: packing in cache saves a pass through memory (7 to 13 %)."""
        return tile >= self.rows and self.s.options.pack is None

    def _vector_operand(self, v: VectorSum) -> OperandDecision:
        contiguous = self.s.contiguous(v.operand.tensor, v.axis)
        pack = self._converted(v.operand.tensor) or self.s.options.pack
        if pack is None:
            pack = choose.packs(contiguous, self.rows, self.s.hints[v.axis], self.panel)
        return OperandDecision(PANELS if pack or not contiguous else PLACE, "panel")

    def _output_homes(self, tile: int) -> dict[str, str]:
        """A vector accumulator larger than the cache lives in the output that is computed from it alone."""
        homes: dict[str, str] = {}
        for v in self.roles.vectors:
            width = self.s.hints[v.axis]
            if tile * width * self.s.itemsize <= 2 * self.s.profile.l2 or width % self.panel:
                continue
            readers = [o for o in self.roles.flat.outs if v.name in refs(o.expr)]
            vectors = {x.name for o in readers for x in self.roles.vectors if x.name in refs(o.expr)}
            if len(readers) == 1 and vectors == {v.name} and readers[0].name not in homes.values():
                o = readers[0]
                if v.axis in o.axes and o.dtype == self.s.dtype and self.s.contiguous(o.name, v.axis):
                    homes[v.name] = o.name
        return homes

    # -------------------------------- words

    def _notes(self, d: TileDecisions) -> tuple[str, ...]:
        row = self.roles.row or "one row"
        products = [f"{c.tile} (rows {row}, lanes {self.s.stream})" for c in self.roles.contractions]
        products += [f"{v.name} += E . {v.operand} (rows {row}, lanes {v.axis})" for v in self.roles.vectors]
        notes = [f"matrix product {p}" for p in products]
        notes += [f"{i.tile} element by element (rows {row}, lanes {self.s.stream})" for i in self.roles.inner]
        if self.roles.bounds:
            notes.append(f"bounds of the stream: {', '.join(map(str, self.roles.bounds))}")
        if self.roles.repairs:
            notes.append("masked: a row that ends with NaN or an infinity is summed again over its live elements")
        notes.append(f"tiles of {d.rows} rows x {d.block} elements of {self.s.stream}")
        notes.append(f"register tile {d.mr} x {d.panel}")
        notes += [f"operand of {use}: {o.home}, {o.form} form" for use, o in d.operands]
        notes += [f"operand {x}: copied per block" for x in d.packed]
        if d.chunk:
            notes.append(f"few tiles: the stream is split into chunks of {d.chunk} elements, partial states are merged")
        notes += [f"{a} accumulates in the output {o}" for a, o in d.in_output]
        return (*notes, *(f"specialised for {a} = {n}" for a, n in self.static))
