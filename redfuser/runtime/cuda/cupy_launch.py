"""Kernels on a GPU, through CuPy's RawModule: the other back end of `launch.Function`.

CuPy is imported when a module is made, not before. It can be built, not launched, on a machine without a driver.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import RLock
from typing import Any

import numpy as np

from redfuser.runtime.cuda.errors import CudaCompileError, LaunchError, NoDevice, SharedMemoryShort, UnsupportedArch
from redfuser.runtime.cuda.launch import Parameter, offsets

OPTIONS = ("-std=c++17",)
"""What a text is compiled with beyond CuPy's own options: -ftz=true, the architecture, and
--device-as-default-execution-space."""
WITHOUT_ASKING = 48 << 10
"""Bytes of dynamic shared memory that a kernel may have without asking for more."""
REMEDY = "pip install 'redfuser[cuda13]' (or cuda12, by the driver's version) on a machine with an NVIDIA GPU"
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def load_cupy() -> Any:
    """CuPy.

    Raises
    ------
    NoDevice
        when it is not installed, or cannot be imported.
    """
    try:
        return importlib.import_module("cupy")
    except ImportError as error:
        raise NoDevice(f"CuPy cannot be imported ({error}); {REMEDY}") from error


class CupyModule:
    """A CUDA text for a GPU. It is compiled at the first launch, for the device that is current then.

    source   the text
    arch     "sm_90a" where the text needs the instructions of one architecture; else None: that of the device
    """

    def __init__(self, source: str, arch: str | None = None, *, options: Sequence[str] = ()) -> None:
        """Prepare a text; nothing is compiled yet.

        Raises
        ------
        NoDevice
            when there is no CuPy.
        """
        self.source, self.arch = source, arch
        self._cupy = load_cupy()
        chosen = (f"-arch={arch}",) if arch else ()  # CuPy itself never asks for the "a" of sm_90a
        self.options = (*OPTIONS, *chosen, *options)
        self._raw = self._cupy.RawModule(code=source, options=self.options)

    def function(self, name: str, parameters: Sequence[Parameter]) -> CupyFunction:
        """The kernel of this name, compiled for the current device.

        Raises
        ------
        NoDevice
            when no GPU or no driver is found.
        UnsupportedArch
            when the device is of another architecture than the text.
        CudaCompileError
            when NVRTC rejects the text.
        """
        device = self._device()
        try:
            function = self._raw.get_function(name)
        except self._cupy.cuda.compiler.CompileException as error:
            raise CudaCompileError(f"NVRTC rejected the CUDA text: {error}") from error
        except self._cupy.cuda.driver.CUDADriverError as error:
            raise CudaCompileError(f"the driver cannot load kernel {name}: {error}") from error
        return CupyFunction(self._cupy, function, name, tuple(parameters), device)

    def _device(self) -> Any:
        try:
            device = self._cupy.cuda.Device()
            capability = str(device.compute_capability)
        except self._cupy.cuda.runtime.CUDARuntimeError as error:
            raise NoDevice(f"no GPU can be used ({error}); {REMEDY}") from error
        if self.arch is not None:
            number = self.arch.rpartition("_")[2]
            exact = number[-1:] in ("a", "f")
            wanted = int(number.rstrip("af"))
            if (exact and wanted != int(capability)) or wanted > int(capability):
                raise UnsupportedArch(f"the text is for {self.arch}, the device is sm_{capability}; build it for that")
        return device


_modules: dict[tuple[Any, str, str | None, int], tuple[CupyModule, dict[str, CupyFunction]]] = {}
_lock = RLock()


def cupy_function(source: str, arch: str | None, name: str, parameters: Sequence[Parameter]) -> CupyFunction:
    """A kernel of a text for the current device: compiled once per process. Between processes CuPy keeps the machine
    code on disk. Raises what `CupyModule` raises.
    """
    cupy = load_cupy()
    with _lock:
        key = (cupy, source, arch, int(cupy.cuda.Device().id))
        if key not in _modules:
            _modules[key] = CupyModule(source, arch), {}
        module, functions = _modules[key]
        if name not in functions:
            functions[name] = module.function(name, parameters)
        return functions[name]


class CupyFunction:
    """A kernel on a device: a `Function`."""

    def __init__(self, cupy: Any, function: Any, name: str, parameters: tuple[Parameter, ...], device: Any) -> None:
        self._cupy, self._function, self._device = cupy, function, device
        self._name, self._parameters = name, parameters
        self._offsets = offsets(parameters)
        runtime = cupy.cuda.runtime
        limit = runtime.deviceGetAttribute(runtime.cudaDevAttrMaxSharedMemoryPerBlockOptin, device.id)
        self._shared_limit = max(int(limit), WITHOUT_ASKING)
        self._static = int(function.shared_size_bytes)
        self._allowed = WITHOUT_ASKING - self._static

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        packed_args: bytes,
        stream: int | None = None,
    ) -> None:
        """Start the kernel; see `Function.launch`. The current stream is CuPy's.

        Raises
        ------
        LaunchError
            when another device is current, or (`SharedMemoryShort`) the shared memory is more than the device has.
        """
        current = self._cupy.cuda.Device()
        if current.id != self._device.id:
            raise LaunchError(
                f"kernel {self._name} was compiled for device {self._device.id}, and device {current.id} is current"
            )
        self.allow(shared_bytes)
        with self._stream(stream):
            self._function(grid, block, self._values(packed_args), shared_mem=shared_bytes)

    def allow(self, shared_bytes: int) -> None:
        """Let the kernel have this much dynamic shared memory.

        Raises
        ------
        SharedMemoryShort
            when the device does not give a block that much.
        """
        missing = shared_bytes + self._static - self._shared_limit
        if missing > 0:
            raise SharedMemoryShort(
                f"kernel {self._name} has {self._static} bytes of static shared memory and asks for {shared_bytes} "
                f"more; the device gives a block {self._shared_limit}", missing)
        if shared_bytes > self._allowed:
            self._function.max_dynamic_shared_size_bytes = self._allowed = shared_bytes

    def _stream(self, handle: int | None) -> AbstractContextManager[Any]:
        if handle is None:
            return nullcontext()
        stream: AbstractContextManager[Any] = self._cupy.cuda.ExternalStream(handle)
        return stream

    def _values(self, packed: bytes) -> tuple[Any, ...]:
        """Each parameter as a value of its size: CuPy passes the bytes of NumPy scalars on unchanged."""
        end = max((o + p.size for o, p in zip(self._offsets, self._parameters, strict=True)), default=0)
        if len(packed) != end:
            raise LaunchError(f"kernel {self._name} takes {end} bytes of arguments, got {len(packed)}")
        return tuple(_value(packed[o : o + p.size]) for o, p in zip(self._offsets, self._parameters, strict=True))


def _value(raw: bytes) -> Any:
    if len(raw) in _WORDS:
        return np.frombuffer(raw, _WORDS[len(raw)])[0]
    return np.frombuffer(raw, np.dtype([("bytes", np.uint8, (len(raw),))]))
