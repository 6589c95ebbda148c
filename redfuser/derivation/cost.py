"""What the extraction prefers. Costs are integers; a forbidden node adds `FORBIDDEN`, so sums stay comparable.

Weights are heuristics for numerical stability and speed: an exp whose argument is not proven <= 0 may overflow, a
difference of computed quantities may cancel, and a reduction costs its body once per element.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from redfuser.derivation.taste import STABLE, Taste
from redfuser.rules.encoding import REDUCTION_NODES, VARIES
from redfuser.rules.language import NEW, STREAM
from redfuser.rules.theory import COSTS, FORBIDDEN

NEW_ACCUMULATOR = 80
_WEIGHTS = {"Num": 1, "Leaf": 1, "Cnt": 1, "Abs": 1, **COSTS}
_PLAIN = {head: weight for head, weight in _WEIGHTS.items()
          if head not in ("Num", "Leaf", "Add", "Exp", "Exp2", *REDUCTION_NODES)}
"""Weights that depend on nothing else: an extraction asks for most nodes several times."""


class Cost(ABC):
    """Base cost model: weights of operations, penalties for instability, `reduction` decides what a reduction costs."""

    def __init__(self, leaf: Callable[[str], int] = lambda _: 1, taste: Taste = STABLE) -> None:
        self.leaf = leaf
        self.taste = taste

    def fold(self, head: str, own: int, children: Sequence[int]) -> int:
        """Total of a term: a reduction pays for its body once per element. Never less than 1: a term that is part of an
        equal one must not cost more than that, or the search for the cheapest would not end."""
        total = own + (self.taste.body_factor * sum(children) if head in REDUCTION_NODES else sum(children))
        return total if total > 1 else 1

    def node(self, egraph: Any, head: str, args: Sequence[Any]) -> int:
        """Cost of one node without its operands."""
        plain = _PLAIN.get(head)
        if plain is not None:
            return plain
        if head in REDUCTION_NODES:
            return self.reduction(egraph, head, args)
        if head == "Leaf":
            return self.leaf(egraph.value_to_string(args[0]))
        weight = _WEIGHTS.get(head, 3)
        if self._may_overflow(egraph, head, args):
            weight += self.taste.unbounded_exp
        elif head == "Num" and Fraction(egraph.value_to_bigrat(args[0])) < 0:
            weight += self.taste.cancellation
        elif head == "Add" and _is_difference_of_leaves(egraph, *args):
            weight -= self.taste.cancellation
        return weight

    def _may_overflow(self, egraph: Any, head: str, args: Sequence[Any]) -> bool:
        """An exp whose argument is not proven to be at most 0, nor known to be small where such bounds are trusted."""
        harmless = ("npos", "tame") if self.taste.bounded else ("npos",)
        return head in ("Exp", "Exp2") and all(egraph.lookup_function(r, [args[0]]) is None for r in harmless)

    @abstractmethod
    def reduction(self, egraph: Any, head: str, args: Sequence[Any]) -> int:
        """Cost of a reduction node."""


def _is_difference_of_leaves(egraph: Any, a: Any, b: Any) -> bool:
    def known(relation: str, x: Any) -> bool:
        return egraph.lookup_function(relation, [x]) is not None

    return (known("negleaf", a) and known("leafy", b)) or (known("negleaf", b) and known("leafy", a))


class CarefulCost(Cost):
    """An accumulator must not hold an exp that can overflow, unless the caller's own reductions hold the same one: the
    node is `given`. Only tastes that price such exponentials care."""

    def node(self, egraph: Any, head: str, args: Sequence[Any]) -> int:
        """Like the base model, with such an exp forbidden."""
        weight = super().node(egraph, head, args)
        careful = self.taste.unbounded_exp > 0
        if careful and self._may_overflow(egraph, head, args) and self._in_reduction(egraph, args[0]):
            value = egraph.lookup_function(head, args)
            if value is None or egraph.lookup_function("given", [value]) is None:
                return FORBIDDEN
        return weight

    def _in_reduction(self, egraph: Any, argument: Any) -> bool:
        bits = egraph.lookup_function("fv", [argument])
        return bits is None or bool(egraph.value_to_i64(bits) & VARIES[STREAM])


class AccumulatorCost(CarefulCost):
    """Choosing accumulators and the epilogue: a reduction is expensive, work inside it more so."""

    def reduction(self, egraph: Any, head: str, args: Sequence[Any]) -> int:
        return self.taste.reduction


class OtherAccumulatorCost(AccumulatorCost):
    """Choosing other accumulators than those whose bodies are `refused`."""

    def reduction(self, egraph: Any, head: str, args: Sequence[Any]) -> int:
        refused = egraph.lookup_function("refused", [args[-1]]) is not None
        return FORBIDDEN if refused else super().reduction(egraph, head, args)


class CorrectionCost(Cost):
    """Choosing a correction: no reduction over data may remain."""

    def reduction(self, egraph: Any, head: str, args: Sequence[Any]) -> int:
        return FORBIDDEN


class ClosureCost(CarefulCost):
    """Choosing a correction that may ask for new accumulators: reductions free of new values are allowed."""

    def reduction(self, egraph: Any, head: str, args: Sequence[Any]) -> int:
        value = egraph.lookup_function(head, args)
        bits = None if value is None else egraph.lookup_function("fv", [value])
        return FORBIDDEN if bits is None or egraph.value_to_i64(bits) & VARIES[NEW] else NEW_ACCUMULATOR
