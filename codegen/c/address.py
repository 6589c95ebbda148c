"""Addresses: element strides of buffers, offsets of cells, and how an offset moves with a variable."""

from __future__ import annotations

from redfuser.codegen.c.names import Names
from redfuser.codegen.c.types import Text
from redfuser.codegen.nodes import At, Buf
from redfuser.errors import CheckError
from redfuser.ir import Const, Expr, Op, Var, op, rewrite, walk

ZERO, ONE = Const(0), Const(1)


def mentions(e: Expr, var: str) -> bool:
    """Whether variable `var` occurs in `e`."""
    return any(isinstance(x, Var) and x.name == var for x in walk(e))


def plus(a: Expr, b: Expr) -> Expr:
    """a + b without the trivial cases."""
    return b if a == ZERO else a if b == ZERO else op("add", a, b)


def times(a: Expr, b: Expr) -> Expr:
    """a * b without the trivial cases."""
    if ZERO in (a, b):
        return ZERO
    return b if a == ONE else a if b == ONE else op("mul", a, b)


def tidy(e: Expr) -> Expr:
    """`e` without `+ 0`, `- 0`, `* 1` and `* 0`."""

    def rule(x: Expr) -> Expr | None:
        if not isinstance(x, Op):
            return None
        if x.fn == "add":
            return plus(*x.args)
        if x.fn == "mul":
            return times(*x.args)
        return x.args[0] if x.fn == "sub" and x.args[1] == ZERO else None

    return rewrite(e, rule)


def coefficient(e: Expr, var: str) -> Expr | None:
    """What `e` grows by when `var` grows by 1; None when that is not the same everywhere (or not seen to be)."""
    if not mentions(e, var):
        return ZERO
    if isinstance(e, Var):
        return ONE
    if isinstance(e, Op) and e.fn in ("add", "sub", "mul", "neg"):
        parts = [coefficient(a, var) for a in e.args]
        if any(p is None for p in parts):
            return None
        a, b = parts[0], parts[-1]
        assert a is not None
        assert b is not None
        if e.fn == "add":
            return plus(a, b)
        if e.fn == "sub":
            return a if b == ZERO else op("sub", a, b)
        if e.fn == "neg":
            return op("sub", ZERO, a)
        if b == ZERO:
            return times(a, e.args[1])
        if a == ZERO:
            return times(e.args[0], b)
    return None


class Addresses:
    """Strides and offsets of the buffers of one kernel."""

    def __init__(self, names: Names) -> None:
        self._names = names

    def base(self, buf: Buf) -> str:
        """C identifier of the buffer: a pointer, or the scalar itself for a reg."""
        return self._names.get("buffer", buf.name)

    def stride_name(self, buf: Buf, dim: int) -> str:
        """C identifier of a run-time element stride."""
        return self._names.get("stride", f"{buf.name}:{dim}", f"{buf.name}_stride_{dim}")

    def strides(self, buf: Buf) -> list[Expr]:
        """Element stride of every dimension: run-time numbers for global buffers, row-major for all others."""
        if buf.home == "global":
            return [ONE if d == buf.unit else Text(self.stride_name(buf, d)) for d in range(len(buf.shape))]
        result: list[Expr] = []
        step: Expr = ONE
        for length in reversed(buf.shape):
            result.append(step)
            step = times(length, step)
        return result[::-1]

    def offset(self, at: At) -> Expr:
        """Element offset of a cell from the start of its buffer.

        Raises
        ------
        CheckError
            when the number of indices is not the rank of the buffer.
        """
        if len(at.idx) != len(at.buf.shape):
            raise CheckError(f"{at.buf.name} has {len(at.buf.shape)} dimensions but {len(at.idx)} indices")
        total: Expr = ZERO
        for index, stride in zip(at.idx, self.strides(at.buf), strict=True):
            total = plus(total, times(index, stride))
        return total

    def step(self, at: At, var: str) -> Expr | None:
        """How far the cell moves, in elements, when `var` grows by 1; None when that varies."""
        total: Expr = ZERO
        for index, stride in zip(at.idx, self.strides(at.buf), strict=True):
            c = coefficient(index, var)
            if c is None:
                return None
            total = plus(total, times(c, stride))
        return total
