"""Readable text of expressions: infix, minimal parentheses, index notation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from fractions import Fraction

from redfuser.ir.expr import Cast, Const, Expr, Idx, Load, New, Old, Op, Part, Reduce, Ref, Size, Tuple, Var
from redfuser.ir.ops import OPS, label
from redfuser.ir.traverse import children, walk, written_size


def show_number(value: int | float | Fraction) -> str:
    """A number as a reader would write it."""
    if isinstance(value, Fraction):
        as_float = float(value)
        exact = Fraction(as_float) == value
        return show_number(as_float) if exact else f"{value.numerator}/{value.denominator}"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return repr(value)


def _indexed(name: str, axes: tuple[str | int, ...]) -> str:
    return f"{name}[{','.join(map(str, axes))}]" if axes else name


LARGEST = 1000
"""Nodes of an expression that is written out whatever it shares."""


def show(e: Expr, leaf: Callable[[Expr], str | None] = lambda _: None) -> str:
    """Text of an expression; `leaf` may override the text of a node (used by the tile printer).

    What a large expression reads more than once is written once: ".. $1 .. $1 .. where $1 = ..".
    """
    shared = _shared(e) if written_size(e) > LARGEST else []
    if not shared:
        return _text(e, leaf)
    names = {x: f"${i}" for i, x in enumerate(shared, 1)}

    def named(x: Expr) -> str | None:
        return names.get(x) or leaf(x)

    def definition(x: Expr) -> str:
        return f"{names[x]} = {_text(x, lambda y: leaf(y) if y is x else named(y))}"

    return f"{_text(e, named)} where {', '.join(map(definition, shared))}"


def _shared(e: Expr) -> list[Expr]:
    """Compound subexpressions that are read more than once, the smallest first."""
    reads = Counter(c for x in walk(e) for c in children(x) if children(c))
    return sorted((x for x, times in reads.items() if times > 1), key=written_size)


def _text(e: Expr, leaf: Callable[[Expr], str | None]) -> str:
    def go(x: Expr, outer: int) -> str:
        text = leaf(x)
        if text is not None:
            return text
        if isinstance(x, Const):
            text = show_number(x.value)
            return f"({text})" if text.startswith("-") and outer > 4 else text
        if isinstance(x, Load):
            return _indexed(x.tensor, x.axes)
        if isinstance(x, Ref):
            return _indexed(x.name, x.axes)
        if isinstance(x, Idx):
            return f"#{x.axis}"
        if isinstance(x, Size):
            return f"|{x.axis}|"
        if isinstance(x, Old):
            return f"{x.name}_old"
        if isinstance(x, New):
            return f"{x.name}_new"
        if isinstance(x, Var):
            return x.name
        if isinstance(x, Cast):
            return f"{x.dtype}({go(x.body, 0)})"
        if isinstance(x, Reduce):
            return f"{label(x.monoid)}_{x.axis}({go(x.body, 0)})"
        if isinstance(x, Part):
            return _indexed(f"{go(x.body, 9)}.{x.part}", x.axes)
        if isinstance(x, Tuple):
            return f"({', '.join(go(a, 0) for a in x.args)})"
        if isinstance(x, Op):
            info = OPS[x.fn]
            if info.symbol and info.arity == 2:
                p = info.precedence
                same = isinstance(x.args[1], Op) and x.args[1].fn == x.fn
                right = p if same and x.fn in ("add", "mul", "and", "or") else p + 1
                text = f"{go(x.args[0], p)} {info.symbol} {go(x.args[1], right)}"
                return f"({text})" if p < outer else text
            if info.symbol:
                text = f"{info.symbol}{go(x.args[0], info.precedence)}"
                return f"({text})" if info.precedence < outer else text
            return f"{x.fn}({', '.join(go(a, 0) for a in x.args)})"
        if type(x).__str__ is not Expr.__str__:  # leaves of later levels bring their own text
            return str(x)
        raise TypeError(f"no text for {type(x).__name__}")

    return go(e, 0)
