"""The language of the e-graph (egglog text), and how expressions and rules are written in it.

Visible operations have nodes of their own; any other operation is an uninterpreted `F1`, `F2`, `F3` or `Over` node,
known to the engine by name only. There are no nodes for difference, quotient and negation: `a - b` is `a + (-1) b`,
`a / b` is `a (1/b)`; `decode` prints them back. Every expression that is a unit for the algebra (a load, a value of
an accumulator, ...) is a `Leaf` with a text and the set of axes it depends on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from redfuser.errors import RuleError
from redfuser.ir import Cast, Const, Expr, Op, Reduce, Size, Var, op, select
from redfuser.rules.language import PHASES, STREAM, Condition, Fact, Law, RuleSet

UNARY = {"exp": "Exp", "exp2": "Exp2", "log": "Log", "log2": "Log2", "sqrt": "Sqrt", "abs": "Abs", "tanh": "Tanh",
         "sin": "Sin", "cos": "Cos"}
BINARY = {"add": "Add", "mul": "Mul", "max": "Max2", "min": "Min2"}
REDUCERS = {"sum": "Sum", "max": "MaxR", "min": "MinR"}
RELATIONS = {"positive": "pos", "nonnegative": "nneg", "nonpositive": "npos", "nonzero": "nz", "at_most": "leq",
             "changes": "changes"}
REDUCTION_NODES = frozenset({*REDUCERS.values(), "Over"})


def number(value: Fraction | int) -> str:
    """The text of a literal number."""
    q = Fraction(value)
    return f"(Num {_bigrat(q)})"


def _bigrat(q: Fraction) -> str:
    return f"(bigrat {_bigint(q.numerator)} {_bigint(q.denominator)})"


def _bigint(n: int) -> str:
    if -(2**62) < n < 2**62:
        return f"(bigint {n})"
    return f'(from-string "{n}")'


_ARITHMETIC = {"add": "+", "mul": "*", "div": "/"}
ZERO, ONE, MINUS_ONE = number(0), number(1), number(-1)


def _signature() -> str:
    """Sorts, nodes and relations; the analysis `fv` (axes an expression depends on); cost hints.

    `fv` merges by intersection: two equal expressions depend on no more than what both mention. A value that belongs
    to the state after the chunk carries the pseudo-axis "@new".
    """
    unary, binary = [*UNARY.values(), "Inv"], list(BINARY.values())
    nodes = ["(Num BigRat)", "(Leaf String Axes)", "(Cnt)", "(Pow E i64)", *(f"({n} E)" for n in unary),
             *(f"({n} E E)" for n in binary), *(f"({n} E)" for n in REDUCERS.values()), "(Over String E)",
             "(Red String String E)", "(Sel E E E)", "(F1 String E)", "(F2 String E E)"]
    lines = ["(sort Axes (Set String))", f"(datatype E {' '.join(nodes)})",
             *(f"(relation {r} ({'E E' if r in ('leq', 'changes') else 'E'}))" for r in RELATIONS.values()),
             "(relation leafy (E))", "(relation negleaf (E))", "(relation given (E))",
             "(function fv (E) Axes :merge (set-intersect old new))",
             "(ruleset analysis)"]

    def axes(pattern: str, premises: str, value: str) -> None:
        lines.append(f'(rule ((= e {pattern}) {premises}) ((set (fv e) {value})) :ruleset analysis '
                     f':name "axes-{len(lines)}")')

    axes("(Num q)", "", "(set-empty)")
    axes("(Cnt)", "", "(set-empty)")
    axes("(Leaf s ax)", "", "ax")
    for n in unary:
        axes(f"({n} a)", "(= fa (fv a))", "fa")
    axes("(Pow a k)", "(= fa (fv a))", "fa")
    axes("(F1 s a)", "(= fa (fv a))", "fa")
    for n in (*binary, "F2 s"):
        axes(f"({n} a b)", "(= fa (fv a)) (= fb (fv b))", "(set-union fa fb)")
    axes("(Sel a b c)", "(= fa (fv a)) (= fb (fv b)) (= fc (fv c))", "(set-union fa (set-union fb fc))")
    for n in (*REDUCERS.values(), "Over s"):
        axes(f"({n} a)", "(= fa (fv a))", f'(set-remove fa "{STREAM}")')
    axes("(Red m ax a)", "(= fa (fv a))", "(set-remove fa ax)")
    lines.append('(rule ((= e (Leaf s ax))) ((leafy e)) :ruleset analysis :name "leafy")')
    lines.append(f'(rule ((= e (Mul {MINUS_ONE} b)) (leafy b)) ((negleaf e)) :ruleset analysis :name "negleaf")')
    return "\n".join(lines)


LeafOf = Callable[[Expr], "tuple[str, frozenset[str]] | None"]


def _no_leaf(_: Expr) -> None:
    return None


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
            members = " ".join(f'"{a}"' for a in sorted(axes))
            return f'(Leaf "{name}" {f"(set-of {members})" if axes else "(set-empty)"})'
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
        raise TypeError(f"{type(e).__name__} {e} has no text in the engine: it should be a leaf")

    def _constant(self, value: Any) -> str:
        if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
            return f'(Leaf "{value}" (set-empty))'
        return number(Fraction(value))

    def _reduce(self, e: Reduce) -> str:
        if e.axis != STREAM:
            return f'(Red "{e.monoid}" "{e.axis}" {self(e.body)})'
        node = REDUCERS.get(e.monoid)
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
        if isinstance(power, Const):
            k = Fraction(power.value)
            if k.denominator == 1:
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


def _condition_text(c: Condition, encode: Encoder, k: int) -> str:
    """The premise of condition number `k`; empty for kinds that only shape the pattern."""
    x = c.args[0]
    is_number = isinstance(x, Var) and x.name in encode.numbers
    zero = _bigrat(Fraction(0))
    if c.kind in ("free", "varies"):
        test = "set-not-contains" if c.kind == "free" else "set-contains"
        return f'(= t{k} {encode(x)}) (= s{k} (fv t{k})) ({test} s{k} "{STREAM}")'
    if c.kind == "nontrivial":
        return f"(= t{k} {encode(x)}) (= zero {ZERO}) (!= t{k} zero)"
    if c.kind == "equals":
        return f"(= {encode(x)} {encode(c.args[1])})"
    if c.kind in ("number", "exponent"):
        return ""
    if is_number:
        test = {"positive": ">", "nonnegative": ">=", "nonzero": "!=", "nonpositive": "<="}[c.kind]
        return f"({test} v_{x.name} {zero})"  # type: ignore[attr-defined]
    return f"({RELATIONS[c.kind]} {' '.join(map(encode, c.args))})"


def _names(conditions: tuple[Condition, ...], kind: str) -> frozenset[str]:
    return frozenset(a.name for c in conditions if c.kind == kind for a in c.args if isinstance(a, Var))


def law_text(law: Law, ruleset: str) -> str:
    """One law as egglog text, in its own ruleset."""
    numbers, exponents = _names(law.conditions, "number"), _names(law.conditions, "exponent")
    match = Encoder(numbers=numbers, exponents=exponents)
    build = Encoder(numbers=numbers, exponents=exponents, fold=True)
    premises = " ".join(_condition_text(c, match, k) for k, c in enumerate(law.conditions))
    tail = f':ruleset {ruleset} :name "{law.name}"'
    if isinstance(law, Fact):
        relation = RELATIONS.get(law.conclusion.kind)
        if relation is None or len(law.conclusion.args) != 1:
            raise RuleError(f"fact {law.name}: the engine cannot conclude {law.conclusion}")
        target = match(law.conclusion.args[0])
        return f"(rule ((= e {target}) {premises}) (({relation} e)) {tail})"
    right = build(law.right)
    if isinstance(law.left, Var) and law.left.name not in numbers:
        return f"(rule ({premises}) ((union {match(law.left)} {right})) {tail})"
    if law.phase == "simplify":
        return f"(rewrite {match(law.left)} {right} :subsume :when ({premises}) {tail})"
    return f"(rule ((= e {match(law.left)}) {premises}) ((union e {right})) {tail})"


def theory(rules: RuleSet) -> tuple[str, dict[str, str]]:
    """Text of the whole theory, and law name -> its ruleset (one each, so that laws can be switched off)."""
    rulesets = {law.name: f"law{i}" for i, law in enumerate(rules)}
    lines = [_signature()]
    for law in rules:
        lines += [f"(ruleset {rulesets[law.name]})", law_text(law, rulesets[law.name])]
    lines += [f"(let $zero {ZERO})", f"(let $one {ONE})", f"(let $minus-one {MINUS_ONE})"]
    return "\n".join(lines), rulesets


def combined(rules: RuleSet, rulesets: dict[str, str], keep: Callable[[Law], bool], prefix: str) -> str:
    """Text that declares one combined ruleset `{prefix}-{phase}` per phase, of the laws that `keep` accepts."""
    lines = []
    for phase in PHASES:
        members = [rulesets[law.name] for law in rules if law.phase == phase and keep(law)]
        if phase == "fact":
            members.append("analysis")
        lines.append(f"(unstable-combined-ruleset {prefix}-{phase} {' '.join(members)})" if members
                     else f"(ruleset {prefix}-{phase})")
    return "\n".join(lines)


Sexp = str | list[Any]
_TOKEN = re.compile(r'"[^"]*"|[()]|[^\s()]+')


def parse(text: str) -> Sexp:
    """Nested lists of one egglog term; strings keep their quotes."""
    stack: list[list[Any]] = [[]]
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    result: Sexp = stack[0][0]
    return result


_UNARY_BACK = {node: fn for fn, node in UNARY.items()}
_BINARY_BACK = {node: fn for fn, node in BINARY.items()}
_REDUCE_BACK = {node: fn for fn, node in REDUCERS.items()}


def _integer(x: Sexp) -> int:
    return int(x[1].strip('"'))


def decode(x: Sexp, leaf: Callable[[str], Expr]) -> Expr:
    """The expression of an engine term, with differences, quotients and negations restored."""
    head, args = x[0], x[1:]
    if head == "Num":
        return _number_back(Fraction(_integer(args[0][1]), _integer(args[0][2])))
    if head == "Leaf":
        return leaf(args[0].strip('"'))
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
