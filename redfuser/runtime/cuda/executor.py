"""The executor as Python sees it: its library, the arena of global memory, launches and their findings."""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from redfuser.runtime.build import load_library
from redfuser.runtime.cuda.cxx import CxxCompiler, build_cxx, package_text, with_includes
from redfuser.runtime.cuda.errors import CudaFault, LaunchError

LOCK = threading.RLock()
"""One launch at a time: the executor's state is that of the process."""
SHARED_LIMIT = 232448
"""Bytes of shared memory that a block may have on the largest device (227 KB)."""
JUMPS = 1 << 26
"""Backward jumps of one thread after which it counts as caught in a loop."""

Lines = Callable[[int], Sequence[int]]

CONSTANT, IN_OUT, OUTPUT, SCRATCH = range(4)
"""How a region may be used."""


class Dim(ctypes.Structure):
    _fields_ = (("x", ctypes.c_uint32), ("y", ctypes.c_uint32), ("z", ctypes.c_uint32))

    def tuple(self) -> tuple[int, int, int]:
        return self.x, self.y, self.z


class Launch(ctypes.Structure):
    """`struct Launch` of state.h."""

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("arguments", ctypes.c_void_p),
        ("argument_bytes", ctypes.c_uint64),
        ("statics", ctypes.c_void_p),
        ("static_bytes", ctypes.c_uint64),
        ("section", ctypes.c_void_p),
        ("section_bytes", ctypes.c_uint64),
        ("grid", Dim),
        ("block", Dim),
        ("shared_bytes", ctypes.c_uint32),
        ("seed", ctypes.c_uint64),
        ("jumps", ctypes.c_int64),
        ("checks", ctypes.c_int32),
    )


class Report(ctypes.Structure):
    """`struct Report` of state.h."""

    _fields_ = (
        ("found", ctypes.c_int),
        ("kind", ctypes.c_char * 32),
        ("text", ctypes.c_char * 1536),
        ("site", ctypes.c_uint32),
        ("block", Dim),
        ("thread", Dim),
        ("matrix_loads", ctypes.c_uint64),
        ("matrix_conflicts", ctypes.c_uint64),
    )


class Executor:
    """The loaded executor.

    table   address of its `struct Executor`, which kernels are bound to
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.rf_executor.restype = ctypes.c_void_p
        library.rf_region.restype = ctypes.c_uint64
        library.rf_region.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p]
        library.rf_free.argtypes = [ctypes.c_uint64]
        library.rf_free.restype = None
        library.rf_mode.argtypes = [ctypes.c_uint64, ctypes.c_int]
        library.rf_mode.restype = None
        library.rf_wrote.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
        library.rf_wrote.restype = None
        library.rf_unwritten.argtypes = [ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64)]
        library.rf_unwritten.restype = ctypes.c_uint64
        library.rf_launch.argtypes = [ctypes.POINTER(Launch), ctypes.POINTER(Report)]
        self.table: int = library.rf_executor()
        self.resident: dict[int, int] = {}
        """Address -> bytes of arrays that outlive a launch."""

    def region(self, size: int, mode: int, name: str, shift: int = 0) -> int:
        """Address of `size` new bytes, `shift` bytes behind a multiple of 256.

        Raises
        ------
        MemoryError
            when the system has no room.
        """
        with LOCK:
            address: int = self._library.rf_region(size, shift, mode, name.encode())
        if not address:
            raise MemoryError(f"no room for {size} bytes of {name} in the memory that kernels see")
        return address

    def free(self, address: int) -> None:
        """Give a region back."""
        with LOCK:
            self._library.rf_free(address)

    def set_mode(self, address: int, mode: int) -> None:
        """Change how a region may be used."""
        with LOCK:
            self._library.rf_mode(address, mode)

    def wrote(self, address: int, size: int) -> None:
        """Something else than a kernel wrote these bytes of a region."""
        with LOCK:
            self._library.rf_wrote(address, size)

    def unwritten(self, address: int) -> tuple[int, int]:
        """(bytes that nothing has written, the first of them) of an OUTPUT or SCRATCH region."""
        first = ctypes.c_uint64()
        with LOCK:
            return self._library.rf_unwritten(address, ctypes.byref(first)), first.value

    def launch(self, launch: Launch, kernel: str, lines: Lines, source: str) -> Report:
        """Run a kernel.

        Parameters
        ----------
        launch : what to run
        kernel : its name
        lines : site -> the line of the text, then those that it was inlined through; empty where it is unknown
        source : the text

        Raises
        ------
        CudaFault
            for the first finding.
        MemoryError
            when the system has no room for stacks.
        """
        report = Report()
        with LOCK:
            status = self._library.rf_launch(ctypes.byref(launch), ctypes.byref(report))
        if status == 2:
            raise MemoryError("no room for the stacks of a block's threads")
        if status:
            raise _fault(report, kernel, lines, source)
        return report


def _fault(report: Report, kernel: str, lines: Lines, source: str) -> CudaFault:
    text = re.sub(r"\{site (\d+)\}", lambda m: _described(lines(int(m.group(1)))), report.text.decode(errors="replace"))
    here = lines(report.site)
    if len(here) > 1:
        text += f" (called from {', '.join(f'line {n}' for n in here[1:])})"
    line = here[0] if here else 0
    rows = source.splitlines()
    shown = rows[line - 1] if 0 < line <= len(rows) else ""
    return CudaFault(report.kind.decode(), kernel, line, text, report.block.tuple(), report.thread.tuple(), shown)


def _described(lines: Sequence[int]) -> str:
    """An instruction by the lines it stands for."""
    if not lines:
        return "an unknown line"
    return f"line {lines[0]}" + "".join(f" (called from line {n})" for n in lines[1:])


def dim3(value: int | Sequence[int], what: str) -> Dim:
    """A grid or a block: an int, or up to three of them.

    Raises
    ------
    LaunchError
        for another number of them, and for numbers below 1.
    """
    sizes = (value,) if isinstance(value, int) else tuple(value)
    if not 1 <= len(sizes) <= 3 or any(int(n) < 1 for n in sizes):
        raise LaunchError(f"the {what} is {value!r}; give one to three positive integers")
    return Dim(*[int(n) for n in (*sizes, 1, 1)[:3]])


@lru_cache(maxsize=4)
def executor(compiler: CxxCompiler) -> Executor:
    """The executor, compiled once per machine.

    Raises
    ------
    CompileError, CacheError
        when it cannot be built.
    """
    path = build_cxx(with_includes(package_text("executor.cpp")), compiler, ("-O2",))
    return Executor(load_library(path))


def pointer(library: ctypes.CDLL, name: str) -> int:
    """Address of a function of a library."""
    function: Any = getattr(library, name)
    return ctypes.cast(function, ctypes.c_void_p).value or 0
