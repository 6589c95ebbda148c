"""`assume`: conditions the caller guarantees, as facts for the algebra."""

from __future__ import annotations

from typing import Any

import numpy as np

from redfuser.errors import AssumptionError, TraceError
from redfuser.frontend.source import located
from redfuser.frontend.tracer import Tracer
from redfuser.ir import Expr


def assume(condition: Any) -> None:
    """State that a condition holds for every element: `rf.assume(x > 0)`, `rf.assume((0 <= p) & (p <= 1))`.

    In code that is being fused, the comparisons in the condition become facts that the algebra may use; nothing is
    computed for them. Elsewhere the condition is checked at once.

    Parameters
    ----------
    condition
        a bool array or scalar of any shape: comparisons of arrays, numbers and results, joined by `&`. A condition on
        a result (`w.sum() > 0`) speaks of its final value.

    Raises
    ------
    AssumptionError
        outside of fused code, when the condition is false anywhere.
    TraceError
        in fused code, for a condition that is not bool; for expressions of the mathematical level.
    """
    if isinstance(condition, Tracer):
        _record(condition)
        return
    if isinstance(condition, Expr):
        raise TraceError("assume() got an expression of the mathematical level: state it on the cascade, "
                         "cascade.assume(condition)")
    holds = np.asarray(condition)
    if holds.dtype != bool:
        raise TraceError(f"argument 'condition' of assume has dtype {holds.dtype}; write a comparison such as x > 0")
    if not holds.all():
        raise AssumptionError(f"the condition of assume is false for {int((~holds).sum())} of {holds.size} elements")


def _record(condition: Tracer) -> None:
    """Note the condition; `(x > 0).all()` says the same as `x > 0`."""
    value = condition.value
    if value.dtype != bool:
        raise TraceError(located(f"argument 'condition' of assume has dtype {value.dtype}; write a comparison such as "
                                 "x > 0"))
    while value.op == "reduce" and value.param[0] == "logical_and":
        value = value.inputs[0]
    condition.recorder.assumptions.append(value)
