"""Which thread of a team touches which element: what homes and barriers are decided from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from redfuser.codegen.cuda.nodes import Barrier
from redfuser.codegen.cuda.ranges import first_index
from redfuser.codegen.nodes import At, Buf, For, If, LetInt, LetScalar, Set, Stmt, Sweep
from redfuser.codegen.passes.bodies import depends_on, lane_expressions
from redfuser.errors import CheckError
from redfuser.ir import Const, Expr, Var, walk

ZERO = Const(0)
OWN, ONE, ALL, ANY, LIST = "own", "one", "all", "any", "list"


@dataclass(frozen=True)
class Access:
    """One use of a buffer.

    how    OWN: element i of the range by the thread that has i in every sweep of that width; ONE: by the thread that
           stores single values; ALL: the same element by every thread; ANY: nothing is known; LIST: a sorted list
           that elements enter
    width  of OWN
    sweep  the range of OWN
    first  index of the first element of the range of OWN: 0 in scratch
    dim    the dimension along which OWN walks
    """

    buf: Buf
    how: str
    write: bool
    width: int = 0
    sweep: Sweep | None = None
    first: Expr = ZERO
    dim: int = 0

    def same_thread(self, other: Access) -> bool:
        """Whether equal elements are touched by equal threads, so that no barrier is needed between both."""
        if self.buf.home == "local" and self.buf.shape == (Const(1),):  # both are the first thread
            return {self.how, other.how} <= {OWN, ONE}
        alike = (self.how, self.width, self.first, self.dim) == (other.how, other.width, other.first, other.dim)
        return alike and self.how in (OWN, ONE)


def accesses(s: Stmt, width: int) -> Iterator[Access]:
    """What one statement does itself, without the statements in it; `width`: of a sweep."""
    if isinstance(s, Barrier):
        return
    if isinstance(s, (LetInt, LetScalar)):
        yield from _reads([s.expr], ALL)
    elif isinstance(s, If):
        yield from _reads([s.condition], ALL)
    elif isinstance(s, For):
        yield from _reads([s.lo, s.hi, s.step], ALL)
    elif isinstance(s, Set):
        how = ALL if s.cell.buf.home == "reg" else ONE
        yield from _reads([s.expr, *s.cell.idx], how)
        yield Access(s.cell.buf, how, True)
    elif isinstance(s, Sweep):
        yield from _swept(s, width)
    else:
        raise CheckError(f"{type(s).__name__} has no form for teams of threads yet")


def _reads(exprs: Iterable[Expr], how: str) -> Iterator[Access]:
    for e in exprs:
        for x in walk(e):
            if isinstance(x, At):
                yield Access(x.buf, how, False)


def _swept(s: Sweep, width: int) -> Iterator[Access]:
    yield from _reads([s.lo, s.hi], ALL)
    apart = any(f.ordered for f in s.folds)  # threads take neighbours instead
    for e in lane_expressions(s):
        for x in walk(e):
            if isinstance(x, At):
                yield _lane_access(x, s, width, False, apart)
    for p in s.puts:
        yield _lane_access(p.cell, s, width, True, apart)
        for i in p.cell.idx:
            yield from _reads([x for x in walk(i) if isinstance(x, At)], ANY)
    for insert in s.inserts:
        for cell in (insert.keys, insert.indices):
            yield Access(cell.buf, LIST, False)
            yield Access(cell.buf, LIST, True)


def _lane_access(x: At, s: Sweep, width: int, write: bool, apart: bool) -> Access:
    moving = [i for i, e in enumerate(x.idx) if depends_on(e, s.var)]
    if x.buf.home != "reg" and not apart and len(moving) == 1:
        first = first_index(x.idx[moving[0]], s)
        if not depends_on(first, s.var) and (first == ZERO or x.buf.home == "global"):
            return Access(x.buf, OWN, write, width, s, first, moving[0])
    elif not any(y == Var(s.var) for i in x.idx for y in walk(i)):
        return Access(x.buf, ALL, write)
    return Access(x.buf, ANY, write)
