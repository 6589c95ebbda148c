"""The derived merge of two partial states, as statements.

merge(a, b) = correction(a: a -> ab) (+) correction(b: b -> ab), level by level, with the corrections of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from redfuser.codegen.block import Row
from redfuser.codegen.levels import Level, running
from redfuser.codegen.nodes import At, Put, Set, Stmt, Sweep
from redfuser.codegen.parts import (
    PLACE,
    assign,
    cell_names,
    combination,
    corrected_parts,
    list_length,
    merged_list,
)
from redfuser.derivation.fusion import Accumulator
from redfuser.extract.flatten import Flat
from redfuser.ir import MONOIDS, RANK, Const, Expr, Let, find_parts, op, refs


class Merge:
    """state := merge(state, other), both sides corrected to the dependencies of the union.

    other : name -> cell of the other state
    vectors : accumulators that are rows of numbers: name -> (variable of sweeps over it, length)
    """

    def __init__(
        self, row: Row, flat: Flat, other: dict[str, At], vectors: Mapping[str, tuple[str, Expr]] | None = None
    ) -> None:
        self.row, self.flat, self.other, self.vectors = row, flat, other, vectors or {}

    def statements(self, levels: list[Level]) -> list[Stmt]:
        """The body of the merge loop."""
        out: list[Stmt] = []
        own = [a for level in levels for a in level.accumulators]
        known = dict(self.row.env.values)
        mine = self._side(out, own, self.row.cell, known, "mine")
        theirs = self._side(out, own, self.other.__getitem__, known, "theirs")
        self.row.env.running = running(levels)
        for level in levels:
            for a in level.accumulators:
                if a.name not in self.vectors:
                    self._combine(out, a, mine, theirs)
                    self.row.guard_cells(out, a)
            self.row.know(out, level.dependencies, "_now")
        out += self._vectors([a for level in levels for a in level.accumulators], mine, theirs)
        self.row.env.running = frozenset()
        return out

    def _vectors(self, accumulators: list[Accumulator], mine: dict[str, Expr], theirs: dict[str, Expr]) -> list[Stmt]:
        """Sweeps over vector state, in place: corrections may read old vectors that have none, so those come last."""
        out: list[Stmt] = []
        for a in sorted(accumulators, key=lambda a: self.flat.correction(a.name) is None):
            if a.name in self.vectors:
                lane, length = self.vectors[a.name]
                put = Put(self.row.cell(a.name), self._both(a, mine, theirs))
                out.append(Sweep(lane, Const(0), length, (), (put,)))
        return out

    def _combine(self, out: list[Stmt], a: Accumulator, mine: dict[str, Expr], theirs: dict[str, Expr]) -> None:
        """The state of `a` becomes that of both sides."""
        m = find_parts(a.monoid)
        if m is None:
            out.append(Set(self.row.cell(a.name), self._both(a, mine, theirs)))
            return
        cells = [self.row.cell(n) for n in cell_names(a).values()]
        left, right = self._corrected_parts(a, mine), self._corrected_parts(a, theirs)
        if list_length(a.monoid):
            out += assign(self.row.names, *((c, e) for c, e in zip(cells, left, strict=True) if c != e))
            others = dict(zip(cell_names(a).values(), right, strict=True))
            out.append(merged_list(self.row.names, a, self.row.cell, others))
        else:
            self.row.replace_cells(out, a, cells, map(self.row.lower, combination(m, left, right)))

    def _corrected_parts(self, a: Accumulator, old: dict[str, Expr]) -> list[Expr]:
        """One side's state of `a`, part by part (over the places of a list), at the dependencies of the union."""
        e = self.flat.correction(a.name)
        if e is None:
            return [old[name] for name in cell_names(a).values()]
        env = replace(self.row.env, old=old).at(**{RANK: PLACE})
        return corrected_parts(a, e, lambda x: self.row.lower(x, env))

    def _both(self, a: Accumulator, mine: dict[str, Expr], theirs: dict[str, Expr]) -> Expr:
        """The combined value of `a`."""
        return op(MONOIDS[a.monoid].combine, self._corrected(a, mine), self._corrected(a, theirs))

    def _side(
        self, out: list[Stmt], own: list[Accumulator], cells: Callable[[str], At], known: dict[str, Expr], side: str
    ) -> dict[str, Expr]:
        """The old values of one side: its accumulators and the dependencies computed from them."""
        old = dict(known)
        for a in own:
            for name in cell_names(a).values():
                in_place = name in self.vectors  # every element is read before it is written
                old[name] = cells(name) if in_place else self.row.keep(out, a, name, side, cells(name))
        dependencies = self._running(a.name for a in own)
        names = frozenset((*(a.name for a in own), *(d.name for d in dependencies)))
        before = replace(self.row.env, values=old, shifts={}, running=names)
        for d in dependencies:
            old[d.name] = self.row.dependency(out, d, f"_{side}", before)
        return old

    def _running(self, own: Iterable[str]) -> list[Let]:
        """Dependencies of this pass: those that read its accumulators, directly or not."""
        found, names = [], set(own)
        known = {name.partition(".")[0] for name in self.row.env.values}
        for d in self.flat.dependencies:
            if refs(d.expr) & names and refs(d.expr) <= names | known:
                names.add(d.name)
                found.append(d)
        return found

    def _corrected(self, a: Accumulator, old: dict[str, Expr]) -> Expr:
        """One side's value of `a`, moved to the dependencies of the union."""
        e = self.flat.correction(a.name)
        if e is None:
            return old[a.name]
        return self.row.lower(e, replace(self.row.env, old=old))
