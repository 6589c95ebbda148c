"""The runtime: find a compiler, compile kernels into a disk cache, call them on threads."""

from redfuser.runtime.cache import CacheWarning, cache_directory
from redfuser.runtime.compiler import Compiler, find_compiler
from redfuser.runtime.library import CompiledKernel, compile_kernel, kernel_source
from redfuser.runtime.machine import detect_profile, thread_count

__all__ = [
    "CacheWarning",
    "CompiledKernel",
    "Compiler",
    "cache_directory",
    "compile_kernel",
    "detect_profile",
    "find_compiler",
    "kernel_source",
    "thread_count",
]
