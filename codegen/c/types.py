"""Types of tile-level expressions and how C writes them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from redfuser.codegen.nodes import At, Buf
from redfuser.errors import CheckError, DTypeError
from redfuser.ir import OPS, Cast, Const, Expr, Idx, Op, Size, Var, node

BOOL, INT, F32, F64 = "bool", "int", "float32", "float64"

STORAGE = {
    "bool": "uint8_t",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float8_e4m3fn": "uint8_t",
    "float8_e5m2": "uint8_t",
    "float32": "float",
    "float64": "double",
}
"""NumPy dtype name -> C type of an element in memory."""

ITEMSIZE = {
    "uint8_t": 1,
    "int8_t": 1,
    "uint16_t": 2,
    "int16_t": 2,
    "uint32_t": 4,
    "int32_t": 4,
    "float": 4,
    "uint64_t": 8,
    "int64_t": 8,
    "double": 8,
}
"""C type -> bytes."""

SCALAR = {BOOL: "int", INT: "int64_t", F32: "float", F64: "double"}
"""Expression type -> C type of a local scalar."""

_REAL_RESULT = frozenset(
    {
        "div",
        "pow",
        "sqrt",
        "exp",
        "exp2",
        "exp_below",
        "exp2_below",
        "expm1",
        "log",
        "log2",
        "log1p",
        "tanh",
        "sin",
        "cos",
        "atan",
        "floor",
        "ceil",
        "rint",
    }
)


def storage(dtype: str) -> str:
    """C type of an element of this dtype in memory.

    Raises
    ------
    DTypeError
        for a dtype that has no C counterpart.
    """
    if dtype not in STORAGE:
        raise DTypeError(
            f"dtype {dtype} cannot be compiled; convert the array to one of {', '.join(STORAGE)}"
        )
    return STORAGE[dtype]


def is_real(kind: str) -> bool:
    """Whether an expression type is a floating type."""
    return kind in (F32, F64)


def narrowed(text: str, kind: str) -> str:
    """C text of a real scalar as the float from which a storage dtype is rounded: so that it is rounded only once."""
    return f"odd_float({text})" if kind == F64 else text


@node
class Text(Expr):
    """C text of a known type: what the printer substitutes for a variable or a stride. Never leaves the printer."""

    text: str
    kind: str = INT


class Types:
    """The type of every expression of one kernel: bool, int, float32 or float64.

    Constants are weak: they take the type of what they meet. A kernel that computes in float64 has no float32 values;
    one that computes in float32 has float64 only as scalars (float64 variables and buffers).
    """

    def __init__(self, compute: str, variables: Mapping[str, str]) -> None:
        self.compute = compute
        self.variables = variables
        self._memo: dict[Expr, str] = {}

    def of(self, e: Expr) -> str:
        """The type of `e`.

        Raises
        ------
        CheckError
            for a node that has no place in a tile program, or an unbound variable.
        """
        if e not in self._memo:
            self._memo[e] = self._type(e)
        return self._memo[e]

    def element(self, buf: Buf) -> str:
        """The type of a loaded element: only workspace holds more than the compute dtype."""
        return self.compute if buf.home == "global" and buf.dtype == F64 else self.converted(buf.dtype)

    def converted(self, dtype: str) -> str:
        """The type of a value that was converted to a dtype."""
        if dtype == "bool":
            return BOOL
        if "int" in dtype:
            return INT
        return F64 if dtype == F64 else self.compute

    def _type(self, e: Expr) -> str:
        if isinstance(e, Const):
            return BOOL if isinstance(e.value, bool) else INT if isinstance(e.value, int) else self.compute
        if isinstance(e, Var):
            if e.name not in self.variables:
                raise CheckError(f"variable {e.name} is read before it is bound")
            return self.variables[e.name]
        if isinstance(e, Text):
            return e.kind
        if isinstance(e, At):
            return self.element(e.buf)
        if isinstance(e, (Size, Idx)):
            return INT
        if isinstance(e, Cast):
            return self.converted(e.dtype)
        if isinstance(e, Op):
            return self._op_type(e)
        raise CheckError(f"{type(e).__name__} has no place in a tile program")

    def _op_type(self, e: Op) -> str:
        kind = OPS[e.fn].kind
        if kind in ("compare", "logic"):
            return BOOL
        if kind == "integer":
            return INT
        operands = e.args[1:] if e.fn == "select" else e.args
        kinds = {self.of(a) for a in operands}
        if e.fn in _REAL_RESULT or kinds & {F32, F64}:
            strong = {self.of(a) for a in operands if not isinstance(a, Const)}
            return F64 if F64 in strong else self.compute
        return BOOL if e.fn == "select" and kinds == {BOOL} else INT


def literal(value: int | float | Fraction | bool, kind: str) -> str:
    """A constant of an expression type, as C writes it."""
    if kind == BOOL:
        return "1" if value else "0"
    if kind == INT:
        whole = int(value)
        return str(whole) if abs(whole) < 2**31 else f"INT64_C({whole})"
    with np.errstate(over="ignore"):
        number = np.dtype(kind).type(float(value))
    suffix = "f" if kind == F32 else ""
    if math.isnan(number):
        return f'__builtin_nan{suffix}("")'
    if math.isinf(number):
        return f"{'-' if number < 0 else ''}__builtin_inf{suffix}()"
    text = str(number)
    return (text if any(c in text for c in ".e") else f"{text}.0") + suffix
