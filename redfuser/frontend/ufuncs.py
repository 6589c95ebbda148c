"""NumPy ufuncs on traced arrays: calls and `ufunc.reduce`."""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.errors import TraceError
from redfuser.frontend.formulas import FORMULAS
from redfuser.frontend.record import BOOL, Recorder, Value, result_dtype
from redfuser.frontend.remedies import called, missing
from redfuser.frontend.source import located
from redfuser.frontend.tracer import Tracer, lift
from redfuser.ir.dtypes import is_float

ELEMENTWISE = frozenset({
    np.add, np.subtract, np.multiply, np.true_divide, np.power, np.maximum, np.minimum, np.negative, np.positive,
    np.absolute, np.fabs, np.sign, np.sqrt, np.square, np.reciprocal, np.exp, np.exp2, np.expm1, np.log, np.log2,
    np.log10, np.log1p, np.tanh, np.sin, np.cos, np.arctan, np.floor, np.ceil, np.trunc, np.rint, np.less,
    np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal, np.logical_and, np.logical_or, np.logical_not,
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
    if ufunc.signature is not None and method == "__call__":
        return _product(ufunc, inputs, kwargs)
    if method == "outer" and len(inputs) == 2:
        first, second = (Tracer(recorder, lift(recorder, x)) for x in inputs)
        return call_ufunc(recorder, ufunc, "__call__", (first[(..., *(None,) * second.ndim)], second), kwargs)
    if ufunc is np.divmod and method == "__call__" and not kwargs:
        return tuple(call_ufunc(recorder, part, method, inputs, {}) for part in (np.floor_divide, np.remainder))
    if method == "reduce" and ufunc in BITWISE and inputs[0].dtype == BOOL:
        ufunc = BITWISE[ufunc]
    if method == "reduce" and ufunc in REDUCERS:
        from redfuser.frontend.reductions import reduce

        return reduce(ufunc, *inputs, **{"axis": 0, **kwargs})
    if method == "reduce" and ufunc is np.logaddexp:
        from redfuser.frontend.reductions import logaddexp

        return logaddexp(*inputs, **{"axis": 0, **kwargs})
    where, out = kwargs.pop("where", True), kwargs.pop("out", None)
    if out is not None or where is not True:
        return _into(recorder, ufunc, method, inputs, kwargs, out, where)
    dtype = kwargs.pop("dtype", None)
    if method == "accumulate" or (method == "__call__" and ufunc.nout == 1 and dtype is None and not kwargs
                                  and not _is_known(ufunc)):
        from redfuser.frontend.host import run_by_numpy

        name = called(ufunc)
        if method == "__call__":
            return run_by_numpy(name, ufunc, inputs, kwargs)
        further = {} if dtype is None else {"dtype": dtype}
        return run_by_numpy(f"{name}.accumulate", ufunc.accumulate, inputs, kwargs | further)
    if method != "__call__" or kwargs:
        shown = f".{method}" * (method != "__call__") + f" with keywords {sorted(kwargs)}" * bool(kwargs)
        raise TraceError(located(f"{called(ufunc)}{shown} cannot be recorded; use the plain call or a reduction, "
                                 f"or {missing(ufunc.__name__)}"))
    values = [lift(recorder, x) for x in inputs]
    if ufunc in FORMULAS and dtype is None:
        found = result_dtype(ufunc, values)
        dtype = None if found == BOOL else found
    if dtype is not None:
        values = [recorder.cast(v, np.dtype(dtype)) for v in values]
    if ufunc in FORMULAS:
        return FORMULAS[ufunc](*(Tracer(recorder, v) for v in values))
    return Tracer(recorder, elementwise(recorder, ufunc, values))


def _is_known(ufunc: np.ufunc) -> bool:
    """Whether an elementwise operation is expressed by kernels."""
    return ufunc in ELEMENTWISE or ufunc in BITWISE or ufunc in INTEGER or ufunc in FORMULAS


def _into(recorder: Recorder, ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any],
          out: Any, where: Any) -> Tracer:
    """`ufunc(*inputs, out=..., where=...)`: `out` keeps its elements where `where` is false."""
    name = f"np.{ufunc.__name__}"
    target = out[0] if isinstance(out, tuple) else out
    if not isinstance(target, Tracer):
        problem = f"{name} with where= and no out= leaves elements undefined" if target is None else (
            f"{name} with out= an array from outside cannot be recorded")
        raise TraceError(located(f"{problem}; choose elements with np.where, or give out=np.zeros_like(x)"))
    result = call_ufunc(recorder, ufunc, method, inputs, kwargs).value
    if where is not True:
        kept = target.value if np.can_cast(target.dtype, result.dtype) else recorder.cast(target.value, result.dtype)
        result = recorder.where(lift(recorder, where), result, kept)
    return target.store(result, "assign the result to a name, and choose elements with np.where")


def _product(ufunc: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """np.matmul and the other ufuncs that sum over an axis."""
    from redfuser.frontend import contract

    name = ufunc.__name__
    found = getattr(contract, name, None)
    allowed = {"axis"} if name == "vecdot" else set()
    if found is None or not set(kwargs) <= allowed:
        raise TraceError(located(f"np.{name} with keywords {sorted(kwargs)} cannot be recorded; use the plain call, "
                                 "and assign the result to a name"))
    return found(*inputs, **kwargs)


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
            raise TraceError(located(f"np.{name} of floating-point arrays cannot be recorded; use np.floor(a / b), "
                                     "and a - b * np.floor(a / b) for the remainder"))
        return ufunc
    if ufunc not in ELEMENTWISE:
        raise TraceError(located(f"{called(ufunc)} cannot be recorded; {missing(name)}"))
    return ufunc
