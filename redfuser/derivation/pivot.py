"""Keep numbers small: accumulate data shifted by a pivot, the first element of the stream.

Where a value b of the data's location (a mean, a weighted mean) is subtracted from the data x, S/N and x - b lose
digits when the data sit far from zero. Let p be the first element. Then x - b = (x - p) - b', where b' is the same
formula b computed from shifted data, because a location moves with the data: b(x + c) = b(x) + c for every c. That
property is tested numerically in high precision (never read off a name), and the certificate checks the result.

The data may be any expression that reads inputs only (x, 0.5 x, x + y). It is a unit for the algebra: were it looked
into, sum (0.5 x - b)^2 would be expanded into raw sums of squares, which cancel.

The rewritten cascade has a stage `first` for the pivot, a producer for the shifted data, and shifted twins of the
reductions that b reads. p changes in a merge, so it is telescoped like any dependency.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Set
from dataclasses import dataclass, field, replace
from typing import Any

from redfuser.derivation.accumulate import Location, Model
from redfuser.derivation.sample import Sampler, Stream, evaluate_results
from redfuser.derivation.skeleton import Skeleton
from redfuser.ir import (
    OPS,
    Cascade,
    Cast,
    Expr,
    Let,
    Load,
    Op,
    Reduce,
    Reduction,
    Ref,
    children,
    free_axes,
    has_parts,
    op,
    refs,
    select,
    substitute,
    walk,
    with_children,
)
from redfuser.rules.real import Parts, RealEvaluator, Undefined, difference, precision

DIGITS = 40
EQUAL = 1e-25


@dataclass
class Shift:
    """Shifted data: their expression, the pivot, the producer of the shifted data, and b -> b'.

    twins   reduction that b reads -> the same reduction of shifted data
    moving  values m that move with the data like b does: x - m stays what it is
    """

    data: Expr
    pivot: Ref
    shifted: Ref
    locations: dict[Expr, Expr] = field(default_factory=dict)
    twins: dict[str, str] = field(default_factory=dict)
    moving: set[Expr] = field(default_factory=set)

    def replace_data(self, e: Expr, by: Expr) -> Expr:
        """`e` with the data replaced, except in differences that do not move."""
        if e == self.data:
            return by
        if _stands_still(e, self.data, self.moving):
            return e
        return with_children(e, tuple(self.replace_data(c, by) for c in children(e)))


@dataclass(frozen=True)
class Pivoted:
    """A cascade rewritten on shifted data.

    cascade  what to derive from
    opaque   producers that the choice of accumulators must not look into
    data     expressions that are units for the algebra: what something is subtracted from, shifted or not
    outs     the definition, its outputs rewritten on shifted data
    shifts   what was shifted
    """

    cascade: Cascade
    opaque: frozenset[str]
    data: frozenset[Expr]
    outs: Cascade
    shifts: tuple[Shift, ...]


def pivot(cascade: Cascade) -> Pivoted | None:
    """The cascade on shifted data; None when nothing would change: no location is subtracted from any data."""
    candidates = _candidates(cascade)
    taken = {*(t.name for t in cascade.tensors), *(p.name for p in cascade.producers),
             *(r.name for r in cascade.reductions)}
    shifts = [s for data, values in candidates.items() if (s := _shift(cascade, data, values, taken)) is not None]
    if not shifts and all(isinstance(data, Load) for data in candidates):
        return None
    reductions: list[Reduction] = []
    for s in shifts:
        finite = select(op("eq", s.data - s.data, 0), s.data, 0)  # an infinite pivot would spoil every element
        for c in _conditions(cascade, s.data):
            finite = select(c, finite, 0)  # so would what is masked out: it may be anything
        reductions.append(Reduction(s.pivot.name, "first", finite, s.pivot.axes))
    for r in cascade.reductions:
        # a difference may round two elements to one: positions are found among the elements themselves
        body = r.body if has_parts(r.monoid) else _rewritten(r.body, shifts)
        for s in shifts:
            if r.name in s.twins:
                twin = s.replace_data(r.body, s.shifted)
                reductions.append(Reduction(s.twins[r.name], r.monoid, twin, r.axes))
                body = s.replace_data(body, s.shifted + s.pivot)
        reductions.append(replace(r, body=body))
    producers = tuple(Let(s.shifted.name, s.shifted.axes, s.data - s.pivot) for s in shifts)
    outs = tuple(replace(o, expr=_inlined(_rewritten(o.expr, shifts), shifts)) for o in cascade.outs)
    inner = replace(cascade, producers=(*cascade.producers, *producers), reductions=tuple(reductions), outs=())
    opaque = frozenset(s.shifted.name for s in shifts)
    return Pivoted(inner, opaque, frozenset(candidates), replace(cascade, outs=outs), tuple(shifts))


def _conditions(cascade: Cascade, data: Expr) -> list[Expr]:
    """Conditions under which data are read at all; none when they are read everywhere."""
    found: list[Expr] = []
    for r in cascade.reductions:
        places = list(_places(r.body, data, None))
        if None in places:
            return []
        found += [c for c in places if c is not None and c not in found]
    return [c for c in found if not refs(c)]


def _places(e: Expr, data: Expr, condition: Expr | None) -> Iterator[Expr | None]:
    """The innermost condition of every occurrence of the data."""
    if e == data:
        yield condition
    elif isinstance(e, Op) and e.fn == "select":
        c, chosen, other = e.args
        yield from _places(c, data, condition)
        yield from _places(chosen, data, c)
        yield from _places(other, data, op("not", c))
    else:
        for x in children(e):
            yield from _places(x, data, condition)


def _difference(e: Expr) -> tuple[Expr, Expr] | None:
    """(a, b) of an expression that is a - b: written so, or as a + (-b)."""
    if isinstance(e, Op) and e.fn == "sub":
        return e.args[0], e.args[1]
    if isinstance(e, Op) and e.fn == "add":
        for a, b in (e.args, e.args[::-1]):
            if isinstance(b, Op) and b.fn == "neg":
                return a, b.args[0]
    return None


def _differences(e: Expr, axis: str) -> Iterator[tuple[Expr, Expr]]:
    """(x, b) of every difference x - b or b - x of data and a stream-free value that reads results."""
    for part in filter(None, map(_difference, walk(e))):
        for data, b in (part, part[::-1]):
            if refs(b) and axis not in free_axes(b) and _is_data(data, axis):
                yield data, b


def _stands_still(e: Expr, data: Expr, moving: Set[Expr]) -> bool:
    """Whether an expression is the difference of the data and a value that moves with them."""
    a, b = _difference(e) or (None, None)
    return (a == data and b in moving) or (b == data and a in moving)


def _reads(e: Expr, data: Expr, moving: Set[Expr]) -> frozenset[str]:
    """Names that an expression reads outside of differences that stand still."""
    if _stands_still(e, data, moving):
        return frozenset()
    own = frozenset((e.name,)) if isinstance(e, Ref) else frozenset[str]()
    return own.union(*(_reads(c, data, moving) for c in children(e)))


def _is_data(e: Expr, axis: str) -> bool:
    """Whether an expression is data along the stream: numbers computed from nothing but inputs."""
    number = isinstance(e, (Load, Cast)) or (isinstance(e, Op) and OPS[e.fn].kind not in ("compare", "logic"))
    parts = set(walk(e))
    return (number and axis in free_axes(e) and not any(isinstance(x, (Ref, Reduce)) for x in parts)
            and any(isinstance(x, Load) for x in parts))


def _candidates(cascade: Cascade) -> dict[Expr, set[Expr]]:
    """Data -> the values that are subtracted from them."""
    assert cascade.axis is not None
    found: dict[Expr, set[Expr]] = {}
    results = {r.name for r in cascade.reductions}
    for e in (*(r.body for r in cascade.reductions), *(o.expr for o in cascade.outs)):
        for x, b in _differences(e, cascade.axis):
            if refs(b) <= results:
                found.setdefault(x, set()).add(b)
    return found


def _shift(cascade: Cascade, data: Expr, values: set[Expr], taken: set[str]) -> Shift | None:
    """The shift of data, with those of the values subtracted from them that were confirmed to be locations."""
    movement = _Movement(cascade, data)
    moving = {b for b in values if movement.is_location(b)}
    moved = {r.name for r in cascade.reductions if movement.moves(Ref(r.name, r.axes))}
    locations: dict[Expr, list[Reduction]] = {}
    for b in sorted(moving, key=str):
        read = [r for r in cascade.reductions if r.name in refs(b) & moved]
        plain = not any(_reads(r.body, data, moving) & moved for r in read)
        plain &= not any(has_parts(r.monoid) for r in read)
        if plain and any(r.monoid == "sum" for r in read):
            locations[b] = read
    if not locations:
        return None
    name = next(x.tensor for x in walk(data) if isinstance(x, Load))
    along = tuple(a.name for a in cascade.axes if a.name in free_axes(data))
    axes = tuple(a for a in along if a != cascade.axis)
    shift = Shift(data, Ref(_fresh(f"{name}_pivot", taken), axes), Ref(_fresh(f"{name}_shifted", taken), along),
                  moving=moving)
    for b, read in locations.items():
        for r in read:
            if r.name not in shift.twins:
                shift.twins[r.name] = _fresh(f"{r.name}_shifted", taken)
        twins: dict[Expr, Expr] = {x: Ref(shift.twins[x.name], x.axes) for x in walk(b)
                                   if isinstance(x, Ref) and x.name in shift.twins}
        shift.locations[b] = substitute(b, twins)
    return shift


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


class _Movement:
    """How results move when data are shifted by a constant, measured on a random stream."""

    def __init__(self, cascade: Cascade, data: Expr) -> None:
        self.skeleton = Skeleton(cascade, whole=frozenset((data,)), fine=True)
        self.data = data
        self.constant = 3

    def is_location(self, b: Expr) -> bool:
        """b(x + c) = b(x) + c."""
        return self._moves_by(b, self.constant)

    def moves(self, r: Ref) -> bool:
        """Whether a result depends on the location of the data."""
        return not self._moves_by(r, 0)

    def _moves_by(self, e: Expr, expected: int) -> bool:
        import mpmath

        unit = self.skeleton.unit(self.data).tensor
        form = self.skeleton.abstract(e)
        with precision(DIGITS):
            for signed in (True, False):
                try:
                    stream = Sampler(self.skeleton, random.Random(unit), signed).units(5)
                    moved = Stream({k: tuple(v + self.constant for v in values) if k == unit else values
                                    for k, values in stream.values.items()}, stream.length)
                    before, after = (self._value(form, s) for s in (stream, moved))
                except Undefined:
                    continue
                if isinstance(after, Parts):
                    return not expected and bool(difference(after, before) < EQUAL)
                return bool(difference(after - before, mpmath.mpf(expected)) < EQUAL)
        return False

    def _value(self, form: Expr, stream: Stream) -> Any:
        return RealEvaluator(stream.lookup(evaluate_results(self.skeleton, stream)), stream.length)(form)


def _rewritten(e: Expr, shifts: list[Shift]) -> Expr:
    """x - b becomes (shifted x) - b', and b - x becomes -((shifted x) - b')."""
    a, b = _difference(e) or (e, e)  # e - e is no difference of data and location
    for s in shifts:
        if a == s.data and b in s.locations:
            return s.shifted - s.locations[b]
        if b == s.data and a in s.locations:
            return -(s.shifted - s.locations[a])
    return with_children(e, tuple(_rewritten(c, shifts) for c in children(e)))


def _inlined(e: Expr, shifts: list[Shift]) -> Expr:
    """Outputs read the input and the pivot: the producer of the shifted data does not exist outside the loop."""
    return substitute(e, {s.shifted: s.data - s.pivot for s in shifts})


def add_locations(model: Model, cascade: Cascade, shifts: tuple[Shift, ...]) -> None:
    """Tell a model which dependency plus pivot is which location, so that a correction sees x - b and not its parts."""
    convert = model.skeleton.abstract
    for s in shifts:
        for b, shifted in s.locations.items():
            form = convert(shifted)
            name = form.name if isinstance(form, Ref) else next(
                (n for n, e in model.dependencies.items() if e == form), None)
            if name is not None:
                location = Location(convert(s.data), s.pivot, model.symbol(name), convert(b))
                model.locations[location.name] = location
        for name in s.twins:
            r = cascade.reduction(name)
            model.restated[name] = (r.monoid, convert(r.body))
