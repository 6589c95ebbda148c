"""Scalar expressions as CUDA: those of C, with CUDA's functions and constants.

Functions are those of CUDA's library: expf, exp2f, logf, log2f, expm1f, log1pf, tanhf, sinf, cosf, atanf within 2 ulp,
powf within 4, those of double within 2; a power of doubles is exp(y log x), whose error grows with the exponent of the
result. Division and square root are rounded correctly. Results that are subnormal may be 0.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from redfuser.codegen.c.scalars import LIBM, Scalars, bare, power_text
from redfuser.codegen.c.types import BOOL, F32, F64, INT, literal
from redfuser.ir import Expr, Op
from redfuser.ir.ops import BELOW


def difference(e: Expr) -> Op | None:
    """The sum or difference of which an exponential is taken that is never positive. Its products are rounded before:
    see the C printer."""
    if isinstance(e, Op) and e.fn in BELOW.values():
        inner = e.args[0]
        if isinstance(inner, Op) and inner.fn in ("add", "sub"):
            return inner
    return None


class CudaScalars(Scalars):
    """Prints scalar expressions as CUDA."""

    def constant(self, value: int | float | Fraction | bool, kind: str) -> str:
        if kind == BOOL:
            return literal(value, kind)
        if kind == INT:
            whole = int(value)
            if whole == -(2**63):
                return "(-0x7fffffffffffffffll - 1)"
            return str(whole) if abs(whole) < 2**31 else f"{whole}ll"
        with np.errstate(over="ignore"):
            number = np.dtype(kind).type(float(value))
        if np.isfinite(number):
            return literal(value, kind)
        bits = int(number.view("uint32" if kind == F32 else "uint64"))
        return f"bits_float({bits:#x}u)" if kind == F32 else f"bits_double({bits:#x}ull)"

    def _op(self, e: Op) -> str:
        inner = difference(e)
        if inner is not None:
            kind = self.ctx.types.of(e)
            a, b = (self.product(x, kind) for x in inner.args)
            return self.call(e.fn, kind, f"{a} {'+' if inner.fn == 'add' else '-'} {b}")
        return super()._op(e)

    def product(self, e: Expr, kind: str) -> str:
        """A value; a product is rounded by itself, and the assembler joins it with nothing."""
        if isinstance(e, Op) and e.fn == "mul":
            a, b = (bare(self.of(x, kind)) for x in e.args)
            return f"__{'f' if kind == F32 else 'd'}mul_rn({a}, {b})"
        return self.of(e, kind)

    def call(self, fn: str, kind: str, arguments: str) -> str:
        if fn == "pow" and kind == F64:
            return f"power_float64({arguments})"
        if fn in ("sin", "cos") and kind == F64:
            return f"sine_float64({arguments}, {int(fn == 'cos')})"
        return f"{LIBM[fn]}{'f' if kind == F32 else ''}({arguments})"

    def power(self, base: str, exponent: int, one: str, kind: str) -> str:
        if exponent == 0:
            return one
        text = power_text(base, exponent, one) if abs(exponent) == 1 else f"power_of({base}, {abs(exponent)})"
        return f"({one} / {text})" if exponent < 0 and abs(exponent) > 1 else f"({text})"
