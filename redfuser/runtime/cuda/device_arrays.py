"""Arrays on a GPU, in the memory of the library that the caller uses: CuPy's pool, or PyTorch's allocator.

All of them are CuPy arrays here; those of PyTorch lie on the memory of a tensor. Nothing waits for the device, but that
a constant is copied there for the first time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from threading import local
from typing import Any

import numpy as np

from redfuser.ir.dtypes import EXTENSIONS, numpy_dtype
from redfuser.runtime.cuda.cupy_launch import load_cupy
from redfuser.runtime.cuda.device import CudaDevice

Host = np.ndarray[Any, Any]
_LEGACY_STREAMS = (0, 1)
"""Handles of streams that no graph can be captured from."""


class DeviceArrays:
    """Arrays of CuPy on one device, for one traced program."""

    def __init__(self, device: CudaDevice) -> None:
        self.cupy = load_cupy()
        self.kind: type[Any] = self.cupy.ndarray
        self.device = device
        self._constants: dict[str, tuple[Host, Any]] = {}
        self._retired: list[Any] = []
        self._call = local()
        self._captured: list[list[Any]] = []

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Inside, the device and the caller's stream are current. Arrays that are made while a graph is captured live
        as long as the program, because the graph goes on to use their memory."""
        with self.on_device(), self._stream():
            made: list[Any] = []
            self._call.made = made if self._capturing() else None
            try:
                yield
            finally:
                self._call.made = None
                if made:
                    self._captured.append(made)

    def on_device(self) -> AbstractContextManager[Any]:
        """Inside, the device is current: for what is made outside of a call."""
        device: AbstractContextManager[Any] = self.cupy.cuda.Device(self.device.id)
        return device

    def _stream(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def _capturing(self) -> bool:
        stream = self.cupy.cuda.get_current_stream()
        return stream.ptr not in _LEGACY_STREAMS and bool(stream.is_capturing())

    def empty(self, shape: Sequence[int], dtype: Any) -> Any:
        """An array without contents, in C order."""
        wanted = numpy_dtype(dtype)
        made = self._new(tuple(shape), wanted)
        kept = getattr(self._call, "made", None)
        if kept is not None:
            kept.append(made)
        return made

    def _new(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        return self.cupy.empty(shape, _storage(dtype)).view(dtype)

    def assign(self, target: Any, source: Any) -> None:
        """Copy an array, or a number, into another one of its dtype, on the device."""
        _bits(target)[...] = _bits(source)

    def number(self, value: Host, dtype: Any) -> Any:
        """A number as an array on the device. It travels as a kernel's argument: nothing waits."""
        wanted = numpy_dtype(dtype)
        # by its bits: CuPy fills with zeros where a number equals 0, and so does -0.0
        unsigned = np.dtype(f"u{wanted.itemsize}")
        with self.on_device():
            made = self.empty((), wanted)
            made.view(unsigned).fill(np.asarray(value).astype(wanted).view(unsigned)[()])
        return made

    def constant(self, name: str, value: Host, dtype: Any) -> Any:
        """An array of NumPy's that the function reads from outside. Its copy on the device is made in the first call,
        and again when its elements have changed. Earlier copies live as long as the program: a graph that was captured,
        or another stream, may still read them."""
        host: Host = np.array(value, numpy_dtype(dtype), order="C")
        known = self._constants.get(name)
        if known is None or known[0].shape != host.shape or known[0].tobytes() != host.tobytes():
            with self.on_device():
                copy = self.cupy.asarray(host.view(_storage(host.dtype))).view(host.dtype)
                self.cupy.cuda.get_current_stream().synchronize()  # other streams may read it in later calls
            if known is not None:
                self._retired.append(known[1])
            known = self._constants[name] = (host, copy)
        return known[1]

    def tensor(self, array: Any, dtype: Any) -> Any:
        """An argument: an array of CuPy as it is, a number as an array on the device."""
        return self.number(array, dtype) if isinstance(array, np.ndarray) else array

    def reshape(self, array: Any, shape: Sequence[int]) -> Any:
        """The array in another shape: a view where strides allow it, else a copy."""
        view = array.view()
        try:
            view.shape = tuple(shape)
        except AttributeError:
            view = self.empty(array.shape, array.dtype)
            self.assign(view, array)
            view.shape = tuple(shape)
        return view

    def own(self, array: Any, op: str, dtype: Any) -> Any:
        """A result that is no view of an argument. `op`: of its node."""
        if op not in ("input", "host"):
            return array
        made = self.empty(np.shape(array), dtype)
        self.assign(made, self.tensor(array, dtype))
        return made

    def on_host(self, array: Any) -> Host:
        """A copy of an array in NumPy; this waits for the device."""
        if isinstance(array, np.ndarray):
            return array
        found: Host = self.cupy.asnumpy(_bits(array))
        return found.view(array.dtype)

    def outline(self, array: Any) -> Host:
        """See `outline`."""
        return outline(array)

    def result(self, array: Any) -> Any:
        """A result for the caller."""
        return array


class _Outline:
    """Where an array lies, as NumPy takes it over."""

    def __init__(self, a: Any) -> None:
        self.__array_interface__ = {"data": (int(a.data.ptr), False), "shape": a.shape, "strides": a.strides,
                                    "typestr": f"|V{a.itemsize}", "version": 3}


def outline(a: Any) -> Host:
    """An array of NumPy's at the place of one on a device: to ask what shares memory, on which CuPy would compute. Its
    elements must never be touched."""
    return np.asarray(_Outline(a))


class TorchArrays(DeviceArrays):
    """Arrays on one device in the memory of tensors of PyTorch."""

    @property
    def _torch(self) -> Any:
        return sys.modules["torch"]

    def _stream(self) -> AbstractContextManager[Any]:
        handle = int(self._torch.cuda.current_stream(self.device.id).cuda_stream)
        stream: AbstractContextManager[Any] = self.cupy.cuda.ExternalStream(handle)
        return stream

    def _capturing(self) -> bool:
        return False  # PyTorch keeps the memory of its graphs itself

    def _new(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        torch = self._torch
        return lent(torch.empty(shape, dtype=getattr(torch, dtype.name), device=f"cuda:{self.device.id}"), dtype)

    def result(self, array: Any) -> Any:
        """The tensor on whose memory a result lies."""
        tensor = getattr(array.data.mem, "tensor", None)
        if tensor is None:  # made by CuPy: joined after the kernels
            return self._torch.as_tensor(array, device=f"cuda:{self.device.id}")
        if tuple(tensor.shape) == array.shape:
            return tensor
        strides = [s // array.itemsize for s in array.strides]
        behind = (array.data.ptr - tensor.data_ptr()) // array.itemsize
        return tensor.as_strided(array.shape, strides, tensor.storage_offset() + behind)


def lent(tensor: Any, dtype: np.dtype[Any]) -> Any:
    """The CuPy array on the memory of a tensor of PyTorch: by its address, since CuPy has not every dtype."""
    cupy, itemsize = load_cupy(), dtype.itemsize
    strides = tuple(s * itemsize for s in tensor.stride())
    last = sum(s * (n - 1) for s, n in zip(strides, tensor.shape, strict=True))
    size = 0 if 0 in tensor.shape else last + itemsize
    memory = _lent_memory(cupy)(tensor.data_ptr(), size, tensor, tensor.device.index)
    memory.tensor = tensor
    return cupy.ndarray(tuple(tensor.shape), dtype, cupy.cuda.MemoryPointer(memory, 0), strides)


@lru_cache(maxsize=8)
def _lent_memory(cupy: Any) -> Any:
    """A class of CuPy's for memory that it does not own, which remembers the tensor."""
    return type("Lent", (cupy.cuda.UnownedMemory,), {})


def _storage(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype of as many bytes that CuPy can copy."""
    return np.dtype(f"u{dtype.itemsize}") if dtype.name in EXTENSIONS else dtype


def _bits(array: Any) -> Any:
    """The same array in a dtype that CuPy can copy."""
    return array.view(_storage(array.dtype))
