"""CUDA kernels on this machine's CPU: NVRTC's own PTX, translated to C++, run with every access checked.

    module = HostModule(text)
    module.kernel("softmax").launch(grid=8, block=128, args=[In(x), Out(y), np.int32(n)], seed=3)
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from redfuser.runtime.build import load_library
from redfuser.runtime.cache import fetch
from redfuser.runtime.cuda.cxx import CxxCompiler, compile_shared, cxx_key, find_cxx, with_includes
from redfuser.runtime.cuda.executor import Lines, executor
from redfuser.runtime.cuda.host_kernel import (
    HostFunction,
    HostKernel,
    HostKernels,
    Program,
    Statistics,
    bind,
    memory_of,
)
from redfuser.runtime.cuda.host_memory import In, Out, Scratch
from redfuser.runtime.cuda.nvrtc import SOURCE_NAME, compile_cuda, find_nvrtc
from redfuser.runtime.cuda.ptx_cpp import KernelInfo, translate
from redfuser.runtime.cuda.ptx_parse import parse_ptx

__all__ = ["HostFunction", "HostKernel", "HostModule", "In", "Out", "Scratch", "Statistics"]

OPTIMISE = "-Og"
"""Of the translation. -O1 and -O2 take two and five times as long to compile and run no faster, because most of the
time goes to the executor; -O0 compiles in two thirds of the time and runs arithmetic at two thirds of the speed."""


class HostModule(HostKernels):
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
        self.path = _build(source, arch, tuple(options), compiler, optimise)
        library, runner = load_library(self.path), executor(compiler)
        bind(library, runner)
        self._program = Program(library, runner, source, _lines, memory_of(library, "rf_statics"))
        text = ctypes.c_char.in_dll(library, "rf_kernels")
        described = json.loads(ctypes.string_at(ctypes.addressof(text)))
        self.kernels = {k["name"]: KernelInfo.from_dict(k) for k in described}

    def reset(self) -> None:
        """Give the __device__ variables of the text their initial values again."""
        self._program.library.rf_reset()


def _lines(info: KernelInfo) -> Lines:
    return lambda site: info.sites[site] if site < len(info.sites) else ()


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
