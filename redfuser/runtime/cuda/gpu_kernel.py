"""A tile program on a GPU: launched through CuPy on the caller's own arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from redfuser.codegen.cuda import CudaTarget, Launch, cuda_program
from redfuser.codegen.nodes import Kernel
from redfuser.extract.gpu import Gpu
from redfuser.runtime.arrays import Port
from redfuser.runtime.cuda.cupy_launch import cupy_function
from redfuser.runtime.cuda.device_arrays import DeviceArrays, outline
from redfuser.runtime.cuda.launch import Function
from redfuser.runtime.cuda.launched import LaunchedKernel, Placed, element_strides
from redfuser.runtime.library import check_apart


class CudaKernel(LaunchedKernel):
    """A tile program on a GPU; called like a compiled C kernel, with CuPy arrays. It waits for nothing."""

    path = "in CuPy's kernel cache"

    def __init__(self, kernel: Kernel, gpu: Gpu, arrays: DeviceArrays) -> None:
        """Print a program and compile it for the device of the arrays.

        Parameters
        ----------
        gpu : what the text is printed for
        arrays : where outputs, workspace and copies come from

        Raises
        ------
        SharedMemoryShort
            when a launch needs more shared memory than the device gives a block.
        NoDevice, UnsupportedArch, CudaCompileError
            see `CupyModule.function`.
        """
        self.kind = arrays.cupy.ndarray
        super().__init__(kernel, cuda_program(kernel, CudaTarget(gpu)))
        self._arrays = arrays
        exact = gpu.arch if gpu.arch.endswith("a") else None
        self._functions = {}
        with arrays.on_device():
            for launch in self.program.launches:
                function = cupy_function(self.source, exact, launch.name, self._parameters[launch.name])
                function.allow(launch.shared)
                self._functions[launch.name] = function

    def memory(self, outs: Sequence[Any]) -> _OnDevice:
        """See `LaunchedKernel`."""
        outlines = [outline(a) for a in outs]
        check_apart([p.name for p in self._outputs], outlines)
        return _OnDevice(self._arrays, outlines)

    def function(self, launch: Launch) -> Function:
        """See `LaunchedKernel`."""
        return self._functions[launch.name]

    def most_blocks(self, launch: Launch) -> int:
        """As many as the device holds at a time."""
        device = self._arrays.device
        return device.gpu.units * max(1, device.threads // launch.block)


class _OnDevice:
    """Memory of one run: the caller's arrays where kernels can use them in place, else copies on the device."""

    def __init__(self, arrays: DeviceArrays, outs: Sequence[Any]) -> None:
        """`outs`: outlines of the outputs."""
        self._arrays = arrays
        self._outs = outs
        self._own: list[Any] = []  # alive until all launches are in the stream; then its order protects the memory
        self._aside: list[tuple[Any, Any]] = []

    def __enter__(self) -> _OnDevice:
        return self

    def __exit__(self, *_: object) -> None:
        self._own.clear()

    def input(self, port: Port, given: Any) -> Placed:
        """See `Memory`."""
        a, place = given, outline(given)
        if not _in_place(port, given) or any(np.may_share_memory(place, o) for o in self._outs):
            a = self._like(port, given)
            self._arrays.assign(a, given)
        port.check_unit(a)
        return Placed(int(a.data.ptr), element_strides(a))

    def output(self, port: Port, given: Any) -> Placed:
        """See `Memory`."""
        a = given
        if not _in_place(port, given) or not _unit_fits(port, given):
            a = self._like(port, given)
            self._aside.append((given, a))
        return Placed(int(a.data.ptr), element_strides(a))

    def room(self, size: int, name: str) -> int:
        """See `Memory`."""
        made = self._arrays.empty((max(1, size),), "uint8")
        self._own.append(made)
        return int(made.data.ptr)

    def finish(self) -> None:
        """See `Memory`."""
        for given, made in self._aside:
            self._arrays.assign(given, made)

    def _like(self, port: Port, given: Any) -> Any:
        """An array without contents of the same shape, contiguous along the dimension that the kernel takes as such."""
        rank = len(given.shape)
        unit = rank - 1 if port.unit is None else port.unit
        order = [*(d for d in range(rank) if d != unit), *([unit] if rank else [])]
        made = self._arrays.empty([given.shape[d] for d in order], port.dtype)
        self._own.append(made)
        return made.transpose([order.index(d) for d in range(rank)])


def _in_place(port: Port, a: Any) -> bool:
    """Whether kernels can use an array in place: aligned, strides of whole elements."""
    return int(a.data.ptr) % port.itemsize == 0 and all(s % port.itemsize == 0 for s in a.strides)


def _unit_fits(port: Port, a: Any) -> bool:
    """Whether the dimension that the kernel takes as contiguous is so."""
    return port.unit is None or a.size == 0 or a.shape[port.unit] <= 1 or a.strides[port.unit] == port.itemsize
