"""The CPU back end beside its peers and beside the limits of the machine.

    python benchmarks/cpu.py [--only REGEX] [--seconds S] [--json FILE] [--markdown]

Every case runs in one process for one thread and one for all (CPU affinity decides, so that every library obeys). All
candidates of a case take turns, one call at a time, after a warm-up; times are medians, and the ratio is that of two
medians (the file has the median of the paired ratios, too). Each is given its output array
where its interface has one. The limit is the longer of arithmetic and memory traffic at the rates that probes measure
in the same process. Results are compared with NumPy in float64 first.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

OURS = "redfuser"


PASSIVE = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0", "OPENBLAS_THREAD_TIMEOUT": "4"}
"""Idle threads of OpenMP and OpenBLAS sleep: by default they spin on, and take a CPU from whoever comes next."""
SETTLE = 5e-3
"""Seconds of untimed calls before a sample: threads of the library before it spin for a while, its own wake up."""


def interleaved(candidates: dict[str, Callable[[], Any]], seconds: float) -> dict[str, list[float]]:
    """Round-robin samples; each is the mean of as many calls as fill a millisecond."""
    repeats = {}
    for name, run in candidates.items():
        run()
        start = time.perf_counter()
        run()
        repeats[name] = max(1, int(1e-3 / (time.perf_counter() - start)))
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(next(iter(samples.values()))) < 5:
        for name, run in candidates.items():
            n = repeats[name]
            t = time.perf_counter()
            run()
            while time.perf_counter() - t < SETTLE:
                run()
            t = time.perf_counter()
            for _ in range(n):
                run()
            samples[name].append((time.perf_counter() - t) / n)
    return samples


def limit_ms(case: Any, args: Sequence[Any], outs: Sequence[Any], probes: dict[str, float]) -> float:
    """The time below which no program gets on this machine."""
    read, written = (sum(a.nbytes for a in arrays) for arrays in (args, outs))
    if read + written < 8e6:
        memory = (read + written) / probes["cache GB/s"]
    else:
        plain = max(0, read - written)
        memory = plain / probes["read GB/s"] + (read - plain + written) / probes["copy GB/s"]
    return max(memory, case.flops / probes["gflops"]) / 1e6


def check(case: Any, args: Sequence[Any], found: Sequence[Any]) -> float:
    """Largest error relative to the largest value, against NumPy in float64. Infinities and NaN stand where the
    reference has them; positions are those of the reference, or those of equal scores.

    Raises
    ------
    AssertionError
        when something is wrong, or an error is more than the case allows.
    """
    import numpy as np

    given = [wide(a) for a in args]
    expected = (case.reference or case.fn)(*given)
    expected = expected if isinstance(expected, tuple) else (expected,)
    worst = 0.0
    for i, (e, f) in enumerate(zip(map(np.asarray, expected), map(wide, found), strict=True)):
        assert e.shape == f.shape, f"{case.name}: output {i} has shape {f.shape}, not {e.shape}"
        if e.dtype.kind != "f":
            worst = max(worst, _misplaced(case, given, e, f))
            continue
        finite = np.isfinite(e)
        same = np.array_equal(finite, np.isfinite(f)) and np.array_equal(e[~finite], f[~finite], equal_nan=True)
        assert same, f"{case.name}: output {i} is infinite or NaN where the reference is not, or the other way round"
        if finite.any():
            worst = max(worst, float(np.max(np.abs(e[finite] - f[finite])) / (np.max(np.abs(e[finite])) or 1)))
    assert worst <= case.rtol, f"{case.name}: error {worst:.2g}"
    return worst


def wide(a: Any) -> Any:
    """An array or tensor as an array of NumPy; floating numbers in float64."""
    import numpy as np

    if hasattr(a, "is_floating_point"):
        a = (a.float() if a.is_floating_point() else a).numpy()
    a = np.asarray(a)
    return a.astype(np.float64) if a.dtype.kind == "f" else a


def _misplaced(case: Any, given: Sequence[Any], expected: Any, found: Any) -> float:
    """How far the scores at the positions `found` are from those expected, relative to the largest."""
    import numpy as np

    if np.array_equal(expected, found):
        return 0.0
    assert case.scores is not None, f"{case.name}: {np.mean(expected != found):.1%} of the integers are wrong"
    scores = case.scores(*given)
    ordered = np.sort(found, -1)
    inside = ordered[..., 0].min() >= 0 and ordered[..., -1].max() < scores.shape[-1]
    assert inside, f"{case.name}: positions outside of the axis"
    assert (np.diff(ordered, axis=-1) > 0).all(), f"{case.name}: a position twice"
    taken, best = (np.take_along_axis(scores, np.asarray(p, np.int64), -1) for p in (found, expected))
    return float(np.max(np.abs(taken - best)) / np.max(np.abs(scores)))


def run_case(case: Any, seconds: float, probes: dict[str, float]) -> dict[str, Any]:
    """One row of the table."""
    import numpy as np

    import redfuser as rf

    args = case.arguments(np.random.default_rng(0))
    fused: Any = rf.fuse(case.fn)
    start = time.perf_counter()
    found = fused(*args)
    first = time.perf_counter() - start
    outs = list(found) if isinstance(found, tuple) else [found]
    outs = [o if o.shape or hasattr(o, "float") else np.array(o) for o in outs]
    error = check(case, args, outs)
    out = tuple(outs) if len(outs) > 1 else outs[0]
    candidates: dict[str, Callable[[], Any]] = {OURS: lambda: fused(*args, out=out)}
    failed = {}
    for name, make in case.peers.items():
        try:
            call = make(args, outs)
            call()
            found = call()
            if name in case.checked_peers:
                check(case, args, [found])
            candidates[name] = call
        except Exception as problem:
            failed[name] = f"{type(problem).__name__}: {str(problem).splitlines()[0] if str(problem) else ''}"[:200]
    gc.collect()
    samples = interleaved(candidates, seconds)
    median = {n: statistics.median(s) * 1e3 for n, s in samples.items()}
    ratios = {n: statistics.median(a / b for a, b in zip(samples[n], samples[OURS], strict=True))
              for n in samples if n != OURS}
    best = min(ratios, key=lambda n: median[n], default="")
    limit = limit_ms(case, args, outs, probes)
    return {
        "case": case.name, "limit ms": round(limit, 4), "ms": {n: round(t, 4) for n, t in median.items()},
        "of limit %": round(100 * limit / median[OURS], 1), "best peer": best,
        "best peer/redfuser": round(median[best] / median[OURS], 3) if best else None,
        "paired ratio": round(ratios[best], 3) if best else None,
        "bar": {"of limit %": case.bar[0], "ratio": case.bar[1]}, "error": error,
        "first call s": round(first, 3), "samples": len(samples[OURS]), "failed": failed,
    }


def worker(only: str, seconds: float, file: Path) -> None:
    """All cases in this process, on the CPUs it may use; rows are written to `file` as they come."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from cpu_cases import cases
    from probes import measure

    probes = measure()
    print(json.dumps(probes), flush=True)
    rows: list[dict[str, Any]] = []
    for case in cases():
        if not re.search(only, case.name):
            continue
        try:
            row = run_case(case, seconds, probes)
        except Exception as problem:
            row = {"case": case.name, "problem": f"{type(problem).__name__}: {problem}"[:400]}
        rows.append(row)
        print(json.dumps(row), flush=True)
        gc.collect()
        file.write_text(json.dumps({"probes": probes, "rows": rows}))


def markdown(result: dict[str, Any]) -> str:
    """The table of docs/benchmarks.md."""
    lines = []
    for run in result["runs"]:
        p = run["probes"]
        rates = ", ".join(f"{name} {p[f'{name} GB/s']} GB/s" for name in ("read", "cache", "copy"))
        lines += [f"{p['threads']} thread{'s' * (p['threads'] > 1)}: {p['gflops']} GFLOP/s, {rates}.", "",
                  "| case | limit ms | redfuser ms (% of limit) | best peer ms | ratio | aimed at |",
                  "|---|---|---|---|---|---|"]
        for r in run["rows"]:
            if "problem" in r:
                lines.append(f"| {r['case']} | | {r['problem']} | | | |")
                continue
            best, bar = r["best peer"], r["bar"]
            aim = ", ".join(([f"{bar['of limit %']} %"] if bar["of limit %"] else []) + [f"{bar['ratio']}x"])
            ours = f"{r['ms'][OURS]:.3g} ({r['of limit %']:.0f})"
            peer, ratio = "", ""
            if best:
                peer, ratio = f"{best} {r['ms'][best]:.3g}", f"{r['ms'][best] / r['ms'][OURS]:.2f}"
            lines.append(f"| {r['case']} | {r['limit ms']:.3g} | {ours} | {peer} | {ratio} | {aim} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="run the cases whose name matches")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each case")
    parser.add_argument("--threads", default="1,all", help="1, all or both")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(options.only, options.seconds, options.worker)
        return
    cpus = sorted(os.sched_getaffinity(0))
    runs = []
    for threads in options.threads.split(","):
        chosen = set(cpus[:1] if threads == "1" else cpus)
        file = Path(tempfile.mkdtemp()) / "rows.json"
        command = [sys.executable, __file__, "--worker", str(file), "--only", options.only, "--seconds",
                   str(options.seconds)]
        subprocess.run(command, check=True, preexec_fn=lambda c=chosen: os.sched_setaffinity(0, c),
                       env=os.environ | {"REDFUSER_NUM_THREADS": str(len(chosen)), "OMP_NUM_THREADS": str(len(chosen)),
                                         "NUMBA_NUM_THREADS": str(len(chosen)), **PASSIVE})
        runs.append(json.loads(file.read_text()))
    cpuinfo = Path("/proc/cpuinfo").read_text().splitlines()
    machine = {"cpu": next((x.split(":")[1].strip() for x in cpuinfo if "model name" in x), "?"),
               "python": platform.python_version()}
    result = {"command": " ".join(["python", *sys.argv]), "machine": machine, "runs": runs}
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.markdown:
        print(markdown(result))


if __name__ == "__main__":
    main()
