"""What is said of a cascade: the verdict, the stages that start a pass of their own, the fewest passes there can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from redfuser.derivation.fusion import FusedCascade
from redfuser.ir import Cascade, names_read, refs

if TYPE_CHECKING:
    from redfuser.derivation.witness import Witness


class Verdict(StrEnum):
    """FUSIBLE: one pass. PARTLY: fewer passes than dependent stages, and shown that no fewer do. NOT_FUSIBLE: as many,
    and shown. NOT_FOUND: more than one, and fewer may do."""

    FUSIBLE = "FUSIBLE"
    PARTLY = "PARTLY"
    NOT_FUSIBLE = "NOT_FUSIBLE"
    NOT_FOUND = "NOT_FOUND"


@dataclass(frozen=True)
class StageReport:
    """Why a stage cannot be kept up to date in one pass.

    name      the stage
    reason    the condition that failed
    hint      what would unlock it
    evidence  what shows that no finite state can do it; "" when nothing does
    cascade   the cascade in question
    final     results that are known before the pass
    """

    name: str
    reason: str
    hint: str
    evidence: str = ""
    cascade: Cascade | None = field(default=None, repr=False, compare=False)
    final: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}. {self.hint}" + (f" ({self.evidence})" if self.evidence else "")

    @cached_property
    def unlocks(self) -> tuple[str, ...]:
        """Facts under which a finite state could follow the stage after all. Looked for on first use."""
        from redfuser.derivation.unlock import unlocking

        return unlocking(self.cascade, self.name, self.final) if self.evidence and self.cascade else ()

    @cached_property
    def witness(self) -> Witness | None:
        """Two prefixes that agree in all results so far and continue differently. Looked for on first use, where there
        is evidence."""
        from redfuser.derivation.witness import find_witness

        return find_witness(self.cascade, self.name, self.final) if self.evidence and self.cascade else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for json.dumps."""
        witness = self.witness.to_dict() if self.witness else None
        return {"stage": self.name, "reason": self.reason, "hint": self.hint, "evidence": self.evidence,
                "final": sorted(self.final), "unlocks": list(self.unlocks), "witness": witness}


def groups(fused: FusedCascade) -> tuple[tuple[str, ...], ...]:
    """The results that each pass makes final, pass after pass: the maximal groups that are computed together."""
    held = {name: i for i, names in enumerate(fused.passes) for name in names}
    final: dict[str, int] = {}
    for name, e in (*((d.name, d.expr) for d in fused.dependencies), *fused.epilogue):
        final[name] = max((max(held.get(n, 0), final.get(n, 0)) for n in refs(e)), default=0)
    results = [r.name for r in fused.cascade.reductions]
    return tuple(tuple(r for r in results if final.get(r) == i) for i in range(len(fused.passes)))


def fewest_passes(cascade: Cascade, stages: tuple[StageReport, ...]) -> int:
    """The fewest passes there can be, as far as evidence goes: 1 where no output shows that more are needed."""
    from redfuser.derivation.demand import demanded

    found = lower_bound(cascade, stages)
    return found if found <= 1 or demanded(cascade, frozenset(s.name for s in stages if s.evidence)) else 1


def lower_bound(cascade: Cascade, stages: tuple[StageReport, ...]) -> int:
    """The fewest passes in which all stages can be computed, as far as evidence goes.

    Evidence that a stage has no finite state while only `final` results are known means that one of the others that it
    reads must be complete before its pass.
    """
    if cascade.axis is None:
        return 0
    reads = _reads(cascade)
    shown = [s for s in stages if s.evidence]
    least: dict[str, int] = {}
    for r in cascade.reductions:
        earlier = reads[r.name]
        own = max((least[n] for n in earlier), default=1)
        for s in shown:
            if s.name == r.name:
                own = max(own, 1 + min((least[n] for n in earlier - s.final), default=1))
        least[r.name] = own
    return max(least.values(), default=0)


def _reads(cascade: Cascade) -> Mapping[str, frozenset[str]]:
    """The earlier results that each stage reads, directly or through others."""
    bodies = {r.name: r.body for r in cascade.reductions}
    definitions = bodies | {p.name: p.expr for p in cascade.producers}
    return {name: names_read([e], definitions) & bodies.keys() for name, e in bodies.items()}
