"""The theory of a rule set as egglog text: the signature, the analyses, and one ruleset per law.

Every law has a ruleset of its own, so that laws can be switched off, and the nodes and relations it needs are known:
while there is no sine, no law about sines is asked. Matching a rule against nothing still costs microseconds, and a
round has hundreds of rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from redfuser.errors import RuleError
from redfuser.ir import Var
from redfuser.rules.encoding import (
    BEST,
    BINARY,
    MINUS_ONE,
    ONE,
    REDUCERS,
    REDUCTION_NODES,
    RELATIONS,
    UNARY,
    VARIES,
    ZERO,
    ZERO_BIGRAT,
    Encoder,
)
from redfuser.rules.language import NEW, PHASES, STREAM, Condition, Fact, Law, RuleSet

FORBIDDEN = 10**12
"""Cost of a node that must not remain: no other costs come near, and sums stay comparable."""
TOO_MUCH = FORBIDDEN // 2
"""What costs so much has a forbidden node in it: others may be paid for preferring a form."""
COSTS = {"Add": 2, "Mul": 2, "Inv": 6, "Exp": 8, "Exp2": 8, "Log": 8, "Log2": 8, "Sqrt": 8, "Tanh": 10, "Sin": 10,
         "Cos": 10, "Atan": 10, "Max2": 2, "Min2": 2, "Pow": 2, "Sel": 2, **dict.fromkeys(REDUCTION_NODES, FORBIDDEN)}
"""Weights of the engine's own extraction, which only tells whether a form without reductions exists and still gets
cheaper; the final choice is made under the models of `redfuser.derivation.cost`."""

TOGETHER = "Together"
"""The node that joins terms that are added at once, or of which the total cost is asked. No law mentions it."""

START = "(run clear 1)", f"({TOGETHER} {ZERO} ({TOGETHER} {ONE} {MINUS_ONE}))"
"""Empties the e-graph, and adds the numbers that laws compare with: `(push)` and `(pop)` would copy the theory."""

ABSURD = "absurd"
"""The relation that holds of two different numbers that were proven equal: some rule is unsound."""

SETTLE = ("fact", "simplify")
"""Phases that run to their fixed point, together."""
ROUNDS = tuple(p for p in PHASES if p not in SETTLE)
"""Phases that run once per iteration."""

LARGEST_POWER = 16
"""Powers grow no further: 1 * 1^k = 1^(k + 1) would never end where no other law says that it is 1."""

_HEAD = re.compile(r"\(([A-Za-z]\w*)")


def tables(text: str) -> frozenset[str]:
    """The nodes and relations mentioned in a text."""
    return frozenset(_HEAD.findall(text)) & TABLES


@dataclass(frozen=True)
class _Member:
    """A ruleset: its phase, the nodes and relations without which it cannot match, the guide it concludes."""

    ruleset: str
    phase: str
    needs: frozenset[str]
    law: Law | None = None
    guide: str = ""


@dataclass
class Theory:
    """The text of a theory, and what is needed to run the part of it that can match."""

    rules: RuleSet
    text: str = field(default="", init=False)
    _members: list[_Member] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        lines = [_signature()]
        for a in _analyses():
            lines += [f"(ruleset {a.name})", a.rule]
            self._members.append(_Member(a.name, "fact", tables(a.premise), guide=a.guide))
        for i, law in enumerate(self.rules):
            text = _law(law, f"law{i}")
            lines += [f"(ruleset law{i})", text.rule]
            self._members.append(_Member(f"law{i}", law.phase, tables(text.premise), law))
        self.text = "\n".join([*lines, *_clearing()])

    def combined(self, prefix: str, found: frozenset[str], keep: Callable[[Law], bool] | None = None) -> str:
        """Text that declares `{prefix}-settle` and a ruleset `{prefix}-{phase}` for each phase of `ROUNDS` that has any
        of the laws that can match when there are rows in the tables `found` alone, and that `keep` accepts."""
        members: dict[str, list[str]] = {p: [] for p in ("settle", *ROUNDS)}
        while more := {m.guide for m in self._members if m.guide and m.needs <= found} - found:
            found |= more  # a guide is there in the round that concludes it
        for m in self._members:
            if m.needs <= found and (m.law is None or keep is None or keep(m.law)):
                members["settle" if m.phase in SETTLE else m.phase].append(m.ruleset)
        return "\n".join(f"(unstable-combined-ruleset {prefix}-{p} {' '.join(names)})" if names
                         else f"(ruleset {prefix}-{p})" for p, names in members.items() if names or p == "settle")


_NODES: dict[str, tuple[str, ...]] = {
    "Num": ("BigRat",), "Leaf": ("String", "i64"), "Cnt": (), "Pow": ("E", "i64"), "Over": ("String", "E"),
    "Part": ("String", "String", "E"), "Tup": ("E", "E"), **dict.fromkeys(BEST.values(), ("i64", "E")),
    "Red": ("String", "String", "E"), "Sel": ("E", "E", "E"), "F1": ("String", "E"), "F2": ("String", "E", "E"),
    **dict.fromkeys((*UNARY.values(), "Inv", *REDUCERS.values()), ("E",)),
    **dict.fromkeys(BINARY.values(), ("E", "E")),
}
"""Node -> the sorts of its operands."""

_RELATIONS = {**dict.fromkeys(RELATIONS.values(), 1), "leq": 2, "changes": 2, "resort": 0, "choosing": 0, "unbound": 0,
              **dict.fromkeys(("leafy", "negleaf", "given", "step", "tame", "refused", ABSURD), 1)}
"""Relation -> the number of expressions it speaks of."""

TABLES = frozenset((*_NODES, *_RELATIONS))
"""All nodes and relations."""


def _signature() -> str:
    """Sorts, nodes and relations.

    `fv` holds the bits (`VARIES`) of what an expression depends on: the stream, the state after the chunk. It merges by
    intersection: two equal expressions depend on no more than what both mention.
    """
    def node(name: str, sorts: tuple[str, ...]) -> str:
        cost = f":cost {COSTS[name]}" if name in COSTS else ""
        return f"({name} {' '.join(sorts)} {cost})"

    nodes = [*(node(n, sorts) for n, sorts in _NODES.items()), f"({TOGETHER} E E :cost 0)"]
    return "\n".join([
        f"(datatype E {' '.join(nodes)})",
        *(f"(relation {r} ({' '.join(['E'] * count)}))" for r, count in _RELATIONS.items()),
        "(function fv (E) i64 :merge (& old new))"])


def _clearing() -> list[str]:
    """The ruleset that deletes every row of every table."""
    nodes = _NODES | {TOGETHER: ("E", "E")}
    patterns = [f"({name} {' '.join(f'x{i}' for i in range(len(sorts)))})" for name, sorts in nodes.items()]
    found = [(f"(= e {p})", p) for p in patterns]
    found += [(p, p) for p in (f"({r} {' '.join(f'x{i}' for i in range(k))})" for r, k in _RELATIONS.items())]
    found.append(("(= axes (fv e))", "(fv e)"))
    return ["(ruleset clear)", *(f'(rule ({premise}) ((delete {row})) :ruleset clear :name "clear-{i}")'
                                 for i, (premise, row) in enumerate(found))]


@dataclass(frozen=True)
class _Analysis:
    """A rule that is no law: its name, which is that of its ruleset, and the guide it concludes, if it does."""

    name: str
    premise: str
    action: str
    guide: str = ""

    @property
    def rule(self) -> str:
        """The rule as text."""
        return f'(rule ({self.premise}) ({self.action}) :ruleset {self.name} :name "{self.name}")'


def _analyses() -> list[_Analysis]:
    """The rules of the analyses: `fv`, what a leaf is, the guides, and the tripwire."""
    found: list[_Analysis] = []

    def analysis(*texts: str) -> None:
        found.append(_Analysis(*texts))

    def axes(pattern: str, premises: str, value: str) -> None:
        head = pattern[1:].split(" ")[0].rstrip(")")
        analysis(f"axes-{head}", f"(= e {pattern}) {premises}", f"(set (fv e) {value})")

    axes("(Num q)", "", "0")
    axes("(Cnt)", "", "0")
    axes("(Leaf s ax)", "", "ax")
    for n in (*UNARY.values(), "Inv"):
        axes(f"({n} a)", "(= fa (fv a))", "fa")
    axes("(Pow a k)", "(= fa (fv a))", "fa")
    axes("(F1 s a)", "(= fa (fv a))", "fa")
    axes("(Part s p a)", "(= fa (fv a))", "fa")
    for n in (*BINARY.values(), "F2 s", "Tup"):
        axes(f"({n} a b)", "(= fa (fv a)) (= fb (fv b))", "(| fa fb)")
    axes("(Sel a b c)", "(= fa (fv a)) (= fb (fv b)) (= fc (fv c))", "(| fa (| fb fc))")
    for n in (*REDUCERS.values(), *(f"{n} k" for n in BEST.values()), "Over s"):
        axes(f"({n} a)", "(= fa (fv a))", f"(& fa {VARIES[NEW]})")
    axes("(Red m ax a)", "(= fa (fv a))", "fa")
    analysis("tripwire", "(= e (Num p)) (= e (Num q)) (!= p q)", f"({ABSURD} e)")
    analysis("leafy-leaf", "(= e (Leaf s ax))", "(leafy e)")
    for n in BEST.values():
        analysis(f"leafy-{n}", f'(= e (Part "value" p ({n} k a))) (leafy a)', "(leafy e)")
    analysis("negleaf-leaf", f"(= e (Mul {MINUS_ONE} b)) (leafy b)", "(negleaf e)")
    for name, premise, relation in _GUIDES:
        analysis(f"{relation}-{name}", premise, f"({relation} e)", relation)
    return found


def _condition_text(c: Condition, encode: Encoder, k: int) -> str:
    """The premise of condition number `k`; empty for kinds that only shape the pattern."""
    if not c.args:
        return f"({RELATIONS[c.kind]})"
    x = c.args[0]
    is_number = isinstance(x, Var) and x.name in encode.numbers
    zero = ZERO_BIGRAT
    if c.kind in ("free", "varies"):
        bit = VARIES[STREAM]
        return f"(= t{k} {encode(x)}) (= s{k} (fv t{k})) (= {0 if c.kind == 'free' else bit} (& s{k} {bit}))"
    if c.kind == "nontrivial":
        return f"(= t{k} {encode(x)}) (= zero {ZERO}) (!= t{k} zero)"
    if c.kind == "nonunit":
        return f"(= t{k} {encode(x)}) (= one {ONE}) (!= t{k} one)"
    if c.kind == "equals":
        return f"(= {encode(x)} {encode(c.args[1])})"
    if c.kind == "exponent":
        return f"(< {encode(x)} {LARGEST_POWER})"
    if c.kind == "number":
        return ""
    if c.kind == "at_most" and all(isinstance(a, Var) and a.name in encode.numbers for a in c.args):
        return f"(<= {' '.join(f'v_{a.name}' for a in c.args if isinstance(a, Var))})"
    if is_number and len(c.args) == 1:
        test = {"positive": ">", "nonnegative": ">=", "nonzero": "!=", "nonpositive": "<="}[c.kind]
        return f"({test} v_{x.name} {zero})"  # type: ignore[attr-defined]
    return f"({RELATIONS[c.kind]} {' '.join(map(encode, c.args))})"


def _names(conditions: tuple[Condition, ...], kind: str) -> frozenset[str]:
    return frozenset(a.name for c in conditions if c.kind == kind for a in c.args if isinstance(a, Var))


_DIFFERENCE = f"(= e (Add a (Mul {MINUS_ONE} b)))"
_GUIDES = (
    ("down", f"{_DIFFERENCE} (changes a b)", "step"), ("up", f"{_DIFFERENCE} (changes b a)", "step"),
    ("term", "(= e (Add a b)) (step b)", "open"), ("left", "(= e (Add a b)) (open a)", "open"),
    ("right", "(= e (Add a b)) (open b)", "open"), ("any", "(= e (Add a b)) (unbound)", "open"),
    ("resort", "(= e (Add a b)) (resort)", "open"), ("open", "(= e (Add a b)) (open e)", "wide"),
    ("choosing", "(= e (Add a b)) (choosing)", "wide"),
    ("multiple", "(= e (Mul a b)) (step b)", "step"), ("factor", "(= e (Mul a b)) (open a)", "open"),
    ("cofactor", "(= e (Mul a b)) (open b)", "open"), ("power", "(= e (Pow a k)) (open a)", "open"))
"""(name, premise, conclusion). Where the change of a dependency stands alone in a sum, the sum is `open`: writing out
its powers and products is what the change was set apart for. Writing out any other multiplies the ways to say the
same."""


@dataclass(frozen=True)
class _Text:
    """One law as text: what must be found, and the whole rule."""

    premise: str
    rule: str


def _law(law: Law, ruleset: str) -> _Text:
    numbers, exponents = _names(law.conditions, "number"), _names(law.conditions, "exponent")
    match = Encoder(numbers=numbers, exponents=exponents)
    build = Encoder(numbers=numbers, exponents=exponents, fold=True)
    premises = " ".join(_condition_text(c, match, k) for k, c in enumerate(law.conditions))
    tail = f':ruleset {ruleset} :name "{law.name}"'
    if isinstance(law, Fact):
        relation = RELATIONS.get(law.conclusion.kind)
        if relation is None:
            raise RuleError(f"fact {law.name}: the engine cannot conclude {law.conclusion}")
        targets = [match(a) for a in law.conclusion.args]
        found = " ".join(f"(= e{k} {target})" for k, target in enumerate(targets))
        concluded = f"({relation} {' '.join(f'e{k}' for k in range(len(targets)))})"
        return _Text(f"{' '.join(targets)} {premises}", f"(rule ({found} {premises}) ({concluded}) {tail})")
    left, right = match(law.left), build(law.right)
    if isinstance(law.left, Var) and law.left.name not in numbers:
        return _Text(premises, f"(rule ({premises}) ((union {left} {right})) {tail})")
    if law.phase == "simplify":
        rule = f"(rewrite {left} {right} :subsume :when ({premises}) {tail})"
    else:
        rule = f"(rule ((= e {left}) {premises}) ((union e {right})) {tail})"
    return _Text(f"{left} {premises}", rule)


def law_text(law: Law, ruleset: str) -> str:
    """One law as egglog text, in the given ruleset."""
    return _law(law, ruleset).rule
