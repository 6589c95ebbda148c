"""Tensors of PyTorch as arguments and results, by way of NumPy on the same memory. Never imports torch by itself."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from redfuser.api.places import is_of
from redfuser.api.program import Array
from redfuser.errors import ArgumentError, DTypeError
from redfuser.frontend.spec import SUPPORTED_DTYPES
from redfuser.ir.dtypes import EXTENSIONS, numpy_dtype


def is_tensor(value: Any) -> bool:
    """True for a torch.Tensor and what is derived from it."""
    return is_of(value, "torch", "Tensor")


def tensor_array(tensor: Any, where: str) -> Any:
    """The array on the memory of a tensor: of NumPy, or of CuPy for a tensor on a GPU.

    Raises
    ------
    ArgumentError
        naming `where`, for a tensor on another kind of device, a sparse one, or one that requires a gradient while
        these are recorded.
    DTypeError
        naming `where`, for a tensor whose dtype no kernel can be generated for.
    NoDevice
        for a tensor on a GPU, when CuPy is not installed.
    """
    torch = sys.modules["torch"]
    if tensor.device.type not in ("cpu", "cuda"):
        raise ArgumentError(f"{where} is on the device {tensor.device}; kernels run on CPUs and NVIDIA GPUs: pass "
                            "x.cpu()")
    if tensor.layout is not torch.strided:
        raise ArgumentError(f"{where} has the layout {tensor.layout}; pass x.to_dense()")
    if tensor.requires_grad:
        if torch.is_grad_enabled():
            raise ArgumentError(f"{where} requires a gradient, and fused functions have none; call them under "
                                "torch.no_grad(), or pass x.detach()")
        tensor = tensor.detach()
    name = str(tensor.dtype).removeprefix("torch.")
    if tensor.device.type == "cuda":
        return _device_array(tensor, name, where)
    if name in EXTENSIONS:  # which NumPy and PyTorch exchange as bits only
        dtype = numpy_dtype(name)
        bits: Array = tensor.view(getattr(torch, _bits(dtype))).numpy()
        return bits.view(dtype)
    try:
        array: Array | None = tensor.resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError):
        array = None
    if array is None or array.dtype.name not in SUPPORTED_DTYPES:
        raise _unsupported(tensor, where)
    return array


def _device_array(tensor: Any, name: str, where: str) -> Any:
    """The CuPy array on the memory of a tensor on a GPU."""
    from redfuser.runtime.cuda.device_arrays import lent

    if name not in SUPPORTED_DTYPES:
        raise _unsupported(tensor, where)
    return lent(tensor.resolve_neg(), numpy_dtype(name))


def _unsupported(tensor: Any, where: str) -> DTypeError:
    remedy = "pass x.real and x.imag" if tensor.is_complex() else "convert with x.float() or x.double()"
    return DTypeError(f"{where}: dtype {tensor.dtype} is not supported; {remedy}")


def _bits(dtype: np.dtype[Any]) -> str:
    """Name of the integers as wide as a dtype."""
    return f"int{8 * dtype.itemsize}"


def as_tensor(array: Any) -> Any:
    """The tensor on the memory of a result (0-d for a scalar)."""
    torch, found = sys.modules["torch"], np.asarray(array)
    name = found.dtype.name
    if name in EXTENSIONS:
        return torch.from_numpy(found.view(_bits(found.dtype))).view(getattr(torch, name))
    return torch.from_numpy(found)
