"""Compiled kernels: a C function with its arrays, sizes and threads."""

from __future__ import annotations

import contextlib
import ctypes
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from redfuser.codegen.c import CTarget, entry_name, print_c
from redfuser.codegen.nodes import Buf, Kernel, MatMul
from redfuser.codegen.passes.bodies import nested
from redfuser.errors import NoCompiler, ShapeError
from redfuser.extract.choose import PRODUCT_WEIGHT, SERIAL_ELEMENTS
from redfuser.ir.dtypes import numpy_dtype
from redfuser.runtime.arrays import Array, Port, data_pointer, length
from redfuser.runtime.build import build_library, load_library
from redfuser.runtime.compiler import Compiler, find_compiler
from redfuser.runtime.machine import thread_count, vector_unit
from redfuser.runtime.pool import pool_runtime


def compile_kernel(
    kernel: Kernel,
    *,
    threads: int | None = None,
    compiler: Compiler | None = None,
    target: CTarget | None = None,
    flags: tuple[str, ...] = (),
) -> CompiledKernel:
    """Print, compile (or find in the cache) and load a tile program.

    Parameters
    ----------
    kernel : the program
    threads : threads of a call; by default all CPUs of the process, or `$REDFUSER_NUM_THREADS`
    compiler : by default `find_compiler()`
    target : by default the vector width of this machine
    flags : compiler flags after the standard ones; with `target` given, nothing selects this machine's instructions

    Raises
    ------
    NoCompiler, CompileError, CacheError
        see `find_compiler` and `build_library`.
    """
    compiler = compiler or find_compiler()
    native = target is None
    target = target or CTarget(vector_unit(compiler)[0])
    source = print_c(kernel, target)
    quick = () if _has_product(kernel) else compiler.quick_flags()
    path = build_library(source, compiler, (*quick, *flags), native=native)
    return CompiledKernel(kernel, source, path, threads or thread_count(), pool_runtime(compiler))


def kernel_source(kernel: Kernel, target: CTarget | None = None) -> str:
    """The C text of a tile program, by default for this machine's vector width; needs no compiler."""
    if target is None:
        compiler = None
        with contextlib.suppress(NoCompiler):
            compiler = find_compiler()
        target = CTarget(vector_unit(compiler)[0])
    return print_c(kernel, target)


class CompiledKernel:
    """A loaded kernel.

    source   the C text
    path     the shared library
    threads  threads of a call on large arrays
    """

    def __init__(self, kernel: Kernel, source: str, path: Path, threads: int, runtime: int) -> None:
        self.kernel = kernel
        self.source = source
        self.path = path
        self.threads = threads
        self._library = load_library(path)
        self._entry = self._library[entry_name(kernel)]
        self._entry.restype = ctypes.c_int
        self._entry.argtypes = [
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_void_p,
        ]
        self._runtime = runtime
        self._inputs = [Port(b) for b in kernel.tensors]
        self._outputs = [Port(b) for b in kernel.outs]
        ports = [*self._inputs, *self._outputs]
        self._pack = struct.Struct(f"{len(ports)}P").pack
        self._stride_type = ctypes.c_int64 * max(1, sum(p.rank for p in ports))
        self._size_type = ctypes.c_int64 * max(1, len(kernel.sizes))
        self._weight = PRODUCT_WEIGHT if _has_product(kernel) else 1

    def run(
        self,
        arrays: Sequence[Array],
        outs: Sequence[Array],
        sizes: Mapping[str, int],
        *,
        threads: int | None = None,
    ) -> None:
        """Compute `outs` from `arrays`.

        Inputs that C cannot read in place (foreign byte order, unaligned, strides of broken elements) and inputs that
        share memory with an output are copied first; such outputs are computed aside and copied back. The call releases
        the interpreter lock.

        Parameters
        ----------
        arrays : the inputs, in the order and with the dtypes of `kernel.tensors`
        outs : the outputs, in the order of `kernel.outs`, writeable
        sizes : axis -> length for all axes of `kernel.sizes` and `kernel.static`

        Raises
        ------
        DTypeError, ShapeError
            naming the argument that does not fit.
        MemoryError
            when the workspace cannot be allocated; the outputs are untouched.
        """
        self._check_sizes(sizes)
        if len(arrays) != len(self._inputs) or len(outs) != len(self._outputs):
            raise ShapeError(
                f"kernel {self.kernel.name} takes {len(self._inputs)} arrays and {len(self._outputs)} outputs, "
                f"got {len(arrays)} and {len(outs)}"
            )
        targets = [self._output(p, a, sizes) for p, a in zip(self._outputs, outs, strict=True)]
        check_apart([p.name for p in self._outputs], targets)
        inputs = [self._input(p, a, sizes, targets) for p, a in zip(self._inputs, arrays, strict=True)]
        self._call([*inputs, *targets], sizes, threads)
        for given, computed in zip(outs, targets, strict=True):
            if given is not computed:
                given[...] = computed

    def workspace(self, sizes: Mapping[str, int], threads: int | None = None) -> int:
        """Bytes that a call with these lengths asks for beside its arrays: scratch of each thread, and what all
        share."""
        return workspace_bytes(self.kernel, sizes, self.threads if threads is None else threads)

    def _check_sizes(self, sizes: Mapping[str, int]) -> None:
        for axis, expected in self.kernel.static:
            if sizes.get(axis, expected) != expected:
                raise ShapeError(
                    f"axis {axis} has length {sizes[axis]}, but kernel {self.kernel.name} was compiled "
                    f"for {expected}; compile it again for this length"
                )

    def _input(self, port: Port, given: Any, sizes: Mapping[str, int], targets: Sequence[Array]) -> Array:
        array = port.check(given, sizes)
        if not port.direct(array) or any(np.may_share_memory(array, t) for t in targets):
            array = port.copied(array)
        port.check_unit(array)
        return array

    def _output(self, port: Port, given: Any, sizes: Mapping[str, int]) -> Array:
        array = port.check(given, sizes)
        if not array.flags.writeable:
            raise ShapeError(f"output {port.name!r} is read-only; pass a writable array, such as np.empty_like of it")
        if not port.direct(array):
            return port.copied(array)
        port.check_unit(array)
        return array

    def _call(self, arrays: Sequence[Array], sizes: Mapping[str, int], threads: int | None) -> None:
        Call(self, arrays, sizes, threads)([data_pointer(a) for a in arrays])

    def repeatable(self, arrays: Sequence[Array], outs: Sequence[Array], sizes: Mapping[str, int]) -> Call | None:
        """The call of `run` on these arrays, for others of the same dtypes, shapes, strides and alignment.

        None when `run` has to copy one of them. The caller answers for outputs that share memory with nothing else.
        """
        io = [*arrays, *outs]
        ports = [*self._inputs, *self._outputs]
        if not all(p.direct(a) for p, a in zip(ports, io, strict=True)):
            return None
        return Call(self, io, sizes, None)


def check_apart(names: Sequence[str], outs: Sequence[Array]) -> None:
    """Two outputs in one memory have no meaning, nor has one whose elements share memory.

    Raises
    ------
    ShapeError
        naming the outputs.
    """
    for i, a in enumerate(outs):
        if a.size and any(s == 0 and n > 1 for s, n in zip(a.strides, a.shape, strict=True)):
            raise ShapeError(f"output {names[i]!r} repeats its elements (a broadcast view); pass an array of its own")
        for j in range(i):
            if np.may_share_memory(a, outs[j]) and np.shares_memory(a, outs[j]):
                raise ShapeError(f"outputs {names[j]!r} and {names[i]!r} share memory; pass separate arrays")


class Call:
    """A kernel with its sizes, strides and number of threads fixed; only the addresses of the arrays are open."""

    __slots__ = ("_entry", "_kernel", "_pack", "_runtime", "_sizes", "_strides", "_threads", "lengths")

    def __init__(
        self, kernel: CompiledKernel, arrays: Sequence[Array], sizes: Mapping[str, int], threads: int | None
    ) -> None:
        work = sum([a.size for a in arrays])
        if threads is None:
            threads = kernel.threads if work * kernel._weight >= SERIAL_ELEMENTS else 1
        self._kernel = kernel
        self._entry, self._runtime, self._pack = kernel._entry, kernel._runtime, kernel._pack
        self._sizes = kernel._size_type(*[sizes[a] for a in kernel.kernel.sizes])
        self._strides = kernel._stride_type(*[s // a.itemsize for a in arrays for s in a.strides])
        self._threads = threads
        self.lengths = dict(sizes)

    def __call__(self, addresses: Sequence[int]) -> None:
        """Run on the arrays at these addresses: inputs, then outputs.

        Raises
        ------
        MemoryError
            when the workspace cannot be allocated; the outputs are untouched.
        """
        if self._entry(self._pack(*addresses), self._sizes, self._strides, self._threads, self._runtime):
            raise MemoryError(
                f"kernel {self._kernel.kernel.name} could not allocate its workspace for sizes {self.lengths}; "
                "free memory or use fewer threads"
            )


def workspace_bytes(kernel: Kernel, sizes: Mapping[str, int], threads: int) -> int:
    """Bytes of workspace of a kernel, but for some cache lines of padding."""

    def size(buffers: Sequence[Buf]) -> int:
        return sum(math.prod(length(e, sizes) for e in b.shape) * numpy_dtype(b.dtype).itemsize for b in buffers)

    return threads * max((size(p.local) for p in kernel.phases), default=0) + size(kernel.shared)


def _has_product(kernel: Kernel) -> bool:
    return any(isinstance(s, MatMul) for p in kernel.phases for s in nested(p.loop.body))
