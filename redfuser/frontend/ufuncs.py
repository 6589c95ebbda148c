"""NumPy ufuncs on traced arrays: calls and `ufunc.reduce`."""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.errors import TraceError
from redfuser.frontend.formulas import FORMULAS
from redfuser.frontend.record import BOOL, Recorder, Value, result_dtype
from redfuser.frontend.remedies import LISTED
from redfuser.frontend.source import located
from redfuser.frontend.tracer import Tracer, lift
from redfuser.ir.dtypes import is_float

ELEMENTWISE = frozenset({
    np.add, np.subtract, np.multiply, np.true_divide, np.power, np.maximum, np.minimum, np.negative, np.positive,
    np.absolute, np.fabs, np.sign, np.sqrt, np.square, np.reciprocal, np.exp, np.exp2, np.expm1, np.log, np.log2,
    np.log10, np.log1p, np.tanh, np.sin, np.cos, np.floor, np.ceil, np.trunc, np.rint, np.less, np.less_equal,
    np.greater, np.greater_equal, np.equal, np.not_equal, np.logical_and, np.logical_or, np.logical_not,
    np.logical_xor, np.isnan, np.isinf, np.isfinite,
})
"""Ufuncs that every later level has a meaning for, with any operands that NumPy accepts."""

BITWISE = {np.bitwise_and: np.logical_and, np.bitwise_or: np.logical_or, np.invert: np.logical_not,
           np.bitwise_xor: np.logical_xor}
"""Bitwise ufuncs are the logical ones on bool; on integers they have no meaning here."""

INTEGER = frozenset({np.floor_divide, np.remainder})
"""Ufuncs for index arithmetic: integers only."""

REDUCERS = frozenset({np.add, np.multiply, np.maximum, np.minimum, np.logical_or, np.logical_and})


def call_ufunc(recorder: Recorder, ufunc: np.ufunc, method: str, inputs: tuple[Any, ...],
               kwargs: dict[str, Any]) -> Any:
    """Record `ufunc(*inputs)` or `ufunc.reduce(x, axis=...)`.

    Raises
    ------
    TraceError
        for other ufuncs, methods and keywords.
    """
    if ufunc is np.matmul and method == "__call__" and not kwargs:
        from redfuser.frontend.contract import matmul

        return matmul(*inputs)
    if method == "reduce" and ufunc in REDUCERS:
        from redfuser.frontend.reductions import reduce

        return reduce(ufunc, *inputs, **{"axis": 0, **kwargs})
    if method == "reduce" and ufunc is np.logaddexp:
        from redfuser.frontend.reductions import logaddexp

        return logaddexp(*inputs, **{"axis": 0, **kwargs})
    where = kwargs.pop("where", True)
    if kwargs.pop("out", None) is not None or where is not True:
        raise TraceError(located(f"np.{ufunc.__name__} with out= or where= cannot be recorded; assign the result to a "
                                 "name, and choose elements with np.where"))
    dtype = kwargs.pop("dtype", None)
    if method != "__call__" or kwargs:
        raise TraceError(located(f"np.{ufunc.__name__} with method {method!r} and keywords {sorted(kwargs)} cannot be "
                                 "recorded; use the plain call or a reduction"))
    values = [lift(recorder, x) for x in inputs]
    if ufunc in FORMULAS:
        dtype = result_dtype(ufunc, values) if dtype is None else dtype
    if dtype is not None:
        values = [recorder.cast(v, np.dtype(dtype)) for v in values]
    if ufunc in FORMULAS:
        return FORMULAS[ufunc](*(Tracer(recorder, v) for v in values))
    return Tracer(recorder, elementwise(recorder, ufunc, values))


def elementwise(recorder: Recorder, ufunc: np.ufunc, values: list[Value]) -> Value:
    """Record a supported elementwise ufunc; TraceError for others."""
    return recorder.ufunc(supported(ufunc, values), *values)


def supported(ufunc: np.ufunc, values: list[Value]) -> np.ufunc:
    """The ufunc to record for `ufunc` on operands of these dtypes.

    Raises
    ------
    TraceError
        when later levels have no meaning for it.
    """
    name = ufunc.__name__
    if ufunc in BITWISE:
        if any(v.dtype != BOOL for v in values):
            raise TraceError(located(f"np.{name} on integers cannot be recorded; use // and % for index arithmetic, "
                                     "and comparisons for masks"))
        return BITWISE[ufunc]
    if ufunc in INTEGER:
        if any(is_float(v.dtype) for v in values):
            raise TraceError(located(f"np.{name} of floating-point arrays cannot be recorded; use np.floor(a / b)"))
        return ufunc
    if ufunc not in ELEMENTWISE:
        raise TraceError(located(f"np.{name} cannot be recorded; {LISTED}"))
    return ufunc
