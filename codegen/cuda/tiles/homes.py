"""Where the scratch of a tile lives: fragments, values per row, strips, row operands, panels of shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from redfuser.codegen.c.address import coefficient
from redfuser.codegen.cuda.ranges import Ranges
from redfuser.codegen.cuda.tiles.nodes import (
    COLUMN,
    COLUMNS,
    DEPTH,
    FRAGMENT,
    LIST,
    ROW,
    STATE,
    STRIP,
    Held,
    Operand,
    Panel,
)
from redfuser.codegen.indexing import tidy
from redfuser.codegen.nodes import At, Buf, For, MatMul, Phase, Put, Stmt, Sweep
from redfuser.codegen.passes.bodies import Body, depends_on, expressions, lane_expressions, nested
from redfuser.extract.choose import round_up
from redfuser.ir import Const, Expr, Op, Var, op, rewrite, walk
from redfuser.ir.dtypes import numpy_dtype

ONE = Const(1)


class NoFragments(Exception):
    """A phase has no form as fragments; the message says why."""


@dataclass(frozen=True)
class Source:
    """The operand `b` of a product as a matrix in memory.

    cell        element of row `ROW` and column `COLUMN`, its columns adjacent where any index of the product is
    transposed  whether the rows run along the depth
    """

    cell: At
    transposed: bool


def source_of(s: MatMul) -> Source:
    """How the operand `b` of a product lies in memory.

    Raises
    ------
    NoFragments
        when its indices are not those of a matrix.
    """
    buf = s.b.buf
    moving = {v: [d for d, i in enumerate(s.b.idx) if depends_on(i, v)] for v in ("j_", "k_")}
    if buf.home != "global" or any(len(d) != 1 for d in moving.values()) or moving["j_"] == moving["k_"]:
        raise NoFragments(f"operand {s.b} is no matrix in memory")
    transposed = moving["j_"][0] == (buf.unit if buf.unit is not None else len(buf.shape) - 1)
    rows, columns = ("k_", "j_") if transposed else ("j_", "k_")
    if any(coefficient(s.b.idx[moving[v][0]], v) != ONE for v in (rows, columns)):
        raise NoFragments(f"operand {s.b} is no matrix in memory")
    return Source(renamed(s.b, {rows: ROW, columns: COLUMN}), transposed)


def renamed(cell: At, names: dict[str, Var]) -> At:
    """A cell with other index variables."""
    return renewed(cell, lambda x: names.get(x.name) if isinstance(x, Var) else None)


def renewed(cell: At, rule: Callable[[Expr], Expr | None]) -> At:
    """A cell whose indices a rule rewrites."""
    found = rewrite(cell, rule)
    assert isinstance(found, At)
    return found


class Homes:
    """Homes of one phase.

    held : buffer -> how registers hold it
    sources : row operand -> the cell of memory that it is a copy of, at row and column `ROW` and `COLUMN`
    depths : row operand -> its depth
    """

    def __init__(self, phase: Phase) -> None:
        """Raises NoFragments for scratch without a home."""
        self.body = phase.loop.body
        self.ranges = Ranges(self.body, {})
        self.products = [s for s in nested(self.body) if isinstance(s, MatMul)]
        self.held: dict[Buf, Held] = {}
        self.sources: dict[Buf, At] = {}
        self.depths: dict[Buf, int] = {}
        self._products()
        local = {b for b in phase.local if b not in self.sources}
        for buf in sorted(local - set(self.held), key=lambda b: b.name):
            self.held[buf] = self._state(buf)

    # ---- products

    def _products(self) -> None:
        for s in self.products:
            if not s.rounds or numpy_dtype(s.rounds).itemsize != 2 or s.b.buf.dtype != s.rounds:
                raise NoFragments(f"product {s} has no operands of a half type")
            if s.bound not in ("", "k") or s.mr != 1:
                raise NoFragments(f"product {s} is bounded by tiles of rows")
            self._fragment(s.dst, "i_", "j_", self.extent(s.n), COLUMNS)
            if s.a.buf.home == "local" and s.a.buf.dtype == "float32":
                self._fragment(s.a, "i_", "k_", self.extent(s.k), DEPTH)
            else:
                self.sources[s.a.buf] = self._row_operand(s.a)
                self.depths[s.a.buf] = round_up(self.extent(s.k), DEPTH)

    def extent(self, e: Expr) -> int:
        """The most that a length can be.

        Raises
        ------
        NoFragments
            when nothing bounds it.
        """
        found = self.ranges.extent(Const(0), self._inlined(e))
        if found is None:
            found = self._difference(e)
        if found is None:
            raise NoFragments(f"nothing bounds the length {e}")
        return found

    def _difference(self, e: Expr) -> int | None:
        """Of an end minus a beginning."""
        return self.ranges.extent(e.args[1], e.args[0]) if isinstance(e, Op) and e.fn == "sub" else None

    def _inlined(self, e: Expr) -> Expr:
        lets = self.ranges.lets
        return lets.get(e.name, e) if isinstance(e, Var) else e

    def _fragment(self, cell: At, row: str, column: str, columns: int, multiple: int) -> None:
        if cell.buf.home != "local" or cell.idx != (Var(row), Var(column)):
            raise NoFragments(f"{cell} is no matrix of the tile")
        before = self.held[cell.buf].columns if cell.buf in self.held else 0
        self.held[cell.buf] = Held(cell.buf, FRAGMENT, max(before, round_up(columns, multiple)))

    def _row_operand(self, cell: At) -> At:
        """The memory that a row operand is a copy of."""
        puts = [(loop, s, p) for loop, s, p in _row_puts(self.body) if p.cell.buf == cell.buf]
        if cell.idx != (Var("i_"), Var("k_")) or len(puts) != 1:
            raise NoFragments(f"{cell} is no row operand")
        loop, s, p = puts[0]
        whole = p.cell.idx == (Var(loop.var), Var(s.var)) and s.lo == Const(0)
        if not whole or not isinstance(p.expr, At) or p.expr.buf.home != "global" or p.expr.buf.dtype != cell.buf.dtype:
            raise NoFragments(f"{cell} is no copy of memory")
        return renamed(p.expr, {loop.var: ROW, s.var: COLUMN})

    # ---- the rest

    def _state(self, buf: Buf) -> Held:
        """A value per row, or a row of lanes."""
        cells = [x for s in nested(self.body) for e in (*expressions(s), *_stored(s)) for x in walk(e)
                 if isinstance(x, At) and x.buf == buf]
        rows = {s.var for s in nested(self.body) if isinstance(s, For) and s.kind == "row"}
        if len(buf.shape) == 1 and all(isinstance(c.idx[0], Var) and c.idx[0].name in rows for c in cells):
            return Held(buf, STATE)
        if len(buf.shape) == 1:
            extents = [self.ranges.extent(s.lo, s.hi) for s in nested(self.body) if isinstance(s, Sweep)
                       if any(buf in {x.buf for x in walk(e) if isinstance(x, At)} for e in _of(s))]
            known = [n for n in extents if n is not None]
            if known and len(known) == len(extents):
                return Held(buf, STRIP, round_up(max(known), COLUMNS))
        lists = {b for s in nested(self.body) if isinstance(s, Sweep) for i in s.inserts
                 for b in (i.keys.buf, i.indices.buf)}
        if buf in lists and len(buf.shape) == 2 and isinstance(buf.shape[1], Const):
            return Held(buf, LIST, int(buf.shape[1].value))
        if len(buf.shape) == 2:  # weights that no product reads, state that none adds to
            raise NoFragments(f"scratch {buf.name} is no fragment")
        raise NoFragments(f"scratch {buf.name} has no home in registers")


def _of(s: Sweep) -> Iterator[Expr]:
    yield from lane_expressions(s)
    yield from (p.cell for p in s.puts)


def _stored(s: Stmt) -> list[Expr]:
    """Cells that a statement stores to."""
    if isinstance(s, Sweep):
        return [p.cell for p in s.puts]
    cell = getattr(s, "cell", None)
    return [cell] if isinstance(cell, At) else []


def _row_puts(body: Body) -> Iterator[tuple[For, Sweep, Put]]:
    """Stores of sweeps at the top of row loops, with the loop and the sweep."""
    for loop in nested(body):
        if isinstance(loop, For) and loop.kind == "row":
            yield from ((loop, s, p) for s in loop.body if isinstance(s, Sweep) for p in s.puts)


def origin(cell: At, s: Sweep) -> Expr:
    """The value of a sweep's variable at column 0 of a fragment or a strip."""
    return tidy(op("sub", Var(s.var), cell.idx[-1]))


def operand_of(homes: Homes, buf: Buf, rows: int, kept: bool) -> Operand:
    """A row operand and its panel."""
    depth = homes.depths[buf]
    return Operand(buf, Panel(f"panel_{buf.name}", buf.dtype, rows, depth, 1), depth, kept)
