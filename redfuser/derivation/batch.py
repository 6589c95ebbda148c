"""Many random streams of a cascade at once, in float64: thousands are cheap to look at before one is taken seriously.

Units are drawn so that they can occur: a load freely, a position as it is, anything else (a contraction, a producer)
by its definition over freshly drawn loads, so that a sum of squares is never negative.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from redfuser.derivation.domain import INTEGERS, MOST_DRAWS
from redfuser.derivation.skeleton import Skeleton, Stage
from redfuser.ir import MONOIDS, Cast, Const, Expr, Idx, Load, Op, Part, Reduce, Ref, Size, find_parts
from redfuser.ir.ops import OPS
from redfuser.rules.language import STREAM
from redfuser.rules.real import Undefined

Array = np.ndarray[Any, Any]
CONTRACTED = 3
"""Elements of an axis that a unit contracts."""


@dataclass(frozen=True)
class Streams:
    """Values of units, one stream per row: [streams, length] along the stream, [streams, 1] for the others."""

    values: Mapping[str, Array]
    length: int

    def take(self, rows: Any) -> Streams:
        """Some of the streams."""
        return Streams({k: v[rows] for k, v in self.values.items()}, self.length)

    def varying(self) -> list[str]:
        """Names of the units that carry the stream and are real numbers."""
        return [k for k, v in self.values.items() if v.shape[1] == self.length and v.dtype.kind == "f"]


class BatchEvaluator:
    """Evaluates skeleton expressions on streams; `named`: values of results, [streams, 1]. Not a number: undefined."""

    def __init__(self, streams: Streams, named: Mapping[str, Any]) -> None:
        self.streams = streams
        self.named = named
        self.memo: dict[Expr, Any] = {}

    def __call__(self, e: Expr) -> Any:
        found = self.memo.get(e)
        if found is None:
            with np.errstate(all="ignore"):
                found = self.memo[e] = self._value(e)
        return found

    def _value(self, e: Expr) -> Any:
        if isinstance(e, Load):
            return self.streams.values[e.tensor]
        if isinstance(e, Ref):
            return self.named[e.name]
        if e == Size(STREAM):
            return np.float64(self.streams.length)
        if isinstance(e, Part):
            places = self(e.body)[e.part]
            place = e.axes[0] if e.axes else 0
            k = place if isinstance(place, int) else self.streams.length // 2 % places.shape[1]
            return places[:, [k]]
        return scalar_value(e, self)

    def elements(self, e: Expr) -> Array:
        """One value per element: [streams, length]."""
        count = next(iter(self.streams.values.values())).shape[0]
        return np.broadcast_to(np.asarray(self(e)), (count, self.streams.length))


def scalar_value(e: Expr, operand: Callable[[Expr], Any]) -> Any:
    """The value of a node from those of its operands."""
    if isinstance(e, Const):
        return e.value if isinstance(e.value, bool) else np.float64(e.value)
    if isinstance(e, Cast):
        value = np.asarray(operand(e.body))
        if e.dtype == "bool":
            return value != 0
        return value * 1.0 if e.dtype.startswith(("float", "bfloat")) else _wrapped(np.trunc(value * 1.0), e.dtype)
    if isinstance(e, Op):
        return OPS[e.fn].numpy(*map(operand, e.args))
    raise Undefined(f"{type(e).__name__} in a batch")


def _wrapped(whole: Array, dtype: str) -> Any:
    """Whole numbers in the range of an integer dtype; NaN and infinities become NaN where they leave it."""
    info = np.iinfo(dtype)
    count = 2.0**info.bits
    inside = (whole >= float(info.min)) & (whole < float(info.min) + count)
    return np.where(inside, whole, whole - np.floor((whole - float(info.min)) / count) * count)


def reduce(monoid: str, elements: Array) -> Any:
    """The reduction of every stream: [streams, 1]; of a sorted list its parts, [streams, places]."""
    if monoid not in MONOIDS:
        return _sorted_list(monoid, elements)
    with np.errstate(all="ignore"):
        return np.asarray(MONOIDS[monoid].reduce(elements, axis=-1, keepdims=True))


def _sorted_list(monoid: str, elements: Array) -> dict[str, Array]:
    """The best elements and their positions; the earlier of two equal ones first."""
    parts = find_parts(monoid)
    if parts is None or parts.largest is None or (parts.rank or 1) > elements.shape[1]:
        raise Undefined(f"{monoid} in a batch")
    order = np.argsort(-elements if parts.largest else elements, axis=1, kind="stable")[:, : parts.rank or 1]
    value, index = parts.parts
    return {value: np.take_along_axis(elements, order, axis=1), index: order * 1.0}


def results(stages: list[Stage], streams: Streams, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Every result by its definition, except those that are `fixed`."""
    values = dict(fixed)
    for stage in stages:
        if stage.name not in values:
            values[stage.name] = reduce(stage.monoid, BatchEvaluator(streams, values).elements(stage.body))
    return values


class BatchSampler:
    """Draws the units of a skeleton. `center`: mean of the elements; `signed` False: positive numbers only."""

    def __init__(self, skeleton: Skeleton, rng: np.random.Generator, signed: bool = True, center: float = 0.1) -> None:
        self.skeleton = skeleton
        self.rng = rng
        self.signed = signed
        self.center = center
        self.dtypes = {t.name: t.dtype for t in skeleton.cascade.tensors}
        self.domain = skeleton.domain

    def streams(self, count: int, length: int, spread: Any, shift: Any = 0.0, start: int = 0) -> Streams:
        """Streams whose elements begin at position `start`.

        Standard deviations, each one number or one per stream: `spread` of the elements about their middle, `shift` of
        the middle about the center.
        """
        def drawn() -> Streams:
            values: dict[str, Array] = {}
            for name, e in self.skeleton.units.items():
                along = STREAM in self.skeleton.unit(e).axes
                draw = _Draw((count, length if along else 1), _column(spread), _column(shift), start)
                values[name] = self._finite(self._draw(e, draw, {}))
            return Streams(values, length)

        return self._admitted(drawn) if self.domain.elements else drawn()

    def _admitted(self, drawn: Callable[[], Streams]) -> Streams:
        """Streams that meet the assumptions on elements; elements for which that fails are no numbers."""
        streams = drawn()
        for last in (*[False] * MOST_DRAWS, True):
            evaluate = BatchEvaluator(streams, {})
            broken = ~np.logical_and.reduce([evaluate.elements(c) for c in self.domain.elements])
            if not broken.any():
                break
            other = {k: np.where(np.isnan(v), v, np.nan) if v.dtype.kind == "f" else v
                     for k, v in streams.values.items()} if last else drawn().values
            whole = broken.all(axis=1, keepdims=True)
            streams = Streams({k: np.where(broken if v.shape[1] == streams.length else whole, other[k], v)
                               for k, v in streams.values.items()}, streams.length)
        return streams

    def allowed(self, streams: Streams) -> Array:
        """Which streams meet the assumptions on elements: [streams]."""
        evaluate = BatchEvaluator(streams, {})
        good = np.ones(len(next(iter(streams.values.values()))), bool)
        for c in self.domain.elements:
            good &= evaluate.elements(c).all(axis=1)
        return good

    def admits(self, streams: Streams, fixed: Mapping[str, Any]) -> Array:
        """Which streams meet all assumptions, those on results of the finished row included: [streams]."""
        domain = self.domain
        evaluate = BatchEvaluator(streams, results(self.skeleton.stages, streams, fixed) if domain.final else {})
        good = [evaluate.elements(c).all(axis=1) for c in (*domain.elements, *domain.final)]
        return np.asarray(np.logical_and.reduce(good))

    def _finite(self, drawn: Array) -> Array:
        """Masked (infinite) and undefined elements replaced by others."""
        good = np.isfinite(drawn)
        if good.all():
            return drawn
        return np.where(good, drawn, self.rng.choice(drawn[good], drawn.shape) if good.any() else
                        self.rng.standard_normal(drawn.shape))

    def _draw(self, e: Expr, draw: _Draw, memo: dict[Expr, Array]) -> Array:
        found = memo.get(e)
        if found is None:
            with np.errstate(all="ignore"):
                found = memo[e] = np.broadcast_to(self._drawn(e, draw, memo), draw.shape)
        return found

    def _drawn(self, e: Expr, draw: _Draw, memo: dict[Expr, Array]) -> Any:
        if isinstance(e, Load):
            value = self._load(self.dtypes.get(e.tensor, "float64"), draw)
            if value.dtype.kind == "b":
                return value
            return self.domain.moved(e, value, lambda: self.rng.random(draw.shape))
        if isinstance(e, Size):
            return np.full(draw.shape, float(self.rng.integers(1, 9)))
        if isinstance(e, Idx):
            if e.axis == self.skeleton.cascade.axis:
                return np.arange(draw.start, draw.start + draw.shape[1]) * 1.0
            return np.full(draw.shape, float(self.rng.integers(6)))
        if isinstance(e, Ref):
            return self._draw(self.skeleton.producers[e.name].expr, draw, memo)
        if isinstance(e, Reduce):
            terms = [self._draw(e.body, draw, {}) for _ in range(CONTRACTED)]
            return reduce(e.monoid, np.stack(terms, axis=-1))[..., 0]
        return scalar_value(e, lambda x: self._draw(x, draw, memo))

    def _load(self, dtype: str, draw: _Draw) -> Array:
        if dtype == "bool":
            return np.asarray(self.rng.random(draw.shape) < 0.5)
        middle = self.center + draw.shift * self.rng.standard_normal((draw.shape[0], 1))
        value = middle + draw.spread * self.rng.standard_normal(draw.shape)
        if not self.signed:
            value = np.abs(value) + 0.05
        if dtype.startswith(("float", "bfloat")):
            return np.asarray(value)
        whole = np.rint(INTEGERS * value)
        if dtype.startswith("uint"):
            whole = np.abs(np.rint(2 * INTEGERS * value))  # folded, it is as wide as the others
        return np.asarray(whole if self.signed else np.maximum(whole, 1))


@dataclass(frozen=True)
class _Draw:
    shape: tuple[int, int]
    spread: Any
    shift: Any
    start: int


def _column(value: Any) -> Array:
    return np.asarray(value, float).reshape(-1, 1)
