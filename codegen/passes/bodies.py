"""Walking statement lists: what every pass needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from redfuser.codegen.nodes import At, Buf, For, If, LetInt, LetScalar, MatMul, Pack, Set, Stmt, Sweep
from redfuser.ir import Expr, Var, children, is_costly, walk

Body = tuple[Stmt, ...]


def map_bodies(s: Stmt, f: Callable[[Body], Body]) -> Stmt:
    """Apply `f` to the body of a loop or a condition."""
    return replace(s, body=f(s.body)) if isinstance(s, (For, If)) else s


def expressions(s: Stmt) -> Iterator[Expr]:
    """Every expression a statement reads, without those of nested bodies. Stored cells contribute their indices."""
    if isinstance(s, For):
        yield from (s.lo, s.hi, s.step)
    elif isinstance(s, If):
        yield s.condition
    elif isinstance(s, (LetInt, LetScalar)):
        yield s.expr
    elif isinstance(s, Set):
        yield s.expr
        yield from s.cell.idx
    elif isinstance(s, Sweep):
        yield from (s.lo, s.hi)
        yield from lane_expressions(s)
        for p in s.puts:
            yield from p.cell.idx
        for i in s.inserts:
            yield from (*i.keys.idx, *i.indices.idx)
        for cell in s.ahead:
            yield from cell.idx
    elif isinstance(s, MatMul):
        yield from (s.m, s.n, s.k, s.dst, s.a, s.b)
        yield from (e for e in (s.lo, s.hi) if e is not None)
        for cell, count in s.ahead:
            yield from cell.idx
            yield count
    elif isinstance(s, Pack):
        yield from (s.p0, s.p1, s.lanes, s.depth, s.src, *s.dst.idx)


def lane_expressions(s: Sweep) -> Iterator[Expr]:
    """What a sweep computes per lane: stored values, then reduced, folded and inserted ones."""
    yield from (p.expr for p in s.puts)
    yield from (r.expr for r in s.reds)
    for fold in s.folds:
        yield from fold.elements
    for insert in s.inserts:
        yield from (insert.key, insert.index)


def is_costly_sweep(s: Stmt) -> bool:
    """Is it a sweep that computes exponentials, logarithms or their like?"""
    return isinstance(s, Sweep) and any(is_costly(x) for e in lane_expressions(s) for x in walk(e))


def map_lanes(s: Sweep, f: Callable[[Expr], Expr]) -> Sweep:
    """Apply `f` to everything the sweep computes per lane."""
    return replace(
        s,
        puts=tuple(replace(p, expr=f(p.expr)) for p in s.puts),
        reds=tuple(replace(r, expr=f(r.expr)) for r in s.reds),
        folds=tuple(replace(x, elements=tuple(map(f, x.elements))) for x in s.folds),
        inserts=tuple(replace(i, key=f(i.key), index=f(i.index)) for i in s.inserts),
    )


def written_buffers(s: Sweep) -> set[Buf]:
    """Buffers that the sweep changes."""
    return {p.cell.buf for p in s.puts} | {b for i in s.inserts for b in (i.keys.buf, i.indices.buf)}


def nested(body: Body) -> Iterator[Stmt]:
    """All statements, those of nested bodies included."""
    for s in body:
        yield s
        if isinstance(s, (For, If)):
            yield from nested(s.body)


def depends_on(e: Expr, name: str) -> bool:
    """Does the variable occur in `e`?"""
    if isinstance(e, Var):
        return e.name == name
    return any(depends_on(c, name) for c in children(e))


def reads_mutable(e: Expr) -> bool:
    """Does `e` read a cell that statements may change?"""
    return any(isinstance(x, At) and x.buf.home != "global" for x in walk(e))
