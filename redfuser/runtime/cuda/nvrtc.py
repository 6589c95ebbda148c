"""CUDA text to PTX or machine code, with NVIDIA's run-time compiler: no driver, no GPU, no CUDA toolkit needed.

The library comes with `pip install 'redfuser[cuda-host]'`; one of an installed toolkit serves as well.
"""

from __future__ import annotations

import ctypes
import glob
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from redfuser.runtime.cuda.errors import CudaCompileError, NoNvrtc, UnsupportedArch

SOURCE_NAME = "kernel.cu"
"""What the CUDA text is called in messages and line tables."""

STANDARD = ("--device-as-default-execution-space", "-std=c++17", "-ftz=true")
"""The options that CuPy gives, so that what is checked here is what runs there. (-ftz: denormals count as zero.)"""

REMEDY = "pip install 'redfuser[cuda-host]', or set CUDA_PATH to an installed CUDA toolkit (12 or newer)"

_ARCH = re.compile(r"(?:sm|compute)_(\d+)([af]?)")


@dataclass(frozen=True)
class Resources:
    """What ptxas reports for one kernel; bytes, but for the registers.

    registers     per thread
    stack         local memory per thread: arrays whose index is not known, and spilled registers
    spill_stores, spill_loads   traffic of registers that did not fit
    shared        static shared memory of a block
    """

    registers: int = 0
    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    shared: int = 0


@dataclass(frozen=True)
class Compiled:
    """What NVRTC made of a CUDA text.

    data       PTX text or a CUBIN, as bytes
    kind       "ptx" or "cubin"
    arch       for example "sm_80"
    log        warnings, and the report of ptxas for a CUBIN
    resources  kernel -> what it uses; empty for PTX, which ptxas has not seen
    """

    data: bytes
    kind: str
    arch: str
    log: str
    resources: Mapping[str, Resources] = field(default_factory=dict)

    @property
    def ptx(self) -> str:
        """The PTX text.

        Raises
        ------
        ValueError
            for a CUBIN.
        """
        if self.kind != "ptx":
            raise ValueError("this is a CUBIN; compile with kind='ptx'")
        return self.data.rstrip(b"\0").decode()


class Nvrtc:
    """A loaded NVRTC library.

    path     where it was found
    version  (major, minor)
    archs    compute capabilities that it compiles for: 80 is sm_80
    include  folders of CUDA's own headers
    """

    def __init__(self, path: str) -> None:
        """Load the library at `path` (a file, or a name for the system's loader).

        Raises
        ------
        OSError
            when it cannot be loaded.
        """
        # NVRTC looks for its built-in functions by name: they must be loaded already
        for builtins in sorted(glob.glob(str(Path(path).parent / "libnvrtc-builtins.so.*"))):
            if ".alt." not in builtins and os.path.dirname(path):
                ctypes.CDLL(builtins)
        self.path = path
        self._library = ctypes.CDLL(path)
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self.version = (major.value, minor.value)
        self.archs = self._archs()
        self.include = _include_folders(path)

    def _check(self, status: int) -> None:
        if status:
            raise CudaCompileError(f"NVRTC {self.path}: {self._library.nvrtcGetErrorString(status).decode()}")

    def _archs(self) -> tuple[int, ...]:
        count = ctypes.c_int()
        self._check(self._library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
        archs = (ctypes.c_int * count.value)()
        self._check(self._library.nvrtcGetSupportedArchs(archs))
        return tuple(archs)

    def _text(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw[: size.value]

    def compile(self, source: str, options: Sequence[str], what: str) -> tuple[bytes, str]:
        """(`what` of the compiled text, log); `what` is PTX or CUBIN.

        Raises
        ------
        CudaCompileError
            with the log and the first line at fault.
        """
        program = ctypes.c_void_p()
        self._check(
            self._library.nvrtcCreateProgram(
                ctypes.byref(program), source.encode(), SOURCE_NAME.encode(), 0, None, None
            )
        )
        try:
            given = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
            status = self._library.nvrtcCompileProgram(program, len(options), given)
            log = self._text(program, "ProgramLog").rstrip(b"\0").decode(errors="replace").strip()
            if status:
                raise CudaCompileError(_rejection(source, log, options))
            return self._text(program, what), log
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))


def _rejection(source: str, log: str, options: Sequence[str]) -> str:
    found = re.search(rf"{re.escape(SOURCE_NAME)}\((\d+)\): (?:catastrophic )?error", log)
    lines = source.splitlines()
    number = int(found.group(1)) if found else 0
    shown = f"line {number}: {lines[number - 1].strip()}\n" if 0 < number <= len(lines) else ""
    return f"NVRTC rejected the CUDA text\n{shown}{log[:4000]}\noptions: {' '.join(options)}"


def compile_cuda(
    source: str, arch: str, *, options: Sequence[str] = (), kind: Literal["ptx", "cubin"] = "ptx"
) -> Compiled:
    """Compile CUDA text with the options that CuPy would give.

    Parameters
    ----------
    source : the whole text
    arch : "sm_80", or "sm_90a" for the instructions that only one architecture has
    options : added to the standard ones, for example "-lineinfo"
    kind : "ptx", or "cubin" for machine code and the report of registers and spills

    Raises
    ------
    NoNvrtc
        when there is no NVRTC.
    UnsupportedArch
        when it does not know `arch`.
    CudaCompileError
        when it rejects the text.
    """
    nvrtc = find_nvrtc()
    check_arch(arch, nvrtc)
    target = arch if kind == "cubin" else arch.replace("sm_", "compute_")
    flags = [*STANDARD, f"-arch={target}", *[f"-I{folder}" for folder in nvrtc.include], *options]
    if kind == "cubin":
        flags.append("--ptxas-options=-v")
    data, log = nvrtc.compile(source, flags, kind.upper())
    return Compiled(data, kind, arch, log, resources(log))


def check_arch(arch: str, nvrtc: Nvrtc) -> None:
    """Nothing, if this NVRTC compiles for `arch`.

    Raises
    ------
    UnsupportedArch
        with the ones that exist.
    """
    match = _ARCH.fullmatch(arch)
    if match is None:
        raise UnsupportedArch(f"{arch!r} is no GPU architecture; write it like 'sm_80' or 'sm_90a'")
    if int(match.group(1)) not in nvrtc.archs:
        known = ", ".join(f"sm_{a}" for a in nvrtc.archs)
        raise UnsupportedArch(
            f"NVRTC {nvrtc.version[0]}.{nvrtc.version[1]} does not compile for {arch}; it knows {known}"
        )


def resources(log: str) -> dict[str, Resources]:
    """Kernel -> what it uses, from the log of a CUBIN."""
    found: dict[str, dict[str, int]] = {}
    current: dict[str, int] = {}
    for line in log.splitlines():
        if entry := re.search(r"Compiling entry function '([^']+)'", line):
            current = found.setdefault(entry.group(1), {})
        if frame := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            current.update(zip(("stack", "spill_stores", "spill_loads"), map(int, frame.groups()), strict=True))
        if used := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            current.update(registers=int(used.group(1)), shared=int(shared.group(1)) if shared else 0)
    return {name: Resources(**fields) for name, fields in found.items()}


def find_nvrtc() -> Nvrtc:
    """NVRTC of this Python environment, else of `$CUDA_PATH`, else what the system's loader finds.

    Raises
    ------
    NoNvrtc
        with what was tried and how to get it.
    """
    return _find(os.environ.get("CUDA_PATH", ""), tuple(sys.path))


@lru_cache(maxsize=8)
def _find(cuda_path: str, path: tuple[str, ...]) -> Nvrtc:
    tried = []
    for candidate in _candidates(cuda_path, path):
        try:
            return Nvrtc(candidate)
        except OSError as error:
            tried.append(f"{candidate} ({error})" if os.path.dirname(candidate) else candidate)
    raise NoNvrtc(f"NVIDIA's run-time compiler is not here (tried {', '.join(tried)}); {REMEDY}")


def _candidates(cuda_path: str, path: tuple[str, ...]) -> Iterator[str]:
    folders = [Path(p) / "nvidia" / f"cu{version}" / "lib" for version in (13, 12) for p in path if p]
    folders += [Path(p) / "nvidia" / "cuda_nvrtc" / "lib" for p in path if p]
    if cuda_path:
        folders += [Path(cuda_path) / "lib64", Path(cuda_path) / "lib"]
    for folder in folders:
        for name in sorted(glob.glob(str(folder / "libnvrtc.so*")), reverse=True):
            if ".alt." not in name:
                yield name
    yield from ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


def _include_folders(path: str) -> tuple[str, ...]:
    """Folders of CUDA's headers that belong to the NVRTC at `path`; none are needed for text that includes nothing."""
    if not os.path.dirname(path):
        return ()
    library = Path(path).resolve()
    roots = [library.parent.parent, library.parent.parent.parent / "cuda_runtime"]
    found = [r / "include" for r in roots] + [r / "include" / "cccl" for r in roots]
    return tuple(str(f) for f in found if f.is_dir())
