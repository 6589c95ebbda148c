"""Is each condition of a rule needed? Draw samples where it is false, and look for one that breaks the law.

The other conditions hold in these samples; where none breaks the law, signs and bounds may fail with it (the logarithm
of a product needs one positive factor only because of the other). What no sample shows to be needed makes the rule
narrower than the mathematics, or only guides the search; either is worth knowing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from redfuser.rules.arithmetic import precision
from redfuser.rules.check import (
    DIGITS,
    condition_holds,
    conditions_hold,
    draw_sample,
    evaluator_of,
    has_value,
    law_holds,
    readable,
)
from redfuser.rules.language import Condition, Law
from redfuser.rules.real import RealEvaluator, Undefined

TRUTHS = frozenset({"free", "positive", "nonnegative", "nonpositive", "nonzero", "at_most", "equals"})
"""Kinds of conditions that a law may need to be true; the others only guide the search."""

SAMPLES = 300
"""Samples with the condition false, after which it counts as not needed."""

Role = Literal["needed", "undefined", "implied", "not needed"]


@dataclass(frozen=True)
class Need:
    """What one condition does for the truth of its law.

    role    "needed": `breaks` (variable -> value) violates the law; "undefined": where it is false no side has a value;
            "implied": never false where the others hold; "not needed": no sample of `tried` breaks the law
    """

    condition: Condition
    role: Role
    breaks: Mapping[str, Any] | None = None
    tried: int = 0

    @property
    def word(self) -> str:
        """What the condition does; a stream-free operand that the law itself does not need guides the search."""
        return "guides the search" if self.role == "not needed" and self.condition.kind == "free" else self.role

    def __str__(self) -> str:
        text = {"needed": f"needed: without it the law fails at {dict(self.breaks or {})}",
                "undefined": "where it is false neither side has a value",
                "implied": "never false where the other conditions hold",
                "not needed": f"not needed in {self.tried} samples where it is false"}
        return f"{self.condition}: {text[self.role]}"


def needed_conditions(law: Law, *, samples: int = SAMPLES, seed: int = 0) -> tuple[Need, ...]:
    """One `Need` for each condition of a law that can be false."""
    with precision(DIGITS):
        return tuple(_need(law, c, samples, seed) for c in law.conditions if c.kind in TRUTHS)


def _need(law: Law, condition: Condition, samples: int, seed: int) -> Need:
    alone = tuple(c for c in law.conditions if c != condition)
    found = _search(law, condition, alone, samples, seed)
    if found.role == "needed" or condition.kind == "free":
        return found
    together = tuple(c for c in alone if c.kind not in TRUTHS - {"free"})
    again = _search(law, condition, together, samples, seed)
    return again if again.role == "needed" else found


def _search(law: Law, condition: Condition, others: tuple[Condition, ...], samples: int, seed: int) -> Need:
    """Samples in which `others` hold and the condition does not."""
    rng = random.Random(f"{seed}:{law.name}:{condition}")
    rest = replace(law, conditions=others)
    tried = defined = 0
    for _ in range(samples * 6):
        if tried >= samples:
            break
        sample = draw_sample(rest, rng)
        evaluator = evaluator_of(sample, rng)
        if _false(condition, evaluator) and conditions_hold(rest, evaluator):
            tried += 1
            defined += has_value(law, evaluator)
            if not law_holds(rest, evaluator):
                return Need(condition, "needed", {k: readable(v) for k, v in sample.items()}, tried)
    return Need(condition, "not needed" if defined else "undefined" if tried else "implied", None, tried)


def _false(condition: Condition, evaluator: RealEvaluator) -> bool:
    try:
        return not condition_holds(condition, evaluator)
    except Undefined:
        return False
