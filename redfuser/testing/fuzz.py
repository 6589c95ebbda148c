"""Random cascades through derivation, certificate, stream and merge trees: `python -m redfuser.testing.fuzz --n 1000`.

Program i of a run with seed S is `redfuser.testing.random_cascade(S + i)`. The same arguments give the same programs,
verdicts and findings; only times differ. Exit status 1 when a result is unsound or an exception escapes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from redfuser.derivation import Derivation, Limits, derive_cascade
from redfuser.derivation.derive import dependent_stages
from redfuser.ir import Cascade
from redfuser.testing.check import GIVEN_FORM, TARGETS, check_fusion
from redfuser.testing.grammar import random_cascade
from redfuser.testing.inputs import KINDS
from redfuser.testing.text import IMPORTS, cascade_text

LIMITS = Limits(seconds=120.0)
"""Wall time must not decide a verdict: nodes and iterations bind first."""

SLOWEST = 5

Derive = Callable[[Cascade], Derivation]


@dataclass(frozen=True)
class Finding:
    """A program that went wrong. kind: "unsound" or "exception"; text: what happened, with the code to repeat it."""

    program: int
    kind: str
    text: str

    def __str__(self) -> str:
        return f"program {self.program}: {self.kind}\n{self.text}"


@dataclass
class Report:
    """What a run found. `table`: (dependent stages, verdict) -> programs; `slowest`: (milliseconds, program)."""

    seed: int
    programs: int = 0
    table: Counter[tuple[int, str]] = field(default_factory=Counter)
    undecided: list[int] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    slowest: list[tuple[float, int]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def fusible_chains(self) -> float:
        """Share of programs with two or more dependent stages that run in one pass."""
        found = sum(n for (depth, verdict), n in self.table.items() if depth >= 2 and verdict == "FUSIBLE")
        return found / max(self.programs, 1)

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON. Everything but `times` repeats for the same arguments."""
        return {
            "seed": self.seed, "programs": self.programs, "fusible_chains": round(self.fusible_chains, 4),
            "histogram": [{"depth": d, "verdict": v, "programs": n} for (d, v), n in sorted(self.table.items())],
            "undecided_certificates": self.undecided,
            "findings": [{"program": f.program, "kind": f.kind, "text": f.text} for f in self.findings],
            "times": {"seconds": round(self.seconds, 2), "slowest_derivations":
                      [{"program": p, "milliseconds": round(ms, 1)} for ms, p in self.slowest]},
        }

    def __str__(self) -> str:
        verdicts = sorted({v for _, v in self.table})
        rate = 1000 * self.seconds / max(self.programs, 1)
        lines = [f"{self.programs} programs from seed {self.seed} in {self.seconds:.1f} s ({rate:.0f} s per 1000)",
                 f"{100 * self.fusible_chains:.0f} % are FUSIBLE with two or more dependent stages", "",
                 "dependent stages  " + "".join(f"{v:>14}" for v in verdicts)]
        lines += [f"{d:>16}  " + "".join(f"{self.table[d, v]:>14}" for v in verdicts)
                  for d in sorted({d for d, _ in self.table})]
        lines += ["", "slowest derivations: " + ", ".join(f"{p} ({ms:.0f} ms)" for ms, p in self.slowest)]
        if self.undecided:
            lines.append(f"certificate undecided: {', '.join(map(str, self.undecided))}")
        lines.append(f"findings: {len(self.findings)}")
        return "\n".join([*lines, *(f"\n{f}" for f in self.findings)])


def derive(cascade: Cascade) -> Derivation:
    """The derivation under limits that do not depend on the speed of the machine."""
    return derive_cascade(cascade, limits=LIMITS)


def fuzz(n: int, seed: int = 0, *, seconds: float | None = None, kinds: Sequence[str] = KINDS,
         targets: Sequence[str] = (), derive: Derive = derive,
         progress: Callable[[Report], None] = lambda _: None) -> Report:
    """Try `n` programs, or as many as fit into `seconds`, on inputs of `kinds`, down to the levels of `targets`.

    `derive` is what is under test.
    """
    report = Report(seed)
    start = time.perf_counter()
    for program in range(seed, seed + n):
        if seconds is not None and time.perf_counter() - start > seconds:
            break
        _try(report, program, kinds, targets, derive)
        report.programs += 1
        report.seconds = time.perf_counter() - start
        progress(report)
    return report


def _try(report: Report, program: int, kinds: Sequence[str], targets: Sequence[str], derive: Derive) -> None:
    """One program. Whatever it raises becomes a finding."""
    cascade = random_cascade(program)
    code = f"{IMPORTS}c = {cascade_text(cascade)}"
    try:
        found = derive(cascade)
        report.table[dependent_stages(cascade), str(found.verdict)] += 1
        report.slowest = sorted([*report.slowest, (found.milliseconds, program)], reverse=True)[:SLOWEST]
        if found.certificate.refuted:
            report.findings.append(Finding(program, "unsound", f"{found.certificate.steps}\n{code}\n{found.fused}"))
            return
        if not found.certificate.valid:
            report.undecided.append(program)
        check = check_fusion(cascade, seed=program, trials=len(kinds), kinds=kinds, targets=targets, fused=found.fused)
        if not check.ok:
            raised = check.counterexample is not None and bool(check.counterexample.error)
            text = str(check.counterexample).replace(GIVEN_FORM, "fused = derive_cascade(c).fused")
            report.findings.append(Finding(program, "exception" if raised else "unsound", text))
    except Exception:
        report.findings.append(Finding(program, "exception", f"{traceback.format_exc()}\n{code}"))


def _progress(report: Report) -> None:
    sys.stderr.write(f"\r{report.programs} programs, {report.seconds:.0f} s, {len(report.findings)} findings ")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m redfuser.testing.fuzz", description="Random cascades, checked.")
    parser.add_argument("--n", type=int, default=1000, help="number of programs (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="number of the first program (default 0)")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"kinds of inputs (default {','.join(KINDS)})")
    parser.add_argument("--targets", default="", help="check these compiled forms too: interpret,c")
    given = parser.parse_args(arguments)
    targets = tuple(filter(None, given.targets.split(",")))
    if not set(targets) <= set(TARGETS):
        parser.error(f"--targets {given.targets}: known are {','.join(TARGETS)}")
    kinds = given.kinds.split(",")
    if not set(kinds) <= set(KINDS):
        parser.error(f"--kinds {given.kinds}: known are {','.join(KINDS)}")
    if given.n < 1:
        parser.error(f"--n {given.n}: give at least 1")
    terminal = sys.stderr.isatty()
    show = _progress if terminal else (lambda _: None)
    report = fuzz(given.n, given.seed, seconds=given.seconds, kinds=kinds, targets=targets,
                  progress=show)
    if terminal:
        sys.stderr.write("\n")
    print(json.dumps(report.to_dict(), indent=2) if given.json else report)
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
