"""One row, one block of the stream: the loop body that rows, tiles and merges share.

Level by level: one sweep with all reductions of the level, then its corrections, then the combination with the old
state, then the dependencies that became known. A level holds the accumulators whose bodies read lower levels only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from redfuser.codegen.kinds import as_number
from redfuser.codegen.levels import PIVOTS, SHIFTS, Level, identity, nearer_zero, read_pivot, running, sampled
from redfuser.codegen.lower import Env, Space, is_truth, lower
from redfuser.codegen.names import Names
from redfuser.codegen.narrow import only_place, read_place
from redfuser.codegen.nodes import At, Buf, Fold, For, If, Insert, LetInt, LetScalar, Put, Red, Set, Stmt, Sweep
from redfuser.codegen.parts import (
    PLACE,
    assign,
    cell_names,
    combination,
    corrected_parts,
    elements_of,
    fold,
    identity_of,
    insertion,
    is_list_cell,
    list_length,
    new_cell,
)
from redfuser.derivation.fusion import Accumulator
from redfuser.ir import (
    MONOIDS,
    RANK,
    Cast,
    Const,
    Expr,
    Let,
    New,
    Old,
    Var,
    find_parts,
    free_axes,
    has_parts,
    is_costly,
    op,
    refs,
    rewrite,
    select,
    walk,
)
from redfuser.ir.ops import PIVOT


@dataclass
class Vector:
    """An accumulator with a vector axis in a tile: a matrix product sums what goes to `weight_cell`.

    lane : variable of sweeps along the vector axis, `extent` elements long (padding included)
    """

    lane: str
    weight: Expr
    weight_cell: At
    extent: Expr


@dataclass
class Row:
    """One row of the program: where its state lives and what is known.

    lane : variable of the sweeps along the stream
    cell : state cell of an accumulator, or of a part of one (`part_name`)
    scratch : collects buffers that statements need
    vectors : accumulators that a matrix product sums
    """

    space: Space
    names: Names
    env: Env
    lane: str
    cell: Callable[[str], At]
    vectors: dict[str, Vector] = field(default_factory=dict)
    materialise: Callable[[list[Stmt], Expr, Expr], Env] | None = None
    scratch: list[Buf] = field(default_factory=list)

    def lower(self, e: Expr, env: Env | None = None) -> Expr:
        """Lower at this row."""
        return lower(e, env or self.env, self.space, self.names)

    def let(self, out: list[Stmt], base: str, e: Expr, dtype: str) -> Var:
        """Bind a new scalar."""
        v = self.names.scalar(base, dtype)
        out.append(LetScalar(v.name, e, dtype))
        return v

    def sweep(
        self,
        lo: Expr,
        hi: Expr,
        reds: Iterable[Red] = (),
        puts: Iterable[Put] = (),
        folds: Iterable[Fold] = (),
        inserts: Iterable[Insert] = (),
    ) -> Sweep:
        """A sweep along the stream."""
        return Sweep(self.lane, lo, hi, tuple(reds), tuple(puts), folds=tuple(folds), inserts=tuple(inserts))

    # -------------------------------- state

    def start(self, accumulators: Iterable[Accumulator]) -> list[Stmt]:
        """Every accumulator at its identity, but pivots and vectors."""
        own = [a for a in accumulators if a.monoid != PIVOT and a.name not in self.vectors]
        return assign(self.names, *(pair for a in own for pair in self._identities(a)))

    def _identities(self, a: Accumulator) -> list[tuple[At, Expr]]:
        m = find_parts(a.monoid)
        if m is None:
            return [(self.cell(a.name), identity(a.monoid))]
        return [(self.cell(name), identity_of(m, part)) for part, name in cell_names(a).items()]

    def read_pivots(self, accumulators: Iterable[Accumulator], length: Expr) -> list[Stmt]:
        """The values of pivots: the element nearest to zero among a few, 0 where none is finite and live."""
        out: list[Stmt] = []
        stream = self.space.flat.stream
        for a in accumulators:
            if a.monoid != PIVOT:
                continue
            cell = self.cell(a.name)
            i, at = self.names.integer("sample"), self.names.integer("at")
            inner: list[Stmt] = [LetInt(at.name, sampled(i, length))]
            env = self.env if self.materialise is None else self.materialise(inner, at, op("add", at, 1))
            number = as_number(self.lower(a.body, env.at(**{stream or "": at})), self.names.kinds, self.space.compute)
            element = self.let(inner, f"{a.name}_element", number, cell.buf.dtype)
            inner.append(Set(cell, nearer_zero(element, cell)))
            taken = For(i.name, Const(0), Const(PIVOTS), Const(1), tuple(inner))
            out += [Set(cell, identity(PIVOT)), If(op("gt", length, 0), (taken,))]
            out.append(Set(cell, read_pivot(cell)))
            self.env.values[a.name] = self.let(out, f"{a.name}_value", cell, cell.buf.dtype)
        return out

    def guard_cells(self, out: list[Stmt], a: Accumulator) -> None:
        """Make the state cells of `a` its newest value."""
        for name in cell_names(a).values():
            self.guard(out, a, self.cell(name), name)

    def guard(self, out: list[Stmt], a: Accumulator, value: Expr, name: str = "") -> None:
        """Make `value` the newest value of `a` (or of the part called `name`).

        An extremum at its identity reads 0 where it is subtracted.
        """
        self.env.values[name or a.name] = value
        if a.monoid in SHIFTS:
            safe = select(op("eq", value, identity(a.monoid)), 0.0, value)
            self.env.shifts[a.name] = self.let(out, f"{a.name}_shift", safe, self.space.compute)

    def know(self, out: list[Stmt], dependencies: Iterable[Let], suffix: str = "") -> None:
        """Bind dependencies from the newest values."""
        for d in dependencies:
            self.env.values[d.name] = self.dependency(out, d, suffix, self.env)

    def dependency(self, out: list[Stmt], d: Let, suffix: str, env: Env) -> Var:
        """Bind a dependency from the values of a place; a truth value counts as 0 or 1."""
        value = as_number(self.lower(d.expr, env), self.names.kinds, "float64")
        return self.let(out, d.name + suffix, value, "float64")

    # -------------------------------- reductions of one level

    def reduce_level(
        self, out: list[Stmt], level: Level, lo: Expr, hi: Expr, waiting: Collection[str] = ()
    ) -> dict[str, Expr]:
        """One sweep for all accumulators of the level; name -> value of the block.

        Of vectors the weights are stored; elements enter lists at once, but those that are `waiting`.
        """
        stream = self.space.flat.stream
        env = self.env
        if self.materialise is not None:
            env = self.materialise(out, lo, hi)
        reds: list[Red] = []
        puts: list[Put] = []
        folds: list[Fold] = []
        values: dict[str, Expr] = {}
        for a in level.accumulators:
            if has_parts(a.monoid):
                if not list_length(a.monoid):
                    elements = [self.lower(e, env) for e in elements_of(a)]
                    folds.append(fold(self.names, a, elements, self.space.compute, self.lower))
                    values |= zip(cell_names(a).values(), map(Var, folds[-1].names), strict=True)
            elif a.name in self.vectors:
                v = self.vectors[a.name]
                puts.append(Put(v.weight_cell, self.lower(v.weight, env)))
            elif stream in free_axes(a.body):
                truth = a.monoid in ("any", "all")
                var = self.names.scalar(f"{a.name}_block", "bool" if truth else self.space.compute)
                body = self.lower(a.body, env)
                if not truth and is_truth(body, self.names):
                    body = Cast(self.space.compute, body)
                reds.append(Red(var.name, a.monoid, body, a.name in self.space.flat.loose))
                values[a.name] = var
            else:
                values[a.name] = _repeated(
                    a.monoid, self.lower(a.body, env), hi if lo == Const(0) else op("sub", hi, lo)
                )
        lists = [a for a in level.accumulators if list_length(a.monoid) and a.name not in waiting]
        inserts = [self._insertion(a, env) for a in lists]
        if reds or puts or folds or inserts:
            stored = {p.expr: p.cell for p in puts}
            reds = [replace(r, expr=rewrite(r.expr, stored.get)) for r in reds]
            places = {r.name: found for r in reds if (found := only_place(r, self.lane, self.names.kinds)) is not None}
            wide = [r for r in reds if r.name not in places]
            if wide or puts or folds or inserts:
                out.append(self.sweep(lo, hi, wide, dict.fromkeys(puts), folds, inserts))
            for r in reds:
                if r.name in places:
                    out += read_place(r, self.lane, places[r.name], lo, hi, self.names)
        return values

    def _insertion(self, a: Accumulator, env: Env) -> Insert:
        key = as_number(self.lower(a.body, env), self.names.kinds, self.space.compute)
        return insertion(a, self.cell, key, env.axes[self.space.flat.stream or ""])

    def _insert_waiting(self, out: list[Stmt], waiting: Iterable[Accumulator], lo: Expr, hi: Expr) -> None:
        """Elements of a block into lists that had to be corrected first."""
        env = self.env if self.materialise is None else self.materialise(out, lo, hi)
        inserts = [self._insertion(a, env) for a in waiting]
        if inserts:
            out.append(self.sweep(lo, hi, inserts=inserts))

    # -------------------------------- streaming

    def advance(self, levels: list[Level], lo: Expr, hi: Expr, later: Expr) -> list[Stmt]:
        """Statements that take the state over the block [lo, hi); `later` tells that this is not the first block."""
        out: list[Stmt] = []
        self._capture(out, levels)
        self.env.running = running(levels)
        for level in levels:
            waiting = [a for a in level.accumulators if list_length(a.monoid) and self._is_corrected(a)]
            values = self.reduce_level(out, level, lo, hi, {a.name for a in waiting})
            self._correct(out, level, later)
            self._insert_waiting(out, waiting, lo, hi)
            for a in level.accumulators:
                if a.name not in self.vectors:
                    self._take_in(out, a, values)
                    self.guard_cells(out, a)
            self.know(out, level.dependencies, "_now")
        self.env.running = frozenset()
        return out

    def _is_corrected(self, a: Accumulator) -> bool:
        return self.space.flat.correction(a.name) is not None

    def _take_in(self, out: list[Stmt], a: Accumulator, block: Mapping[str, Expr]) -> None:
        """state := state (+) block; a list has taken its elements in already."""
        m = find_parts(a.monoid)
        if m is None:
            cell = self.cell(a.name)
            out.append(Set(cell, op(MONOIDS[a.monoid].combine, cell, block[a.name])))
        elif not list_length(a.monoid):
            cells = [self.cell(name) for name in cell_names(a).values()]
            law = combination(m, cells, (block[name] for name in cell_names(a).values()))
            self.replace_cells(out, a, cells, map(self.lower, law))

    def replace_cells(self, out: list[Stmt], a: Accumulator, cells: Iterable[At], values: Iterable[Expr]) -> None:
        """Store the parts of a state, all computed before the first is stored."""
        pairs = list(zip(cells, values, strict=True))
        kept = [self.let(out, f"{a.name}_next", e, c.buf.dtype) for c, e in pairs]
        out += [Set(c, v) for (c, _), v in zip(pairs, kept, strict=True)]

    def _capture(self, out: list[Stmt], levels: list[Level]) -> None:
        """Old values of all scalar state, before anything changes."""
        self.env.old = dict(self.env.values)
        for a in (a for level in levels for a in level.accumulators):
            for name in cell_names(a).values():
                cell = self.cell(name)
                self.env.old[name] = cell if name in self.vectors else self.keep(out, a, name, "old", cell)

    def keep(self, out: list[Stmt], a: Accumulator, name: str, suffix: str, cell: At) -> Expr:
        """The present value of a state cell, kept while the cell changes; of a list only where anything reads it."""
        if not is_list_cell(cell):
            return self.let(out, f"{name}_{suffix}", cell, cell.buf.dtype)
        if a.name not in self._read_while_changing():
            return cell
        kept = new_cell(self.names, f"{name}_{suffix}", cell.buf.shape[-1:], cell.buf.dtype, self.scratch)
        out += assign(self.names, (kept, cell))
        return kept

    def _read_while_changing(self) -> set[str]:
        """Accumulators that dependencies or corrections of others read."""
        flat = self.space.flat
        read = {n for d in flat.dependencies for n in refs(d.expr)}
        return read.union(*({x.name for x in walk(e) if isinstance(x, (Old, New))} for _, e in flat.corrections))

    def _correct(self, out: list[Stmt], level: Level, later: Expr) -> None:
        """Move the accumulators of the level to the new dependencies, where anything they hang on has moved."""
        flat = self.space.flat
        todo = [(a, e) for a in level.accumulators if (e := flat.correction(a.name)) is not None]
        if not todo:
            return
        body: list[Stmt] = []
        self._old_dependencies(body, [e for _, e in todo])
        factors: dict[Expr, Expr] = {}
        sets: list[Stmt] = []
        for a, e in todo:
            if has_parts(a.monoid):
                self._correct_parts(body, sets, a, e)
                continue
            expr = self._bind_costly(body, self.lower(e), factors)
            if a.name in self.vectors:
                v = self.vectors[a.name]
                sets.append(Sweep(v.lane, Const(0), v.extent, (), (Put(self.cell(a.name), expr),)))
            else:
                moved = self.let(body, f"{a.name}_moved", expr, self.cell(a.name).buf.dtype)
                sets.append(Set(self.cell(a.name), moved))
        condition = self._moved([e for _, e in todo], later)
        out.append(If(condition, (*body, *sets)))

    def _correct_parts(self, body: list[Stmt], sets: list[Stmt], a: Accumulator, correction: Expr) -> None:
        """Every part by its own expression: over the places of a list, or one scalar each."""
        cells = [self.cell(name) for name in cell_names(a).values()]
        moved = corrected_parts(a, correction, lambda e: self.lower(e, self.env.at(**{RANK: PLACE})))
        if is_list_cell(cells[0]):
            changed = [(c, e) for c, e in zip(cells, moved, strict=True) if c != e]
            sets += assign(self.names, *changed)
        else:
            self.replace_cells(body, a, cells, moved)

    def _old_dependencies(self, out: list[Stmt], corrections: list[Expr]) -> None:
        wanted = {x.name for e in corrections for x in walk(e) if isinstance(x, Old)}
        before = replace(self.env, values=dict(self.env.old), shifts={})
        for d in self.space.flat.dependencies:
            if wanted & self._dependents(d.name):
                value = self.dependency(out, d, "_old", before)
                before.values[d.name] = self.env.old[d.name] = value

    def _dependents(self, name: str) -> set[str]:
        """`name` and every dependency that reads it."""
        found = {name}
        for d in self.space.flat.dependencies:
            if refs(d.expr) & found:
                found.add(d.name)
        return found

    def _bind_costly(self, out: list[Stmt], e: Expr, memo: dict[Expr, Expr]) -> Expr:
        """Bind transcendental factors once; corrections of one level share them."""

        lanes = {Var(v.lane) for v in self.vectors.values()}

        def leaf(x: Expr) -> Expr | None:
            if not is_costly(x) or any(y in lanes for y in walk(x)):
                return None
            if x not in memo:
                memo[x] = self.let(out, "factor", x, self.names.dtype_of(x, self.space.compute))
            return memo[x]

        return rewrite(e, leaf)

    def _moved(self, corrections: list[Expr], later: Expr) -> Expr:
        """Corrections that hang on extrema only are skipped while those stand still; others only on the first block."""
        news = {x.name for e in corrections for x in walk(e) if isinstance(x, New)}
        watched = [a for a in self.space.flat.accumulators if a.name in news and a.monoid in SHIFTS]
        if not news or len(watched) < len(news):
            return later
        changes = [op("ne", self.env.values[a.name], self.env.old[a.name]) for a in watched]
        moved = changes[0]
        for change in changes[1:]:
            moved = op("or", moved, change)
        return op("and", later, moved)

    # -------------------------------- results

    def finish(self, out: list[Stmt], accumulators: Iterable[Accumulator], known: Iterable[Let]) -> None:
        """Final values of one pass: the state as it is, dependencies by their own arithmetic."""
        for a in accumulators:
            if a.name not in self.vectors and a.monoid != PIVOT:
                self.guard_cells(out, a)
        guarded, self.env = self.env, self.env.raw()
        self.know(out, known)
        self.env = guarded

    def next_pass(self) -> None:
        """What is known so far is final for the passes that follow: no value of it is guarded."""
        self.env.shifts = {}

    def whole(self, levels: list[Level], lo: Expr, hi: Expr) -> list[Stmt]:
        """The same levels when the block is the whole stream: no state, no correction, dependencies are final."""
        out: list[Stmt] = []
        for level in levels:
            out += self.start(a for a in level.accumulators if list_length(a.monoid))
            values = self.reduce_level(out, level, lo, hi)
            for a in level.accumulators:
                if list_length(a.monoid):
                    self.guard_cells(out, a)
                    continue
                for name in cell_names(a).values():
                    self.guard(out, a, values[name], name)
            self.know(out, level.dependencies)
        return out


def _repeated(monoid: str, body: Expr, count: Expr) -> Expr:
    """(+) over `count` copies of a value that does not vary along the stream."""
    if monoid == "sum":
        many = op("mul", body, Cast("float64", count)) if body != Const(1.0) else Cast("float64", count)
        return many if isinstance(body, Const) else select(op("gt", count, 0), many, 0.0)
    value = op("pow", body, Cast("float64", count)) if monoid == "prod" else body
    return select(op("gt", count, 0), value, identity(monoid))
