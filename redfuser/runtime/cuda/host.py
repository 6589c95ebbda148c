"""CUDA kernels on this machine's CPU: NVRTC's own PTX, translated to C++, run with every access checked.

    module = HostModule(text)
    module.kernel("softmax").launch(grid=8, block=128, args=[In(x), Out(y), np.int32(n)], seed=3)
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from redfuser.runtime.build import load_library
from redfuser.runtime.cache import fetch
from redfuser.runtime.cuda.cxx import CxxCompiler, compile_shared, cxx_key, find_cxx, with_includes
from redfuser.runtime.cuda.errors import LaunchError
from redfuser.runtime.cuda.executor import JUMPS, SHARED_LIMIT, Dim, Executor, Launch, dim3, executor, pointer
from redfuser.runtime.cuda.host_memory import Array, HostMemory, In, Out, Placed, Scratch
from redfuser.runtime.cuda.nvrtc import SOURCE_NAME, compile_cuda, find_nvrtc
from redfuser.runtime.cuda.ptx_cpp import KernelInfo, translate
from redfuser.runtime.cuda.ptx_parse import parse_ptx

OPTIMISE = "-Og"
"""Of the translation. -O1 and -O2 take two and five times as long to compile and run no faster, because most of the time
goes to the executor; -O0 compiles in two thirds of the time and runs arithmetic at two thirds of the speed."""

Argument = In | Out | Scratch | Array | np.generic | bytes
"""What a launch takes: arrays, numbers with a dtype, structures as bytes."""


@dataclass(frozen=True)
class Statistics:
    """What a launch counted: 8 x 8 matrices that ldmatrix read, and the extra cycles that bank conflicts cost it."""

    matrix_loads: int
    matrix_conflicts: int


class HostModule:
    """A CUDA text, built for the host.

    source    the text
    arch      the GPU that NVRTC compiled for
    path      the library in the cache
    kernels   name -> its description
    """

    def __init__(
        self,
        source: str,
        arch: str = "sm_80",
        *,
        options: Sequence[str] = (),
        compiler: CxxCompiler | None = None,
        optimise: str = OPTIMISE,
    ) -> None:
        """Build a text, or find it in the cache.

        Parameters
        ----------
        source : CUDA text, without includes but those of CUDA
        arch : the GPU to compile for; the executor runs PTX of every one up to sm_90
        options : of NVRTC, after the standard ones
        compiler : the host's C++ compiler, by default `find_cxx()`
        optimise : its flag for the translation

        Raises
        ------
        NoNvrtc, NoCompiler
            when a compiler is missing; the message says how to get it.
        CudaCompileError, UnsupportedArch
            when NVRTC rejects the text or the architecture.
        UnsupportedPtx
            when the text has an instruction that the executor does not run.
        """
        compiler = compiler or find_cxx()
        self.source, self.arch = source, arch
        self._executor = executor(compiler)
        self.path = _build(source, arch, tuple(options), compiler, optimise)
        self._library = load_library(self.path)
        self._library.rf_bind.argtypes = [ctypes.c_void_p]
        self._library.rf_bind(self._executor.table)
        text = ctypes.c_char.in_dll(self._library, "rf_kernels")
        described = json.loads(ctypes.string_at(ctypes.addressof(text)))
        self.kernels = {k["name"]: KernelInfo.from_dict(k) for k in described}

    def kernel(self, name: str) -> HostKernel:
        """The kernel of this name.

        Raises
        ------
        LaunchError
            with the names that exist.
        """
        if name not in self.kernels:
            raise LaunchError(f"no kernel {name!r}; the text has {', '.join(self.kernels) or 'none'}")
        return HostKernel(self, self.kernels[name], self._library, self._executor)

    def reset(self) -> None:
        """Give the __device__ variables of the text their initial values again."""
        self._library.rf_reset()

    def memory(self) -> HostMemory:
        """Memory that outlives a launch, for kernels that hand on what they computed."""
        return HostMemory(self._executor)


class HostKernel:
    """A kernel of a `HostModule`.

    info   its parameters and shared memory
    """

    def __init__(self, module: HostModule, info: KernelInfo, library: ctypes.CDLL, runner: Executor) -> None:
        self.info = info
        self._module, self._library, self._executor = module, library, runner
        self._function = pointer(library, f"rf_kernel_{info.name}")
        library.rf_statics.restype = ctypes.c_void_p
        library.rf_statics.argtypes = [ctypes.POINTER(ctypes.c_size_t)]

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
            counted = self.run_packed(dim3(grid, "grid"), dim3(block, "block"), shared_bytes, bytes(packed), seed, checks, jumps)
            for copy in placed:
                copy.copy_back(self.info.name, checks)
        return counted

    def function(self, seed: int = 0, checks: bool = True) -> HostFunction:
        """This kernel behind the interface of all back ends; pointers are addresses of the module's `memory()`."""
        return HostFunction(self, seed, checks)

    def _bytes(self, given: Argument, name: str, stack: ExitStack) -> tuple[bytes, Placed | None]:
        if isinstance(given, (In, Out, Scratch, np.ndarray)):
            copy = stack.enter_context(Placed(self._executor, given, name))
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
        size = ctypes.c_size_t()
        statics = self._library.rf_statics(ctypes.byref(size))
        arguments = ctypes.create_string_buffer(packed, max(1, len(packed)))
        launch = Launch(
            self._function, ctypes.addressof(arguments), len(packed), statics, size.value, grid, block,
            self.info.shared + shared_bytes, SHARED_LIMIT, seed, jumps, checks,
        )
        report = self._executor.launch(launch, self.info.name, self.info.sites, self._module.source)
        return Statistics(report.matrix_loads, report.matrix_conflicts)

    def _check(self, block: Dim, shared_bytes: int) -> None:
        threads = block.x * block.y * block.z
        most = self.info.block or 1024
        if threads > most or block.z > 64:
            limit = "its __launch_bounds__" if self.info.block else "the device"
            raise LaunchError(f"a block of {threads} threads; {limit} allows {most} for {self.info.name}")
        if shared_bytes < 0 or self.info.shared + shared_bytes > SHARED_LIMIT:
            raise LaunchError(
                f"{self.info.name} has {self.info.shared} bytes of static shared memory and asks for {shared_bytes} more; "
                f"a block may have {SHARED_LIMIT}"
            )


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


def _build(source: str, arch: str, options: tuple[str, ...], compiler: CxxCompiler, optimise: str) -> Path:
    """The library of a text. The key is that of the text and the tools, so that a library found needs neither."""
    nvrtc = find_nvrtc()
    key = cxx_key(compiler, (optimise,), source, arch, " ".join(options), str(nvrtc.version), translator_version())

    def build(_: Path, binary: Path) -> None:
        compiled = compile_cuda(source, arch, options=("-lineinfo", *options))
        text = binary.with_suffix(".cpp")
        text.write_text(with_includes(translate(parse_ptx(compiled.ptx))), encoding="utf-8")
        compile_shared(compiler, text, binary, (optimise, "-w"))

    return fetch(key, source, build, f".{SOURCE_NAME.rpartition('.')[2]}")


@lru_cache(maxsize=1)
def translator_version() -> str:
    """A text that changes with every file of this package: what an older translator built is built again."""
    folder = files("redfuser.runtime.cuda")
    names = sorted(f.name for f in folder.iterdir() if f.name.endswith((".py", ".h", ".cpp", ".cuh")))
    return "\0".join(folder.joinpath(n).read_text(encoding="utf-8") for n in names)
