"""What this machine is: vector width, registers, caches, threads."""

from __future__ import annotations

import contextlib
import os
import platform
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from redfuser import settings
from redfuser.errors import NoCompiler
from redfuser.runtime.compiler import Compiler, find_compiler

if TYPE_CHECKING:
    from redfuser.extract import Profile


def thread_count() -> int:
    """Threads that kernels use: `$REDFUSER_NUM_THREADS`, else the CPUs this process may run on.

    Raises
    ------
    SettingError
        when the variable is not a positive integer.
    """
    chosen = settings.count(settings.THREADS)
    return cpu_count() if chosen is None else chosen


def cpu_count() -> int:
    """The CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def vector_unit(compiler: Compiler | None) -> tuple[int, int]:
    """(bytes of a vector, vector registers) that the compiler may use here; without one, that the CPU has."""
    if compiler is not None:
        macros = compiler.macros(compiler.native_flags())
        wide, middle = "__AVX512F__" in macros, "__AVX2__" in macros
    else:
        flags = cpu_model().replace("'", " ").split()
        wide, middle = "avx512f" in flags, "avx2" in flags
    if wide:
        return 64, 32
    if middle:
        return 32, 16
    return 16, 32 if platform.machine() in ("aarch64", "arm64") else 16


@lru_cache(maxsize=1)
def cpu_model() -> str:
    """Text that changes when code compiled for this CPU may not run elsewhere: its model and instruction sets."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("model name", "flags", "Features", "CPU part", "CPU implementer")
    seen: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() in wanted:
            seen.setdefault(key.strip(), value.strip())
    return f"{platform.machine()} {sorted(seen.items())}"


@lru_cache(maxsize=1)
def cache_sizes() -> dict[str, int]:
    """Bytes of the data caches that CPU 0 sees: keys l1, l2, llc; empty where the system does not tell."""
    sizes: dict[int, int] = {}
    for folder in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            kind = (folder / "type").read_text(encoding="ascii").strip()
            level = int((folder / "level").read_text(encoding="ascii"))
            size = _bytes((folder / "size").read_text(encoding="ascii").strip())
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and size:
            sizes[level] = size
    names = {1: "l1", 2: "l2"}
    found = {names[level]: size for level, size in sizes.items() if level in names}
    if sizes:
        found["llc"] = sizes[max(sizes)]
    return found


def _bytes(text: str) -> int:
    """48K, 2M, 1G as bytes."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text)


def profile_overrides(compiler: Compiler | None) -> dict[str, Any]:
    """Fields of a device profile that this machine tells: vector_bytes, registers, threads; l1, l2, llc if known."""
    vector_bytes, registers = vector_unit(compiler)
    return {"vector_bytes": vector_bytes, "registers": registers, "threads": thread_count(), **cache_sizes()}


def detect_profile(compiler: Compiler | None = None) -> Profile:
    """The profile of this machine: the generic one of its vector width with everything detected put in.

    Plans can be made without a C compiler; then the CPU's own flags tell the vector width.
    """
    from redfuser.extract import Profile

    if compiler is None:
        with contextlib.suppress(NoCompiler):
            compiler = find_compiler()
    found = profile_overrides(compiler)
    return Profile.generic(found["vector_bytes"]).with_fields(**found)
