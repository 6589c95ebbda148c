"""Python's and NumPy's number types while a function is traced: `float(x.sum())`, `np.float32(x)`.

A stand-in is called as the type is, and equal to it everywhere else: in isinstance, as a dtype, as a key.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.errors import TraceError
from redfuser.frontend.record import FLOAT, INT, no_meaning
from redfuser.frontend.source import located
from redfuser.frontend.tracer import Tracer


def number_of(x: Tracer, kind: type, need: str) -> Any:
    """The Python number of an array of rank 0: weak from then on, as Python's numbers are.

    Raises
    ------
    TraceError
        for arrays, and for an integer or a truth value out of real numbers.
    """
    if x.ndim:
        raise TraceError(located(f"{need} needs one number, this is an array with {x.ndim} dimensions; keep the "
                                 "computation in arrays"))
    if kind is bool or (kind is int and x.dtype.kind == "f" and not x.is_size):
        if kind is bool and need == ".item()":
            return x
        raise TraceError(located(f"{need} of real numbers depends on array values, which are unknown while tracing; "
                                 "use np.trunc(x).astype(int)"))
    dtype = INT if kind is int else FLOAT
    if x.value.weak and x.dtype == dtype:
        return x
    if kind is int and x.is_size:
        return int(x)
    return x.wrap(x.recorder.add("cast", (x.value,), (), dtype, weak=True))


def rounded(x: Tracer, digits: Any) -> Any:
    """`round(x, digits)` with NumPy's rounding, and `round(x)`, which is an integer.

    Raises
    ------
    TraceError
        for arrays.
    """
    if x.ndim:
        raise no_meaning(f"round() needs one number, this is an array with {x.ndim} dimensions; use "
                         "np.round(x, decimals)")
    found: Any = np.round(x, 0 if digits is None else digits)
    if digits is None:
        return number_of(found.astype(np.int64), int, "round()")
    return number_of(found, int if x.dtype.kind == "i" else float, "round()") if x.value.weak else found


class _Standing(type):
    """The class of stand-ins: everything but calls is answered by the real type."""

    real: type

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.real)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.real

    def __hash__(cls) -> int:
        return hash(cls.real)


def _stand_in(real: type) -> type:
    def make(cls: type, x: Any = 0, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, Tracer):
            return real(x, *args, **kwargs)
        if issubclass(real, np.generic):
            return x.astype(real)
        return number_of(x, real, f"{real.__name__}()")

    members: dict[str, Any] = {"real": real, "__new__": make, "__doc__": real.__doc__}
    if not issubclass(real, np.generic):
        members["dtype"] = np.dtype(real)  # NumPy asks a class that it does not know
    return _Standing(real.__name__, (real,), members)


PYTHON_TYPES: dict[str, type] = {"float": _stand_in(float), "int": _stand_in(int)}
"""Name among the builtins -> stand-in."""

NUMPY_TYPES: dict[str, type] = {
    t.__name__: _stand_in(t) for t in (np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8)
}
"""Name in NumPy -> stand-in."""
