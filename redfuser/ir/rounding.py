"""First-order bounds on rounding errors: sums give the sum of |terms|, exp the |score|.

Every operation rounds its result once, and passes on the errors of its operands times its derivatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from redfuser.ir.expr import Cast, Const, Expr, Op, Reduce, Ref
from redfuser.ir.interpret import Evaluator, broadcast
from redfuser.ir.term import Cascade
from redfuser.ir.traverse import free_axes, refs

Array = np.ndarray[Any, Any]


def finite_only(bound: Any) -> Array:
    """A bound with 0 in the place of what is not finite."""
    array = np.asarray(bound, np.longdouble)
    finite = np.isfinite(array)
    return array if finite.all() else np.where(finite, array, 0)


class Rounding:
    """Bounds on the rounding error of expressions, in units of eps, to first order, at known values of a definition.

    `results`: bounds of earlier results, aligned. Without them earlier results count as exact, and so do dependencies
    (what a stage computes from results alone): rounding a mean moves a sum of squared deviations in second order only,
    which the careful runs show and a first-order bound does not.
    """

    def __init__(self, values: Evaluator, cascade: Cascade, results: Mapping[str, Any] | None = None) -> None:
        self.values = values
        self.axis = cascade.axis
        self.results = results
        self.memo: dict[Expr, Any] = {}
        self.producers = {p.name: p for p in cascade.producers}

    def __call__(self, e: Expr) -> Any:
        """The bound, aligned like the value."""
        if e not in self.memo:
            with np.errstate(all="ignore"):
                self.memo[e] = finite_only(self._bound(e))
        return self.memo[e]

    def _bound(self, e: Expr) -> Any:
        if isinstance(e, Const):
            return 0 if float(e.value).is_integer() or not np.isfinite(float(e.value)) else abs(self.values(e))
        if self.results is None and self.axis not in free_axes(e) and refs(e):
            return 0
        if isinstance(e, Ref) and self.results is not None and e.name in self.results:
            return self.results[e.name]
        if isinstance(e, Ref) and e.name in self.producers:
            p = self.producers[e.name]
            table = {a: b for a, b in zip(p.axes, e.axes, strict=True) if a != b}
            return self(p.expr) if not table else abs(self.values(e))
        if isinstance(e, Cast):
            return self(e.body) + abs(self.values(e))
        if isinstance(e, Reduce):
            return self.reduced(e.monoid, e.axis, e.body)
        return self._operation(e) if isinstance(e, Op) else 0

    def reduced(self, monoid: str, axis: str, body: Expr) -> Any:
        """The bound of a reduction: of a sum, the sum of |terms| and of their own bounds."""
        own, terms = self(body), np.abs(np.asarray(self.values(body), np.longdouble))
        if monoid not in ("sum", "prod"):
            return self._over(np.maximum.reduce, axis, own)
        if monoid == "sum":
            return self._over(np.add.reduce, axis, own + finite_only(terms))
        whole = abs(self.values.reduce(monoid, axis, body))
        with np.errstate(all="ignore"):
            return whole * self._over(np.add.reduce, axis, finite_only(own / terms) + 1)

    def _over(self, f: Any, axis: str, bound: Any) -> Any:
        """Sum or maximum over an axis, which may be broadcast or empty."""
        position, n = self.values.order[axis], self.values.size(axis)
        array = np.asarray(bound)
        if array.ndim == 0:
            array = array.reshape([1] * len(self.values.order))
        shape = [n if i == position else m for i, m in enumerate(array.shape)]
        return f(broadcast(array, tuple(shape)), axis=position, keepdims=True) if n else np.zeros(1)

    def _operation(self, e: Op) -> Any:
        own = [self(a) for a in e.args]
        args = [np.asarray(self.values(a)) for a in e.args]
        value = np.abs(np.asarray(self.values(e), np.longdouble))
        if e.fn in ("add", "sub"):
            return own[0] + own[1] + value
        if e.fn == "mul":
            return own[0] * abs(args[1]) + own[1] * abs(args[0]) + value
        if e.fn == "div":
            return own[0] / abs(args[1]) + own[1] * value / abs(args[1]) + value
        if e.fn == "select":
            return np.where(args[0], own[1], own[2])
        if e.fn in ("max", "min"):
            return np.maximum(*own)
        if e.fn in ("neg", "abs", "sign"):
            return own[0]
        if e.fn == "pow":
            return value * (own[0] * abs(args[1]) / abs(args[0]) + own[1] * abs(np.log(abs(args[0]))) + 2)
        slope = _SLOPES.get(e.fn)
        return 0 if slope is None else own[0] * abs(slope(args[0], value)) + 2 * value


_SLOPES: dict[str, Any] = {
    "exp": lambda x, v: v, "exp2": lambda x, v: v, "expm1": lambda x, v: v + 1, "log": lambda x, v: 1 / x,
    "log2": lambda x, v: 2 / x, "log1p": lambda x, v: 1 / (1 + x), "sqrt": lambda x, v: 1 / (2 * v),
    "sin": lambda x, v: 1, "cos": lambda x, v: 1, "tanh": lambda x, v: 1 - v * v,
    "atan": lambda x, v: 1 / (1 + x * x),
}
"""|derivative| by operation, from the operand and |value|. Comparisons and integer operations have none."""
