"""Where the data of a cascade may lie under the caller's assumptions: for everything that draws random streams.

A bound of a unit is met by construction, any other condition by drawing again. A search for evidence that looked
elsewhere would find obstacles that never occur.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from redfuser.derivation.assumptions import element_conditions, final_conditions, known_intervals
from redfuser.derivation.interval import ends
from redfuser.ir import Expr
from redfuser.rules.real import RealEvaluator, Undefined

if TYPE_CHECKING:
    from redfuser.derivation.skeleton import Skeleton

MOST_DRAWS = 60
"""Draws before a condition counts as one that cannot be met."""
MARGIN = 0.05
"""Values that are moved inside a bound keep this distance: a strict bound is met, and a quotient stays tame."""


class Domain:
    """The conditions of a skeleton. `elements`: on units; `final`: on results of the finished row."""

    def __init__(self, skeleton: Skeleton) -> None:
        self.skeleton = skeleton
        self.elements = element_conditions(skeleton)
        self.final = final_conditions(skeleton)

    @cached_property
    def _intervals(self) -> Callable[[Expr], tuple[float, float]]:
        if not self.elements:
            return lambda _: (-np.inf, np.inf)
        found = known_intervals(self.skeleton)

        def floats(e: Expr) -> tuple[float, float]:
            low, high = ends(found(e))
            return float(low), float(high)

        return floats

    def moved(self, e: Expr, value: Any, quantile: Callable[[], Any]) -> Any:
        """A value of the unit `e` (a number or an array), moved inside the bounds of the unit where it lies outside.

        `quantile` draws numbers in (0, 1): between two bounds any value is as good as any other.
        """
        low, high = self._intervals(e)
        if low == -np.inf and high == np.inf:
            return value
        if low > -np.inf and high < np.inf:
            other = low + (high - low) * quantile()
        elif high == np.inf:
            other = low + abs(value - low) + MARGIN
        else:
            other = high - abs(value - high) - MARGIN
        outside = (value <= low) | (value >= high)
        if isinstance(value, np.ndarray):
            return np.where(outside, other, value)
        return other if outside else value

    def violations(self, lookup: Callable[[Expr], Any], length: int) -> list[bool]:
        """Which elements of a stream break a condition; all of them when one that is free of the stream does."""
        evaluate = RealEvaluator(lookup, length)
        broken = [False] * length
        for condition in self.elements:
            try:
                holds = evaluate.elements(evaluate(condition))
            except Undefined:
                holds = (False,) * length
            broken = [b or not h for b, h in zip(broken, holds, strict=True)]
        return broken

    def admits(self, lookup: Callable[[Expr], Any], length: int) -> bool:
        """Whether a finished row meets all conditions; `lookup` knows its units and results."""
        if not self.elements and not self.final:
            return True
        if any(self.violations(lookup, length)):
            return False
        evaluate = RealEvaluator(lookup, length)
        try:
            return all(all(evaluate.elements(evaluate(c))) for c in self.final)
        except Undefined:
            return False


def mixed(old: Mapping[str, Any], new: Mapping[str, Any], broken: list[bool]) -> dict[str, Any]:
    """`old` values of units with the broken elements replaced by `new` ones; all of them when all are broken."""
    if all(broken):
        return dict(new)
    return {k: tuple(new[k][i] if b else v[i] for i, b in enumerate(broken)) if isinstance(v, tuple) else v
            for k, v in old.items()}
