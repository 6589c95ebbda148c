"""Faults in which elements are read: masks, rows, dimensions, rows that are kept on chip."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from redfuser.codegen.nodes import At, For, LetInt, Set, Sweep
from redfuser.codegen.passes.bodies import lane_expressions, map_lanes, nested
from redfuser.ir import Const, Expr, Op, Var, rewrite, walk, with_children
from redfuser.testing.faults.places import (
    Change,
    Place,
    certain_cells,
    changed,
    depends,
    is_whole,
    only_free,
    scope_of,
    title,
)
from redfuser.testing.faults.registry import loop_kind

Found = Iterator[tuple[str, For]]
_NEXT_TO = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt"}


def _masks(e: Expr, scope: dict[str, str]) -> bool:
    """Whether a condition masks by positions or by an array of truth values, and asks nothing of computed numbers."""
    leaves = [x for x in walk(e) if isinstance(x, (At, Var))]
    truths = [x for x in leaves if isinstance(x, At) and x.buf.dtype == "bool" and x.buf.home == "global"]
    inner = {y for t in truths for i in t.idx for y in walk(i)}
    places = [x for x in leaves if x not in truths and x not in inner]
    return bool(leaves) and all(isinstance(x, Var) and is_whole(x, scope) for x in places)


def _choices(s: Sweep, scope: dict[str, str]) -> list[Op]:
    found = dict.fromkeys(x for e in lane_expressions(s) for x in walk(e) if isinstance(x, Op) and x.fn == "select")
    return [x for x in found if _masks(x.args[0], scope)]


@loop_kind("mask missing")
def unmasked(loop: For, free: frozenset[str]) -> Found:
    """The first branch of a choice by positions, or by an array of truth values, is always taken."""
    scope = scope_of(loop)

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        for x in _choices(s, scope) if isinstance(s, Sweep) else ():
            assert isinstance(s, Sweep)
            yield f"{x.args[0]} in {title(s)}", (_rewritten(s, x, x.args[1]),)

    yield from changed(loop, edit)


@loop_kind("bound of a mask off by one")
def wrong_mask(loop: For, free: frozenset[str]) -> Found:
    """< for <= in a comparison of positions."""
    scope = scope_of(loop)

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        for x in _choices(s, scope) if isinstance(s, Sweep) else ():
            assert isinstance(s, Sweep)
            for c in dict.fromkeys(y for y in walk(x.args[0]) if isinstance(y, Op) and y.fn in _NEXT_TO):
                new = with_children(x, (rewrite(x.args[0], _swap(c)), *x.args[1:]))
                yield f"{c} in {title(s)}", (_rewritten(s, x, new),)

    yield from changed(loop, edit)


def _swap(c: Op) -> Callable[[Expr], Expr | None]:
    """Replaces a comparison by its neighbour."""
    return lambda e: Op(_NEXT_TO[c.fn], c.args) if e == c else None


def _rewritten(s: Sweep, old: Expr, new: Expr) -> Sweep:
    """The sweep with an expression replaced wherever it stands, stored cells apart."""
    return map_lanes(s, lambda e: rewrite(e, lambda x: new if x == old else None))


def _staged(s: Sweep) -> list[At]:
    """Elements that the sweep only copies to scratch."""
    return [p.expr for p in s.puts if p.cell.buf.home == "local" and isinstance(p.expr, At)
            and p.expr.buf.home == "global"]


def _rows(s: Sweep, cell: At) -> Iterator[tuple[str, At]]:
    """The cell with one index that all lanes share replaced by 0."""
    for i, e in enumerate(cell.idx):
        if not depends(e, s.var) and not isinstance(e, Const) and not any(isinstance(x, At) for x in walk(e)):
            yield str(e), cell.with_idx((*cell.idx[:i], Const(0), *cell.idx[i + 1 :]))


@loop_kind("wrong row")
def first_row(loop: For, free: frozenset[str]) -> Found:
    """Row 0 instead of the task's own, in one sweep."""

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        if not isinstance(s, Sweep) or only_free(s, free):
            return
        for cell in dict.fromkeys(c for c in certain_cells(s) if c.buf.home == "global" and c not in _staged(s)):
            for index, new in _rows(s, cell):
                if cell in [p.cell for p in s.puts]:
                    puts = tuple(replace(p, cell=new) if p.cell == cell else p for p in s.puts)
                    yield f"store to {new}, not {index}", (replace(s, puts=puts),)
                else:
                    yield f"{new}, not {index}, in {title(s)}", (_rewritten(s, cell, new),)

    yield from changed(loop, edit)


@loop_kind("kept row of an earlier task")
def stale_row(loop: For, free: frozenset[str]) -> Found:
    """What is kept on chip stays that of the first task."""

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        for cell in _staged(s) if isinstance(s, Sweep) else ():
            assert isinstance(s, Sweep)
            for index, new in _rows(s, cell):
                yield f"{cell} kept of {index} = 0", (_rewritten(s, cell, new),)

    yield from changed(loop, edit)


@loop_kind("kept row not stored")
def unkept(loop: For, free: frozenset[str]) -> Found:
    """One sweep leaves out the copy of its elements, so that later ones read what was there."""

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        for cell in _staged(s) if isinstance(s, Sweep) else ():
            assert isinstance(s, Sweep)
            yield f"copy of {cell}", (replace(s, puts=tuple(p for p in s.puts if p.expr != cell)),)

    yield from changed(loop, edit)


@loop_kind("indices exchanged")
def exchanged_indices(loop: For, free: frozenset[str]) -> Found:
    """Two indices of an array in the places of each other."""

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        if not isinstance(s, Sweep) or only_free(s, free):
            return
        for cell in dict.fromkeys(c for c in certain_cells(s) if c.buf.home == "global" and len(c.idx) > 1):
            new = cell.with_idx((*cell.idx[:-2], cell.idx[-1], cell.idx[-2]))
            if new != cell and cell not in [p.cell for p in s.puts]:
                yield f"{new} in {title(s)}", (_rewritten(s, cell, new),)

    yield from changed(loop, edit)


@loop_kind("wrong part")
def wrong_part(loop: For, free: frozenset[str]) -> Found:
    """The state of a part is stored where that of the first one belongs, or read from there."""
    lets = {s.name for s in nested(loop.body) if isinstance(s, LetInt)}

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        if isinstance(s, Set) and s.cell.buf.home == "shared" and not only_free(s, free):
            for i, e in enumerate(s.cell.idx):
                if isinstance(e, Var) and e.name in lets:
                    cell = s.cell.with_idx((*s.cell.idx[:i], Const(0), *s.cell.idx[i + 1 :]))
                    yield title(s), (replace(s, cell=cell),)

    yield from changed(loop, edit)
