"""Sweeps as threads run them: neighbours that are folded in order, and elements that enter lists, in sweeps of their own."""

from __future__ import annotations

from dataclasses import replace

from redfuser.codegen.nodes import Stmt, Sweep
from redfuser.codegen.passes.bodies import Body, map_bodies


def normal(body: Body) -> Body:
    """The statements with every sweep split into what one loop of threads can do."""
    out: list[Stmt] = []
    for s in body:
        if isinstance(s, Sweep):
            out += _split(s)
        else:
            out.append(map_bodies(s, normal))
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
