"""A kernel that runs on the host, whichever front end made it: arguments in, results or a finding out."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from redfuser.runtime.cuda.errors import LaunchError
from redfuser.runtime.cuda.executor import JUMPS, SHARED_LIMIT, Dim, Executor, Launch, Lines, dim3, pointer
from redfuser.runtime.cuda.host_memory import Array, HostMemory, In, Out, Placed, Scratch
from redfuser.runtime.cuda.ptx_cpp import KernelInfo

Argument = In | Out | Scratch | Array | np.generic | bytes
"""What a launch takes: arrays, numbers with a dtype, structures as bytes."""


@dataclass(frozen=True)
class Statistics:
    """What a launch counted: 8 x 8 matrices that ldmatrix read, and the extra cycles that bank conflicts cost it."""

    matrix_loads: int
    matrix_conflicts: int


@dataclass(frozen=True)
class Program:
    """A loaded library of kernels, bound to the executor.

    lines     the lines of a kernel's sites
    statics   (address, bytes) of the module's variables
    section   (address, bytes) of shared variables that are not in the block's window
    """

    library: ctypes.CDLL
    executor: Executor
    source: str
    lines: Callable[[KernelInfo], Lines]
    statics: tuple[int | None, int]
    section: tuple[int | None, int] = (None, 0)


def bind(library: ctypes.CDLL, runner: Executor) -> None:
    """Tell a library of kernels where the executor is."""
    library.rf_bind.argtypes = [ctypes.c_void_p]
    library.rf_bind.restype = None
    library.rf_bind(runner.table)


def memory_of(library: ctypes.CDLL, function: str) -> tuple[int | None, int]:
    """(address, bytes) that a function of a library tells."""
    tell: Any = getattr(library, function)
    tell.restype = ctypes.c_void_p
    tell.argtypes = [ctypes.POINTER(ctypes.c_size_t)]
    size = ctypes.c_size_t()
    address: int | None = tell(ctypes.byref(size))
    return address, size.value


class HostKernel:
    """A kernel of a `HostModule` or a `HeaderModule`.

    info   its parameters and shared memory
    """

    def __init__(self, program: Program, info: KernelInfo) -> None:
        self.info = info
        self._program = program
        self._function = pointer(program.library, f"rf_kernel_{info.name}")

    def launch(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Argument],
        shared_bytes: int = 0,
        seed: int = 0,
        checks: bool = True,
        jumps: int = JUMPS,
    ) -> Statistics:
        """Run the kernel on arrays.

        Parameters
        ----------
        grid, block : sizes, up to three each
        args : one for each parameter: arrays (`In`, `Out`, `Scratch`, or plain for one that is read and written; the
            kernel sees a copy in guarded memory), NumPy scalars of the parameter's size, bytes for a structure
        shared_bytes : dynamic shared memory
        seed : of the schedule; 0 runs threads and blocks in order, 1 in reverse, others at random
        checks : False leaves only the bounds and the alignment of accesses
        jumps : backward jumps after which a thread counts as caught in a loop

        Raises
        ------
        LaunchError
            when the arguments, the block or the shared memory do not fit the kernel.
        CudaFault
            for the first thing that the kernel does wrong; arrays are left as they were.
        """
        packed = bytearray(max((s.offset + s.size for s in self.info.params), default=0))
        if len(args) != len(self.info.params):
            raise LaunchError(f"{self.info.name} takes {len(self.info.params)} arguments, got {len(args)}")
        with ExitStack() as stack:
            placed = []
            for i, (slot, given) in enumerate(zip(self.info.params, args, strict=True)):
                raw, copy = self._bytes(given, f"argument {i}", stack)
                if len(raw) != slot.size:
                    raise LaunchError(
                        f"argument {i} of {self.info.name} has {slot.size} bytes, got {len(raw)} ({_name(given)}); "
                        "give a NumPy scalar of the right dtype"
                    )
                packed[slot.offset : slot.offset + slot.size] = raw
                placed += [copy] if copy else []
            counted = self.run_packed(
                dim3(grid, "grid"), dim3(block, "block"), shared_bytes, bytes(packed), seed, checks, jumps
            )
            for copy in placed:
                copy.copy_back(self.info.name, checks)
        return counted

    def function(self, seed: int = 0, checks: bool = True) -> HostFunction:
        """This kernel behind the interface of all back ends; pointers are addresses of the module's `memory()`."""
        return HostFunction(self, seed, checks)

    def _bytes(self, given: Argument, name: str, stack: ExitStack) -> tuple[bytes, Placed | None]:
        if isinstance(given, (In, Out, Scratch, np.ndarray)):
            copy = stack.enter_context(Placed(self._program.executor, given, name))
            return copy.address.to_bytes(8, "little"), copy
        if isinstance(given, np.generic):
            return given.tobytes(), None
        if isinstance(given, bytes):
            return given, None
        raise LaunchError(
            f"{name} of {self.info.name} is {_name(given)}; give an array, a NumPy scalar such as np.int32(5), or bytes"
        )

    def run_packed(
        self, grid: Dim, block: Dim, shared_bytes: int, packed: bytes, seed: int, checks: bool, jumps: int
    ) -> Statistics:
        """Run the kernel on packed arguments.

        Raises
        ------
        LaunchError, CudaFault
            see `launch`.
        """
        expected = max((s.offset + s.size for s in self.info.params), default=0)
        if len(packed) != expected:
            raise LaunchError(f"{self.info.name} takes {expected} bytes of arguments, got {len(packed)}")
        self._check(block, shared_bytes)
        program = self._program
        arguments = ctypes.create_string_buffer(packed, max(1, len(packed)))
        launch = Launch(
            self._function, ctypes.addressof(arguments), len(packed), *program.statics, *program.section, grid, block,
            self.info.shared + shared_bytes, seed, jumps, checks,
        )
        report = program.executor.launch(launch, self.info.name, program.lines(self.info), program.source)
        return Statistics(report.matrix_loads, report.matrix_conflicts)

    def _check(self, block: Dim, shared_bytes: int) -> None:
        threads = block.x * block.y * block.z
        most = self.info.block or 1024
        if threads > most or block.z > 64:
            limit = "its __launch_bounds__" if self.info.block else "the device"
            raise LaunchError(f"a block of {threads} threads; {limit} allows {most} for {self.info.name}")
        if shared_bytes < 0 or self.info.shared + shared_bytes > SHARED_LIMIT:
            raise LaunchError(
                f"{self.info.name} has {self.info.shared} bytes of static shared memory and asks for {shared_bytes} "
                f"more; a block may have {SHARED_LIMIT}"
            )


class HostKernels:
    """What both front ends make of a text: its kernels, on the executor. kernels: name -> its description."""

    kernels: dict[str, KernelInfo]
    _program: Program

    def kernel(self, name: str) -> HostKernel:
        """The kernel of this name.

        Raises
        ------
        LaunchError
            with the names that exist.
        """
        if name not in self.kernels:
            raise LaunchError(f"no kernel {name!r}; the text has {', '.join(self.kernels) or 'none'}")
        return HostKernel(self._program, self.kernels[name])

    def memory(self) -> HostMemory:
        """Memory that outlives a launch, for kernels that hand on what they computed."""
        return HostMemory(self._program.executor)


@dataclass(frozen=True)
class HostFunction:
    """A kernel of the host as a `Function`."""

    kernel: HostKernel
    seed: int = 0
    checks: bool = True

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        packed_args: bytes,
        stream: int | None = None,
    ) -> None:
        """Run the kernel; see `Function.launch`. When it returns, the kernel has ended.

        Raises
        ------
        LaunchError, CudaFault
            see `HostKernel.launch`.
        """
        shape, threads = dim3(grid, "grid"), dim3(block, "block")
        self.kernel.run_packed(shape, threads, shared_bytes, packed_args, self.seed, self.checks, JUMPS)


def _name(given: object) -> str:
    return f"a {given.dtype}" if isinstance(given, np.generic) else f"a {type(given).__name__}"
