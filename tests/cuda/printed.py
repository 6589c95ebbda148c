"""Fusions written by hand as CUDA kernels on the host executor, compared with the definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from fused_examples import arrays_for
from tile_runs import definition, empty_outs, error

from redfuser.codegen import build, check_kernel
from redfuser.codegen.cuda import CudaProgram, CudaTarget, TeamPhase, print_phases, schedule
from redfuser.codegen.nodes import Kernel
from redfuser.derivation.fusion import FusedCascade
from redfuser.extract import Options
from redfuser.extract.gpu import Gpu
from redfuser.extract.plan_gpu import gpu_plan
from redfuser.runtime.cuda.kernel import HostCudaKernel, scheduled

TARGET = CudaTarget(Gpu.of("sm_80"))
HINT = 64


def cuda_kernel(fused: FusedCascade, options: Options | None = None, contiguous: str = "", hint: int = HINT) -> Kernel:
    """The tile program of a GPU schedule. contiguous: an axis other than the last one of every array that has it."""
    arrays = (*fused.cascade.tensors, *fused.cascade.outs)
    layouts = {a.name: contiguous if contiguous in a.axes else a.axes[-1] for a in arrays if a.axes}
    sizes = {a.name: a.size or hint for a in fused.cascade.axes}
    kernel = build(gpu_plan(fused, sizes, TARGET.gpu, layouts, "float32", options))
    check_kernel(kernel)
    return kernel


def phases_of(kernel: Kernel) -> list[TeamPhase]:
    """The scheduled phases."""
    return [schedule(kernel, p, TARGET) for p in kernel.phases]


def program(kernel: Kernel, phases: Sequence[TeamPhase] | None = None) -> CudaProgram:
    """The text of phases, by default as they are scheduled."""
    return print_phases(kernel, phases_of(kernel) if phases is None else phases, TARGET)


def worst_error(fused: FusedCascade, kernel: HostCudaKernel, sizes: Mapping[str, int], seed: int = 0,
                contiguous: str = "") -> float:
    """Largest error of a run, see `tile_runs.error`."""
    arrays: dict[str, Any] = arrays_for(fused, sizes, seed)
    outs = empty_outs(fused, sizes)
    turned = {t.name: _turned(arrays[t.name], t.axes, contiguous) for t in fused.cascade.tensors}
    into = {o.name: _turned(outs[o.name], o.axes, contiguous) for o in fused.cascade.outs}
    with scheduled(seed), np.errstate(all="ignore"):
        kernel.run(list(turned.values()), list(into.values()), sizes)
        return error(into, definition(fused, arrays))


def _turned(a: np.ndarray[Any, Any], axes: Sequence[str], contiguous: str) -> np.ndarray[Any, Any]:
    """The same array with another axis contiguous."""
    if contiguous not in axes or a.ndim < 2:
        return a
    at = axes.index(contiguous)
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(a, at, -1)), -1, at)
