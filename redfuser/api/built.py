"""What runs a cascade on arrays of one kind of layout: a kernel, or kernels with products of a library between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from redfuser import pipeline
from redfuser.api.products import LibraryPlan, ProductsApart
from redfuser.api.progress import progress
from redfuser.api.tuning import Job, remembered, tune, words
from redfuser.codegen.nodes import Kernel
from redfuser.extract import Plan
from redfuser.extract.gpu import Gpu
from redfuser.pipeline import Options, Tuning
from redfuser.runtime import tunings
from redfuser.runtime.arrays import Array
from redfuser.runtime.cuda.errors import SharedMemoryShort
from redfuser.runtime.tunings import Choice, octave

Arrays = tuple[list[Array], list[Array]]


@dataclass
class Stats:
    """What really ran.

    compilations      kernels built for this function (the compiler itself may be spared by the kernel cache)
    kernel_runs       runs of compiled kernels
    derivations       cascades derived for this function (a cascade derived before in this process is remembered)
    interpreter_runs  runs of the tile interpreter (`target="interpret"` only)
    copies            inputs copied because axes that a kernel streams over as one do not lie side by side in memory
    tunings           kernels for which schedules were timed (`tune=`); those remembered on disk do not count
    """

    compilations: int = 0
    kernel_runs: int = 0
    derivations: int = 0
    interpreter_runs: int = 0
    copies: int = 0
    tunings: int = 0


@dataclass
class Built:
    """A kernel of one cascade for one set of memory layouts.

    compiled  None under `target="interpret"`
    near      axis -> length rounded up to a power of two: the lengths that a tuned kernel serves
    choice    what tuning found
    untuned   tuning was asked for, and no call has timed candidates yet
    """

    plan: Plan
    kernel: Kernel
    compiled: Any
    runs: int = 0
    near: Mapping[str, int] = field(default_factory=dict)
    choice: Choice | None = None
    untuned: bool = False

    @property
    def parts(self) -> tuple[Built, ...]:
        """Its kernels."""
        return (self,)

    def serves(self, sizes: Mapping[str, int]) -> bool:
        """Whether the lengths the kernel was specialised for are the ones at hand."""
        return (all(sizes[a] == n for a, n in self.kernel.static)
                and all(octave(sizes[a]) == n for a, n in self.near.items()))

    @property
    def notes(self) -> tuple[str, ...]:
        """Every scheduling decision in words, and what tuning found."""
        return (f"schedule: {self.plan.strategy}", *self.plan.notes)


@dataclass
class BuiltApart:
    """Kernels before and after matrix products that a library computes."""

    plan: LibraryPlan
    parts: tuple[Built, ...]
    compiled: ProductsApart
    untuned: bool = False

    @property
    def runs(self) -> int:
        """How often they ran."""
        return max((b.runs for b in self.parts), default=0)

    @runs.setter
    def runs(self, count: int) -> None:
        for b in self.parts:
            b.runs = count

    def serves(self, sizes: Mapping[str, int]) -> bool:
        """See `Built`."""
        return all(b.serves(sizes) for b in self.parts)


def build(job: Job, options: Options, stats: Stats, *, library: bool, arrays: Arrays | None, home: Any = None
          ) -> Built | BuiltApart:
    """What runs a job.

    library : whether its plain products are worth a library call
    arrays : inputs and outputs of a call, on which schedules may be timed
    home : under `target="cuda"`, where its arrays are
    """
    chosen = job.plan()
    parts = pipeline.library_step(chosen) if library else None
    if parts is not None:
        alone = replace(options, tune=None)
        layouts = {**job.layouts, **{product: job.layouts[out] for product, out in parts.result}}

        def own(fused: Any) -> Built:
            names = {t.name for t in fused.cascade.tensors} | {o.name for o in fused.cascade.outs}
            known = {n: axis for n, axis in layouts.items() if n in names}
            return _kernel(replace(job, fused=fused, layouts=known), alone, stats, None)

        apart = ProductsApart(job.fused, parts, own, job.sizes, tuned=options.tune is not None)
        return BuiltApart(apart.plan, apart.kernels, apart)
    if library:
        note = f"no product by a library, although one is large: {pipeline.library_obstacle(chosen)}"
        chosen = replace(chosen, notes=(*chosen.notes, note))
    if options.target == "cuda":
        return _on_device(job, chosen, stats, home)
    return _kernel(job, options, stats, arrays, chosen)


def _on_device(job: Job, chosen: Plan, stats: Stats, home: Any) -> Built:
    """A kernel on a GPU. Where it needs more shared memory than the device gives, it is planned again for a device
    with less.

    Raises
    ------
    SharedMemoryShort
        when no plan with less was found.
    """
    needed: list[int] = []
    while True:
        built = Built(chosen, pipeline.tile_step(chosen), None)
        assert isinstance(job.gpu, Gpu)
        try:
            built.compiled = pipeline.device_kernel_step(built.kernel, job.gpu, home)
        except SharedMemoryShort as short:
            if (needed and short.missing >= needed[-1]) or job.gpu.shared <= short.missing:
                raise
            needed.append(short.missing)
            job = replace(job, gpu=replace(job.gpu, shared=job.gpu.shared - short.missing))
            chosen = job.plan()
            note = f"planned for {short.missing} bytes of shared memory less: a block of the device has no more"
            chosen = replace(chosen, notes=(*chosen.notes, note))
            continue
        stats.compilations += 1
        return built


def _kernel(job: Job, options: Options, stats: Stats, arrays: Arrays | None, chosen: Plan | None = None) -> Built:
    chosen = job.plan() if chosen is None else chosen
    built = Built(chosen, pipeline.tile_step(chosen), None)
    if options.target == "interpret":
        return built
    if options.target == "cuda-host":
        built.compiled = pipeline.cuda_kernel_step(built.kernel)
        stats.compilations += 1
        return built
    if options.tune is not None and 0 not in job.sizes.values():
        built = _tuned(job, built, options.tune, stats, arrays)
    built.compiled = pipeline.kernel_step(built.kernel)
    stats.compilations += 1
    return built


def _tuned(job: Job, usual: Built, tuning: Tuning, stats: Stats, arrays: Arrays | None) -> Built:
    """The kernel that tuning chose, now or earlier; without arrays it is only looked up."""
    near = {a: octave(n) for a, n in job.lengths().items()}
    found = None if tuning.again and arrays is not None else remembered(job, usual.kernel)
    if found is None and arrays is not None:
        with tunings.alone(job.key(usual.kernel), 2 * tuning.seconds):
            found = None if tuning.again else remembered(job, usual.kernel)  # another process was faster
            if found is None:
                with progress(job.fused.cascade.name) as advance:
                    found = tune(job, usual.plan, usual.kernel, *arrays, tuning, advance)
                stats.tunings += 1
    if found is None:
        plan = replace(usual.plan, notes=(*usual.plan.notes, "not tuned yet: the first call times candidates"))
        return Built(plan, usual.kernel, None, near=near, untuned=True)
    choice, plan = found
    return Built(replace(plan, notes=(*plan.notes, words(choice))), pipeline.tile_step(plan), None, near=near,
                 choice=choice)
