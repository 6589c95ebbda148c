"""A tile program on a GPU, or on the executor that stands for one: built once, called with arrays and sizes.

`HostCudaKernel` runs the launches on this machine's CPU, every access checked.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from redfuser.codegen.cuda import CudaProgram, CudaTarget, Launch, cuda_program
from redfuser.codegen.nodes import Buf, Kernel
from redfuser.errors import ShapeError
from redfuser.extract.gpu import Gpu
from redfuser.ir import Const, Expr, Op, Size
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.term import base_axis
from redfuser.runtime.arrays import Array, Port, data_pointer, extent, length
from redfuser.runtime.cuda.cxx import find_cxx
from redfuser.runtime.cuda.errors import CudaFault
from redfuser.runtime.cuda.executor import CONSTANT, SCRATCH, Executor, executor
from redfuser.runtime.cuda.host import HostModule
from redfuser.runtime.cuda.launch import Parameter, array, pack, scalar

HOST_ARCH = "sm_80"
"""What the executor runs, unless asked for something else."""
HOST_BLOCKS = 3
"""Blocks of a launch on the host: more than one, so that they meet; teams go on to further tasks."""


def holds(condition: Expr | None, sizes: Mapping[str, int]) -> bool:
    """Whether a condition on sizes holds; no condition always does."""
    return condition is None or bool(_value(condition, sizes))


def _value(e: Expr, sizes: Mapping[str, int]) -> int:
    if isinstance(e, Const):
        return int(e.value)
    if isinstance(e, Size):
        return sizes[base_axis(e.axis)]
    if isinstance(e, Op) and e.fn in _TESTS:
        return int(_TESTS[e.fn](*(_value(x, sizes) for x in e.args)))
    return length(e, sizes)


_TESTS: dict[str, Any] = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "and": lambda a, b: a and b, "or": lambda a, b: a or b,
    "not": lambda a: not a,
}  # fmt: skip


@dataclass(frozen=True)
class Grid:
    """Size of one launch: blocks, and bytes of global scratch of each team."""

    blocks: int
    scratch: int

    @staticmethod
    def of(launch: Launch, sizes: Mapping[str, int], most: int) -> Grid:
        """As many blocks as tasks need, `most` at most: teams take further tasks in turn."""
        tasks = length(launch.tasks, sizes)
        blocks = min(-(-tasks // launch.teams), most)
        return Grid(max(blocks, 0), 0 if launch.scratch is None else length(launch.scratch, sizes))


def bytes_of(buf: Buf, sizes: Mapping[str, int]) -> int:
    """Bytes of a workspace buffer."""
    return math.prod(length(e, sizes) for e in buf.shape) * numpy_dtype(buf.dtype).itemsize


class HostCudaKernel:
    """A tile program as CUDA on this machine's CPU; called like a compiled C kernel.

    program  the text and its launches
    seed     of the schedule of threads: 0 in order, 1 in reverse, others at random
    checks   False leaves only the bounds and the alignment of accesses
    """

    def __init__(self, kernel: Kernel, arch: str = HOST_ARCH, *, seed: int = 0, checks: bool = True,
                 program: CudaProgram | None = None, blocks: int = HOST_BLOCKS) -> None:
        """Print and build a program.

        Raises
        ------
        NoNvrtc, NoCompiler
            when a compiler is missing; the message says how to get it.
        """
        self.kernel = kernel
        self.program = program or cuda_program(kernel, CudaTarget(Gpu.of(arch)))
        self.source = self.program.source
        self.seed, self.checks, self.blocks = seed, checks, blocks
        self.module = HostModule(self.source, arch)
        self._inputs = [Port(b) for b in kernel.tensors]
        self._outputs = [Port(b) for b in kernel.outs]

    def run(self, arrays: Sequence[Array], outs: Sequence[Array], sizes: Mapping[str, int]) -> None:
        """Compute `outs` from `arrays`; parameters as those of a compiled C kernel.

        Raises
        ------
        DTypeError, ShapeError
            naming the argument that does not fit.
        CudaFault
            for the first thing that a kernel does wrong.
        """
        for axis, expected in self.kernel.static:
            if sizes.get(axis, expected) != expected:
                raise ShapeError(f"axis {axis} has length {sizes[axis]}, but kernel {self.kernel.name} was compiled "
                                 f"for {expected}; compile it again for this length")
        given = [_direct(p, p.check(a, sizes)) for p, a in zip(self._inputs, arrays, strict=True)]
        with _Placing(executor(find_cxx())) as place:
            addresses = {p.name: place.copy(a, p.name, True) for p, a in zip(self._inputs, given, strict=True)}
            views = {}
            for p, out in zip(self._outputs, outs, strict=True):
                made = p.copied(p.check(out, sizes))
                addresses[p.name] = place.copy(made, p.name, False)
                views[p.name] = made
            strides = {p.name: _strides(a) for p, a in zip(self._inputs, given, strict=True)}
            strides |= {name: _strides(a) for name, a in views.items()}
            for buf in self.program.workspace:
                addresses[buf.name] = place.room(bytes_of(buf, sizes), buf.name)
            for launch in self.program.launches:
                if holds(launch.when, sizes):
                    self._launch(launch, place, addresses, strides, sizes)
            for p, out in zip(self._outputs, outs, strict=True):
                place.copy_back(addresses[p.name], views[p.name], self.kernel.name, p.name, self.checks)
                out[...] = views[p.name]

    @property
    def path(self) -> Path:
        """The library in the cache."""
        return self.module.path

    def repeatable(self, arrays: Sequence[Array], outs: Sequence[Array], sizes: Mapping[str, int]) -> None:
        """None: every run copies its arrays into guarded memory."""
        return

    def _launch(self, launch: Launch, place: _Placing, addresses: Mapping[str, int],
                strides: Mapping[str, tuple[int, ...]], sizes: Mapping[str, int]) -> None:
        grid = Grid.of(launch, sizes, self.blocks)
        if not grid.blocks:
            return
        parameters: list[Parameter] = []
        values: list[int] = []
        for p in launch.parameters:
            if p.kind in ("array", "workspace"):
                parameters.append(array(p.name, numpy_dtype(p.dtype)))
                values.append(addresses[p.name])
            elif p.kind == "scratch":
                parameters.append(array(p.name, "uint8"))
                values.append(place.room(grid.blocks * launch.teams * grid.scratch, p.name))
            else:
                parameters.append(scalar(p.name, "int64"))
                values.append(strides[p.name][p.dim] if p.kind == "stride" else
                              grid.scratch if p.kind == "bytes" else sizes[p.name])
        chosen = _SEED.get()
        function = self.module.kernel(launch.name).function(self.seed if chosen is None else chosen, self.checks)
        function.launch((grid.blocks, 1, 1), (launch.block, 1, 1), launch.shared, pack(parameters, values))


def _direct(port: Port, a: Array) -> Array:
    """The array, or a copy of one that the device could not read in place."""
    result = a if port.direct(a) else port.copied(a)
    port.check_unit(result)
    return result


def _strides(a: Array) -> tuple[int, ...]:
    return tuple(s // a.itemsize for s in a.strides)


class _Placing:
    """Guarded memory of one run."""

    def __init__(self, runner: Executor) -> None:
        self.runner = runner
        self.regions: list[int] = []

    def __enter__(self) -> _Placing:
        return self

    def __exit__(self, *_: object) -> None:
        for address in self.regions:
            self.runner.free(address)

    def room(self, size: int, name: str, shift: int = 0, mode: int = SCRATCH) -> int:
        """Address of memory; by default without contents: kernels must write what they read of it."""
        address = self.runner.region(max(1, size), mode, name, shift)
        self.regions.append(address)
        ctypes.memset(address, 0xFF, max(1, size))
        return address

    def copy(self, a: Array, name: str, constant: bool) -> int:
        """Address of the first element of an array laid out as the given one; with its contents if it is constant."""
        begin, end = extent(a) if a.size else (0, 0)
        shift = (data_pointer(a) + begin) % 16 // a.itemsize * a.itemsize if constant else 0
        address = self.room(end - begin, name, shift, CONSTANT if constant else SCRATCH)
        if constant:
            raw = memoryview((ctypes.c_uint8 * (end - begin)).from_address(address)).cast("B")
            if a.size:
                there: Array = np.ndarray(a.shape, a.dtype, raw, -begin, a.strides)
                np.copyto(there, a)
        return address - begin

    def copy_back(self, address: int, to: Array, kernel: str, name: str, checks: bool) -> None:
        """The results of a contiguous output."""
        count, first = self.runner.unwritten(address)
        if checks and count and to.size:
            at = tuple(map(int, np.unravel_index(min(first // to.itemsize, to.size - 1), to.shape)))
            text = f"{count} of {to.nbytes} bytes of output {name} were not written, the first in element {at}"
            raise CudaFault("unwritten", kernel, 0, text)
        ctypes.memmove(to.ctypes.data, address, to.nbytes)


_SEED: ContextVar[int | None] = ContextVar("seed of the schedule of threads", default=None)


@contextmanager
def scheduled(seed: int) -> Iterator[None]:
    """Inside, kernels run under the schedule of threads with this seed: 0 in order, 1 in reverse, others at random."""
    token = _SEED.set(seed)
    try:
        yield
    finally:
        _SEED.reset(token)
