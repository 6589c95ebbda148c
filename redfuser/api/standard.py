"""Arrays of other libraries, by the Python array API standard: in by DLPack or NumPy, on the memory they have, and out.

Source: the array API standard (data-apis.org), `__array_namespace__`, `__dlpack__` and `from_dlpack`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from redfuser.api.program import Array
from redfuser.errors import ArgumentError


def is_standard(value: Any) -> bool:
    """True for an array of another library that follows the standard."""
    cls: Any = type(value)
    return _is_standard_class(cls)


@lru_cache(maxsize=1024)
def _is_standard_class(cls: Any) -> bool:
    return hasattr(cls, "__array_namespace__") and not issubclass(cls, (np.ndarray, np.generic))


def library_of(value: Any) -> str:
    """The name of the library that an array belongs to."""
    return type(value).__module__.partition(".")[0]


def standard_array(value: Any, where: str) -> Array:
    """The NumPy array on the memory of an array of another library; a copy where that library gives no other way.

    Raises
    ------
    ArgumentError
        naming `where`, for an array that is not in the memory of the CPU.
    """
    problem: Exception | None = None
    for convert in (np.from_dlpack, np.asarray):
        try:
            found: Any = convert(value)
        except Exception as error:  # whatever that library raises for a device, a dtype, a missing protocol
            problem = error
            continue
        if isinstance(found, np.ndarray) and found.dtype != object:
            return found
    what = f"an array of {library_of(value)} on the device {getattr(value, 'device', '?')}"
    raise ArgumentError(f"{where} is {what}, which NumPy cannot read ({problem}); copy it to the CPU first")


def converter(value: Any) -> Callable[[Any], Any]:
    """What turns results into arrays of the library, and on the device, of an argument."""
    return partial(_converted, value.__array_namespace__(), getattr(value, "device", None))


def _converted(library: Any, device: Any, result: Any) -> Any:
    array = np.asarray(result)
    try:
        found = library.from_dlpack(array)
    except (AttributeError, BufferError, TypeError, ValueError, RuntimeError):  # a dtype DLPack has no name for
        found = library.asarray(array)
    return found if getattr(found, "device", None) == device else found.to_device(device)
