"""The dtype of an expression's value: what a stored intermediate result needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from redfuser.ir.expr import Cast, Const, Expr, Idx, Load, Op, Part, Reduce, Ref, Size, Tuple, children
from redfuser.ir.monoids import INDEX
from redfuser.ir.ops import OPS

_INTEGER_RESULT = ("idiv", "imod")
_SAME_KIND = ("add", "sub", "mul", "max", "min", "neg", "abs", "sign", "floor", "ceil", "rint")


def distinct(e: Expr) -> Iterator[Expr]:
    """Every distinct subexpression once, the root first (`walk` visits shared ones once per occurrence)."""
    seen: set[Expr] = set()
    todo = [e]
    while todo:
        x = todo.pop()
        if x not in seen:
            seen.add(x)
            yield x
            todo.extend(reversed(children(x)))


def expr_dtype(e: Expr, known: Mapping[str, str]) -> str:
    """"bool", "int64", "float32" or "float64"; `known`: dtype of every tensor and definition that `e` reads.

    Real values get the widest floating dtype that takes part, float64 when there is none (a quotient of integers).
    """
    kind = _kind(e, known, {})
    if kind != "float":
        return "bool" if kind == "bool" else "int64"
    named = [known[x.tensor if isinstance(x, Load) else x.name] for x in distinct(e) if isinstance(x, (Load, Ref))]
    named += [x.dtype for x in distinct(e) if isinstance(x, Cast)]
    floats = [np.dtype(d) for d in named if np.dtype(d).kind == "f"]
    return str(np.result_type(*floats).name) if floats else "float64"


def _kind(e: Expr, known: Mapping[str, str], memo: dict[Expr, str]) -> str:
    """bool, int or float."""
    if e not in memo:
        memo[e] = _compute_kind(e, known, memo)
    return memo[e]


def _compute_kind(e: Expr, known: Mapping[str, str], memo: dict[Expr, str]) -> str:
    if isinstance(e, Const):
        return "bool" if isinstance(e.value, bool) else "int" if isinstance(e.value, int) else "float"
    if isinstance(e, (Load, Ref)):
        return _dtype_kind(known[e.tensor if isinstance(e, Load) else e.name])
    if isinstance(e, (Idx, Size)):
        return "int"
    if isinstance(e, Cast):
        return _dtype_kind(e.dtype)
    if isinstance(e, Reduce):
        body = _kind(e.body, known, memo)
        if e.monoid in ("any", "all"):
            return "bool"
        return "int" if body == "bool" and e.monoid in ("sum", "prod") else body
    if isinstance(e, Part):
        return "int" if e.part == INDEX else _kind(e.body, known, memo)
    if isinstance(e, Tuple):
        return _widest(_kind(a, known, memo) for a in e.args)
    assert isinstance(e, Op)
    if OPS[e.fn].kind in ("compare", "logic"):
        return "bool"
    if e.fn == "select":
        return _widest(_kind(a, known, memo) for a in e.args[1:])
    if e.fn in _INTEGER_RESULT:
        return "int"
    if e.fn in _SAME_KIND or e.fn == "pow":
        return _widest(_kind(a, known, memo) for a in e.args)
    return "float"


def _dtype_kind(dtype: str) -> str:
    return {"b": "bool", "i": "int", "u": "int"}.get(np.dtype(dtype).kind, "float")


def _widest(kinds: Iterable[str]) -> str:
    return max(kinds, key=("bool", "int", "float").index)
