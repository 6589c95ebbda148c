"""Attention and the row cascades beside NumPy, and the price of the first call.

    python benchmarks/attention.py [--json FILE]

Candidates run interleaved in one process; each sample is one call, the figure is the median, the ratio is the median of
the paired ratios. Both sides return a fresh array, as a user calls them. A copy of the input (memory roofline) and a
matrix product of the same operation count (compute roofline) stand beside.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import redfuser as rf

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
import functions as F


def interleaved(candidates: dict[str, Callable[[], Any]], seconds: float = 4.0) -> dict[str, list[float]]:
    """Round-robin samples of every candidate after one warm-up each."""
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    for run in candidates.values():
        run()
    start = time.perf_counter()
    while time.perf_counter() - start < seconds or len(next(iter(samples.values()))) < 7:
        for name, run in candidates.items():
            t = time.perf_counter()
            run()
            samples[name].append(time.perf_counter() - t)
    return samples


def compare(title: str, fn: Callable[..., Any], args: tuple[Any, ...], roofline: Callable[[], Any]) -> dict[str, Any]:
    """One row: NumPy against the fused function, with the roofline probe in the same rounds."""
    fused = rf.fuse(fn)
    s = interleaved({"numpy": lambda: fn(*args), "redfuser": lambda: fused(*args), "roofline": roofline})
    median = {name: statistics.median(v) for name, v in s.items()}
    ratio = statistics.median(a / b for a, b in zip(s["numpy"], s["redfuser"], strict=True))
    error = float(np.max(np.abs(fused(*args) - fn(*args))))
    assert fused.stats.interpreter_runs == 0
    return {
        "case": title,
        "ms": {n: round(t * 1e3, 4) for n, t in median.items()},
        "numpy/redfuser": round(ratio, 3),
        "roofline/redfuser": round(median["roofline"] / median["redfuser"], 3),
        "max difference": error,
        "samples": len(s["numpy"]),
    }


def first_call(kind: str) -> float:
    """Seconds of the first attention call in a new process with an empty (or filled) kernel cache, imports included."""
    code = (
        "import time, numpy as np, sys; sys.path.insert(0, sys.argv[1]); import functions as F\n"
        "q = np.random.default_rng(0).normal(size=(8, 1024, 64)).astype('float32')\n"
        "t = time.perf_counter(); import redfuser as rf; rf.fuse(F.attention)(q, q, q); print(time.perf_counter() - t)"
    )
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"REDFUSER_CACHE_DIR": folder}
        tests = str(Path(__file__).resolve().parents[1] / "tests")
        runs = [
            float(
                subprocess.run(
                    [sys.executable, "-c", code, tests], env=env, check=True, capture_output=True, text=True
                ).stdout
            )
            for _ in range(3)
        ]
        return runs[0] if kind == "cold" else statistics.median(runs[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)

    def array(*shape: int) -> Any:
        return rng.normal(size=shape).astype("float32")

    rows: list[dict[str, Any]] = []
    for h, n, d in ((8, 1024, 64), (2, 4096, 64), (4, 1024, 128)):
        q, k, v = array(h, n, d), array(h, n, d), array(h, n, d)
        a, b = array(h, n, d), array(h, d, 2 * n)
        for name in ("attention", "causal_attention"):
            rows.append(compare(f"{name} {h}x{n}x{d}", getattr(F, name), (q, k, v), lambda a=a, b=b: a @ b))
            print(json.dumps(rows[-1]), flush=True)
    for shape in ((4096, 4096), (64, 131072), (32, 128)):
        x = array(*shape)
        weight, bias = array(shape[1]), array(shape[1])
        out = np.empty_like(x)
        for name in ("softmax", "logsumexp", "variance", "layernorm"):
            args = (x, weight, bias) if name == "layernorm" else (x,)
            rows.append(
                compare(f"{name} {shape[0]}x{shape[1]}", getattr(F, name), args, lambda x=x, out=out: np.copyto(out, x))
            )
            print(json.dumps(rows[-1]), flush=True)
    first = {"cold s": round(first_call("cold"), 3), "kernel cache filled s": round(first_call("warm"), 3)}
    print(json.dumps({"first attention call": first}))
    if options.json:
        cpu = next(
            (x.split(":")[1].strip() for x in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in x), "?"
        )
        machine = {"cpu": cpu, "python": platform.python_version(), "numpy": np.__version__}
        options.json.write_text(
            json.dumps(
                {
                    "command": " ".join(["python", *sys.argv]),
                    "machine": machine,
                    "rows": rows,
                    "first attention call": first,
                },
                indent=1,
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
