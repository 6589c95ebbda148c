"""The thread pool that all kernels of this process share, compiled once per machine."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from importlib.resources import files

from redfuser.runtime.build import build_library, load_library
from redfuser.runtime.compiler import Compiler


@lru_cache(maxsize=4)
def pool_runtime(compiler: Compiler) -> int:
    """Address of the `struct runtime` that kernels receive: run, acquire, release."""
    source = files("redfuser.runtime").joinpath("pool.c").read_text(encoding="utf-8")
    path = build_library(source, compiler, native=False)
    library = load_library(path)  # never unloaded: its threads run in it
    return ctypes.addressof(ctypes.c_void_p.in_dll(library, "pool_runtime"))
