"""Where the arguments of a call are: in the memory of the CPU, or on a GPU as arrays of CuPy or tensors of PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from redfuser.errors import ArgumentError, DTypeError
from redfuser.pipeline import Options
from redfuser.runtime.memory import pool

CUPY, TORCH = "cupy", "torch"


@dataclass(frozen=True)
class Place:
    """A GPU, and the library whose arrays the results are."""

    library: str
    device: int


@dataclass(frozen=True)
class OnHost:
    """A value that lies in the memory of the CPU. what: in words."""

    what: str
    remedy: str


def is_cupy(value: Any) -> bool:
    """True for an array of CuPy. Never imports CuPy by itself."""
    return is_of(value, "cupy", "ndarray")


def is_of(value: Any, library: str, name: str) -> bool:
    """True for an object of a class of this name, or derived from one, of a library that need not be imported."""
    cls: Any = type(value)
    return cls is not np.ndarray and _is_class(cls, library, name)


@lru_cache(maxsize=1024)
def _is_class(cls: Any, library: str, name: str) -> bool:
    return any(c.__module__.partition(".")[0] == library and c.__name__ == name for c in cls.__mro__)


def checked_cupy(array: Any, where: str) -> Any:
    """An array of CuPy, if kernels can read it.

    Raises
    ------
    DTypeError
        naming `where`, for one in foreign byte order.
    """
    if not array.dtype.isnative:
        raise DTypeError(f"{where} has dtype {array.dtype}, in foreign byte order; pass "
                         f"x.astype({array.dtype.newbyteorder('=').name!r})")
    return array


def agreed(found: Mapping[str, Any], places: Mapping[str, Place | OnHost], title: str) -> Place | None:
    """The one place of all arguments; None is the CPU's memory.

    Parameters
    ----------
    found : arguments by name, as arrays
    places : of those that are arrays of another library than NumPy

    Raises
    ------
    ArgumentError
        naming two arguments that are apart, and what to do.
    """
    first = next(((n, p) for n, p in places.items() if isinstance(p, Place)), None)
    if first is None:
        return None
    for name, value in found.items():
        place: Any = places.get(name)
        if place is None and isinstance(value, np.ndarray) and value.ndim:
            place = OnHost("a NumPy array", f"cupy.asarray({name})" if first[1].library == CUPY else
                           f"torch.as_tensor({name}, device='cuda:{first[1].device}')")
        if isinstance(place, OnHost):
            raise ArgumentError(f"{title}: argument {name!r} is {place.what}, and {first[0]!r} is on device "
                                f"{first[1].device}; pass {place.remedy}")
        if isinstance(place, Place) and place.device != first[1].device:
            raise ArgumentError(f"{title}: argument {name!r} is on device {place.device}, and {first[0]!r} is on "
                                f"device {first[1].device}; copy one of them to the other's device")
    return first[1]


def refuse_host(options: Options, values: Mapping[str, Any], title: str) -> None:
    """Under `target="cuda"`, raise for arrays in the memory of the CPU; numbers are no arrays.

    Raises
    ------
    ArgumentError
        naming the argument, and what to do.
    """
    for name, value in values.items():
        if options.target == "cuda" and isinstance(value, np.ndarray) and value.ndim:
            raise ArgumentError(f"{title}: argument {name!r} is a NumPy array, and target='cuda' runs on a GPU; pass "
                                f"cupy.asarray({name}), or leave out target=")


def refuse_lists(arrays: Mapping[str, Any], title: str) -> None:
    """Raise for arrays that were made of lists of numbers, beside those on a GPU.

    Raises
    ------
    ArgumentError
        naming the argument, and what to do.
    """
    for name, value in arrays.items():
        if isinstance(value, np.ndarray) and value.ndim:
            raise ArgumentError(f"{title}: argument {name!r} is a list, and arrays are on a GPU; pass "
                                f"cupy.asarray({name})")


def settled(options: Options, place: Place | None, title: str) -> tuple[Options, Place | None]:
    """The options with the target that a call runs on, and its place. `place`: that of the arguments.

    Raises
    ------
    ArgumentError
        for arrays on a GPU that the target does not read.
    SettingError
        for an option that the target does not have.
    NoDevice
        for `target="cuda"` where there is no GPU.
    """
    if place is not None:
        if options.target not in ("auto", "cuda"):
            raise ArgumentError(f"{title}: its arguments are on device {place.device}, and target={options.target!r} "
                                "runs on the CPU; leave out target=, or pass copies in NumPy")
        return replace(options, target="cuda"), place
    if options.target == "cuda":
        return options, current_place()
    return (replace(options, target="c") if options.target == "auto" else options), None


def current_place() -> Place:
    """The current GPU, for calls whose arguments are numbers.

    Raises
    ------
    NoDevice
        without CuPy, a driver or a GPU.
    """
    from redfuser.runtime.cuda.device import cuda_device

    return Place(CUPY, cuda_device().id)


class HostArrays:
    """Arrays of NumPy, for one traced program. The same as `runtime.cuda.device_arrays.DeviceArrays` for the CPU."""

    kind: type[Any] = np.ndarray

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Nothing is to be made current."""
        yield

    def empty(self, shape: Iterable[int], dtype: Any) -> Any:
        """An array without contents, from the pool."""
        return pool().empty(tuple(shape), dtype)

    def assign(self, target: Any, source: Any) -> None:
        """Copy an array into another one."""
        target[...] = source

    def constant(self, name: str, value: Any, dtype: Any) -> Any:
        """An array that the function reads from outside, in the dtype of the trace."""
        return self.tensor(value, dtype)

    def tensor(self, array: Any, dtype: Any) -> Any:
        """An argument in the dtype of the trace."""
        return array if array.dtype == dtype else array.astype(dtype)

    def reshape(self, array: Any, shape: Iterable[int]) -> Any:
        """The array in another shape: a view where strides allow it, else a copy."""
        return array.reshape(tuple(shape))

    def own(self, array: Any, op: str, dtype: Any) -> Any:
        """A result that is no view of an argument. `op`: of its node."""
        if op == "input":
            return np.array(array, dtype)
        found: Any = np.asarray(array)
        return found if found.flags.owndata else found.copy()

    def on_host(self, array: Any) -> Any:
        """The array itself."""
        return array

    def outline(self, array: Any) -> Any:
        """What to ask NumPy about memory with: the array itself."""
        return array

    def result(self, array: Any) -> Any:
        """A result for the caller."""
        return array


def arrays_at(place: Place | None) -> Any:
    """The arrays of one traced program: `HostArrays`, or `DeviceArrays`.

    Raises
    ------
    NoDevice, UnsupportedArch
        when the GPU cannot be used.
    """
    if place is None:
        return HostArrays()
    from redfuser.runtime.cuda.device import cuda_device
    from redfuser.runtime.cuda.device_arrays import DeviceArrays, TorchArrays

    return (TorchArrays if place.library == TORCH else DeviceArrays)(cuda_device(place.device))


def place_of(value: Any, name: str) -> Place | OnHost | None:
    """Where an array of CuPy or a tensor of PyTorch is; None for anything else. `name`: of the argument."""
    if is_cupy(value):
        return Place(CUPY, int(value.device.id))
    device = getattr(value, "device", None)
    kind = getattr(device, "type", None)
    if kind == "cuda":
        return Place(TORCH, int(getattr(device, "index", 0) or 0))
    return OnHost("a tensor on the CPU", f"{name}.cuda()") if kind == "cpu" else None

