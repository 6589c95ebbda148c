"""What a run of the fuzzer found, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from redfuser.testing.trial import Finding, Outcome

SLOWEST = 5


MOST_INACCURATE = 0.05
"""Share of the programs that may exceed the contract: where a running value moves far, powers of what it is subtracted
from lose digits."""


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

    def add(self, outcome: Outcome) -> None:
        """Count one more program."""
        self.programs += 1
        if outcome.verdict:
            self.table[outcome.stages, outcome.verdict] += 1
            self.slowest = sorted([*self.slowest, (outcome.milliseconds, outcome.program)], reverse=True)[:SLOWEST]
        if outcome.undecided:
            self.undecided.append(outcome.program)
        if outcome.finding is not None:
            self.findings.append(outcome.finding)

    @property
    def fusible_chains(self) -> float:
        """Share of programs with two or more dependent stages that run in one pass."""
        found = sum(n for (depth, verdict), n in self.table.items() if depth >= 2 and verdict == "FUSIBLE")
        return found / max(self.programs, 1)

    def kinds(self) -> dict[str, int]:
        """Kind of finding -> how many."""
        return {k: sum(f.kind == k for f in self.findings) for k in ("unsound", "inaccurate", "exception")}

    @property
    def failed(self) -> bool:
        """Whether anything is unsound or raised, or more than a few programs are inaccurate."""
        kinds = self.kinds()
        return bool(kinds["unsound"] or kinds["exception"] or kinds["inaccurate"] > MOST_INACCURATE * self.programs)

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON. Everything but `times` repeats for the same arguments."""
        return {
            "seed": self.seed, "programs": self.programs, "fusible_chains": round(self.fusible_chains, 4),
            "histogram": [{"depth": d, "verdict": v, "programs": n} for (d, v), n in sorted(self.table.items())],
            "undecided_certificates": self.undecided, "found": self.kinds(),
            "findings": [{"program": f.program, "kind": f.kind, "text": f.text} for f in self.findings],
            "times": {"seconds": round(self.seconds, 2), "slowest_derivations":
                      [{"program": p, "milliseconds": round(ms, 1)} for ms, p in self.slowest]},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Report:
        """The report that `to_dict` wrote."""
        times = data["times"]
        return cls(data["seed"], data["programs"],
                   Counter({(x["depth"], x["verdict"]): x["programs"] for x in data["histogram"]}),
                   list(data["undecided_certificates"]), [Finding(**f) for f in data["findings"]],
                   [(x["milliseconds"], x["program"]) for x in times["slowest_derivations"]], times["seconds"])

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
        lines.append("findings: " + ", ".join(f"{n} {kind}" for kind, n in self.kinds().items()))
        return "\n".join([*lines, *(f"\n{f}" for f in self.findings)])
