"""Expressions as MathML (the Core subset that browsers draw without scripts): the twin of `redfuser.rules.latex`."""

from __future__ import annotations

import re
from fractions import Fraction
from html import escape

from redfuser.ir import Cast, Const, Expr, Idx, Load, New, Old, Op, Part, Reduce, Ref, Size, Tuple, Var
from redfuser.ir.ops import label
from redfuser.ir.show import show_number
from redfuser.rules.language import STREAM

_INFIX = {"add": ("+", 1), "sub": ("\u2212", 1), "mul": ("\u2062", 2), "lt": ("<", 0), "le": ("≤", 0), "gt": (">", 0),
          "ge": ("≥", 0), "eq": ("=", 0), "ne": ("≠", 0), "and": ("∧", 0), "or": ("\u2228", 0)}
"""Operation -> (sign, how tightly it binds); a product has the invisible sign."""
_REDUCERS = {"sum": "∑", "prod": "∏"}
_WORDS = {"log2": "log", "atan": "arctan"}
TIMES = "\u00d7"


def tag(name: str, /, *children: str, **attributes: str) -> str:
    """An element; children are MathML already."""
    given = "".join(f' {k}="{escape(v)}"' for k, v in attributes.items())
    return f"<{name}{given}>{''.join(children)}</{name}>"


def word(text: str) -> str:
    """A name, upright if it has several letters."""
    return tag("mi", escape(text))


def sign(text: str, **attributes: str) -> str:
    """An operator."""
    return tag("mo", escape(text), **attributes)


def row(*children: str) -> str:
    """Parts side by side."""
    return children[0] if len(children) == 1 else tag("mrow", *children)


def fenced(*children: str, left: str = "(", right: str = ")") -> str:
    """Parts in brackets."""
    fence = {"fence": "true", "stretchy": "true"}
    return row(sign(left, form="prefix", **fence), *children, sign(right, form="postfix", **fence))


def symbol(name: str, axes: tuple[str | int, ...] = (), mark: str = "") -> str:
    """A name with its axes and a mark (old, new) as subscripts."""
    match = re.fullmatch(r"([A-Za-z]+)[ _]?(\w*)", name)
    stem, rest = match.groups() if match else (name, "")
    below = [tag("mn", x) if x.isdigit() else word(x) for x in (*rest.split("_"), *map(str, axes)) if x]
    below += [tag("mtext", escape(mark))] if mark else []
    if not below:
        return word(stem)
    listed = [below[0], *(x for b in below[1:] for x in (sign(",", separator="true"), b))]
    return tag("msub", word(stem), row(*listed))


def call(name: str, *arguments: str) -> str:
    """A function of arguments."""
    listed = [x for i, a in enumerate(arguments) for x in ((a,) if i == 0 else (sign(","), a))]
    return row(word(name), sign("\u2061"), fenced(*listed))


def mathml(e: Expr, stream: str = "n", *, grouped: bool = False) -> str:
    """The content of a `<math>` element; `stream` names the axis of reductions over the stream in rules.

    `grouped`: show how sums and products are grouped, and no product as a square: what a law may be about.

    Raises
    ------
    TypeError
        for an expression of a kind that is not known here.
    """
    return _Printer(stream, grouped).show(e)


class _Printer:
    """One expression. `outer`: how tightly the operation around binds; looser ones get brackets."""

    def __init__(self, stream: str, grouped: bool) -> None:
        self.stream = stream
        self.grouped = grouped

    def axis(self, name: str | int) -> str | int:
        return self.stream if name == STREAM else name

    def show(self, x: Expr, outer: int = 0) -> str:
        if isinstance(x, Const):
            return _number(x)
        if isinstance(x, Var):
            return symbol(x.name)
        if isinstance(x, (Old, New)):
            return symbol(x.name, mark="old" if isinstance(x, Old) else "new")
        if isinstance(x, Load):
            return symbol(x.tensor, tuple(map(self.axis, x.axes)))
        if isinstance(x, Ref):
            return symbol(x.name, x.axes)
        if isinstance(x, Op):
            return self.operation(x, outer)
        if isinstance(x, Reduce):
            return self.reduction(x.monoid, str(self.axis(x.axis)), x.body, outer)
        return self.rare(x)

    def rare(self, x: Expr) -> str:
        if isinstance(x, Idx):
            return word(str(self.axis(x.axis)))
        if isinstance(x, Size):
            return fenced(word(str(self.axis(x.axis))), left="|", right="|")
        if isinstance(x, Cast):
            return call(x.dtype, self.show(x.body))
        if isinstance(x, Part):
            places = [str(self.axis(a)).removeprefix("@") for a in x.axes]
            name = tag("msub", word(x.part), row(*map(word, places))) if places else word(x.part)
            return row(name, sign("\u2061"), fenced(self.show(x.body)))
        if isinstance(x, Tuple):
            return fenced(*(y for i, a in enumerate(x.args) for y in ((sign(","),) if i else ()) + (self.show(a),)))
        raise TypeError(f"no MathML for {type(x).__name__}")

    def reduction(self, monoid: str, axis: str, body: Expr, outer: int = 0) -> str:
        """A reduction of a body over an axis."""
        big = _REDUCERS.get(monoid)
        if big is not None:
            found = row(tag("munder", sign(big, largeop="true", movablelimits="false"), word(axis)),
                        self.show(body, 2))
            return _bracketed(found, 1, outer)
        kind, _, length = label(monoid).partition(":")
        name = tag("msup", word(kind), tag("mn", length)) if length else word(kind)
        return row(tag("munder", name, word(axis)), sign("\u2061"), fenced(self.show(body)))

    def operation(self, x: Op, outer: int) -> str:
        args = x.args
        if x.fn in _INFIX:
            return self.infix(x, outer)
        if x.fn == "neg":
            return _bracketed(row(sign("\u2212"), self.show(args[0], 2)), 1, outer)
        if x.fn == "div":
            return tag("mfrac", self.show(args[0]), self.show(args[1]))
        if x.fn in ("exp", "exp_below", "exp2", "exp2_below"):
            base = tag("mn", "2") if "2" in x.fn else word("e")
            return tag("msup", base, self.show(args[0]))
        if x.fn == "pow":
            return tag("msup", self.show(args[0], 3), self.show(args[1]))
        if x.fn == "sqrt":
            return tag("msqrt", self.show(args[0]))
        if x.fn == "abs":
            return fenced(self.show(args[0]), left="|", right="|")
        if x.fn == "select":
            return self.cases(*args)
        if x.fn == "log2":
            name = tag("msub", word("log"), tag("mn", "2"))
            return row(name, sign("\u2061"), fenced(self.show(args[0])))
        return call(_WORDS.get(x.fn, x.fn), *map(self.show, args))

    def infix(self, x: Op, outer: int) -> str:
        """Two operands with a sign between them."""
        (a, b), (text, level) = x.args, _INFIX[x.fn]
        if x.fn == "mul" and a == b and not self.grouped:
            return tag("msup", self.show(a, 3), tag("mn", "2"))
        left, right = level, level + 1 if x.fn == "sub" else level
        if self.grouped and x.fn in ("add", "mul"):
            left, right = (level + (isinstance(y, Op) and y.fn in _INFIX) for y in (a, b))
        between = sign(text)
        if x.fn == "mul":
            between = sign(TIMES) if isinstance(_first(b), Const) else sign(text, rspace="0.14em")
        return _bracketed(row(self.show(a, left), between, self.show(b, right)), level, outer)

    def cases(self, condition: Expr, a: Expr, b: Expr) -> str:
        """A choice: two lines behind a brace."""
        lines = ((self.show(a), row(tag("mtext", "if "), self.show(condition))), (self.show(b), tag("mtext", "else")))
        table = tag("mtable", *(tag("mtr", *(tag("mtd", cell) for cell in line)) for line in lines))
        return row(sign("{"), table)


def _first(e: Expr) -> Expr:
    """What a product begins with."""
    return _first(e.args[0]) if isinstance(e, Op) and e.fn == "mul" else e


def _bracketed(text: str, level: int, outer: int) -> str:
    return fenced(text) if level < outer else tag("mrow", text)


def _number(e: Const) -> str:
    if isinstance(e.value, Fraction) and e.value.denominator != 1:
        return tag("mfrac", tag("mn", str(e.value.numerator)), tag("mn", str(e.value.denominator)))
    text = show_number(e.value)
    plain = text.removeprefix("-").replace("inf", "∞")
    shown = tag("mi", "∞") if plain == "∞" else tag("mn", escape(plain))
    return row(sign("\u2212"), shown) if text.startswith("-") else shown
