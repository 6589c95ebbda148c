"""Faults in what a loop carries: corrections, identities, merges, folds, lists."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from redfuser.codegen.nodes import Fold, For, If, LetScalar, Put, Red, Set, Stmt, Sweep
from redfuser.codegen.passes.bodies import nested
from redfuser.ir import Const, Expr, Op, Var, children, op, with_children
from redfuser.testing.faults.places import (
    Change,
    Place,
    changed,
    depends,
    is_free,
    live,
    only_free,
    title,
)
from redfuser.testing.faults.registry import loop_kind
from redfuser.testing.mutate import other_monoid

LARGE = 1e30
"""Larger than all numbers of inputs, and a number in every precision."""

Found = Iterator[tuple[str, For]]


def _corrects(at: Place) -> bool:
    """Whether a condition guards a correction: it asks whether a block is the first, inside the loop over blocks.
    (Conditions on results alone repair rows that are not finite; what they guard may give the same again.)"""
    s = at.stmt
    return isinstance(s, If) and any(depends(s.condition, x.var) for x in at.loops)


@loop_kind("correction missing")
def uncorrected(loop: For, free: frozenset[str]) -> Found:
    """Old states stay as they were when the block changes what they depend on."""
    yield from changed(loop, lambda at: iter([(title(at.stmt), ())] if _corrects(at) and not only_free(at.stmt, free)
                                             else []))


def _merges(at: Place) -> bool:
    """Whether states of parts meet here: inside a loop from the second part on."""
    return any(x.lo == Const(1) for x in at.loops)


def _values(s: Stmt) -> list[tuple[Expr, str]]:
    """Numbers that a statement stores."""
    if isinstance(s, LetScalar) and s.dtype != "bool":
        return [(s.expr, s.name)]
    if isinstance(s, Set) and s.cell.buf.dtype.startswith("float"):
        return [(s.expr, s.cell.buf.name)]
    if isinstance(s, Sweep):
        return [(p.expr, p.cell.buf.name) for p in s.puts if p.cell.buf.dtype.startswith("float")]
    return []


def _with_value(s: Stmt, number: int, e: Expr) -> Stmt:
    if isinstance(s, (LetScalar, Set)):
        return replace(s, expr=e)
    assert isinstance(s, Sweep)
    floats = [p for p in s.puts if p.cell.buf.dtype.startswith("float")]
    new: Put = replace(floats[number], expr=e)
    return replace(s, puts=tuple(new if p is floats[number] else p for p in s.puts))


def _fewer(e: Expr) -> Iterator[tuple[str, Expr]]:
    """The value without one factor or one term of it. Conditions of a choice and indices stay."""
    if isinstance(e, Op) and e.fn in ("mul", "add"):
        word = "factor" if e.fn == "mul" else "term"
        for i in (0, 1):
            if not isinstance(e.args[i], Const):
                yield f"without the {word} {e.args[i]}", e.args[1 - i]
    if not isinstance(e, Op):
        return
    for i, c in enumerate(children(e)):
        if e.fn == "select" and i == 0:
            continue
        for text, new in _fewer(c):
            yield text, with_children(e, (*children(e)[:i], new, *children(e)[i + 1 :]))


@loop_kind("factor or term of a correction missing")
def lesser_correction(loop: For, free: frozenset[str]) -> Found:
    """In corrections, and in merges of the states of parts."""
    used = live(loop)

    def edit(at: Place) -> Iterator[Change]:
        inside = any(isinstance(x, If) and any(depends(x.condition, y.var) for y in at.loops) for x in at.outer)
        if not (inside or _merges(at)) or only_free(at.stmt, free):
            return
        for number, (e, name) in enumerate(_values(at.stmt)):
            for text, new in _fewer(e) if name in used else ():
                yield f"{name}: {text}", (_with_value(at.stmt, number, new),)

    yield from changed(loop, edit)


@loop_kind("state not stored")
def forgotten_state(loop: For, free: frozenset[str]) -> Found:
    """A block, or a part, does not enter a state that is read later on."""
    used = live(loop)

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        if not isinstance(s, Set) or not at.loops or isinstance(s.expr, Const) or _inside_repair(at):
            return
        if s.cell.buf.home == "reg" and s.cell.buf.name in used and not only_free(s, free):
            yield title(s), ()

    yield from changed(loop, edit)


def _inside_repair(at: Place) -> bool:
    variables = {x.var for x in at.outer if isinstance(x, For)}
    return any(isinstance(s, If) and not any(depends(s.condition, v) for v in variables) for s in at.outer)


@loop_kind("merge forgets states")
def forgetful(loop: For, free: frozenset[str]) -> Found:
    """The loop over the states of parts stops after the first, or skips the second."""

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        if isinstance(s, For) and s.lo == Const(1) and not only_free(s, free):
            yield f"{title(s)} ends at once", (replace(s, hi=Const(1)),)
            yield f"{title(s)} from the third on", (replace(s, lo=Const(2)),)

    yield from changed(loop, edit)


@loop_kind("wrong monoid")
def other_reduction(loop: For, free: frozenset[str]) -> Found:
    """A maximum for a sum, a minimum for a maximum, and so on."""
    used = live(loop)

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        if not isinstance(s, Sweep) or _inside_repair(at):
            return
        for i, r in enumerate(s.reds):
            other = other_monoid(r.monoid)
            if other != r.monoid and r.name in used and not is_free(r.name, free):
                new: Red = replace(r, monoid=other)
                yield f"{r.name}: {other} for {r.monoid}", (replace(s, reds=(*s.reds[:i], new, *s.reds[i + 1 :])),)

    yield from changed(loop, edit)


@loop_kind("wrong identity")
def other_identity(loop: For, free: frozenset[str]) -> Found:
    """A state starts as 1 instead of 0, as a large number instead of an infinity (0 is an identity among numbers >= 0).
    Keys of empty lists are left out: nothing compares them; so are positions in lists, which say that a place is empty
    only until the list is full."""
    lists = {b for s in _sweeps(loop) for i in s.inserts for b in (i.keys.buf, i.indices.buf)}
    used = live(loop)

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        if isinstance(s, Set) and isinstance(s.expr, Const) and s.cell.buf.name in used and not only_free(s, free):
            if not _inside_repair(at):
                yield title(s), (replace(s, expr=_other(s.expr)),)
        elif isinstance(s, Sweep):
            for i, p in enumerate(s.puts):
                if isinstance(p.expr, Const) and p.cell.buf not in lists and p.cell.buf.home == "local" and (
                        p.cell.buf.name in used and not is_free(p.cell.buf.name, free) and not _inside_repair(at)):
                    new = replace(p, expr=_other(p.expr))
                    yield title(s), (replace(s, puts=(*s.puts[:i], new, *s.puts[i + 1 :])),)

    yield from changed(loop, edit)


def _sweeps(loop: For) -> list[Sweep]:
    return [s for s in nested(loop.body) if isinstance(s, Sweep)]


def _other(c: Const) -> Const:
    """A constant that is no identity of the same monoid."""
    if isinstance(c.value, bool):
        return Const(not c.value)
    return Const(-math.copysign(LARGE, c.value)) if math.isinf(c.value) else Const(c.value + 1)


@loop_kind("operands of an ordered fold exchanged")
def turned_fold(loop: For, free: frozenset[str]) -> Found:
    """The later state on the left. Other folds are commutative by their law."""

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        if isinstance(s, Sweep):
            for i, f in enumerate(s.folds):
                if f.ordered:
                    yield title(s), (_with_fold(s, i, replace(f, left=f.right, right=f.left)),)

    yield from changed(loop, edit)


@loop_kind("fold forgets a state")
def lazy_fold(loop: For, free: frozenset[str]) -> Found:
    """A part of the combined state is that of the left one."""
    used = live(loop)

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        for i, f in enumerate(s.folds if isinstance(s, Sweep) else ()):
            for k, name in enumerate(f.names):
                if f.combine[k] != Var(f.left[k]) and name in used:
                    kept = (*f.combine[:k], Var(f.left[k]), *f.combine[k + 1 :])
                    assert isinstance(s, Sweep)
                    yield f"{name} of {title(s)}", (_with_fold(s, i, replace(f, combine=kept)),)

    yield from changed(loop, edit)


def _with_fold(s: Sweep, number: int, f: Fold) -> Sweep:
    return replace(s, folds=(*s.folds[:number], f, *s.folds[number + 1 :]))


@loop_kind("position off by one")
def off_position(loop: For, free: frozenset[str]) -> Found:
    """The index of an element that enters a fold or a list."""
    used = live(loop)

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        if not isinstance(s, Sweep):
            return
        for i, f in enumerate(s.folds):
            for k, (name, dtype) in enumerate(zip(f.names, f.dtypes, strict=True)):
                if dtype.startswith("int") and name in used:
                    elements = (*f.elements[:k], op("add", f.elements[k], 1), *f.elements[k + 1 :])
                    yield f"{name} of {title(s)}", (_with_fold(s, i, replace(f, elements=elements)),)
        for i, x in enumerate(s.inserts):
            new = replace(x, index=op("add", x.index, 1))
            yield title(s), (replace(s, inserts=(*s.inserts[:i], new, *s.inserts[i + 1 :])),)

    yield from changed(loop, edit)


@loop_kind("list in the other order")
def turned_list(loop: For, free: frozenset[str]) -> Found:
    """The smallest elements for the largest, or the other way round."""

    def edit(at: Place) -> Iterator[Change]:
        s = at.stmt
        if isinstance(s, Sweep):
            for i, x in enumerate(s.inserts):
                new = replace(x, largest=not x.largest)
                yield title(s), (replace(s, inserts=(*s.inserts[:i], new, *s.inserts[i + 1 :])),)

    yield from changed(loop, edit)
