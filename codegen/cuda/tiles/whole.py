"""Row loops inside of the stream: one version for blocks that all rows see in full, one that tests every element."""

from __future__ import annotations

from dataclasses import dataclass, replace

from redfuser.codegen.cuda.tiles.homes import origin, renewed
from redfuser.codegen.cuda.tiles.nodes import FRAGMENT, STRIP, Clear, Held, Whole
from redfuser.codegen.indexing import tidy
from redfuser.codegen.nodes import At, Buf, For, LetInt, LetScalar, Stmt, Sweep
from redfuser.codegen.passes.bodies import Body, lane_expressions, map_bodies, nested
from redfuser.codegen.passes.prune import prune
from redfuser.ir import Const, Expr, Var, op, rewrite, walk

Holding = dict[Buf, Held]


@dataclass(frozen=True)
class Columns:
    """What a sweep runs over: `count` columns of fragments, of which its variable is `origin` at the first."""

    origin: Expr
    count: int

    def hold(self, s: Sweep) -> bool:
        """Whether the range of the sweep is all of them, whatever the sizes."""
        return tidy(op("sub", s.lo, self.origin)) == Const(0) and tidy(op("sub", s.hi, s.lo)) == Const(self.count)

    def test(self, s: Sweep) -> Expr:
        """Whether it is, in a run."""
        first = op("le", s.lo, self.origin)
        last = op("le", op("add", self.origin, self.count), s.hi)
        return last if tidy(op("sub", s.lo, self.origin)) == Const(0) else op("and", first, last)


def columns_of(s: Sweep, held: Holding) -> Columns | None:
    """The columns that a sweep runs over; None where it touches neither fragments nor strips."""
    cells = [x for e in (*lane_expressions(s), *(p.cell for p in s.puts)) for x in walk(e) if isinstance(x, At)]
    found = [(c, held[c.buf]) for c in cells if c.buf in held and held[c.buf].kind in (FRAGMENT, STRIP)]
    own = [(c, h) for c, h in found if Var(s.var) in walk(c.idx[-1])]
    if not own:
        return None
    own.sort(key=lambda x: x[1].kind)  # fragments say where column 0 is
    return Columns(origin(own[0][0], s), max(h.columns for _, h in own))


def aligned(body: Body, held: Holding) -> Body:
    """The statements of a row with strips aligned to the fragments that they are computed from."""
    origins: dict[Buf, Expr] = {}
    for s in (s for s in nested(body) if isinstance(s, Sweep)):
        columns = columns_of(s, held)
        cells = {x.buf for e in (*lane_expressions(s), *(p.cell for p in s.puts)) for x in walk(e) if isinstance(x, At)}
        if columns is not None and any(b in held and held[b].kind == FRAGMENT for b in cells):
            for b in cells:
                if b in held and held[b].kind == STRIP:
                    origins.setdefault(b, columns.origin)
    return tuple(_with_origins(s, origins) for s in body) if origins else body


def _with_origins(s: Stmt, origins: dict[Buf, Expr]) -> Stmt:
    if not isinstance(s, Sweep):
        return map_bodies(s, lambda b: tuple(_with_origins(x, origins) for x in b))

    def cell(x: Expr) -> Expr | None:
        return At(x.buf, (op("sub", Var(s.var), origins[x.buf]),)) if isinstance(x, At) and x.buf in origins else None

    puts = tuple(replace(p, cell=renewed(p.cell, cell), expr=rewrite(p.expr, cell)) for p in s.puts)
    reds = tuple(replace(r, expr=rewrite(r.expr, cell)) for r in s.reds)
    inserts = tuple(replace(i, key=rewrite(i.key, cell), index=rewrite(i.index, cell)) for i in s.inserts)
    return replace(s, puts=puts, reds=reds, inserts=inserts)


def split_whole(loop: For, clears: tuple[Clear, ...], held: Holding) -> Stmt:
    """A row loop as a choice between two, where its sweeps may cover a part of their columns only."""
    guarded = {s: c for s in nested(loop.body) if isinstance(s, Sweep)
               if (c := columns_of(s, held)) is not None and not c.hold(s)}
    ragged = replace(loop, body=(*loop.body, *clears))
    tests = list(dict.fromkeys(c.test(s) for s, c in guarded.items()))
    lets = _lets(loop, tests)
    if not tests or lets is None:
        return ragged
    test = tests[0]
    for other in tests[1:]:
        test = op("and", test, other)
    full = replace(loop, body=prune(_filled(loop.body, guarded)))
    of_row = any(Var(loop.var) in walk(e) for e in (test, *(x.expr for x in lets)))
    rows = replace(loop, body=lets) if of_row else None
    return Whole(rows, test, (full,), (ragged,))


def _filled(body: Body, guarded: dict[Sweep, Columns]) -> Body:
    """The sweeps over all of their columns."""
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, Sweep) and s in guarded:
            c = guarded[s]
            s = replace(s, lo=c.origin, hi=op("add", c.origin, c.count))
        out.append(map_bodies(s, lambda b: _filled(b, guarded)))
    return tuple(out)


def _lets(loop: For, tests: list[Expr]) -> tuple[LetInt, ...] | None:
    """The bindings at the top of a row loop that tests read; None where they read anything else that a row computes."""
    own = {s.name: s for s in loop.body if isinstance(s, LetInt)}
    inner = {s.name for s in nested(loop.body) if isinstance(s, (LetInt, LetScalar))} - own.keys()
    inner |= {s.var for s in nested(loop.body) if isinstance(s, For)}
    needed: dict[str, LetInt] = {}

    def visit(e: Expr) -> bool:
        for x in walk(e):
            if isinstance(x, At) or (isinstance(x, Var) and x.name in inner):
                return False
            if isinstance(x, Var) and x.name in own and x.name not in needed:
                needed[x.name] = own[x.name]
                if not visit(own[x.name].expr):
                    return False
        return True

    if not all(map(visit, tests)):
        return None
    return tuple(s for s in loop.body if isinstance(s, LetInt) and s.name in needed)
