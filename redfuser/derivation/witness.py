"""A witness: two prefixes that no state made of the results so far can tell apart, and what tells them apart later.

The state under discussion holds the count, every earlier result and the stage's own value. Two prefixes that agree in
all of them, and a continuation after which the stage's results differ, show that this state is not enough.

Looked for among short decimals first: prefixes that fall together in the state are found by sorting. Where the state is
made of exponentials and roots nothing falls together, and one prefix is moved along the null space of the state's
derivatives until it is visibly another, then corrected by Newton's method. Either way it is verified in high precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from redfuser.derivation import batch
from redfuser.derivation.batch import Array, BatchSampler, Streams
from redfuser.derivation.evidence import free_skeleton
from redfuser.derivation.observe import exact_stream
from redfuser.derivation.sample import Stream, evaluate_results
from redfuser.derivation.sensitivity import Sensitivity
from redfuser.derivation.skeleton import Skeleton, Stage
from redfuser.ir import MONOIDS, Cascade, Expr, Idx, Load
from redfuser.rules.arithmetic import context, precision
from redfuser.rules.language import STREAM
from redfuser.rules.real import Undefined, difference

DIGITS = 50
EQUAL = 1e-40
"""States agree when they differ by less, in arithmetic of `DIGITS` digits."""
ALIKE = 1e-9
"""... and look alike in float64 when they differ by less."""
DIFFERENT = 1e-6
"""Results differ when they do so by more."""
LATTICES = ((-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0), (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0))
"""The numbers tried first: of both signs, and positive ones."""
LENGTHS = (2, 3, 4, 5, 6)
PREFIXES = 3000
PAIRS = 60
CONTINUATIONS = 16
STARTS = 4
CORRECTIONS = 40


@dataclass(frozen=True)
class Witness:
    """Two prefixes with equal state, and a continuation after which a result differs.

    result        the stage
    first         unit -> its values along the first prefix
    second        unit -> its values along the second prefix
    continuation  unit -> its values along what follows either of them
    state         what both prefixes agree in: results and the count
    given         values that do not vary along the stream
    values        the result after first + continuation, and after second + continuation
    rounded       the second prefix is the solution of equations, shown to float64; they agree to 40 digits
    """

    result: str
    first: Mapping[str, tuple[float, ...]]
    second: Mapping[str, tuple[float, ...]]
    continuation: Mapping[str, tuple[float, ...]]
    state: Mapping[str, float]
    given: Mapping[str, float]
    values: tuple[float, float]
    rounded: bool = False

    def __str__(self) -> str:
        state = ", ".join(f"{k} = {_number(v)}" for k, v in self.state.items())
        where = f" (where {', '.join(f'{k} = {_number(v)}' for k, v in self.given.items())})" if self.given else ""
        about = "about " if self.rounded else ""
        return (f"{_elements(self.first)} and {about}{_elements(self.second)} agree in {state}{where}; followed by "
                f"{_elements(self.continuation)} they give {self.result} = {_number(self.values[0])} and "
                f"{_number(self.values[1])}")

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for json.dumps."""
        return {"result": self.result, "first": _plain(self.first), "second": _plain(self.second),
                "continuation": _plain(self.continuation), "state": dict(self.state), "given": dict(self.given),
                "values": list(self.values), "rounded": self.rounded}


def _plain(elements: Mapping[str, tuple[float, ...]]) -> dict[str, list[float]]:
    return {k: list(v) for k, v in elements.items()}


def _elements(elements: Mapping[str, tuple[float, ...]]) -> str:
    return " ".join(f"{k} = ({', '.join(map(_number, v))})" for k, v in elements.items())


def _number(value: float) -> str:
    return str(value) if isinstance(value, bool) else f"{value:.7g}"


def find_witness(cascade: Cascade, stage: str, final: Iterable[str] = ()) -> Witness | None:
    """A witness for a stage in the sweep in which the results `final` are known; None when none was found."""
    return _find(cascade, stage, frozenset(final))


@lru_cache(maxsize=256)
def _find(cascade: Cascade, name: str, final: frozenset[str]) -> Witness | None:
    skeleton = free_skeleton(cascade)
    stage = None if skeleton is None else next((s for s in skeleton.stages if s.name == name), None)
    if skeleton is None or stage is None or any(s.crossed or s.monoid not in MONOIDS for s in skeleton.stages):
        return None
    hunt = _Hunt(skeleton, stage, final)
    try:
        for lattice in LATTICES:
            for length in LENGTHS:
                found = hunt.among(lattice, length)
                if found is not None:
                    return found
        return hunt.solve()
    except Undefined:
        return None


class _Hunt:
    """The search for a witness of one stage."""

    def __init__(self, skeleton: Skeleton, stage: Stage, final: frozenset[str]) -> None:
        self.skeleton = skeleton
        self.stages = skeleton.stages[: skeleton.stages.index(stage) + 1]
        self.stage = stage
        self.final = [s.name for s in self.stages[:-1] if s.name in final]
        self.rng = np.random.default_rng(len(self.stages))
        self.ordered = any(isinstance(e, Idx) for e in skeleton.units.values())

    # ---- among short decimals

    def among(self, lattice: tuple[float, ...], length: int) -> Witness | None:
        """Prefixes whose elements are of a few short numbers."""
        prefixes = self._lattice(lattice, PREFIXES, length, 0)
        state = self._state(prefixes)
        good = np.isfinite(state).all(axis=1) & BatchSampler(self.skeleton, self.rng).allowed(prefixes)
        keys, where = np.unique(np.round(state[good], 9), axis=0, return_inverse=True)
        rows = np.flatnonzero(good)[np.argsort(where.ravel(), kind="stable")]
        groups = np.split(rows, np.cumsum(np.bincount(where.ravel(), minlength=len(keys)))[:-1])
        pairs = [(g[0], other) for g in groups for other in g[1:] if not self._same(prefixes, g[0], other)][:PAIRS]
        if not pairs:
            return None
        a, b = (prefixes.take(np.asarray(p)) for p in zip(*pairs, strict=True))
        return self._told_apart(a, b, lambda count, n: self._lattice(lattice, count, n, length))

    def _lattice(self, lattice: tuple[float, ...], count: int, length: int, start: int) -> Streams:
        """Streams of numbers of the lattice; what does not vary is the same in all of them."""
        drawn = BatchSampler(self.skeleton, self.rng).streams(count, length, 1.0, 0.0, start)
        values: dict[str, Array] = {}
        for name, e in self.skeleton.units.items():
            v = drawn.values[name]
            along = self._along(name)
            if v.dtype.kind == "f" and not isinstance(e, Idx):
                numbers = self._numbers(lattice if along else (1.0,), e)
                if along and len(numbers) > 1:
                    v = self.rng.choice(numbers, v.shape)
                elif not along and len(numbers):
                    v = np.full_like(v, numbers[0])
            values[name] = v if along else np.broadcast_to(v[:1], v.shape)
        streams = Streams(values, length)
        return streams if self.ordered else self._sorted(streams)

    def _numbers(self, lattice: tuple[float, ...], e: Expr) -> Array:
        """The numbers of the lattice that a unit can take."""
        domain = self.skeleton.domain
        low, high = domain.bounds(e)
        numbers = np.unique(np.rint(lattice)) if domain.whole(e) else np.asarray(lattice)
        return numbers[(numbers >= low) & (numbers <= high)]

    def _along(self, unit: str) -> bool:
        return STREAM in self.skeleton.unit(self.skeleton.units[unit]).axes

    def _sorted(self, streams: Streams) -> Streams:
        """Elements in increasing order: their order says nothing."""
        moving = [k for k in streams.values if self._along(k)]
        order = np.lexsort([streams.values[k] * 1.0 for k in reversed(moving)], axis=1)
        return Streams({k: np.take_along_axis(v, order, 1) if k in moving else v for k, v in streams.values.items()},
                       streams.length)

    def _same(self, streams: Streams, i: int, j: int) -> bool:
        return all((v[i] == v[j]).all() for v in streams.values.values())

    def _state(self, streams: Streams) -> Array:
        values = batch.results(self.stages, streams, {})
        return np.concatenate([np.broadcast_to(values[s.name] * 1.0, (len(next(iter(streams.values.values()))), 1))
                               for s in self.stages], axis=1)

    def _told_apart(self, a: Streams, b: Streams, follow: Any, exact: Any = None) -> Witness | None:
        """The pair and the continuation after which results differ."""
        count = len(next(iter(a.values.values())))
        for length in (1, 2):
            for _ in range(CONTINUATIONS):
                more = follow(1, length)
                ends = [self._state(self._join(p, more, count)) for p in (a, b)]
                apart = np.abs(ends[0] - ends[1])
                same = (apart[:, [s.name in self.final for s in self.stages]] < ALIKE).all(axis=1)
                good = same & (apart[:, -1] > DIFFERENT) & np.isfinite(apart).all(axis=1)
                for i in np.flatnonzero(good)[:3]:
                    found = self._verified(a.take([i]), b.take([i]), more, exact)
                    if found is not None:
                        return found
        return None

    def _join(self, prefix: Streams, more: Streams, count: int) -> Streams:
        values = {k: np.concatenate([v, np.broadcast_to(more.values[k], (count, more.length))], axis=1)
                  if self._along(k) else v for k, v in prefix.values.items()}
        return Streams(values, prefix.length + more.length)

    # ---- by Newton's method

    def solve(self) -> Witness | None:
        """A prefix moved along the null space of the state's derivatives."""
        sensitivity = Sensitivity(self.skeleton, self.stage, frozenset())
        loads = [k for k, e in self.skeleton.units.items()
                 if self._along(k) and not self.skeleton.domain.whole(e) and (not self.ordered or isinstance(e, Load))]
        for start in range(STARTS):
            sampler = BatchSampler(self.skeleton, self.rng, signed=start % 2 == 0, center=1.0 if start % 2 else 0.1)
            length = len(self.stages) + 2
            first = self._short(sampler, 0, 1, length)
            moving = [k for k in loads if first.values[k].dtype.kind == "f"]
            second = self._moved(sensitivity, first, moving) if moving else None
            if second is None:
                continue
            found = self._told_apart(first, second, partial(self._short, sampler, length), (sensitivity, moving))
            if found is not None:
                return found
        return None

    def _short(self, sampler: BatchSampler, start: int, count: int, length: int) -> Streams:
        """Streams of short decimals."""
        drawn = sampler.streams(count, length, 3.0 if start else 1.0, 0.0, start)
        return Streams({k: np.round(v, 1) if v.dtype.kind == "f" else v for k, v in drawn.values.items()}, length)

    def _jacobian(self, sensitivity: Sensitivity, streams: Streams, moving: list[str]) -> Array:
        """Derivatives of the state by the elements of all units, [results, units x elements]."""
        ones = np.ones(streams.length)
        parts = [sensitivity.rows(streams, {k: ones}, {}) for k in moving]
        return np.stack([np.concatenate([p[s.name][0] for p in parts]) for s in self.stages])

    def _moved(self, sensitivity: Sensitivity, first: Streams, moving: list[str]) -> Streams | None:
        goal = self._state(first)[0]
        slopes = self._jacobian(sensitivity, first, moving)
        if not np.isfinite(goal).all() or not np.isfinite(slopes).all():
            return None
        null = np.linalg.svd(slopes)[2][np.linalg.matrix_rank(slopes):]
        if not len(null):
            return None
        step = self.rng.standard_normal(len(null)) @ null
        current = self._shifted(first, moving, 0.7 * step / np.abs(step).max())
        for _ in range(CORRECTIONS):
            gap = self._state(current)[0] - goal
            slopes = self._jacobian(sensitivity, current, moving)
            if not np.isfinite(gap).all() or not np.isfinite(slopes).all():
                return None
            if np.abs(gap).max() < 1e-13 * (1 + np.abs(goal).max()):
                return current
            current = self._shifted(current, moving, -np.linalg.lstsq(slopes, gap, rcond=1e-9)[0])
        return None

    def _shifted(self, streams: Streams, moving: list[str], by: Array) -> Streams:
        steps = dict(zip(moving, np.split(by, len(moving)), strict=True))
        return Streams({k: v + steps[k] if k in steps else v for k, v in streams.values.items()}, streams.length)

    # ---- verification

    def _verified(self, a: Streams, b: Streams, more: Streams, exact: Any) -> Witness | None:
        with precision(DIGITS):
            first, second, then = exact_stream(a), exact_stream(b), exact_stream(more)
            try:
                if exact is not None:
                    second = self._polished(first, second, b, *exact)
                states = [evaluate_results(self.skeleton, p) for p in (first, second)]
                ends = [evaluate_results(self.skeleton, self._followed(p, then)) for p in (first, second)]
            except Undefined:
                return None
            names = [s.name for s in self.stages]
            if any(difference(states[0][n], states[1][n]) > EQUAL for n in names):
                return None
            if any(difference(ends[0][n], ends[1][n]) > EQUAL for n in self.final):
                return None
            if abs(ends[0][self.stage.name] - ends[1][self.stage.name]) < DIFFERENT:
                return None
            total = first.length + then.length
            domain = self.skeleton.domain
            for prefix, end in zip((first, second), ends, strict=True):
                found = self._followed(prefix, then).lookup(end)
                if not domain.possible(found, total) or not domain.admits(found, total):
                    return None
            return self._witness(first, second, then, states[0], (ends[0], ends[1]), exact is not None)

    def _followed(self, prefix: Stream, then: Stream) -> Stream:
        values = {k: v + then.values[k] if self._along(k) else v for k, v in prefix.values.items()}
        return Stream(values, prefix.length + then.length)

    def _polished(self, first: Stream, second: Stream, b: Streams, sensitivity: Sensitivity,
                  moving: list[str]) -> Stream:
        """Newton steps in high precision; the derivatives of float64 gain their precision each time."""
        mp = context()
        inverse = np.linalg.pinv(self._jacobian(sensitivity, b, moving), rcond=1e-9)
        goal = evaluate_results(self.skeleton, first)
        for _ in range(8):
            now = evaluate_results(self.skeleton, second)
            gap = [now[s.name] - goal[s.name] for s in self.stages]
            if max(map(abs, gap)) < EQUAL / 100:
                break
            step = [mp.fsum(float(x) * g for x, g in zip(row, gap, strict=True)) for row in inverse]
            values = dict(second.values)
            for i, k in enumerate(moving):
                own = step[i * second.length : (i + 1) * second.length]
                values[k] = tuple(v - s for v, s in zip(values[k], own, strict=True))
            second = Stream(values, second.length)
        return second

    def _witness(self, first: Stream, second: Stream, then: Stream, state: Mapping[str, Any],
                 ends: tuple[Mapping[str, Any], Mapping[str, Any]], rounded: bool) -> Witness:
        def elements(stream: Stream) -> dict[str, tuple[float, ...]]:
            return {self._name(k): tuple(map(_plain_number, stream.values[k])) for k in self.skeleton.units
                    if self._along(k) and not isinstance(self.skeleton.units[k], Idx)}

        given = {self._name(k): _plain_number(first.values[k]) for k in self.skeleton.units if not self._along(k)}
        shared = {"count": float(first.length)} | {s.name: _plain_number(state[s.name]) for s in self.stages}
        name = self.stage.name
        return Witness(name, elements(first), elements(second), elements(then), shared, given,
                       (_plain_number(ends[0][name]), _plain_number(ends[1][name])), rounded)

    def _name(self, unit: str) -> str:
        e = self.skeleton.units[unit]
        return e.tensor if isinstance(e, Load) else str(self.skeleton.readable(e))


def _plain_number(value: Any) -> float:
    return bool(value) if isinstance(value, (bool, np.bool_)) else float(value)
