"""What a derivation prefers when several forms are equal: the weights of its cost model, as one record.

The default prefers numerically stable forms. Other tastes derive other forms of the same cascade, which are then
measured against each other (`redfuser.derivation.variants`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Taste:
    """Weights of the cost model, in units of one addition's half.

    unbounded_exp  an exp whose argument is not proven to be at most 0: it may overflow
    cancellation   a negative constant factor: a difference of computed values may cancel
    reduction      an accumulator
    body_factor    work inside a reduction against work outside of it
    reference      reading an earlier result; dear inside a reduction, it gives sums that need no correction
    lean           compute only those results that an output reads
    separate       every stage that depends on another has a pass of its own: nothing is corrected
    bounded        trust the bounds that the caller guarantees: an exp of small numbers cannot overflow
    """

    name: str = "stable"
    unbounded_exp: int = 3000
    cancellation: int = 1000
    reduction: int = 40
    body_factor: int = 4
    reference: int = 1
    lean: bool = False
    separate: bool = False
    bounded: bool = False


STABLE = Taste()
BASE_SUMS = Taste("base sums", unbounded_exp=0, cancellation=0, body_factor=64, reference=50, lean=True)
"""Sums of the data alone (sum x, sum x^2, sum exp x): nothing to correct, but large numbers that may cancel."""
FEW_OPERATIONS = Taste("few operations", unbounded_exp=0, cancellation=0, lean=True)
"""Operation counts alone."""
FEW_ACCUMULATORS = Taste("few accumulators", reduction=400, lean=True)
BOUNDED = Taste("bounded exponentials", cancellation=0, reference=50, lean=True, bounded=True)
"""Sums of exponentials without a running maximum, where the caller guarantees that the exponents are small."""
LIGHT_BODIES = Taste("light bodies", body_factor=64, lean=True)
TASTES = (STABLE, BASE_SUMS, FEW_OPERATIONS, FEW_ACCUMULATORS, LIGHT_BODIES)
