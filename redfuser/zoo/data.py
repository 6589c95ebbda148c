"""Data sets that are hard for float32, and errors on them in units of what the numerical contract allows."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from redfuser.derivation import FusedCascade, run_fused
from redfuser.ir import Cascade
from redfuser.ir.interpret import axis_sizes, run_cascade
from redfuser.ir.partition import Partition
from redfuser.zoo.entry import Argument, Entry

Array = np.ndarray[Any, Any]

STREAM = "n"
LENGTHS = {STREAM: 96, "k": 8}
"""Lengths of the stream and of the features of keys; every other axis has `OTHERS`."""
OTHERS = 3
NUMBER = 2.5
RANGES = {"positive": (0.1, 2.0), "unit": (0.01, 0.99)}
"""Kinds of arguments that are the same in all data sets, uniform in a range."""
SEEDS = 4
EPS = float(np.finfo(np.float32).eps)
ALLOWED = 4.0
"""Times the error of NumPy's own float32 evaluation, and ..."""
ROUNDINGS = 8.0
"""... times the effect of one rounding: of the largest result, or of every input."""


def _location(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return 1e4 + 1e-3 * rng.standard_normal(shape)


def _scores(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.uniform(-1e4, 1e4, shape)


def _mixed(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape) * 10.0 ** rng.uniform(-2.0, 1.0, shape)


DATA_SETS: Mapping[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "location": _location, "scores": _scores, "mixed": _mixed,
}
"""location: mean 1e4, spread 1e-3; scores: up to 1e4 in magnitude; mixed: both signs, three orders of magnitude."""


def arguments(entry: Entry, data_set: str, seed: int = 0, stream: int = LENGTHS[STREAM],
              others: int = OTHERS) -> dict[str, Any]:
    """Arguments of an entry: float32 and bool arrays, Python numbers. The same for the same seed.

    `stream`: length of the stream; `others`: of the axes that have no length of their own.
    """
    rng = np.random.default_rng(zlib.crc32(f"{entry.name}:{data_set}:{seed}".encode()))
    return {a.name: _argument(a, data_set, rng, LENGTHS | {STREAM: stream}, others) for a in entry.arguments}


def points(entry: Entry, stream: int, others: int = OTHERS) -> int:
    """Combinations of positions of all axes of its arguments."""
    axes = {x for a in entry.arguments for x in a.axes}
    return math.prod((LENGTHS | {STREAM: stream}).get(x, others) for x in axes)


def _argument(a: Argument, data_set: str, rng: np.random.Generator, lengths: Mapping[str, int],
              others: int = OTHERS) -> Any:
    shape = tuple(lengths.get(x, others) for x in a.axes)
    if a.kind == "number":
        return NUMBER
    if a.kind == "mask":
        return rng.random(shape) < 0.7
    if a.kind == "onehot":
        return np.eye(shape[-1], dtype=np.float32)[rng.integers(shape[-1], size=shape[:-1])]
    values = (DATA_SETS[data_set](rng, shape) if a.kind == "data"
              else rng.uniform(*RANGES[a.kind], shape) if a.kind in RANGES else rng.standard_normal(shape))
    return values.astype(np.float32)


def contract_error(entry: Entry, parts: Partition, chained: Cascade, fused: FusedCascade, data_set: str) -> float:
    """The largest error of the fused form in float32, streamed and merged in a tree, over what the contract allows.

    Up to 1 is within the contract: 4 times the error of NumPy's own float32 evaluation and 8 times the condition, both
    the worst of `SEEDS` draws (one draw may be lucky). Where the data sit far from zero (`location`) the condition
    would excuse every error, and is not counted. inf where the definition is finite and the fused form is not.
    """
    draws = [_draw(entry, parts, chained, fused, data_set, seed) for seed in range(SEEDS)]
    worst = 0.0
    for outputs in zip(*draws, strict=True):
        error = max(d.error for d in outputs)
        allowed = max(ALLOWED * d.careful for d in outputs)
        allowed += ROUNDINGS * max(d.condition for d in outputs)
        worst = max(worst, error / allowed if error else 0.0)
    return worst


@dataclass(frozen=True)
class _Draw:
    """Largest errors of the fused form and of NumPy for one output, and what one rounding does to the output."""

    error: float
    careful: float
    condition: float


def _draw(entry: Entry, parts: Partition, chained: Cascade, fused: FusedCascade, data_set: str,
          seed: int) -> list[_Draw]:
    values = arguments(entry, data_set, seed)
    wide = {k: v.astype(np.longdouble) if _is_real(v) else v for k, v in values.items()}
    with np.errstate(all="ignore"):
        wanted, careful = _results(entry, wide), _results(entry, values)
        moved = [np.zeros(()) for _ in wanted] if data_set == "location" else _response(entry, wide, wanted)
        runs = [_run(parts, chained, fused, values, tree) for tree in (None, 0)]
    return [_compare(*x) for x in zip(zip(*runs, strict=True), careful, wanted, moved, strict=True)]


def _is_real(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def _response(entry: Entry, values: Mapping[str, Any], results: list[Array]) -> list[Array]:
    """What one rounding (float32) of every input does to each result, in the worst case: the sum of |changes|.

    It is the condition of the contract: the sum of |terms|, the size of scores. One position of the stream after the
    other is changed, in all rows at once.
    """
    total = [np.zeros(r.shape, np.longdouble) for r in results]
    for a in entry.arguments:
        if not _is_real(values[a.name]):
            continue
        for place in (range(LENGTHS[STREAM]) if STREAM in a.axes else (slice(None),)):
            changed = values[a.name].copy()
            changed[tuple(place if x == STREAM else slice(None) for x in a.axes)] *= 1 + EPS
            for t, new, old in zip(total, _results(entry, {**values, a.name: changed}), results, strict=True):
                t += np.abs(_difference(new, old))
    return total


def _results(entry: Entry, values: Mapping[str, Any]) -> list[Array]:
    result = entry.fn(**values)
    return [np.asarray(r) for r in (result if isinstance(result, tuple) else (result,))]


def _run(parts: Partition, chained: Cascade, fused: FusedCascade, values: Mapping[str, Any],
         tree: int | None) -> list[Array]:
    known: dict[str, Any] = {name: np.asarray(v) for name, v in values.items()}
    sizes = axis_sizes(parts.term.tensors, known, {a.name: a.size for a in parts.term.axes})
    for c in parts.cascades:
        known |= (run_fused(fused, known, chunks=5, tree=tree, dtype=np.float32, sizes=sizes) if c is chained
                  else run_cascade(c, known, np.float32, sizes))
    return [np.asarray(known[o.name]) for o in parts.term.outs]


def _compare(got: tuple[Array, ...], own: Array, real: Array, moved: Array) -> _Draw:
    finite = np.isfinite(real) & np.isfinite(own) & np.isfinite(moved)
    if not finite.any():
        return _Draw(0.0, 0.0, 0.0)
    errors = [np.abs(_difference(g.reshape(real.shape), real))[finite] for g in got]
    error = max(float(e.max()) if np.isfinite(e).all() else float("inf") for e in errors)
    condition = max(EPS * float(np.abs(real[finite]).max()), float(np.broadcast_to(moved, real.shape)[finite].max()))
    return _Draw(error, float(np.abs(_difference(own, real))[finite].max()), condition)


def _difference(a: Array, b: Array) -> Array:
    """a - b; for truth values, whether they differ."""
    return np.asarray(a, np.longdouble) - np.asarray(b, np.longdouble)
