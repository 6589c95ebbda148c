"""Results over nothing alive: NaN where the definition divides by a mass of 0, although the loop read 0 there.

Inside the loop a quotient with divisor 0 reads 0: nothing with weight was seen yet, and 0 keeps the prefix neutral.
When the divisor is still 0 at the end, the definition's dependency is 0/0 or c/0, and every sum that reads it at all is
undefined. The epilogue sees the unguarded quotient and says so. The same holds where one of the best elements is
read and is a masked one, for want of others, and where a dependency is computed from an extreme of nothing alive.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from redfuser.derivation.fusion import NOTHING, FusedCascade
from redfuser.derivation.parts import spread
from redfuser.ir import (
    OPS,
    Const,
    Expr,
    Let,
    New,
    Old,
    Op,
    Part,
    Ref,
    Tuple,
    children,
    has_parts,
    op,
    refs,
    select,
    walk,
)
from redfuser.ir.monoids import VALUE


def mark_undefined(fused: FusedCascade) -> FusedCascade:
    """The fused cascade whose epilogue gives NaN where a dependency of a result ends up infinite or NaN."""
    counts = {a.name for a in fused.accumulators if a.counts}
    extremes = {a.name for a in fused.accumulators if a.monoid in NOTHING}
    risky = {d.name: d for d in fused.dependencies
             if _may_divide_by_nothing(d.expr, counts) or _reads_an_element(d.expr) or _dies_with(d.expr, extremes)}
    if not risky:
        return fused
    return replace(fused, epilogue=tuple((name, _marked(fused, risky, e)) for name, e in fused.epilogue))


def _may_divide_by_nothing(e: Expr, counts: set[str]) -> bool:
    """Whether it holds a quotient by something other than numbers and lengths: a length is 0 for empty streams only."""
    return any(isinstance(x, Op) and x.fn == "div" and not refs(x.args[1]) <= counts for x in walk(e))


def _reads_an_element(e: Expr) -> bool:
    """Whether it holds one of the best elements, which may be masked."""
    return any(isinstance(x, Part) and x.part == VALUE for x in walk(e))


def _dies_with(e: Expr, extremes: set[str]) -> bool:
    """Whether it may be infinite because an extreme is that of nothing alive: the larger of it and a number is not."""
    if isinstance(e, Ref):
        return e.name in extremes
    found = [_dies_with(x, extremes) for x in children(e)]
    return all(found) and bool(found) if isinstance(e, Op) and e.fn in ("max", "min") else any(found)


def _marked(fused: FusedCascade, risky: dict[str, Let], e: Expr) -> Expr:
    monoid = next((a.monoid for a in fused.accumulators if isinstance(e, Ref) and a.name == e.name), "")
    if has_parts(monoid) and _dependencies_of(fused, e) & set(risky):
        e = spread(monoid, e)
        if isinstance(e, Ref):
            return e
    if isinstance(e, Tuple):  # a position is one whatever the numbers are
        return Tuple((_marked(fused, risky, e.args[0]), *e.args[1:]))
    for name in sorted(_dependencies_of(fused, e) & set(risky)):
        d = Ref(name, risky[name].axes)
        e = select(op("eq", d - d, 0.0), e, Const(math.nan))
    return e


def _dependencies_of(fused: FusedCascade, e: Expr) -> set[str]:
    """Dependencies that accumulators in `e` read at every element of the stream, directly or by other accumulators and
    dependencies, while these still change: one that is final before the pass is read as it is, and what it makes
    undefined is so."""
    final = _final_before(fused)
    bodies = {a.name: a.body for a in fused.accumulators}
    dependencies = {d.name: d.expr for d in fused.dependencies}
    found: set[str] = set()
    todo = [x.name for x in walk(e) if isinstance(x, Ref)]
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        body = bodies.get(name, dependencies.get(name))
        inner = [] if body is None else [n for n in _always_read(body) if n not in final.get(name, ())]
        found |= {n for n in inner if n in dependencies}
        todo += inner
    return found


def _final_before(fused: FusedCascade) -> dict[str, set[str]]:
    """Accumulator or dependency -> the dependencies that passes before its own have made final."""
    number = {name: i for i, names in enumerate(fused.passes) for name in names}
    for d in fused.dependencies:
        number[d.name] = max((number.get(n, 0) for n in refs(d.expr)), default=0)
    names = (*(a.name for a in fused.accumulators), *(d.name for d in fused.dependencies))
    return {name: {d.name for d in fused.dependencies if number[d.name] < number.get(name, 0)} for name in names}


def _always_read(e: Expr) -> Iterator[str]:
    """Names whose NaN is the element's: branches of selections do not count, nor comparisons (false of a NaN)."""
    if isinstance(e, Ref):
        yield e.name
    if isinstance(e, (Old, New)) or (isinstance(e, Op) and OPS[e.fn].kind == "compare"):
        return
    for c in children(e)[:1] if isinstance(e, Op) and e.fn == "select" else children(e):
        yield from _always_read(c)
