"""One random program under test: derive, certify, run, and make what fails small."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from redfuser.derivation import Derivation, Limits, derive_cascade
from redfuser.derivation.derive import dependent_stages
from redfuser.ir import Cascade, check_cascade, refs
from redfuser.testing.check import check_fusion
from redfuser.testing.grammar import random_cascade, used_only
from redfuser.testing.result import FusionCheck
from redfuser.testing.snippet import GIVEN_FORM
from redfuser.testing.text import IMPORTS, cascade_text

LIMITS = Limits(seconds=120.0)
"""Wall time must not decide a verdict: nodes and iterations bind first."""

INPUTS = 6
"""Inputs that each program runs on."""

PATIENCE = 60.0
"""Seconds after which a failing program is reported as small as it is by then."""

DERIVED = "from redfuser.derivation import derive_cascade\nfused = derive_cascade(c).fused"
"""The lines of a snippet that make the form under test."""

Derive = Callable[[Cascade], Derivation]


@dataclass(frozen=True)
class Finding:
    """A program that went wrong.

    kind  "unsound": the algebra is wrong; "inaccurate": right over the reals, but rounding exceeds the contract;
          "exception"
    text  what happened, with the code to repeat it
    """

    program: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"program {self.program}: {self.kind}\n{self.text}"


@dataclass(frozen=True)
class Outcome:
    """What came out of one program; `verdict` is empty when the derivation raised."""

    program: int
    stages: int = 0
    verdict: str = ""
    milliseconds: float = 0.0
    undecided: bool = False
    finding: Finding | None = None


def derive(cascade: Cascade) -> Derivation:
    """The derivation under limits that do not depend on the speed of the machine."""
    return derive_cascade(cascade, limits=LIMITS)


def try_program(program: int, kinds: Sequence[str], inputs: int, targets: Sequence[str],
                derive: Derive = derive, minimise: bool = True) -> Outcome:
    """Derive and check one program. Whatever it raises becomes a finding. `minimise`: also one of rounding alone, which
    takes as long as a hundred programs."""
    cascade = random_cascade(program)
    first = program * inputs % len(kinds)
    turn = [kinds[(first + k) % len(kinds)] for k in range(inputs)]
    found, finding = _examine(cascade, program, turn, targets, derive)
    if finding is not None and (minimise or finding.kind != "inaccurate"):
        finding = _smallest(cascade, finding, turn, targets, derive)
    if found is None:
        return Outcome(program, finding=finding)
    undecided = not found.certificate.valid and not found.certificate.refuted
    return Outcome(program, dependent_stages(cascade), str(found.verdict), found.milliseconds, undecided, finding)


def _examine(cascade: Cascade, program: int, kinds: Sequence[str], targets: Sequence[str], derive: Derive,
             shrink: bool = False) -> tuple[Derivation | None, Finding | None]:
    """The derivation of a program, and what is wrong with it."""
    code = f"{IMPORTS}c = {cascade_text(cascade)}"
    found: Derivation | None = None
    try:
        found = derive(cascade)
        if found.certificate.refuted:
            return found, Finding(program, "unsound", f"{found.certificate.steps}\n{code}\n{found.fused}")
        check = check_fusion(cascade, seed=program, trials=len(kinds), kinds=kinds, targets=targets,
                             fused=found.fused, thorough=False, shrink=shrink)
    except Exception:
        return found, Finding(program, "exception", f"{traceback.format_exc()}\n{code}")
    return found, None if check.ok else _finding(program, check)


def _finding(program: int, check: FusionCheck) -> Finding:
    wrong = check.counterexample
    assert wrong is not None
    return Finding(program, wrong.kind, str(wrong).replace(GIVEN_FORM, DERIVED))


def _smallest(cascade: Cascade, finding: Finding, kinds: Sequence[str], targets: Sequence[str],
              derive: Derive) -> Finding:
    """The finding on the smallest program that goes wrong in the same way, with a minimised input."""
    end = time.perf_counter() + PATIENCE
    smaller: Cascade | None = cascade
    while smaller is not None:
        cascade, smaller = smaller, None
        for candidate in _fewer_stages(cascade):
            if time.perf_counter() > end:
                break
            _, again = _examine(candidate, finding.program, kinds, targets, derive)
            if again is not None and again.kind == finding.kind:
                smaller, finding = candidate, again
                break
    _, least = _examine(cascade, finding.program, kinds, targets, derive, shrink=True)
    return finding if least is None or least.kind != finding.kind else least


def _fewer_stages(c: Cascade) -> Iterator[Cascade]:
    """The cascade without one of the reductions that no other reads."""
    read = frozenset[str]().union(*(refs(x) for x in (*(r.body for r in c.reductions), *(p.expr for p in c.producers))))
    for stage in reversed(c.reductions):
        if stage.name not in read and len(c.reductions) > 1:
            outs = tuple(o for o in c.outs if stage.name not in refs(o.expr))
            smaller = used_only(replace(c, reductions=tuple(r for r in c.reductions if r != stage), outs=outs))
            check_cascade(smaller)
            yield smaller
