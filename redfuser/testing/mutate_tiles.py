"""Planted mistakes in tile programs: one statement left out or changed, for tests of the tests."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from redfuser.codegen import Kernel, check_kernel
from redfuser.codegen.nodes import At, For, If, LetInt, MatMul, Pack, Put, Set, Stmt, Sweep
from redfuser.codegen.passes.bodies import map_bodies
from redfuser.errors import CheckError
from redfuser.ir import Const, Expr, Op, op
from redfuser.ir.ops import PIVOT

Change = Callable[[Stmt], tuple[Stmt, ...] | None]
"""The statements in the place of one; None where the mistake is not possible."""

_OTHER = {"sum": "max", "max": "min", "min": "max", "prod": "sum", "any": "all", "all": "any"}


def _correction(s: Stmt) -> tuple[Stmt, ...] | None:
    return () if isinstance(s, If) and any(isinstance(t, Set) for t in s.body) else None


def _merge(s: Stmt) -> tuple[Stmt, ...] | None:
    """An extreme is left alone: without it sums are only shifted by another number."""
    joins = isinstance(s, Set) and isinstance(s.expr, Op) and s.expr.fn in ("add", "mul") and s.cell in s.expr.args
    return () if joins else None


def _identity(s: Stmt) -> tuple[Stmt, ...] | None:
    """Where a pivot starts does not matter: any number serves as one."""
    if isinstance(s, Set) and isinstance(s.expr, Const) and s.cell.buf.home != "global" and PIVOT not in str(s.cell):
        return (replace(s, expr=_other_start(s.expr)),)
    if isinstance(s, Sweep) and len(s.puts) == 1 and not s.reds and isinstance(s.puts[0].expr, Const):
        return (replace(s, puts=(replace(s.puts[0], expr=_other_start(s.puts[0].expr)),)),)
    return None


def _other_start(e: Const) -> Const:
    return Const(1.0) if e.value == 0 else Const(0.0) if math.isinf(float(e.value)) else Const(2.0)


def _tail(s: Stmt) -> tuple[Stmt, ...] | None:
    return (replace(s, expr=op("sub", s.expr, 1)),) if isinstance(s, LetInt) and s.name.startswith("b1") else None


def _head(s: Stmt) -> tuple[Stmt, ...] | None:
    """Of sums and stores; without its first element a maximum is only another number to shift by."""
    sums = isinstance(s, Sweep) and (any(r.monoid == "sum" for r in s.reds) or (s.puts and not s.reds))
    return (replace(s, lo=op("add", s.lo, 1)),) if isinstance(s, Sweep) and sums else None


def _reduction(s: Stmt) -> tuple[Stmt, ...] | None:
    if not isinstance(s, Sweep) or not s.reds or s.reds[0].monoid not in _OTHER:
        return None
    return (replace(s, reds=(replace(s.reds[0], monoid=_OTHER[s.reds[0].monoid]), *s.reds[1:])),)


def _epilogue(s: Stmt) -> tuple[Stmt, ...] | None:
    """A factor or a term of what is stored to a result."""
    if isinstance(s, Set) and s.cell.buf.home == "global":
        less = _less(s.expr)
        return None if less is None else (replace(s, expr=less),)
    if not isinstance(s, Sweep):
        return None
    for i, put in enumerate(s.puts):
        changed = _less(put.expr) if _is_result(put) else None
        if changed is not None:
            return (replace(s, puts=(*s.puts[:i], replace(put, expr=changed), *s.puts[i + 1 :])),)
    return None


def _is_result(put: Put) -> bool:
    return isinstance(put.cell, At) and put.cell.buf.home == "global"


def _less(e: Expr) -> Expr | None:
    return e.args[0] if isinstance(e, Op) and e.fn in ("mul", "div", "add", "sub") else None


def _product(s: Stmt) -> tuple[Stmt, ...] | None:
    return () if isinstance(s, (MatMul, Pack)) else None


def _overwritten(s: Stmt) -> tuple[Stmt, ...] | None:
    return (replace(s, accumulate=False),) if isinstance(s, MatMul) and s.accumulate else None


CHANGES: Mapping[str, Change] = {
    "correction dropped": _correction, "merge dropped": _merge, "identity changed": _identity,
    "last element of a block lost": _tail, "first element lost": _head, "another monoid": _reduction,
    "factor or term of a result dropped": _epilogue, "product or packing dropped": _product,
    "product overwritten": _overwritten,
}
"""Mistake -> how it changes a statement."""


def tile_mutants(kernel: Kernel, mistake: str | None = None) -> Iterator[tuple[Kernel, str]]:
    """Every well-formed tile program with one statement changed (by one of `CHANGES`), and what was changed. Some may
    still be right: a correction that is not needed, a start that the first block replaces."""
    for name, change in CHANGES.items():
        if mistake not in (None, name):
            continue
        for phase in range(len(kernel.phases)):
            for mutant, place in _changed(kernel, phase, change):
                try:
                    check_kernel(mutant)
                except CheckError:
                    continue
                yield mutant, f"{name}: {place}"


def mutate_tiles(kernel: Kernel, seed: int, mistake: str | None = None) -> tuple[Kernel, str]:
    """One mutant by seed, and what was changed.

    Raises
    ------
    ValueError
        when the mistake is not possible in this program.
    """
    found = list(tile_mutants(kernel, mistake))
    if not found:
        raise ValueError(f"kernel {kernel.name} has no statement for the mistake {mistake!r}")
    return random.Random(seed).choice(found)


def _changed(kernel: Kernel, phase: int, change: Change) -> Iterator[tuple[Kernel, str]]:
    """The kernel with one statement of a phase changed, statement by statement."""
    loop = kernel.phases[phase].loop
    for target in range(_count(loop.body, change)):
        edit = _Edit(change, target)
        body = edit.apply(loop.body)
        new = replace(kernel.phases[phase], loop=replace(loop, body=body))
        text = edit.place.splitlines()[0].strip() if edit.place else ""
        yield replace(kernel, phases=(*kernel.phases[:phase], new, *kernel.phases[phase + 1 :])), text


def _count(body: tuple[Stmt, ...], change: Change) -> int:
    return sum((change(s) is not None) + (_count(s.body, change) if isinstance(s, (For, If)) else 0) for s in body)


class _Edit:
    """Changes the statement number `target`, in the order of the program."""

    def __init__(self, change: Change, target: int) -> None:
        self.change = change
        self.left = target
        self.place = ""

    def apply(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """The statements, one of them changed."""
        return tuple(t for s in body for t in self._one(s))

    def _one(self, s: Stmt) -> tuple[Stmt, ...]:
        changed = self.change(s)
        if changed is not None:
            self.left -= 1
            if self.left == -1:
                self.place = str(s)
                return changed
        return (map_bodies(s, self.apply),)
