"""The places of sorted lists, as axes whose length is part of the program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from redfuser.frontend.graph import Trace
from redfuser.ir import Const, Expr, PartsMonoid, parts_monoid
from redfuser.ir.monoids import VALUE

LONGEST_WRITTEN_OUT = 16
"""Longest sorted list whose reductions are written out, place by place."""


def ranks(trace: Trace) -> Iterator[tuple[str, int]]:
    """Labels and lengths of the axes along sorted lists that are short enough for their reductions to be written out.

    A sum over the places of a list is a sum of so many terms, which belongs to the epilogue of the loop that finds it.
    """
    for n in trace.nodes:
        rank = parts_monoid(n.param[0]).rank if n.op == "parts" else None
        if rank is not None and 1 < rank <= LONGEST_WRITTEN_OUT:
            yield str(n.shape[n.param[1]]), rank


def broadcast_labels(shapes: Sequence[Sequence[str | int]]) -> tuple[str | int, ...]:
    """The common shape of labels that broadcast together: equal ones, or 1."""
    rank = max(map(len, shapes))
    columns = zip(*((1,) * (rank - len(s)) + tuple(s) for s in shapes), strict=True)
    return tuple(next((entry for entry in column if entry != 1), 1) for column in columns)


def single(monoid: PartsMonoid, part: str, bodies: list[Expr]) -> Expr:
    """A part of the reduction of a single element; a list of more than one place needs more elements."""
    if monoid.largest is None:
        return bodies[monoid.parts.index(part)]
    return bodies[0] if part == VALUE else Const(0)
