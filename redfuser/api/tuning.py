"""`tune=`: the schedules around the cost model's choice, timed on a call's own arrays.

The default and a candidate take turns, so that what slows the machine down slows both. What is chosen is kept on disk
(`redfuser.runtime.tunings`); a later process reads it and times nothing.
"""

from __future__ import annotations

import datetime
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np

from redfuser import __version__, pipeline
from redfuser.api.agreement import disagreement
from redfuser.api.progress import Advance
from redfuser.codegen.nodes import Kernel
from redfuser.derivation.fusion import FusedCascade
from redfuser.errors import CheckError
from redfuser.extract import Options, Plan
from redfuser.extract.gpu import Gpu
from redfuser.extract.neighbours import Neighbour, described, neighbours
from redfuser.extract.plan_time import predict_plan
from redfuser.extract.roles import NoTiles
from redfuser.ir.dtypes import is_float
from redfuser.ir.term import base_axis
from redfuser.pipeline import Tuning
from redfuser.runtime import CompiledKernel, find_compiler, thread_count, tunings
from redfuser.runtime.arrays import Array, data_pointer
from redfuser.runtime.machine import cpu_count
from redfuser.runtime.tunings import CHOSEN, DROPPED, FASTER, SAME, SLOWER, Choice, Trial

NOISE = 1.03
"""A candidate is chosen when it is more than this many times as fast."""
HOPELESS = 1.5
"""One whose first run takes this many times as long is given up."""
SAMPLE = 2e-4
"""Seconds of a sample: as many calls as fill them."""
PAIRS = (5, 15)
"""Fewest and most samples of default and candidate in turn."""
LATE = 3
"""The fewest once the time is up."""
TURN = 0.15
"""Seconds after which the fewest pairs suffice."""


@dataclass(frozen=True)
class Job:
    """A kernel to be built. layouts: of tensors and outputs by name; sizes: length of every axis; gpu: the GPU that it
    is for, found or by name, "" for this machine."""

    fused: FusedCascade
    dtype: str
    layouts: Mapping[str, str | None]
    sizes: Mapping[str, int]
    gpu: str | Gpu = ""

    def plan(self, options: Options | None = None, dtype: str | None = None) -> Plan:
        """The plan with single decisions made."""
        if self.gpu:
            return pipeline.gpu_plan_step(self.fused, self.sizes, self.layouts, dtype or self.dtype, self.gpu, options)
        return pipeline.plan_step(self.fused, self.sizes, self.layouts, dtype or self.dtype,
                                  pipeline.machine_profile(), options)

    def lengths(self) -> dict[str, int]:
        """Length of every axis of the cascade, by base name."""
        return {base_axis(a.name): a.size if a.size is not None else self.sizes.get(base_axis(a.name), 1)
                for a in self.fused.cascade.axes}

    def key(self, kernel: Kernel) -> str:
        """The key of the problem on this machine; lengths that a kernel is specialised for count as they are."""
        exact = frozenset(a for a, _ in kernel.static)
        return tunings.problem_key(self.fused, self.dtype, self.layouts, self.lengths(), exact,
                                   pipeline.machine_profile(), find_compiler(), __version__)


def remembered(job: Job, kernel: Kernel) -> tuple[Choice, Plan] | None:
    """What an earlier tuning chose, in this process or another, and the plan of it; None when there was none."""
    found = tunings.recall(job.key(kernel))
    try:
        return None if found is None else (found, job.plan(found.options))
    except NoTiles:  # at these lengths
        return None


def tune(job: Job, default: Plan, kernel: Kernel, inputs: Sequence[Array], outs: Sequence[Array],
         tuning: Tuning, advance: Advance) -> tuple[Choice, Plan]:
    """Time candidates on these arrays (`outs` are left alone), and keep what was chosen.

    Raises
    ------
    CheckError
        when a candidate computes something else than the default does.
    """
    race = _Race(job, default, kernel, inputs, outs)
    choice, plan = race.run(tuning, advance)
    tunings.keep(job.key(kernel), choice)
    return choice, plan


class _Race:
    """The candidates of one kernel and the times that were measured."""

    def __init__(self, job: Job, default: Plan, kernel: Kernel, inputs: Sequence[Array], outs: Sequence[Array]) -> None:
        self.job, self.default, self.inputs = job, default, inputs
        self.usual = [np.empty_like(o) for o in outs]
        self.found = [np.empty_like(o) for o in outs]
        self.finite = all(bool(np.isfinite(a).all()) for a in inputs if is_float(a.dtype))
        self.known = {replace(kernel, notes=())}
        self.times: list[float] = []
        self.end = math.inf
        self.own = self.call(pipeline.kernel_step(kernel), self.usual)
        for _ in range(2):
            self.own()
        self.repeats = max(1, round(SAMPLE / max(1e-7, _seconds(self.own, 1))))

    def call(self, kernel: CompiledKernel, outs: Sequence[Array]) -> Callable[[], None]:
        """A call of a kernel with nothing left to decide."""
        made = kernel.repeatable(self.inputs, outs, self.job.sizes)
        if made is None:
            return lambda: kernel.run(self.inputs, outs, self.job.sizes)
        again, addresses = made, [data_pointer(a) for a in (*self.inputs, *outs)]
        return lambda: again(addresses)

    def run(self, tuning: Tuning, advance: Advance) -> tuple[Choice, Plan]:
        """Time what there is time for; the choice and its plan."""
        self.end = time.perf_counter() + tuning.seconds
        lengths = self.job.lengths()
        predicted = predict_plan(self.default, lengths).seconds
        candidates = self.distinct(neighbours(self.default, self.job.plan, lengths))
        chosen_for = candidates[: tuning.candidates]
        trials: list[Trial] = []
        timed: list[tuple[Trial, Neighbour, Callable[[], None]]] = []
        for candidate, kernel in self.compiled(chosen_for, advance):
            call = self.call(kernel, self.found)
            trials.append(self.trial(candidate, call))
            timed.append((trials[-1], candidate, call))
        advance(len(chosen_for), len(chosen_for), "")
        left = len(candidates) - len(trials)
        best = max(timed, key=lambda t: t[0].ratio, default=None)
        plan, gain = self.default, 1.0
        if best is not None and best[0].ratio > NOISE:
            gain = self.pairs(best[2], PAIRS[1])[1]  # the best of many is partly the luckiest: once more
            if gain > NOISE:
                plan = best[1].plan
        chosen = Options() if plan is self.default or best is None else best[0].options
        gain = 1.0 if plan is self.default else gain
        trials = [replace(t, outcome=_outcome(t, plan is not self.default and best is not None and t is best[0]))
                  for t in trials]
        seconds = statistics.median(self.times) if self.times else _seconds(self.own, self.repeats)
        today = datetime.datetime.now().strftime("%Y-%m-%d")
        return Choice(chosen, gain, seconds, predicted, today, tuple(trials), left), plan

    def late(self) -> bool:
        """Whether the time is up."""
        return time.perf_counter() > self.end

    def compiled(self, candidates: Sequence[tuple[Neighbour, Kernel]], advance: Advance
                 ) -> Iterator[tuple[Neighbour, CompiledKernel]]:
        """The candidates that there is time for, and the first in any case. As many are compiled together as there are
        CPUs, while nothing is timed; each is given out for timing only while there is time left."""
        together = min(thread_count(), cpu_count())
        for first in range(0, len(candidates), together):
            if first and self.late():
                return
            batch = candidates[first : first + together]
            advance(first, len(candidates), described(batch[0][0].options))
            with ThreadPoolExecutor(together) as pool:
                kernels = list(pool.map(pipeline.kernel_step, [kernel for _, kernel in batch]))
            for i, ((candidate, _), kernel) in enumerate(zip(batch, kernels, strict=True), first):
                if i and self.late():
                    return
                yield candidate, kernel

    def distinct(self, candidates: Sequence[Neighbour]) -> list[tuple[Neighbour, Kernel]]:
        """The candidates with their tile programs, without those whose program another one has already."""
        found = []
        for candidate in candidates:
            kernel = pipeline.tile_step(candidate.plan)
            bare = replace(kernel, notes=())
            if bare not in self.known:
                self.known.add(bare)
                found.append((candidate, kernel))
        return found

    def trial(self, candidate: Neighbour, call: Callable[[], None]) -> Trial:
        """Check the results of a candidate, and time it beside the default."""
        for o in self.found:
            o.fill(0)
        first = _seconds(call, 1)
        wrong = disagreement(self.found, self.usual, self.job.dtype, self.finite, self.reference)
        if wrong is not None:
            raise CheckError(
                f"kernel {self.job.fused.cascade.name} with {described(candidate.options)} disagrees with the default "
                f"schedule: {wrong} (lengths {self.job.lengths()}). This is a defect of redfuser, please report it; "
                "leave out tune= to go on"
            )
        second = _seconds(call, 1)
        usual = min(_seconds(self.own, 1) for _ in range(2))
        self.times.append(usual)
        if min(first, second) > HOPELESS * max(usual, 2e-5):
            return Trial(candidate.options, min(first, second), usual / min(first, second), candidate.seconds, DROPPED)
        seconds, ratio = self.pairs(call, PAIRS[0])
        return Trial(candidate.options, seconds, ratio, candidate.seconds, "")

    def pairs(self, call: Callable[[], None], fewest: int) -> tuple[float, float]:
        """(median seconds of a candidate, how many times as fast as the default). `fewest` samples, less once the time
        is up."""
        start = time.perf_counter()
        own: list[float] = []
        others: list[float] = []
        while len(own) < (LATE if self.late() else fewest) or (
                len(own) < PAIRS[1] and not self.late() and time.perf_counter() - start < TURN):
            own.append(_seconds(self.own, self.repeats))
            others.append(_seconds(call, self.repeats))
        self.times += own
        return statistics.median(others), statistics.median(a / b for a, b in zip(own, others, strict=True))

    def reference(self) -> list[Array] | None:
        """The results in double precision; None where the arithmetic is double already."""
        if self.job.dtype == "float64":
            return None
        exact = [np.empty_like(o) for o in self.usual]
        kernel = pipeline.kernel_step(pipeline.tile_step(self.job.plan(dtype="float64")))
        kernel.run(self.inputs, exact, self.job.sizes)
        return exact


def _outcome(t: Trial, chosen: bool) -> str:
    if chosen:
        return CHOSEN
    return t.outcome or (SLOWER if t.ratio < 1 / NOISE else SAME if t.ratio <= NOISE else FASTER)


def _why_it_stands(choice: Choice) -> str:
    best = max(choice.trials, key=lambda t: t.ratio, default=None)
    if best is None:
        return "there was no other to time"
    if best.ratio > NOISE:
        return (f"for {described(best.options)}, {best.ratio:.2f} times as fast at first, was not over "
                f"{NOISE - 1:.0%} faster once more")
    return f"for no other was over {NOISE - 1:.0%} faster: {described(best.options)} was {best.ratio:.2f} times as fast"


def _seconds(call: Callable[[], None], repeats: int) -> float:
    """Mean time of a call."""
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def words(choice: Choice) -> str:
    """A choice as a note of its plan."""
    timed = f"{len(choice.trials)} candidate{'s' * (len(choice.trials) != 1)} timed on {choice.when}"
    left = f", {choice.left} not" if choice.left else ""
    if choice.options == Options():
        return f"tuned: the model's choice stands, {_why_it_stands(choice)} ({timed}{left})"
    return f"tuned: {described(choice.options)}, {choice.gain:.2f} times as fast as the model's choice ({timed}{left})"
