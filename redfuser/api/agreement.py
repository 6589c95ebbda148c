"""Whether two schedules of one kernel computed the same: they round differently, and may differ by nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from redfuser.ir.dtypes import STORAGE_ONLY, finfo
from redfuser.runtime.arrays import Array

CLOSE = {"float32": 1e-4, "float64": 1e-10}
"""Results that differ by less of their size (a tenth of that, of the largest) are the same at first sight."""
FAR = {"float32": 1e-2, "float64": 1e-6}
"""By how much of their size results may be off that the definition itself hardly determines (beside `ERRORS`)."""
ERRORS = 64.0
"""So many times the error of the other schedule is no mistake but an unlucky order of summation."""
DISCRETE = 1e-2
"""The part of truth values and positions that rounding may change, where they hang on computed numbers."""


def disagreement(found: Sequence[Array], usual: Sequence[Array], dtype: str, finite: bool,
                 reference: Callable[[], Sequence[Array] | None]) -> str | None:
    """What is wrong with the results `found`, `usual` being those of the default schedule; None when nothing is.

    Parameters
    ----------
    dtype : of the arithmetic
    finite : all inputs are; otherwise what becomes of infinities may depend on the schedule (docs/testing.md)
    reference : computes the same in a wider dtype, None where there is none; asked only when results differ visibly
    """
    wide: Sequence[Array] | None = None
    asked = False
    for i, (f, u) in enumerate(zip(found, usual, strict=True)):
        if f.dtype.kind in "biu":
            share = float(np.mean(f != u))
            if share > DISCRETE and np.sum(f != u) > 1:
                return f"{share:.1%} of the elements of output {i} differ"
            continue
        coarse, step = _steps(f.dtype)
        if _close(_numbers(f), _numbers(u), max(CLOSE[dtype], coarse), step, finite):
            continue
        if not asked:
            wide, asked = reference(), True
        worst = _apart(_numbers(f), _numbers(u), None if wide is None else _numbers(wide[i]),
                       max(FAR[dtype], coarse), step, finite)
        if worst:
            return f"output {i} differs by {worst}"
    return None


def _numbers(a: Array) -> Array:
    return a.astype(np.float64)


def _steps(dtype: np.dtype[Any]) -> tuple[float, float]:
    """By how much of their size, and by how much next to zero, numbers differ that a storage dtype rounds to
    neighbours; 0 for others, which are not rounded again."""
    if dtype.name not in STORAGE_ONLY:
        return 0.0, 0.0
    known = finfo(dtype)
    return 2 * float(known.eps), float(known.smallest_subnormal)


def _close(f: Array, u: Array, allowed: float, step: float, finite: bool) -> bool:
    """Whether nothing needs a second look."""
    both = np.isfinite(f) & np.isfinite(u)
    if finite and not np.array_equal(np.isfinite(f), np.isfinite(u)):
        return False
    size = np.abs(u[both])
    return bool(np.all(np.abs(f[both] - u[both]) <= allowed * (size + 0.1 * size.max(initial=0.0)) + step))


def _apart(f: Array, u: Array, wide: Array | None, allowed: float, step: float, finite: bool) -> str:
    """How far two results are apart, as text; "" when rounding explains it."""
    both = np.isfinite(f) & np.isfinite(u)
    if finite and wide is not None:
        odd = (np.isfinite(f) != np.isfinite(u)) & np.isfinite(wide) & np.isfinite(u)
        if np.any(odd):
            return f"{f[odd][0]} instead of {u[odd][0]}"
    if not np.any(both):
        return ""
    exact = u if wide is None else np.where(np.isfinite(wide), wide, u)
    error, usual = np.abs(f - exact)[both], np.abs(u - exact)[both]
    size = np.abs(exact[both])
    over = error - (allowed * (size + 0.1 * size.max()) + step + ERRORS * usual.max())
    at = int(np.argmax(over))
    return f"{error[at]:.3g} at a value of {size[at]:.3g}" if over[at] > 0 else ""
