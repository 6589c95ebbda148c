"""Predict the time of a plan on a CPU: the work of the fusion, and what the schedule makes of it. See docs/cost.md.

`roofline.predict` prices a fused form for any device, whatever loop runs it. Here the loop is known: how often states
are corrected, what a register tile pads and loads, how often operands are read again, which threads have nothing to do.
Times are for data that an earlier call has read: what fits into a cache comes from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from redfuser.extract import choose
from redfuser.extract.device import CPU_SLOTS
from redfuser.extract.plan import Plan
from redfuser.extract.roofline import ARITHMETIC, MEMORY, Prediction
from redfuser.extract.work import Count
from redfuser.ir import Expr, Reduce, free_axes, walk
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.term import base_axis

FMA_LATENCY = 4
"""Cycles until a register tile can add to the same register again."""
SWEEP_CYCLES = 12
"""To enter and leave a vector loop and to reduce its lanes, per row, block and accumulator."""
START = 1e-6
"""Seconds from the call of a kernel to its first element."""
SCALAR_CYCLES = 1.0
"""Per operation on scalars, in units of a vector instruction's slot: they depend on each other."""
STRIDED_SLOTS = 8.0
"""Slots of an element that is read alone because its neighbours in the stream lie apart in nearby lines."""
FAR_SLOTS = 400.0
"""The same where they lie in another page each: the latency of the last cache, and of an address translation."""
PAGE = 4096
STATE_SLOTS = 1.5
"""Slots per element to read and write state that lies in an array (columns, vector accumulators)."""
PACK_SLOTS = 4.0
"""Slots per element of an operand that is copied into panels."""


def predict_plan(plan: Plan, sizes: Mapping[str, int]) -> Prediction:
    """The predicted time of a call with these lengths, on the machine the plan was made for."""
    return _Time(plan, sizes).prediction()


@dataclass(frozen=True)
class _Tasks:
    """How a call falls into tasks: `number` of them, on `threads`, in `rounds`."""

    number: int
    threads: int

    @property
    def share(self) -> float:
        """The part of all work that the busiest thread does."""
        return -(-self.number // self.threads) / self.number if self.number else 1.0


class _Time:
    """The parts of a prediction for one plan; `flat` is the fusion that its schedule sees."""

    def __init__(self, plan: Plan, sizes: Mapping[str, int]) -> None:
        self.plan, self.profile = plan, plan.profile
        self.flat = plan.flat if plan.tiles is None else plan.tiles.roles.flat
        self.count = Count(self.flat, sizes)
        self.stream = self.flat.stream or ""
        self.length = self.count.size(self.stream) if self.stream else 1
        self.lanes = self.profile.lanes(plan.dtype)
        self.itemsize = numpy_dtype(plan.dtype).itemsize
        self.rate = self.profile.gflops / 2 * 1e9 * 4 / self.itemsize
        self.cycle = 2 * self.lanes  # slots of one cycle: two vectors of multiply-adds
        arrays = [(t.axes, t.dtype) for t in self.flat.tensors]
        self.read = sum(map(self._bytes, arrays))
        self.written = sum(self._bytes((o.axes, o.dtype)) for o in self.flat.outs)
        elements = sum(self.points(axes) for axes, _ in arrays) + sum(self.points(o.axes) for o in self.flat.outs)
        product = plan.tiles is not None and bool(plan.tiles.roles.contractions or plan.tiles.roles.vectors)
        weighed = elements * (choose.PRODUCT_WEIGHT if product else 1)
        self.threads = self.profile.threads if weighed >= choose.SERIAL_ELEMENTS else 1

    def points(self, axes: Iterable[str]) -> int:
        return self.count.points(axes)

    def _bytes(self, array: tuple[Iterable[str], str]) -> int:
        return self.points(array[0]) * numpy_dtype(array[1]).itemsize

    def prediction(self) -> Prediction:
        """Arithmetic and memory of the schedule."""
        strategy = {"tiles": self.tiles, "columns": self.columns, "rows": self.rows}.get(self.plan.strategy, self.plain)
        slots, again, tasks = strategy()
        start = START + (choose.WAKE if min(tasks.threads, tasks.number) > 1 else 0.0)
        times = {ARITHMETIC: slots / self.rate * tasks.share, MEMORY: self.memory(again, tasks)}
        return Prediction("this plan", times, start)

    def memory(self, again: float, tasks: _Tasks) -> float:
        """Seconds to move inputs once and `again`, and outputs; written lines are read first unless stores bypass
        the cache."""
        written = self.written * (1 if self.plan.rows.streaming_stores else 2)
        used = max(1, min(tasks.threads, tasks.number))
        share = max(tasks.share, 1 / used)
        first = (self.read + written) / self.bandwidth(self.read + self.written)
        return (first + again / self.bandwidth(min(again, self.read + self.written))) * share

    def bandwidth(self, total: float) -> float:
        """Bytes per second and core for data of which there is so much: the nearest memory that half of it fits."""
        p = self.profile
        if total <= p.l2 / 2:
            return 2 * p.l3_gbs * 1e9
        return (p.l3_gbs if total <= p.llc / 2 else p.dram_gbs) * 1e9

    # -------------------------------- work

    def elements(self, skip: Iterable[Expr] = (), weights: Mapping[str, Expr] | None = None, *,
                 sizes: Mapping[str, int] | None = None, kept: bool = False) -> float:
        """Slots of bodies and of outputs along the stream, without the expressions in `skip`; accumulators in
        `weights` cost what their weight costs. `kept`: what one sweep has computed is there for the next."""
        count = Count(self.flat, self.count.sizes if sizes is None else sizes)
        for names in self.flat.passes or ((),):
            if not kept:
                count.start()
            count.seen |= set(skip)
            for a in self.flat.accumulators:
                if a.name not in names:
                    continue
                if weights and a.name in weights:
                    count.expression(weights[a.name])
                else:
                    count.reduction(a.monoid, a.body, {*a.axes, self.stream})
        if not kept:
            count.start()
        count.seen |= set(skip)
        for o in self.flat.outs:
            if self.stream in o.axes:
                count.expression(o.expr)
        return count.slots(CPU_SLOTS)

    def moves(self, blocks: float, merges: float, sizes: Mapping[str, int] | None = None) -> float:
        """Slots of dependencies per block, corrections and combinations per merge, and outputs per row."""
        lengths = self.count.sizes if sizes is None else sizes
        count = Count(self.flat, lengths)
        count.state(1, 0)
        per_block = count.slots(CPU_SLOTS)
        count = Count(self.flat, lengths)
        count.state(0, 1)
        per_merge = count.slots(CPU_SLOTS)
        count = Count(self.flat, lengths)
        for o in self.flat.outs:
            if self.stream not in o.axes:
                count.expression(o.expr)
        return per_block * blocks + per_merge * merges + count.slots(CPU_SLOTS)

    @property
    def sweeps(self) -> int:
        """Sweeps over the inputs: passes, and one for outputs along the stream."""
        return max(1, len(self.flat.passes)) + any(self.stream in o.axes for o in self.flat.outs)

    @property
    def loops(self) -> int:
        """Vector loops per row and block: one per accumulator at most, and one per output along the stream."""
        return len(self.flat.accumulators) + sum(self.stream in o.axes for o in self.flat.outs)

    # -------------------------------- schedules

    def plain(self) -> tuple[float, float, _Tasks]:
        """No reduction: one sweep per output."""
        count = Count(self.flat, self.count.sizes)
        rows = 1
        for o in self.flat.outs:
            count.expression(o.expr)
            rows = max(rows, self.points(o.axes[:-1]))
        return count.slots(CPU_SLOTS) + rows * SWEEP_CYCLES * self.cycle, 0.0, _Tasks(rows, self.threads)

    def rows(self) -> tuple[float, float, _Tasks]:
        """Lanes along the stream, state in scalars; a row computes for itself what others could share."""
        d = self.plan.rows
        row_axes = {a for o in self.flat.outs for a in self.flat.row_axes(o)}
        rows = self.points(row_axes)
        one = {**self.count.sizes, **dict.fromkeys(map(base_axis, row_axes), 1)}
        whole = self.length <= d.whole_row
        blocks = 1 if whole else -(-self.length // d.block)
        segments = 1
        if not whole and d.chunk and rows < d.few_rows and self.length > d.split_beyond:
            segments = -(-self.length // d.chunk)
        merges = 0 if whole else blocks - 1 + 2 * (segments - 1)
        slots = self.elements(sizes=one, kept=whole) + self.strided(one)
        slots += self.moves(blocks, merges, one) * self.lanes * SCALAR_CYCLES
        slots += blocks * self.loops * SWEEP_CYCLES * self.cycle
        again = 0.0 if whole else self.read * (self.sweeps - 1)
        return slots * rows, again, _Tasks(rows * segments, self.threads)

    def strided(self, one: Mapping[str, int]) -> float:
        """Slots of the elements of a row that are read and written one by one, once per sweep."""
        count = Count(self.flat, one)
        total = 0.0
        arrays = [(t.name, t.axes, t.dtype) for t in self.flat.tensors]
        arrays += [(o.name, o.axes, o.dtype) for o in self.flat.outs]
        for name, axes, dtype in arrays:
            unit = self.plan.layout(name)
            if self.stream in axes and unit != self.stream:
                apart = PAGE if unit is None else self.count.size(unit) * numpy_dtype(dtype).itemsize
                total += (FAR_SLOTS if apart >= PAGE else STRIDED_SLOTS) * count.points(axes)
        return total * self.sweeps

    def columns(self) -> tuple[float, float, _Tasks]:
        """Lanes along an axis of the state, which lies in arrays."""
        d = self.plan.columns
        assert d is not None
        outer = {a for o in self.flat.outs for a in o.axes} - {self.stream, d.axis, d.row_axis}
        groups = -(-self.count.size(d.row_axis) // d.rows) if d.row_axis else 1
        tiles = -(-self.count.size(d.axis) // d.columns)
        tasks = self.points(outer) * groups * tiles
        width = min(d.columns, self.count.size(d.axis))
        padding = choose.round_up(width, self.lanes) / width
        blocks = -(-self.length // d.block)
        state = sum(self.points({*a.axes, self.stream}) for a in self.flat.accumulators if d.axis in a.axes)
        slots = (self.elements() + STATE_SLOTS * state) * padding + self.moves(blocks, blocks - 1)
        rows = self.count.size(d.row_axis) if d.row_axis else 1
        steps = self.points(outer) * tiles * rows * self.length * self.loops
        slots += steps * SWEEP_CYCLES / 2 * self.cycle
        fits = d.block >= self.length and self.length * width * self.itemsize <= self.profile.l2
        return slots, 0.0 if fits else self.read * (self.sweeps - 1), _Tasks(tasks, self.threads)

    # -------------------------------- tiles

    def tiles(self) -> tuple[float, float, _Tasks]:
        """Matrix products on tiles of rows and blocks of the stream."""
        d = self.plan.tiles
        assert d is not None
        roles = d.roles
        rows = self.count.size(roles.row) if roles.row else 1
        batches = self.points(roles.batch)
        row_tiles = -(-rows // d.rows)
        seen = 0.5 if any(b.slope(roles.row) for b in roles.bounds) else 1.0
        blocks = -(-self.length // d.block)
        products = sum(self.product(rows, self.length, self.count.size(c.axis), d.columns(c.use),
                                    d.operand(c.use).form) for c in roles.contractions)
        products *= 1 + any(self.stream in o.axes for o in self.flat.outs)
        products += sum(self.product(rows, self.count.size(v.axis), self.length, d.panel, "panel")
                        for v in roles.vectors)
        tiles = {c.tile for c in roles.contractions}
        tiles |= {r for t in tiles for r in walk(t) if isinstance(r, Reduce)}
        slots = seen * (batches * products + self.elements(tiles, {v.name: v.weight for v in roles.vectors}))
        merges = blocks * seen - 1 + (2 * -(-self.length // d.chunk) if d.chunk else 0)
        wide = sum(self.count.size(v.axis) for v in roles.vectors) * rows * batches
        slots += max(0.0, merges) * wide * (STATE_SLOTS + 1) + self.moves(blocks * seen, max(0.0, merges))
        slots += batches * rows * blocks * seen * self.loops * SWEEP_CYCLES * self.cycle
        slots += self.packing(row_tiles)
        tasks = batches * row_tiles * (-(-self.length // d.chunk) if d.chunk else 1)
        return slots, self.reread(rows, row_tiles, batches, seen), _Tasks(tasks, self.threads)

    def product(self, rows: int, columns: int, depth: int, panel: int, form: str) -> float:
        """Slots of rows x columns sums over `depth` by register tiles: the longer of multiply-adds, loads, and the wait
        for the sum before."""
        d = self.plan.tiles
        assert d is not None
        mr = min(d.mr, rows)
        tiles = -(-rows // d.mr) * -(-columns // panel)
        vectors = panel if form == "dot" else panel // self.lanes
        spilled = max(0, mr * vectors + vectors + 1 - self.profile.registers)
        cycles = max(mr * vectors / 2, (mr + vectors) / 2, FMA_LATENCY) + spilled
        steps = -(-depth // self.lanes) if form == "dot" else depth
        ends = mr * vectors * (2 * math.log2(self.lanes) if form == "dot" else 1.0)
        return tiles * (steps * cycles + ends) * self.cycle

    def packing(self, row_tiles: int) -> float:
        """Slots to copy operands: once, or once per tile of rows."""
        d = self.plan.tiles
        assert d is not None
        loads = {c.use: c.operand for c in d.roles.contractions} | {v.name: v.operand for v in d.roles.vectors}
        times = {"panels": 1, "block": row_tiles, "place": 0}
        copied = sum(times[o.home] * self.points(free_axes(loads[use])) for use, o in d.operands)
        copied += sum(row_tiles * self.points(free_axes(x)) for x in d.packed)
        return PACK_SLOTS * copied

    def reread(self, rows: int, row_tiles: int, batches: int, seen: float) -> float:
        """Bytes that tiles of rows read again, of operands, of state and of tiles beyond the second cache."""
        d = self.plan.tiles
        assert d is not None
        inner = sum(self.count.size(c.axis) for c in d.roles.contractions)
        inner += sum(self.count.size(i.axis) for i in d.roles.inner)
        width = sum(self.count.size(v.axis) for v in d.roles.vectors)
        operands = batches * (inner + width) * self.length * self.itemsize
        again = operands * row_tiles * seen * (1 if operands / batches > self.profile.l2 / 2 else 0.25)
        tile = min(rows, d.rows)
        overflow = tile * (d.block + inner + width) * self.itemsize / (self.profile.l2 * 0.75) - 1
        state = batches * rows * -(-self.length // d.block) * width * 2 * self.itemsize
        again += state * seen * min(1.0, max(0.0, overflow))
        if tile * d.block * self.itemsize > self.profile.l2 // 2:
            again += batches * rows * self.length * 4 * self.itemsize * seen
        return again

