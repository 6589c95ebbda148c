"""What CUDA kernels will be like on a GPU, without one: registers, occupancy, instructions, predicted time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from redfuser.codegen.cuda import CudaProgram, CudaTarget, Launch, cuda_program
from redfuser.codegen.nodes import Kernel
from redfuser.derivation.fusion import FusedCascade
from redfuser.extract.device import Device
from redfuser.extract.gpu import Gpu
from redfuser.extract.occupancy import LIMITS, Occupancy, occupancy
from redfuser.extract.roofline import Prediction, memory_bytes, predict, ridge, work_on
from redfuser.runtime.arrays import length
from redfuser.runtime.cuda.launched import holds
from redfuser.runtime.cuda.machine_code import FAMILIES, MachineCode, machine_code
from redfuser.runtime.cuda.nvrtc import Resources

_MATRIX = re.compile(r"\b(?:w?g?mma|mma)[._]")
"""Instructions of matrix units in a CUDA text."""


@dataclass(frozen=True)
class LaunchReport:
    """One launch of a kernel.

    when          the condition on sizes under which it runs; "" for always
    runs          whether it holds at the given lengths
    tasks         how many there are at these lengths; `teams` of them at a time in each block of `threads`
    shared        bytes of dynamic shared memory of a block; static ones are among the resources
    resources     per thread; None where nothing compiles the text
    occupancy     what a multiprocessor holds; None where resources or limits are not known
    instructions  family -> how often it stands in the machine code; empty where that is not known
    """

    name: str
    when: str
    runs: bool
    tasks: int
    teams: int
    threads: int
    shared: int
    resources: Resources | None
    occupancy: Occupancy | None
    instructions: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        found = asdict(self)
        if self.occupancy is not None:
            found["occupancy"] = asdict(self.occupancy) | {"share": self.occupancy.share}
        return found

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterable[str]:
        when = f", when {self.when}" if self.when else ""
        here = "" if self.runs else ", not at these lengths"
        each = f"{self.teams} at a time in a block" if self.teams > 1 else "one at a time in a block"
        yield f"  {self.name}{when}{here}: {self.tasks:,} tasks, {each} of {self.threads} threads"
        r = self.resources
        if r is not None:
            yield (f"    registers    {r.registers}; spills {r.spill_stores} bytes stored, {r.spill_loads} loaded; "
                   f"stack {r.stack} bytes")
        static = "" if r is None else f"{r.shared:,} bytes static, "
        yield f"    shared       {static}{self.shared:,} bytes dynamic"
        if self.occupancy is not None:
            yield f"    occupancy    {self.occupancy}"
        if self.instructions:
            yield f"    instructions {', '.join(f'{k} {n}' for k, n in self.instructions.items())}"


@dataclass(frozen=True)
class CudaKernelReport:
    """The kernel of one cascade on one GPU.

    arch        architecture that it is compiled for
    bytes       of a call that come from memory or go there, by the cost model
    flops       of a call; multiply-adds count as two
    ridge       flop per byte from which on arithmetic bounds the device
    prediction  time of a call at the given lengths on `prediction.device`, and what bounds it
    notes       what is not known and why, one line each
    """

    name: str
    arch: str
    launches: tuple[LaunchReport, ...]
    bytes: float
    flops: float
    ridge: float
    prediction: Prediction
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {"name": self.name, "arch": self.arch, "bytes": self.bytes, "flops": self.flops, "ridge": self.ridge,
                "prediction": self.prediction.to_dict(), "notes": list(self.notes),
                "launches": [x.to_dict() for x in self.launches]}

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterable[str]:
        yield f"CUDA kernel {self.name} for {self.arch}"
        at = f"{self.flops / self.bytes:.3g} flop/byte, ridge at {self.ridge:.3g}" if self.bytes else "no bytes"
        yield f"  work         {self.bytes:,.0f} bytes, {self.flops:,.0f} flop: {at}"
        yield f"  predicted    {self.prediction}"
        for launch in self.launches:
            yield str(launch)
        for note in self.notes:
            yield f"  {note}"


class CudaReport(tuple[CudaKernelReport, ...]):
    """One report per kernel, in running order; prints one under the other."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {"kernels": [k.to_dict() for k in self]}

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))


def report_kernel(kernel: Kernel, fused: FusedCascade, dtype: str, operands: str | None, sizes: Mapping[str, int],
                  gpu: str) -> CudaKernelReport:
    """The report of one kernel.

    Parameters
    ----------
    dtype : of the arithmetic
    operands : dtype of all floating inputs, where they have the same
    sizes : length of every axis
    gpu : a device ("h100") or an architecture ("sm_90a")

    Raises
    ------
    ValueError
        for a GPU that does not exist.
    """
    target = Gpu.of(gpu)
    program = cuda_program(kernel, CudaTarget(target))
    code = machine_code(program.source, target.arch)
    device = Device.load(target.name)
    if not _MATRIX.search(program.source):
        device = replace(device, matrix={})
    work = work_on(device, fused, sizes, dtype)
    return CudaKernelReport(
        kernel.name, target.arch, tuple(_launch(x, code, target, sizes) for x in program.launches),
        memory_bytes(work, device), work.flops, ridge(device, dtype, operands),
        predict(work, device, dtype, operands), tuple(_notes(program, code, target)),
    )  # fmt: skip


def _launch(launch: Launch, code: MachineCode, gpu: Gpu, sizes: Mapping[str, int]) -> LaunchReport:
    resources = code.resources.get(launch.name)
    held = None
    if resources is not None and gpu.capability in LIMITS:
        held = occupancy(gpu.capability, launch.block, resources.registers, resources.shared + launch.shared)
    mix = code.instructions.get(launch.name, {})
    return LaunchReport(
        launch.name, "" if launch.when is None else str(launch.when), holds(launch.when, sizes),
        length(launch.tasks, sizes), launch.teams, launch.block, launch.shared, resources, held,
        {k: mix[k] for k in FAMILIES if mix.get(k)},
    )  # fmt: skip


def _notes(program: CudaProgram, code: MachineCode, gpu: Gpu) -> Iterable[str]:
    if code.missing:
        yield code.missing
    own = Gpu.load(gpu.name)
    if own.capability != gpu.capability:
        yield f"no device of {gpu.arch} is known: times are for {own.name} ({own.arch})"
    if gpu.capability not in LIMITS:
        yield f"occupancy is not known: no limits of {gpu.arch} are"
    if program.workspace:
        yield f"workspace between launches: {', '.join(b.name for b in program.workspace)}"
