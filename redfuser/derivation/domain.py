"""Where the data of a cascade may lie, by their dtypes and the caller's assumptions: for everything that draws streams.

A bound of a unit is met by construction, any other condition by drawing again. A search for evidence that looked
elsewhere would find obstacles that never occur, and the algebra, which knows the bounds, would be refuted there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from redfuser.derivation.assumptions import element_conditions, final_conditions, known_intervals
from redfuser.derivation.interval import Intervals, ends
from redfuser.ir import Cast, Const, Expr, Idx, Load, Op, Reduce, Ref, Size
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.ops import OPS
from redfuser.rules.real import RealEvaluator, Undefined

if TYPE_CHECKING:
    from redfuser.derivation.skeleton import Skeleton

MOST_DRAWS = 60
"""Draws before a condition counts as one that cannot be met."""
MARGIN = 0.05
"""Values that are moved inside a bound keep this distance: a strict bound is met, and a quotient stays tame."""
INTEGERS = 30.0
"""Integers are drawn this much wider than reals, to be different."""
_WHOLE = frozenset({"floor", "ceil", "rint", "sign", "idiv"})
"""Operations that give whole numbers, and those that give them of whole numbers."""
_KEEP_WHOLE = frozenset({"add", "sub", "mul", "max", "min", "neg", "abs", "imod"})


class Domain:
    """The conditions of a skeleton. `elements`: on units; `final`: on results of the finished row."""

    def __init__(self, skeleton: Skeleton) -> None:
        self.skeleton = skeleton
        self.elements = element_conditions(skeleton)
        self.final = final_conditions(skeleton)
        self.dtypes = {t.name: t.dtype for t in skeleton.cascade.tensors}
        self._whole: dict[Expr, bool] = {}

    @cached_property
    def _intervals(self) -> Intervals:
        return known_intervals(self.skeleton)

    def bounds(self, e: Expr) -> tuple[float, float]:
        """The closed interval of a unit, infinite where nothing is known."""
        low, high = ends(self._intervals(e))
        return float(low), float(high)

    def whole(self, e: Expr) -> bool:
        """Whether a unit has integer values, whatever its dtype is."""
        found = self._whole.get(e)
        if found is None:
            found = self._whole[e] = self._is_whole(e)
        return found

    def _is_whole(self, e: Expr) -> bool:
        if isinstance(e, (Idx, Size)):
            return True
        if isinstance(e, Const):
            return float(e.value).is_integer()
        if isinstance(e, Load):
            return numpy_dtype(self.dtypes.get(e.tensor, "float64")).kind in "iub"
        if isinstance(e, Cast):
            return numpy_dtype(e.dtype).kind in "iub" or self.whole(e.body)
        if isinstance(e, Ref):
            return e.name in self.skeleton.producers and self.whole(self.skeleton.producers[e.name].expr)
        if isinstance(e, Reduce):
            return e.monoid in ("any", "all") or (e.monoid in ("sum", "prod", "max", "min") and self.whole(e.body))
        if not isinstance(e, Op):
            return False
        return (e.fn in _WHOLE or OPS[e.fn].kind in ("compare", "logic")
                or (e.fn == "select" and all(map(self.whole, e.args[1:])))
                or (e.fn in _KEEP_WHOLE and all(map(self.whole, e.args))))

    def position(self, e: Expr) -> bool:
        """Whether a unit is the position along the stream."""
        return (isinstance(e, Idx) and e.axis == self.skeleton.cascade.axis) or (
            isinstance(e, Cast) and e.dtype != "bool" and self.position(e.body))

    def inside(self, e: Expr, number: float) -> float:
        """A number as a value of the unit `e`: rounded for integers, mirrored at a bound that it lies beyond."""
        low, high = self.bounds(e)
        if self.whole(e):
            number = round(number)
        mirrored = 2 * low - number if number < low else 2 * high - number if number > high else number
        return min(max(mirrored, low), high)

    def possible(self, lookup: Callable[[Expr], Any], length: int) -> bool:
        """Whether the units of a stream lie within their bounds, integers where they are integers."""
        evaluate = RealEvaluator(lookup, length)
        for e in self.skeleton.units.values():
            low, high = self.bounds(e)
            whole = self.whole(e)
            for v in evaluate.elements(lookup(self.skeleton.unit(e))):
                if not low <= v <= high or (whole and v != round(v)):
                    return False
        return True

    def moved(self, e: Expr, value: Any, quantile: Callable[[], Any]) -> Any:
        """A value of the unit `e` (a number or an array), moved inside the bounds of the unit where it lies outside.

        `quantile` draws numbers in (0, 1): between two bounds any value is as good as any other. Integers, which are
        given as such, may lie on a bound.
        """
        low, high = self.bounds(e)
        if low == -np.inf and high == np.inf:
            return value
        if low > -np.inf and high < np.inf:
            other = low + (high - low) * quantile()
        elif high == np.inf:
            other = low + abs(value - low) + MARGIN
        else:
            other = high - abs(value - high) - MARGIN
        whole = self.whole(e)
        outside = (value < low) | (value > high) if whole else (value <= low) | (value >= high)
        if isinstance(value, np.ndarray):
            return np.where(outside, np.rint(other) if whole else other, value)
        return (round(other) if whole else other) if outside else value

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
