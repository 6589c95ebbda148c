"""Compare a function compiled by redfuser with the same function run by NumPy: results, error, time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import redfuser as rf

_LEAST_ROUNDS, _MOST_ROUNDS = 5, 200


@dataclass(frozen=True)
class Comparison:
    """What one function did. Times are medians in seconds; errors are relative to the largest |reference|."""

    name: str
    summary: str
    shapes: tuple[tuple[int, ...], ...]
    report: rf.Report
    first_call: float
    numpy_time: float
    fused_time: float
    numpy_error: float
    fused_error: float

    @property
    def ratio(self) -> float:
        """How many times faster than NumPy (below 1: slower)."""
        return self.numpy_time / self.fused_time

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "name": self.name,
            "summary": self.summary,
            "shapes": [list(s) for s in self.shapes],
            "first_call_s": self.first_call,
            "numpy_s": self.numpy_time,
            "fused_s": self.fused_time,
            "ratio": self.ratio,
            "numpy_error": self.numpy_error,
            "fused_error": self.fused_error,
            "report": self.report.to_dict(),
        }


def relative_error(result: NDArray[Any], reference: NDArray[np.float64]) -> float:
    """Largest |result - reference| over the largest |reference| (0 for two empty arrays)."""
    if reference.size == 0:
        return 0.0
    scale = float(np.abs(reference).max()) or 1.0
    return float(np.abs(result - reference).max()) / scale


def interleaved_medians(calls: Sequence[Callable[[], object]], seconds: float) -> tuple[float, ...]:
    """Median time in seconds of each call, all timed in turn so that a busy moment hits every one alike."""
    samples: list[list[float]] = [[] for _ in calls]
    stop = time.perf_counter() + seconds
    for done in range(_MOST_ROUNDS):
        if done >= _LEAST_ROUNDS and time.perf_counter() > stop:
            break
        for sample, call in zip(samples, calls, strict=True):
            start = time.perf_counter()
            call()
            sample.append(time.perf_counter() - start)
    return tuple(statistics.median(sample) for sample in samples)


def compare(fn: Callable[..., NDArray[Any]], *args: Any, seconds: float = 0.5) -> Comparison:
    """Compile `fn`, run it on `args`, and set it beside NumPy on the same arguments and on float64 copies.

    `args` are float32 arrays and Python scalars; `fn` returns one array. Timing takes about `seconds`.
    """
    fused = rf.fuse(fn)
    start = time.perf_counter()
    result = fused(*args)
    first_call = time.perf_counter() - start
    reference = fn(*(a.astype(np.float64) if isinstance(a, np.ndarray) else a for a in args))
    numpy_result = fn(*args)
    numpy_time, fused_time = interleaved_medians([lambda: fn(*args), lambda: fused(*args)], seconds)
    return Comparison(
        name=fn.__name__,
        summary=(fn.__doc__ or "").strip().splitlines()[0],
        shapes=tuple(a.shape for a in args if isinstance(a, np.ndarray)),
        report=fused.explain(*args),
        first_call=first_call,
        numpy_time=numpy_time,
        fused_time=fused_time,
        numpy_error=relative_error(numpy_result, reference),
        fused_error=relative_error(result, reference),
    )
