"""Sweeps as threads run them: neighbours that are folded in order, and elements that enter lists, have their own.

Stores to scratch that nothing reads disappear: schedules for CPUs leave the merging of equal ones to the C compiler.
"""

from __future__ import annotations

from dataclasses import replace

from redfuser.codegen.nodes import At, Buf, Set, Stmt, Sweep
from redfuser.codegen.passes.bodies import Body, expressions, map_bodies, nested
from redfuser.codegen.passes.prune import prune
from redfuser.ir import walk


def normal(body: Body) -> Body:
    """The statements with every sweep split into what one loop of threads can do."""
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, Sweep):
            out += _split(s)
        else:
            out.append(map_bodies(s, normal))
    return tuple(out)


def without_dead_stores(body: Body) -> Body:
    """The statements without stores to scratch and scalars that no expression reads."""
    while True:
        read = {x.buf for s in nested(body) for e in expressions(s) for x in walk(e) if isinstance(x, At)}
        lists = [i for s in nested(body) if isinstance(s, Sweep) for i in s.inserts]
        read |= {b for i in lists for b in (i.keys.buf, i.indices.buf)}
        smaller = prune(_read_stores(body, read))
        if smaller == body:
            return body
        body = smaller


def _read_stores(body: Body, read: set[Buf]) -> Body:
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, Set) and s.cell.buf.home in ("reg", "local") and s.cell.buf not in read:
            continue
        if isinstance(s, Sweep):
            kept = tuple(p for p in s.puts if p.cell.buf.home != "local" or p.cell.buf in read)
            s = replace(s, puts=kept)
            if not (s.reds or s.puts or s.folds or s.inserts):
                continue
        s = map_bodies(s, lambda b: _read_stores(b, read))
        if getattr(s, "body", True):
            out.append(s)
    return tuple(out)


def _split(s: Sweep) -> list[Stmt]:
    """Stores, reductions and unordered folds together; each ordered fold and each list alone, afterwards."""
    free = tuple(f for f in s.folds if not f.ordered)
    parts: list[Stmt] = []
    if s.reds or s.puts or free:
        parts.append(replace(s, folds=free, inserts=(), ahead=()))
    bare = replace(s, reds=(), puts=(), folds=(), inserts=(), ahead=())
    parts += [replace(bare, folds=(f,)) for f in s.folds if f.ordered]
    parts += [replace(bare, inserts=(i,)) for i in s.inserts]
    return parts
