"""`check_monoid`: whether a reduction operator of a user obeys the laws that fusion rests on."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redfuser.derivation import UserMonoid
from redfuser.derivation.laws import ROUNDED, Draw, any_numbers, broken_law, numbers
from redfuser.derivation.monoid import define
from redfuser.errors import ArgumentError
from redfuser.ir import PartsMonoid
from redfuser.ir.monoids import VALUE

SAMPLES = 200
STREAMS = 30
"""Streams that are reduced from left to right and as a random tree."""
LONGEST = 40


@dataclass(frozen=True)
class MonoidCheck:
    """Result of `check_monoid`.

    law             the law that is broken, "" when there is none
    counterexample  the values that break it, one tuple of numbers each
    samples         how many triples of values gave every law a value
    text            all of it in words
    """

    ok: bool
    law: str
    counterexample: tuple[Any, ...]
    samples: int
    text: str

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        return self.text


def check_monoid(monoid_or_combine: UserMonoid | Callable[[Any, Any], Any], *, identity: Any = None,
                 parts: Sequence[str] = (VALUE,), commutative: bool = False, draw: Draw | None = None,
                 samples: int = SAMPLES, seed: int = 0) -> MonoidCheck:
    """Sample the laws of a reduction operator: associative, its identity neutral on both sides, commutative if stated.

    Over the reals (50 digits) and in float64. Streams are then reduced from left to right and as random trees, which
    must agree up to rounding. A counterexample is made of simple numbers where these break the law too.

    Parameters
    ----------
    monoid_or_combine
        what `rf.monoid` made, or the function of two values that is to become one; then with the arguments of
        `rf.monoid`: `identity`, `parts`, `commutative`.
    draw
        a function of a `random.Random` that returns a value, for operators that are defined for some numbers only; by
        default that of the monoid, or any numbers.
    samples, seed
        how many triples of values are tried, and which.

    Raises
    ------
    ArgumentError
        for anything else, a function without `identity`, or values of `draw` that are no numbers.
    TraceError
        when `combine` cannot be recorded; see `rf.monoid`.
    """
    if isinstance(monoid_or_combine, UserMonoid):
        definition, draw = monoid_or_combine.definition, draw or monoid_or_combine.draw
    elif callable(monoid_or_combine) and identity is not None:
        name = getattr(monoid_or_combine, "__name__", "combine")
        definition = define(name if name.isidentifier() else "combine", identity, monoid_or_combine, parts, commutative)
    else:
        raise ArgumentError("check_monoid takes what rf.monoid made, or a function of two values with identity=, not "
                            f"{monoid_or_combine!r}")
    broken, done = broken_law(definition, draw, samples, seed)
    if broken is not None:
        return MonoidCheck(False, broken.law, broken.counterexample, done, str(broken))
    stream = _ungrouped(definition, draw or any_numbers(len(definition.parts)), random.Random(seed))
    if stream:
        text = (f"monoid {definition.label}: rounding grows with the number of elements; from the left and as a tree "
                f"in float64 it gives different results of {stream}")
        return MonoidCheck(False, "grouping", tuple(stream), done, text)
    return MonoidCheck(True, "", (), done, f"monoid {definition.label}: ok, {done} samples of every law, {STREAMS} "
                                           "streams reduced in two groupings")


def _ungrouped(m: PartsMonoid, draw: Draw, rng: random.Random) -> list[tuple[float, ...]]:
    """A stream whose results from left to right and as a random tree differ; empty when there is none. Streams that
    leave the range of float64 decide nothing."""
    for _ in range(STREAMS):
        values = [numbers(m.label, "draw", draw(rng)) for _ in range(rng.randint(1, LONGEST))]
        states = [m.value(*map(np.float64, v), key=np.float64) for v in values]
        folded = m.nothing((), np.float64)
        largest = 1.0
        for s in states:
            folded = m.combined(folded, s)
            largest = max(largest, *(abs(float(folded[p])) for p in m.parts), *(abs(float(s[p])) for p in m.parts))
        tree = _tree(m, states, rng)
        pairs = [(float(folded[p]), float(tree[p])) for p in m.parts]
        if largest < 1e100 and any(not abs(a - b) <= ROUNDED * largest for a, b in pairs if a != b):
            return values
    return []


def _tree(m: PartsMonoid, states: Sequence[Any], rng: random.Random) -> Any:
    """Neighbours combined in a random order."""
    left = list(states)
    while len(left) > 1:
        i = rng.randrange(len(left) - 1)
        left[i : i + 2] = [m.combined(left[i], left[i + 1])]
    return left[0]
