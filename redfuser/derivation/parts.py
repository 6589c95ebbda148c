"""Values with several parts, in derivations: the algebra sees each part by itself.

The engine is asked for `Tuple` of all parts of a reduction, for every part obeys laws of its own: of a top-k of x + c
the values move with c and the indices do not move at all. What it gives back is folded again: all parts of one value
are that value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from redfuser.derivation.skeleton import reads_state
from redfuser.ir import RANK, Expr, Part, Ref, Tuple, find_parts, op, refs, rewrite, select, substitute
from redfuser.ir.interpret import at_place
from redfuser.ir.monoids import INDEX, VALUE

if TYPE_CHECKING:
    from redfuser.derivation.accumulate import Model


def obeys_laws(monoid: str) -> bool:
    """Whether values of a monoid have several parts that laws speak of."""
    found = find_parts(monoid)
    return found is not None and found.largest is not None


def spread(monoid: str, value: Expr) -> Expr:
    """The value of a reduction as its parts; one of a monoid whose parts obey no law stays whole."""
    found = find_parts(monoid)
    if found is None or not obeys_laws(monoid):
        return value
    place = () if found.rank is None else (RANK,)
    return Tuple(tuple(Part(p, place, value) for p in found.parts))


def gathered(e: Expr) -> Expr:
    """`e`, or the one value of which it lists all parts."""
    first = e.args[0] if isinstance(e, Tuple) else None
    if not isinstance(e, Tuple) or not isinstance(first, Part) or any(isinstance(a, int) for a in first.axes):
        return e
    whole = Tuple(tuple(Part(p, first.axes, first.body) for p in (VALUE, INDEX)))
    return first.body if e == whole else e


def part_of(value: Expr, part: str, axes: tuple[str | int, ...]) -> Expr:
    """A part of a value, at a place when it is a sorted list: of a `Tuple` the expression that defines it."""
    if not isinstance(value, Tuple):
        return Part(part, axes, value)
    found = value.args[(VALUE, INDEX).index(part)]
    return at_place(found, axes[0]) if axes else found


def projected(e: Expr) -> Expr:
    """`e` with every part of a `Tuple` replaced by the expression that defines it."""
    return rewrite(e, lambda x: part_of(x.body, x.part, x.axes)
                   if isinstance(x, Part) and isinstance(x.body, Tuple) else None)


def occupied(e: Expr, monoids: Mapping[str, str]) -> Expr:
    """A dependency inside the loop: an empty place of a list, and one that holds a masked element, reads 0 (as an
    extremum of nothing does). `monoids`: accumulator -> its monoid."""

    def guard(x: Expr) -> Expr | None:
        if not isinstance(x, Part) or x.part != VALUE or not isinstance(x.body, Ref):
            return None
        monoid = find_parts(monoids.get(x.body.name, ""))
        if monoid is None or monoid.largest is None:
            return None
        return select(op("eq", x, monoid.identity[0]), 0, x)

    return rewrite(e, guard)


def share_extremes(model: Model) -> None:
    """Read a maximum off the top-k (or argmax) of the same numbers, where only the epilogue asks for it.

    A maximum that corrections or other accumulators read stays: a number of its own is what the loop handles best.
    """
    for k, a in list(model.accumulators.items()):
        results = {name for name, e in model.results.items() if k in refs(e)}
        inside = [x.body for x in model.accumulators.values()]
        inside += [e for n, e in model.dependencies.items() if any(n in refs(x) for x in inside)]
        if reads_state(a.body) or any(refs(e) & (results | {k}) for e in inside):
            continue
        best = next((b for b in model.accumulators.values() if b.body == a.body and _finds(b.monoid) == a.monoid), None)
        if best is None:
            continue
        place = () if best.monoid in ("argmax", "argmin") else (0,)
        for name in results:
            model.results[name] = substitute(model.results[name], {a.ref: Part(VALUE, place, best.ref)})
            used = [best.id if i == k else i for i in model.stage_accumulators[name]]
            model.stage_accumulators[name] = list(dict.fromkeys(used))
        del model.accumulators[k]


def _finds(monoid: str) -> str | None:
    """The extreme that a monoid with several parts finds on the way."""
    found = find_parts(monoid)
    return None if found is None or found.largest is None else "max" if found.largest else "min"
