"""Arrays as a kernel on the host sees them: each alone in memory, with wide gaps around it, and known by its use."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from redfuser.errors import ArgumentError
from redfuser.runtime.cuda.errors import CudaFault
from redfuser.runtime.cuda.executor import CONSTANT, IN_OUT, OUTPUT, SCRATCH, Executor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class In:
    """An array that the kernel must not write."""

    array: Array


@dataclass(frozen=True)
class Out:
    """An array that the kernel must write, all of it, before it reads it."""

    array: Array


@dataclass(frozen=True)
class Scratch:
    """An array without contents before the launch: the kernel must write what it reads."""

    array: Array


_MODES = {In: CONSTANT, Out: OUTPUT, Scratch: SCRATCH}


class Placed:
    """An array in guarded memory, for one launch: a copy, but for arrays of a `HostMemory`, which are there already.

    A context manager: leaving it frees a copy.

    address   where the kernel finds it
    """

    def __init__(self, executor: Executor, given: In | Out | Scratch | Array, name: str) -> None:
        """Copy an array in.

        Raises
        ------
        ArgumentError
            for an array that is not contiguous, or that cannot be written although the kernel may.
        """
        wrapped = isinstance(given, (In, Out, Scratch))
        self._array: Array = given.array if isinstance(given, (In, Out, Scratch)) else given
        self._mode = _MODES[type(given)] if wrapped else IN_OUT
        self._executor, self._name = executor, name
        _check(self._array, self._mode, name)
        resident = int(self._array.ctypes.data)
        self._resident = _inside(executor, resident)
        if self._resident:
            self.address = resident
            if wrapped:
                executor.set_mode(self._resident, self._mode)
            return
        self.address = executor.region(self._array.nbytes, self._mode, name, _shift(self._array))
        if self._mode in (CONSTANT, IN_OUT):
            ctypes.memmove(self.address, self._array.ctypes.data, self._array.nbytes)
        else:
            ctypes.memset(self.address, 0xFF, self._array.nbytes)

    def __enter__(self) -> Placed:
        return self

    def __exit__(self, *_: object) -> None:
        if self._resident:
            self._executor.set_mode(self._resident, SCRATCH)
        else:
            self._executor.free(self.address)

    def copy_back(self, kernel: str, checks: bool) -> None:
        """Give the results back.

        Parameters
        ----------
        kernel : whose results they are
        checks : whether an output must have been written

        Raises
        ------
        CudaFault
            when bytes of an output were not written.
        """
        if self._mode == CONSTANT:
            return
        if self._mode == OUTPUT and checks:
            count, first = self._executor.unwritten(self._resident or self.address)
            if count:
                place = np.unravel_index(first // self._array.itemsize, self._array.shape)
                raise CudaFault(
                    "unwritten", kernel, 0,
                    f"{count} of {self._array.nbytes} bytes of output {self._name} were not written, the first in "
                    f"element {tuple(map(int, place))}",
                )
        if not self._resident:
            ctypes.memmove(self._array.ctypes.data, self.address, self._array.nbytes)


def _inside(executor: Executor, address: int) -> int:
    """The address of the resident array that has this one in it; 0 for other memory."""
    return next((a for a, size in executor.resident.items() if a <= address < a + size), 0)


def _check(array: Array, mode: int, name: str) -> None:
    if not array.flags.c_contiguous:
        raise ArgumentError(f"{name} is not contiguous; pass np.ascontiguousarray of it")
    if mode != CONSTANT and not array.flags.writeable:
        raise ArgumentError(f"{name} is read-only; wrap it in In if the kernel only reads it")


def _shift(array: Array) -> int:
    """Where a device array with the same history would lie, from a multiple of 256: views keep their offset."""
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    return int(array.ctypes.data - root.ctypes.data) % 256


class HostMemory:
    """Memory of kernels that outlives a launch, so that one launch's unwritten bytes are still known in the next.

    A context manager; its arrays must not be used after it.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._arrays: dict[int, Array] = {}

    def empty(self, shape: int | tuple[int, ...], dtype: Any, name: str = "memory") -> Array:
        """An array without contents: kernels must write what they read of it.

        Raises
        ------
        MemoryError
            when the system has no room.
        """
        return self._new((shape,) if isinstance(shape, int) else shape, np.dtype(dtype), SCRATCH, name)

    def put(self, array: Array, name: str = "memory") -> Array:
        """A copy of an array: kernels may read and write it.

        Raises
        ------
        MemoryError
            when the system has no room.
        """
        copy = self._new(array.shape, array.dtype, IN_OUT, name)
        copy[...] = array
        return copy

    def _new(self, shape: tuple[int, ...], dtype: np.dtype[Any], mode: int, name: str) -> Array:
        size = math.prod(shape) * dtype.itemsize
        address = self._executor.region(size, mode, name)
        ctypes.memset(address, 0xFF, size)
        raw: Array = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
        self._arrays[address] = raw.view(dtype).reshape(shape)
        self._executor.resident[address] = size
        return self._arrays[address]

    def __enter__(self) -> HostMemory:
        return self

    def __exit__(self, *_: object) -> None:
        for address in self._arrays:
            del self._executor.resident[address]
            self._executor.free(address)
        self._arrays.clear()
