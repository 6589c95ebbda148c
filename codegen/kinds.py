"""The type of every tile expression: bool, int or real (the compute dtype, or a wider scalar)."""

from __future__ import annotations

from collections.abc import Mapping

from redfuser.codegen.nodes import At
from redfuser.errors import CheckError
from redfuser.ir import OPS, Cast, Const, Expr, Op, Size, Var, op

BOOL, INT, REAL = "bool", "int", "real"


def dtype_kind(dtype: str) -> str:
    """The kind of values of a NumPy dtype name."""
    if dtype == "bool":
        return BOOL
    return INT if dtype.startswith(("int", "uint")) else REAL


def kind_of(e: Expr, scope: Mapping[str, str]) -> str:
    """The kind of `e`; `scope` maps variable names to kinds (a name it lacks is an integer index).

    Raises
    ------
    CheckError
        for a node that has no value in a tile program (a term-level leaf).
    """
    if isinstance(e, Const):
        return BOOL if isinstance(e.value, bool) else INT if isinstance(e.value, int) else REAL
    if isinstance(e, Var):
        return scope.get(e.name, INT)
    if isinstance(e, Size):
        return INT
    if isinstance(e, At):
        return dtype_kind(e.buf.dtype)
    if isinstance(e, Cast):
        return dtype_kind(e.dtype)
    if isinstance(e, Op):
        return _operation_kind(e, scope)
    raise CheckError(f"{type(e).__name__} is a term-level node; a tile program cannot hold it")


def _operation_kind(e: Op, scope: Mapping[str, str]) -> str:
    group = OPS[e.fn].kind
    if group in ("compare", "logic"):
        return BOOL
    if group == "integer":
        return INT
    kinds = [kind_of(a, scope) for a in (e.args[1:] if group == "select" else e.args)]
    if group == "select" and kinds == [BOOL, BOOL]:
        return BOOL
    whole = e.fn in ("add", "sub", "mul", "max", "min", "neg", "abs", "sign", "select")
    return REAL if REAL in kinds or not whole else INT


def as_number(e: Expr, scope: Mapping[str, str], dtype: str) -> Expr:
    """`e` as an operand of arithmetic: truth values count as 0 and 1 of `dtype`."""
    return Cast(dtype, e) if kind_of(e, scope) == BOOL else e


def as_truth(e: Expr, scope: Mapping[str, str]) -> Expr:
    """`e` as a condition: numbers are true when they differ from 0."""
    kind = kind_of(e, scope)
    return e if kind == BOOL else op("ne", e, 0 if kind == INT else 0.0)
