"""Real numbers of many digits: those of gmpy2 (MPFR), or of mpmath where gmpy2 is not installed.

Both round every operation to the precision at hand. An operation of gmpy2 costs a tenth of the time: mpmath is written
in Python. Source of the arithmetic: L. Fousse et al., MPFR: a multiple-precision binary floating-point library with
correct rounding, ACM TOMS 33(2), 2007.
"""

from __future__ import annotations

import importlib.util
import math
import operator
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache, reduce
from typing import Any


class Mpfr:
    """Numbers of gmpy2, with the names that an mpmath context has for what is used here: `mpf` makes a number of one of
    Python's or a text, `nint` is the nearest integer, the even one of two. Domains are checked by whoever calls."""

    def __init__(self) -> None:
        import gmpy2

        self._gmpy2 = gmpy2
        self.mpf = gmpy2.mpfr
        self.inf, self.nan = gmpy2.mpfr("inf"), gmpy2.mpfr("nan")
        self.isnan, self.isinf, self.isfinite = gmpy2.is_nan, gmpy2.is_infinite, gmpy2.is_finite
        self.floor, self.ceil, self.nint = gmpy2.rint_floor, gmpy2.rint_ceil, gmpy2.rint  # floor gives integers only
        self.sqrt, self.exp, self.expm1, self.log = gmpy2.sqrt, gmpy2.exp, gmpy2.expm1, gmpy2.log
        self.tanh, self.sin, self.cos, self.atan = gmpy2.tanh, gmpy2.sin, gmpy2.cos, gmpy2.atan

    @contextmanager
    def workdps(self, digits: int) -> Iterator[None]:
        """Arithmetic of this thread with so many digits, and no traps, whatever the caller has set."""
        with self._gmpy2.context(precision=math.ceil(digits * math.log2(10)) + 4):
            yield

    def isint(self, a: Any) -> bool:
        """Whether a number is a finite integer."""
        return self.mpf(a).is_integer()  # type: ignore[no-any-return]

    def sign(self, a: Any) -> Any:
        """-1, 0 or 1; NaN of NaN."""
        return a if self.isnan(a) else self.mpf(self._gmpy2.sign(a))

    def fsum(self, items: Iterable[Any]) -> Any:
        """The sum, rounded once."""
        return self._gmpy2.fsum(list(items))

    def fprod(self, items: Iterable[Any]) -> Any:
        """The product."""
        return reduce(operator.mul, items, self.mpf(1))


_local = threading.local()


def context() -> Any:
    """The arithmetic of this thread: neither other threads nor what the caller sets for numbers of its own change its
    precision, and it changes nothing of theirs. All numbers must come from it."""
    found = getattr(_local, "context", None)
    if found is None:
        found = _local.context = _mpfr() if importlib.util.find_spec("gmpy2") else _own_mpmath()
    return found


@contextmanager
def precision(digits: int) -> Iterator[None]:
    """Arithmetic of `context()` with this many digits."""
    with context().workdps(digits):
        yield


@cache
def _mpfr() -> Mpfr:
    """One for all threads: each has its own precision."""
    return Mpfr()


def _own_mpmath() -> Any:
    import mpmath

    return mpmath.MPContext()
