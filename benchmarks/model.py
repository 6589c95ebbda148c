"""The cost model against the clock: predicted and measured times of many plans, and of attention by length.

    python benchmarks/model.py [--seconds S] [--only REGEX] [--json FILE]

A plan is a cascade, lengths, and options that force a decision (none: the scheduler's own). Each kernel is called on
arrays that earlier calls have read, with nothing but addresses to pass; the time is the median of samples of a
millisecond. Plans take turns in several rounds, so that a slow minute does not fall on one of them. The prediction is
the one that `explain` shows for the kernel; beside it stands the roofline of the fused form, which knows no schedule.
Spearman's rank correlation is over all plans and within each group. `held out`: no constant was fitted to these.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from redfuser import pipeline
from redfuser.api import fuse, spec
from redfuser.derivation.fusion import FusedCascade
from redfuser.extract import Options, Plan, Profile
from redfuser.extract.neighbours import described
from redfuser.extract.plan_time import predict_plan
from redfuser.extract.roofline import predict, work_on
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.term import base_axis
from redfuser.runtime.arrays import data_pointer
from redfuser.testing.schedule_cases import CASES

AIM = 0.9
ROUNDS = 3
LENGTHS = (1024, 2048, 4096, 8192, 16384)


@dataclass
class Entry:
    """A kernel that is timed."""

    group: str
    title: str
    predicted: float
    roofline: float
    workspace: int
    call: Callable[[], None]
    samples: list[float]

    @property
    def measured(self) -> float:
        return statistics.median(self.samples)


@lru_cache(maxsize=64)
def fusion(case: str) -> FusedCascade:
    """A case of the random schedules in float32: its cascade with the most reductions."""
    found = CASES[case]
    specs = {n: spec(shape, "float32" if kind == "" else kind) for n, (shape, kind) in found.arguments.items()}
    return max(fuse(found.fn, target="interpret").lower(**specs).fusion, key=lambda f: len(f.cascade.reductions))


def planned(case: str, sizes: Mapping[str, int], options: Options, profile: Profile) -> Plan:
    """The plan of a case on a machine."""
    return pipeline.plan_step(fusion(case), sizes, {}, "float32", profile, options)


def titled(case: str, sizes: Mapping[str, int], options: Options) -> str:
    """The name of a plan."""
    lengths = "x".join(str(n) for n in sizes.values())
    return f"{case} {lengths}" + (f" {described(options)}" if options != Options() else "")


def kernel(case: str, sizes: Mapping[str, int], options: Options, group: str) -> Entry:
    """A case, planned and compiled for these lengths."""
    plan = planned(case, sizes, options, pipeline.machine_profile())
    return timed(group, titled(case, sizes, options), fusion(case), plan, sizes)


def timed(group: str, title: str, fused: FusedCascade, plan: Plan, sizes: Mapping[str, int]) -> Entry:
    """A plan, compiled, on arrays of these lengths."""
    compiled = pipeline.kernel_step(pipeline.tile_step(plan))
    rng, c = np.random.default_rng(0), fused.cascade

    def array(axes: tuple[str, ...], dtype: str) -> Any:
        return rng.standard_normal([sizes[base_axis(a)] for a in axes]).astype(numpy_dtype(dtype))

    arrays = [array(t.axes, t.dtype) for t in c.tensors]
    outs = [np.empty([sizes[base_axis(a)] for a in o.axes], numpy_dtype(o.dtype)) for o in c.outs]
    call = compiled.repeatable(arrays, outs, sizes)
    assert call is not None
    addresses = [data_pointer(a) for a in (*arrays, *outs)]

    def run(keep: Any = (arrays, outs)) -> None:  # the arrays live as long as the call
        call(addresses)

    predicted = predict_plan(plan, sizes).seconds
    host = pipeline.host()
    roofline = predict(work_on(host, fused, sizes), host).seconds
    return Entry(group, title, predicted, roofline, compiled.workspace(sizes), run, [])


def plans() -> Iterator[tuple[str, str, dict[str, int], Options]]:
    """(group, case, lengths, options)."""
    default = Options()
    for case in ("softmax", "entropy", "moments", "layer_norm", "deviation", "weighted_mean"):
        for p, n in ((64, 256), (1024, 1024), (32, 131072)):
            yield "rows", case, {"p": p, "n": n}, default
    for block in (64, 512, 16384):
        yield "rows", "softmax", {"p": 32, "n": 131072}, Options(block=block)
        yield "rows", "moments", {"p": 32, "n": 131072}, Options(block=block)
    for chunk in (0, 65536):
        yield "split", "entropy", {"p": 1, "n": 2_000_000}, Options(chunk=chunk)
        yield "split", "moments", {"p": 3, "n": 2_000_000}, Options(chunk=chunk)
    for case in ("column_softmax", "column_variance"):
        for n, p in ((256, 64), (1024, 1024), (8192, 512)):
            yield "columns", case, {"n": n, "p": p}, default
        yield "columns", case, {"n": 1024, "p": 1024}, Options(strategy="rows")
        yield "columns", case, {"n": 1024, "p": 1024}, Options(tile=64)
    yield "columns", "covariance", {"n": 4096, "p": 64}, default
    yield "columns", "covariance", {"n": 1024, "p": 256}, default
    for h, n, d in ((8, 128, 64), (8, 1024, 64), (4, 1024, 128), (2, 4096, 64), (8, 512, 16)):
        yield "tiles", "attention", {"h": h, "i": n, "n": n, "k": d, "d": d}, default
        yield "tiles", "causal_attention", {"h": h, "i": n, "n": n, "k": d, "d": d}, default
    size = {"h": 8, "i": 512, "n": 512, "k": 64, "d": 64}
    for options in (Options(register_tile=(4, 1)), Options(register_tile=(2, 2)), Options(register_tile=(1, 1)),
                    Options(block=16), Options(block=64), Options(tile=6), Options(tile=24), Options(pack=True),
                    Options(register_tile=(8, 3))):
        yield "tiles", "attention", size, options
    yield "tiles", "attention", {"h": 2, "i": 128, "n": 256, "k": 32, "d": 32}, default
    yield "tiles", "attention", {"h": 2, "i": 128, "n": 256, "k": 32, "d": 32}, Options(strategy="rows")
    yield "tiles", "attention", {"h": 8, "i": 4, "n": 16384, "k": 64, "d": 64}, default
    yield "tiles", "decode", {"k": 128, "n": 32768, "d": 128}, default
    for p, n, d in ((128, 1024, 256), (1024, 1024, 1024)):
        yield "tiles", "normed_product", {"p": p, "n": n, "d": d}, default
    yield "tiles", "scores", {"h": 4, "i": 512, "k": 64, "n": 512}, default
    for n in (256, 1024):
        yield "inner", "nearest", {"i": n, "n": n, "k": 32}, default
        yield "inner", "widest", {"i": n, "n": n, "k": 32}, default
    for case in ("router", "position"):
        yield "lists", case, {"p": 1024, "n": 256, "r": 3}, default
        yield "lists", case, {"p": 64, "n": 16384, "r": 3}, default
    for p, n in ((64, 256), (1024, 1024), (4096, 4096)):
        yield "elementwise", "elementwise", {"p": p, "n": n}, default
    yield from held_out()


def held_out() -> Iterator[tuple[str, str, dict[str, int], Options]]:
    """Plans of lengths that no constant of the model was fitted to."""
    default = Options()
    for case in ("softmax", "moments", "layer_norm", "above"):
        for p, n in ((200, 5000), (7, 700_000), (3000, 40)):
            yield "held out", case, {"p": p, "n": n}, default
    for case in ("column_softmax", "column_variance"):
        yield "held out", case, {"n": 3000, "p": 300}, default
    for case in ("attention", "causal_attention", "masked_attention"):
        yield "held out", case, {"h": 3, "i": 700, "n": 900, "k": 48, "d": 40}, default
        yield "held out", case, {"h": 16, "i": 50, "n": 60, "k": 32, "d": 32}, default
    yield "held out", "decode", {"k": 64, "n": 5000, "d": 80}, default
    yield "held out", "normed_product", {"p": 333, "n": 555, "d": 777}, default
    yield "held out", "nearest", {"i": 300, "n": 3000, "k": 8}, default
    yield "held out", "router", {"p": 5000, "n": 64, "r": 3}, default


def measure(entries: list[Entry], seconds: float) -> None:
    """Samples in rounds: each as many calls as fill a millisecond."""
    for _ in range(ROUNDS):
        for e in entries:
            e.call()
            start = time.perf_counter()
            e.call()
            repeats = max(1, int(1e-3 / (time.perf_counter() - start)))
            end = time.perf_counter() + seconds / ROUNDS
            taken = 0
            while taken < 2 or time.perf_counter() < end:
                start = time.perf_counter()
                for _ in range(repeats):
                    e.call()
                e.samples.append((time.perf_counter() - start) / repeats)
                taken += 1


def correlation(predicted: list[float], entries: list[Entry]) -> float:
    """Spearman's rank correlation of predicted and measured times."""
    found: Any = spearmanr(predicted, [e.measured for e in entries])
    return round(float(found.statistic), 4)


def summary(entries: list[Entry]) -> dict[str, Any]:
    """Correlation and ratios, over all and by group."""
    def of(some: list[Entry]) -> dict[str, Any]:
        ratios = sorted(e.measured / e.predicted for e in some)
        found = {"plans": len(some), "spearman": correlation([e.predicted for e in some], some),
                 "spearman of the roofline": correlation([e.roofline for e in some], some)}
        return {**found,
                "measured/predicted": {"least": round(ratios[0], 2), "median": round(statistics.median(ratios), 2),
                                       "most": round(ratios[-1], 2)}}

    groups = dict.fromkeys(e.group for e in entries)
    return {"all": of(entries), **{g: of([e for e in entries if e.group == g]) for g in groups}}


def attention_by_length(seconds: float) -> list[dict[str, Any]]:
    """One head of size 64: time and extra memory over four octaves, beside the model."""
    entries = [kernel("attention", {"h": 1, "i": n, "n": n, "k": 64, "d": 64}, Options(), "length") for n in LENGTHS]
    measure(entries, seconds)
    rows = []
    for n, e in zip(LENGTHS, entries, strict=True):
        rows.append({"length": n, "measured ms": round(e.measured * 1e3, 4),
                     "predicted ms": round(e.predicted * 1e3, 4), "workspace bytes": e.workspace,
                     "per element": round(e.workspace / n, 1), "scores would take": 4 * n * n})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.1, help="for each plan")
    parser.add_argument("--only", default="", help="plans whose title matches")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    entries = [kernel(case, sizes, options, group) for group, case, sizes, options in plans()]
    entries = [e for e in entries if re.search(given.only, e.title)]
    measure(entries, given.seconds)
    for e in sorted(entries, key=lambda e: (e.group, e.measured)):
        print(f"{e.group:<12}{e.title:<58}{e.predicted * 1e6:>12.1f} us{e.measured * 1e6:>12.1f} us"
              f"{e.measured / e.predicted:>8.2f}")
    found = summary(entries)
    for name, line in found.items():
        print(f"{name:<12}{line}")
    lengths = attention_by_length(given.seconds)
    for row in lengths:
        print(row)
    growth = np.polyfit(np.log2(LENGTHS), np.log2([r["workspace bytes"] for r in lengths]), 1)[0]
    times = np.polyfit(np.log2(LENGTHS), np.log2([r["measured ms"] for r in lengths]), 1)[0]
    print(f"extra memory grows with length^{growth:.2f}, time with length^{times:.2f}")
    assert all(r["workspace bytes"] < 1024 * r["length"] + 4 * 2**20 for r in lengths), "more than O(N) extra memory"
    if found["all"]["spearman"] < AIM:
        print(f"the correlation is below {AIM}")
    if given.json:
        plain = [{"group": e.group, "plan": e.title, "predicted us": round(e.predicted * 1e6, 2),
                  "roofline us": round(e.roofline * 1e6, 2), "measured us": round(e.measured * 1e6, 2),
                  "workspace": e.workspace} for e in entries]
        machine = {"profile": asdict(pipeline.machine_profile()), "python": platform.python_version()}
        result = {"command": " ".join(["python benchmarks/model.py", *sys.argv[1:]]), "machine": machine,
                  "spearman": found["all"]["spearman"], "groups": found, "memory exponent": round(float(growth), 3),
                  "time exponent": round(float(times), 3), "attention": lengths, "plans": plain}
        given.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
