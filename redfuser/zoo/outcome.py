"""What the derivation makes of an entry, beside what it should."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from typing import Any

from redfuser.derivation import FusedCascade, Verdict, derive_cascade
from redfuser.ir.ops import PIVOT
from redfuser.zoo.data import contract_error
from redfuser.zoo.entry import Entry


@dataclass(frozen=True)
class Outcome:
    """The findings for one entry.

    found, accumulators, passes   what was derived (None, 0, 0 when the derivation raised)
    milliseconds                  wall time of the derivation
    certificate                   whether the random check of the fused form succeeded
    proved                        whether the symbolic proof succeeded; None when it was not asked for
    proof_milliseconds            time of that proof
    errors                        data set -> error over the contract's bound (up to 1 is within the contract)
    refusals                      why stages start a pass of their own
    problem                       the exception, "" when there was none
    """

    entry: Entry
    found: Verdict | None = None
    accumulators: int = 0
    passes: int = 0
    milliseconds: float = 0.0
    certificate: bool = False
    proved: bool | None = None
    proof_milliseconds: float = 0.0
    errors: dict[str, float] = field(default_factory=dict)
    refusals: tuple[str, ...] = ()
    problem: str = ""

    @property
    def right(self) -> bool:
        """Verdict and number of passes are those of the label, and not fewer accumulators than it calls the least."""
        e = self.entry
        return (self.found, self.passes) == (e.verdict, e.passes) and self.accumulators >= e.accumulators

    @property
    def accurate(self) -> bool:
        """Errors on hard data are within the numerical contract."""
        return all(e <= 1 for e in self.errors.values())

    @property
    def minimal(self) -> bool:
        """The label is met with no accumulator more than needed."""
        return self.right and self.accumulators == self.entry.accumulators

    @property
    def unsound(self) -> bool:
        """Something is claimed that mathematics rules out: fewer passes than needed."""
        return self.found is not None and self.passes < self.entry.passes

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        e = self.entry
        found = {k: v for k, v in asdict(self).items() if k != "entry"}
        expected = {"verdict": e.verdict.value, "accumulators": e.accumulators, "passes": e.passes}
        return {"name": e.name, "family": e.family, "source": e.source, "reason": e.reason, "expected": expected,
                **found, "right": self.right, "minimal": self.minimal, "unsound": self.unsound,
                "accurate": self.accurate}


def carried(fused: FusedCascade) -> int:
    """Number of accumulators, counts and pivots aside."""
    return sum(not a.counts and a.monoid != PIVOT for a in fused.accumulators)


def examine(entry: Entry, *, prove: bool = False, data: bool = True) -> Outcome:
    """Derive one entry; `prove`: also symbolically; `data`: also run the fused form on hard data."""
    try:
        parts = entry.partition()
        chained = entry.cascade(parts)
        derived = derive_cascade(chained)
        fused = derived.fused
        errors = {name: contract_error(entry, parts, chained, fused, name) for name in entry.hard if data}
        start = time.perf_counter()
        proved = derived.certificate.prove().valid if prove else None
        took = (time.perf_counter() - start) * 1e3 if prove else 0.0
        return Outcome(entry, derived.verdict, carried(fused), len(fused.passes), derived.milliseconds,
                       derived.certificate.valid, proved, took, errors, tuple(map(str, derived.stages)))
    except Exception as error:  # a defect of the derivation is a finding; the other entries still count
        return Outcome(entry, problem=f"{type(error).__name__}: {error}")


def examine_all(entries: Sequence[Entry], *, jobs: int = 1, prove: bool = False) -> Iterator[Outcome]:
    """The outcomes in the order of the entries, each as soon as it and those before it are known."""
    if jobs <= 1:
        yield from (examine(e, prove=prove) for e in entries)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(partial(_examine_named, prove=prove), [e.name for e in entries])


def _examine_named(name: str, prove: bool) -> Outcome:
    """In a process of its own: functions travel by name."""
    from redfuser.zoo.catalogue import ENTRIES

    return examine(ENTRIES[name], prove=prove)
