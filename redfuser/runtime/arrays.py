"""Arrays at the border to C: what a kernel can take as it is, what must be copied, what is refused."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from redfuser.codegen.nodes import Buf
from redfuser.errors import DTypeError, ShapeError
from redfuser.ir import Const, Expr, Size
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.integers import integer_value
from redfuser.ir.term import base_axis

Array = np.ndarray[Any, Any]


def _described(array: Array) -> int:
    """Address of the first element, asked of NumPy."""
    address: int = array.__array_interface__["data"][0]
    return address


def _reader() -> Callable[[Array], int]:
    """A function like `_described` that reads the address where NumPy's C interface keeps it: first in the array
    object, behind the header of all objects. An eighth of the time; where objects do not lie at their `id`, NumPy is
    asked."""
    behind, at = object.__basicsize__, ctypes.c_void_p.from_address

    def read(array: Array) -> int:
        return at(id(array) + behind).value or 0

    probes: list[Array] = [np.zeros(3), np.zeros((2, 3), np.int8)[1:, 1:]]
    right = sys.implementation.name == "cpython" and all(read(a) == _described(a) for a in probes)
    return read if right else _described


data_pointer = _reader()


def extent(array: Array) -> tuple[int, int]:
    """Bytes from the first element to the begin and to the end of the memory that an array spans."""
    begin, end = np.lib.array_utils.byte_bounds(array)
    return begin - _described(array), end - _described(array)


def length(e: Expr, sizes: Mapping[str, int]) -> int:
    """The value of a shape expression: constants, sizes and integer arithmetic."""
    return integer_value(e, lambda x: sizes[base_axis(x.axis)] if isinstance(x, Size) else None)


class Port:
    """One array argument of a kernel: checks and normalises what callers pass.

    `kind`: the class of arrays: NumPy's, or CuPy's for a kernel on a GPU.
    """

    def __init__(self, buf: Buf, kind: type[Any] = np.ndarray) -> None:
        self.name = buf.name
        self.kind = kind
        self.dtype = numpy_dtype(buf.dtype)
        self.itemsize = self.dtype.itemsize
        self.rank = len(buf.shape)
        self.unit = buf.unit
        self.shape = buf.shape
        self.axes = tuple(
            e.value if isinstance(e, Const) else base_axis(e.axis) if isinstance(e, Size) else None
            for e in buf.shape
        )

    def expected(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape this argument must have."""
        return tuple(length(e, sizes) for e in self.shape)

    def check(self, array: Any, sizes: Mapping[str, int]) -> Array:
        """The array itself, once type, rank and lengths are right.

        Raises
        ------
        DTypeError
            no array of the kind and dtype that the kernel takes (byte order aside), nor a NumPy scalar of it.
        ShapeError
            other lengths than `sizes` says.
        """
        scalar = isinstance(array, np.generic) and self.kind is np.ndarray
        given: Any = np.asarray(array) if scalar else array
        if not isinstance(given, self.kind):
            library = "NumPy" if self.kind is np.ndarray else "CuPy"
            raise DTypeError(f"argument {self.name!r} is a {type(array).__name__}, not a {library} array; pass "
                             f"{'np' if library == 'NumPy' else 'cupy'}.asarray(...)")
        found: Array = given
        if found.dtype != self.dtype and found.dtype.newbyteorder("=") != self.dtype:
            raise DTypeError(
                f"argument {self.name!r} has dtype {found.dtype}, this kernel was compiled for "
                f"{self.dtype.name}; convert it with .astype({self.dtype.name!r})"
            )
        shape = found.shape
        for got, axis in zip(shape, self.axes, strict=False):
            if got != (sizes.get(axis, -1) if isinstance(axis, str) else axis):
                break
        else:
            if len(shape) == self.rank:
                return found
        expected = self.expected(sizes)
        if shape != expected:
            raise ShapeError(f"argument {self.name!r} has shape {shape}, expected {expected}")
        return found

    def direct(self, array: Array) -> bool:
        """Whether C can read the array in place: native byte order, aligned, strides of whole elements."""
        flags = array.flags
        if not (flags.aligned and array.dtype.isnative):
            return False
        return flags.c_contiguous or all(s % self.itemsize == 0 for s in array.strides)

    def copied(self, array: Array) -> Array:
        """A copy that C can read in place, contiguous along the dimension that the kernel takes as such."""
        unit = self.rank - 1 if self.unit is None else self.unit
        if not self.rank:
            return np.array(array, dtype=self.dtype)
        return np.moveaxis(np.array(np.moveaxis(array, unit, -1), dtype=self.dtype, order="C"), -1, unit)

    def check_unit(self, array: Array) -> None:
        """The dimension the kernel takes as contiguous must be.

        Raises
        ------
        ShapeError
            naming the argument: the caller chose a kernel for another layout.
        """
        if self.unit is None or array.shape[self.unit] <= 1 or array.size == 0:
            return
        if array.strides[self.unit] != self.itemsize:
            raise ShapeError(
                f"argument {self.name!r} is not contiguous along dimension {self.unit}, as this kernel needs; "
                "pass np.ascontiguousarray(...)"
            )
