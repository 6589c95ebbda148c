"""How many numbers a state must hold, measured by what the continuations of a prefix can tell of it.

Observability speaks of every monoid. R(P, C) is the result of a stage over the prefix P followed by C. If a state of K
numbers, smooth in the elements, sums up P, then R(P, C) = g(state(P), C), and the matrix dR(P, C_j) / dP_i has rank K
at most, whatever the length of P. A rank that grows with the prefix is evidence that no finite state can follow the
stage. max |x - mean| has rank 3 (max x, min x and the mean), min |x - mean| has no bound.

For a sum of F(x, d) the values F(P_i, d(P, C_j)) say the same, and of steps as well, which have no derivative.
Positions are no elements, they are known: no derivative is taken by them, and of a sum that reads them the values are
those less what other elements at the same places would give.

Thousands of continuations are looked at in float64, and the few whose rows are most independent are taken again in
high precision: that rank is the finding. So continuations are met that fall between neighbouring kinks and steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redfuser.derivation import batch
from redfuser.derivation.batch import Array, BatchEvaluator, BatchSampler, Streams
from redfuser.derivation.sample import Stream, evaluate_results
from redfuser.derivation.sensitivity import Sensitivity
from redfuser.derivation.skeleton import Skeleton, Stage
from redfuser.ir import Load, walk
from redfuser.rules.arithmetic import context
from redfuser.rules.real import RealEvaluator, Undefined

DIGITS = 160
NEGLIGIBLE = 1e-70
"""What is left of a row, relative to its largest entry, counts as 0 below this, ..."""
VANISHED = 1e-120
"""... a whole row below this, being nothing but rounding errors, ..."""
ROUGHLY = 9
"""Digits to which the rows of different continuations should differ."""
NOISE = 1e-10
"""... and in float64 what is left of a row below this."""
EXTRA_ELEMENTS = (1, 2, 3, 5, 8)
MOST_EXTRA = 3
"""Times the elements of the prefix: only many can move the results far from those of the prefix alone."""
EXTRA_KNOWN = 12
"""Further elements where the length of the stream is known, as it is after a first pass."""
NARROWEST, WIDEST = 0.05, 20.0
"""Standard deviations of the further elements of a stream: the results must move across the whole range of the prefix,
and also by little where its elements are dense."""
CONTINUATIONS = 240
"""Random ones of each length, and as many on the way between two of them."""
PREFIXES = 64
"""Random prefixes of which the one with the most distinct elements is taken."""
SPARE = 8
"""Rows beyond those that float64 finds independent, ..."""
PATIENCE = 4
"""... of which so many may bring nothing new in succession."""


@dataclass(frozen=True)
class Layout:
    """Where the elements of a prefix lie: kinks are met only if the results can move across them.

    arc  on a quarter of a circle, from this angle: extremes of linear functions find every element of a convex curve
    """

    signed: bool
    center: float
    spread: float
    arc: float | None = None


LAYOUTS = (Layout(True, 0.1, 1.0), Layout(True, 1.0, 0.1), Layout(False, 0.1, 1.0),
           *(Layout(True, 2.0, 1.0, quarter * np.pi / 2) for quarter in range(4)))
POSITIVE = tuple(replace(layout, signed=False) for layout in LAYOUTS if layout.signed)


@dataclass(frozen=True)
class Question:
    """Whether a stage can be followed in the sweep in which the results `final` are known and the others change.

    derivatives  rows are derivatives of the result; else the values of the body at the elements of the prefix
    positive     only positive elements are looked at
    """

    skeleton: Skeleton
    stage: Stage
    final: frozenset[str]
    derivatives: bool
    positive: bool = False


def dimension(question: Question, size: int) -> int:
    """The largest rank found for a prefix of `size` elements. To be called in `precision(DIGITS)`.

    Raises
    ------
    Undefined
        when nothing could be evaluated.
    """
    found: list[Prefix] = []
    for layout in POSITIVE if question.positive else LAYOUTS:
        try:
            prefix = Prefix(question, layout, size)
        except Undefined:
            continue
        clear = max((p.known for p in found if p.known == p.promise), default=0)
        if prefix.promise > max(size // 2, clear) and prefix.rank() == size:
            return size
        found.append(prefix)
    if not found:
        raise Undefined("no layout of elements")
    return max(found, key=lambda p: (p.promise, p.known)).rank()


class Prefix:
    """A prefix of a stream, with the continuations that tell most of it."""

    def __init__(self, question: Question, layout: Layout, size: int) -> None:
        self.question = question
        self.size = size
        self.rng = np.random.default_rng(size)
        self.sampler = BatchSampler(question.skeleton, self.rng, layout.signed, layout.center)
        self.elements = self._elements(layout)
        units, domain = question.skeleton.units, self.sampler.domain
        self.places = frozenset(k for k, e in units.items() if domain.position(e))
        read = {x.tensor for x in walk(question.stage.body) if isinstance(x, Load)}
        self.others = self.sampler.streams(1, size, layout.spread) if read & self.places else None
        self.direction = {k: self.rng.uniform(0.5, 1.5, size) for k in self.elements.varying() if k not in self.places}
        if not self.direction:
            raise Undefined("nothing real varies along the stream")
        self.sensitivity = (Sensitivity(question.skeleton, question.stage, question.final)
                            if question.derivatives else None)
        names = [s.name for s in question.skeleton.stages]
        before = question.skeleton.stages[: names.index(question.stage.name)]
        self.earlier = before
        self.fixed: dict[str, Any] = {}
        if question.final:
            joined = self._joined(EXTRA_ELEMENTS[1])
            possible = np.flatnonzero(self._possible(joined)) if self.assumed else [0]
            if not len(possible):
                raise Undefined("no row meets the assumptions")
            first = joined.take([int(possible[0])])
            values = batch.results(before, first, {})
            if any(isinstance(values[k], dict) for k in question.final):
                raise Undefined("a known result of several parts")
            self.fixed = {k: float(np.asarray(values[k]).item()) for k in values if k in question.final}
        self.streams: list[tuple[Streams, int]] = []
        self.table = np.empty((0, size))
        self.independent = Independent(size)
        self.known = 0
        for extra in (EXTRA_KNOWN,) * 3 if question.final else (*EXTRA_ELEMENTS, MOST_EXTRA * size):
            self._continue(extra)
            if self.promise == size:
                break
        if not len(self.table):
            raise Undefined("no continuation")

    def _continue(self, extra: int) -> None:
        """Look at continuations of so many elements as well."""
        streams = self._joined(extra)
        rows = self._rows(streams)
        keep = np.isfinite(rows).all(axis=1) & (rows != 0).any(axis=1)
        if self.assumed:
            keep &= self._possible(streams)
        self.streams += [(streams, int(i)) for i in np.flatnonzero(keep)]
        scaled = rows[keep] / np.abs(rows[keep]).max(axis=1, keepdims=True)
        self.table = np.concatenate([self.table, scaled])
        self.independent.add(scaled)

    @property
    def promise(self) -> int:
        """How many rows are independent as far as float64 can see."""
        return len(self.independent.order)

    @property
    def assumed(self) -> bool:
        """Whether not every stream can occur."""
        domain = self.sampler.domain
        return bool(domain.elements or domain.final)

    def _possible(self, streams: Streams) -> Array:
        return self.sampler.admits(streams, self.fixed)

    def rank(self) -> int:
        """Rank of the chosen rows in high precision; computed once."""
        if self.known:
            return self.known
        span = Span(self.size)
        idle = 0
        for i in self._candidates():
            try:
                streams, k = self.streams[i]
                idle = 0 if span.add(self._exact(streams.take([k]))) else idle + 1
            except Undefined:
                continue
            if span.full or idle == PATIENCE:
                break
        self.known = span.rank
        return self.known

    def _candidates(self) -> Iterator[int]:
        """Rows, those first that float64 finds independent."""
        order = self.independent.order
        yield from order
        yield from others(self.table, order, SPARE + self.size - self.promise)

    def _elements(self, layout: Layout) -> Streams:
        """One prefix: the one whose elements lie farthest apart."""
        drawn = self.sampler.streams(PREFIXES, self.size, layout.spread)
        if layout.arc is not None:
            return self._on_arc(drawn.take([0]), layout, layout.arc)
        moving = drawn.varying()
        if not moving:
            return drawn.take([0])
        with np.errstate(invalid="ignore"):
            gaps = np.diff(np.sort(drawn.values[moving[0]], axis=1), axis=1).min(axis=1)
        return drawn.take([int(np.argmax(np.nan_to_num(gaps, nan=-1.0)))])

    def _on_arc(self, drawn: Streams, layout: Layout, arc: float) -> Streams:
        units, domain = self.question.skeleton.units, self.sampler.domain
        loads = [k for k in drawn.varying() if isinstance(units[k], Load) and not domain.whole(units[k])]
        if len(loads) < 2 or self.assumed:
            raise Undefined("a curve needs two values per element")
        angles = arc + np.pi / 2 * (np.arange(self.size) + self.rng.random(self.size)) / self.size
        values = dict(drawn.values)
        for i, k in enumerate(loads):
            values[k] = layout.center + layout.spread * (np.sin(angles) if i % 2 else np.cos(angles))[None]
        return Streams(values, self.size)

    def _joined(self, extra: int) -> Streams:
        """The prefix with continuations: random ones, and ones on the way between two of them."""
        rng, count = self.rng, CONTINUATIONS
        spreads, shifts = NARROWEST * (WIDEST / NARROWEST) ** rng.random((2, count))
        shifts[: count // 2] = 0.0
        random = self.sampler.streams(count, extra, spreads, shifts, self.size)
        here, there, t = rng.integers(count, size=count), rng.integers(count, size=count), rng.random((count, 1))
        values: dict[str, Array] = {}
        moving = random.varying()
        for k, v in random.values.items():
            known = self.elements.values[k]
            if known.shape[1] == 1:
                values[k] = np.broadcast_to(known, (2 * count, 1))
                continue
            way = v[here] + t * (v[there] - v[here]) if k in moving and not self._counts(k) else v[here]
            more = np.concatenate([v, way])
            values[k] = np.concatenate([np.broadcast_to(known, (2 * count, self.size)), more], axis=1)
        return Streams(values, self.size + extra)

    def _counts(self, unit: str) -> bool:
        """Whether a unit holds integers."""
        values = self.elements.values[unit]
        return bool((values == np.rint(values)).all())

    def _rows(self, streams: Streams) -> Array:
        if self.sensitivity is not None:
            return self.sensitivity.rows(streams, self.direction, self.fixed)[self.question.stage.name]
        values = batch.results(self.earlier, streams, self.fixed)
        body, *rest = (BatchEvaluator(x, values).elements(self.question.stage.body)[:, : self.size] * 1.0
                       for x in self._beside(streams))
        with np.errstate(invalid="ignore"):
            return np.asarray(body - rest[0] if rest else body)

    def _beside(self, streams: Streams) -> list[Streams]:
        """The streams, and where the body reads positions the same with other elements at those of the prefix."""
        if self.others is None:
            return [streams]
        values = {}
        for k, v in streams.values.items():
            other = self.others.values[k]
            along = v.shape[1] == streams.length and k not in self.places
            other = np.broadcast_to(other, (v.shape[0], self.size)) if along else other
            values[k] = np.concatenate([other, v[:, self.size :]], axis=1) if along else v
        return [streams, Streams(values, streams.length)]

    def _exact(self, streams: Streams) -> list[Any]:
        q = self.question
        stream = exact_stream(streams)
        fixed = {k: context().mpf(v) for k, v in self.fixed.items()}
        if self.sensitivity is not None:
            return self.sensitivity.row(stream, self.direction, fixed)
        values = evaluate_results(q.skeleton, stream, before=q.stage.name, fixed=fixed)
        rows = []
        for beside in map(exact_stream, self._beside(streams)):
            evaluator = RealEvaluator(beside.lookup(values), beside.length)
            elements = evaluator.elements(evaluator(q.stage.body))[: self.size]
            rows.append([v * evaluator.mp.mpf(1) for v in elements])
        return [a - b for a, b in zip(*rows, strict=True)] if len(rows) > 1 else rows[0]


def exact_stream(streams: Streams) -> Stream:
    """The first of some streams, as numbers of many digits."""
    mpf = context().mpf
    values: dict[str, Any] = {}
    for k, v in streams.values.items():
        numbers = v[0].tolist() if v.dtype == bool else list(map(mpf, v[0].tolist()))
        values[k] = tuple(numbers) if v.shape[1] == streams.length else numbers[0]
    return Stream(values, streams.length)


class Independent:
    """Rows of a growing table, each the farthest from the span of those before, as long as one is beyond noise.

    order  their numbers
    rest   of every row what is not in their span
    """

    def __init__(self, width: int) -> None:
        self.order: list[int] = []
        self.rest = np.empty((0, width))
        self._span = np.empty((0, width))

    def add(self, rows: Array) -> None:
        """More rows of the table."""
        for direction in self._span:
            rows = rows - np.outer(rows @ direction, direction)
        self.rest = np.concatenate([self.rest, rows])
        while len(self.rest) and len(self.order) < self.rest.shape[1]:
            sizes = np.abs(self.rest).max(axis=1)
            i = int(np.argmax(sizes))
            if sizes[i] <= NOISE:
                break
            self.order.append(i)
            direction = self.rest[i] / np.linalg.norm(self.rest[i])
            self.rest -= np.outer(self.rest @ direction, direction)
            self._span = np.concatenate([self._span, direction[None]])


def others(table: Array, order: list[int], count: int) -> list[int]:
    """Further rows, as different as they are, from one end to the other."""
    different = np.unique(np.round(table, ROUGHLY), axis=0, return_index=True)[1]
    left = different[~np.isin(different, order)]
    wanted = min(count, len(left))
    return [int(i) for i in left[np.linspace(0, len(left) - 1, wanted).astype(int)]] if wanted > 0 else []


class Span:
    """The space spanned by rows of mpmath numbers, in echelon form."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.basis: list[tuple[int, list[Any]]] = []

    @property
    def rank(self) -> int:
        """Its dimension."""
        return len(self.basis)

    @property
    def full(self) -> bool:
        """Whether no row can add to it."""
        return self.rank == self.width

    def add(self, row: list[Any]) -> bool:
        """Whether the row is not in the span yet; it is from now on."""
        largest = max(map(abs, row))
        if self.full or largest < VANISHED:
            return False
        rest = [v / largest for v in row]
        for pivot, known in self.basis:
            factor = rest[pivot]
            if factor:
                rest = [a - factor * b for a, b in zip(rest, known, strict=True)]
                rest[pivot] = factor * 0
        size, pivot = max((abs(v), j) for j, v in enumerate(rest))
        if size <= NEGLIGIBLE:
            return False
        self.basis.append((pivot, [v / rest[pivot] for v in rest]))
        return True
