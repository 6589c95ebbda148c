"""Measure the error of a fused form where it hurts: hard data, streamed in chunks and merged in a tree.

The unit is the numerical contract of the definition (`redfuser.ir.contract`): up to 1 a form keeps the promise. Weights
of a cost model can only guess which of several equal forms is accurate; this is the last word.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redfuser.derivation.fusion import FusedCascade
from redfuser.derivation.run import run_fused
from redfuser.derivation.streaming import define_producers
from redfuser.errors import RedfuserError
from redfuser.ir import Cascade, Tensor
from redfuser.ir.contract import Expected, expected_results
from redfuser.ir.dtypes import is_float, numpy_dtype
from redfuser.ir.interpret import Evaluator, given
from redfuser.ir.term import base_axis
from redfuser.ir.views import parts_of

Array = np.ndarray[Any, Any]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]

LENGTH = 400
"""Elements of the stream."""
OTHERS = 3
"""Length of every other axis whose length is not known."""
FIXED = 64
"""Other axes that are longer than this by definition are measured as if their length were not known."""
CHUNKS, PARTS = 12, 4
"""Chunks of one stream; parts whose states are merged in a tree."""
SCALES = (float("inf"), 100.0, 20.0, 5.0, 1.0, 0.5)
"""Largest magnitudes that data are scaled to until the assumptions of a cascade hold."""


def _uniform(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.uniform(-1, 1, shape)


def _mixed(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape) * 10.0 ** rng.uniform(-2.0, 1.0, shape)


def _location(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return 1e4 + 1e-3 * rng.standard_normal(shape)


def _scores(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.uniform(-1e4, 1e4, shape)


def _outlier(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    values = rng.standard_normal(shape)
    if values.ndim:
        values[..., 0] = 1e4
    return values


DATA_SETS: Mapping[str, Draw] = {
    "uniform": _uniform, "mixed": _mixed, "location": _location, "scores": _scores, "outlier": _outlier,
}
"""Name -> values of a shape whose last axis is the stream. location: mean 1e4, spread 1e-3; scores: up to 1e4; outlier:
the first element lies far from the others."""
ORDINARY = ("uniform", "mixed")


@dataclass(frozen=True)
class Probe:
    """Errors of one fused form: data set -> largest error in units of the contract; inf where the definition is finite
    and the form is not. Data sets on which the definition itself is undefined or overflows are left out."""

    errors: Mapping[str, float]

    @property
    def worst(self) -> float:
        """The largest error over all data sets."""
        return max(self.errors.values(), default=0.0)

    @property
    def ordinary(self) -> float:
        """The largest error on data without any trap; inf where none could be measured."""
        return max((e for name, e in self.errors.items() if name in ORDINARY), default=float("inf"))


@dataclass(frozen=True)
class _Case:
    """Inputs, and what the definition's results on them must be."""

    arrays: Mapping[str, Array]
    expected: Mapping[str, Expected]


class Prober:
    """Measures fused forms of one cascade, all on the same data.

    Parameters
    ----------
    cascade
        the definition; its results, or its outputs where it has any, are compared.
    dtype
        dtype of the arithmetic and of the state.
    """

    def __init__(self, cascade: Cascade, dtype: str = "float32") -> None:
        self.cascade = loosened(cascade)
        self.dtype = np.dtype(dtype).type
        self.wanted = tuple(o.name for o in cascade.outs) or tuple(r.name for r in cascade.reductions)
        parts = parts_of(cascade.axes)
        self.stream = parts.get(str(cascade.axis), (str(cascade.axis),))
        self.cases = {name: case for name, draw in DATA_SETS.items() if (case := self._case(name, draw)) is not None}

    def __call__(self, fused: FusedCascade) -> Probe:
        """The errors of one form: the worse of a stream in chunks and of states merged in a tree."""
        return Probe({name: max(self._error(fused, case, tree) for tree in (None, 1))
                      for name, case in self.cases.items()})

    def _case(self, name: str, draw: Draw) -> _Case | None:
        """The data set, made positive or smaller where the definition or its assumptions need that; None where the
        definition is undefined even so."""
        for largest in SCALES:
            for positive in (False, True):
                rng = np.random.default_rng(zlib.crc32(name.encode()))
                arrays: dict[str, Array] = {}
                for t in self.cascade.tensors:
                    source = t.name if t.view is None else t.view.source
                    if source not in arrays:
                        arrays[source] = self._array(t, draw, rng, positive, largest)
                expected = self._expected(arrays)
                if expected is not None and self._assumed(arrays, expected):
                    return _Case(arrays, {n: e for n, e in expected.items() if n.partition(".")[0] in self.wanted})
            if not self.cascade.assumptions:
                break
        return None

    def _expected(self, arrays: Mapping[str, Array]) -> Mapping[str, Expected] | None:
        """What the results must be; None where one is not a finite number."""
        try:
            with np.errstate(all="ignore"):
                found = expected_results([self.cascade], arrays)
        except RedfuserError:
            return None
        own = [e for n, e in found.items() if n.partition(".")[0] in self.wanted]
        return found if all(np.isfinite(e.accepted[0]).all() and not e.free.any() for e in own) else None

    def _assumed(self, arrays: Mapping[str, Array], expected: Mapping[str, Expected]) -> bool:
        """Whether everything holds that the caller guarantees."""
        c = self.cascade
        seen, sizes = given(c, arrays)
        evaluator = Evaluator([a.name for a in c.axes], sizes, seen, c.tensors, np.longdouble)
        for r in (r for r in c.reductions if r.name in expected):
            evaluator.define(r.name, r.axes, evaluator.align(expected[r.name].accepted[0], r.axes))
        define_producers(c, evaluator)
        return all(bool(np.all(evaluator(condition))) for condition in c.assumptions)

    def _array(self, t: Tensor, draw: Draw, rng: np.random.Generator, positive: bool, largest: float) -> Array:
        """The array of a tensor, or of what it is a view of."""
        index = t.axes if t.view is None else t.view.index
        known = {a.name: a.size for a in self.cascade.axes}
        each = round(LENGTH ** (1 / len(self.stream)))
        shape = [a + 1 if isinstance(a, int) else known.get(base_axis(a)) or (each if a in self.stream else OTHERS)
                 for a in index]
        dtype = numpy_dtype(t.dtype)
        if dtype.kind == "b":
            return rng.random(shape) < 0.7
        if dtype.kind in "iu":
            return rng.integers(0, 4, shape).astype(dtype)
        if not shape:
            return np.asarray(rng.uniform(0.5, 2.0), dtype)  # a scale or an epsilon
        along = [i for i, a in enumerate(index) if a in self.stream]
        if not along:
            values = rng.standard_normal(shape)
            return (np.abs(values) if positive else values).astype(dtype)
        others = [n for i, n in enumerate(shape) if i not in along]
        lengths = [shape[i] for i in along]
        drawn = draw(rng, (*others, math.prod(lengths)))
        drawn = drawn * min(1.0, largest / np.abs(drawn).max(initial=1.0))
        placed = np.moveaxis(drawn.reshape(*others, *lengths), range(len(others), len(shape)), along)
        return np.ascontiguousarray(np.abs(placed) if positive else placed).astype(dtype)

    def _error(self, fused: FusedCascade, case: _Case, tree: int | None) -> float:
        with np.errstate(all="ignore"):
            small = replace(fused, cascade=loosened(fused.cascade))
            got = run_fused(small, case.arrays, chunks=CHUNKS if tree is None else PARTS, tree=tree, dtype=self.dtype)
        return max(_ratio(e, np.asarray(got[n])) for n, e in case.expected.items())


def loosened(c: Cascade) -> Cascade:
    """The cascade without long fixed lengths: what is measured must be small."""
    axes = tuple(replace(a, size=None) if a.size is not None and a.size > FIXED else a for a in c.axes)
    return replace(c, axes=axes)


def _ratio(expected: Expected, got: Array) -> float:
    """Largest error in units of what is allowed."""
    wanted = expected.accepted[0]
    if not is_float(got.dtype):
        return float("inf") if (got != wanted).any() else 0.0
    if not np.isfinite(got).all():
        return float("inf")
    error = np.abs(got.astype(np.longdouble) - wanted)
    with np.errstate(all="ignore"):
        ratio = np.where(error == 0, 0, error / expected.allowed)
    return float(ratio.max()) if ratio.size else 0.0
