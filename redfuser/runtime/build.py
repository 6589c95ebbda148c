"""C text to a shared library, through the cache."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path

from redfuser.errors import CacheError
from redfuser.runtime.cache import REMEDY, digest, fetch
from redfuser.runtime.compiler import FLAGS, Compiler
from redfuser.runtime.machine import cpu_model


def build_library(
    source: str, compiler: Compiler, flags: tuple[str, ...] = (), *, native: bool = True
) -> Path:
    """The compiled library of a C text.

    Parameters
    ----------
    source : the whole C file
    compiler : who compiles it
    flags : added to the standard ones; with `native` they come after the flag for this machine's instructions

    Raises
    ------
    CompileError
        when the compiler rejects the text.
    CacheError
        when no directory can be written.
    """
    all_flags = (*(compiler.native_flags() if native else ()), *flags)
    machine = cpu_model() if native else platform.machine()  # a home directory may serve several machines
    key = digest(
        source, " ".join((*FLAGS, *all_flags)), " ".join(compiler.command), compiler.version, machine
    )
    return fetch(key, source, lambda text, binary: compiler.compile(text, binary, all_flags))


def load_library(path: Path) -> ctypes.CDLL:
    """The library at `path`, loaded.

    Raises
    ------
    CacheError
        when the system refuses it: a file system mounted without execution, or a library made on another system.
    """
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CacheError(
            f"the compiled kernel {path} cannot be loaded ({error}); delete that file, or {REMEDY} on a file system "
            "that allows execution"
        ) from error
