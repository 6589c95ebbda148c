"""The dtype of an expression's value: what a stored intermediate result needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from redfuser.ir.expr import Cast, Const, Expr, Idx, Load, Op, Part, Reduce, Ref, Size, Tuple
from redfuser.ir.monoids import INDEX
from redfuser.ir.ops import OPS
from redfuser.ir.traverse import walk

_INTEGER_RESULT = ("idiv", "imod")
distinct = walk
_SAME_KIND = ("add", "sub", "mul", "max", "min", "neg", "abs", "sign", "floor", "ceil", "rint")


def expr_dtype(e: Expr, known: Mapping[str, str]) -> str:
    """"bool", "int64", "float32" or "float64"; `known`: dtype of every tensor and definition that `e` reads.

    Real values get the widest floating dtype that takes part, float64 when there is none (a quotient of integers).
    """
    kind = _kind(e, known)
    if kind != "float":
        return "bool" if kind == "bool" else "int64"
    named = [known[x.tensor if isinstance(x, Load) else x.name] for x in walk(e) if isinstance(x, (Load, Ref))]
    named += [x.dtype for x in walk(e) if isinstance(x, Cast)]
    floats = [np.dtype(d) for d in named if np.dtype(d).kind == "f"]
    return str(np.result_type(*floats).name) if floats else "float64"


def _kind(e: Expr, known: Mapping[str, str]) -> str:
    """bool, int or float. Without recursion: expressions are deep."""
    kinds: dict[Expr, str] = {}
    todo = [e]
    while todo:
        x = todo[-1]
        parts = _decisive(x)
        waiting = [p for p in parts if p not in kinds]
        if waiting:
            todo += waiting
        else:
            kinds[todo.pop()] = _kind_of(x, [kinds[p] for p in parts], known)
    return kinds[e]


def _decisive(e: Expr) -> tuple[Expr, ...]:
    """The parts whose kinds decide that of an expression."""
    if isinstance(e, Reduce):
        return () if e.monoid in ("any", "all") else (e.body,)
    if isinstance(e, Part):
        return () if e.part == INDEX else (e.body,)
    if isinstance(e, Tuple):
        return e.args
    if isinstance(e, Op) and e.fn == "select":
        return e.args[1:]
    return e.args if isinstance(e, Op) and (e.fn in _SAME_KIND or e.fn == "pow") else ()


def _kind_of(e: Expr, parts: list[str], known: Mapping[str, str]) -> str:
    if isinstance(e, Const):
        return "bool" if isinstance(e.value, bool) else "int" if isinstance(e.value, int) else "float"
    if isinstance(e, (Load, Ref)):
        return _dtype_kind(known[e.tensor if isinstance(e, Load) else e.name])
    if isinstance(e, Cast):
        return _dtype_kind(e.dtype)
    if isinstance(e, (Idx, Size)) or (isinstance(e, Part) and e.part == INDEX):
        return "int"
    if isinstance(e, Reduce):
        if e.monoid in ("any", "all"):
            return "bool"
        return "int" if parts == ["bool"] and e.monoid in ("sum", "prod") else parts[0]
    if parts:
        return _widest(parts)
    assert isinstance(e, Op)
    if OPS[e.fn].kind in ("compare", "logic"):
        return "bool"
    return "int" if e.fn in _INTEGER_RESULT else "float"


def _dtype_kind(dtype: str) -> str:
    return {"b": "bool", "i": "int", "u": "int"}.get(np.dtype(dtype).kind, "float")


def _widest(kinds: Iterable[str]) -> str:
    return max(kinds, key=("bool", "int", "float").index)
