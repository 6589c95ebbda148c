"""The value of integer expressions whose leaves are known: lengths, conditions on sizes, positions in a loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from redfuser.errors import CheckError
from redfuser.ir.expr import Const, Expr, Op

_BINARY: Mapping[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "max": max, "min": min,
    "idiv": lambda a, b: a // b if b else 0, "imod": lambda a, b: a % b if b else 0,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "and": lambda a, b: a and b, "or": lambda a, b: a or b,
}  # fmt: skip


def integer_value(e: Expr, known: Callable[[Expr], int | None]) -> int:
    """The value of an expression; truth values are 0 and 1.

    Parameters
    ----------
    known : the value of what is known, None for anything else

    Raises
    ------
    CheckError
        for what is neither known nor made of it.
    """
    value = known(e)
    if value is not None:
        return value
    if isinstance(e, Const):
        return int(e.value)
    if isinstance(e, Op):
        if e.fn == "select":
            return integer_value(e.args[1] if integer_value(e.args[0], known) else e.args[2], known)
        args = [integer_value(x, known) for x in e.args]
        if e.fn == "not":
            return int(not args[0])
        if e.fn in _BINARY:
            return int(_BINARY[e.fn](*args))
    raise CheckError(f"{e} has no integer value")
