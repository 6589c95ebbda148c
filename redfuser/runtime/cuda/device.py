"""The GPU that arrays lie on: its numbers as schedules need them, asked of the driver through CuPy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from redfuser.extract.gpu import LEAST_CAPABILITY, Gpu
from redfuser.runtime.cuda.cupy_launch import REMEDY, load_cupy
from redfuser.runtime.cuda.errors import NoDevice, UnsupportedArch


@dataclass(frozen=True)
class CudaDevice:
    """One GPU of this machine.

    id       the driver's number
    name     the product's
    gpu      what plans are made for
    threads  that a multiprocessor holds
    """

    id: int
    name: str
    gpu: Gpu
    threads: int


def cuda_device(number: int | None = None) -> CudaDevice:
    """A GPU by number; None is the current one.

    Raises
    ------
    NoDevice
        without CuPy, a driver, or a GPU of this number.
    UnsupportedArch
        for a GPU older than kernels are made for.
    """
    cupy = load_cupy()
    try:
        return _found(cupy, int(cupy.cuda.Device().id) if number is None else number)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise NoDevice(f"no GPU can be used ({error}); {REMEDY}") from error


@lru_cache(maxsize=64)
def _found(cupy: Any, number: int) -> CudaDevice:
    runtime = cupy.cuda.runtime

    def ask(name: str) -> int:
        return int(runtime.deviceGetAttribute(getattr(runtime, f"cudaDevAttr{name}"), number))

    capability = int(cupy.cuda.Device(number).compute_capability)
    name = runtime.getDeviceProperties(number)["name"]
    title = name.decode() if isinstance(name, bytes) else str(name)
    if capability < LEAST_CAPABILITY:
        raise UnsupportedArch(f"device {number}, {title}, is sm_{capability}; kernels need sm_{LEAST_CAPABILITY} or "
                              "newer: copy the arrays to the CPU, cupy.asnumpy(x), and call the function with these")
    gpu = Gpu.found(capability, ask("MultiProcessorCount"), ask("MaxSharedMemoryPerBlockOptin"), ask("L2CacheSize"))
    return CudaDevice(number, title, gpu, ask("MaxThreadsPerMultiProcessor"))
