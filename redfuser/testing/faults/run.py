"""Planting faults and looking whether each is caught: for functions of one's own, and from the command line."""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from redfuser.errors import ArgumentError, NoCompiler
from redfuser.testing.faults.registry import draw, faults_of, kinds
from redfuser.testing.faults.subjects import NAMES, subject, subjects_of
from redfuser.testing.faults.trials import Result, Subject, alarms, examine

SUBJECTS = 12
"""Functions that one run of the command line draws."""
MISSING = 3


@dataclass
class Planted:
    """What became of faults. alarms: what was found in programs without any fault."""

    seed: int
    subjects: tuple[str, ...]
    results: list[Result] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def survivors(self) -> list[Result]:
        """Faults that nothing caught."""
        return [r for r in self.results if not r.by]

    @property
    def ok(self) -> bool:
        """Whether every fault was caught, and nothing else."""
        return bool(self.results) and not self.survivors and not self.alarms

    def __str__(self) -> str:
        caught = len(self.results) - len(self.survivors)
        by = Counter(r.by.split(",")[0].split(" of ")[0] for r in self.results if r.by)
        lines = [str(r) for r in (*self.survivors, *(r for r in self.results if r.by))]
        lines += [f"false alarm: {a}" for a in self.alarms]
        share = 100.0 * caught / max(1, len(self.results))
        lines.append(f"{caught} of {len(self.results)} faults caught ({share:.0f} %) in {len(self.subjects)} programs, "
                     f"{len(self.alarms)} false alarms, seed {self.seed}, {self.seconds:.0f} s")
        lines.append("caught by: " + ", ".join(f"{what} {n}" for what, n in by.most_common()))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON."""
        found = [{"kind": r.fault.kind, "subject": r.subject, "phase": r.fault.phase, "place": r.fault.place,
                  "caught": r.by, "on": r.trial, "runs": r.tried} for r in self.results]
        return {"seed": self.seed, "subjects": list(self.subjects), "faults": found, "false_alarms": self.alarms,
                "caught": len(self.results) - len(self.survivors), "seconds": round(self.seconds, 1)}


def plant(fn: Callable[..., Any], *arguments: Any, count: int = 40, seed: int = 0, only: Iterable[str] = ()) -> Planted:
    """Plant faults in the CUDA kernels of a function, and run each on the host executor until something shows it.

    Parameters
    ----------
    fn : a plain NumPy function
    arguments : its arrays or specs: only their dtypes and dimensions count, inputs are drawn
    count : how many faults, all that there are where they are fewer
    seed : which ones; the same seed plants the same faults
    only : kinds of faults (`redfuser.testing.faults.kinds()`), by default all

    Raises
    ------
    ArgumentError
        for a function without a reduction, an unknown kind, or kernels without a place for any of the kinds.
    NoCompiler
        when NVRTC or a C++ compiler is missing.
    """
    unknown = set(only) - set(kinds())
    if unknown:
        raise ArgumentError(f"no kind of fault is called {min(unknown)!r}; there are {', '.join(kinds())}")
    found = subjects_of(getattr(fn, "__name__", "fn"), fn, arguments)
    if not found:
        raise ArgumentError("faults are planted in reductions, and the function has none")
    planted = campaign(found, count, seed, only)
    if not planted.results:
        raise ArgumentError("no fault of these kinds has a place in the kernels of this function; products on matrix "
                            "units have none so far")
    return planted


def campaign(subjects: Sequence[Subject], count: int, seed: int, only: Iterable[str] = (),
             tell: Callable[[object], None] = lambda _: None) -> Planted:
    """Run the programs of subjects with `count` faults, kinds and subjects in turn, and without any. Phases that no
    input reaches (of empty arrays) have none."""
    started = time.perf_counter()
    planted = Planted(seed, tuple(s.name for s in subjects))
    known = {s.name: s for s in subjects}
    chosen = set(only)
    places = [(s.name, f) for s in subjects for f in faults_of(s.scheduled, chosen) if s.runs(f.phase)]
    for name, fault in draw(places, len(places), random.Random(seed)):
        if len(planted.results) == count:
            break
        result = examine(known[name], fault)
        if result is not None:
            planted.results.append(result)
            tell(result)
    for name in dict.fromkeys(r.subject for r in planted.results):
        planted.alarms += alarms(known[name])
    planted.seconds = time.perf_counter() - started
    return planted


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line. Returns the exit status: 1 for a survivor or a false alarm, 3 without a compiler."""
    parser = argparse.ArgumentParser(prog="python -m redfuser.testing.faults", description=__doc__)
    parser.add_argument("--faults", type=int, default=40, help="how many (default 40)")
    parser.add_argument("--seed", type=int, default=0, help="which ones, and in which functions (default 0)")
    parser.add_argument("--subjects", type=int, default=SUBJECTS, help=f"functions that are drawn (default {SUBJECTS})")
    parser.add_argument("--subject", nargs="+", metavar="NAME", help=f"these functions: {', '.join(NAMES)}")
    parser.add_argument("--kind", nargs="+", default=[], metavar="NAME", help=f"these kinds: {', '.join(kinds())}")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    given = parser.parse_args(argv)
    for name, there in [*((n, NAMES) for n in given.subject or ()), *((n, kinds()) for n in given.kind)]:
        if name not in there:
            parser.error(f"{name!r} is none of {', '.join(there)}")
    if given.faults < 1:
        parser.error("--faults must be at least 1")
    names = given.subject or random.Random(given.seed).sample(NAMES, min(max(given.subjects, 1), len(NAMES)))

    def tell(result: object) -> None:
        if not given.json:
            print(result, flush=True)

    try:
        planted = campaign([subject(n) for n in names], given.faults, given.seed, given.kind, tell)
    except NoCompiler as missing:
        print(missing, file=sys.stderr)
        return MISSING
    print(json.dumps(planted.to_dict(), indent=1) if given.json else summary(planted))
    return 0 if planted.ok else 1


def summary(planted: Planted) -> str:
    """The last lines of a report, survivors again."""
    lines = str(planted).splitlines()
    return "\n".join([*map(str, planted.survivors), *lines[len(planted.results) :]])
