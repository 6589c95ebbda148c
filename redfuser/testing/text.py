"""Cascades and arrays as Python text that builds them again: what a reproducible report is made of."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from redfuser.ir import OPS, Cascade, Cast, Const, Expr, Idx, Load, Op, Part, Reduce, Ref, Size, Tuple
from redfuser.ir.dtypes import EXTENSIONS

INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "pow": "**", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
MOST_PRINTED = 2000
"""Elements of an array that is printed."""
IMPORTS = (
    "import numpy as np\n"
    "from fractions import Fraction\n"
    "from redfuser.ir import *\n"
    "inf, nan = np.inf, np.nan\n"
)


def expression_text(e: Expr) -> str:
    """Python text whose value is `e`, given the names of `IMPORTS`."""
    if isinstance(e, Const):
        return f"Const({number_text(e.value)})"
    if isinstance(e, (Load, Ref)):
        return f"{type(e).__name__}({(e.tensor if isinstance(e, Load) else e.name)!r}, {e.axes!r})"
    if isinstance(e, (Idx, Size)):
        return f"{type(e).__name__}({e.axis!r})"
    if isinstance(e, Cast):
        return f"Cast({e.dtype!r}, {expression_text(e.body)})"
    if isinstance(e, Reduce):
        return f"Reduce({e.monoid!r}, {e.axis!r}, {expression_text(e.body)})"
    if isinstance(e, Part):
        return f"Part({e.part!r}, {e.axes!r}, {expression_text(e.body)})"
    if isinstance(e, Tuple):
        return f"Tuple(({', '.join(map(expression_text, e.args))},))"
    if not isinstance(e, Op):
        raise TypeError(f"{type(e).__name__} does not occur in a cascade")
    args = [expression_text(a) for a in e.args]
    if e.fn in INFIX and not all(isinstance(a, Const) for a in e.args):
        return " ".join((_operand(e.args[0], args[0]), INFIX[e.fn], _operand(e.args[1], args[1])))
    if e.fn in ("select", "not") or all(isinstance(a, Const) for a in e.args):
        return f"Op({e.fn!r}, ({', '.join(args)},))"
    return f"np.{OPS[e.fn].numpy.__name__}({', '.join(args)})"


def _operand(e: Expr, text: str) -> str:
    return f"({text})" if isinstance(e, Op) and e.fn in INFIX else text


def number_text(value: Any) -> str:
    """A number; infinities and NaN by the names that `IMPORTS` defines."""
    if isinstance(value, Fraction):
        return f"Fraction({value.numerator}, {value.denominator})"
    return repr(value.item() if isinstance(value, np.generic) else value)


def cascade_text(c: Cascade) -> str:
    """Python text whose value is the cascade."""
    def block(items: list[str]) -> str:
        return "(" + "".join(f"\n        {i}," for i in items) + ")" if items else "()"

    axes = [f"Axis({a.name!r}{'' if a.size is None else f', {a.size}'})" for a in c.axes]
    tensors = [f"Tensor({t.name!r}, {t.axes!r}, {t.dtype!r})" for t in c.tensors]
    producers = [f"Let({p.name!r}, {p.axes!r}, {expression_text(p.expr)})" for p in c.producers]
    stages = [f"Reduction({r.name!r}, {r.monoid!r}, {expression_text(r.body)}, {r.axes!r})" for r in c.reductions]
    outs = [f"Out({o.name!r}, {o.axes!r}, {expression_text(o.expr)}, {o.dtype!r})" for o in c.outs]
    parts = [f"{c.name!r}, {c.axis!r}, ({', '.join(axes)},)", *map(block, (tensors, producers, stages, outs))]
    if c.assumptions:
        parts.append(block(list(map(expression_text, c.assumptions))))
    return f"Cascade({', '.join(parts)})"


def array_text(array: np.ndarray[Any, Any]) -> str:
    """Python text of an array with its dtype; values are exact."""
    if not array.size:
        return f"np.zeros({array.shape}, {array.dtype.name!r})"
    return f"np.array({array.tolist()!r}, {array.dtype.name!r})"


def arrays_text(arrays: Mapping[str, Any]) -> str:
    """`arrays = {name: array, ...}`. An array too long to be read is the one that the counterexample holds."""
    def text(name: str, a: np.ndarray[Any, Any]) -> str:
        return array_text(a) if a.size <= MOST_PRINTED else f"found.counterexample.arrays[{name!r}]"

    needed = sorted({np.asarray(a).dtype.name for a in arrays.values()} & set(EXTENSIONS))
    head = f"import ml_dtypes  # defines {', '.join(needed)}\n" if needed else ""
    lines = "".join(f"\n    {n!r}: {text(n, np.asarray(a))}," for n, a in arrays.items())
    return f"{head}arrays = {{{lines}\n}}"
