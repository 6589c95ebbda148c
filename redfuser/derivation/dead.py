"""Extremes of nothing alive, inside the loop: all that reads one reads 0, its old value in corrections too.

The state of a part whose elements are all at the identity of an extreme (masked, or infinite) holds sums that read 0 in
its place. They are moved from 0, then, to the value that the extreme takes with other parts. Where the sums are 0
themselves, as those of exp(x - max x), there is nothing to move: exp(0 - max) may overflow, and 0 * inf is no number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import reduce

from redfuser.derivation.fusion import NOTHING, Accumulator
from redfuser.ir import Cast, Const, Expr, Let, Old, Op, Ref, Tuple, op, refs, rewrite, select, walk

_SCALED = ("sum", "prod")
"""Monoids whose corrections multiply and add states: 0 stays 0."""


def alive(value: Expr, monoid: str) -> Expr:
    """The value of an extreme as the loop reads it."""
    return select(op("eq", value, NOTHING[monoid]), 0.0, value)


def with_alive_extremes(e: Expr, monoids: Mapping[str, str]) -> Expr:
    """A dependency inside the loop. `monoids`: accumulator that still changes -> its monoid."""
    extremes = {n: m for n, m in monoids.items() if m in NOTHING}
    return rewrite(e, lambda x: alive(x, extremes[x.name]) if isinstance(x, Ref) and x.name in extremes else None)


def from_dead_parts(corrections: Iterable[tuple[str, Expr]], accumulators: Collection[Accumulator],
                    dependencies: Iterable[Let]) -> tuple[tuple[str, Expr], ...]:
    """Corrections that move states of dead parts too."""
    own = {a.name: a for a in accumulators}
    read = {d.name: refs(d.expr) for d in dependencies}
    return tuple((name, _from_dead(e, own[name], own, read)) for name, e in corrections)


def _from_dead(e: Expr, a: Accumulator, own: Mapping[str, Accumulator], read: Mapping[str, frozenset[str]]) -> Expr:
    olds = [x for x in walk(e) if isinstance(x, Old)]
    extremes = _extremes({x.name for x in olds} - {a.name}, own, read)
    if not extremes:
        return e
    moved = rewrite(e, lambda x: alive(x, own[x.name].monoid)
                    if isinstance(x, Old) and x.name in extremes and x.name != a.name else None)
    zeros = None if isinstance(e, Tuple) or a.monoid not in _SCALED else _zeros(e, own)
    if zeros is None or any(own[n].counts for n in zeros):
        return moved
    dead = [op("eq", Old(n), NOTHING[own[n].monoid]) for n in extremes]
    nothing = [op("eq", Old(n), 0) for n in sorted(zeros)]
    return select(reduce(_both, nothing, reduce(_either, dead)), Old(a.name), moved)


def _extremes(names: Collection[str], own: Mapping[str, Accumulator], read: Mapping[str, frozenset[str]]) -> list[str]:
    """The extremes among names, and those that dependencies among them are computed from."""
    found, todo = set[str](), list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += read.get(name, ())
    return sorted(n for n in found if n in own and own[n].monoid in NOTHING)


def _zeros(e: Expr, own: Mapping[str, Accumulator]) -> frozenset[str] | None:
    """Accumulators whose old values make `e` 0 when they are 0; None where no such are seen."""
    if isinstance(e, Old):
        return frozenset({e.name}) if e.name in own and own[e.name].monoid in _SCALED else None
    if isinstance(e, Const):
        return frozenset() if e.value == 0 else None
    if isinstance(e, Cast):
        return _zeros(e.body, own)
    if not isinstance(e, Op):
        return None
    parts = [_zeros(x, own) for x in e.args]
    if e.fn == "mul":
        known = [p for p in parts if p is not None]
        return min(known, key=lambda p: (any(own[n].counts for n in p), len(p), sorted(p))) if known else None
    if e.fn in ("div", "neg"):
        return parts[0]
    if e.fn in ("add", "sub", "select"):
        known = [p for p in parts[-2:] if p is not None]
        return frozenset[str]().union(*known) if len(known) == 2 else None
    return None


def _both(a: Expr, b: Expr) -> Expr:
    return op("and", a, b)


def _either(a: Expr, b: Expr) -> Expr:
    return op("or", a, b)
