"""Index masks as loop bounds: a masked element that is neutral for every accumulator need not be visited at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from redfuser.derivation.fusion import Accumulator
from redfuser.extract.algebra import Affine, difference, evaluate, from_affine, random_leaves
from redfuser.extract.flatten import Flat
from redfuser.ir import MONOIDS, Expr, Idx, Op, children, free_axes, op, select, substitute

NEUTRALITY_SAMPLES = 4


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
    """Is a masked element the identity of the accumulator's monoid? Evaluated at random points."""
    dtypes: Mapping[str, str] = {t.name: t.dtype for t in flat.tensors}
    masked = substitute(a.body, {mask: alternative})
    if masked == a.body or a.monoid == "first":
        return False
    identity = MONOIDS[a.monoid].identity
    values = [evaluate(masked, random_leaves(seed, dtypes, {})) for seed in range(NEUTRALITY_SAMPLES)]
    return all(bool(np.equal(v, identity)) for v in values)
