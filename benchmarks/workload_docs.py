"""Write docs/workloads.md: what the workload family looks like, what is derived, and how far it gets.

    python benchmarks/workload_docs.py [--seconds S] [--only REGEX] [--json FILE] [--output FILE]

For every function of `benchmarks/families`: its NumPy lines, the derived updates, the plan, the error against an
independent reference in double precision (PyTorch's operator where there is one) for ragged sizes in single precision,
the time of NumPy over that of the kernel at larger sizes (medians, by turns), and whether the CUDA text, run on this
CPU, gives the same.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import statistics
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cpu import interleaved  # pyright: ignore[reportAttributeAccessIssue]  # not tests/cpu
from families.cases import RAGGED, WORKLOADS, Workload

import redfuser as rf
from redfuser.errors import NoCompiler, RedfuserError

TIMED: Mapping[str, int] = {"b": 1, "h": 8, "g": 2, "n": 256, "m": 512, "d": 64, "t": 512, "e": 1024, "v": 1024,
                            "w": 4096}
"""Sizes that are timed."""
OUTPUT = Path(__file__).resolve().parents[1] / "docs" / "workloads.md"


def narrowed(w: Workload, sizes: Mapping[str, int]) -> list[Any]:
    """Arguments in single precision."""
    return [a.astype("f4") if _floating(a) else a for a in w.make(np.random.default_rng(5), sizes)]


def _floating(a: Any) -> bool:
    return isinstance(a, np.ndarray) and a.dtype.kind == "f"


def reference(w: Workload, given: Sequence[Any]) -> tuple[Any, ...]:
    """The results in double precision."""
    exact = [a.astype("f8") if _floating(a) else a for a in given]
    if w.reference is None:
        return as_tuple(w.fn(*exact))
    import torch

    found = w.reference(*(torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in exact))
    return tuple(np.asarray(x) for x in as_tuple(found))


def as_tuple(found: Any) -> tuple[Any, ...]:
    """One result or several."""
    return found if isinstance(found, tuple) else (found,)


def error(found: Any, exact: Sequence[Any]) -> float:
    """Largest error of floating results, relative to the largest value; other results: the share that differs."""
    worst = 0.0
    for a, b in zip(as_tuple(found), exact, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype.kind in "iu":
            worst = max(worst, float(np.mean(a != b)) / 1e3)
        else:
            off = np.abs(a.astype("f8") - b.astype("f8"))
            worst = max(worst, float(off.max() / max(1, np.abs(b.astype("f8")).max())))
    return worst


def examine(w: Workload, seconds: float) -> dict[str, Any]:
    """What the page says of one function."""
    args = narrowed(w, RAGGED)
    exact = reference(w, args)
    options: dict[str, Any] = dict(w.fuse)
    fused = rf.fuse(w.fn, **options)
    report = fused.explain(*args)
    row: dict[str, Any] = {
        "name": w.name, "family": w.family, "title": w.title, "verdict": str(report.verdict),
        "passes": report.passes, "before": report.passes_before, "kernels": len(report.kernels),
        "update": dict(report.update), "plan": [list(k.notes) for k in report.kernels], "notes": list(report.notes),
        "error": error(fused(*args), exact),
    }
    try:
        row["cuda-host error"] = error(rf.fuse(w.fn, target="cuda-host", **options)(*args), exact)
    except (NoCompiler, RedfuserError) as problem:
        row["cuda-host problem"] = f"{type(problem).__name__}: {problem}".splitlines()[0]
    large = narrowed(w, TIMED)
    samples = interleaved({"NumPy": lambda: w.fn(*large), "redfuser": lambda: fused(*large)}, seconds)
    median = {n: statistics.median(s) for n, s in samples.items()}
    return {**row, "ratio": round(median["NumPy"] / median["redfuser"], 2)}


def page(rows: Sequence[Mapping[str, Any]], command: str) -> str:
    """The text of the page."""
    intro = ("Attention, routing, quantisation, norms, losses and backward passes as people write them in NumPy. "
             "Nothing in the compiler knows any of them by name. The functions are in `benchmarks/families`; this page "
             f"was written by `{command}`.")
    legend = ("One pass: all reductions over the stream in one sweep. Error: single precision at ragged sizes against "
              "PyTorch's operator in double precision where there is one, else the definition; relative to the largest "
              "value. Ratio: time of NumPy over that of the kernels at larger sizes on a CPU with two cores. CUDA: the "
              "error of the emitted CUDA text, executed on the CPU with every access checked.")
    lines = ["# The workload family", "", textwrap.fill(intro, 118), "", textwrap.fill(legend, 118), "",
             "| family | function | passes | verdict | error | ratio | CUDA |", "|---|---|---|---|---|---|---|"]
    for r in rows:
        cuda = f"{r['cuda-host error']:.0e}" if "cuda-host error" in r else "no"
        lines.append(f"| {r['family']} | {r['name']} | {r['before']} to {r['passes']} | {r['verdict']} | "
                     f"{r['error']:.0e} | {r['ratio']} | {cuda} |")
    by_name = {(w.family, w.name): w for w in WORKLOADS}
    for r in rows:
        w = by_name[r["family"], r["name"]]
        lines += ["", f"## {r['family']}: {r['name']}", "", f"{r['title']}.", "", "```python",
                  inspect.getsource(w.fn).rstrip(), "```", "", "```text"]
        lines += [f"{n} = {_cut(u)}" for n, u in r["update"].items()]
        lines += ["```", ""]
        lines += [f"- kernel {i}: {'; '.join(notes)}" for i, notes in enumerate(r["plan"], 1)]
        lines += [f"- {n}" for n in r["notes"]]
        if "cuda-host problem" in r:
            lines.append(f"- CUDA: {r['cuda-host problem']}")
    return "\n".join(lines) + "\n"


def _cut(text: str, most: int = 400) -> str:
    return text if len(text) <= most else f"{text[:most]} ..."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="of timing for each function")
    parser.add_argument("--only", default="", help="functions whose family and name match")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    rows = []
    for w in WORKLOADS:
        if re.search(given.only, f"{w.family}: {w.name}"):
            rows.append(examine(w, given.seconds))
            r = rows[-1]
            print(f"{w.family}: {w.name}: {r['verdict']}, {r['before']} to {r['passes']}, error {r['error']:.1e}, "
                  f"{r['ratio']}x, CUDA {r.get('cuda-host error', r.get('cuda-host problem'))}", flush=True)
    command = " ".join(["python benchmarks/workload_docs.py", *sys.argv[1:]])
    if given.json:
        given.json.write_text(json.dumps({"command": command, "rows": rows}, indent=1) + "\n")
    given.output.write_text(page(rows, command))


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        main()
