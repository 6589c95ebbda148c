"""The language of the e-graph (egglog text), and how expressions and rules are written in it.

Visible operations have nodes of their own; any other operation is an uninterpreted `F1`, `F2`, `F3` or `Over` node,
known to the engine by name only. There are no nodes for difference, quotient and negation: `a - b` is `a + (-1) b`,
`a / b` is `a (1/b)`; `decode` prints them back. Every expression that is a unit for the algebra (a load, a value of
an accumulator, ...) is a `Leaf` with a text and the bits of what it varies with (`VARIES`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from math import isfinite
from typing import Any

from redfuser.ir import Cast, Const, Expr, Op, Part, Reduce, Size, Tuple, Var, op, select
from redfuser.rules.language import ANY, NEW, STREAM

UNARY = {"exp": "Exp", "exp2": "Exp2", "log": "Log", "log2": "Log2", "sqrt": "Sqrt", "abs": "Abs", "tanh": "Tanh",
         "sin": "Sin", "cos": "Cos", "atan": "Atan"}
BINARY = {"add": "Add", "mul": "Mul", "max": "Max2", "min": "Min2"}
REDUCERS = {"sum": "Sum", "max": "MaxR", "min": "MinR"}
RELATIONS = {"positive": "pos", "nonnegative": "nneg", "nonpositive": "npos", "nonzero": "nz", "at_most": "leq",
             "changes": "changes", "last_resort": "resort", "expandable": "open", "separable": "wide"}
BEST = {"topk": "Best", "bottomk": "Least"}
"""Sorted lists of the k best elements: nodes with k. A single best element (argmax, argmin) has k = 0."""
_SINGLE = {"argmax": "topk:0", "argmin": "bottomk:0"}
VARIES = {STREAM: 1, NEW: 2}
"""The axes that laws and costs ask for, as bits: integers of the engine cost less than its sets."""
REDUCTION_NODES = frozenset({*REDUCERS.values(), *BEST.values(), "Over"})


def number(value: Fraction | int) -> str:
    """The text of a literal number."""
    q = Fraction(value)
    return f"(Num {_bigrat(q)})"


def _bigrat(q: Fraction) -> str:
    return f"(bigrat {_bigint(q.numerator)} {_bigint(q.denominator)})"


_LARGEST = 2**62
"""Integers from here on are no literals of the engine: numbers are read from text, powers are left as they are."""


def _bigint(n: int) -> str:
    if abs(n) < _LARGEST:
        return f"(bigint {n})"
    return f'(from-string "{n}")'


_ARITHMETIC = {"add": "+", "mul": "*", "div": "/"}
ZERO, ONE, MINUS_ONE = number(0), number(1), number(-1)
ZERO_BIGRAT = _bigrat(Fraction(0))


LeafOf = Callable[[Expr], "tuple[str, frozenset[str]] | None"]


def _no_leaf(_: Expr) -> None:
    return None


_NO_RATIONAL = "="
"""Begins the leaves of constants that are no rational numbers (=inf, =nan), and no text of an expression: a tensor may
be called inf."""


def _is_rational(value: Any) -> bool:
    return not isinstance(value, float) or isfinite(value)


class Encoder:
    """Writes expressions as egglog text. `leaf` names the units; pattern variables become egglog variables."""

    def __init__(self, leaf: LeafOf = _no_leaf, numbers: frozenset[str] = frozenset(),
                 exponents: frozenset[str] = frozenset(), fold: bool = False) -> None:
        self.leaf = leaf
        self.numbers = numbers
        self.exponents = exponents
        self.fold = fold

    def __call__(self, e: Expr) -> str:
        unit = self.leaf(e)
        if unit is not None:
            name, axes = unit
            return f'(Leaf "{name}" {sum(bit for axis, bit in VARIES.items() if axis in axes)})'
        if self.fold and isinstance(e, Op) and (arithmetic := self._bigrat(e)) is not None:
            return f"(Num {arithmetic})"
        if isinstance(e, Var):
            return f"(Num v_{e.name})" if e.name in self.numbers else f"v_{e.name}"
        if isinstance(e, Const):
            return self._constant(e.value)
        if isinstance(e, Size) and e.axis == STREAM:
            return "(Cnt)"
        if isinstance(e, Cast):
            return f'(F1 "cast:{e.dtype}" {self(e.body)})'
        if isinstance(e, Reduce):
            return self._reduce(e)
        if isinstance(e, Op):
            return self._op(e.fn, e.args)
        if isinstance(e, Part):
            place = "v_place" if e.axes == (ANY,) else f'"{e.axes[0] if e.axes else ""}"'
            return f'(Part "{e.part}" {place} {self(e.body)})'
        if isinstance(e, Tuple):
            *first, last = map(self, e.args)
            for text in reversed(first):
                last = f"(Tup {text} {last})"
            return last
        raise TypeError(f"{type(e).__name__} {e} has no text in the engine: it should be a leaf")

    def _constant(self, value: Any) -> str:
        if not _is_rational(value):
            return f'(Leaf "{_NO_RATIONAL}{value}" 0)'
        return number(Fraction(value))

    def _reduce(self, e: Reduce) -> str:
        if e.axis != STREAM:
            return f'(Red "{e.monoid}" "{e.axis}" {self(e.body)})'
        node = REDUCERS.get(e.monoid)
        kind, _, count = _SINGLE.get(e.monoid, e.monoid).partition(":")
        if kind in BEST:
            return f"({BEST[kind]} {'v_rank' if count == ANY else count} {self(e.body)})"
        return f"({node} {self(e.body)})" if node else f'(Over "{e.monoid}" {self(e.body)})'

    def _op(self, fn: str, args: tuple[Expr, ...]) -> str:
        if fn in BINARY:
            return f"({BINARY[fn]} {self(args[0])} {self(args[1])})"
        if fn in UNARY:
            return f"({UNARY[fn]} {self(args[0])})"
        if fn == "sub":
            return f"(Add {self(args[0])} (Mul {MINUS_ONE} {self(args[1])}))"
        if fn == "neg":
            return f"(Mul {MINUS_ONE} {self(args[0])})"
        if fn == "div":
            inverse = f"(Inv {self(args[1])})"
            is_one = isinstance(args[0], Const) and args[0].value == 1
            return inverse if is_one else f"(Mul {self(args[0])} {inverse})"
        if fn == "pow":
            return self._pow(*args)
        if fn == "expm1":
            return f"(Add (Exp {self(args[0])}) {MINUS_ONE})"
        if fn == "log1p":
            return f"(Log (Add {ONE} {self(args[0])}))"
        if fn == "select":
            return f"(Sel {' '.join(map(self, args))})"
        return f'(F{len(args)} "{fn}" {" ".join(map(self, args))})'

    def _pow(self, base: Expr, power: Expr) -> str:
        if isinstance(power, Const) and _is_rational(power.value):
            k = Fraction(power.value)
            if k.denominator == 1 and abs(k) < _LARGEST:
                return self._integer_power(base, int(k))
            if k == Fraction(1, 2):
                return f"(Sqrt {self(base)})"
            if k == Fraction(-1, 2):
                return f"(Inv (Sqrt {self(base)}))"
        elif (integer := self._i64(power)) is not None:
            return f"(Pow {self(base)} {integer})"
        return f'(F2 "pow" {self(base)} {self(power)})'

    def _integer_power(self, base: Expr, k: int) -> str:
        if k < 0:
            return f"(Inv {self._integer_power(base, -k)})"
        return ONE if k == 0 else self(base) if k == 1 else f"(Pow {self(base)} {k})"

    def _i64(self, e: Expr) -> str | None:
        """Arithmetic on exponent variables."""
        if isinstance(e, Var) and e.name in self.exponents:
            return f"v_{e.name}"
        if isinstance(e, Const) and isinstance(e.value, int):
            return str(e.value)
        if isinstance(e, Op) and e.fn == "add":
            parts = [self._i64(a) for a in e.args]
            return None if None in parts else f"(+ {parts[0]} {parts[1]})"
        return None

    def _bigrat(self, e: Expr) -> str | None:
        """Arithmetic on number variables, at least one of them."""
        if isinstance(e, Var):
            return f"v_{e.name}" if e.name in self.numbers else None
        if isinstance(e, Const):
            return _bigrat(Fraction(e.value))
        if not isinstance(e, Op) or e.fn not in _ARITHMETIC or not any(isinstance(a, Var) for a in e.args):
            return None
        parts = [self._bigrat(a) for a in e.args]
        return None if None in parts else f"({_ARITHMETIC[e.fn]} {parts[0]} {parts[1]})"


Sexp = str | list[Any]
_TOKEN = re.compile(r'"[^"]*"|[()]|[^\s()]+')


def parse(text: str) -> Sexp:
    """Nested lists of one egglog term; strings keep their quotes."""
    return parse_all(text)[0]


def parse_all(text: str) -> list[Sexp]:
    """The terms of a text, one after the other."""
    stack: list[list[Any]] = [[]]
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    return stack[0]


_UNARY_BACK = {node: fn for fn, node in UNARY.items()}
_BINARY_BACK = {node: fn for fn, node in BINARY.items()}
_REDUCE_BACK = {node: fn for fn, node in REDUCERS.items()}
_BEST_BACK = {node: f"{fn}:" for fn, node in BEST.items()}
_SINGLE_BACK = {coded: name for name, coded in _SINGLE.items()}


def _integer(x: Sexp) -> int:
    return int(x[1].strip('"'))


def decode(x: Sexp, leaf: Callable[[str], Expr]) -> Expr:
    """The expression of an engine term, with differences, quotients and negations restored."""
    head, args = x[0], x[1:]
    if head == "Num":
        return _number_back(Fraction(_integer(args[0][1]), _integer(args[0][2])))
    if head == "Leaf":
        name = args[0].strip('"')
        constant = name.removeprefix(_NO_RATIONAL)
        return leaf(name) if constant == name else Const(float(constant))
    if head == "Cnt":
        return Size(STREAM)
    if head == "Pow":
        base = decode(args[0], leaf)
        return base * base if args[1] == "2" else base ** int(args[1])
    if head in _UNARY_BACK:
        return op(_UNARY_BACK[head], decode(args[0], leaf))
    if head == "Inv":
        return 1 / decode(args[0], leaf)
    if head in _REDUCE_BACK:
        return Reduce(_REDUCE_BACK[head], STREAM, decode(args[0], leaf))
    if head in _BEST_BACK:
        return Reduce(_SINGLE_BACK.get(_BEST_BACK[head] + args[0], _BEST_BACK[head] + args[0]), STREAM,
                      decode(args[1], leaf))
    if head == "Part":
        place = args[1].strip('"')
        axes = () if not place else (int(place) if place.isdecimal() else place,)
        return Part(args[0].strip('"'), axes, decode(args[2], leaf))
    if head == "Tup":
        rest = decode(args[1], leaf)
        return Tuple((decode(args[0], leaf), *(rest.args if isinstance(rest, Tuple) else (rest,))))
    if head == "Over":
        return Reduce(args[0].strip('"'), STREAM, decode(args[1], leaf))
    if head == "Red":
        return Reduce(args[0].strip('"'), args[1].strip('"'), decode(args[2], leaf))
    if head == "Sel":
        return select(*(decode(a, leaf) for a in args))
    if head in ("F1", "F2"):
        return _named(args[0].strip('"'), [decode(a, leaf) for a in args[1:]])
    if head in _BINARY_BACK:
        return _infix(head, args[0], args[1], leaf)
    raise TypeError(f"engine term {head} is unknown")


def _named(name: str, args: list[Expr]) -> Expr:
    return Cast(name.removeprefix("cast:"), args[0]) if name.startswith("cast:") else op(name, *args)


def _number_back(q: Fraction) -> Const:
    """int, else the float that equals it exactly, else the fraction."""
    if q.denominator == 1:
        return Const(int(q))
    as_float = float(q)
    return Const(as_float if Fraction(as_float) == q else q)


def _negated(x: Sexp) -> Sexp | None:
    """b when x is (-1) b."""
    if x[0] == "Mul":
        for factor, other in ((x[1], x[2]), (x[2], x[1])):
            if factor[0] == "Num" and _integer(factor[1][1]) == -1 and _integer(factor[1][2]) == 1:
                return other
    return None


def _infix(head: str, a: Sexp, b: Sexp, leaf: Callable[[str], Expr]) -> Expr:
    if head == "Add":
        for x, y in ((a, b), (b, a)):
            if (negative := _negated(y)) is not None:
                return decode(x, leaf) - decode(negative, leaf)
    if head == "Mul":
        if (negative := _negated(["Mul", a, b])) is not None:
            return -decode(negative, leaf)
        for x, y in ((a, b), (b, a)):
            if y[0] == "Inv":
                return decode(x, leaf) / decode(y[1], leaf)
    return op(_BINARY_BACK[head], decode(a, leaf), decode(b, leaf))
