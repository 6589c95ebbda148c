"""`redfuser tune`: time schedules of a function's kernels on random arrays, and show what was found."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, cast

import numpy as np
from rich.text import Text

import redfuser as rf
from redfuser.api.built import Built
from redfuser.api.lowered import DEFAULT_LENGTH
from redfuser.api.progress import always
from redfuser.api.tuning import words
from redfuser.cli.app import print_json
from redfuser.cli.console import console, heading, table
from redfuser.cli.target import Target
from redfuser.extract.neighbours import described
from redfuser.frontend import Spec
from redfuser.ir.dtypes import numpy_dtype


def run_tune(target: Target, tuning: rf.Tuning, *, as_json: bool) -> None:
    """Tune the kernels of a function for its arguments; those tuned before are shown as they were found then."""
    rng = np.random.default_rng(0)
    args = [_array(a, rng) for a in target.args]
    kwargs = {name: _array(a, rng) for name, a in target.kwargs.items()}
    with target.blame():
        fused = cast(rf.Fused, rf.fuse(target.fused, tune=tuning))
        before = fused.stats.tunings
        token = always.set(True)
        try:
            fused(*args, **kwargs)
        finally:
            always.reset(token)
        built = fused.lower(*args, **kwargs).built
    if as_json:
        print_json({"timed": fused.stats.tunings - before, "kernels": [_plain(b) for b in built]})
        return
    if fused.stats.tunings == before:
        console().print(Text("found on disk; --again times anew"))
    for b in built:
        _show(b)


def _array(value: Any, rng: np.random.Generator) -> Any:
    """Random values for a spec: standard normal, truth values, 0 and 1; anything else as it is."""
    if not isinstance(value, Spec):
        return value
    shape = [n if isinstance(n, int) else DEFAULT_LENGTH for n in value.shape]
    dtype = numpy_dtype(value.dtype)
    if dtype.kind in "biu":
        return rng.integers(0, 2, shape).astype(dtype)
    return np.asarray(rng.standard_normal(shape)).astype(dtype)


def _plain(b: Built) -> dict[str, Any]:
    """A kernel as JSON values."""
    found: dict[str, Any] = {"name": b.kernel.name, "schedule": b.plan.strategy}
    if b.choice is None:
        return found
    choice = asdict(b.choice)
    candidates = choice.pop("trials")
    return found | choice | {"chosen": described(b.choice.options), "candidates": candidates}


def _show(b: Built) -> None:
    """The candidates of one kernel, the fastest first."""
    output = console()
    output.print(heading(f"kernel {b.kernel.name}: {b.plan.strategy}"))
    if b.choice is None:
        output.print(Text("  nothing was timed: an array has no elements, or the kernel surrounds a product by BLAS"))
        return
    numbers = ("predicted us", "measured us", "ratio")
    found = table("candidate", *numbers, "", numbers=numbers)
    rows = [("the model's choice", b.choice.predicted, b.choice.default, 1.0, "" if b.choice.gain > 1 else "chosen")]
    rows += [(described(t.options), t.predicted, t.seconds, t.ratio, t.outcome) for t in b.choice.trials]
    for name, predicted, seconds, ratio, outcome in sorted(rows, key=lambda row: -row[3]):
        found.add_row(Text(name), f"{predicted * 1e6:.1f}", f"{seconds * 1e6:.1f}", f"{ratio:.2f}", outcome)
    output.print(found)
    output.print(Text(f"  {words(b.choice)}"))
