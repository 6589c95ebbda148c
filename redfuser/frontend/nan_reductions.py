"""Reductions of what is not NaN, with NumPy's signatures: nansum, nanmax, nanmean, nanvar, ..."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from redfuser.frontend import reductions
from redfuser.frontend.reductions import MISSING, into
from redfuser.frontend.tracer import Tracer
from redfuser.ir.dtypes import is_float


def nansum(a: Tracer, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False,
           initial: Any = MISSING, where: Any = True) -> Tracer:
    """np.nansum: 0 where all are NaN"""
    return reductions.sum_(a, axis, dtype, out, keepdims, initial, _kept(a, where))


def nanprod(a: Tracer, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False,
            initial: Any = MISSING, where: Any = True) -> Tracer:
    """np.nanprod: 1 where all are NaN"""
    return reductions.prod(a, axis, dtype, out, keepdims, initial, _kept(a, where))


def _extreme(name: str, reduction: Callable[..., Any], farthest: float) -> Callable[..., Any]:
    """np.nanmax or np.nanmin. `farthest`: what never wins."""

    def function(a: Tracer, axis: Any = None, out: Any = None, keepdims: bool = False, initial: Any = MISSING,
                 where: Any = True) -> Any:
        kept = _kept(a, where)
        if kept is where:
            return reduction(a, axis, out, keepdims, initial, where)
        start = farthest if initial is MISSING and where is True else initial
        found = reduction(a, axis, None, keepdims, start, kept)
        if initial is not MISSING:
            return into(out, found, name)
        # a row without a number has no extreme, and one of infinities has: only a count tells them apart
        return into(out, _or_nan(reductions.any_(kept, axis, keepdims=keepdims), found), name)

    return function


nanmax = _extreme("nanmax", reductions.amax, -np.inf)
nanmin = _extreme("nanmin", reductions.amin, np.inf)


def nanmean(a: Tracer, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, *,
            where: Any = True) -> Any:
    """np.nanmean: NaN where all are NaN"""
    return reductions.mean(a, axis, dtype, out, keepdims, where=_kept(a, where))


def nanvar(a: Tracer, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: bool = False, *,
           where: Any = True, mean: Any = None, correction: Any = None) -> Any:
    """np.nanvar: NaN where no more than `ddof` elements are left"""
    kept = _kept(a, where)
    found = reductions.var(a, axis, dtype, None, ddof, keepdims, where=kept, mean=mean, correction=correction)
    removed = ddof if correction is None else correction
    if kept is where or (not isinstance(removed, Tracer) and removed <= 0):
        return into(out, found, "nanvar")
    return into(out, _or_nan(reductions.count_nonzero(kept, axis, keepdims=keepdims) > removed, found), "nanvar")


def nanstd(a: Tracer, axis: Any = None, dtype: Any = None, out: Any = None, *args: Any, **kwargs: Any) -> Any:
    """np.nanstd, with the arguments of np.nanvar"""
    return into(out, np.sqrt(nanvar(a, axis, dtype, None, *args, **kwargs)), "nanstd")


def _or_nan(condition: Any, found: Any) -> Tracer:
    """`found` where the condition holds, else the NaN of its dtype."""
    r = found.recorder
    return found.wrap(r.where(condition.value, found.value, r.const(np.nan, found.dtype)))  # type: ignore[no-any-return]


def _kept(a: Tracer, where: Any) -> Any:
    """The mask of what is reduced: of what `where` keeps, all that is not NaN. Integers are never NaN."""
    if not is_float(a.dtype):
        return where
    numbers = np.logical_not(np.isnan(a))
    return numbers if where is True else np.logical_and(numbers, where)
