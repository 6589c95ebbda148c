"""One cascade with the rules of a file and without: what was found, what it took, and what changed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

import redfuser as rf
from redfuser.derivation import Derivation, derive_cascade
from redfuser.derivation.derive import settings_for
from redfuser.derivation.engine import engine_for
from redfuser.errors import CheckFailed
from redfuser.rules import RuleSet
from redfuser.testing.assertions import assert_close
from redfuser.testing.targets import has_compiler
from redfuser.zoo import Entry
from redfuser.zoo.ablation import LIMITS, Form, loss_of
from redfuser.zoo.data import arguments

Change = Literal["same", "gain", "loss"]
STREAM_LENGTH = 257
"""Elements of the stream that the kernel of a changed entry runs on."""


@dataclass(frozen=True)
class Measured:
    """What the derivation of an entry found, and what it took.

    certain       the certificate is valid
    accumulators, operations
                  of the fused form; counts and pivots are no accumulators here
    nodes, rounds e-graph nodes and rounds of all saturations together
    seconds       processor time
    matched       names of the rules of the file that matched anything
    problem       the exception, "" when there was none
    """

    verdict: str = ""
    passes: int = 0
    certain: bool = False
    accumulators: int = 0
    operations: int = 0
    nodes: int = 0
    rounds: int = 0
    seconds: float = 0.0
    matched: tuple[str, ...] = ()
    problem: str = ""

    @property
    def form(self) -> Form:
        """What is compared."""
        return Form(self.passes, rf.Verdict(self.verdict), self.certain, self.accumulators, self.operations)

    def __str__(self) -> str:
        if self.problem:
            return self.problem
        return f"{self.verdict} ({self.passes}), {self.accumulators} accumulators, {self.operations} operations"


@dataclass(frozen=True)
class Comparison:
    """An entry without and with the rules. `kernel`: how the compiled function differs from its definition, "" when it
    does not; None when it was not run (nothing changed, or no compiler)."""

    entry: str
    before: Measured
    after: Measured
    kernel: str | None = None

    @property
    def change(self) -> Change:
        """Whether the rules made it better or worse."""
        if self.worse:
            return "loss"
        return "gain" if self.better else "same"

    @property
    def better(self) -> str:
        """What became better, in words; "" for nothing."""
        if self.before.problem or self.after.problem:
            return "no longer fails" if self.before.problem and not self.after.problem else ""
        found = loss_of("", self.entry, self.after.form, self.before.form)
        return "" if found is None else in_words(found.kind, found.after, found.before)

    @property
    def worse(self) -> str:
        """What became worse, in words; "" for nothing."""
        if self.kernel:
            return f"the kernel is wrong: {self.kernel}"
        if self.after.problem:
            return "" if self.before.problem else self.after.problem
        if self.before.problem:
            return ""
        found = loss_of("", self.entry, self.before.form, self.after.form)
        return "" if found is None else in_words(found.kind, found.before, found.after)

    @property
    def fused(self) -> bool:
        """Whether it is FUSIBLE only with the rules."""
        return self.after.verdict == rf.Verdict.FUSIBLE != self.before.verdict

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {**asdict(self), "change": self.change, "better": self.better, "worse": self.worse}

    @classmethod
    def of_dict(cls, data: Mapping[str, Any]) -> Comparison:
        """From what `to_dict` gives."""
        before, after = (Measured(**{**data[k], "matched": tuple(data[k]["matched"])}) for k in ("before", "after"))
        return cls(data["entry"], before, after, data["kernel"])


def in_words(kind: str, first: str, second: str) -> str:
    """A change in words; of numbers, the numbers."""
    if kind in ("accumulators", "operations"):
        return f"{kind}: {first.split()[0]} to {second.split()[0]}"
    return f"{first} becomes {second}"


def compare(entry: Entry, rules: RuleSet, own: frozenset[str], allow: Sequence[str] = ()) -> Comparison:
    """Derive an entry with the default rules and with `rules`; where the form changed, run the kernel too.

    Parameters
    ----------
    own
        names of the rules that `rules` has and the default has not.
    allow
        groups of approximate rules that may be used. What rests on them is not compared with the definition.
    """
    before, plain = _measure(entry, None, own)
    after, found = _measure(entry, rules, own, allow)
    changed = found is not None and (plain is None or found.fused != plain.fused) and not found.approximate
    return Comparison(entry.name, before, after, kernel_error(entry, rules) if changed and has_compiler() else None)


def _measure(entry: Entry, rules: RuleSet | None, own: frozenset[str],
             allow: Sequence[str] = ()) -> tuple[Measured, Derivation | None]:
    start = time.process_time()
    try:
        engine_for(settings_for(rules, allow).rules)  # once per rule set: not a cost of this entry
        start = time.process_time()
        d = derive_cascade(entry.cascade(), rules=rules, allow=allow, limits=LIMITS)
    except Exception as error:  # a rule may make a derivation fail: a finding, and the other entries still count
        return Measured(seconds=time.process_time() - start, problem=f"{type(error).__name__}: {error}"), None
    took = time.process_time() - start
    form = Form.of(d)
    return Measured(str(d.verdict), form.passes, form.certain, form.accumulators, form.operations,
                    sum(s.nodes for s in d.timeline), sum(s.iterations for s in d.timeline), took,
                    tuple(sorted(own & d.matched))), d


def kernel_error(entry: Entry, rules: RuleSet) -> str:
    """How the compiled function differs from its definition on data of the entry; "" when it does not."""
    given = arguments(entry, entry.hard[0], seed=0, stream=STREAM_LENGTH)
    try:
        fused = rf.fuse(entry.fn, rules=rules)
        with np.errstate(all="ignore"):
            got = fused(**given)
            assert_close(got, entry.fn, *given.values())
    except CheckFailed as error:
        return str(error)
    except Exception as error:  # as above
        return f"{type(error).__name__}: {error}"
    return "" if fused.stats.kernel_runs else "no kernel ran"
