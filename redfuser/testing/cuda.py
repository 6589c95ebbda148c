"""CUDA kernels without a GPU: `python -m redfuser.testing.cuda --all`.

Every fusible entry of the catalogue is printed as CUDA, compiled for several architectures (registers, spills, shared
memory) and run on the host executor, every access checked, under two schedules of threads, with rows of awkward
lengths; results are compared with the definition within the numerical contract. Exit status 1 when anything was found,
2 for wrong usage, 3 without NVRTC or a C++ compiler.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import repeat
from multiprocessing import get_context
from typing import Any

import numpy as np

from redfuser.derivation import Verdict
from redfuser.errors import NoCompiler, RedfuserError, ShapeError
from redfuser.extract import choose_gpu
from redfuser.runtime.cuda.kernel import scheduled
from redfuser.runtime.cuda.machine_code import FAMILIES
from redfuser.runtime.cuda.nvrtc import compile_cuda
from redfuser.runtime.cuda.sass import instruction_mix
from redfuser.testing.check import examine_target
from redfuser.testing.result import CUDA_HOST
from redfuser.testing.subjects import FunctionSubject
from redfuser.zoo import ENTRIES
from redfuser.zoo.data import OTHERS, STREAM, arguments, points
from redfuser.zoo.entry import Entry

ARCHS = ("sm_80", "sm_86", "sm_90a")
"""Architectures on which nothing may spill."""
NEWER = ("sm_89", "sm_100", "sm_120")
"""Architectures for which kernels must compile: each entry is for one of them, in turn."""
HINT = 64
"""Length of the stream that kernels are made for: up to here a row stays in registers."""
BLOCK = choose_gpu.stream_block(4, 1)
"""Longest block of a row that is streamed."""
LENGTHS = (HINT, 1, 3, 17, HINT - 1, HINT + 1, 251, BLOCK + 1)
"""Lengths of the stream: the hint first, short ones, primes, one beside the hint and one beside a block."""
SEEDS = (0, 7)
HEAVY = 50_000
"""Combinations of positions from which on a run takes seconds: it has the second schedule alone, and short axes."""
SHORT = 2
"""Length of the other axes in a heavy run: no axis of length 1, which would be another program."""
SAMPLE = 8
SPILLS = 0
"""Bytes of spilled registers per thread that are no finding."""
MISSING = 3


@dataclass
class Outcome:
    """What became of one entry.

    problems   findings, in words
    inherited  runs beyond the contract in which the tile interpreter is beyond it too: the derived form is inaccurate,
               not its CUDA
    kernels    arch -> function -> resources
    """

    entry: str
    problems: list[str] = field(default_factory=list)
    inherited: list[str] = field(default_factory=list)
    kernels: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: int = 0
    compile_seconds: float = 0.0
    run_seconds: float = 0.0


def examine(entry: Entry, archs: Sequence[str] = ARCHS, lengths: Sequence[int] = LENGTHS,
            seeds: Sequence[int] = SEEDS, newer: Sequence[str] = ()) -> Outcome:
    """Print, compile and run the kernels of an entry; lengths that the entry refuses are left out.

    Spilled registers and local memory are findings on `archs`; for `newer` ones kernels are compiled, no more.

    Raises
    ------
    NoCompiler
        when NVRTC or a C++ compiler is missing.
    """
    outcome = Outcome(entry.name)
    given = arguments(entry, "mixed", stream=lengths[0])
    try:
        subject = FunctionSubject(entry.fn, tuple(given.values()), (CUDA_HOST, "interpret"))
        for arch in (*archs, *newer):
            source = subject.pattern.source("cuda", arch=arch)
            for one in _texts(source):
                found = _machine_code(one, arch)
                if arch in archs:
                    outcome.kernels.setdefault(arch, {}).update(found)
    except NoCompiler:
        raise
    except (RedfuserError, ValueError) as error:
        outcome.problems.append(f"{type(error).__name__}: {error}")
        return outcome
    outcome.problems += _findings(outcome)
    for length in lengths:
        heavy = points(entry, length) > HEAVY
        for name, values in _inputs(entry, length, SHORT if heavy else OTHERS):
            for seed in seeds[-1:] if heavy else seeds:
                started = time.perf_counter()
                problem = _run(subject, values, seed)
                seconds = time.perf_counter() - started
                if not outcome.runs:
                    outcome.compile_seconds = seconds
                else:
                    outcome.run_seconds += seconds
                outcome.runs += 1
                if problem:
                    text = f"length {length}, {name}, schedule {seed}: {problem}"
                    if _run(subject, values, seed, "interpret"):
                        outcome.inherited.append(text)
                        continue
                    outcome.problems.append(text)
                    return outcome
    return outcome


def _machine_code(source: str, arch: str) -> dict[str, dict[str, Any]]:
    """Function -> its resources, and how often machine instructions stand in it."""
    compiled = compile_cuda(source, arch, kind="cubin")
    mix = instruction_mix(compiled.data)
    return {k: {**asdict(r), "instructions": {i: mix[k][i] if k in mix else 0 for i in FAMILIES}}
            for k, r in compiled.resources.items()}


def _texts(source: str) -> list[str]:
    """The texts of single kernels: each begins with a comment and ends with its namespace."""
    end = "} /* namespace redfuser */\n"
    return [part + end for part in source.split(end) if part.strip()]


def _findings(outcome: Outcome) -> list[str]:
    """Registers that do not fit, and arrays that are not in registers, in words."""
    found = []
    for arch, kernels in outcome.kernels.items():
        for kernel, used in kernels.items():
            if used["spill_stores"] > SPILLS:
                found.append(f"{kernel} spills {used['spill_stores']} bytes of registers on {arch}")
            elif used["stack"] or used["instructions"]["LDL"] or used["instructions"]["STL"]:
                found.append(f"{kernel} keeps {used['stack']} bytes in local memory on {arch}")
    return found


def _inputs(entry: Entry, length: int, others: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Arguments of one length: numbers; once with a row without any live element; and, for a row of several blocks,
    with nothing live in the first of them."""
    values = arguments(entry, "mixed", seed=length, stream=length, others=others)
    yield "numbers", values
    masks = {a.name: a.axes.index(STREAM) for a in entry.arguments if a.kind == "mask" and STREAM in a.axes}
    if masks and length == HINT:
        yield "a dead row", {**values, **{n: _dead(values[n], 0, slice(1)) for n in masks}}
    if masks and length > BLOCK:
        first = {n: _dead(values[n], axis, slice(BLOCK)) for n, axis in masks.items()}
        for n, axis in masks.items():
            np.moveaxis(first[n], axis, 0)[BLOCK:] = True
        yield "a dead first block", {**values, **first}


def _dead(mask: np.ndarray[Any, Any], axis: int, where: slice) -> np.ndarray[Any, Any]:
    """A mask without live elements at some positions of an axis."""
    found = mask.copy()
    np.moveaxis(found, axis, 0)[where] = False
    return found


def _run(subject: FunctionSubject, values: Mapping[str, Any], seed: int, target: str = CUDA_HOST) -> str | None:
    try:
        with scheduled(seed):
            return examine_target(subject, {**subject.arguments, **values}, target)
    except NoCompiler:
        raise
    except ShapeError:
        return None
    except RedfuserError as error:
        return f"{type(error).__name__}: {error}"


def candidates() -> list[str]:
    """Entries that run in one pass."""
    return [n for n, e in ENTRIES.items() if e.verdict == Verdict.FUSIBLE]


def drawn(number: int, seed: int) -> list[str]:
    """Some of the candidates: others for every seed."""
    names = candidates()
    return random.Random(seed).sample(names, min(max(number, 1), len(names)))


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m redfuser.testing.cuda", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--sample", type=int, default=SAMPLE, help=f"how many entries, drawn by seed (default {SAMPLE})")
    which.add_argument("--all", action="store_true", help="all fusible entries of the catalogue")
    which.add_argument("--entry", nargs="+", metavar="NAME", help="these entries")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--arch", nargs="*", default=list(ARCHS), help="architectures on which nothing may spill")
    parser.add_argument("--jobs", type=int, default=1, help="processes to use (default 1)")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    given = parser.parse_args(argv)
    unknown = [n for n in given.entry or () if n not in ENTRIES]
    if unknown:
        parser.error(f"no entry is called {unknown[0]!r}; `redfuser zoo` lists them")
    names = given.entry or candidates()
    if not given.all and not given.entry:
        names = drawn(given.sample, given.seed)
    outcomes = []
    try:
        for outcome in _examined(names, tuple(given.arch), given.jobs):
            outcomes.append(outcome)
            if not given.json:
                print(line(outcome), flush=True)
    except NoCompiler as missing:
        print(missing, file=sys.stderr)
        return MISSING
    bad = [o for o in outcomes if o.problems]
    if given.json:
        print(json.dumps([asdict(o) for o in outcomes], indent=1))
    else:
        print(f"{len(outcomes)} entries as CUDA, {len(bad)} with findings")
    return 1 if bad else 0


def _examined(names: Sequence[str], archs: tuple[str, ...], jobs: int) -> Iterator[Outcome]:
    """Outcomes in order, by several processes where asked for."""
    if jobs < 2:
        yield from map(_by_name, names, repeat(archs))
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_by_name, names, repeat(archs))


def _by_name(name: str, archs: tuple[str, ...]) -> Outcome:
    newer = NEWER[candidates().index(name) % len(NEWER)] if name in candidates() else NEWER[0]
    with np.errstate(all="ignore"):
        return examine(ENTRIES[name], archs, newer=(newer,))


def line(o: Outcome) -> str:
    """One entry as a line of text, its findings below."""
    most = max((k["registers"] for kernels in o.kernels.values() for k in kernels.values()), default=0)
    head = (f"{o.entry}: {'FAILED' if o.problems else 'ok'}, {o.runs} runs, at most {most} registers, "
            f"built in {o.compile_seconds:.1f} s, run in {o.run_seconds:.1f} s")
    inherited = [f"  inaccurate as the tile interpreter is: {p}" for p in o.inherited[:1]]
    return "\n".join([head, *(f"  {p}" for p in o.problems), *inherited])


if __name__ == "__main__":
    sys.exit(main())
