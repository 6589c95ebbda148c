"""Scalar expressions as C: integers, addresses, and floating values outside vector loops."""

from __future__ import annotations

from fractions import Fraction

from redfuser.codegen.c.address import tidy
from redfuser.codegen.c.context import Printing
from redfuser.codegen.c.types import BOOL, F32, F64, INT, SCALAR, Text, is_real, literal, narrowed, storage
from redfuser.codegen.nodes import At
from redfuser.errors import CheckError
from redfuser.ir import OPS, Cast, Const, Expr, Op, Size, Var, rewrite, small_power
from redfuser.ir.dtypes import STORAGE_ONLY
from redfuser.ir.term import base_axis

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
    "and": "&&",
    "or": "||",
}
LIBM = {
    "pow": "pow",
    "sqrt": "sqrt",
    "exp": "exp",
    "exp2": "exp2",
    "exp_below": "exp",
    "exp2_below": "exp2",
    "expm1": "expm1",
    "log": "log",
    "log2": "log2",
    "log1p": "log1p",
    "tanh": "tanh",
    "sin": "sin",
    "cos": "cos",
    "atan": "atan",
    "floor": "floor",
    "ceil": "ceil",
    "rint": "rint",
    "abs": "fabs",
}


def replace_var(e: Expr, var: str, value: Expr) -> Expr:
    """`e` with a variable replaced."""
    return rewrite(e, lambda x: value if isinstance(x, Var) and x.name == var else None)


def power_text(base: str, exponent: int, one: str) -> str:
    """C text of a small integer power of a named value."""
    product = " * ".join([base] * abs(exponent)) if exponent else one
    return product if exponent >= 0 else f"{one} / ({product})"


class Scalars:
    """Prints scalar expressions. Every result is parenthesised enough to stand anywhere in an expression.

    Another language of the C family changes how constants, functions of the library and powers are written.
    """

    def __init__(self, ctx: Printing) -> None:
        self.ctx = ctx

    def constant(self, value: int | float | Fraction | bool, kind: str) -> str:
        """A constant of an expression type."""
        return literal(value, kind)

    def call(self, fn: str, kind: str, arguments: str) -> str:
        """A function of the mathematical library."""
        return f"__builtin_{LIBM[fn]}{'f' if kind == F32 else ''}({arguments})"

    def power(self, base: str, exponent: int, one: str, kind: str) -> str:
        """A small integer power of a value that is computed once."""
        return f"__extension__({{ const {SCALAR[kind]} base_ = {base}; {power_text('base_', exponent, one)}; }})"

    def of(self, e: Expr, kind: str | None = None) -> str:
        """C text of `e`, converted to an expression type (its own by default)."""
        own = self.ctx.types.of(e)
        kind = kind or own
        if isinstance(e, Const):
            return self.constant(e.value, kind)
        text = self._text(e)
        if kind == own:
            return text
        if kind == BOOL:
            return f"({text} != 0)"
        return self._whole(text, own) if kind == INT and is_real(own) else f"({SCALAR[kind]}){text}"

    def _whole(self, text: str, own: str) -> str:
        """A real value as the integer before its point."""
        return f"whole_{own}({bare(text)})"

    def integer(self, e: Expr) -> str:
        """C text of an integer expression."""
        return self.of(tidy(e), INT)

    def pointer(self, at: At, var: str | None = None, value: Expr | None = None) -> str:
        """Address of a cell, optionally with a variable replaced."""
        offset = self.ctx.addresses.offset(at)
        if var is not None and value is not None:
            offset = replace_var(offset, var, value)
        base, offset = self.ctx.addresses.base(at.buf), tidy(offset)
        return base if offset == Const(0) else f"{base} + {bare(self.integer(offset))}"

    def cell(self, at: At) -> str:
        """The lvalue of a cell."""
        base = self.ctx.addresses.base(at.buf)
        return (
            base if at.buf.home == "reg" else f"{base}[{bare(self.integer(self.ctx.addresses.offset(at)))}]"
        )

    def store(self, at: At, e: Expr) -> str:
        """The statement that stores `e` to a cell."""
        return f"{self.cell(at)} = {self.stored(at.buf.dtype, e)};"

    def stored(self, dtype: str, e: Expr) -> str:
        """`e` converted to the element type of a buffer."""
        if dtype in STORAGE_ONLY:
            return self._rounded(dtype, e)
        if dtype == "float32" and self.ctx.types.of(e) == F64:
            return f"(float){self.of(e)}"
        return bare(self.of(e, self.ctx.types.converted(dtype)))

    def _rounded(self, dtype: str, e: Expr) -> str:
        """`e` rounded to a storage dtype."""
        kind = F64 if self.ctx.types.of(e) == F64 else F32
        return f"scalar_to_{dtype}({narrowed(bare(self.of(e, kind)), kind)})"

    def _text(self, e: Expr) -> str:
        ctx = self.ctx
        if isinstance(e, Text):
            return e.text
        if isinstance(e, Var):
            return ctx.names.get("variable", e.name)
        if isinstance(e, Size):
            axis = base_axis(e.axis)
            return (
                str(ctx.static[axis]) if axis in ctx.static else ctx.names.get("size", axis, f"{axis}_size")
            )
        if isinstance(e, At):
            return self._load(e)
        if isinstance(e, Cast):
            return self._cast(e)
        if isinstance(e, Op):
            return self._op(e)
        raise CheckError(f"{type(e).__name__} has no scalar form")

    def _load(self, e: At) -> str:
        text = self.cell(e)
        return text if e.buf.home == "reg" else self.loaded(text, e)

    def loaded(self, text: str, e: At) -> str:
        """An element of the buffer of `e` as it lies in memory, as a value."""
        dtype = e.buf.dtype
        if dtype == "bool":
            return f"({text} != 0)"
        if dtype in STORAGE_ONLY:
            text = f"scalar_from_{dtype}({text})"
        kind = self.ctx.types.of(e)
        own = "int64" if kind == INT else kind
        return text if dtype == own else f"({SCALAR[kind]}){text}"

    def _cast(self, e: Cast) -> str:
        kind = self.ctx.types.of(e)
        if e.dtype in STORAGE_ONLY:
            rounded = f"scalar_from_{e.dtype}({self._rounded(e.dtype, e.body)})"
            return f"({SCALAR[kind]}){rounded}" if kind == F64 else rounded
        if e.dtype == "float32" and kind == F64:
            return f"(double)(float){self.of(e.body, F64)}"
        if kind == INT:
            whole = self.of(e.body, INT)
            return whole if e.dtype == "int64" else f"(int64_t)({storage(e.dtype)}){whole}"
        return self.of(e.body, kind)

    def _op(self, e: Op) -> str:
        kind = self.ctx.types.of(e)
        if e.fn == "not":
            return f"!{self.of(e.args[0], BOOL)}"
        if e.fn == "select":
            a, b = (self.of(x, kind) for x in e.args[1:])
            return f"({self.of(e.args[0], BOOL)} ? {a} : {b})"
        if OPS[e.fn].kind in ("compare", "logic"):
            common = BOOL if OPS[e.fn].kind == "logic" else self._common(e.args)
            a, b = (self.of(x, common) for x in e.args)
            return f"({a} {_INFIX[e.fn]} {b})"
        if e.fn in ("idiv", "imod"):
            return self._integer_division(e)
        if e.fn == "pow" and small_power(e.args[1]) is not None:
            return self._power(e, kind)
        args = [self.of(x, kind) for x in e.args]
        if e.fn in ("max", "min", "sign"):
            return f"{e.fn}_{'int' if kind == INT else kind}({', '.join(map(bare, args))})"
        if e.fn in _INFIX:
            return f"({args[0]} {_INFIX[e.fn]} {args[1]})"
        if e.fn == "neg":
            return f"(-{args[0]})"
        if e.fn == "abs" and not is_real(kind):
            return f"abs_int({bare(args[0])})"
        return self.call(e.fn, kind, ', '.join(map(bare, args)))

    def _common(self, args: tuple[Expr, ...]) -> str:
        """The type in which operands of a comparison meet."""
        kinds = {self.ctx.types.of(a) for a in args}
        strong = {self.ctx.types.of(a) for a in args if not isinstance(a, Const)}
        if not kinds & {F32, F64}:
            return INT
        return F64 if F64 in strong else self.ctx.kernel.compute

    def _integer_division(self, e: Op) -> str:
        """Exact C operators where the sign is known (sizes over positive constants), else rounding down."""
        a, b = (self.of(x, INT) for x in e.args)
        divisor = e.args[1]
        if isinstance(divisor, Const) and divisor.value > 0 and _never_negative(e.args[0]):
            return f"({a} {'/' if e.fn == 'idiv' else '%'} {b})"
        return f"{'floor_div' if e.fn == 'idiv' else 'floor_mod'}({bare(a)}, {bare(b)})"

    def _power(self, e: Op, kind: str) -> str:
        exponent = small_power(e.args[1])
        assert exponent is not None
        base, one = self.of(e.args[0], kind), self.constant(1, kind)
        if isinstance(e.args[0], (Var, Const, Text)) or abs(exponent) < 2:
            return f"({power_text(base, exponent, one)})"
        return self.power(base, exponent, one, kind)


def _never_negative(e: Expr) -> bool:
    """Whether an index expression consists of sizes, non-negative constants, sums, products and quotients."""
    if isinstance(e, Const):
        return e.value >= 0
    if isinstance(e, Size):
        return True
    return (
        isinstance(e, Op)
        and e.fn in ("add", "mul", "idiv", "imod", "max", "min")
        and all(_never_negative(a) for a in e.args)
    )


def bare(text: str) -> str:
    """`text` without one pair of outer parentheses, for places that need none."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for i, c in enumerate(text):
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text[1:-1] if i == len(text) - 1 else text
    return text
