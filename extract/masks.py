"""Masks: elements that a select replaces by something neutral.

An index mask becomes loop bounds: an element that is neutral for every accumulator need not be visited at all. An
element that a select replaces by an infinity, so that it adds exactly 0, adds 0 whatever the other operands hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial

from redfuser.derivation.fusion import Accumulator
from redfuser.extract.algebra import Affine, difference, from_affine
from redfuser.extract.certain import certainly
from redfuser.extract.flatten import Flat
from redfuser.ir import (
    MONOIDS,
    NEG_INF,
    POS_INF,
    Expr,
    Idx,
    Load,
    Op,
    children,
    free_axes,
    has_parts,
    op,
    rewrite,
    select,
    substitute,
)
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.ops import PIVOT

INFINITE = (NEG_INF, POS_INF)


@dataclass(frozen=True)
class Bound:
    """One end of the stream's live range: `lo` keeps n >= limit, `hi` keeps n < limit.

    `limit` is linear in the other indices and in sizes.
    """

    kind: str
    limit: Expr
    slopes: tuple[tuple[str, int], ...]

    def slope(self, axis: str | None) -> int:
        """Coefficient of an axis in the limit."""
        return dict(self.slopes).get(axis or "", 0)

    def __str__(self) -> str:
        return f"n {'>=' if self.kind == 'lo' else '<'} {self.limit}"


def conjuncts(condition: Expr) -> list[Expr]:
    """The terms of a conjunction."""
    if isinstance(condition, Op) and condition.fn == "and":
        return [t for a in condition.args for t in conjuncts(a)]
    return [condition]


def bounds_of(condition: Expr, stream: str) -> list[Bound] | None:
    """The bounds on the stream index that one affine comparison states, None when it states none."""
    if not isinstance(condition, Op) or condition.fn not in ("lt", "le", "gt", "ge", "eq"):
        return None
    a, b = condition.args
    forms = {
        "lt": [(b, a, 1)],
        "le": [(b, a, 0)],
        "gt": [(a, b, 1)],
        "ge": [(a, b, 0)],
        "eq": [(a, b, 0), (b, a, 0)],
    }[condition.fn]
    bounds = []
    for larger, smaller, gap in forms:
        form = difference(larger, smaller)
        bound = None if form is None else _bound(form, gap, stream)
        if bound is None:
            return None
        bounds.append(bound)
    return bounds


def _bound(form: Affine, gap: int, stream: str) -> Bound | None:
    """The bound stated by form >= gap."""
    index = Idx(stream)
    sign = form.get(index, 0)
    rest = {atom: c for atom, c in form.items() if atom != index}
    rest[None] = rest.get(None, 0) - gap
    if sign == -1:
        rest[None] += 1
        limit, kind = rest, "hi"
    elif sign == 1:
        limit, kind = {atom: -c for atom, c in rest.items()}, "lo"
    else:
        return None
    slopes = tuple((atom.axis, c) for atom, c in limit.items() if isinstance(atom, Idx) and c)
    return Bound(kind, from_affine(limit), slopes)


def peel_masks(flat: Flat) -> tuple[Flat, tuple[Bound, ...]]:
    """Turn neutral affine selects of all bodies into bounds; the bodies then hold the unmasked value.

    Outputs keep their selects: an output that carries the stream axis has a value at masked elements too.
    """
    bounds: list[Bound] = []
    while True:
        step = _peel_one(flat)
        if step is None:
            return flat, tuple(bounds)
        flat, more = step
        bounds += more


def _peel_one(flat: Flat) -> tuple[Flat, list[Bound]] | None:
    assert flat.stream is not None
    live = [a for a in flat.accumulators if flat.stream in free_axes(a.body)]
    if not live or len(live) < len(flat.accumulators):
        return None  # an accumulator such as the count sees masked elements as well
    for mask in _masks(live[0].body, flat.stream):
        condition, value, alternative = mask.args
        stated = {t: bounds_of(t, flat.stream) for t in conjuncts(condition)}
        bounds = [b for found in stated.values() for b in found or ()]
        if not bounds or not all(_neutral(a, mask, alternative, flat) for a in live):
            continue
        rest = [t for t, found in stated.items() if found is None]
        unmasked = select(_conjunction(rest), value, alternative) if rest else value
        bodies = tuple(
            Accumulator(a.name, a.monoid, substitute(a.body, {mask: unmasked}), a.axes) for a in live
        )
        return replace(flat, accumulators=bodies), bounds
    return None


def _conjunction(terms: list[Expr]) -> Expr:
    e = terms[0]
    for t in terms[1:]:
        e = op("and", e, t)
    return e


def _masks(e: Expr, stream: str) -> Iterator[Op]:
    """Selects whose condition depends on the stream, outermost first."""
    if isinstance(e, Op) and e.fn == "select" and stream in free_axes(e.args[0]):
        yield e
    for c in children(e):
        yield from _masks(c, stream)


def _neutral(a: Accumulator, mask: Op, alternative: Expr, flat: Flat) -> bool:
    """Is a masked element the identity of the accumulator's monoid? In a sorted list it is an element like others."""
    masked = substitute(a.body, {mask: alternative})
    scalar = a.monoid != PIVOT and not has_parts(a.monoid)
    return masked != a.body and scalar and _always(masked, MONOIDS[a.monoid].identity, flat)


def _always(e: Expr, value: float, flat: Flat) -> bool:
    """Does `e` have this value whatever it reads?"""
    return certainly(e, value, {t.name: t.dtype for t in flat.tensors})


# -------------------------------- removed elements


def live_conditions(term: Expr, flat: Flat) -> tuple[Expr, ...]:
    """Conditions of selects with an infinite alternative: where one of them fails, the term of a sum is exactly 0."""
    return tuple(live for live, _ in _removals(term, flat))


def guard_removed(flat: Flat, unguarded: Collection[str] = ()) -> Flat:
    """Let removed elements contribute 0 to every sum, NaN and infinities in other operands included."""
    bodies = tuple(
        a
        if a.monoid != "sum" or a.name in unguarded
        else Accumulator(a.name, a.monoid, guarded(a.body, flat), a.axes)
        for a in flat.accumulators
    )
    return replace(flat, accumulators=bodies)


def guarded(term: Expr, flat: Flat) -> Expr:
    """The term of a sum, 0 at removed elements, where 0 * NaN of another operand along the stream could occur."""
    live = [c for c, removed in _removals(term, flat) if _reads_floats(removed, flat)]
    return select(_conjunction(live), term, 0.0) if live else term


def _removals(term: Expr, flat: Flat) -> Iterator[tuple[Expr, Expr]]:
    """(condition under which an element is live, the term where it is not), for every mask that removes elements."""
    assert flat.stream is not None
    masks = dict.fromkeys((m.args[0], m.args[1] in INFINITE) for m in _masks(term, flat.stream) if _removes(m))
    for condition, inverted in masks:
        removed = rewrite(term, partial(_branch, condition=condition, holds=inverted))
        if _always(removed, 0.0, flat):
            yield (op("not", condition) if inverted else condition), removed


def _removes(mask: Op) -> bool:
    """Is exactly one alternative of a select an infinity?"""
    return (mask.args[1] in INFINITE) != (mask.args[2] in INFINITE)


def _branch(e: Expr, condition: Expr, holds: bool) -> Expr | None:
    """The operand a select takes where its condition has a known truth value."""
    if isinstance(e, Op) and e.fn == "select" and e.args[0] == condition:
        return e.args[1 if holds else 2]
    return None


def _reads_floats(e: Expr, flat: Flat) -> bool:
    """Does the value of `e` come from a floating-point tensor along the stream? Conditions of selects do not count."""
    if isinstance(e, Load):
        dtype = next(t.dtype for t in flat.tensors if t.name == e.tensor)
        return flat.stream in e.axes and numpy_dtype(dtype).kind not in "biu"
    parts = e.args[1:] if isinstance(e, Op) and e.fn == "select" else children(e)
    return any(_reads_floats(x, flat) for x in parts)
