"""What to write instead: the texts of refusals that depend on the user's own expression."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from redfuser.frontend.source import user_expression, user_line

LISTED = "docs/functions.md lists what can be recorded"

_INSTEAD = {"block": "return a tuple, and stack its arrays after the fused function"}
"""NumPy function -> what to write in its place; anything else has to happen outside."""


def missing(name: str) -> str:
    """The remedy for a NumPy function or method that cannot be recorded."""
    split = f"split the function there: fuse the parts before and after it, and call it between them ({LISTED})"
    return _INSTEAD.get(name, split)


def called(function: Any) -> str:
    """A function as the user's code names it, also one that another library defines."""
    name: str = function.__name__
    call = None if getattr(np, name, None) is function else _parsed(user_expression())
    if isinstance(call, ast.Call):
        return ast.unparse(call.func)
    return f"np.{name}" if getattr(np, name, None) is function else name


def branch_on_data() -> str:
    """What to write in the place of the branch on array values that is at the user's current line."""
    line = user_line()
    words = line.text.split() if line is not None else []
    if words[:1] == ["assert"]:
        return "state what you assert with rf.assume(condition), or check it outside"
    if words[:1] == ["while"]:
        return "data-dependent loops cannot be recorded; keep the loop outside and fuse its body"
    return _instead_of(_parsed(user_expression())) or "use np.where instead of `if`, `and`, `or`, `not`"


def _instead_of(e: ast.expr | None) -> str | None:
    """The recordable form of an expression that asks for a truth value; None when it has no such form."""
    if isinstance(e, ast.Compare) and len(e.ops) > 1:
        operands = [e.left, *e.comparators]
        pairs = zip(operands, e.ops, operands[1:], strict=False)
        parts = [ast.unparse(ast.Compare(a, [op], [b])) for a, op, b in pairs]
        return f"write {' & '.join(f'({part})' for part in parts)} instead of {ast.unparse(e)}"
    if isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id in ("max", "min"):
        name = {"max": "maximum", "min": "minimum"}[e.func.id]
        if len(e.args) == 2 and not e.keywords:
            return f"write np.{name}({', '.join(map(ast.unparse, e.args))}) instead of {ast.unparse(e)}"
        return f"use np.{name} of two arrays, or x.{e.func.id}() of one, instead of Python's {e.func.id}"
    return None


def out_of_place() -> str:
    """What to write in the place of the augmented assignment at the user's current line."""
    line = user_line()
    try:
        found = ast.parse(line.text).body[0] if line is not None else None
    except SyntaxError:
        found = None
    if isinstance(found, ast.AugAssign):
        target = ast.unparse(found.target)
        value = ast.unparse(ast.BinOp(ast.Name(target), found.op, found.value))
        return f"write {target} = {value} instead of {ast.unparse(found)}"
    return "write x = x * y instead of x *= y"


def _parsed(text: str | None) -> ast.expr | None:
    try:
        return None if text is None else ast.parse(text, mode="eval").body
    except SyntaxError:
        return None


def shown_slice(k: slice) -> str:
    """A slice as it was written."""
    start, stop, step = ("" if x is None else str(x) for x in (k.start, k.stop, k.step))
    return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"
