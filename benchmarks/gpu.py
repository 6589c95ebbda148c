"""Kernels on a GPU: are they right, and how fast are they beside PyTorch, Triton and a copy?

    python benchmarks/gpu.py [--seconds 480] [--all] [--only REGEX] [--json FILE] [--dry-run]

Parts, in this order: instructions and kernels by hand against the host executor; every function of the table against
its definition; compute-sanitizer on a small sample; timings; with --all every fusible entry of the catalogue. A part
that lacks something (torch, Triton, the sanitizer) says so, and the others go on. The file is written after every step.
When time runs short, what goes is, in this order: entries of the catalogue, `torch.compile`, sizes after the first,
the sanitizer's further tools. The table comes last.

--dry-run runs all of it without a GPU: tiny arrays on the host executor, no times. Exit status 0: all right, 1:
something is wrong, 2: wrong usage, 3: no GPU.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from cpu import check  # pyright: ignore[reportAttributeAccessIssue]  # not tests/cpu
from gpu_cases import GpuCase, Size, cases
from gpu_places import DevicePlace, HostPlace, NoGpu, Place

OURS = "redfuser"
SHARES = {"helpers": 0.10, "kernels": 0.35, "sanitizer": 0.50, "timings": 0.75, "compiled": 0.93, "catalogue": 0.98}
"""Until which part of the time each part may begin another step; the table needs the rest."""
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
SAMPLE = r"^(softmax|softmax top-8|layernorm|variance over axis 0|causal attention)$"
"""What the sanitizer looks at; it slows kernels down a hundredfold."""
SANITIZER_HINT = "compute-sanitizer is not here: it is part of the CUDA toolkit (bin/compute-sanitizer)"
HERE = Path(__file__).resolve()
DEFAULT = HERE.parent / "results" / "gpu.json"


class Run:
    """One run: where, for how long, and what is known so far."""

    def __init__(self, place: Place, seconds: float, file: Path | None, only: str = "") -> None:
        self.place, self.seconds, self.file, self.only = place, seconds, file, only
        self.begin = time.perf_counter()
        self.result: dict[str, Any] = {
            "command": " ".join(["python", *sys.argv]), "machine": place.about, "notes": [], "problems": [],
            "helpers": [], "kernels": [], "sanitizer": {}, "timings": [], "catalogue": [], "left out": [],
        }
        self.torch = self._torch()

    def _torch(self) -> Any:
        try:
            import torch
        except ImportError as error:
            self.note(f"no PyTorch ({error}): no peers")
            return None
        if not self.place.dry and not torch.cuda.is_available():
            self.note("this PyTorch sees no GPU: no peers")
            return None
        self.result["machine"]["torch"] = torch.__version__
        torch.set_grad_enabled(False)
        return torch

    def note(self, text: str) -> None:
        """Something that a reader of the table must know."""
        print(f"note: {text}", flush=True)
        self.result["notes"].append(text)

    def save(self) -> None:
        """Write what is known."""
        self.result["seconds"] = round(time.perf_counter() - self.begin, 1)
        if self.file:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(json.dumps(self.result, indent=1) + "\n")

    def may(self, part: str, what: str) -> bool:
        """Whether there is time for another step of a part; what there is none for is written down."""
        if time.perf_counter() - self.begin < SHARES[part] * self.seconds:
            return True
        self.result["left out"].append(f"{part}: {what}")
        return False

    def wanted(self) -> list[GpuCase]:
        """The functions to run."""
        return [c for c in cases() if self.named(c.name)]

    def named(self, name: str) -> bool:
        """Whether --only asks for this step."""
        return re.search(self.only, name) is not None

    @contextmanager
    def step(self, part: str, what: str) -> Iterator[None]:
        """One step: what goes wrong in it is a finding, and the run goes on."""
        begin = time.perf_counter()
        try:
            yield
        except Exception as error:
            text = f"{part}: {what}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:400]
            self.result["problems"].append(text)
            print(f"PROBLEM {text}", flush=True)
        now = time.perf_counter()
        print(f"{now - self.begin:6.1f} s  {part}: {what} ({now - begin:.1f} s)", flush=True)
        self.save()


# ---- helpers and kernels


def helpers(run: Run) -> None:
    """Single instructions and kernels by hand."""
    from gpu_helpers import comparisons

    for name, compare in comparisons(run.place):
        if not run.named(name) or not run.may("helpers", name):
            continue
        with run.step("helpers", name):
            found = compare()
            run.result["helpers"].append(asdict(found) | {"ok": found.good})
            if not found.good:
                raise AssertionError(f"differs by {found.worst:.3g}, allowed are {found.allowed:.3g}")


def kernels(run: Run) -> None:
    """Every function against its definition in float64, on awkward sizes."""
    for case in run.wanted():
        if not run.may("kernels", case.name):
            continue
        with run.step("kernels", case.name):
            fused = run.place.fuse(case.fn, **case.settings)
            worst = max(_against_definition(run, case, fused, size) for size in _small(run, case))
            run.result["kernels"].append({"case": case.name, "error": worst, "allowed": case.rtol})


def _small(run: Run, case: GpuCase) -> tuple[Size, ...]:
    """Awkward sizes; on the host executor the shorter ones."""
    return case.small[:2] if run.place.dry else case.small + tuple(_tiny(s) for s in case.sizes[:1])


def _tiny(size: Size) -> Size:
    """A size with fewer rows: a timed kernel on little data."""
    return (min(size[0], 3), *size[1:])


def _against_definition(run: Run, case: GpuCase, fused: Any, size: Size) -> float:
    given = case.arguments(np.random.default_rng(sum(size)), size)
    found = fused(*map(run.place.array, given))
    return _error(run, case, given, found)


def _error(run: Run, case: GpuCase, given: Sequence[Any], found: Any) -> float:
    outs = found if isinstance(found, tuple) else (found,)
    with np.errstate(all="ignore"):
        return check(case, given, [run.place.host(o) for o in outs])


# ---- the sanitizer


def sample(run: Run) -> None:
    """What runs under the sanitizer: a few small kernels once."""
    for case in [c for c in cases() if re.search(SAMPLE, c.name)][: 1 if run.place.dry else None]:
        for size in case.small[:1] if run.place.dry else case.small:
            given = case.arguments(np.random.default_rng(0), size)
            run.place.fuse(case.fn)(*map(run.place.array, given))
    run.place.wait()


def sanitizer(run: Run) -> None:
    """The sample in a process of its own, under compute-sanitizer."""
    tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
    if tool is None:
        run.note(SANITIZER_HINT)
    if tool is None and not run.place.dry:
        return
    for kind in TOOLS if tool else ("without the tool",):
        if not run.may("sanitizer", kind):
            continue
        with run.step("sanitizer", kind):
            prefix = [tool, "--tool", kind, "--error-exitcode", "9"] if tool and not run.place.dry else []
            command = [*prefix, sys.executable, str(HERE), "--sample", *["--dry-run"] * run.place.dry]
            room = None if run.place.dry else max(10.0, 0.2 * run.seconds)
            done = subprocess.run(command, capture_output=True, text=True, timeout=room, check=False)
            run.result["sanitizer"][kind] = {"status": done.returncode, "tail": (done.stdout + done.stderr)[-1500:]}
            if done.returncode:
                raise AssertionError(f"status {done.returncode}: {(done.stdout + done.stderr)[-200:]}")


# ---- timings


class Timed:
    """One function at one size: buffers that take turns, and the calls on them."""

    def __init__(self, run: Run, case: GpuCase, size: Size) -> None:
        self.run, self.case, self.size = run, case, size
        place = run.place
        self.given = case.arguments(np.random.default_rng(0), size)
        first = [place.array(a) for a in self.given]
        self.fused = place.fuse(case.fn, **case.settings)
        self.found = self.fused(*first)
        outs = self.found if isinstance(self.found, tuple) else (self.found,)
        self.bytes = sum(int(a.nbytes) for a in (*first, *outs))
        self.sets = place.buffers(self.bytes)
        self.arrays = [first] + [[place.shifted(a, i) for a in first] for i in range(1, self.sets)]
        self.outs = [self.found] + [self._like(self.found) for _ in range(1, self.sets)]

    def _like(self, found: Any) -> Any:
        return tuple(map(np.empty_like, found)) if isinstance(found, tuple) else np.empty_like(found)

    def ours(self, i: int) -> Any:
        """One call of the fused function, into output arrays that exist."""
        return self.fused(*self.arrays[i], out=self.outs[i])

    def peer(self, fn: Callable[..., Any]) -> Callable[[int], Any]:
        """A call of PyTorch on the same arrays."""
        torch, place = self.run.torch, self.run.place
        tensors = [[place.tensor(torch, a) for a in arrays] for arrays in self.arrays]
        return lambda i: fn(torch, *tensors[i])

    def spot_check(self) -> float:
        """A few slices of the first results against the definition."""
        outs = self.found if isinstance(self.found, tuple) else (self.found,)
        axis = next(a for a in self.case.cut if a is not None)
        length = self.given[0].shape[axis]
        at = sorted({0, length // 2, length - 1}) if axis or self.case.kind == "memory" else [0]
        given = [a if cut is None else np.take(a, at, cut) for a, cut in zip(self.given, self.case.cut, strict=True)]
        parts = tuple(np.take(self.run.place.host(o), at, 0) if getattr(o, "shape", ()) else o for o in outs)
        return _error(self.run, self.case, given, parts)


def timings(run: Run) -> None:
    """First sizes of all functions, then their further sizes, then `torch.compile` for the first ones."""
    first = [(c, c.sizes[0]) for c in run.wanted()]
    further = [(c, s) for c in run.wanted() for s in c.sizes[1:]]
    for case, size in [*first, *further]:
        what = f"{case.name} {_title(size)}"
        if run.may("timings", what):
            with run.step("timings", what):
                _time_one(run, case, _sized(run, case, size), eager=True)
    if run.torch is None:
        return
    for case, size in first:
        what = f"{case.name} {_title(size)} by torch.compile"
        if case.eager is not None and run.may("compiled", what):
            with run.step("compiled", what):
                _time_one(run, case, _sized(run, case, size), eager=False)


def _sized(run: Run, case: GpuCase, size: Size) -> Size:
    return case.small[0] if run.place.dry else size


def _title(size: Size) -> str:
    return "x".join(map(str, size))


def _time_one(run: Run, case: GpuCase, size: Size, *, eager: bool) -> None:
    """One row: the function, a copy of as many bytes, and a peer, in turn."""
    timed = Timed(run, case, size)
    error = timed.spot_check()
    calls: dict[str, Callable[[int], Any]] = {OURS: timed.ours, "copy": run.place.copies(timed.bytes)}
    failed = ""
    if run.torch is not None and case.eager is not None:
        try:
            name, call = _peer(run, case, timed, eager)
            call(0)
            calls[name] = call
        except Exception as problem:
            failed = f"{type(problem).__name__}: {str(problem)[:150]}"
            run.note(f"{case.name}: {'peer' if eager else 'torch.compile'}: {failed}")
    found = run.place.time(calls, timed.sets, 0.3)
    row: dict[str, Any] = {"case": case.name, "size": list(size), "kind": case.kind, "bytes": timed.bytes,
                           "buffers": timed.sets, "error": error, "ran": list(calls), "times": found}
    if failed:
        row["failed"] = failed
    if found:
        row["% of copy"] = round(100 * found["copy"]["us"] / found[OURS]["us"], 1)
        row["copy GB/s"] = round(timed.bytes / found["copy"]["us"] / 1e3, 1)
        peers = {n: t for n, t in found.items() if n not in (OURS, "copy")}
        row["peer/redfuser"] = {n: round(t["us"] / found[OURS]["us"], 3) for n, t in peers.items()}
    else:
        row["note"] = "dry run, no times"
    run.result["timings"].append(row)


def _peer(run: Run, case: GpuCase, timed: Timed, eager: bool) -> tuple[str, Callable[[int], Any]]:
    assert case.eager is not None
    if eager:
        return case.peer, timed.peer(case.eager)
    run.torch._dynamo.reset()
    torch, fn = run.torch, case.compiled or case.eager
    compiled = run.place.compiled(torch, lambda *tensors: fn(torch, *tensors))
    return "torch.compile", timed.peer(lambda _torch, *tensors: compiled(*tensors))


# ---- the catalogue


def catalogue(run: Run, count: int | None) -> None:
    """Fusible entries of the catalogue against their definitions, `count` of them; None: all."""
    from redfuser.derivation import Verdict
    from redfuser.zoo import ENTRIES
    from redfuser.zoo.data import arguments

    entries = [e for e in ENTRIES.values() if e.verdict is Verdict.FUSIBLE and run.named(e.name)]
    for entry in entries[:count]:
        if not run.may("catalogue", entry.name):
            continue
        with run.step("catalogue", entry.name), np.errstate(all="ignore"):
            given = list(arguments(entry, "mixed", stream=65).values())
            found = run.place.fuse(entry.fn)(*(run.place.array(a) if isinstance(a, np.ndarray) else a for a in given))
            wanted = run.place.host
            outs = [wanted(o) for o in (found if isinstance(found, tuple) else (found,))]
            definition = entry.fn(*(a.astype("float64") if _is_float(a) else a for a in given))
            pairs = zip(outs, definition if isinstance(definition, tuple) else (definition,), strict=True)
            worst = max(_distance(a, np.asarray(b)) for a, b in pairs)
            run.result["catalogue"].append({"entry": entry.name, "error": worst})
            if not worst < 1e-3:
                raise AssertionError(f"error {worst:.2g}")


def _is_float(a: Any) -> bool:
    return isinstance(a, np.ndarray) and a.dtype.kind == "f"


def _distance(a: Any, b: Any) -> float:
    """Largest difference relative to the largest value of the reference `b`; inf where shapes differ, or where
    infinities and NaN do not stand where the reference has them."""
    wide, b = np.asarray(a, "float64"), np.asarray(b, "float64")
    finite = np.isfinite(b)
    if wide.shape != b.shape or not np.array_equal(wide[~finite], b[~finite], equal_nan=True):
        return float("inf")
    if not np.isfinite(wide[finite]).all():
        return float("inf")
    if not finite.any():
        return 0.0
    return float(np.max(np.abs(wide[finite] - b[finite])) / max(1e-30, float(np.max(np.abs(b[finite])))))


# ---- the table


def table(result: dict[str, Any]) -> str:
    """All rows as one table, with what is wrong and what was left out below."""
    lines = ["", "| case | size | redfuser us | copy us | % of copy | peer us (ratio) | torch.compile us (ratio) |",
             "|---|---|---|---|---|---|---|"]
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for row in result["timings"]:
        key = row["case"], _title(tuple(row["size"]))
        merged.setdefault(key, row | {"all": {}})["all"].update(row["times"])
    for (name, size), row in merged.items():
        times = row["all"]
        title = f"{name} (matrix)" if row["kind"] == "matrix" else name
        if not times:
            lines.append(f"| {title} | {size} | {row.get('note', '')} | | | | |")
            continue
        ours = times[OURS]["us"]
        peers = {n: f"{n} {t['us']:.4g} ({t['us'] / ours:.2f})" for n, t in times.items() if n not in (OURS, "copy")}
        compiled = peers.pop("torch.compile", "")
        lines.append(f"| {title} | {size} | {ours:.4g} | {times['copy']['us']:.4g} | {row['% of copy']} | "
                     f"{', '.join(peers.values())} | {compiled.removeprefix('torch.compile ')} |")
    good = sum(h["ok"] for h in result["helpers"])
    watched = ", ".join(f"{tool} status {found['status']}" for tool, found in result["sanitizer"].items())
    right = f"{len(result['kernels'])} functions, {len(result['catalogue'])} entries of the catalogue"
    agree = f"helpers: {good} of {len(result['helpers'])} agree"
    lines += ["", f"{agree}; right are {right}; sanitizer: {watched or 'not run'}"]
    lines += [f"PROBLEM {p}" for p in result["problems"]]
    if result["left out"]:
        lines.append(f"left out for time: {len(result['left out'])}: {'; '.join(result['left out'][:6])} ...")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=480.0, help="for everything")
    parser.add_argument("--all", action="store_true", help="every fusible entry of the catalogue, too")
    parser.add_argument("--only", default="", help="helpers, functions and entries whose name matches")
    parser.add_argument("--json", type=Path, default=None, help=f"by default {DEFAULT.name}; nothing in a dry run")
    parser.add_argument("--dry-run", action="store_true", help="on the host executor, without times")
    parser.add_argument("--sample", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        place: Place = HostPlace() if options.dry_run else DevicePlace()
    except NoGpu as error:
        print(f"benchmarks/gpu.py: {error}; --dry-run runs it without a GPU", file=sys.stderr)
        return 3
    run = Run(place, options.seconds, options.json or (None if place.dry else DEFAULT), options.only)
    if options.sample:
        sample(run)
        return 0
    try:
        for part in (helpers, kernels, sanitizer, timings):
            part(run)
        if options.all or place.dry:
            catalogue(run, None if options.all else 1)
    except KeyboardInterrupt:
        run.note("interrupted")
    run.save()
    print(table(run.result))
    return 1 if run.result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
