"""One way to launch a kernel, whatever runs it: parameters are checked and packed here, a `Function` does the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from redfuser.runtime.cuda.errors import LaunchError

POINTER_SIZE = 8


class Function(Protocol):
    """A kernel that can be launched."""

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        packed_args: bytes,
        stream: int | None = None,
    ) -> None:
        """Start the kernel.

        Parameters
        ----------
        grid, block : their sizes (x, y, z)
        shared_bytes : dynamic shared memory of a block
        packed_args : all parameters, laid out as the device's structure of them (`pack`)
        stream : a CUDA stream's handle; None is the current one. The host has none.
        """
        ...


@dataclass(frozen=True)
class Parameter:
    """A kernel parameter.

    name      for messages
    dtype     of a scalar, or of the elements that a pointer points to; a structured or void dtype is passed by value
    pointer   whether it is one
    align     of a structure passed by value; 0 is the dtype's own
    """

    name: str
    dtype: np.dtype[Any]
    pointer: bool = False
    align: int = 0

    @property
    def size(self) -> int:
        """Bytes in the packed arguments."""
        return POINTER_SIZE if self.pointer else self.dtype.itemsize

    @property
    def alignment(self) -> int:
        """Of its place in the packed arguments."""
        return POINTER_SIZE if self.pointer else self.align or max(1, self.dtype.alignment)


def scalar(name: str, dtype: Any) -> Parameter:
    """A number that is passed by value."""
    return Parameter(name, np.dtype(dtype))


def array(name: str, dtype: Any) -> Parameter:
    """A pointer to elements of a dtype."""
    return Parameter(name, np.dtype(dtype), pointer=True)


def offsets(parameters: Sequence[Parameter]) -> tuple[int, ...]:
    """Where each parameter begins in the packed arguments."""
    found, end = [], 0
    for p in parameters:
        end = -(-end // p.alignment) * p.alignment
        found.append(end)
        end += p.size
    return tuple(found)


def pack(parameters: Sequence[Parameter], values: Sequence[Any]) -> bytes:
    """The packed arguments of a launch.

    Parameters
    ----------
    parameters : of the kernel, in order
    values : for a pointer its address, an int; for a scalar a number, which must be one of its dtype

    Raises
    ------
    LaunchError
        naming the parameter whose value does not fit.
    """
    if len(values) != len(parameters):
        names = ", ".join(p.name for p in parameters)
        raise LaunchError(f"the kernel takes {len(parameters)} arguments ({names}), got {len(values)}")
    packed = bytearray()
    for p, offset, value in zip(parameters, offsets(parameters), values, strict=True):
        packed.extend(bytes(offset - len(packed)))
        packed.extend(_bytes(p, value))
    return bytes(packed)


def _bytes(parameter: Parameter, value: Any) -> bytes:
    if parameter.pointer:
        return _address(parameter, value).to_bytes(POINTER_SIZE, "little")
    if isinstance(value, (bytes, np.void)) or parameter.dtype.kind == "V":
        return _structure(parameter, value)
    return _number(parameter, value)


def _address(parameter: Parameter, value: Any) -> int:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or not 0 <= int(value) < 1 << 64:
        raise LaunchError(f"parameter {parameter.name} is a pointer; give an address, not {value!r}")
    align = parameter.dtype.itemsize
    if value and align and (align & (align - 1)) == 0 and int(value) % align:
        raise LaunchError(f"parameter {parameter.name}: address {int(value):#x} is not a multiple of {align}")
    return int(value)


def _structure(parameter: Parameter, value: Any) -> bytes:
    raw = value if isinstance(value, bytes) else np.asarray(value).tobytes()
    if len(raw) != parameter.size:
        raise LaunchError(f"parameter {parameter.name} has {parameter.size} bytes, got {len(raw)}")
    return raw


def _number(parameter: Parameter, value: Any) -> bytes:
    dtype = parameter.dtype
    if isinstance(value, np.generic) and value.dtype != dtype:
        raise LaunchError(f"parameter {parameter.name} is {dtype}, got a {value.dtype}; convert it first")
    whole = isinstance(value, (bool, int, np.integer, np.bool_))
    if not isinstance(value, (bool, int, float, np.generic)) or (dtype.kind in "iub" and not whole):
        raise LaunchError(f"parameter {parameter.name} is {dtype}; {value!r} is none")
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        if not limits.min <= int(value) <= limits.max:
            raise LaunchError(f"parameter {parameter.name} is {dtype}; {value} is beyond {limits.min} to {limits.max}")
    with np.errstate(over="ignore"):  # a large double is an infinite float, as in C
        return np.array(value, dtype).tobytes()
