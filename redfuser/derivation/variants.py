"""Several fused forms of one cascade, each derived and certified like the first.

One cascade has many equal incremental forms: sums telescoped or written over sums of the data alone, shifted by a pivot
or not, with or without a running maximum, stage by stage. They differ in cost, accuracy, state and passes. A form comes
from a derivation with other settings: another taste (`redfuser.derivation.taste`), without the pivot, or with every
dependent stage in a pass of its own. Nothing here is done unless somebody asks for alternatives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from redfuser.derivation.derive import Derivation, derive_with
from redfuser.derivation.fusion import FusedCascade
from redfuser.derivation.pivot import pivot
from redfuser.derivation.quotients import quotients_inside
from redfuser.derivation.taste import BASE_SUMS, BOUNDED, STABLE, TASTES, Taste
from redfuser.errors import RedfuserError
from redfuser.ir import Ref, rewrite

MOST_NODES = 40_000
"""E-graph nodes after which no further form is searched: the same forms on every machine."""


@dataclass(frozen=True)
class Variant:
    """One fused form: how it was obtained, in words, and its derivation with the certificate."""

    name: str
    derivation: Derivation

    @property
    def fused(self) -> FusedCascade:
        """The executable form."""
        return self.derivation.fused

    def as_form_of(self, first: Derivation) -> Derivation:
        """The derivation of this form with the verdict and the refusals of the first one: they are about the cascade,
        and a form found under other settings says nothing of them."""
        return replace(self.derivation, verdict=first.verdict, stages=first.stages)


def variants(first: Derivation) -> tuple[Variant, ...]:
    """Forms of the cascade of `first`, that derivation itself first; no two have the same loop.

    A form whose certificate does not hold is left out, and so is one with more passes than `first`, except the form
    that runs stage by stage.
    """
    found = [Variant(STABLE.name, first)]
    if first.cascade.axis is None:
        return tuple(found)
    loops = {loop_of(first.fused)}
    nodes = 0
    for name, taste, shifted in _tries(first):
        if nodes > MOST_NODES and not taste.separate:
            continue
        try:
            cascade = quotients_inside(first.cascade) if taste.lean else first.cascade
            other = derive_with(cascade, replace(first.settings, taste=taste, pivot=shifted))
        except RedfuserError:  # a form that cannot be certified is no form
            continue
        nodes += sum(s.nodes for s in other.timeline)
        worse = other.passes > first.passes and not taste.separate
        if worse or not other.certificate.valid or loop_of(other.fused) in loops:
            continue
        loops.add(loop_of(other.fused))
        found.append(Variant(name, other))
    return tuple(found)


def _tries(first: Derivation) -> Iterator[tuple[str, Taste, bool]]:
    """What to try, most promising first: name, taste, pivot."""
    shifts = first.settings.pivot and pivot(first.cascade) is not None
    bounded = (BOUNDED,) if first.cascade.assumptions else ()
    order = (BASE_SUMS, *bounded, *(t for t in TASTES if t not in (BASE_SUMS, STABLE)))
    yield "stage by stage", replace(STABLE, name="stage by stage", separate=True), False
    for taste in order[:1]:
        if shifts:
            yield f"{taste.name}, pivot", taste, True
        yield taste.name, taste, False
    if shifts:
        yield f"{STABLE.name}, no pivot", STABLE, False
    for taste in order[1:]:
        if shifts:
            yield f"{taste.name}, pivot", taste, True
        yield taste.name, taste, False


def loop_of(fused: FusedCascade) -> frozenset[str]:
    """What the loop computes, whatever its accumulators are called."""
    state = {a.name for a in fused.accumulators} | {d.name for d in fused.dependencies}
    bodies = {a.name: a.body for a in fused.accumulators}
    values = {d.name: d.expr for d in fused.dependencies}

    def spelled(name: str, depth: int = 0) -> str:
        e = bodies.get(name, values.get(name))
        if e is None or depth > len(state):
            return name
        return str(rewrite(e, lambda x: Ref(f"<{spelled(x.name, depth + 1)}>", x.axes)
                           if isinstance(x, Ref) and x.name in state else None))

    position = {n: i for i, p in enumerate(fused.passes) for n in p}
    corrected = {name for name, _ in fused.corrections}
    return frozenset(f"{position.get(a.name)} {a.monoid} {spelled(a.name)} {a.name in corrected}"
                     for a in fused.accumulators)
