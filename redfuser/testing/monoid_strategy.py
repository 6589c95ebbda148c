"""Hypothesis strategy: reduction operators that obey the laws, of one and of several parts, ordered and not."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from redfuser.derivation import UserMonoid, monoid

Make = Callable[[float], UserMonoid]


def _sum(scale: float) -> UserMonoid:
    """Addition in other units: f^-1(f(a) + f(b)) with f(a) = a / scale."""
    return monoid("scaled_sum", identity=0.0, combine=lambda a, b: (a / scale + b / scale) * scale, commutative=True)


def _root(number: float) -> UserMonoid:
    """The root of a sum of powers: a norm, of numbers that are not negative. A power whose inverse is a number in
    base 2, or the law would hold up to rounding only."""
    power = 2.0 if number == 3 else number
    return monoid("norm", identity=0.0, combine=lambda a, b: (a**power + b**power) ** (1 / power), commutative=True,
                  draw=lambda rng: abs(rng.gauss(0, 3)))


def _clipped(bound: float) -> UserMonoid:
    """The largest that is at least a bound, which is what nothing has."""
    return monoid("at_least", identity=bound, combine=np.maximum, commutative=True,
                  draw=lambda rng: bound + abs(rng.gauss(0, 3)))


def _affine(_: float) -> UserMonoid:
    """The composition of functions a x + b: linear recurrences."""
    return monoid("affine", identity=(1.0, 0.0), combine=lambda f, g: (f[0] * g[0], g[0] * f[1] + g[1]),
                  parts=("a", "b"), draw=lambda rng: (rng.uniform(-1, 1), rng.gauss(0, 1)))


def _complex(_: float) -> UserMonoid:
    """The product of complex numbers."""
    return monoid("complex_product", identity=(1.0, 0.0), parts=("re", "im"), commutative=True,
                  combine=lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]),
                  draw=lambda rng: (rng.uniform(-1, 1), rng.uniform(-1, 1)))


def _first(missing: float) -> UserMonoid:
    """The first element that is not the number which stands for a missing one."""
    return monoid("first_present", identity=missing, combine=lambda a, b: np.where(np.equal(a, missing), b, a))


def _carried(_: float) -> UserMonoid:
    """The largest key with what came with it, the earlier one where keys are equal."""
    return monoid("carried", identity=(-1e300, 0.0), parts=("key", "load"),
                  combine=lambda a, b: (np.maximum(a[0], b[0]), np.where(b[0] > a[0], b[1], a[1])),
                  draw=lambda rng: (float(rng.randint(-3, 3)), rng.gauss(0, 1)))


_KINDS: Mapping[str, Make] = {"sum": _sum, "first": _first, "carried": _carried, "at_least": _clipped, "norm": _root,
                              "affine": _affine, "complex": _complex}
_NUMBERS = (2.0, 1.0, 4.0, 3.0)


@st.composite
def monoids(draw: st.DrawFn, commutative: bool | None = None) -> UserMonoid:
    """Reduction operators that obey their laws (`rf.monoid`): sums in other units, norms, compositions of linear
    functions, complex products, the first element that is present, the largest with what comes with it.

    Parameters
    ----------
    commutative
        only those that are, or are not; None: both.
    """
    kinds = [k for k in _KINDS if commutative is None or commutative != _made(k, 1.0).definition.ordered]
    return _made(draw(st.sampled_from(kinds)), draw(st.sampled_from(_NUMBERS)))


@cache
def _made(kind: str, number: float) -> UserMonoid:
    return _KINDS[kind](number)


@st.composite
def monoid_values(draw: st.DrawFn, m: UserMonoid) -> Any:
    """Values that a monoid of `monoids` is meant for: a number, or a tuple with one per part."""
    rng = random.Random(draw(st.integers(0, 2**16)))
    return rng.gauss(0, 3) if m.draw is None else m.draw(rng)
