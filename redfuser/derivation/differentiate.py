"""Derivatives of scalar expressions, for the question of what a result depends on.

Steps (comparisons, roundings, signs) count as constants: the derivative is that of the smooth piece a point lies on.
"""

from __future__ import annotations

from collections.abc import Callable

from redfuser.derivation.simplify import collapse
from redfuser.ir import Cast, Const, Expr, Op, op, select

ZERO, ONE = Const(0), Const(1)
_LN2 = op("log", Const(2))

_PARTIALS: dict[str, Callable[[Op], tuple[Expr, ...]]] = {
    "add": lambda e: (ONE, ONE),
    "sub": lambda e: (ONE, Const(-1)),
    "mul": lambda e: (e.args[1], e.args[0]),
    "div": lambda e: (ONE / e.args[1], -e.args[0] / (e.args[1] * e.args[1])),
    "pow": lambda e: (e.args[1] * op("pow", e.args[0], e.args[1] - 1), op("log", e.args[0]) * e),
    "max": lambda e: (select(e.args[0] >= e.args[1], ONE, ZERO), select(e.args[0] >= e.args[1], ZERO, ONE)),
    "min": lambda e: (select(e.args[0] <= e.args[1], ONE, ZERO), select(e.args[0] <= e.args[1], ZERO, ONE)),
    "select": lambda e: (ZERO, select(e.args[0], ONE, ZERO), select(e.args[0], ZERO, ONE)),
    "neg": lambda e: (Const(-1),),
    "abs": lambda e: (op("sign", e.args[0]),),
    "sqrt": lambda e: (1 / (2 * e),),
    "exp": lambda e: (e,),
    "exp2": lambda e: (e * _LN2,),
    "expm1": lambda e: (e + 1,),
    "log": lambda e: (1 / e.args[0],),
    "log2": lambda e: (1 / (e.args[0] * _LN2),),
    "log1p": lambda e: (1 / (1 + e.args[0]),),
    "tanh": lambda e: (1 - e * e,),
    "sin": lambda e: (op("cos", e.args[0]),),
    "atan": lambda e: (1 / (1 + e.args[0] * e.args[0]),),
    "cos": lambda e: (-op("sin", e.args[0]),),
}
"""Operation -> derivative by each operand. Operations without an entry are piecewise constant."""


def derivative(e: Expr, by: Expr) -> Expr:
    """The derivative of `e` by a subexpression `by` (a load, a reference) that no other part of `e` depends on."""
    memo: dict[Expr, Expr] = {}

    def go(x: Expr) -> Expr:
        if x == by:
            return ONE
        found = memo.get(x)
        if found is None:
            found = memo[x] = _chain(x, go)
        return found

    return go(e)


def _chain(e: Expr, inner: Callable[[Expr], Expr]) -> Expr:
    if isinstance(e, Cast) and e.dtype.startswith(("float", "bfloat")):
        return inner(e.body)
    if not isinstance(e, Op) or e.fn not in _PARTIALS:
        return ZERO
    moved = [inner(a) for a in e.args]
    total: Expr = ZERO
    if any(m != ZERO for m in moved):
        for partial, m in zip(_PARTIALS[e.fn](e), moved, strict=True):
            total = total if m == ZERO else collapse(total + partial * m)
    return total
