"""Keep numbers small: accumulate data shifted by a pivot, the first element of the stream.

Where a value b of the data's location (a mean, a weighted mean) is subtracted from the data x, S/N and x - b lose
digits when the data sit far from zero. Let p be the first element. Then x - b = (x - p) - b', where b' is the same
formula b computed from shifted data, because a location moves with the data: b(x + c) = b(x) + c for every c. That
property is tested numerically in high precision (never read off a name), and the certificate checks the result.

The rewritten cascade has a stage `first` for the pivot, a producer for the shifted data, and shifted twins of the
reductions that b reads. p changes in a merge, so it is telescoped like any dependency.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from redfuser.derivation.accumulate import Location, Model
from redfuser.derivation.sample import Sampler, Stream, evaluate_results
from redfuser.derivation.skeleton import Skeleton
from redfuser.ir import (
    Cascade,
    Expr,
    Let,
    Load,
    Op,
    Reduction,
    Ref,
    children,
    free_axes,
    op,
    refs,
    select,
    substitute,
    walk,
    with_children,
)
from redfuser.rules.real import RealEvaluator, Undefined, difference

DIGITS = 40
EQUAL = 1e-25


@dataclass
class Shift:
    """One shifted input: its load, the pivot, the producer of the shifted data, and b -> b'."""

    load: Load
    pivot: Ref
    shifted: Ref
    locations: dict[Expr, Expr] = field(default_factory=dict)
    twins: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Pivoted:
    """A cascade rewritten on shifted data.

    cascade  what to derive from
    opaque   producers that the choice of accumulators must not look into
    outs     the definition, its outputs rewritten on shifted data
    shifts   what was shifted
    """

    cascade: Cascade
    opaque: frozenset[str]
    outs: Cascade
    shifts: tuple[Shift, ...]


def pivot(cascade: Cascade) -> Pivoted | None:
    """The cascade on shifted data; None when no location is subtracted from any input."""
    shifts = [s for load in _candidates(cascade) if (s := _shift(cascade, load)) is not None]
    if not shifts:
        return None
    reductions: list[Reduction] = []
    for s in shifts:
        finite = select(op("eq", s.load - s.load, 0), s.load, 0)  # an infinite pivot would spoil every element
        reductions.append(Reduction(s.pivot.name, "first", finite, s.pivot.axes))
    for r in cascade.reductions:
        body = _rewritten(r.body, shifts)
        for s in shifts:
            if r.name in s.twins:
                reductions.append(Reduction(s.twins[r.name], r.monoid, _twin(r.body, s), r.axes))
                body = substitute(body, {s.load: s.shifted + s.pivot})
        reductions.append(replace(r, body=body))
    producers = tuple(Let(s.shifted.name, s.shifted.axes, s.load - s.pivot) for s in shifts)
    outs = tuple(replace(o, expr=_inlined(_rewritten(o.expr, shifts), shifts)) for o in cascade.outs)
    inner = replace(cascade, producers=(*cascade.producers, *producers), reductions=tuple(reductions), outs=())
    return Pivoted(inner, frozenset(s.shifted.name for s in shifts), replace(cascade, outs=outs), tuple(shifts))


def _differences(e: Expr, axis: str) -> Iterator[tuple[Load, Expr]]:
    """(x, b) of every difference x - b of an input along the stream and a stream-free value that reads results."""
    for x in walk(e):
        if isinstance(x, Op) and x.fn == "sub" and isinstance(x.args[0], Load) and axis in x.args[0].axes:
            b = x.args[1]
            if refs(b) and axis not in free_axes(b):
                yield x.args[0], b


def _candidates(cascade: Cascade) -> dict[Load, set[Expr]]:
    assert cascade.axis is not None
    found: dict[Load, set[Expr]] = {}
    results = {r.name for r in cascade.reductions}
    for e in (*(r.body for r in cascade.reductions), *(o.expr for o in cascade.outs)):
        for x, b in _differences(e, cascade.axis):
            if refs(b) <= results and all(isinstance(a, str) for a in x.axes):
                found.setdefault(x, set()).add(b)
    return found


def _shift(cascade: Cascade, load: Load) -> Shift | None:
    """The shift of one input, with the locations that were confirmed numerically."""
    taken = {*(t.name for t in cascade.tensors), *(p.name for p in cascade.producers),
             *(r.name for r in cascade.reductions)}
    axes = tuple(a for a in load.axes if a != cascade.axis)
    shift = Shift(load, Ref(_fresh(f"{load.tensor}_pivot", taken), axes),  # type: ignore[arg-type]
                  Ref(_fresh(f"{load.tensor}_shifted", taken), load.axes))  # type: ignore[arg-type]
    moving = _Movement(cascade, load)
    for b in sorted(_candidates(cascade)[load], key=str):
        names = [r.name for r in cascade.reductions if r.name in refs(b) and moving.moves(Ref(r.name, r.axes))]
        sums = [n for n in names if cascade.reduction(n).monoid == "sum"]
        plain = all(not refs(cascade.reduction(n).body) & set(names) for n in names)
        if not sums or not plain or not moving.is_location(b):
            continue
        for n in names:
            shift.twins.setdefault(n, _fresh(f"{n}_shifted", taken))
        moved = [x for x in walk(b) if isinstance(x, Ref) and x.name in names]
        twins: dict[Expr, Expr] = {x: Ref(shift.twins[x.name], x.axes) for x in moved}
        shift.locations[b] = substitute(b, twins)
    return shift if shift.locations else None


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


class _Movement:
    """How results move when an input is shifted by a constant, measured on a random stream."""

    def __init__(self, cascade: Cascade, load: Load) -> None:
        self.skeleton = Skeleton(cascade)
        self.load = load
        self.constant = 3

    def is_location(self, b: Expr) -> bool:
        """b(x + c) = b(x) + c."""
        return self._moves_by(b, self.constant)

    def moves(self, r: Ref) -> bool:
        """Whether a result depends on the location of the input."""
        return not self._moves_by(r, 0)

    def _moves_by(self, e: Expr, expected: int) -> bool:
        import mpmath

        unit = self.skeleton.unit(self.load).tensor
        form = self.skeleton.abstract(e)
        with mpmath.workdps(DIGITS):
            for signed in (True, False):
                stream = Sampler(self.skeleton, random.Random(unit), signed).units(5)
                moved = Stream({k: tuple(v + self.constant for v in values) if k == unit else values
                                for k, values in stream.values.items()}, stream.length)
                try:
                    before, after = (self._value(form, s) for s in (stream, moved))
                except Undefined:
                    continue
                return bool(difference(after - before, mpmath.mpf(expected)) < EQUAL)
        return False

    def _value(self, form: Expr, stream: Stream) -> Any:
        return RealEvaluator(stream.lookup(evaluate_results(self.skeleton, stream)), stream.length)(form)


def _rewritten(e: Expr, shifts: list[Shift]) -> Expr:
    """x - b becomes (shifted x) - b'."""
    if isinstance(e, Op) and e.fn == "sub":
        for s in shifts:
            if e.args[0] == s.load and e.args[1] in s.locations:
                return s.shifted - s.locations[e.args[1]]
    new = tuple(_rewritten(c, shifts) for c in children(e))
    return with_children(e, new)


def _twin(body: Expr, s: Shift) -> Expr:
    """The body of a reduction on shifted data."""
    return substitute(body, {s.load: s.shifted})


def _inlined(e: Expr, shifts: list[Shift]) -> Expr:
    """Outputs read the input and the pivot: the producer of the shifted data does not exist outside the loop."""
    return substitute(e, {s.shifted: s.load - s.pivot for s in shifts})


def add_locations(model: Model, cascade: Cascade, shifts: tuple[Shift, ...]) -> None:
    """Tell a model which dependency plus pivot is which location, so that a correction sees x - b and not its parts."""
    convert = model.skeleton.abstract
    for s in shifts:
        for b, shifted in s.locations.items():
            form = convert(shifted)
            name = form.name if isinstance(form, Ref) else next(
                (n for n, e in model.dependencies.items() if e == form), None)
            if name is not None:
                location = Location(convert(s.load), s.pivot, model.symbol(name), convert(b))
                model.locations[location.name] = location
        for name in s.twins:
            r = cascade.reduction(name)
            model.restated[name] = (r.monoid, convert(r.body))
