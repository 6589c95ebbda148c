"""A stand-in for CuPy without a GPU: its arrays lie in guarded host memory, its kernels run on the host executor.

It has what redfuser uses and nothing else, raises where CuPy raises (`numpy.asarray` of an array, another device), and
writes down everything that happens, so that a test can say what must not: copies to the host, waiting, allocation.
`test_cupy_real.py` holds its views against those of the real CuPy.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from redfuser.runtime.cuda.cxx import find_cxx
from redfuser.runtime.cuda.executor import executor
from redfuser.runtime.cuda.host import HostModule
from redfuser.runtime.cuda.host_kernel import HostFunction
from redfuser.runtime.cuda.host_memory import HostMemory

ATTRIBUTES = {"MultiProcessorCount": 2, "MaxSharedMemoryPerBlockOptin": 232448, "L2CacheSize": 1 << 20,
              "MaxThreadsPerMultiProcessor": 64}


class CudaError(RuntimeError):
    """As `cupy.cuda.runtime.CUDARuntimeError`."""


class Cuda:
    """The machine behind one stand-in: its devices, streams and memory.

    log     what happened: ("launch", kernel, stream, shared bytes), ("empty", bytes, stream), ("fill", stream),
            ("copy", stream), ("to host",), ("to device",), ("wait",), ("compile", options), ("allow", bytes)
    static  bytes of static shared memory that every kernel has
    """

    def __init__(self, *, capability: str = "90", driver: bool = True, devices: int = 2, static: int = 0,
                 **attributes: int) -> None:
        self.capability, self.driver, self.devices, self.static = capability, driver, devices, static
        self.attributes = ATTRIBUTES | attributes
        self.log: list[tuple[Any, ...]] = []
        self.device, self.stream, self.seed = 0, 0, 0
        self.capturing: set[int] = set()
        self._memory: HostMemory | None = None
        self.cupy = _cupy(self)

    def count(self, *kinds: str) -> int:
        """How often something of these kinds happened."""
        return sum(entry[0] in kinds for entry in self.log)

    def require(self) -> None:
        """Raise as CuPy does without a driver."""
        if not self.driver:
            raise CudaError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")

    def room(self, size: int) -> np.ndarray[Any, Any]:
        """Guarded bytes that kernels must write before they read them; from the process where there is no executor."""
        if self._memory is None:
            self._memory = HostMemory(executor(find_cxx()))
        return self._memory.empty(max(1, size), np.uint8)

    def put(self, array: Any, device: int = 0) -> Any:
        """The array of the stand-in with these elements, as if it had always been on the device."""
        found = np.asarray(array)
        view = self.room(found.nbytes)[: found.nbytes].view(found.dtype).reshape(found.shape)
        made = self.cupy.ndarray._of(view, _Memory(int(view.ctypes.data), found.nbytes, view, device))
        made._write(found)
        return made

    def close(self) -> None:
        """Give all memory back."""
        if self._memory is not None:
            self._memory.__exit__()

    @contextmanager
    def on(self, stream: int) -> Iterator[None]:
        """Inside, another stream is current."""
        before, self.stream = self.stream, stream
        try:
            yield
        finally:
            self.stream = before


class _Memory:
    """As `cupy.cuda.UnownedMemory`."""

    def __init__(self, ptr: int, size: Any, owner: Any, device_id: int = 0) -> None:
        self.ptr, self.size, self.owner, self.device_id = ptr, size, owner, device_id


class _Pointer:
    """As `cupy.cuda.MemoryPointer`."""

    def __init__(self, mem: Any, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset


def _bytes_at(address: int, size: int) -> np.ndarray[Any, Any]:
    import ctypes

    return np.ctypeslib.as_array((ctypes.c_uint8 * max(1, size)).from_address(address))


def _cupy(cuda: Cuda) -> Any:
    """The module."""
    cupy = types.ModuleType("cupy")

    class ndarray:
        """As `cupy.ndarray`."""

        __array_priority__ = 100

        def __init__(self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None) -> None:
            kind = np.dtype(dtype)
            if memptr is None:
                cuda.require()
                size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
                raw = cuda.room(size)
                cuda.log.append(("empty", size, cuda.stream))
                memptr = _Pointer(_Memory(int(raw.ctypes.data), size, raw, cuda.device), 0)
                self._np = raw[:size].view(kind).reshape(shape)
            elif 0 in shape:
                self._np = np.empty(shape, kind)
            else:
                own = np.empty(0, kind).strides if strides is None else strides
                steps = np.empty(shape, np.int8).strides if strides is None else strides
                steps = tuple(s * kind.itemsize for s in steps) if strides is None else own
                low = sum(min(0, s * (n - 1)) for s, n in zip(steps, shape, strict=True))
                high = sum(max(0, s * (n - 1)) for s, n in zip(steps, shape, strict=True)) + kind.itemsize
                self._np = np.ndarray(shape, kind, _bytes_at(memptr.ptr + low, high - low), -low, steps)
            self._mem = memptr.mem

        @classmethod
        def _of(cls, view: Any, mem: Any) -> Any:
            made = cls.__new__(cls)
            made._np, made._mem = view, mem
            return made

        def _like(self, view: Any) -> Any:
            if view.size and not np.may_share_memory(view, self._np):
                raise AssertionError("copied by CuPy itself: not in the memory of the caller's library")
            return ndarray._of(view, self._mem)

        def _write(self, values: Any) -> None:
            self._np[...] = values
            runner = executor(find_cxx())
            if self._np.flags.c_contiguous:
                runner.wrote(self.data.ptr, self.nbytes)
                return
            for at in np.ndindex(*self.shape):
                runner.wrote(int(self._np[(*at, ...)].__array_interface__["data"][0]), self.itemsize)

        shape = property(lambda self: self._np.shape)
        dtype = property(lambda self: self._np.dtype)
        strides = property(lambda self: self._np.strides)
        ndim = property(lambda self: self._np.ndim)
        size = property(lambda self: self._np.size)
        itemsize = property(lambda self: self._np.itemsize)
        nbytes = property(lambda self: self._np.nbytes)
        T = property(lambda self: self._like(self._np.T))
        device = property(lambda self: Device(self._mem.device_id))

        @shape.setter
        def shape(self, wanted: Any) -> None:
            view = self._np.reshape(wanted)
            if view.size and not np.may_share_memory(view, self._np):
                raise AttributeError("incompatible shape")
            self._np = view

        @property
        def data(self) -> Any:
            address = self._np.__array_interface__["data"][0] if self._np.size else self._mem.ptr
            return _Pointer(self._mem, address - self._mem.ptr)

        def view(self, dtype: Any = None) -> Any:
            return self._like(self._np.view(self.dtype if dtype is None else dtype))

        def reshape(self, *shape: Any) -> Any:
            return self._like(self._np.reshape(*shape))

        def transpose(self, *axes: Any) -> Any:
            return self._like(self._np.transpose(*axes))

        def __getitem__(self, index: Any) -> Any:
            view = self._np[(*index, ...) if isinstance(index, tuple) and ... not in index else
                            index if isinstance(index, tuple) or index is ... else (index, ...)]
            return self._like(view)

        def __setitem__(self, index: Any, value: Any) -> None:
            assert isinstance(value, ndarray)
            assert self.dtype.kind != "V", "CuPy has no kernels for this dtype"
            cuda.log.append(("copy", cuda.stream))
            self[index]._write(value._np)

        def fill(self, value: Any) -> None:
            cuda.log.append(("fill", cuda.stream))
            self._write(0 if value == 0 else value)

        def get(self) -> Any:
            assert self.dtype.name in np.sctypeDict, "CuPy cannot copy this dtype"
            cuda.log.append(("to host",))
            return self._np.copy()

        def __array__(self, *_: Any, **__: Any) -> Any:
            raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

        def __array_function__(self, function: Any, _: Any, args: Any, kwargs: Any) -> Any:
            if function in (np.shape, np.ndim, np.may_share_memory):
                return function(*(a._np if isinstance(a, ndarray) else a for a in args), **kwargs)
            if function in (np.diagonal, np.broadcast_to, np.moveaxis, np.expand_dims, np.reshape):
                return self._like(function(self._np, *args[1:], **kwargs))
            if function in (np.stack, np.concatenate):
                made = function([a._np for a in args[0]], **kwargs)
                result = ndarray(made.shape, made.dtype)
                cuda.log.append(("copy", cuda.stream))
                result._write(made)
                return result
            return NotImplemented

        def __array_ufunc__(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("computed by CuPy's ufuncs: nothing of redfuser's does")

    class Device:
        """As `cupy.cuda.Device`."""

        def __init__(self, number: int | None = None) -> None:
            cuda.require()
            self.id = cuda.device if number is None else int(number)
            if not 0 <= self.id < cuda.devices:
                raise CudaError("cudaErrorInvalidDevice: invalid device ordinal")

        compute_capability = property(lambda self: cuda.capability)
        mem_info = property(lambda self: (1 << 30, 1 << 31))

        def __enter__(self) -> Any:
            self._before, cuda.device = cuda.device, self.id
            return self

        def __exit__(self, *_: object) -> None:
            cuda.device = self._before

    class Stream:
        """As `cupy.cuda.ExternalStream`."""

        def __init__(self, handle: int) -> None:
            self.ptr = handle

        def __enter__(self) -> Any:
            self._before, cuda.stream = cuda.stream, self.ptr
            return self

        def __exit__(self, *_: object) -> None:
            cuda.stream = self._before

        def is_capturing(self) -> bool:
            return self.ptr in cuda.capturing

        def synchronize(self) -> None:
            assert self.ptr not in cuda.capturing, "waits inside a capture"
            cuda.log.append(("wait",))

    class RawKernel:
        """A kernel on the executor."""

        def __init__(self, module: HostModule, name: str) -> None:
            self._kernel, self.name = module.kernel(name), name
            self._most = 49152 - self.shared_size_bytes

        shared_size_bytes = property(lambda self: cuda.static)

        @property
        def max_dynamic_shared_size_bytes(self) -> int:
            return self._most

        @max_dynamic_shared_size_bytes.setter
        def max_dynamic_shared_size_bytes(self, size: int) -> None:
            cuda.log.append(("allow", size))
            self._most = size

        def __call__(self, grid: Any, block: Any, args: Any, *, shared_mem: int = 0) -> None:
            assert shared_mem <= self._most, "cudaErrorInvalidValue"
            slots = self._kernel.info.params
            packed = bytearray(max((s.offset + s.size for s in slots), default=0))
            for slot, value in zip(slots, args, strict=True):
                packed[slot.offset : slot.offset + slot.size] = value.tobytes()
            cuda.log.append(("launch", self.name, cuda.stream, shared_mem))
            HostFunction(self._kernel, cuda.seed).launch(grid, block, shared_mem, bytes(packed))

    class RawModule:
        """As `cupy.RawModule`."""

        def __init__(self, *, code: str, options: tuple[str, ...] = ()) -> None:
            self._code, self._options = code, options
            cuda.log.append(("compile", options))

        def get_function(self, name: str) -> RawKernel:
            given = [o.removeprefix("-arch=") for o in self._options if o.startswith("-arch=")]
            return RawKernel(HostModule(self._code, given[0] if given else f"sm_{cuda.capability}"), name)

    def properties(number: int) -> dict[str, Any]:
        return {"name": f"Stand-in {number}".encode(), "totalGlobalMem": 1 << 31}

    def attribute(which: str, _: int) -> int:
        return cuda.attributes[which]

    def device_count() -> int:
        cuda.require()
        return cuda.devices

    def to_device(array: Any) -> Any:
        assert cuda.stream not in cuda.capturing, "a copy from the host inside a capture"
        cuda.log.append(("to device",))
        return cuda.put(array, cuda.device)

    runtime = types.SimpleNamespace(
        CUDARuntimeError=CudaError, deviceGetAttribute=attribute, getDeviceProperties=properties,
        getDeviceCount=device_count, driverGetVersion=lambda: 13000, runtimeGetVersion=lambda: 13000,
        **{f"cudaDevAttr{name}": name for name in ATTRIBUTES},
    )
    ndarray.__module__, ndarray.__qualname__ = "cupy", "ndarray"
    cupy.__dict__.update(
        ndarray=ndarray, RawModule=RawModule, empty=ndarray, asarray=to_device, asnumpy=lambda a: a.get(),
        __version__="14.2.0 (stand-in)",
        cuda=types.SimpleNamespace(
            Device=Device, ExternalStream=Stream, UnownedMemory=_Memory, MemoryPointer=_Pointer, runtime=runtime,
            get_current_stream=lambda: Stream(cuda.stream),
            driver=types.SimpleNamespace(CUDADriverError=type("CUDADriverError", (RuntimeError,), {})),
            compiler=types.SimpleNamespace(CompileException=type("CompileException", (Exception,), {})),
        ),
    )
    return cupy
