"""How long a range of a phase can be: what decides homes, teams and the counts of unrolled loops."""

from __future__ import annotations

from collections.abc import Mapping

from redfuser.codegen.cuda.nodes import Bounds
from redfuser.codegen.indexing import tidy
from redfuser.codegen.nodes import Buf, LetInt, Stmt, Sweep
from redfuser.codegen.passes.bodies import nested
from redfuser.ir import Const, Expr, Op, Size, Var, op
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.term import base_axis


def bounds_of(when: Expr | None) -> dict[str, int]:
    """Axis -> the length up to which a condition on sizes holds."""
    if isinstance(when, Op) and when.fn == "and":
        a, b = map(bounds_of, when.args)
        return {axis: min(n for n in (a.get(axis), b.get(axis)) if n is not None) for axis in {*a, *b}}
    if isinstance(when, Op) and when.fn == "le" and isinstance(when.args[0], Size):
        limit = when.args[1]
        return {base_axis(when.args[0].axis): int(limit.value)} if isinstance(limit, Const) else {}
    return {}


class Ranges:
    """Greatest values of integer expressions of one phase."""

    def __init__(self, body: tuple[Stmt, ...], bounds: Bounds) -> None:
        self.bounds = bounds
        self.lets: Mapping[str, Expr] = {s.name: s.expr for s in nested(body) if isinstance(s, LetInt)}

    def extent(self, lo: Expr, hi: Expr) -> int | None:
        """The most elements of [lo, hi); None where nothing bounds them."""
        known = self._constant(op("sub", hi, lo))
        if known is not None:
            return max(0, known)
        if isinstance(hi, Var) and hi.name in self.lets:
            return self.extent(lo, self.lets[hi.name])
        if isinstance(hi, Op) and hi.fn == "min":
            found = [n for n in (self.extent(lo, a) for a in hi.args) if n is not None]
            return min(found, default=None)
        return self.most(hi) if isinstance(hi, Size) and lo == Const(0) else None

    def _constant(self, e: Expr) -> int | None:
        e = tidy(e)
        return int(e.value) if isinstance(e, Const) else None

    def most(self, e: Expr) -> int | None:
        """The greatest value of a length; None where nothing bounds it."""
        if isinstance(e, Const):
            return int(e.value)
        if isinstance(e, Size):
            return self.bounds.get(base_axis(e.axis))
        if isinstance(e, Op) and e.fn in ("add", "mul"):
            a, b = map(self.most, e.args)
            return None if a is None or b is None else a + b if e.fn == "add" else a * b
        return None

    def bytes(self, buf: Buf) -> int | None:
        """The most memory that a scratch buffer needs."""
        total = numpy_dtype(buf.dtype).itemsize
        for length in buf.shape:
            n = self.most(length)
            if n is None:
                return None
            total *= n
        return total


def first_index(index: Expr, s: Sweep) -> Expr:
    """The index of the first element of a sweep's range, if all others follow it one by one; else something that
    depends on the lane."""
    return tidy(op("add", op("sub", index, Var(s.var)), s.lo))
