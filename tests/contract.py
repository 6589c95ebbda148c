"""The numerical contract as an assertion: compare with the reals, allow what a careful computation would lose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def exact(fn: Callable[..., Any], *args: Any) -> Any:
    """The function over (nearly) the reals: every float argument in longdouble."""
    wide = [a.astype(np.longdouble) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in args]
    with np.errstate(all="ignore"):
        return fn(*wide)


def assert_contract(actual: Any, fn: Callable[..., Any], *args: Any, condition: float = 1.0, c: float = 8.0) -> None:
    """|actual - exact| <= 4 |NumPy - exact| + c eps condition, elementwise against the largest NumPy error.

    `condition` bounds the magnitude that rounding acts on (sum of |terms|, |score|), per unit of result.
    Non-finite values must be where NumPy's own definition has them.
    """
    wanted = np.asarray(exact(fn, *args))
    with np.errstate(all="ignore"):
        careful = np.asarray(fn(*args))
    actual = np.asarray(actual)
    assert actual.shape == careful.shape
    assert actual.dtype == careful.dtype
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(wanted))
    np.testing.assert_array_equal(actual[~finite], wanted[~finite].astype(actual.dtype))
    if not finite.any():
        return
    error = np.abs(actual.astype(np.longdouble) - wanted)[finite]
    own = np.abs(careful.astype(np.longdouble) - wanted)[finite]
    own = own[np.isfinite(own)]
    scale = np.abs(wanted[finite])
    allowed = 4 * (own.max() if own.size else 0) + c * np.finfo(actual.dtype).eps * condition * np.maximum(
        scale, scale.max()
    )
    worst = np.argmax(error - allowed)
    assert error[worst] <= allowed[worst], f"error {error[worst]:.3g}, allowed {allowed[worst]:.3g}"
