"""Inputs that several sweeps over one range read: loaded once, kept by the threads that own them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from redfuser.codegen.cuda.ranges import Ranges
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf, For, If, LetInt, Put, Stmt, Sweep
from redfuser.codegen.passes.bodies import Body, depends_on, lane_expressions, map_bodies, map_lanes, nested
from redfuser.ir import Const, Expr, Var, op, rewrite, walk
from redfuser.ir.dtypes import is_float, numpy_dtype

Range = tuple[Expr, Expr]


class Staging:
    """Rewrites the statements of one task.

    fits : whether another buffer for a range still fits: (elements, bytes of an element) -> bool
    """

    def __init__(self, compute: str, ranges: Ranges, names: Names, fits: Callable[[int, int], bool]) -> None:
        self.compute, self.ranges, self.names, self.fits = compute, ranges, names, fits
        self.scratch: list[Buf] = []

    def body(self, body: Body) -> Body:
        """Every list of statements by itself, the outer one first."""
        bound = {s.name for s in body if isinstance(s, LetInt)}
        for first in [s for s in body if isinstance(s, Sweep)]:
            extent = self.ranges.extent(first.lo, first.hi)
            cells = [] if extent is None else list(self._cells(first))
            for cell in cells:
                assert extent is not None
                if self._movable(cell, first, body, bound) and self._again(cell, first, body):
                    buf = self._buffer(cell, extent)
                    if self.fits(extent, numpy_dtype(buf.dtype).itemsize):
                        body = self._kept(body, first, cell, buf)
                        first = next(s for s in body if isinstance(s, Sweep) and _same(s, first) and _puts(s, buf))
        return tuple(map_bodies(s, self.body) if isinstance(s, (For, If)) else s for s in body)

    def _cells(self, s: Sweep) -> dict[At, None]:
        """Input elements that a sweep reads, one per lane; none where threads take neighbours in order."""
        if any(f.ordered for f in s.folds):
            return {}
        read = (x for e in lane_expressions(s) for x in walk(e) if isinstance(x, At))
        return {x: None for x in read if x.buf.home == "global" and sum(depends_on(i, s.var) for i in x.idx) == 1}

    def _movable(self, cell: At, s: Sweep, body: Body, bound: set[str]) -> bool:
        """Whether the cell means the same in every sweep of the list: nothing writes it, no loop inside changes it."""
        inner = {x.var for x in nested(body) if isinstance(x, For)} | {
            x.name for b in body if isinstance(b, (For, If)) for x in nested((b,)) if isinstance(x, LetInt)}
        names = {x.name for i in cell.idx for x in walk(i) if isinstance(x, Var)} - {s.var}
        written = any(p.cell.buf == cell.buf for x in nested(body) if isinstance(x, Sweep) for p in x.puts)
        return not written and not names & inner and not any(isinstance(x, At) for i in cell.idx for x in walk(i))

    def _again(self, cell: At, first: Sweep, body: Body) -> bool:
        """Whether a later sweep over the same range reads it too."""
        return sum(_same(s, first) and cell in self._cells(s) for s in nested(body) if isinstance(s, Sweep)) > 1

    def _buffer(self, cell: At, extent: int) -> Buf:
        """Narrow floats are kept converted; other elements as they are."""
        dtype = cell.buf.dtype
        narrow = is_float(numpy_dtype(dtype)) and numpy_dtype(dtype).itemsize < 4
        name = self.names.fresh(f"{cell.buf.name}_kept")
        return Buf(name, (Const(extent),), "local", self.compute if narrow else dtype)

    def _kept(self, body: Body, first: Sweep, cell: At, buf: Buf) -> Body:
        """The first sweep stores the cell, all others of the range read it back."""
        self.scratch.append(buf)
        kept = At(buf, (op("sub", Var(first.var), first.lo),))
        stored = False

        def visit(part: Body) -> Body:
            nonlocal stored
            out: list[Stmt] = []
            for s in part:
                if isinstance(s, Sweep) and _same(s, first) and cell in self._cells(s):
                    s, put = map_lanes(s, lambda e: rewrite(e, lambda x: kept if x == cell else None)), not stored
                    if put:
                        stored = True
                        s = replace(s, puts=(Put(kept, cell), *s.puts))
                out.append(map_bodies(s, visit) if stored else s)  # nothing is kept before
            return tuple(out)

        return visit(body)


def _same(a: Sweep, b: Sweep) -> bool:
    return (a.var, a.lo, a.hi) == (b.var, b.lo, b.hi)


def _puts(s: Sweep, buf: Buf) -> bool:
    return any(p.cell.buf == buf for p in s.puts)
