"""The second front end: CUDA text compiled by the host's C++ compiler, with its sanitizers' hooks on the executor.

It sees the program as it was written. What a compiler may leave out because it is undefined (a read of a variable
that was never set, an index beyond a local array, a shift too far) is still there, and it needs no NVRTC. It reads no
inline PTX: text that has some offers the functions of `rf_host` where the macro REDFUSER_HOST is defined.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from redfuser.errors import CompileError
from redfuser.runtime.build import load_library
from redfuser.runtime.cuda.cxx import CxxCompiler, build_cxx, find_cxx, package_text, with_includes
from redfuser.runtime.cuda.errors import CudaCompileError
from redfuser.runtime.cuda.executor import executor
from redfuser.runtime.cuda.host_kernel import HostKernels, Program, bind, memory_of
from redfuser.runtime.cuda.nvrtc import SOURCE_NAME
from redfuser.runtime.cuda.ptx_cpp import KernelInfo, Slot

FLAGS = (
    "-O1", "-g1", "-w", "-fno-wrapv", "-fsanitize=thread",
    "-fsanitize=bounds,alignment,shift,integer-divide-by-zero,signed-integer-overflow",
    "-fsanitize-coverage=trace-pc",
)
"""Every access of memory, every undefined operation and every basic block calls a hook of the prelude."""
MOST_PARAMETERS = 64

_DYNAMIC = re.compile(r"extern\s+__shared__\s+(?:__align__\s*\(\s*\d+\s*\)\s*)?([\w:\s]+?)\s*\b(\w+)\s*\[\s*\]\s*;")
_TOKEN = re.compile(
    r"namespace\s+(?P<space>[\w:]+)\s*\{|(?P<open>\{)|(?P<close>\})"
    r"|__global__\s+void\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(?P<kernel>\w+)\s*\("
)
_LINE_SITE = 1 << 31
_CODE_SITE = 1 << 30


class HeaderModule(HostKernels):
    """A CUDA text, compiled by the host's C++ compiler alone. Kernels are launched as those of `HostModule`.

    source    the text
    path      the library in the cache
    kernels   name -> its description
    """

    def __init__(self, source: str, *, compiler: CxxCompiler | None = None) -> None:
        """Build a text, or find it in the cache.

        Raises
        ------
        NoCompiler
            when there is no C++ compiler.
        CudaCompileError
            when the compiler rejects the text: inline PTX, or a CUDA function that the prelude does not have.
        """
        compiler = compiler or find_cxx()
        self.source = source
        names = dict(kernel_names(source))
        try:
            self.path = build_cxx(host_text(source, names), compiler, FLAGS, suffix=".host.cpp")
        except CompileError as error:
            raise CudaCompileError(
                "the host's C++ compiler cannot read the CUDA text; inline PTX must stand under #ifndef REDFUSER_HOST\n"
                f"{error}"
            ) from error
        library, runner = load_library(self.path), executor(compiler)
        bind(library, runner)
        lines = _CodeLines(library, self.path)
        self._program = Program(
            library, runner, source, lambda _: lines.of, (None, 0), memory_of(library, "rf_section")
        )
        self.kernels = {name: KernelInfo(name, _params(library, name), 0) for name in names}


def kernel_names(source: str) -> Iterator[tuple[str, str]]:
    """(name, name with its namespaces) of each kernel of a text."""
    spaces: list[str] = []
    for match in _TOKEN.finditer(source):
        if match.group("space") or match.group("open"):
            spaces.append(match.group("space") or "")
        elif match.group("close"):
            if spaces:
                spaces.pop()
        else:
            name = match.group("kernel")
            yield name, "::".join([*filter(None, spaces), name])


def host_text(source: str, names: dict[str, str]) -> str:
    """A CUDA text as C++: the prelude before it, the entries of its kernels behind it. Lines keep their numbers."""
    body = _DYNAMIC.sub(r"\1* const \2 = reinterpret_cast<\1*>(::rf_host::dynamic_shared());", source)
    exports = [f"RF_EXPORT_KERNEL({name}, {full})" for name, full in names.items()]
    parts = [with_includes(package_text("host_prelude.cuh")), f'#line 1 "{SOURCE_NAME}"', body, *exports, ""]
    return "\n".join(parts).replace("#pragma once\n", "")


def _params(library: ctypes.CDLL, name: str) -> tuple[Slot, ...]:
    numbers = (ctypes.c_uint32 * (1 + 2 * MOST_PARAMETERS))()
    getattr(library, f"rf_params_{name}")(numbers)
    return tuple(Slot(numbers[1 + 2 * i], numbers[2 + 2 * i]) for i in range(numbers[0]))


class _CodeLines:
    """Lines of the sites of a library: those of the prelude's macros are lines, those of hooks are code addresses."""

    def __init__(self, library: ctypes.CDLL, path: Path) -> None:
        library.rf_anchor.restype = ctypes.c_size_t
        library.rf_anchor.argtypes = []
        self._anchor: int = library.rf_anchor()
        self._path = path

    def of(self, site: int) -> Sequence[int]:
        """The line of a site, then those that its function was inlined through."""
        if site >= _LINE_SITE:
            return (site - _LINE_SITE,)
        if not site or not self._anchor:
            return ()
        return _lines_of_code(self._path, self._anchor + site - _CODE_SITE)


@lru_cache(maxsize=256)
def _lines_of_code(path: Path, address: int) -> tuple[int, ...]:
    tool = shutil.which("addr2line") or shutil.which("llvm-addr2line")
    if tool is None:
        return ()
    done = subprocess.run([tool, "-i", "-e", str(path), hex(address)], capture_output=True, text=True, check=False)
    found = re.findall(rf"{re.escape(SOURCE_NAME)}:(\d+)", done.stdout)
    return tuple(int(line) for line in found)


__all__ = ["HeaderModule", "host_text", "kernel_names"]
