"""The compiler, top to bottom: every step takes the level above and returns the level below; each prints and runs.

1 trace      plain NumPy code, run once with recording arrays      -> Trace
2 term       index notation, every reduction a definition          -> Term
3 partition  the reductions that share a stream axis               -> Cascade ...
4 fusion     equality saturation: accumulators, corrections        -> Derivation, FusedCascade
5 plan       whole-row or streaming, tiles, homes                  -> Plan
6 tiles      loops over tiles                                      -> Kernel
7 source     text of the kernel                                    -> str
8 kernel     compiled, loaded, callable                            -> CompiledKernel
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from redfuser import logs
from redfuser.derivation.fusion import FusedCascade
from redfuser.errors import DepthError, SettingError
from redfuser.frontend import Trace, lower, trace
from redfuser.ir import (
    OPS,
    Cascade,
    Expr,
    Load,
    Op,
    Part,
    Ref,
    Term,
    check_cascade,
    check_term,
    children,
    op,
    rewrite,
    select,
    walk,
)
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.monoids import INDEX
from redfuser.ir.ops import PIVOT
from redfuser.ir.partition import Partition, partition
from redfuser.ir.term import SPLIT, check_depth

if TYPE_CHECKING:
    from redfuser.codegen.nodes import Kernel
    from redfuser.derivation import Derivation, NotFusible
    from redfuser.extract import Options as Decided
    from redfuser.extract import Plan, Profile
    from redfuser.extract.device import Device
    from redfuser.extract.frontier import Form, Frontier
    from redfuser.extract.gpu import Gpu
    from redfuser.extract.library import Apart
    from redfuser.rules import RuleSet
    from redfuser.runtime import CompiledKernel
    from redfuser.runtime.cuda.device_arrays import DeviceArrays
    from redfuser.runtime.cuda.gpu_kernel import CudaKernel
    from redfuser.runtime.cuda.kernel import HostCudaKernel

TARGETS = ("auto", "c", "cuda", "interpret", "cuda-host")
"""What `rf.fuse` may be told; "auto" is "cuda" for arrays on a GPU and "c" for all others."""
LANGUAGES = ("c", "cuda")
GPU = "sm_80"
"""The GPU that kernels are made for where none is named; the host executor stands for it."""
NUMERICS = ("stable", "fast", "reference")
EMPTY = ("nan", "zero")


@dataclass(frozen=True)
class Tuning:
    """How long `tune=` may look for a faster schedule: for each new kernel at most `candidates` are timed, those last
    that the cost model likes least, and none is begun after `seconds` but the first. `again` forgets what was found
    before."""

    candidates: int = 12
    seconds: float = 5.0
    again: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.candidates, bool) or not isinstance(self.candidates, int) or self.candidates < 1:
            raise SettingError(f"Tuning(candidates={self.candidates!r}): give a positive number of candidates")
        if not isinstance(self.seconds, (int, float)) or not self.seconds > 0:
            raise SettingError(f"Tuning(seconds={self.seconds!r}): give a positive number of seconds")


@dataclass(frozen=True)
class Options:
    """What the caller of `rf.fuse` may choose; see there."""

    target: str = "auto"
    numerics: str = "stable"
    allow: tuple[str, ...] = ()
    rules: RuleSet | None = None
    require: str | None = None
    empty: str = "nan"
    acc_dtype: str | None = None
    tune: Tuning | None = None

    def __post_init__(self) -> None:
        if self.tune is not None and not isinstance(self.tune, Tuning):
            raise SettingError(f"tune={self.tune!r} is not True, False or an rf.Tuning(...)")
        if self.tune is not None and self.target == "interpret":
            raise SettingError("tune= times compiled kernels, and target='interpret' compiles none; leave one of them "
                               "out")
        _one_of("target", self.target, TARGETS)
        if self.tune is not None and self.target == "cuda-host":
            raise SettingError("tune= times kernels, and times under target='cuda-host' say nothing of a GPU; leave "
                               "one of them out")
        if self.tune is not None and self.target == "cuda":
            raise SettingError("tune= times C kernels, and none for a GPU yet; leave it out")
        _one_of("numerics", self.numerics, NUMERICS)
        _one_of("empty", self.empty, EMPTY)
        _one_of("require", self.require, (None, "one-pass"))
        _one_of("acc_dtype", self.acc_dtype, (None, "float64"))
        if self.allow or self.rules is not None:
            from redfuser.derivation.derive import settings_for

            settings_for(self.rules, self.allow)


def _one_of(name: str, value: Any, choices: Sequence[Any]) -> None:
    if value not in choices:
        raise SettingError(f"{name}={value!r} is not one of {', '.join(map(repr, choices))}")


def trace_step(fn: Callable[..., Any], specs: Mapping[str, Any], name: str) -> Trace:
    """1: record the NumPy calls `fn` makes on arguments of the given specs (`Spec`, or `Nested` specs)."""
    traced = trace(fn, specs, name=name)
    logs.trace.info("%s: %d operations", name, len(traced.nodes))
    logs.trace.debug("%s", traced)
    return traced


def term_step(traced: Trace) -> Term:
    """2: the traced graph in index notation.

    Raises
    ------
    DepthError
        when its expressions are too deep to be compiled.
    """
    try:
        term = lower(traced)
    except RecursionError:
        raise DepthError(f"{traced.name} chains too many of its {len(traced.nodes)} operations: {SPLIT}") from None
    check_depth(term)
    check_term(term)
    logs.term.info("%s: %d definitions, %d outputs", term.name, len(term.lets), len(term.outs))
    logs.term.debug("%s", term)
    return term


def partition_step(term: Term) -> Partition:
    """3: one cascade per stream axis and dependency level."""
    parts = partition(term)
    for c in parts.cascades:
        check_cascade(c)
        logs.term.info("%s: %d reductions over %s", c.name, len(c.reductions), c.axis)
    logs.term.debug("%s", parts)
    return parts


@lru_cache(maxsize=512)
def _derive_cached(cascade: Cascade, rules: RuleSet | None, allow: tuple[str, ...]) -> Derivation:
    from redfuser.derivation.derive import derive_with, settings_for
    from redfuser.runtime.derivations import derived

    settings = settings_for(rules, allow)
    note = f"deriving {cascade.name} over {cascade.axis} takes a while: it is done once and kept"
    with logs.patience(note):
        found = derived(cascade, settings, lambda: derive_with(cascade, settings))
    logs.derive.info("%s: %s, %d passes over %s, derived in %.0f ms; certificate %s", cascade.name, found.verdict,
                     found.passes, cascade.axis, found.milliseconds, found.certificate)
    logs.derive.debug("%s", found.fused)
    return found


@lru_cache(maxsize=512)
def _forms_cached(cascade: Cascade, rules: RuleSet | None, allow: tuple[str, ...], dtype: str) -> tuple[Form, ...]:
    from redfuser.extract.frontier import measured_forms

    return measured_forms(_derive_cached(cascade, rules, allow), dtype)


def frontier_of(cascade: Cascade, options: Options, device: Device | None = None,
                sizes: Mapping[str, int] | None = None) -> Frontier:
    """All forms found for a cascade, measured once, and priced for a device (this machine) and lengths (nominal)."""
    from redfuser.extract.frontier import frontier

    dtype = compute_dtype(cascade, options)
    forms = _forms_cached(cascade, options.rules, options.allow, dtype)
    return frontier(forms, host() if device is None else device, sizes, dtype)


def fusion_step(cascade: Cascade, options: Options) -> Derivation | None:
    """4: derive the incremental form. None for a cascade without reductions: there is nothing to derive.

    `numerics="fast"` derives further forms and takes one from the frontier of cost and error.
    """
    if not cascade.reductions:
        return None
    found = _derive_cached(cascade, options.rules, options.allow)
    if options.numerics != "fast":
        return found
    return frontier_of(cascade, options).choice("fast")[0].variant.as_form_of(found)


def fused_of(cascade: Cascade, derivation: Derivation | None, options: Options) -> FusedCascade:
    """The executable fusion: what was derived, with the caller's policy for quotients over nothing."""
    if derivation is None:
        return FusedCascade(cascade, (), (), (), ())
    return zero_empty_quotients(derivation.fused) if options.empty == "zero" else derivation.fused


def zero_empty_quotients(fused: FusedCascade) -> FusedCascade:
    """`empty="zero"`: a quotient whose divisor is a sum over no live element (it is 0) gives 0 instead of NaN.

    One switch for every quotient: the divisor must be a `sum` accumulator itself (a mass, a count). Applied to what is
    read at the end: the epilogue, outputs, and dependencies, which read 0 there inside the loop anyway. A pivot that
    such a quotient is moved back by is the pivot times the quotient of a mass by itself: 0 as well.
    """
    masses = {a.name for a in fused.accumulators if a.monoid == "sum"}
    pivots = {a.name for a in fused.accumulators if a.monoid == PIVOT}
    results = {name for name, e in fused.epilogue if isinstance(e, Ref) and e.name in masses}

    def divides(e: Expr) -> bool:
        return (isinstance(e, Op) and e.fn == "div" and isinstance(e.args[1], Ref)
                and e.args[1].name in masses | results)

    def guarded(e: Expr, moved: bool = True) -> Expr:
        divisors = list(dict.fromkeys(x.args[1] for x in walk(e) if isinstance(x, Op) and divides(x)))

        def step(x: Expr) -> Expr | None:
            if isinstance(x, Op) and divides(x):
                return select(op("eq", x.args[1], 0.0), 0.0, x)
            if moved and isinstance(x, Ref) and x.name in pivots:
                value: Expr = x
                for mass in divisors:
                    value = select(op("eq", mass, 0.0), 0.0, value)
                return value
            return None

        return rewrite(e, step)

    outs = tuple(replace(o, expr=guarded(o.expr)) for o in fused.cascade.outs)
    epilogue = tuple((name, guarded(e)) for name, e in fused.epilogue)
    dependencies = tuple(replace(d, expr=guarded(d.expr, moved=False)) for d in fused.dependencies)
    return replace(fused, cascade=replace(fused.cascade, outs=outs), epilogue=epilogue, dependencies=dependencies)


def compute_dtype(cascade: Cascade, options: Options) -> str:
    """The dtype a kernel computes in: float64 when any floating operand or result is, when integers are more than
    compared (float32 holds them only up to 2^24), or when asked for; else float32. Positions are integers anyway."""
    if options.numerics == "reference" or options.acc_dtype == "float64":
        return "float64"
    dtypes = [numpy_dtype(t.dtype) for t in cascade.tensors] + [numpy_dtype(o.dtype) for o in cascade.outs]
    whole = [o for o in cascade.outs if numpy_dtype(o.dtype).kind in "iu"]
    if np.dtype("float64") in dtypes or not all(isinstance(o.expr, Part) and o.expr.part == INDEX for o in whole):
        return "float64"
    integers = {t.name for t in cascade.tensors if numpy_dtype(t.dtype).kind in "iu"}
    exprs = [
        *(p.expr for p in cascade.producers),
        *(r.body for r in cascade.reductions),
        *(o.expr for o in cascade.outs),
    ]
    return "float64" if any(integers & _loaded_as_numbers(e) for e in exprs) else "float32"


def _loaded_as_numbers(e: Expr) -> set[str]:
    """Tensors read other than as the operands of a comparison."""
    if isinstance(e, Load):
        return {e.tensor}
    if isinstance(e, Op) and OPS[e.fn].kind == "compare":
        return set()
    return set().union(*map(_loaded_as_numbers, children(e)))


def plan_step(
    fused: FusedCascade, sizes: Mapping[str, int], layouts: Mapping[str, str | None], dtype: str, profile: Profile,
    decided: Decided | None = None,
) -> Plan:
    """5: choose a schedule from axis roles, example lengths, memory layouts and the machine. `decided`: single
    decisions that are made already."""
    from redfuser.extract import plan

    return _told(plan(fused, sizes, profile, layouts, dtype, decided))


def _told(chosen: Plan) -> Plan:
    logs.plan.info("%s: %s; %s", chosen.flat.name, chosen.strategy, "; ".join(chosen.notes))
    logs.plan.debug("%s", chosen)
    return chosen


def gpu_plan_step(
    fused: FusedCascade, sizes: Mapping[str, int], layouts: Mapping[str, str | None], dtype: str,
    gpu: str | Gpu, decided: Decided | None = None,
) -> Plan:
    """5: the same for a GPU: one that was found, or by the name of a device ("h100") or an architecture ("sm_90a")."""
    from redfuser.codegen import build
    from redfuser.codegen.cuda import CudaTarget
    from redfuser.codegen.cuda.tiles.schedule import obstacle
    from redfuser.extract.decisions import Options
    from redfuser.extract.gpu import Gpu
    from redfuser.extract.plan_gpu import gpu_plan

    device = Gpu.of(gpu) if isinstance(gpu, str) else gpu
    found = gpu_plan(fused, sizes, device, layouts, dtype, decided)
    reason = obstacle(build(found), CudaTarget(device)) if found.strategy == "tiles" else ""
    if reason:
        found = gpu_plan(fused, sizes, device, layouts, dtype, replace(decided or Options(), strategy="rows"))
        found = replace(found, notes=(*found.notes, f"no matrix units: {reason}"))
    return _told(found)


def library_step(chosen: Plan) -> Apart | None:
    """5b: the same fusion with its plain matrix products computed by a library; None where it has none."""
    from redfuser.extract.library import apart

    return apart(chosen)


def library_obstacle(chosen: Plan) -> str:
    """Why `library_step` finds nothing, in words."""
    from redfuser.extract.library import obstacle

    return obstacle(chosen)


def tile_step(chosen: Plan) -> Kernel:
    """6: the tile program of a plan."""
    from redfuser.codegen import build, check_kernel

    kernel = build(chosen)
    check_kernel(kernel)
    logs.tile.info("%s: %d phases, computes in %s", kernel.name, len(kernel.phases), kernel.compute)
    logs.tile.debug("%s", kernel)
    return kernel


def source_step(kernel: Kernel, language: str = "c", arch: str | None = None) -> str:
    """7: the text of a kernel. `arch`: the GPU that CUDA is printed for.

    Raises
    ------
    ValueError
        for a language without a printer.
    """
    if language not in LANGUAGES:
        raise ValueError(f"no printer for language {language!r}; there are {' and '.join(map(repr, LANGUAGES))}")
    if language == "cuda":
        from redfuser.codegen.cuda import CudaTarget, print_cuda

        return print_cuda(kernel, CudaTarget.of(arch or GPU))
    from redfuser.runtime import kernel_source

    return kernel_source(kernel)


def kernel_step(kernel: Kernel) -> CompiledKernel:
    """8: compile (or take from the cache) and load."""
    from redfuser.runtime import compile_kernel

    with logs.patience(f"compiling {kernel.name} takes a while: it is done once and kept"):
        compiled = compile_kernel(kernel)
    _printed(kernel.name, "C", compiled)
    return compiled


def _printed(name: str, language: str, compiled: CompiledKernel | HostCudaKernel | CudaKernel) -> None:
    logs.source.info("%s: %d lines of %s for %s", name, compiled.source.count("\n"), language, compiled.path)
    logs.source.debug("%s", compiled.source)


def cuda_kernel_step(kernel: Kernel) -> HostCudaKernel:
    """8: print as CUDA, compile, and load into the executor that runs it on this machine's CPU."""
    from redfuser.runtime.cuda.kernel import HostCudaKernel

    with logs.patience(f"compiling {kernel.name} takes a while: it is done once and kept"):
        compiled = HostCudaKernel(kernel, GPU)
    _printed(kernel.name, "CUDA", compiled)
    return compiled


def device_kernel_step(kernel: Kernel, gpu: Gpu, arrays: DeviceArrays) -> CudaKernel:
    """8: print as CUDA, compile with CuPy. `arrays`: where outputs and workspace come from, and the device."""
    from redfuser.runtime.cuda.gpu_kernel import CudaKernel

    with logs.patience(f"compiling {kernel.name} takes a while: it is done once and kept"):
        compiled = CudaKernel(kernel, gpu, arrays)
    _printed(kernel.name, "CUDA", compiled)
    return compiled


def not_fusible(derivation: Derivation) -> NotFusible:
    """The exception that says which stage needs a pass of its own, carrying the plan that still runs."""
    from redfuser.derivation import NotFusible

    return NotFusible.of(derivation)


@lru_cache(maxsize=1)
def machine_profile() -> Profile:
    """Vector width, registers, caches and threads of this machine."""
    from redfuser.runtime import detect_profile

    return detect_profile()


def host() -> Device:
    """This machine as the cost model sees it."""
    from redfuser.extract.device import Device

    return Device.of_core(machine_profile(), "host")
