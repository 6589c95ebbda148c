"""The language rules are written in: pattern variables, reductions over the stream, conditions, rule sets.

A rule is one equation of real numbers, written as a Python function: its parameters are the pattern variables, its
docstring is the law, and it returns the two sides. From this one object come the rewrite the engine runs
(`redfuser.rules.theory`), the test that samples it (`redfuser.rules.check`) and its printed form
(`redfuser.rules.latex`), so that the three cannot disagree.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from redfuser.errors import RuleError
from redfuser.ir import Expr, Part, Reduce, Var, walk, wrap

STREAM = "@stream"
"""The name of the stream axis inside the engine and in patterns, whatever the cascade calls it."""
NEW = "@new"
"""The pseudo-axis of values that belong to the state after the chunk."""

Truth = Literal["exact", "approximate"]
Phase = Literal["commute", "simplify", "rewrite", "telescope", "expand", "fact"]
PHASES: tuple[Phase, ...] = ("fact", "simplify", "commute", "rewrite", "telescope", "expand")

KINDS: dict[str, int] = {
    "free": 1, "varies": 1, "positive": 1, "nonnegative": 1, "nonpositive": 1, "nonzero": 1, "number": 1,
    "exponent": 1, "nontrivial": 1, "nonunit": 1, "at_most": 2, "changes": 2, "equals": 2, "last_resort": 0,
    "expandable": 1, "separable": 1,
}
"""Condition kind -> how many expressions it speaks of."""


@dataclass(frozen=True)
class Condition:
    """A side condition `kind(args)` of a rule; see the functions below for the meaning of each kind."""

    kind: str
    args: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"{self.kind}({', '.join(map(str, self.args))})"


def _condition(kind: str, *args: str | Expr) -> Condition:
    return Condition(kind, tuple(Var(a) if isinstance(a, str) else wrap(a) for a in args))


def free(x: str | Expr) -> Condition:
    """x does not depend on the stream axis."""
    return _condition("free", x)


def varies(x: str | Expr) -> Condition:
    """x depends on the stream axis. A guide for the search: no law needs it to be true."""
    return _condition("varies", x)


def nontrivial(x: str | Expr) -> Condition:
    """x is not known to be 0. A guide for the search: no law needs it to be true."""
    return _condition("nontrivial", x)


def nonunit(x: str | Expr) -> Condition:
    """x is not known to be 1. A guide for the search: no law needs it to be true."""
    return _condition("nonunit", x)


def positive(x: str | Expr) -> Condition:
    """x > 0 for every element, and for every non-empty prefix of the stream."""
    return _condition("positive", x)


def nonnegative(x: str | Expr) -> Condition:
    """x >= 0 for every element, and for every prefix of the stream."""
    return _condition("nonnegative", x)


def nonpositive(x: str | Expr) -> Condition:
    """x <= 0 for every element, and for every non-empty prefix of the stream."""
    return _condition("nonpositive", x)


def nonzero(x: str | Expr) -> Condition:
    """x != 0 for every element, and for every non-empty prefix of the stream."""
    return _condition("nonzero", x)


def at_most(x: str | Expr, y: str | Expr) -> Condition:
    """x <= y for every element, and for every non-empty prefix of the stream."""
    return _condition("at_most", x, y)


def changes(old: str | Expr, new: str | Expr) -> Condition:
    """`old` and `new` are the values of one dependency before and after a chunk."""
    return _condition("changes", old, new)


def equals(x: str | Expr, y: str | Expr) -> Condition:
    """x is already known to equal y."""
    return _condition("equals", x, y)


def last_resort() -> Condition:
    """No correction was found without the law. A guide for the search: no law needs it to be true."""
    return _condition("last_resort")


def number(x: str | Expr) -> Condition:
    """x is a literal number."""
    return _condition("number", x)


def exponent(x: str | Expr) -> Condition:
    """x is a literal integer exponent >= 2, and not a very large one."""
    return _condition("exponent", x)


def Sum(body: Any) -> Expr:
    """Sum over the stream."""
    return Reduce("sum", STREAM, wrap(body))


def Max(body: Any) -> Expr:
    """Maximum over the stream."""
    return Reduce("max", STREAM, wrap(body))


def Min(body: Any) -> Expr:
    """Minimum over the stream."""
    return Reduce("min", STREAM, wrap(body))


def expandable(x: str | Expr) -> Condition:
    """x is a sum in which a change of a dependency has been set apart, or nothing else helped: its powers may be
    written out. A guide for the search: no law needs it to be true."""
    return _condition("expandable", x)


def separable(x: str | Expr) -> Condition:
    """x is expandable, or accumulators are being chosen: products with it may be written out. A guide for the search:
    no law needs it to be true."""
    return _condition("separable", x)


ANY = "*"
"""In patterns: a list of any length, any place of a list (the same on both sides)."""


def Best(body: Any, *, largest: bool = True) -> Expr:
    """The best elements over the stream: a top-k of any length, or argmax (argmin, for small values)."""
    return Reduce(f"{'topk' if largest else 'bottomk'}:{ANY}", STREAM, wrap(body))


def part(name: str, value: Expr) -> Expr:
    """A part ("value", "index") of the best elements, at any place."""
    return Part(name, (ANY,), value)


@dataclass(frozen=True)
class Rule:
    """`left = right` for all values of `variables` that meet `conditions`.

    phase      when the engine applies it: simplify (replaces the left side for good, run to a fixed point), commute,
               rewrite, expand and telescope (one round each per iteration)
    truth      exact: equal over the reals; approximate: equal up to `tolerance` (relative below 1, from 1 on in steps
               of a rounding to integers), used only when asked for
    group      the module the rule lives in: the name under which reports and `allow=` speak of it
    """

    name: str
    law: str
    variables: tuple[str, ...]
    left: Expr
    right: Expr
    conditions: tuple[Condition, ...] = ()
    truth: Truth = "exact"
    group: str = "user"
    phase: Phase = "rewrite"
    tolerance: float = 0.0

    def __str__(self) -> str:
        where = f"  where {', '.join(map(str, self.conditions))}" if self.conditions else ""
        return f"{self.name}: {self.left} = {self.right}{where}"

    def latex(self) -> str:
        """The law as LaTeX."""
        from redfuser.rules.latex import latex

        return f"{latex(self.left)} = {latex(self.right)}"


@dataclass(frozen=True)
class Fact:
    """`conclusion` holds for all values of `variables` that meet `conditions`: one step of the sign analysis."""

    name: str
    law: str
    variables: tuple[str, ...]
    conclusion: Condition
    conditions: tuple[Condition, ...] = ()
    group: str = "bounds"
    phase: Phase = "fact"

    def __str__(self) -> str:
        where = f"  where {', '.join(map(str, self.conditions))}" if self.conditions else ""
        return f"{self.name}: {self.conclusion}{where}"


Where = Sequence[Condition] | Callable[..., Sequence[Condition]]


def _signature(fn: Callable[..., Any]) -> tuple[str, str, tuple[str, ...]]:
    """Name with dashes, law, parameters of a rule function."""
    law = inspect.getdoc(fn)
    if not law:
        raise RuleError(f"rule {fn.__name__} states no law: give it a docstring with the equation it means")
    return fn.__name__.replace("_", "-"), law.strip(), tuple(inspect.signature(fn).parameters)


def _conditions(fn: Callable[..., Any], variables: tuple[str, ...], free_of: str, varying: str,
                where: Where) -> tuple[Condition, ...]:
    """All conditions of a rule, each checked to speak of its variables only."""
    stated = where(*map(Var, variables)) if callable(where) else where
    all_ = (*map(free, free_of.split()), *map(varies, varying.split()), *stated)
    for c in all_:
        if KINDS.get(c.kind) != len(c.args):
            raise RuleError(f"rule {fn.__name__}: there is no condition {c}")
        _check_variables(fn.__name__, variables, *c.args)
    return all_


def _check_variables(name: str, variables: tuple[str, ...], *sides: Expr) -> None:
    for side in sides:
        unknown = {x.name for x in walk(side) if isinstance(x, Var)} - set(variables)
        if unknown:
            raise RuleError(f"rule {name}: {', '.join(sorted(unknown))} is not among its parameters")


def rule(truth: Truth, *, free_of: str = "", varying: str = "", where: Where = (), phase: Phase = "rewrite",
         tolerance: float = 0.0, name: str | None = None,
         group: str | None = None) -> Callable[[Callable[..., Any]], Rule]:
    """Decorator: a function of pattern variables that returns `(left, right)` becomes a `Rule`.

    Parameters
    ----------
    truth
        "exact" (equal over the reals) or "approximate" (equal up to the `tolerance`: relative to the values, or in
        steps of a rounding to integers when it is 1 or more).
    free_of, varying
        parameter names, separated by spaces, that are free of the stream axis or carry it.
    where
        further conditions (`positive("a")`, ...), or a function of the parameters that returns them.

    Raises
    ------
    RuleError
        without a docstring, without exactly two sides, or with variables that are no parameters.
    """
    if truth not in ("exact", "approximate"):
        raise RuleError(f"argument 'truth' is {truth!r}; write @rule('exact') or @rule('approximate', tolerance=...)")
    if (truth == "approximate") != (tolerance > 0):
        raise RuleError("argument 'tolerance' is the relative error of an approximate rule, and of no other")

    def build(fn: Callable[..., Any]) -> Rule:
        title, law, variables = _signature(fn)
        sides = fn(*map(Var, variables))
        if not isinstance(sides, tuple) or len(sides) != 2:
            raise RuleError(f"rule {fn.__name__} must return its two sides: return left, right")
        left, right = map(wrap, sides)
        conditions = _conditions(fn, variables, free_of, varying, where)
        _check_variables(fn.__name__, variables, left, right)
        bound = {x.name for side in (left, *(a for c in conditions for a in c.args)) for x in walk(side)
                 if isinstance(x, Var)}
        loose = {x.name for x in walk(right) if isinstance(x, Var)} - bound
        if loose:
            raise RuleError(f"rule {fn.__name__}: the left side does not determine {', '.join(sorted(loose))}")
        return Rule(name or title, law, variables, left, right, conditions, truth,
                    group or fn.__module__.rpartition(".")[2], phase, tolerance)

    return build


def fact(*, free_of: str = "", where: Where = (), name: str | None = None) -> Callable[[Callable[..., Any]], Fact]:
    """Decorator: a function of pattern variables that returns the concluded `Condition` becomes a `Fact`."""

    def build(fn: Callable[..., Any]) -> Fact:
        title, law, variables = _signature(fn)
        conclusion = fn(*map(Var, variables))
        if not isinstance(conclusion, Condition):
            raise RuleError(f"fact {fn.__name__} must return the condition it concludes")
        conditions = _conditions(fn, variables, free_of, "", where)
        _check_variables(fn.__name__, variables, *conclusion.args)
        return Fact(name or title, law, variables, conclusion, conditions, fn.__module__.rpartition(".")[2])

    return build


Law = Rule | Fact


@dataclass(frozen=True)
class RuleSet:
    """A named collection of laws. `a + b` joins, `a - b` removes, `a["exponential"]` selects one group."""

    name: str
    laws: tuple[Law, ...]

    def __add__(self, other: RuleSet) -> RuleSet:
        if not isinstance(other, RuleSet):
            raise RuleError(f"to the rule set {self.name!r} {other!r} was added; make it a rule set first: "
                            "rf.ruleset('mine', [rule])")
        extra = tuple(x for x in other.laws if x not in self.laws)
        clash = {x.name for x in extra} & {x.name for x in self.laws}
        if clash:
            raise RuleError(f"two different rules are called {', '.join(sorted(clash))}: rename one")
        return RuleSet(f"{self.name} + {other.name}", self.laws + extra)

    def __sub__(self, other: RuleSet) -> RuleSet:
        return RuleSet(f"{self.name} - {other.name}", tuple(x for x in self.laws if x not in other.laws))

    def __getitem__(self, group: str) -> RuleSet:
        return RuleSet(group, tuple(x for x in self.laws if x.group == group))

    def __iter__(self) -> Iterator[Law]:
        return iter(self.laws)

    def __len__(self) -> int:
        return len(self.laws)

    def exact(self) -> RuleSet:
        """The laws that hold over the reals."""
        laws = tuple(x for x in self.laws if isinstance(x, Fact) or x.truth == "exact")
        return self if laws == self.laws else RuleSet(self.name, laws)

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.laws))

    def __hash__(self) -> int:  # engines and derivations are looked up by rule set: hundreds of laws are hashed once
        return self._hash

    def __reduce__(self) -> tuple[type[RuleSet], tuple[str, tuple[Law, ...]]]:  # hashes differ between processes
        return RuleSet, (self.name, self.laws)


def ruleset(name: str, laws: Iterable[Law]) -> RuleSet:
    """A rule set of your own; add it to `redfuser.rules.default`.

    Raises
    ------
    RuleError
        when two different rules share a name.
    """
    seen: dict[str, Law] = {}
    for law in laws:
        if seen.setdefault(law.name, law) != law:
            raise RuleError(f"two different rules are called {law.name}: rename one")
    return RuleSet(name, tuple(seen.values()))
