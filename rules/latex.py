"""Expressions as LaTeX: fractions, exponents, subscripts for axes, sums over the stream."""

from __future__ import annotations

import re
from fractions import Fraction

from redfuser.ir import Cast, Const, Expr, Idx, Load, New, Old, Op, Part, Reduce, Ref, Size, Tuple, Var
from redfuser.ir.ops import label
from redfuser.ir.show import show_number
from redfuser.rules.language import STREAM

_INFIX = {"add": ("+", 1), "sub": ("-", 1), "mul": (r"\,", 2), "lt": ("<", 0), "le": (r"\le", 0), "gt": (">", 0),
          "ge": (r"\ge", 0), "eq": ("=", 0), "ne": (r"\ne", 0), "and": (r"\land", 0), "or": (r"\lor", 0)}
_FUNCTIONS = {"log": r"\log", "log2": r"\log_2", "tanh": r"\tanh", "sin": r"\sin", "cos": r"\cos",
              "atan": r"\arctan", "max": r"\max", "min": r"\min"}
_REDUCERS = {"sum": r"\sum", "prod": r"\prod", "max": r"\max", "min": r"\min"}


def symbol(name: str, axes: tuple[str | int, ...] = (), mark: str = "") -> str:
    """A name with its axes and a mark (old, new) as subscripts."""
    match = re.fullmatch(r"([A-Za-z]+)[ _]?(\w*)", name)
    stem, rest = match.groups() if match else (name, "")
    stem = stem if len(stem) == 1 else rf"\mathrm{{{stem}}}"
    word = rest if rest.isdigit() or len(rest) <= 1 else rf"\mathrm{{{rest}}}".replace("_", r"\_")
    below = ",".join(x for x in (word, "".join(map(str, axes)), rf"\mathrm{{{mark}}}" if mark else "") if x)
    return f"{stem}_{{{below}}}" if below else stem


def latex(e: Expr, stream: str = "n") -> str:
    """LaTeX of an expression; `stream` names the axis of reductions over the stream in rules."""

    def axis(name: str) -> str:
        return stream if name == STREAM else name

    def go(x: Expr, outer: int = 0) -> str:
        if isinstance(x, Const):
            return _number(x)
        if isinstance(x, Var):
            return symbol(x.name)
        if isinstance(x, (Old, New)):
            return symbol(x.name, mark="old" if isinstance(x, Old) else "new")
        if isinstance(x, Load):
            return symbol(x.tensor, tuple(axis(a) if isinstance(a, str) else a for a in x.axes))
        if isinstance(x, Ref):
            return symbol(x.name, x.axes)
        if isinstance(x, Idx):
            return axis(x.axis)
        if isinstance(x, Size):
            return f"|{axis(x.axis)}|"
        if isinstance(x, Cast):
            return rf"\mathrm{{{x.dtype}}}\left({go(x.body)}\right)"
        if isinstance(x, Reduce):
            sign = _REDUCERS.get(x.monoid) or _monoid(x.monoid)
            return _wrap(f"{sign}_{{{axis(x.axis)}}} {go(x.body, 2)}", 1, outer)
        if isinstance(x, Part):
            place = f"_{{{axis(str(x.axes[0]).removeprefix('@'))}}}" if x.axes else ""
            return rf"\mathrm{{{x.part}}}{place}\left({go(x.body)}\right)"
        if isinstance(x, Tuple):
            return rf"\left({', '.join(map(go, x.args))}\right)"
        if isinstance(x, Op):
            return _op(x, outer)
        raise TypeError(f"no LaTeX for {type(x).__name__}")

    def _op(x: Op, outer: int) -> str:
        args = x.args
        if x.fn in _INFIX:
            sign, level = _INFIX[x.fn]
            right = level + 1 if x.fn == "sub" else level
            return _wrap(f"{go(args[0], level)} {sign} {go(args[1], right)}", level, outer)
        if x.fn == "neg":
            return _wrap(f"-{go(args[0], 2)}", 1, outer)
        if x.fn == "div":
            return rf"\frac{{{go(args[0])}}}{{{go(args[1])}}}"
        if x.fn in ("exp", "exp2"):
            return rf"{'e' if x.fn == 'exp' else '2'}^{{{go(args[0])}}}"
        if x.fn == "pow":
            return f"{go(args[0], 3)}^{{{go(args[1])}}}"
        if x.fn == "sqrt":
            return rf"\sqrt{{{go(args[0])}}}"
        if x.fn == "abs":
            return rf"\left|{go(args[0])}\right|"
        if x.fn == "select":
            c, a, b = map(go, args)
            return rf"\begin{{cases}}{a} & {c} \\ {b} & \text{{otherwise}}\end{{cases}}"
        name = _FUNCTIONS.get(x.fn, rf"\mathrm{{{x.fn}}}")
        return rf"{name}\left({', '.join(map(go, args))}\right)"

    return go(e)


def _monoid(name: str) -> str:
    """The sign of a monoid: the length of a sorted list is its index."""
    kind, _, length = label(name).partition(":")
    return rf"\mathrm{{{kind}}}" + (f"^{{{length}}}" if length else "")


def _wrap(text: str, level: int, outer: int) -> str:
    return rf"\left({text}\right)" if level < outer else text


def _number(e: Const) -> str:
    if isinstance(e.value, Fraction) and e.value.denominator != 1:
        return rf"\frac{{{e.value.numerator}}}{{{e.value.denominator}}}"
    text = show_number(e.value)
    return {"inf": r"\infty", "-inf": r"-\infty"}.get(text, text)
