"""Random schedules: whatever a plan decides, its kernel computes the definition.

    python -m redfuser.testing.schedules --n 1000 --seed 0

Schedule i of a run with seed S is `draw(S + i)`: a cascade of one of `CASES`, options for every decision, memory
layouts and a vector width. Its tile program is interpreted and compiled, and both run on a few inputs of other lengths
and kinds than the plan was made for. Checked are the numerical contract of both, that both have NaN at the same places
where all inputs are finite, and that a kernel gives the same bits again and on other numbers of threads.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from redfuser import pipeline
from redfuser.api import fuse, spec
from redfuser.api.program import contiguous_axis
from redfuser.codegen import build, check_kernel, run_kernel
from redfuser.codegen.c import CTarget
from redfuser.codegen.nodes import Kernel
from redfuser.derivation.fusion import FusedCascade
from redfuser.extract import Options, plan
from redfuser.extract.neighbours import described
from redfuser.extract.roles import NoTiles
from redfuser.ir import Cascade, find_parts
from redfuser.ir.contract import expected_results
from redfuser.ir.dtypes import is_float, numpy_dtype
from redfuser.ir.term import base_axis
from redfuser.runtime import CompiledKernel, compile_kernel, find_compiler
from redfuser.testing.inputs import KINDS, draw_arrays
from redfuser.testing.schedule_cases import CASES, Case
from redfuser.testing.subjects import may_be_empty

Array = np.ndarray[Any, Any]

INPUTS = 3
"""Inputs that each kernel runs on."""

STREAMS = (0, 1, 2, 3, 7, 8, 9, 16, 17, 31, 33, 61, 64, 97, 257)
"""Lengths of the stream, beside those next to a block, a chunk and a register tile."""
ROWS = (0, 1, 2, 3, 5, 8, 13, 31)
"""Lengths of other free axes, beside those next to a tile."""
STATIC = (1, 2, 3, 5, 8, 13, 16, 17, 24)
"""Lengths that kernels are specialised for."""
BLOCKS = (1, 2, 3, 5, 8, 16, 17, 32, 48, 100)
TILES = (1, 2, 3, 5, 6, 8, 13, 16, 33)
CHUNKS = (0, 1, 5, 8, 16, 40, 64)
LAYOUTS = ("as it is", "permuted", "gaps")
FIRST = "kernel on 2 threads"
"""The run whose bits the others must give."""


@dataclass(frozen=True)
class Schedule:
    """A random schedule: the lengths it is planned for, and how its arrays lie in memory (name -> (order, gap))."""

    number: int
    case: str
    dtype: str
    options: Options
    sizes: Mapping[str, int]
    memory: Mapping[str, tuple[tuple[int, ...], int]]
    vector_bytes: int

    def __str__(self) -> str:
        return (f"schedule {self.number}: {self.case} {self.dtype}, {described(self.options)}, planned for "
                f"{dict(self.sizes)}, {self.vector_bytes}-byte vectors, memory {dict(self.memory)}")


def draw(number: int) -> Schedule:
    """The schedule of this number."""
    rng = np.random.default_rng(number)
    names = list(CASES)
    case = names[number % len(names)]
    dtype = str(rng.choice(["float32", "float64"], p=[0.7, 0.3]))
    _, fused = fusion(case, dtype)
    options = _options(rng)
    sizes = _sizes(fused, options, rng, {})
    memory = {}
    c = fused.cascade
    for name, axes in [(t.name, t.axes) for t in c.tensors] + [(o.name, o.axes) for o in c.outs]:
        how = str(rng.choice(LAYOUTS, p=[0.6, 0.3, 0.1]))
        order = tuple(int(i) for i in (rng.permutation(len(axes)) if how == "permuted" else range(len(axes))))
        memory[name] = order, 2 if how == "gaps" else 1
    widths = sorted({16, pipeline.machine_profile().vector_bytes})
    return Schedule(number, case, dtype, options, sizes, memory, int(rng.choice(widths)))


def _options(rng: np.random.Generator) -> Options:
    """Each decision made at random, or left to the scheduler."""

    def maybe(values: Sequence[Any], share: float) -> Any:
        return values[int(rng.integers(len(values)))] if rng.random() < share else None

    register = (int(rng.integers(1, 9)), int(rng.integers(1, 4))) if rng.random() < 0.4 else None
    return Options(maybe(BLOCKS, 0.7), maybe(TILES, 0.6), register, maybe((True, False), 0.5), maybe(CHUNKS, 0.5),
                   maybe(("rows", "columns", "tiles"), 0.4))


@lru_cache(maxsize=64)
def fusion(case: str, dtype: str) -> tuple[Cascade, FusedCascade]:
    """The definition of a case and its fused form: the cascade with the most reductions."""
    found: Case = CASES[case]
    specs = {name: spec(shape, dtype if kind == "" else kind) for name, (shape, kind) in found.arguments.items()}
    lowered = fuse(found.fn, target="interpret").lower(**specs)
    pairs = zip(lowered.partition.cascades, lowered.fusion, strict=True)
    return max(pairs, key=lambda pair: len(pair[0].reductions))


def _sizes(fused: FusedCascade, options: Options, rng: np.random.Generator, fixed: Mapping[str, int]
           ) -> dict[str, int]:
    """Random lengths, many of them next to where a loop ends."""
    c = fused.cascade
    near = [n + d for n in (options.block, options.chunk, 16, 64) if n for d in (-1, 0, 1)]
    places = max((m.rank or 0 for r in c.reductions if (m := find_parts(r.monoid))), default=0)
    streams = [n for n in (*STREAMS, *near) if n >= places and (n > 0 or may_be_empty([c]))]
    rows = [*ROWS, *(n + d for n in (options.tile,) if n for d in (-1, 0, 1) if n + d > 0)]
    inner = {base_axis(a) for r in c.reductions for a in r.axes} | {base_axis(a) for o in c.outs for a in o.axes}
    found: dict[str, int] = {}
    for a in c.axes:
        name = base_axis(a.name)
        if name in fixed or a.size is not None:
            found[name] = fixed.get(name, a.size or 1)
        elif name not in found:
            own = streams if name == base_axis(c.axis or "") else rows if name in inner else STATIC
            found[name] = int(rng.choice(own))
    return found


def _laid_out(array: Array, memory: tuple[tuple[int, ...], int]) -> Array:
    """The same values, in another order of axes and with gaps between the elements of the last axis in memory."""
    order, gap = memory
    shape = [array.shape[i] for i in order]
    if gap > 1 and shape:
        shape[-1] *= gap
    store: Array = np.zeros(shape, array.dtype)
    view = store[..., ::gap] if shape else store
    made = view.transpose(np.argsort(order)) if order else view
    made[...] = array
    return made


def check(schedule: Schedule, inputs: int = INPUTS) -> str | None:
    """What is wrong with a schedule; None when nothing is."""
    try:
        return _check(schedule, inputs)
    except Exception:
        return f"{schedule}\n{traceback.format_exc()}"


def _check(schedule: Schedule, inputs: int) -> str | None:
    _, fused = fusion(schedule.case, schedule.dtype)
    c = fused.cascade
    layouts = {}
    for name, axes in [(t.name, t.axes) for t in c.tensors] + [(o.name, o.axes) for o in c.outs]:
        lying = _laid_out(np.zeros([3] * len(axes)), schedule.memory[name])
        layouts[name] = contiguous_axis(lying, axes)
    profile = pipeline.machine_profile().with_fields(vector_bytes=schedule.vector_bytes, threads=2)
    compute = pipeline.compute_dtype(c, pipeline.Options())
    try:
        chosen = plan(fused, schedule.sizes, profile, layouts, compute, schedule.options)
    except NoTiles:
        options = replace(schedule.options, strategy=None)
        chosen = plan(fused, schedule.sizes, profile, layouts, compute, options)
    kernel = build(chosen)
    check_kernel(kernel)
    native = find_compiler().native_flags()
    compiled = compile_kernel(kernel, threads=2, target=CTarget(schedule.vector_bytes), flags=native)
    rng = np.random.default_rng((schedule.number, 1))
    for k in range(inputs):
        sizes = schedule.sizes if k == 0 else _sizes(fused, schedule.options, rng, dict(kernel.static))
        kind = "normal" if k == 0 else str(rng.choice([x for x in KINDS if x not in ("long", "empty")]))
        streams = frozenset() if c.axis is None else frozenset((c.axis,))
        drawn = draw_arrays(c.tensors, sizes, kind, rng, streams)
        arrays = {n: _laid_out(a, schedule.memory[n]) for n, a in drawn.items()}
        wrong = _compare(schedule, kernel, compiled, arrays, sizes)
        if wrong is not None:
            return f"{schedule}\n{chosen}\nsizes {sizes}, {kind}: {wrong}"
    return None


def _compare(schedule: Schedule, kernel: Kernel, compiled: CompiledKernel, arrays: Mapping[str, Array],
             sizes: Mapping[str, int]) -> str | None:
    """One input on the interpreter and the kernel."""
    c, _ = fusion(schedule.case, schedule.dtype)

    def fresh() -> dict[str, Array]:
        shapes = {o.name: (o, [sizes[base_axis(a)] for a in o.axes]) for o in c.outs}
        return {n: _laid_out(np.full(s, 77, numpy_dtype(o.dtype)), schedule.memory[n]) for n, (o, s) in shapes.items()}

    inputs = [arrays[t.name] for t in c.tensors]
    results: dict[str, dict[str, Array]] = {}
    with np.errstate(all="ignore"):
        expected = expected_results((c,), dict(arrays), sizes=dict(sizes))
        results["interpreter"] = fresh()
        run_kernel(kernel, dict(arrays), results["interpreter"], sizes)
        for name, threads in ((FIRST, 2), ("kernel again", 2), ("kernel on 1 thread", 1)):
            results[name] = fresh()
            compiled.run(inputs, list(results[name].values()), sizes, threads=threads)
    finite = all(np.isfinite(a).all() for a in arrays.values() if is_float(a.dtype))
    for o in c.outs:
        first = results[FIRST][o.name]
        for name, found in results.items():
            got = found[o.name]
            discrete = got.dtype.kind in "biu" and not finite  # positions and truth values then: docs/order.md
            if o.name in expected and not discrete and expected[o.name].wrong(got).any():
                at = tuple(int(i[0]) for i in np.nonzero(expected[o.name].wrong(got)))
                return (f"{name}, {o.name}{list(at)} is {got[at]}, by definition "
                        f"{expected[o.name].accepted[0][at]}, {expected[o.name].excess(got):.3g} times what is allowed")
            if name.startswith("kernel") and got.tobytes() != first.tobytes():
                return f"{name} gives other bits of {o.name} than {FIRST}"
            if finite and not np.array_equal(got != got, first != first):
                return f"{name} and the kernel have NaN at different places of {o.name}"
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit status is 1 when a schedule is wrong."""
    parser = argparse.ArgumentParser(prog="python -m redfuser.testing.schedules", description="Random schedules.")
    parser.add_argument("--n", type=int, default=300, help="number of schedules (default 300)")
    parser.add_argument("--seed", type=int, default=0, help="number of the first schedule (default 0)")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    given = parser.parse_args(arguments)
    start, wrong, done = time.perf_counter(), 0, 0
    for number in range(given.seed, given.seed + given.n):
        if given.seconds is not None and time.perf_counter() - start > given.seconds:
            break
        found = check(draw(number))
        done += 1
        if found is not None:
            wrong += 1
            print(found, "\n", flush=True)
    print(f"{done} schedules, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
