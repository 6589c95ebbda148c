"""Inputs that show faults, the definition's results on them, and one run of a program under one schedule of threads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from redfuser.codegen.cuda import CudaProgram, CudaTarget, TeamPhase
from redfuser.codegen.nodes import For, Kernel
from redfuser.codegen.passes.bodies import nested
from redfuser.derivation import FusedCascade
from redfuser.errors import CheckError, CompileError
from redfuser.extract import Options
from redfuser.extract.gpu import Gpu
from redfuser.extract.plan_gpu import gpu_plan
from redfuser.ir import Cascade, Const, Tuple, run_cascade, walk
from redfuser.ir.contract import Expected, expected_results
from redfuser.ir.dtypes import finfo, is_float, numpy_dtype
from redfuser.ir.ops import PIVOT
from redfuser.ir.term import base_axis
from redfuser.pipeline import Options as FuseOptions
from redfuser.pipeline import compute_dtype
from redfuser.runtime.cuda.errors import CudaFault, LaunchError
from redfuser.runtime.cuda.kernel import HOST_BLOCKS, HostCudaKernel, scheduled
from redfuser.runtime.cuda.launched import holds
from redfuser.testing.faults.registry import Fault, Scheduled
from redfuser.testing.inputs import draw_arrays

Array = np.ndarray[Any, Any]

TARGET = CudaTarget(Gpu.of("sm_80"))
SPIKE = 1000.0
"""Above this an exponential overflows in every precision."""
RARE = 8.0
"""Beyond all normal numbers."""
ROWS = (5, 29, 1, 14)
"""Lengths of the rows: fewer and more than all teams of a launch, one more than they, and one alone."""
COLUMNS = (5, 67, 33, 130)
"""Lengths of rows where threads take neighbouring ones: beside a tile, and some tiles."""
INNER = (3, 5, 2, 8)
KINDS = ("normal", "spikes", "rare ties", "ties", "sorted", "deep", "nan", "masked", "high", "wide", "nothing alive")
"""Kinds of inputs: those of `redfuser.testing.inputs`, and

spikes       one element per row far above or below all others: first, last, or beside the edges of blocks
rare ties    few different numbers; the largest of a row, or the smallest, twice: near its beginning and at its end
deep, high   all elements far from zero on one side
"""
MOVED = ("spikes", "rare ties", "deep", "high")
"""Kinds that are made from normal numbers."""
UNMEASURED = ("normal", "rare ties", "ties", "sorted")
"""Kinds of inputs for operators of users, of whose rounding the contract says nothing."""
NEAR = 1e-4
"""Relative difference that counts as none for them."""
LONG = 1024
"""Length of the stream from which on inputs are fewer."""
LEAST_BLOCK = 8
"""Longer than steps of unrolled loops."""
MANY = (219, 241)
"""Rows that are not split: more than two for each multiprocessor."""
WIDE = 801
"""Columns side by side: more than all teams of a launch take at a time."""
MOST = 300_000
"""Elements of a trial, all sizes multiplied, above which it has few rows; a
fifteenth where elements are reductions themselves, each of which a thread computes alone."""


@dataclass(frozen=True)
class Subject:
    """A fused cascade with a schedule: what faults are planted in.

    options     decisions that the schedule is asked for
    hint        length of the stream that it is made for
    contiguous  axis other than the last one along which arrays are contiguous, or ""
    """

    name: str
    cascade: Cascade
    fused: FusedCascade
    options: Options = field(default_factory=Options)
    hint: int = 64
    contiguous: str = ""

    @cached_property
    def kernel(self) -> Kernel:
        """The tile program."""
        from redfuser.pipeline import tile_step

        c = self.fused.cascade
        axes = {t.name: t.axes for t in c.tensors} | {o.name: o.axes for o in c.outs}
        layouts = {name: self._inner(own) for name, own in axes.items() if own}
        sizes = {base_axis(a.name): a.size or self.hint for a in c.axes}
        dtype = compute_dtype(c, FuseOptions())
        return tile_step(gpu_plan(self.fused, sizes, TARGET.gpu, layouts, dtype, self.options))

    @property
    def _teams(self) -> list[TeamPhase]:
        return [p for p in self.scheduled.phases if isinstance(p, TeamPhase)]

    @cached_property
    def block(self) -> int:
        """Elements of the stream between two corrections: the longest step of a loop; without one, the hint."""
        steps = [x.step.value for p in self._teams for x in nested(p.loop.body)
                 if isinstance(x, For) and isinstance(x.step, Const)]
        longest = max(map(int, steps), default=1)
        return longest if longest >= LEAST_BLOCK else self.hint

    @cached_property
    def round(self) -> int:
        """Elements that all threads of a team take before one of them takes another vector."""
        return max((p.team * w.elements for p in self._teams for w in p.widths), default=1)

    @property
    def measured(self) -> bool:
        """Whether the numerical contract bounds the rounding of all reductions."""
        return not any(isinstance(x, Tuple) for r in self.cascade.reductions for x in walk(r.body))

    def _inner(self, axes: Sequence[str]) -> str:
        return self.contiguous if self.contiguous in axes else axes[-1]

    @cached_property
    def scheduled(self) -> Scheduled:
        """The program that faults are planted in."""
        free = [a.name for a in self.fused.accumulators if a.monoid == PIVOT]
        return Scheduled.of(self.kernel, TARGET, free)

    @cached_property
    def trials(self) -> list[Trial]:
        """Inputs in the order in which they are tried."""
        return list(self._drawn())

    def runs(self, number: int) -> bool:
        """Whether some input reaches a phase."""
        return any(t.reaches(number) for t in self.trials)

    def _drawn(self) -> Iterator[Trial]:
        short = min(n for n in _lengths(self) if n > 2)
        plan: list[tuple[int, str, tuple[int, ...], tuple[int, ...]]] = [(*p, INNER) for p in _plan(self)]
        plan.append((short, "normal", ROWS, (self.round + 5,)))
        if not self.contiguous:
            most = HOST_BLOCKS * max((p.teams for p in self._teams), default=1)
            plan += [(n, "normal", (most + 5,), INNER) for n in (short, self.block + 1)]  # a second round of teams
        for number, (length, kind, rows, inner) in enumerate(plan):
            sizes = self._sizes(number, length, rows, inner)
            if math.prod(sizes.values()) > (MOST if len(sizes) == 2 else MOST // 15):
                sizes = self._sizes(number, length, ROWS[:1], inner)
            yield Trial(self, sizes, kind, (0, 1, 5, 11)[number % 4], number)

    def _sizes(self, number: int, length: int, rows: tuple[int, ...], inner: tuple[int, ...]) -> dict[str, int]:
        """Lengths of all axes: of the stream, of the rows (their first axis), and of others, which are long once."""
        c = self.fused.cascade
        first = next((a.name for a in c.axes if any(a.name in r.axes for r in c.reductions)), "")
        sizes: dict[str, int] = {}
        for i, a in enumerate(c.axes):
            own = rows if a.name in (first, self.contiguous) else inner
            one = length if a.name == c.axis else own[(number + number // 4 + i) % len(own)]
            sizes[base_axis(a.name)] = a.size or sizes.get(base_axis(a.name), one)
        return sizes

    def lying(self, a: Array, axes: Sequence[str]) -> Array:
        """The same array, contiguous along the axis that the schedule takes for it."""
        if self.contiguous not in axes or a.ndim < 2:
            return np.ascontiguousarray(a)
        at = list(axes).index(self.contiguous)
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(a, at, -1)), -1, at)


def _plan(s: Subject) -> list[tuple[int, str, tuple[int, ...]]]:
    """Lengths of the stream, kinds of inputs, rows: each length with two kinds, each kind with lengths up to a block
    and beyond; where few rows are split, many of them as well."""
    lengths = _lengths(s)
    kinds = [k for k in KINDS if s.measured or k in UNMEASURED]
    rows = COLUMNS if s.contiguous else ROWS
    plan: list[tuple[int, str, tuple[int, ...]]]
    plan = [(n, ("normal", "spikes")[i % 2 if s.measured else 0], rows) for i, n in enumerate(lengths)]
    if max(lengths) <= LONG:
        plan += [(n, ("spikes", "normal")[i % 2 if s.measured else 1], rows) for i, n in enumerate(lengths)]
    short, long = ([n for n in lengths if (n > s.block) == beyond] or lengths for beyond in (False, True))
    for some in (long, short):
        plan += [(some[i % len(some)], k, rows) for i, k in enumerate(kinds)]
    if s.contiguous:
        plan += [(short[i % len(short)], k, (WIDE,)) for i, k in enumerate(kinds[:2])]
    if s.options.chunk:
        plan += [(long[i % len(long)], k, MANY) for i, k in enumerate((*kinds, "normal"))]
    return plan


def _lengths(s: Subject) -> list[int]:
    """Lengths beside the ends of all loops over the stream: those that show most first."""
    block = s.block
    edges = [block + 1, min(s.hint, block), 2 * block + 1, block - 1, 1, 131, 3, s.hint + 1]
    edges += [3 * block + 17] if block <= LONG else []
    edges += [s.hint, s.hint - 1] if s.hint > block else []
    chunk = s.options.chunk or 0
    edges += [chunk, chunk + 1, 2 * chunk + 67, 3 * chunk - 1] if chunk else []
    edges += [s.round + 5] if s.round > max(edges) else []
    least = max((a.size or 1 for a in s.cascade.axes if a.name != s.cascade.axis), default=1)
    return list(dict.fromkeys(max(n, least) for n in edges))


@dataclass(frozen=True)
class Near:
    """What a result must be close to, where nothing bounds the rounding."""

    value: Array

    def wrong(self, got: Array) -> Array:
        """Where a result is not close; NaN is close to NaN alone."""
        with np.errstate(all="ignore"):
            close = np.abs(got - self.value) <= NEAR * np.maximum(1.0, np.abs(self.value))
            return np.asarray(~(close | (np.isnan(got) & np.isnan(self.value))))


@dataclass
class Trial:
    """One input of a subject, and the schedule of threads that it runs under."""

    subject: Subject
    sizes: Mapping[str, int]
    kind: str
    seed: int
    number: int

    def __str__(self) -> str:
        return f"{dict(self.sizes)}, {self.kind}, schedule {self.seed}"

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """The inputs."""
        c = self.subject.cascade
        rng = np.random.default_rng((self.number, 7))
        streams = frozenset() if c.axis is None else frozenset((c.axis,))
        own = self.kind if self.kind not in MOVED else "normal"
        arrays = draw_arrays(c.tensors, self.sizes, own, rng, streams)
        for t in c.tensors:
            if streams & set(t.axes) and is_float(t.dtype) and self.kind in MOVED:
                axis = next(i for i, a in enumerate(t.axes) if a in streams)
                self._moved(np.moveaxis(arrays[t.name], axis, -1), t.dtype)
        return arrays

    def _moved(self, a: Array, dtype: str) -> None:
        """Numbers far from zero, or few different ones; the stream is the last axis."""
        n, far = a.shape[-1], min(SPIKE, float(finfo(numpy_dtype(dtype)).max) / 4)
        if self.kind == "rare ties":
            a[...] = (np.round(a.astype(float) * 2) / 2).astype(a.dtype)
            for k, row in enumerate(np.ndindex(*a.shape[:-1])):
                a[row][[n // 7, n - 1]] = RARE if k % 2 == 0 else -RARE
            return
        if self.kind != "spikes":
            a[...] = (a.astype(float) + (far if self.kind == "high" else -far)).astype(a.dtype)
            return
        block = self.subject.block
        places = [n - 1, 0, min(block, n) - 1, min(block, n - 1), n // 2, min(2 * block, n) - 1, max(n - 2, 0)]
        for k, row in enumerate(np.ndindex(*a.shape[:-1])):
            a[row][places[k // 2 % len(places)]] = far if k % 2 == 0 else -far

    @cached_property
    def expected(self) -> Mapping[str, Expected | Near]:
        """What the results must be."""
        c = self.subject.cascade
        with np.errstate(all="ignore"):
            if self.subject.measured:
                return expected_results((c,), dict(self.arrays), sizes=dict(self.sizes))
            found = run_cascade(c, self.arrays, np.float64, dict(self.sizes))
            return {o.name: Near(found[o.name]) for o in c.outs}

    def wrong(self, kernel: HostCudaKernel) -> str | None:
        """What a kernel computes wrong, or does wrong; None when nothing is."""
        c = self.subject.fused.cascade
        inputs = [self.subject.lying(self.arrays[t.name], t.axes) for t in c.tensors]
        outs = {o.name: self.subject.lying(np.full([self.sizes[base_axis(a)] for a in o.axes], 77,
                                                   numpy_dtype(o.dtype)), o.axes) for o in c.outs}
        try:
            with scheduled(self.seed), np.errstate(all="ignore"):
                kernel.run(inputs, list(outs.values()), self.sizes)
        except CudaFault as fault:
            return f"{fault.kind}, line {fault.line}"
        except LaunchError as error:
            return f"refused launch: {error}"
        finite = all(np.isfinite(a).all() for a in self.arrays.values() if is_float(a.dtype))
        for name, got in outs.items():
            discrete = got.dtype.kind in "biu" and not finite  # positions and truth values then: docs/order.md
            with np.errstate(all="ignore"):
                if name in self.expected and not discrete and self.expected[name].wrong(got).any():
                    return f"wrong value of {name}"
        return None

    def reaches(self, number: int) -> bool:
        """Whether a phase runs at these lengths."""
        return holds(self.subject.scheduled.phases[number].when, self.sizes)


@dataclass(frozen=True)
class Result:
    """What became of a fault. by: what caught it, or "" if nothing did; trial: on which input; tried: how many."""

    subject: str
    fault: Fault
    by: str
    trial: str = ""
    tried: int = 0

    def __str__(self) -> str:
        found = f"{self.by} ({self.trial})" if self.by else f"SURVIVED {self.tried} runs"
        return f"{self.fault.kind} | {self.subject}, phase {self.fault.phase} | {self.fault.place} | {found}"


def examine(subject: Subject, fault: Fault) -> Result | None:
    """Run a program with a fault until something shows it; None if its text is the same without."""
    good = subject.scheduled.program
    try:
        made = fault.make()
        if (made.source, made.launches) == (good.source, good.launches):
            return None
        kernel = build(subject, made)
    except (CheckError, CompileError) as error:
        return Result(subject.name, fault, type(error).__name__)
    tried = 0
    for trial in subject.trials:
        if trial.reaches(fault.phase):
            tried += 1
            found = trial.wrong(kernel)
            if found:
                return Result(subject.name, fault, found, str(trial), tried)
    return Result(subject.name, fault, "", "", tried)


def build(subject: Subject, program: CudaProgram) -> HostCudaKernel:
    """The kernel on the host executor."""
    return HostCudaKernel(subject.kernel, program=program)


def alarms(subject: Subject) -> list[str]:
    """What is found in the program without any fault, on all inputs: nothing, unless the test itself is wrong."""
    kernel = build(subject, subject.scheduled.program)
    found = ((t, t.wrong(kernel)) for t in subject.trials)
    return [f"{subject.name}: {text} ({trial})" for trial, text in found if text]
