"""A tile program as CUDA on this machine's CPU, every access checked: it stands for a GPU in tests."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import numpy as np

from redfuser.codegen.cuda import CudaProgram, CudaTarget, Launch, cuda_program
from redfuser.codegen.nodes import Kernel
from redfuser.extract.gpu import Gpu
from redfuser.runtime.arrays import Array, Port, data_pointer, extent
from redfuser.runtime.cuda.cxx import find_cxx
from redfuser.runtime.cuda.errors import CudaFault
from redfuser.runtime.cuda.executor import CONSTANT, SCRATCH, Executor, executor
from redfuser.runtime.cuda.host import HostModule
from redfuser.runtime.cuda.launch import Function
from redfuser.runtime.cuda.launched import LaunchedKernel, Placed, element_strides

HOST_ARCH = "sm_80"
"""What the executor runs, unless asked for something else."""
HOST_BLOCKS = 3
"""Blocks of a launch on the host: more than one, so that they meet; teams go on to further tasks."""


class HostCudaKernel(LaunchedKernel):
    """A tile program as CUDA on this machine's CPU; called like a compiled C kernel.

    seed     of the schedule of threads: 0 in order, 1 in reverse, others at random
    checks   False leaves only the bounds and the alignment of accesses
    """

    kind = np.ndarray

    def __init__(self, kernel: Kernel, arch: str = HOST_ARCH, *, seed: int = 0, checks: bool = True,
                 program: CudaProgram | None = None, blocks: int = HOST_BLOCKS) -> None:
        """Print and build a program.

        Raises
        ------
        NoNvrtc, NoCompiler
            when a compiler is missing; the message says how to get it.
        """
        super().__init__(kernel, program or cuda_program(kernel, CudaTarget(Gpu.of(arch))))
        self.seed, self.checks, self.blocks = seed, checks, blocks
        self.module = HostModule(self.source, arch)

    @property
    def path(self) -> Path:
        """The library in the cache."""
        return self.module.path

    def memory(self, outs: Sequence[Array]) -> _Guarded:
        """See `LaunchedKernel`."""
        return _Guarded(executor(find_cxx()), self.kernel.name, self.checks)

    def function(self, launch: Launch) -> Function:
        """See `LaunchedKernel`."""
        chosen = _SEED.get()
        return self.module.kernel(launch.name).function(self.seed if chosen is None else chosen, self.checks)

    def most_blocks(self, launch: Launch) -> int:
        """See `LaunchedKernel`."""
        return self.blocks


class _Guarded:
    """Guarded memory of one run: every array is a copy, alone in memory."""

    def __init__(self, runner: Executor, kernel: str, checks: bool) -> None:
        self.runner, self.kernel, self.checks = runner, kernel, checks
        self.regions: list[int] = []
        self._results: list[tuple[int, Array, Array, str]] = []

    def __enter__(self) -> _Guarded:
        return self

    def __exit__(self, *_: object) -> None:
        for address in self.regions:
            self.runner.free(address)

    def input(self, port: Port, given: Array) -> Placed:
        """See `Memory`."""
        a = given if port.direct(given) else port.copied(given)
        port.check_unit(a)
        return Placed(self._copy(a, port.name, True), element_strides(a))

    def output(self, port: Port, given: Array) -> Placed:
        """See `Memory`."""
        made = port.copied(given)
        address = self._copy(made, port.name, False)
        self._results.append((address, made, given, port.name))
        return Placed(address, element_strides(made))

    def room(self, size: int, name: str, shift: int = 0, mode: int = SCRATCH) -> int:
        """Address of memory; by default without contents: kernels must write what they read of it."""
        address = self.runner.region(max(1, size), mode, name, shift)
        self.regions.append(address)
        ctypes.memset(address, 0xFF, max(1, size))
        return address

    def finish(self) -> None:
        """See `Memory`."""
        for address, made, given, name in self._results:
            self._copy_back(address, made, name)
            given[...] = made

    def _copy(self, a: Array, name: str, constant: bool) -> int:
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

    def _copy_back(self, address: int, to: Array, name: str) -> None:
        """The results of a contiguous output."""
        count, first = self.runner.unwritten(address)
        if self.checks and count and to.size:
            at = tuple(map(int, np.unravel_index(min(first // to.itemsize, to.size - 1), to.shape)))
            text = f"{count} of {to.nbytes} bytes of output {name} were not written, the first in element {at}"
            raise CudaFault("unwritten", self.kernel, 0, text)
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


__all__ = ["HostCudaKernel", "scheduled"]
