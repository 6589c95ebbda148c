"""One row, one block of the stream: the loop body that rows, tiles and merges share.

Level by level: one sweep with all reductions of the level, then its corrections, then the combination with the old
state, then the dependencies that became known. A level holds the accumulators whose bodies read lower levels only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from redfuser.codegen.lower import Env, Space, is_truth, lower
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, If, LetScalar, Put, Red, Set, Stmt, Sweep
from redfuser.derivation.fusion import Accumulator
from redfuser.extract.flatten import Flat
from redfuser.ir import (
    COSTLY,
    MONOIDS,
    Cast,
    Const,
    Expr,
    Let,
    New,
    Old,
    Op,
    Var,
    free_axes,
    op,
    refs,
    rewrite,
    select,
    walk,
)

PIVOT = "first"
SHIFTS = ("max", "min")


def state_dtype(a: Accumulator, compute: str) -> str:
    """Sums and products are carried in float64, extrema in the compute dtype, truth values as bool."""
    if a.monoid in ("any", "all"):
        return "bool"
    return "float64" if a.monoid in ("sum", "prod") else compute


def identity(monoid: str) -> Const:
    """The neutral element as a constant."""
    value = MONOIDS[monoid].identity
    return Const(bool(value)) if monoid in ("any", "all") else Const(float(value))


@dataclass(frozen=True)
class Level:
    """Accumulators of one level and the dependencies known after it."""

    accumulators: tuple[Accumulator, ...]
    dependencies: tuple[Let, ...]


def levels_of(flat: Flat, names: tuple[str, ...]) -> list[Level]:
    """The levels of one pass. Pivots are known up front; results of other passes are final: neither adds a level."""
    own = {a.name: a for a in flat.accumulators if a.name in names and a.monoid != PIVOT}
    dependencies = {d.name: d for d in flat.dependencies}
    number = flat.passes.index(names)
    unknown = {n for p in flat.passes[number + 1 :] for n in p}
    memo: dict[str, int] = {}

    def level(name: str) -> int:
        """-1 for what is known before the pass, the number of accumulators for what only a later pass knows."""
        if name not in memo:
            if name in unknown:
                memo[name] = len(flat.accumulators)
            elif name in own:
                memo[name] = 1 + max((level(r) for r in refs(own[name].body)), default=-1)
            elif name in dependencies:
                memo[name] = max((level(r) for r in refs(dependencies[name].expr)), default=-1)
            else:
                memo[name] = -1
        return memo[name]

    count = 1 + max(map(level, own), default=-1)
    return [
        Level(
            tuple(a for a in own.values() if level(a.name) == i),
            tuple(d for d in flat.dependencies if level(d.name) == i),
        )
        for i in range(count)
    ]


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
    cell : state cell of an accumulator
    vectors : accumulators that a matrix product sums
    """

    space: Space
    names: Names
    env: Env
    lane: str
    cell: Callable[[str], At]
    vectors: dict[str, Vector] = field(default_factory=dict)
    materialise: Callable[[list[Stmt], Expr, Expr], Env] | None = None

    def lower(self, e: Expr, env: Env | None = None) -> Expr:
        """Lower at this row."""
        return lower(e, env or self.env, self.space, self.names)

    def let(self, out: list[Stmt], base: str, e: Expr, dtype: str) -> Var:
        """Bind a new scalar."""
        v = self.names.scalar(base, dtype)
        out.append(LetScalar(v.name, e, dtype))
        return v

    def sweep(self, lo: Expr, hi: Expr, reds: Iterable[Red] = (), puts: Iterable[Put] = ()) -> Sweep:
        """A sweep along the stream."""
        return Sweep(self.lane, lo, hi, tuple(reds), tuple(puts))

    # -------------------------------- state

    def start(self, accumulators: Iterable[Accumulator]) -> list[Stmt]:
        """Every scalar accumulator at its identity."""
        scalars = [a for a in accumulators if a.monoid != PIVOT and a.name not in self.vectors]
        return [Set(self.cell(a.name), identity(a.monoid)) for a in scalars]

    def read_pivots(self, accumulators: Iterable[Accumulator], length: Expr) -> list[Stmt]:
        """The values of pivots at position 0, or 0 on an empty stream."""
        out: list[Stmt] = []
        stream = self.space.flat.stream
        for a in accumulators:
            if a.monoid != PIVOT:
                continue
            cell = self.cell(a.name)
            inner: list[Stmt] = []
            env = self.env.at(**{stream or "": Const(0)})
            if self.materialise is not None:
                env = self.materialise(inner, Const(0), Const(1))
                env = env.at(**{stream or "": Const(0)})
            inner.append(Set(cell, self.lower(a.body, env)))
            out += [Set(cell, Const(0.0)), If(op("gt", length, 0), tuple(inner))]
            self.env.values[a.name] = self.let(out, f"{a.name}_value", cell, cell.buf.dtype)
        return out

    def guard(self, out: list[Stmt], a: Accumulator, value: Expr) -> None:
        """Make `value` the newest value of `a`; an extremum at its identity reads 0 where it is subtracted."""
        self.env.values[a.name] = value
        if a.monoid in SHIFTS:
            safe = select(op("eq", value, identity(a.monoid)), 0.0, value)
            self.env.shifts[a.name] = self.let(out, f"{a.name}_shift", safe, self.space.compute)

    def know(self, out: list[Stmt], dependencies: Iterable[Let], suffix: str = "") -> None:
        """Bind dependencies from the newest values."""
        for d in dependencies:
            self.env.values[d.name] = self.let(out, d.name + suffix, self.lower(d.expr), "float64")

    # -------------------------------- reductions of one level

    def reduce_level(self, out: list[Stmt], level: Level, lo: Expr, hi: Expr) -> dict[str, Expr]:
        """One sweep for all accumulators of the level; name -> value of the block (vectors: their weights stored)."""
        stream = self.space.flat.stream
        env = self.env
        if self.materialise is not None:
            env = self.materialise(out, lo, hi)
        reds: list[Red] = []
        puts: list[Put] = []
        values: dict[str, Expr] = {}
        for a in level.accumulators:
            if a.name in self.vectors:
                v = self.vectors[a.name]
                puts.append(Put(v.weight_cell, self.lower(v.weight, env)))
            elif stream in free_axes(a.body):
                truth = a.monoid in ("any", "all")
                var = self.names.scalar(f"{a.name}_block", "bool" if truth else self.space.compute)
                body = self.lower(a.body, env)
                if not truth and is_truth(body, self.names):
                    body = Cast(self.space.compute, body)
                reds.append(Red(var.name, a.monoid, body))
                values[a.name] = var
            else:
                values[a.name] = _repeated(
                    a.monoid, self.lower(a.body, env), hi if lo == Const(0) else op("sub", hi, lo)
                )
        if reds or puts:
            stored = {p.expr: p.cell for p in puts}
            reds = [replace(r, expr=rewrite(r.expr, stored.get)) for r in reds]
            out.append(self.sweep(lo, hi, reds, dict.fromkeys(puts)))
        return values

    # -------------------------------- streaming

    def advance(self, levels: list[Level], lo: Expr, hi: Expr, later: Expr) -> list[Stmt]:
        """Statements that take the state over the block [lo, hi); `later` tells that this is not the first block."""
        out: list[Stmt] = []
        self._capture(out, levels)
        self.env.prefix = True
        for level in levels:
            values = self.reduce_level(out, level, lo, hi)
            self._correct(out, level, later)
            for a in level.accumulators:
                if a.name in self.vectors:
                    continue
                cell = self.cell(a.name)
                out.append(Set(cell, op(MONOIDS[a.monoid].combine, cell, values[a.name])))
                self.guard(out, a, cell)
            self.know(out, level.dependencies, "_now")
        self.env.prefix = False
        return out

    def _capture(self, out: list[Stmt], levels: list[Level]) -> None:
        """Old values of all scalar state, before anything changes."""
        self.env.old = dict(self.env.values)
        for level in levels:
            for a in level.accumulators:
                cell = self.cell(a.name)
                if a.name in self.vectors:
                    self.env.old[a.name] = cell
                else:
                    self.env.old[a.name] = self.let(out, f"{a.name}_old", cell, cell.buf.dtype)

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
            expr = self._bind_costly(body, self.lower(e), factors)
            if a.name in self.vectors:
                v = self.vectors[a.name]
                sets.append(Sweep(v.lane, Const(0), v.extent, (), (Put(self.cell(a.name), expr),)))
            else:
                moved = self.let(body, f"{a.name}_moved", expr, self.cell(a.name).buf.dtype)
                sets.append(Set(self.cell(a.name), moved))
        condition = self._moved([e for _, e in todo], later)
        out.append(If(condition, (*body, *sets)))

    def _old_dependencies(self, out: list[Stmt], corrections: list[Expr]) -> None:
        wanted = {x.name for e in corrections for x in walk(e) if isinstance(x, Old)}
        before = replace(self.env, values=dict(self.env.old), shifts={})
        for d in self.space.flat.dependencies:
            if wanted & self._dependents(d.name):
                value = self.let(out, f"{d.name}_old", self.lower(d.expr, before), "float64")
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
            if not (isinstance(x, Op) and x.fn in COSTLY) or any(y in lanes for y in walk(x)):
                return None
            if x not in memo:
                memo[x] = self.let(out, "factor", x, self.names.dtype_of(x, self.space.compute))
            return memo[x]

        return rewrite(e, leaf)

    def _moved(self, corrections: list[Expr], later: Expr) -> Expr:
        """Corrections that hang on extrema only are skipped while those stand still; others only on the first block.

        An extremum that was still at its identity has seen nothing of weight: there is nothing to move.
        """
        news = {x.name for e in corrections for x in walk(e) if isinstance(x, New)}
        watched = [a for a in self.space.flat.accumulators if a.name in news and a.monoid in SHIFTS]
        if not news or len(watched) < len(news):
            return later
        changes = [op("ne", self.env.values[a.name], self.env.old[a.name]) for a in watched]
        if len(watched) == 1:
            alive = op("ne", self.env.old[watched[0].name], identity(watched[0].monoid))
            return op("and", changes[0], alive)
        moved = changes[0]
        for change in changes[1:]:
            moved = op("or", moved, change)
        return op("and", later, moved)

    # -------------------------------- results

    def finish(self, out: list[Stmt], accumulators: Iterable[Accumulator], known: Iterable[Let]) -> None:
        """Final values of one pass: the state as it is, dependencies by their own arithmetic."""
        for a in accumulators:
            if a.name not in self.vectors and a.monoid != PIVOT:
                self.guard(out, a, self.cell(a.name))
        self.know(out, known)

    def whole(self, levels: list[Level], lo: Expr, hi: Expr) -> list[Stmt]:
        """The same levels when the block is the whole stream: no state, no correction, dependencies are final."""
        out: list[Stmt] = []
        for level in levels:
            values = self.reduce_level(out, level, lo, hi)
            for a in level.accumulators:
                self.guard(out, a, values[a.name])
            self.know(out, level.dependencies)
        return out


def _repeated(monoid: str, body: Expr, count: Expr) -> Expr:
    """(+) over `count` copies of a value that does not vary along the stream."""
    if monoid == "sum":
        many = op("mul", body, Cast("float64", count)) if body != Const(1.0) else Cast("float64", count)
        return many if isinstance(body, Const) else select(op("gt", count, 0), many, 0.0)
    value = op("pow", body, Cast("float64", count)) if monoid == "prod" else body
    return select(op("gt", count, 0), value, identity(monoid))
