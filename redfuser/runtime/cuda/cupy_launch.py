"""Kernels on a GPU, through CuPy's RawModule: the other back end of `launch.Function`.

CuPy is imported when a module is made, not before. It can be built, not launched, on a machine without a driver.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from redfuser.runtime.cuda.errors import CudaCompileError, LaunchError, NoDevice, UnsupportedArch
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


class CupyFunction:
    """A kernel on a device: a `Function`."""

    def __init__(self, cupy: Any, function: Any, name: str, parameters: tuple[Parameter, ...], device: Any) -> None:
        self._cupy, self._function, self._device = cupy, function, device
        self._name, self._parameters = name, parameters
        self._offsets = offsets(parameters)
        self._shared_limit = int(device.attributes.get("MaxSharedMemoryPerBlockOptin", WITHOUT_ASKING))

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        packed_args: bytes,
        stream: int | None = None,
    ) -> None:
        """Start the kernel; see `Function.launch`.

        Raises
        ------
        LaunchError
            when another device is current, or the shared memory is more than the device has.
        """
        current = self._cupy.cuda.Device()
        if current.id != self._device.id:
            raise LaunchError(
                f"kernel {self._name} was compiled for device {self._device.id}, and device {current.id} is current"
            )
        self._allow(shared_bytes)
        with self._stream(stream):
            self._function(grid, block, self._values(packed_args), shared_mem=shared_bytes)

    def _allow(self, shared_bytes: int) -> None:
        static = int(self._function.shared_size_bytes)
        if shared_bytes + static > self._shared_limit:
            raise LaunchError(
                f"kernel {self._name} has {static} bytes of static shared memory and asks for {shared_bytes} more; the "
                f"device gives a block {self._shared_limit}"
            )
        if shared_bytes > WITHOUT_ASKING and self._function.max_dynamic_shared_size_bytes < shared_bytes:
            self._function.max_dynamic_shared_size_bytes = shared_bytes

    def _stream(self, handle: int | None) -> AbstractContextManager[Any]:
        if handle is None:
            handle = torch_stream()
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


def torch_stream() -> int | None:
    """The handle of torch's current stream, if torch is in use and has a device: CuPy's own would not wait for it."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return int(torch.cuda.current_stream().cuda_stream)
