"""Dtypes: by name, as storage and as arithmetic; and that of an expression's value, for a stored intermediate result.

A dtype says how numbers lie in memory. The narrow floating dtypes do no more than that: their numbers are computed
with, accumulated and kept between kernels in the dtype of `computed_in`, and rounded once, where an output is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from redfuser.errors import DTypeError
from redfuser.ir.expr import Cast, Const, Expr, Idx, Load, Op, Part, Reduce, Ref, Size, Tuple
from redfuser.ir.monoids import INDEX
from redfuser.ir.ops import OPS
from redfuser.ir.traverse import walk

DType = np.dtype[Any]

STORAGE_ONLY = {"float16": "float32", "bfloat16": "float32", "float8_e4m3fn": "float32", "float8_e5m2": "float32"}
"""Name of a dtype that only stores numbers -> that of the arithmetic on them."""

EXTENSIONS = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
"""Dtypes that NumPy itself does not have; the package ml_dtypes defines them."""

_INTEGER_RESULT = ("idiv", "imod")
distinct = walk
_SAME_KIND = ("add", "sub", "mul", "max", "min", "neg", "abs", "sign", "floor", "ceil", "rint")


def numpy_dtype(dtype: Any) -> DType:
    """The NumPy dtype of a name (or of whatever else NumPy takes for one).

    Raises
    ------
    DTypeError
        for a dtype of ml_dtypes, when that is not installed.
    TypeError
        as NumPy, for what is no dtype.
    """
    if isinstance(dtype, str) and dtype in EXTENSIONS:
        try:
            import ml_dtypes
        except ImportError:
            raise DTypeError(f"{dtype} arrays need the package ml_dtypes: pip install ml-dtypes") from None
        dtype = getattr(ml_dtypes, dtype)
    found: DType = np.dtype(dtype)
    return found


@lru_cache(maxsize=256)  # the name of a dtype takes NumPy a microsecond or three
def computed_in(dtype: Any) -> DType:
    """The dtype of arithmetic on numbers of a dtype: itself, unless it only stores them."""
    found = numpy_dtype(dtype)
    return np.dtype(STORAGE_ONLY[found.name]) if found.name in STORAGE_ONLY else found


@lru_cache(maxsize=256)
def is_float(dtype: Any) -> bool:
    """Whether a dtype has floating-point numbers. NumPy calls the kind of dtypes that others define V, void."""
    found = numpy_dtype(dtype)
    return found.kind == "f" or found.name in STORAGE_ONLY


def is_number(dtype: Any) -> bool:
    """Whether a dtype has real numbers or truth values."""
    return is_float(dtype) or numpy_dtype(dtype).kind in "biu"


def converted(array: Any, dtype: Any) -> Any:
    """`astype` as every level means it: a number out of the range of an integer dtype wraps around.

    NumPy itself leaves to the processor what a floating number out of range becomes. Here its digits before the point
    wrap as those of an integer do; what int64 cannot hold, NaN included, is the least int64. And ml_dtypes rounds
    float64 twice, by way of float32.
    """
    found, target = np.asarray(array), numpy_dtype(dtype)
    if target.name in EXTENSIONS and found.dtype.kind == "f" and found.dtype.itemsize > 4:
        return _odd_floats(found).astype(target)
    if found.dtype.kind in "biu" or target.kind not in "iu":
        return found.astype(target)
    held = np.abs(found) < 2.0**63
    whole = np.where(held, found, 0).astype(np.int64)
    return np.where(held, whole, np.iinfo(np.int64).min).astype(target)


def _odd_floats(array: Any) -> Any:
    """As float32, the last bit set where anything is lost: rounded further, that is as if rounded once."""
    with np.errstate(all="ignore"):
        near = array.astype(np.float32)
        even = (near.view(np.int32) & 1) == 0
        side = np.where(array > near, np.float32(np.inf), np.float32(-np.inf))
        return np.where(even & np.isfinite(near) & (near != array), np.nextafter(near, side), near)


def finfo(dtype: Any) -> Any:
    """`np.finfo`, also of dtypes that NumPy does not have."""
    found = numpy_dtype(dtype)
    if found.name not in EXTENSIONS:
        return np.finfo(found)
    import ml_dtypes

    return ml_dtypes.finfo(found)  # type: ignore[no-untyped-call]


def expr_dtype(e: Expr, known: Mapping[str, str]) -> str:
    """"bool", "int64", "float32" or "float64"; `known`: dtype of every tensor and definition that `e` reads.

    Real values get the widest dtype of arithmetic that takes part, float64 when there is none (a quotient of integers).
    """
    kind = _kind(e, known)
    if kind != "float":
        return "bool" if kind == "bool" else "int64"
    named = [known[x.tensor if isinstance(x, Load) else x.name] for x in walk(e) if isinstance(x, (Load, Ref))]
    named += [x.dtype for x in walk(e) if isinstance(x, Cast)]
    floats = [computed_in(d) for d in named if is_float(d)]
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
    return {"b": "bool", "i": "int", "u": "int"}.get(numpy_dtype(dtype).kind, "float")


def _widest(kinds: Iterable[str]) -> str:
    return max(kinds, key=("bool", "int", "float").index)
