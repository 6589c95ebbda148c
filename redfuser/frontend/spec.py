"""What stands for an argument while a function is traced: a shape and a dtype, no data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from redfuser.errors import DTypeError, ShapeError
from redfuser.ir.dtypes import STORAGE_ONLY, numpy_dtype

SUPPORTED_DTYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", *STORAGE_ONLY, "float32", "float64")
"""NumPy names of the dtypes a traced array may have."""


def supported_dtype(dtype: Any, where: str) -> np.dtype[Any]:
    """The NumPy dtype of `dtype`.

    Raises
    ------
    DTypeError
        naming `where`, when no kernel can be generated for it; or the package that defines it, when that is missing.
    """
    try:
        found = numpy_dtype(dtype)
    except DTypeError:  # a TypeError as well
        raise
    except TypeError as error:
        raise DTypeError(f"{where}: {dtype!r} is not a NumPy dtype") from error
    if found.name not in SUPPORTED_DTYPES:
        raise DTypeError(f"{where}: dtype {found} is not supported; {_conversion(found)}")
    return numpy_dtype(found.name)  # in the machine's byte order


def _conversion(dtype: np.dtype[Any]) -> str:
    """What to do with an array of a dtype that is not supported."""
    if dtype.kind == "c":
        return "pass real and imaginary parts as two arrays, x.real and x.imag"
    if dtype.kind == "u":
        return "convert with x.astype(np.int64)"
    if dtype.kind == "f" or dtype.name.startswith("float"):  # a dtype of ml_dtypes may have another kind
        return "convert with x.astype(np.float32) or x.astype(np.float64)"
    return f"pass numbers: an array of {', '.join(SUPPORTED_DTYPES)}"


@dataclass(frozen=True)
class Spec:
    """Shape and dtype of an argument.

    A shape entry is an int or a string. An int other than 1 is the size *while tracing*: the traced program serves
    every size. A size of 1 is static, because NumPy broadcasts it. A string names a size: equal names are equal sizes.
    `weak` marks a Python int or float, which does not decide the dtype of a result (NumPy's promotion rules, NEP 50).

    Raises
    ------
    ShapeError, DTypeError
        for a negative or non-integer size, an invalid name, an unsupported dtype.
    """

    shape: tuple[int | str, ...]
    dtype: str = "float64"
    weak: bool = False

    def __post_init__(self) -> None:
        shape = (self.shape,) if isinstance(self.shape, (int, str)) else tuple(self.shape)
        entries = tuple(e if isinstance(e, str) else _size(e) for e in shape)
        for e in entries:
            if isinstance(e, str) and not e.isidentifier():
                raise ShapeError(f"size name {e!r} in shape {shape} is not a valid identifier; use a name such as 'n'")
        object.__setattr__(self, "shape", entries)
        object.__setattr__(self, "dtype", supported_dtype(self.dtype, "Spec").name)

    @staticmethod
    def of(value: Any, where: str = "argument") -> Spec:
        """The spec of an array or a Python scalar.

        Raises
        ------
        DTypeError
            naming `where`, for anything else and for unsupported dtypes.
        """
        if isinstance(value, Spec):
            return value
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            if isinstance(value, bool):
                return Spec((), "bool")
            return Spec((), "int64" if isinstance(value, int) else "float64", weak=True)
        if isinstance(value, (np.ndarray, np.generic)):
            return Spec(tuple(value.shape), supported_dtype(value.dtype, where).name)
        raise DTypeError(f"{where}: a {type(value).__name__} is neither an array nor a number; pass numpy.asarray(...)")

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


def _size(entry: Any) -> int:
    try:
        size = int(entry.__index__())
    except AttributeError as error:
        raise ShapeError(f"shape entry {entry!r} must be an int or the name of a size") from error
    if size < 0:
        raise ShapeError(f"shape entry {size} is negative; sizes are 0 or more")
    return size
