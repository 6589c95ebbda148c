"""Faults in ranges: the first or last element, block, chunk or task is left out, or one too many is taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from redfuser.codegen.nodes import At, For, If, LetInt, Set, Sweep
from redfuser.codegen.passes.bodies import expressions, nested
from redfuser.ir import Const, Expr, Op, Var, op, walk
from redfuser.testing.faults.places import (
    Change,
    Place,
    certain_cells,
    changed,
    depends,
    edits,
    element_data,
    only_free,
    title,
)
from redfuser.testing.faults.registry import loop_kind

ONE = Const(1)
Found = Iterator[tuple[str, For]]


def counts(s: Sweep) -> bool:
    """Whether every element of the sweep matters: it is reduced, folded, listed, stored in an array, or data. A sweep
    that moves scratch of a thread alone may set what a later one sets again."""
    arrays = any(p.cell.buf.home != "local" or element_data(p) for p in s.puts)
    return bool(s.reds or s.folds or s.inserts) or arrays


@loop_kind("last element of a sweep missing")
def short_sweep(loop: For, free: frozenset[str]) -> Found:
    """hi - 1."""
    yield from changed(loop, lambda at: _sweep(at, free, 0, -1))


@loop_kind("first element of a sweep missing")
def late_sweep(loop: For, free: frozenset[str]) -> Found:
    """lo + 1; not where scratch in registers is counted from lo: there the elements only move to other threads."""
    yield from changed(loop, lambda at: _sweep(at, free, 1, 0))


@loop_kind("element beyond a sweep")
def long_sweep(loop: For, free: frozenset[str]) -> Found:
    """hi + 1, where every lane touches an array. A maximum of what a thread has in registers may stay as it is."""
    yield from changed(loop, lambda at: _sweep(at, free, 0, 1))


def _sweep(at: Place, free: frozenset[str], lo: int, hi: int) -> Iterator[Change]:
    s = at.stmt
    if not isinstance(s, Sweep) or only_free(s, free) or not counts(s) or (hi != 1 and _only_repairs(at)):
        return
    if hi == 1 and not any(any(depends(i, s.var) for i in c.idx) for c in certain_cells(s)):
        return
    if lo and isinstance(s.lo, Const) and isinstance(s.hi, Const) and s.hi.value - s.lo.value < 2:
        return
    new = replace(s, lo=op("add", s.lo, lo) if lo else s.lo, hi=op("add", s.hi, hi) if hi else s.hi)
    yield title(s), (new,)


def _only_repairs(at: Place) -> bool:
    """Whether a sweep computes again what one before it has computed, for rows that are not finite: inside a condition
    on results. What it leaves out is what the first one gave, which may be the same."""
    conditions = [s for s in at.outer if isinstance(s, If)]
    variables = {x.var for x in at.outer if isinstance(x, For)}
    return any(not any(depends(c.condition, v) for v in variables) for c in conditions)


@loop_kind("last step of a loop missing")
def short_loop(loop: For, free: frozenset[str]) -> Found:
    """hi - 1: with steps of several the last one is missed where it has one element. A range of whole steps alone ends
    a step earlier: one element less would be covered all the same."""

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        if isinstance(s, For):
            yield from _loop(at, free, 0, -(int(s.step.value) if isinstance(s.step, Const) and _whole(s, loop) else 1))

    yield from changed(loop, edit)


def _whole(s: For, task: For) -> bool:
    """Whether the end of a loop is rounded down to whole steps: n - n % step."""
    lets = {x.name: x.expr for x in nested(task.body) if isinstance(x, LetInt)}
    end = lets.get(s.hi.name) if isinstance(s.hi, Var) else s.hi
    return end is not None and any(isinstance(x, Op) and x.fn == "imod" and x.args[1] == s.step for x in walk(end))


@loop_kind("first element of a loop missing")
def late_loop(loop: For, free: frozenset[str]) -> Found:
    """lo + 1."""
    yield from changed(loop, lambda at: _loop(at, free, 1, 0))


@loop_kind("step beyond a loop")
def long_loop(loop: For, free: frozenset[str]) -> Found:
    """hi + 1, for steps of one that read an array there. A further step of several elements is an empty block: it
    changes nothing."""

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        if isinstance(s, For) and s.step == ONE and _touches(s):
            yield from _loop(at, free, 0, 1)

    yield from changed(loop, edit)


def _touches(s: For) -> bool:
    """Whether each step reads or writes an array, or what launches hand on, at its number."""
    for x in s.body:
        cells = certain_cells(x) if isinstance(x, Sweep) else [c for e in expressions(x) for c in walk(e)]
        cells = [*cells, x.cell] if isinstance(x, Set) else cells
        for c in cells:
            if isinstance(c, At) and c.buf.home in ("global", "shared") and any(depends(i, s.var) for i in c.idx):
                return True
    return False


def _loop(at: Place, free: frozenset[str], lo: int, hi: int) -> Iterator[Change]:
    s = at.stmt
    if not isinstance(s, For) or only_free(s, free) or _only_repairs(at):
        return
    new = replace(s, lo=op("add", s.lo, lo) if lo else s.lo, hi=op("add", s.hi, hi) if hi else s.hi)
    yield title(s), (new,)


@loop_kind("last task missing")
def short_tasks(loop: For, free: frozenset[str]) -> Found:
    """The task loop ends one too early."""
    yield title(loop), replace(loop, hi=op("sub", loop.hi, 1))


@loop_kind("first task missing")
def late_tasks(loop: For, free: frozenset[str]) -> Found:
    """The task loop begins one too late."""
    yield title(loop), replace(loop, lo=op("add", loop.lo, 1))


@loop_kind("task beyond the last")
def long_tasks(loop: For, free: frozenset[str]) -> Found:
    """The task loop ends one too late; only where a task is one row: a further tile or chunk is empty."""
    lets = {s.name: s.expr for s in nested(loop.body) if isinstance(s, LetInt)}
    tiles = any(isinstance(x, Op) and x.fn == "mul" for e in lets.values() for x in walk(e) if isinstance(x, Op)
                and any(isinstance(a, Const) for a in x.args))
    if not tiles:
        yield title(loop), replace(loop, hi=op("add", loop.hi, 1))


def _rounded_up(e: Expr) -> Iterator[tuple[str, Expr]]:
    """(n + c - 1) // c becomes n // c."""
    if not isinstance(e, Op) or e.fn != "idiv":
        return
    whole, by = e.args
    if isinstance(by, Const) and isinstance(whole, Op) and whole.fn == "add" and whole.args[1] == Const(by.value - 1):
        yield str(e), op("idiv", whole.args[0], by)


@loop_kind("last chunk missing")
def rounded_down(loop: For, free: frozenset[str]) -> Found:
    """A count of chunks or tiles that is rounded down."""
    for text, hi in edits(loop.hi, _rounded_up):
        yield text, replace(loop, hi=hi)

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        if isinstance(s, For) and not only_free(s, free):
            for text, hi in edits(s.hi, _rounded_up):
                yield f"{title(s)} {text}", (replace(s, hi=hi),)

    yield from changed(loop, edit)


@loop_kind("wrong offset of a chunk")
def moved_chunk(loop: For, free: frozenset[str]) -> Found:
    """The first element of a chunk, k * c, becomes k * (c + 1): the elements between are in none. (With c - 1 chunks
    overlap, which extremes do not notice.)"""

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        if isinstance(s, LetInt) and isinstance(s.expr, Op) and s.expr.fn == "mul" and not only_free(s, free):
            a, b = s.expr.args
            if isinstance(b, Const) and isinstance(a, Var) and b.value > 1:
                yield title(s), (replace(s, expr=op("mul", a, int(b.value) + 1)),)

    yield from changed(loop, edit)


@loop_kind("end of a block too early")
def short_block(loop: For, free: frozenset[str]) -> Found:
    """min(lo + c, n) becomes min(lo + c - 1, n)."""

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        if not isinstance(s, LetInt) or not isinstance(s.expr, Op) or s.expr.fn != "min" or only_free(s, free):
            return
        a, b = s.expr.args
        if isinstance(a, Op) and a.fn == "add" and isinstance(a.args[1], Const) and a.args[1].value > 1:
            shorter = op("add", a.args[0], int(a.args[1].value) - 1)
            yield title(s), (replace(s, expr=op("min", shorter, b)),)

    yield from changed(loop, edit)


@loop_kind("chunk and row of a task exchanged")
def exchanged(loop: For, free: frozenset[str]) -> Found:
    """k % n and k // n exchanged, where n is a count that is not constant."""

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        if isinstance(s, LetInt) and isinstance(s.expr, Op) and s.expr.fn in ("idiv", "imod"):
            number, by = s.expr.args
            if number == Var(at.task.var) and not isinstance(by, Const):
                other = "imod" if s.expr.fn == "idiv" else "idiv"
                yield title(s), (replace(s, expr=op(other, number, by)),)

    yield from changed(loop, edit)
