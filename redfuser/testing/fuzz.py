"""Random cascades through derivation, certificate, stream and merge trees: `python -m redfuser.testing.fuzz --n 1000`.

Program i of a run with seed S is `redfuser.testing.random_cascade(S + i)`. The same arguments give the same programs,
verdicts and findings, whatever `--jobs` is; only times differ. A finding is a result that is unsound (the algebra is
wrong), one that is inaccurate (rounding beyond the numerical contract), or an exception. Exit status 1 when there is
one of the first or the last kind, or when more than 5 % of the programs are inaccurate.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from redfuser.testing.inputs import KINDS
from redfuser.testing.result import TARGETS
from redfuser.testing.tally import Report
from redfuser.testing.trial import INPUTS, LIMITS, Derive, Outcome, derive, try_program

__all__ = ["INPUTS", "LIMITS", "Report", "derive", "fuzz", "main"]

LIFETIME = 400
"""Programs that one process tries: engines and caches grow."""

FEW = 50
"""With no more programs than that, inaccurate ones are minimised too."""

SAVE_EVERY = 20.0
"""Seconds between two saves of a run that can be continued."""


def fuzz(n: int, seed: int = 0, *, seconds: float | None = None, kinds: Sequence[str] = KINDS, inputs: int = INPUTS,
         targets: Sequence[str] = (), derive: Derive = derive, jobs: int = 1,
         progress: Callable[[Report], None] = lambda _: None, report: Report | None = None) -> Report:
    """Try `n` programs, or as many as fit into `seconds`.

    Parameters
    ----------
    kinds, inputs
        each program runs on `inputs` inputs, whose kinds go through `kinds` from program to program.
    targets
        the compiled forms to check as well: "interpret", "c".
    derive
        what is under test; with `jobs` a function that processes can import.
    jobs
        number of processes.
    report
        an earlier report of the same run, to be continued.
    """
    report = Report(seed) if report is None else report
    before, start = report.seconds, time.perf_counter()
    one = partial(try_program, kinds=tuple(kinds), inputs=inputs, targets=tuple(targets), derive=derive,
                  minimise=n <= FEW)
    for outcome in _outcomes(one, range(seed + report.programs, seed + n), jobs, seconds):
        report.add(outcome)
        report.seconds = before + time.perf_counter() - start
        progress(report)
    return report


def _outcomes(one: Callable[[int], Outcome], programs: range, jobs: int, seconds: float | None) -> Iterator[Outcome]:
    """Outcomes in the order of the programs, until the time is over."""
    end = None if seconds is None else time.perf_counter() + seconds

    def late() -> bool:
        return end is not None and time.perf_counter() > end

    if jobs <= 1:
        for program in programs:
            if late():
                return
            yield one(program)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=LIFETIME) as pool:
        ahead = [pool.submit(one, p) for p in programs[: 4 * jobs]]
        rest = iter(programs[4 * jobs :])
        while ahead:
            yield ahead.pop(0).result()
            if late():
                pool.shutdown(wait=True, cancel_futures=True)
                return
            ahead += [pool.submit(one, p) for p in (next(rest, None),) if p is not None]


class _Watch:
    """Shows progress on a terminal, and saves the report now and then."""

    def __init__(self, n: int, save: Path | None, command: dict[str, Any]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        self.bar = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
                            console=console, disable=not console.is_terminal)
        self.task = self.bar.add_task("programs", total=n)
        self.save_to = save
        self.command = command
        self.saved = time.perf_counter()

    def __call__(self, report: Report) -> None:
        self.bar.update(self.task, completed=report.programs, description=f"{len(report.findings)} findings")
        if self.save_to is not None and time.perf_counter() - self.saved > SAVE_EVERY:
            self.save(report)

    def save(self, report: Report) -> None:
        """Write the report in one step: a run that is killed leaves the last whole one."""
        if self.save_to is None:
            return
        part = self.save_to.with_name(self.save_to.name + ".part")
        part.write_text(json.dumps({"command": self.command, "report": report.to_dict()}), encoding="utf-8")
        part.replace(self.save_to)
        self.saved = time.perf_counter()


def _earlier(path: Path | None, command: dict[str, Any], parser: argparse.ArgumentParser) -> Report | None:
    """The report that a run continues."""
    if path is None or not path.exists():
        return None
    known = json.loads(path.read_text(encoding="utf-8"))
    if known["command"] != command:
        parser.error(f"--save {path} holds a run with other arguments ({known['command']}): name another file")
    return Report.from_dict(known["report"])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m redfuser.testing.fuzz", description="Random cascades, checked.")
    parser.add_argument("--n", type=int, default=1000, help="number of programs (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="number of the first program (default 0)")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    parser.add_argument("--jobs", type=int, default=1, help="processes to use (default 1)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--save", type=Path, metavar="FILE", help="save the report here; continue the run saved here")
    parser.add_argument("--inputs", type=int, default=INPUTS, help=f"inputs for each program (default {INPUTS})")
    parser.add_argument("--kinds", default=",".join(KINDS),
                        help=f"kinds of inputs, taken in turn from program to program (default {','.join(KINDS)})")
    parser.add_argument("--targets", default="", help="check these compiled forms too: interpret,c")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    targets = tuple(filter(None, given.targets.split(",")))
    if not set(targets) <= set(TARGETS):
        parser.error(f"--targets {given.targets}: known are {','.join(TARGETS)}")
    kinds = given.kinds.split(",")
    if not set(kinds) <= set(KINDS):
        parser.error(f"--kinds {given.kinds}: known are {','.join(KINDS)}")
    for name in ("n", "jobs", "inputs"):
        if getattr(given, name) < 1:
            parser.error(f"--{name} {getattr(given, name)}: give at least 1")
    command = {"seed": given.seed, "kinds": kinds, "targets": list(targets), "inputs": given.inputs}
    watch = _Watch(given.n, given.save, command)
    with watch.bar:
        report = fuzz(given.n, given.seed, seconds=given.seconds, kinds=kinds, inputs=given.inputs, targets=targets,
                      jobs=given.jobs, progress=watch, report=_earlier(given.save, command, parser))
    watch.save(report)
    print(json.dumps(report.to_dict(), indent=2) if given.json else report)
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
