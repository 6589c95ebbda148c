"""Keep numbers small: accumulate data shifted by a pivot, the element of the stream nearest to zero.

Where a value b of the data's location (a mean, a weighted mean) is subtracted from the data x, S/N and x - b lose
digits when the data sit far from zero. Let p be any number. Then x - b = (x - p) - b', where b' is the same
formula b computed from shifted data, because a location moves with the data: b(x + c) = b(x) + c for every c. That
property is tested numerically in high precision (never read off a name), and the certificate checks the result.

Where the data are scaled by something free of the stream, x/f - b is (x - b f)/f: b f is a location of x. Other results
that b or a reduction of it reads (f) count as fixed numbers then.

The data may be any expression of inputs and of producers that read no result (x, 0.5 x, x + y, a score). It is a unit
for the algebra: were it looked into, sum (0.5 x - b)^2 would be expanded into raw sums of squares, which cancel.

p is the live finite element of least magnitude: all data far from zero lie near it, and it is never far from zero when
some are not. So the sum of |x - p| is at most twice that of |x|, whatever the data are: an outlier makes a bad pivot
only where everything is one. Its weight counts as well: elements of weight 0 are not live.

The rewritten cascade has a stage of the monoid `pivot`, a producer for the shifted data, and shifted twins of the
reductions that b reads. p changes in a merge, so it is telescoped like any dependency.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from math import inf
from typing import Any

from redfuser.derivation.accumulate import Location, Model
from redfuser.derivation.sample import Sampler, Stream, evaluate_results
from redfuser.derivation.skeleton import Skeleton
from redfuser.ir import (
    OPS,
    POS_INF,
    Cascade,
    Cast,
    Const,
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
    written_size,
)
from redfuser.ir.names import unique_name
from redfuser.ir.ops import PIVOT
from redfuser.rules.arithmetic import precision
from redfuser.rules.real import RealEvaluator, Undefined

DIGITS = 40
EQUAL = 1e-25


Difference = tuple[Expr, Expr]
"""(a, b) of a - b: scaled data, and a value free of the stream."""


@dataclass
class Shift:
    """Shifted data: their expression, the pivot, the producer of the shifted data, and location -> shifted location.

    twins   reduction that a location reads -> the same reduction of shifted data
    moving  differences that stay what they are when the data move, with the location of the data in each
    """

    data: Expr
    pivot: Ref
    shifted: Ref
    locations: dict[Expr, Expr] = field(default_factory=dict)
    twins: dict[str, str] = field(default_factory=dict)
    moving: dict[Difference, Expr] = field(default_factory=dict)

    def replace_data(self, e: Expr, by: Expr) -> Expr:
        """`e` with the data replaced, except in differences that do not move, and in exponentials: weights
        e^(x - max x) are at most 1, and shifted by anything else they may overflow."""
        if e == self.data:
            return by
        if isinstance(e, Op) and e.fn in ("exp", "exp2", "expm1"):
            return e
        if not _moving(e, self.moving).isdisjoint(self.moving):
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
    taken = {*(t.name for t in cascade.tensors), *(p.name for p in cascade.producers),
             *(r.name for r in cascade.reductions)}
    shifts: list[Shift] = []
    whole: set[Expr] = set()
    pending = _candidates(cascade)
    largest_first = sorted({d for found in pending.values() for d in found},
                           key=lambda d: (-written_size(d), str(d)))
    for data in largest_first:
        own = {pair: found[data] for pair, found in pending.items() if data in found}
        shift = _shift(cascade, data, own, taken) if own else None
        if shift is not None:
            shifts.append(shift)
        for pair in own:
            if shift is not None and pair in shift.moving:
                whole.add(data)
                del pending[pair]
    whole |= {d for found in pending.values() for d in list(found)[:1]}
    if not shifts:
        return None
    reductions: list[Reduction] = []
    for s in shifts:
        live = s.data
        for c in _conditions(cascade, s.data):
            live = select(c, live, POS_INF)  # what is masked out may be anything
        reductions.append(Reduction(s.pivot.name, PIVOT, live, s.pivot.axes))
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
    return Pivoted(inner, opaque, frozenset(whole), replace(cascade, outs=outs), tuple(shifts))


def _conditions(cascade: Cascade, data: Expr) -> list[Expr]:
    """Conditions under which data are read at all; none when they are read everywhere."""
    found: list[Expr] = []
    for r in cascade.reductions:
        places = list(_places(r.body, data, None))
        if None in places:
            return []
        found += [c for c in places if c is not None and c not in found]
    return found


def _places(e: Expr, data: Expr, condition: Expr | None) -> Iterator[Expr | None]:
    """The condition under which every occurrence of the data matters: that of selections, and weights other than 0."""
    if e == data:
        yield condition
    elif isinstance(e, Op) and e.fn == "select":
        c, chosen, other = e.args
        yield from _places(c, data, condition)
        yield from _places(chosen, data, _both(condition, c, data))
        yield from _places(other, data, _both(condition, op("not", c), data))
    elif isinstance(e, Op) and e.fn == "mul":
        factors = list(_factors(e))
        for weight in factors:
            if free_axes(weight) and not refs(weight) and data not in walk(weight):
                condition = _both(condition, op("ne", weight, 0), data)
        for x in factors:
            yield from _places(x, data, condition)
    else:
        for x in children(e):
            yield from _places(x, data, condition)


def _both(a: Expr | None, b: Expr, data: Expr) -> Expr | None:
    """Both conditions; those that read results are not known when the pivot is chosen, and an element of the data is
    live where one of others with more axes than it needs it."""
    if refs(b) or not free_axes(b) <= free_axes(data):
        return a
    return b if a is None else op("and", a, b)


def _factors(e: Expr) -> Iterator[Expr]:
    """The factors of a product."""
    if isinstance(e, Op) and e.fn == "mul":
        for x in e.args:
            yield from _factors(x)
    else:
        yield e


def _difference(e: Expr) -> tuple[Expr, Expr] | None:
    """(a, b) of an expression that is a - b: written so, or as a + (-b)."""
    if isinstance(e, Op) and e.fn == "sub":
        return e.args[0], e.args[1]
    if isinstance(e, Op) and e.fn == "add":
        for a, b in (e.args, e.args[::-1]):
            if isinstance(b, Op) and b.fn == "neg":
                return a, b.args[0]
    return None


def _differences(e: Expr, axis: str) -> Iterator[Difference]:
    """(a, b) of every difference a - b or b - a of something along the stream and a stream-free value of results."""
    for part in filter(None, map(_difference, walk(e))):
        for a, b in (part, part[::-1]):
            if refs(b) and axis not in free_axes(b) and axis in free_axes(a):
                yield a, b


def _moving(e: Expr, differences: Mapping[Difference, Expr]) -> set[Difference]:
    """The difference that an expression is, if it is among the given ones."""
    found = _difference(e)
    return set() if found is None else {found, found[::-1]} & differences.keys()


def _unscaled(a: Expr, b: Expr, axis: str, given: frozenset[str]) -> Iterator[Difference]:
    """(x, b f) for all data x such that a = x/f, with f free of the stream."""
    if _is_data(a, axis, given):
        yield a, b
    if not isinstance(a, Op):
        return
    if a.fn == "div" and axis not in free_axes(a.args[1]):
        yield from _unscaled(a.args[0], b * a.args[1], axis, given)
    if a.fn == "mul":
        for x, k in (a.args, a.args[::-1]):
            if isinstance(k, Const) and 0 < abs(float(k.value)) < inf:
                yield from _unscaled(x, _divided(b, k), axis, given)
            elif isinstance(k, Op) and k.fn == "div" and k.args[0] == Const(1) and axis not in free_axes(k):
                yield from _unscaled(x, b * k.args[1], axis, given)


def _divided(b: Expr, k: Const) -> Expr:
    """b/k; a number that b has as a factor is divided at once."""
    if isinstance(b, Op) and b.fn == "mul":
        for number, rest in (b.args, b.args[::-1]):
            if isinstance(number, Const):
                ratio = Fraction(number.value) / Fraction(k.value)
                return rest if ratio == 1 else Const(ratio) * rest
    return b / k


def _is_data(e: Expr, axis: str, given: frozenset[str]) -> bool:
    """Whether an expression is data along the stream: numbers computed from inputs and the producers `given`, which
    read no result."""
    number = isinstance(e, (Load, Cast, Ref)) or (isinstance(e, Op) and OPS[e.fn].kind not in ("compare", "logic"))
    parts = set(walk(e))
    return (number and axis in free_axes(e) and refs(e) <= given and not any(isinstance(x, Reduce) for x in parts)
            and any(isinstance(x, (Load, Ref)) for x in parts))


def _free_of_results(cascade: Cascade) -> frozenset[str]:
    """Producers that read no result, directly or through others."""
    found: set[str] = set()
    for p in cascade.producers:
        if refs(p.expr) <= found:
            found.add(p.name)
    return frozenset(found)


def _candidates(cascade: Cascade) -> dict[Difference, dict[Expr, Expr]]:
    """Difference -> data in it, and what is subtracted from these."""
    assert cascade.axis is not None
    found: dict[Difference, dict[Expr, Expr]] = {}
    results = {r.name for r in cascade.reductions}
    given = _free_of_results(cascade)
    for e in (*(r.body for r in cascade.reductions), *(o.expr for o in cascade.outs)):
        for a, b in _differences(e, cascade.axis):
            forms = {x: value for x, value in _unscaled(a, b, cascade.axis, given) if refs(value) <= results}
            if forms:
                found[a, b] = forms
    return found


def _shift(cascade: Cascade, data: Expr, values: Mapping[Difference, Expr], taken: set[str]) -> Shift | None:
    """The shift of data, with those of the values subtracted from them that were confirmed to be locations."""
    name = next(x.tensor if isinstance(x, Load) else x.name for x in walk(data) if isinstance(x, (Load, Ref)))
    along = tuple(a.name for a in cascade.axes if a.name in free_axes(data))
    axes = tuple(a for a in along if a != cascade.axis)
    shift = Shift(data, Ref(name, axes), Ref(name, along))
    movement = _Movement(cascade, shift)
    read: dict[Expr, list[Reduction]] = {}
    while found := {pair: (b, moved) for pair, b in values.items()
                    if pair not in shift.moving and (moved := movement.moved_by(b)) is not None}:
        shift.moving |= {pair: b for pair, (b, _) in found.items()}
        read |= dict(found.values())
    read = {b: moved for b, moved in read.items() if any(r.monoid == "sum" for r in moved)}
    if not read:
        return None
    shift.pivot = Ref(unique_name(f"{name}_pivot", taken), axes)
    shift.shifted = Ref(unique_name(f"{name}_shifted", taken), along)
    for b, moved in sorted(read.items(), key=lambda item: str(item[0])):
        for r in moved:
            if r.name not in shift.twins:
                shift.twins[r.name] = unique_name(f"{r.name}_shifted", taken)
        names = {r.name for r in moved}
        twins: dict[Expr, Expr] = {x: Ref(shift.twins[x.name], x.axes) for x in walk(b)
                                   if isinstance(x, Ref) and x.name in names}
        shift.locations[b] = substitute(b, twins)
    return shift


class _Movement:
    """How values move when data are shifted by a constant in the reductions they read, measured on a random stream."""

    def __init__(self, cascade: Cascade, shift: Shift) -> None:
        self.cascade = cascade
        self.skeleton = Skeleton(cascade, whole=frozenset((shift.data,)), fine=True)
        self.shift = shift
        self.constant = 3
        self.known: dict[bool, tuple[Stream, dict[str, Any]]] = {}

    def moved_by(self, b: Expr) -> list[Reduction] | None:
        """Reductions for which b(x + c) = b(x) + c when the data move in them and nowhere else; None if there are none.

        All that b reads, or those among them that move in proportion to c, or the sums among these.
        """
        reads = [r for r in self.cascade.reductions if r.name in refs(b) and not has_parts(r.monoid)
                 and self._at(r.body, self.constant) != r.body]
        even = [r for r in reads if self._in_proportion(r)]
        sums = [r for r in even if r.monoid == "sum"]
        return next((found for found in (reads, even, sums) if self._is_location(b, found)), None)

    def _at(self, body: Expr, constant: int) -> Expr:
        """A body with its data shifted."""
        return self.shift.replace_data(body, self.shift.data + constant)

    def _is_location(self, b: Expr, reads: Iterable[Reduction]) -> bool:
        return bool(reads) and self._measured(lambda value: value(b, reads, self.constant) - value(b) - self.constant)

    def _in_proportion(self, r: Reduction) -> bool:
        """r(x + c) - r(x) = r(x) - r(x - c)."""
        e, c = Ref(r.name, r.axes), self.constant
        return self._measured(lambda value: value(e, (r,), c) - value(e) * 2 + value(e, (r,), -c))

    def _measured(self, zero: Callable[[Callable[..., Any]], Any]) -> bool:
        """Whether something computed from values is 0 on a random stream."""
        with precision(DIGITS):
            for signed in (True, False):
                try:
                    return bool(abs(zero(partial(self._value, self._stream(signed)))) < EQUAL)
                except (Undefined, TypeError):  # TypeError: a truth value does not move
                    continue
        return False

    def _stream(self, signed: bool) -> tuple[Stream, dict[str, Any]]:
        """A random stream and the results on it."""
        if signed not in self.known:
            unit = self.skeleton.unit(self.shift.data).tensor
            stream = Sampler(self.skeleton, random.Random(unit), signed).units(5)
            self.known[signed] = stream, evaluate_results(self.skeleton, stream)
        return self.known[signed]

    def _value(self, given: tuple[Stream, dict[str, Any]], e: Expr, reads: Iterable[Reduction] = (),
               constant: int = 0) -> Any:
        """A value with the data of some reductions shifted."""
        stream, results = given
        form = self.skeleton.abstract
        evaluator = RealEvaluator(stream.lookup(results), stream.length)
        moved = {r.name: evaluator.reduce(r.monoid, evaluator(form(self._at(r.body, constant)))) for r in reads}
        return RealEvaluator(stream.lookup({**results, **moved}), stream.length)(form(e))


def _rewritten(e: Expr, shifts: list[Shift]) -> Expr:
    """x/f - b becomes ((shifted x) - (shifted b f))/f, and b - x/f the negative of that."""
    found = _difference(e)
    for s in shifts:
        for pair in sorted(_moving(e, s.moving), key=str):
            if s.moving[pair] in s.locations:
                a, _ = pair
                moved = substitute(a, {s.data: s.shifted - s.locations[s.moving[pair]]})
                return moved if pair == found else -moved
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
