"""Make a failing input small: fewer elements first, then simpler numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

from redfuser.ir.dtypes import is_float
from redfuser.testing.subjects import Arrays, Subject

BUDGET = 250
"""Inputs tried before the smallest so far is reported."""

SECONDS = 30.0
"""Time after which the smallest so far is reported; the number of inputs is meant to bind first."""

SIMPLE = (0.0, 1.0, -1.0, 2.0)


def minimise(subject: Subject, arrays: Arrays, fails: Callable[[Arrays], bool], budget: int = BUDGET) -> Arrays:
    """The smallest input found for which `fails` holds; `arrays` itself must fail."""
    tries, end = 0, time.perf_counter() + SECONDS

    def over() -> bool:
        return tries >= budget or time.perf_counter() > end

    improved = True
    while improved and not over():
        improved = False
        for candidates in (_shorter, _simpler):
            found = True
            while found and not over():
                found = False
                for candidate in candidates(subject, arrays):
                    if over():
                        break
                    tries += 1
                    if fails(candidate):
                        arrays, found, improved = candidate, True, True
                        break
    return arrays


def _shorter(subject: Subject, arrays: Arrays) -> Iterator[Arrays]:
    """The same input with positions of one axis left out: halves, then single ones."""
    for name, keep in subject.cut(arrays):
        n = subject.axis_length(arrays, name)
        if n <= 1:
            continue
        for piece in (slice(0, n // 2), slice(n // 2, n)) if n > 2 else ():
            yield keep(piece)
        for i in range(min(n, 48)):
            yield keep([j for j in range(n) if j != i])


def _simpler(subject: Subject, arrays: Arrays) -> Iterator[Arrays]:
    """The same input with whole arrays, then single elements, replaced by simpler numbers."""
    floats = [n for n, a in arrays.items() if isinstance(a, np.ndarray) and is_float(a.dtype) and a.size]
    for name in floats:
        for value in SIMPLE[:2]:
            if np.array_equal(arrays[name], np.full_like(arrays[name], value)):
                break  # values before it are simpler and were tried
            yield arrays | {name: np.full_like(arrays[name], value)}
        for digits in (0, 1, 3):
            rounded = np.round(arrays[name], digits)
            if not np.array_equal(rounded, arrays[name], equal_nan=True):
                yield arrays | {name: rounded}
    for name in floats:
        if arrays[name].size > 64:
            continue
        for index in np.ndindex(*arrays[name].shape):
            old = arrays[name][index]
            for value in SIMPLE:
                if old == value:
                    break  # values before it are simpler and were tried
                if _rank(value) < _rank(float(old)):
                    changed = arrays[name].copy()
                    changed[index] = value
                    yield arrays | {name: changed}


def _rank(value: float) -> int:
    """Position in the order of simplicity."""
    return SIMPLE.index(value) if value in SIMPLE else len(SIMPLE)
