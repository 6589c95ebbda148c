"""How long derivations take: every entry of the zoo, warm, and what a new process pays before the first one.

    python benchmarks/derivation.py [--json FILE] [--repeats N]

Warm: the engine is loaded and the entry was derived before in this process. Nothing of that derivation is reused: what
was kept of goals and evidence is forgotten. Each figure is the median of N derivations, certificate included, tracing
not. Wall and processor time are both given: they agree on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from redfuser.derivation import commands, demand, derive_cascade, evidence
from redfuser.zoo import ENTRIES
from redfuser.zoo.entry import Entry

BARS = {"median": 60.0, "95 %": 400.0, "longest": 2000.0, "engine load": 150.0}
"""Milliseconds aimed at."""

START = """
import time
a = time.perf_counter()
import egglog.bindings
b = time.perf_counter()
from redfuser.derivation.engine import engine_for
from redfuser.rules import default
c = time.perf_counter()
engine_for(default).load()
d = time.perf_counter()
print((b - a) * 1e3, (d - c) * 1e3)
"""


REMEMBERED: tuple[Any, ...] = (commands.program, commands.expression, commands.flat, evidence._growth, demand.demanded)
"""Functions whose results are kept from one derivation to the next."""


def forget() -> None:
    """Empty what is kept from one derivation to the next, the engine with its rules aside."""
    for function in REMEMBERED:
        function.cache_clear()


def measure(entry: Entry, repeats: int) -> dict[str, Any]:
    """One entry: milliseconds of a warm derivation, and what it found."""
    cascade = entry.cascade()
    found = derive_cascade(cascade)
    wall, processor = [], []
    for _ in range(repeats):
        forget()
        w, p = time.perf_counter(), time.process_time()
        derive_cascade(cascade)
        wall.append((time.perf_counter() - w) * 1e3)
        processor.append((time.process_time() - p) * 1e3)
    return {"name": entry.name, "verdict": str(found.verdict), "wall ms": round(statistics.median(wall), 2),
            "processor ms": round(statistics.median(processor), 2), "nodes": sum(s.nodes for s in found.timeline),
            "saturations": len(found.timeline)}


def starts(repeats: int) -> dict[str, float]:
    """Milliseconds for importing the engine and for loading the theory, each in new processes."""
    runs = [subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, check=True).stdout.split()
            for _ in range(repeats)]
    return {name: round(statistics.median(float(r[i]) for r in runs), 1)
            for i, name in enumerate(("engine import", "engine load"))}


def summary(rows: list[dict[str, Any]], key: str) -> dict[str, float]:
    """Median, 95th percentile and longest of a column."""
    values = sorted(r[key] for r in rows)
    return {"median": statistics.median(values), "95 %": values[int(0.95 * (len(values) - 1))], "longest": values[-1]}


def machine() -> dict[str, str]:
    """What the figures were taken on."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    names = [line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name")]
    return {"processor": names[0] if names else platform.processor(), "python": platform.python_version()}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--repeats", type=int, default=3, help="derivations per entry (default 3)")
    given = parser.parse_args()
    rows = []
    for entry in ENTRIES.values():
        rows.append(measure(entry, given.repeats))
        if sys.stderr.isatty():
            print(f"\r{len(rows)} of {len(ENTRIES)}", end="", file=sys.stderr)
    report = {"command": f"python {' '.join(sys.argv)}", "machine": machine(), "start": starts(max(given.repeats, 3)),
              "wall": summary(rows, "wall ms"), "processor": summary(rows, "processor ms"), "bars": BARS,
              "entries": rows}
    print(f"\n{len(rows)} entries, milliseconds")
    for name in ("median", "95 %", "longest"):
        print(f"{name:>12}  wall {report['wall'][name]:8.1f}  processor {report['processor'][name]:8.1f}  "
              f"aimed at {BARS[name]:.0f}")
    print(f"{'engine':>12}  import {report['start']['engine import']:.0f}, load {report['start']['engine load']:.0f}, "
          f"aimed at {BARS['engine load']:.0f}")
    for r in sorted(rows, key=lambda r: r["wall ms"])[-8:]:
        print(f"{r['wall ms']:12.1f}  {r['name']} ({r['verdict']}, {r['nodes']} nodes)")
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
