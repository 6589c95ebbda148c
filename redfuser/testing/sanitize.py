"""Compiled kernels under AddressSanitizer and UndefinedBehaviorSanitizer: `python -m redfuser.testing.sanitize --all`.

Entries of the catalogue are compiled with both and called with rows of awkward lengths, contiguous, reversed and with
gaps. A read or write beyond an array, a misaligned access or undefined arithmetic ends the process that made it; the
report of the sanitizer and the entry are printed, and the run goes on with the next entry. Exit status 1 when anything
was found, 2 for wrong usage, 3 when the compiler has no sanitizers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from redfuser.errors import CompileError, ShapeError
from redfuser.runtime.compiler import find_compiler
from redfuser.zoo import ENTRIES
from redfuser.zoo.data import arguments

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g1")
LENGTHS = (1, 2, 3, 5, 17, 63, 64, 65, 129, 1009)
"""Lengths of the stream: short ones, primes, and those beside a multiple of the lanes."""
SAMPLE = 10
STATUS = 99
"""Exit status of a process that AddressSanitizer ends."""
MISSING = 3
"""Exit status where there are no sanitizers."""
STARTED = "start "
LINES = 30
"""Lines of a sanitizer's report that are kept."""


def environment(cache: Path) -> dict[str, str]:
    """Variables under which kernels are compiled with sanitizers and can be loaded into Python.

    Raises
    ------
    CompileError
        when the compiler has no AddressSanitizer.
    """
    compiler = find_compiler()
    question = [*compiler.command, "-print-file-name=libasan.so"]
    done = subprocess.run(question, capture_output=True, text=True, check=False)
    library = done.stdout.strip()
    if not os.path.isabs(library):
        raise CompileError(f"{compiler} has no AddressSanitizer (libasan.so); name another compiler in CC")
    return {**os.environ, "CC": shlex.join([*compiler.command, *SANITIZERS]), "LD_PRELOAD": library,
            "ASAN_OPTIONS": f"detect_leaks=0:exitcode={STATUS}", "UBSAN_OPTIONS": "print_stacktrace=1",
            "REDFUSER_CACHE_DIR": str(cache)}


def sanitize(names: Sequence[str], progress: bool = False) -> list[dict[str, str]]:
    """Findings for the entries of these names: entry, and the sanitizer's report.

    Raises
    ------
    CompileError
        when the compiler has no sanitizers.
    """
    found = []
    left = list(names)
    with tempfile.TemporaryDirectory(prefix="redfuser-sanitize-") as folder:
        given = environment(Path(folder))
        while left:
            command = [sys.executable, "-m", __spec__.name, "--inside", *left]
            done = subprocess.run(command, env=given, capture_output=True, text=True, errors="replace", check=False)
            started = [x[len(STARTED):] for x in done.stdout.splitlines() if x.startswith(STARTED)]
            if progress:
                print(f"{len(names) - len(left) + len(started)} of {len(names)}", file=sys.stderr)
            if done.returncode == 0:
                break
            last = started[-1] if started else left[0]
            found.append({"entry": last, "report": "\n".join(done.stderr.strip().splitlines()[:LINES])})
            left = left[left.index(last) + 1 :]
    return found


def run_entry(name: str) -> int:
    """Call the kernels of an entry with rows of all `LENGTHS`, laid out in three ways. Returns the number of calls.

    Lengths that an entry refuses (too short a row for a top-k) are left out.
    """
    import redfuser as rf

    fused = rf.fuse(ENTRIES[name].fn)
    calls = 0
    for length in LENGTHS:
        for layout in _layouts(arguments(ENTRIES[name], "mixed", seed=length, stream=length)):
            try:
                fused(**layout)
            except ShapeError:
                continue
            calls += 1
    return calls


def _layouts(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The same arguments contiguous, reversed along the last axis, and as every other element of larger arrays."""
    def spread(x: Any) -> Any:
        wide = np.repeat(x, 2, axis=-1)
        return wide[..., ::2]

    for change in (np.ascontiguousarray, lambda x: np.ascontiguousarray(x[..., ::-1])[..., ::-1], spread):
        yield {k: change(v) if isinstance(v, np.ndarray) and v.ndim else v for k, v in given.items()}


def _inside(names: Sequence[str]) -> None:
    """The part that runs under the sanitizers."""
    for name in names:
        print(STARTED + name, flush=True)
        with np.errstate(all="ignore"):
            if not run_entry(name):
                sys.exit(f"{name}: no kernel ran")


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m redfuser.testing.sanitize", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--sample", type=int, default=SAMPLE, help=f"how many entries, drawn by seed (default {SAMPLE})")
    which.add_argument("--all", action="store_true", help="all entries of the catalogue")
    which.add_argument("--entry", nargs="+", metavar="NAME", help="these entries")
    which.add_argument("--inside", nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    given = parser.parse_args(argv)
    if given.inside:
        _inside(given.inside)
        return 0
    unknown = [n for n in given.entry or () if n not in ENTRIES]
    if unknown:
        parser.error(f"no entry is called {unknown[0]!r}; `redfuser zoo` lists them")
    names = given.entry or list(ENTRIES)
    if not given.all and not given.entry:
        names = random.Random(given.seed).sample(names, min(max(given.sample, 1), len(names)))
    try:
        found = sanitize(names, progress=sys.stderr.isatty())
    except CompileError as missing:
        print(missing, file=sys.stderr)
        return MISSING
    if given.json:
        print(json.dumps({"entries": names, "findings": found}, indent=1))
    else:
        for f in found:
            print(f"{f['entry']}\n{f['report']}\n")
        print(f"{len(names)} entries under the sanitizers, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
