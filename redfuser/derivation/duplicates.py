"""Accumulators that hold the same number: one of them is enough.

The algebra may meet one body in two forms, with and without looking into a part of it; written out they are equal.
"""

from __future__ import annotations

from dataclasses import replace

from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.ir import Const, Expr, New, Old, Ref, rewrite


def without_duplicates(fused: FusedCascade) -> FusedCascade:
    """A fused form without accumulators that equal an earlier one of the same pass; what reads them reads that one."""
    while (found := _pair(fused)) is not None:
        fused = _merged(fused, *found)
    return fused


def _pair(fused: FusedCascade) -> tuple[Accumulator, Accumulator] | None:
    """Two equal accumulators of one pass, the earlier first."""
    for names in fused.passes:
        seen: dict[tuple[str, Expr, tuple[str, ...]], Accumulator] = {}
        for a in (a for a in fused.accumulators if a.name in names):
            first = seen.setdefault((a.monoid, rewrite(a.body, _whole), a.axes), a)
            if first is not a and _corrected(fused, first, a) == fused.correction(first.name):
                return first, a
    return None


def _whole(x: Expr) -> Expr | None:
    """The engine writes 0.0 as 0."""
    whole = isinstance(x, Const) and isinstance(x.value, float) and x.value.is_integer()
    return Const(int(x.value)) if isinstance(x, Const) and whole else None


def _corrected(fused: FusedCascade, kept: Accumulator, twin: Accumulator) -> Expr | None:
    """The correction of the twin in the name of the other."""
    e = fused.correction(twin.name)
    return None if e is None else _renamed(e, twin.name, kept.name)


def _renamed(e: Expr, old: str, new: str) -> Expr:
    def other(x: Expr) -> Expr | None:
        if not isinstance(x, (Ref, Old, New)) or x.name != old:
            return None
        return Ref(new, x.axes) if isinstance(x, Ref) else type(x)(new)

    return rewrite(e, other)


def _merged(fused: FusedCascade, kept: Accumulator, twin: Accumulator) -> FusedCascade:
    def one(e: Expr) -> Expr:
        return _renamed(e, twin.name, kept.name)

    results = {name for name, _ in fused.epilogue}
    outs = fused.cascade.outs
    if twin.name not in results:  # in outputs a name means the result first
        outs = tuple(replace(o, expr=one(o.expr)) for o in outs)
    return replace(
        fused,
        cascade=replace(fused.cascade, outs=outs),
        accumulators=tuple(replace(a, body=one(a.body)) for a in fused.accumulators if a is not twin),
        dependencies=tuple(replace(d, expr=one(d.expr)) for d in fused.dependencies),
        corrections=tuple((n, one(e)) for n, e in fused.corrections if n != twin.name),
        epilogue=tuple((n, one(e)) for n, e in fused.epilogue),
        passes=tuple(tuple(n for n in p if n != twin.name) for p in fused.passes),
    )
