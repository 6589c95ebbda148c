"""A stand-in for PyTorch with a GPU, on the memory of the stand-in for CuPy: what redfuser uses of CUDA tensors."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
from standin_cupy import Cuda

from redfuser.ir.dtypes import numpy_dtype

DTYPES = ("float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "int64", "int8", "uint8", "bool", "complex64")


def torch_on(cuda: Cuda, stream: int = 55) -> Any:
    """The module. `stream`: its current stream."""
    torch = types.ModuleType("torch")
    strided = object()

    class dtype:
        def __init__(self, name: str) -> None:
            self.name = name

        def __repr__(self) -> str:
            return f"torch.{self.name}"

    kinds = {name: dtype(name) for name in DTYPES}

    class Tensor:
        """A tensor on a device: `array` has its elements."""

        def __init__(self, array: np.ndarray[Any, Any], device: int | None = 0) -> None:
            self.array, self.dtype, self.layout = array, kinds[array.dtype.name], strided
            self.device = types.SimpleNamespace(type="cpu" if device is None else "cuda", index=device)
            self.requires_grad = False

        shape = property(lambda self: self.array.shape)

        def stride(self) -> tuple[int, ...]:
            return tuple(s // self.array.itemsize for s in self.array.strides)

        def storage_offset(self) -> int:
            return 0

        def data_ptr(self) -> int:
            return int(self.array.__array_interface__["data"][0])

        def is_complex(self) -> bool:
            return self.array.dtype.kind == "c"

        def resolve_neg(self) -> Any:
            return self

        resolve_conj = resolve_neg

        def numpy(self) -> Any:
            return self.array

        def as_strided(self, shape: Any, strides: Any, offset: int) -> Any:
            flat = self.array.reshape(-1)[offset:]
            steps = [s * self.array.itemsize for s in strides]
            return Tensor(np.lib.stride_tricks.as_strided(flat, shape, steps), self.device.index)

    def empty(shape: Any, *, dtype: Any, device: str) -> Any:
        kind, number = numpy_dtype(dtype.name), int(device.removeprefix("cuda:"))
        size = int(np.prod(shape, dtype=np.int64)) * kind.itemsize
        cuda.log.append(("torch empty", size, stream))
        return Tensor(cuda.room(size)[:size].view(kind).reshape(shape), number)

    Tensor.__module__, Tensor.__qualname__ = "torch", "Tensor"
    torch.__dict__.update(
        Tensor=Tensor, strided=strided, empty=empty, is_grad_enabled=lambda: True, **kinds,
        cuda=types.SimpleNamespace(current_stream=lambda _=None: types.SimpleNamespace(cuda_stream=stream)),
    )
    return torch
