"""The column schedule: where the stream is strided and a parallel axis is contiguous, lanes lie on that axis.

State is an array over a tile of columns; every step of the row schedule becomes a sweep over the columns, so there
is no horizontal reduction at all. What is the same for all columns is a scalar. Blocks of the stream stay in cache
between the levels. Where some state is the same for several rows of columns (x[n,d] reduced for every d, in a product
for every pair), a task takes a group of rows, and computes it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from redfuser.codegen.indexing import LANE_PAD, ceil_div, product, typed, unravel_sizes
from redfuser.codegen.kinds import as_number
from redfuser.codegen.levels import (
    PIVOTS,
    SHIFTS,
    Level,
    identity,
    levels_of,
    nearer_zero,
    read_pivot,
    running,
    sampled,
)
from redfuser.codegen.lower import Env, Space, lower
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf, For, If, LetInt, Phase, Put, Set, Stmt, Sweep
from redfuser.codegen.parts import (
    cell_names,
    combination,
    corrected_parts,
    elements_of,
    identity_of,
    list_length,
    part_dtype,
)
from redfuser.codegen.passes.hoist import hoist
from redfuser.codegen.passes.prune import prune
from redfuser.codegen.passes.unroll import unroll
from redfuser.derivation.fusion import Accumulator
from redfuser.extract.decisions import ColumnDecisions
from redfuser.extract.flatten import Flat
from redfuser.ir import (
    MONOIDS,
    Cast,
    Const,
    Expr,
    Let,
    Old,
    Out,
    find_parts,
    free_axes,
    has_parts,
    is_costly,
    op,
    refs,
    select,
    walk,
)
from redfuser.ir.ops import PIVOT

STEP = 4
"""Elements of the stream that enter the state of the columns together: a power of 2."""


def build_columns(space: Space, flat: Flat, decisions: ColumnDecisions) -> Phase:
    """The phase for outputs that share their parallel axes."""
    return _ColumnPhase(space.restricted(flat), decisions).phase()


class _ColumnPhase:
    def __init__(self, space: Space, decisions: ColumnDecisions) -> None:
        self.space, self.flat, self.decisions = space, space.flat, decisions
        self.stream = self.flat.stream or ""
        self.length = space.size(self.stream)
        self.names = names = Names([b.name for b in (*space.tensors.values(), *space.outs.values())])
        self.scratch: list[Buf] = []
        self.task = names.integer("task")
        outer = [a for a in self.flat.outs[0].axes if a not in (self.stream, decisions.axis)]
        width = space.size(decisions.axis)
        self.grouped = decisions.row_axis if decisions.row_axis in outer else ""
        self.row, self.count = names.integer("r"), names.integer("rows")
        dims = [(a, space.size(a)) for a in outer if a != self.grouped]
        if self.grouped:
            dims.append(("row_group", ceil_div(space.size(self.grouped), decisions.rows)))
        dims.append(("column_tile", ceil_div(width, decisions.columns)))
        self.before, positions = unravel_sizes(names, self.task, dims)
        if self.grouped:
            positions[self.grouped] = self._rows(positions.pop("row_group"))
        tile = positions.pop("column_tile")
        self.first, self.last = names.integer("first"), names.integer("last")
        self.before.append(LetInt(self.first.name, op("mul", tile, decisions.columns)))
        end = op("min", op("add", self.first, decisions.columns), width)
        self.before.append(LetInt(self.last.name, end))
        self.total = product([n for _, n in dims])
        self.column, self.element = names.integer(decisions.axis), names.integer(self.stream)
        self.env = Env({**positions, decisions.axis: self.column, self.stream: self.element})
        self.cells = {name: self.array(name, a.axes, dtype) for a in self.flat.accumulators
                      for name, dtype in self.parts(a)}

    def _rows(self, group: Expr) -> Expr:
        """Position of the current row of a group."""
        first = self.names.integer("first_row")
        self.before.append(LetInt(first.name, op("mul", group, self.decisions.rows)))
        left = op("sub", self.space.size(self.grouped), first)
        self.before.append(LetInt(self.count.name, op("min", left, self.decisions.rows)))
        return op("add", first, self.row)

    # -------------------------------- arrays and sweeps over the columns

    def parts(self, a: Accumulator) -> list[tuple[str, str]]:
        """(cell name, dtype) of the state of `a`, one for each of its parts."""
        compute, m = self.space.compute, find_parts(a.monoid)
        if m is None:
            return [(a.name, "bool" if a.monoid in ("any", "all") else compute)]
        return [(name, part_dtype(m, p, compute, state=False)) for p, name in cell_names(a).items()]

    def identities(self, a: Accumulator) -> list[Const]:
        """The state of nothing, part by part."""
        m = find_parts(a.monoid)
        return [identity(a.monoid)] if m is None else [identity_of(m, p) for p in m.parts]

    def combined(self, a: Accumulator, left: Sequence[Expr], right: Sequence[Expr]) -> list[Expr]:
        """The parts of two states combined."""
        m = find_parts(a.monoid)
        if m is None:
            return [op(MONOIDS[a.monoid].combine, *left, *right)]
        return [self.lower(e) for e in combination(m, left, right)]

    def array(self, base: str, axes: Iterable[str], dtype: str = "") -> At:
        """New state for every column, and for every row of the group, as far as `axes` say: its current element."""
        shape: list[Expr] = []
        index: list[Expr] = []
        if self.grouped in axes:
            shape.append(Const(self.decisions.rows))
            index.append(self.row)
        if self.decisions.axis in axes:
            shape.append(Const(self.decisions.columns + LANE_PAD))
            index.append(op("sub", self.column, self.first))
        buf = Buf(self.names.fresh(base), tuple(shape), "local" if shape else "reg", dtype or self.space.compute)
        if shape:
            self.scratch.append(buf)
        return At(buf, tuple(index))

    def over(self, *puts: tuple[At, Expr]) -> list[Stmt]:
        """Scalars, then sweeps over the columns; rows of a group one after the other. No scalar reads columns, and what
        all rows share reads none of them."""
        kinds: dict[tuple[bool, bool], list[tuple[At, Expr]]] = {}
        for cell, e in puts:
            read = {x for i in cell.idx for x in walk(i)}
            kinds.setdefault((self.column in read, self.row in read), []).append((cell, self.real(cell, e)))
        out: list[Stmt] = []
        for (wide, by_row), pairs in sorted(kinds.items(), key=lambda kind: kind[0]):
            body: tuple[Stmt, ...] = tuple(Set(cell, e) for cell, e in pairs)
            if wide:
                stores = tuple(Put(cell, e) for cell, e in pairs)
                body = (Sweep(self.column.name, self.first, self.last, (), stores),)
            out += [For(self.row.name, Const(0), self.count, Const(1), body, "row")] if by_row else body
        return out

    def real(self, cell: At, e: Expr) -> Expr:
        return typed(e, cell.buf.dtype, self.names, self.space.compute)

    def lower(self, e: Expr, env: Env | None = None) -> Expr:
        return lower(e, env or self.env, self.space, self.names)

    def bind(self, out: list[Stmt], base: str, axes: Iterable[str], e: Expr) -> At:
        """A new array with the value of `e`."""
        cell = self.array(base, axes)
        out += self.over((cell, self.real(cell, e)))
        return cell

    # -------------------------------- the phase

    def phase(self) -> Phase:
        """The task loop: passes over the stream, then outputs."""
        body: list[Stmt] = [*self.before, *self._pivots()]
        for names in self.flat.passes:
            levels = levels_of(self.flat, names)
            self.env.shifts = {}  # results of earlier passes are final
            own = [a for a in self.flat.accumulators if a.name in names and a.monoid != PIVOT]
            for a in own:
                body += self.over(*zip(self._cells(a), self.identities(a), strict=True))
            if levels:
                body.append(self._blocks(levels))
            for a in own:
                self._guard(body, a, self._cells(a))
            self._know(body, [d for level in levels for d in level.dependencies])
        self._know(body, [d for d in self.flat.dependencies if d.name not in self.env.values])
        self.env = self.env.raw()
        for o in self.flat.outs:
            body += self._output(o)
        cleaned = prune(hoist(tuple(body), self.names, self.space.compute))
        cleaned = unroll(cleaned, self.space.plan.profile, self.space.compute)
        loop = For(self.task.name, Const(0), self.total, Const(1), cleaned, "task")
        return Phase(loop, tuple(self.scratch))

    def _pivots(self) -> list[Stmt]:
        out: list[Stmt] = []
        for a in self.flat.accumulators:
            if a.monoid == PIVOT:
                i, at = self.names.integer("sample"), self.names.integer("at")
                there = self.env.at(**{self.stream: at})
                cell = self.cells[a.name]
                best = self.over((cell, nearer_zero(self.real(cell, self.lower(a.body, there)), cell)))
                step = (LetInt(at.name, sampled(i, self.length)), *best)
                out += self.over((cell, identity(PIVOT)))
                out.append(If(op("gt", self.length, 0), (For(i.name, Const(0), Const(PIVOTS), Const(1), step),)))
                out += self.over((cell, read_pivot(cell)))
                self.env.values[a.name] = cell
        return out

    def _cells(self, a: Accumulator) -> list[At]:
        return [self.cells[name] for name, _ in self.parts(a)]

    def _guard(self, out: list[Stmt], a: Accumulator, cells: Sequence[At]) -> None:
        """`cells` hold the newest value of `a`; an extremum at its identity reads 0 where it is subtracted."""
        self.env.values |= {name: cell for (name, _), cell in zip(self.parts(a), cells, strict=True)}
        if a.monoid in SHIFTS:
            safe = select(op("eq", cells[0], identity(a.monoid)), 0.0, cells[0])
            self.env.shifts[a.name] = self.bind(out, f"{a.name}_shift", a.axes, safe)

    def _know(self, out: list[Stmt], dependencies: Iterable[Let], suffix: str = "") -> None:
        for d in dependencies:
            self.env.values[d.name] = self.bind(out, d.name + suffix, d.axes, self.lower(d.expr))

    # -------------------------------- one block of the stream

    def _blocks(self, levels: list[Level]) -> For:
        """The loop over blocks: state is replaced at the end of each, so that corrections read old values."""
        b0, b1 = self.names.integer("b0"), self.names.integer("b1")
        block = self.decisions.block
        body: list[Stmt] = [LetInt(b1.name, op("min", op("add", b0, block), self.length))]
        self.env.old = {**self.env.values, **self.cells}
        self.env.running = running(levels)
        new: dict[str, At] = {}
        for level in levels:
            values = self._reduce(body, level, b0, b1)
            moved = self._corrected(body, level, op("gt", b0, 0))
            for a in level.accumulators:
                before = [moved.get(name, self.cells[name]) for name, _ in self.parts(a)]
                fresh = [self.array(f"{name}_new", a.axes, dtype) for name, dtype in self.parts(a)]
                met = [values[name] for name, _ in self.parts(a)]
                body += self.over(*zip(fresh, self.combined(a, before, met), strict=True))
                new |= {name: cell for (name, _), cell in zip(self.parts(a), fresh, strict=True)}
                self._guard(body, a, fresh)
            self._know(body, level.dependencies, "_now")
        body += self.over(*((self.cells[name], cell) for name, cell in new.items()))
        self.env.running = frozenset()
        return For(b0.name, Const(0), self.length, Const(block), tuple(body))

    def _reduce(self, out: list[Stmt], level: Level, b0: Expr, b1: Expr) -> dict[str, Expr]:
        """The reductions of one level over a block, for every column."""
        values: dict[str, Expr] = {}
        met: list[tuple[Accumulator, list[At]]] = []
        for a in level.accumulators:
            if self.stream not in free_axes(a.body) and not has_parts(a.monoid):
                values[a.name] = self._repeated(a.monoid, self.lower(elements_of(a)[0]), op("sub", b1, b0))
                continue
            cells = [self.array(f"{name}_block", a.axes, dtype) for name, dtype in self.parts(a)]
            out += self.over(*zip(cells, self.identities(a), strict=True))
            met.append((a, cells))
            values |= {name: cell for (name, _), cell in zip(self.parts(a), cells, strict=True)}
        if met:
            out += self._along(met, b0, b1)
        return values

    def _along(self, met: list[tuple[Accumulator, list[At]]], b0: Expr, b1: Expr) -> list[Stmt]:
        """The loop over a block's elements that enters each into its cells: cheap ones several at a time, which reads
        and stores the cells once for all of them."""
        step = STEP if all(_is_cheap(a) for a, _ in met) else 1
        out: list[Stmt] = []
        start = b0
        if step > 1:
            end, first = self.names.integer("whole"), self.names.integer(self.stream)
            out.append(LetInt(end.name, op("sub", b1, op("imod", op("sub", b1, b0), step))))
            together = [(cells[0], self._together(a, cells[0], first, step)) for a, cells in met]
            out.append(For(first.name, b0, end, Const(step), tuple(self.over(*together))))
            start = end
        single: list[tuple[At, Expr]] = []
        for a, cells in met:
            numbers = [self.real(cell, e) for cell, e in zip(cells, self._elements(a), strict=True)]
            single += self._at_once(cells, a.axes, self.combined(a, cells, numbers))
        return [*out, For(self.element.name, start, b1, Const(1), tuple(self.over(*single)))]

    def _together(self, a: Accumulator, cell: At, first: Expr, step: int) -> Expr:
        """The cell combined with `step` elements from `first` on, these in pairs."""
        values: list[Expr] = []
        for k in range(step):
            there = self.env.at(**{self.stream: op("add", first, k)})
            values.append(self.real(cell, self.lower(a.body, there)))
        while len(values) > 1:
            values = [self.combined(a, [x], [y])[0] for x, y in zip(values[::2], values[1::2], strict=True)]
        return self.combined(a, [cell], values)[0]

    def _elements(self, a: Accumulator) -> list[Expr]:
        """The state of the current element; that of argmax has its position."""
        elements = [self.lower(e) for e in elements_of(a)]
        return [*elements, self.element] if list_length(a.monoid) else elements

    def _at_once(self, cells: Sequence[At], axes: Iterable[str], values: Sequence[Expr]) -> list[tuple[At, Expr]]:
        """Stores of several parts, none of which is seen by the others."""
        if len(cells) == 1:
            return list(zip(cells, values, strict=True))
        kept = [self.array("next", axes, cell.buf.dtype) for cell in cells]
        return [*zip(kept, values, strict=True), *zip(cells, kept, strict=True)]

    def _repeated(self, monoid: str, body: Expr, count: Expr) -> Expr:
        """(+) over `count` > 0 copies of a value that does not vary along the stream."""
        number = Cast(self.space.compute, count)
        if monoid in ("sum", "prod"):
            return op(
                "mul" if monoid == "sum" else "pow",
                as_number(body, self.names.kinds, self.space.compute),
                number,
            )
        return body

    def _corrected(self, out: list[Stmt], level: Level, later: Expr) -> dict[str, Expr]:
        """Arrays with the corrected old state of the level; untouched on the first block."""
        todo = [(a, e) for a in level.accumulators if (e := self.flat.correction(a.name)) is not None]
        moved = {name: self.array(f"{name}_moved", a.axes, dtype) for a, _ in todo for name, dtype in self.parts(a)}
        out += self.over(*((cell, self.cells[name]) for name, cell in moved.items()))
        inner: list[Stmt] = []
        self._old_dependencies(inner, [e for _, e in todo])
        for a, e in todo:
            parts = corrected_parts(a, e, self.lower) if has_parts(a.monoid) else [self.lower(e)]
            pairs = zip(self.parts(a), parts, strict=True)
            inner += self.over(*((moved[n], x) for (n, _), x in pairs))
        if inner:
            out.append(If(later, tuple(inner)))
        return dict(moved)

    def _old_dependencies(self, out: list[Stmt], corrections: list[Expr]) -> None:
        wanted = {x.name for e in corrections for x in walk(e) if isinstance(x, Old)}
        before = replace(self.env, values=dict(self.env.old), shifts={})
        for d in self.flat.dependencies:
            later = {x.name for x in self.flat.dependencies if d.name in refs(x.expr)}
            if d.name in wanted or later & wanted:
                before.values[d.name] = self.bind(out, f"{d.name}_old", d.axes, self.lower(d.expr, before))
                self.env.old[d.name] = before.values[d.name]

    # -------------------------------- outputs

    def _output(self, o: Out) -> list[Stmt]:
        """An output by the definition's own arithmetic; row by row where it carries the stream."""
        cell = At(self.space.outs[o.name], tuple(self.env.axes[a] for a in o.axes))
        sweep = self.over((cell, self.lower(o.expr)))
        if self.stream not in o.axes:
            return sweep
        return [For(self.element.name, Const(0), self.length, Const(1), tuple(sweep))]


def _is_cheap(a: Accumulator) -> bool:
    """Do loads and stores of its state take longer than an element's arithmetic?"""
    return not has_parts(a.monoid) and not any(map(is_costly, walk(a.body)))
