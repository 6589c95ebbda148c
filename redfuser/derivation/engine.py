"""The equality-saturation engine: one e-graph with the theory of a rule set, used goal after goal.

Loading a theory costs tens of milliseconds, so one `Engine` per rule set and thread is kept and each derivation works
in a `scope()`, which leaves no trace. A running `run` cannot be interrupted: every call runs one iteration, and the
caller looks at node count, time and cost in between.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from redfuser.errors import EngineError
from redfuser.ir import Expr
from redfuser.rules.encoding import ONE, ZERO, Encoder, LeafOf, combined, decode, parse, theory
from redfuser.rules.language import PHASES, Law, RuleSet

_SETTLE = "(saturate (seq (saturate {p}-fact) (saturate {p}-simplify)))"


RUNAWAY = 4
"""No round is started that, at the last rate of growth, would exceed the node limit this many times: it could not be
interrupted."""


@dataclass(frozen=True)
class Limits:
    """When a saturation stops unfinished: e-graph nodes, iterations, seconds."""

    nodes: int = 6000
    iterations: int = 12
    seconds: float = 4.0


@dataclass
class Step:
    """One line of the timeline: a saturation, how it ended, and what it cost.

    `reached`: the iteration that found what was finally extracted; `matched`: laws that matched anything.
    """

    name: str
    outcome: str = ""
    iterations: int = 0
    nodes: int = 0
    milliseconds: float = 0.0
    reached: int = 0
    matched: set[str] = field(default_factory=set, repr=False)

    def __str__(self) -> str:
        return (f"{self.name}: {self.outcome} after {self.iterations} iterations, {self.nodes} nodes, "
                f"{self.milliseconds:.1f} ms")


@dataclass
class Scope:
    """One derivation inside the engine: expressions are added, equated, saturated and extracted here.

    `leaf` tells which expressions are units for the engine, with their name and axes; `units` maps names back.
    """

    engine: Engine
    leaf: LeafOf
    prefix: str
    units: dict[str, Expr] = field(default_factory=dict)

    def text(self, e: Expr) -> str:
        """The engine's text of an expression."""
        return Encoder(self._leaf)(e)

    def _leaf(self, e: Expr) -> tuple[str, frozenset[str]] | None:
        unit = self.leaf(e)
        if unit is not None and self.units.setdefault(unit[0], e) != e:
            raise EngineError(f"two different expressions are called {unit[0]}")
        return unit

    def add(self, e: Expr) -> None:
        """Put an expression into the e-graph."""
        self.engine.run(f"(let $goal{self.engine.fresh()} {self.text(e)})")

    def equate(self, a: Expr, b: Expr) -> None:
        """State that two expressions are equal."""
        self.engine.run(f"(union {self.text(a)} {self.text(b)})")

    def state(self, relation: str, *args: Expr) -> None:
        """State a fact (`pos`, `nneg`, `nz`, `npos`, `leq`, `changes`)."""
        self.engine.run(f"({relation} {' '.join(map(self.text, args))})")

    def holds(self, relation: str, e: Expr) -> bool:
        """Whether a fact about an expression has been derived."""
        return self.engine.check(f"({relation} {self.text(e)})")

    def iterate(self, matched: set[str], most_nodes: int = sys.maxsize) -> bool:
        """One round of every phase, signs and simplifications run to their fixed point. False: nothing changed.

        Names of the laws that matched anything are added to `matched`. Phases beyond `most_nodes` are left out.
        """
        p = self.prefix
        settle = _SETTLE.format(p=p)
        updated = False
        for phase in (x for x in PHASES if x not in ("fact", "simplify")):
            report = self.engine.schedule(f"(seq {settle} (run {p}-{phase}) {settle})")
            matched.update(name for name, count in report.num_matches_per_rule.items() if count)
            updated |= bool(report.updated)
            if self.engine.nodes() > most_nodes:
                break
        if self.engine.check(f"(= {ZERO} {ONE})"):
            raise EngineError("the rules prove 0 = 1: one of them is unsound; sample each with rf.check_rule")
        return updated

    def saturate(self, step: Step, limits: Limits, enough: Callable[[Step], str] = lambda _: "") -> Step:
        """Iterate until nothing changes, `enough` gives a word for the outcome, or a limit is hit."""
        start = time.perf_counter()
        step.outcome = "limit"
        step.nodes = self.engine.nodes()
        for _ in range(limits.iterations):
            step.iterations += 1
            before = step.nodes
            updated = self.iterate(step.matched, limits.nodes)
            step.nodes = self.engine.nodes()
            if not updated:
                step.outcome = "saturated"
                break
            if word := enough(step):
                step.outcome = word
                break
            growth = step.nodes / max(before, 1)
            if step.nodes * max(growth, 1) > RUNAWAY * limits.nodes or step.nodes > limits.nodes:
                break
            if time.perf_counter() - start > limits.seconds:
                break
        step.milliseconds += (time.perf_counter() - start) * 1e3
        return step

    def extract(self, goals: list[Expr], cost: Any) -> list[tuple[int, Expr]]:
        """The cheapest equal expression of each goal under a cost model (`redfuser.derivation.cost`)."""
        found = self.engine.extract([self.text(g) for g in goals], cost)
        return [(value, decode(parse(text), self.units.__getitem__)) for value, text in found]


class Engine:
    """The e-graph of one rule set. It belongs to the thread that made it: the bindings refuse any other."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules
        self.counter = 0
        self._egraph: Any = None
        self._rulesets: dict[str, str] = {}

    def fresh(self) -> int:
        """A number not used before."""
        self.counter += 1
        return self.counter

    def load(self) -> None:
        """Build the e-graph and load the theory, unless that is done."""
        if self._egraph is None:
            import egglog.bindings

            text, self._rulesets = theory(self.rules)
            self._egraph = egglog.bindings.EGraph()
            self.run(text)
            self.run(combined(self.rules, self._rulesets, lambda _: True, "all"))

    @contextmanager
    def scope(self, leaf: LeafOf, keep: Callable[[Law], bool] | None = None) -> Iterator[Scope]:
        """A fresh workspace; with `keep`, only the laws it accepts are active."""
        self.load()
        self.run("(push)")
        try:
            prefix = "all"
            if keep is not None:
                prefix = f"part{self.fresh()}"
                self.run(combined(self.rules, self._rulesets, keep, prefix))
            yield Scope(self, leaf, prefix)
        finally:
            if self._egraph is not None:
                self.run("(pop)")

    def run(self, text: str) -> list[Any]:
        """Run egglog text.

        Raises
        ------
        EngineError
            when the engine rejects it or panics (the e-graph is rebuilt at the next use).
        """
        try:
            return list(self._egraph.run_program(*self._egraph.parse_program(text)))
        except BaseException as problem:  # a Rust panic arrives as a BaseException
            name = type(problem).__name__
            if name == "PanicException":
                self._egraph = None
            elif name != "EggSmolError":
                raise
            raise EngineError(f"the equality-saturation engine failed: {problem}") from problem

    def check(self, fact: str) -> bool:
        """Whether a fact holds in the e-graph."""
        import egglog.bindings

        try:
            self._egraph.run_program(*self._egraph.parse_program(f"(check {fact})"))
        except egglog.bindings.EggSmolError:
            return False
        return True

    def schedule(self, text: str) -> Any:
        """Run a schedule; the engine's report."""
        return self.run(f"(run-schedule {text})")[0].report

    def nodes(self) -> int:
        """Number of expression nodes in the e-graph."""
        sizes = self.run("(print-size)")[0].sizes
        return sum(count for name, count in sizes if name[0].isupper())

    def extract(self, texts: list[str], cost: Any) -> list[tuple[int, str]]:
        """Cost and text of the cheapest term of each class."""
        import egglog.bindings as bindings

        model = bindings.CostModel(cost.fold, lambda f, a: cost.node(self._egraph, f, a), lambda *_: 0, lambda *_: 0)
        extractor = bindings.Extractor(["E"], self._egraph, model)
        found = []
        for text in texts:
            command = self._egraph.parse_program(f"(check (= {text} {text}))")[0]
            _, value = self._egraph.eval_expr(command.facts[0].left)
            dag = bindings.TermDag()
            price, term = extractor.extract_best(self._egraph, dag, value, "E")
            found.append((price, dag.to_string(term)))
        return found


class NotReached(Exception):
    """A repeated search did not get as far as the first one."""


@dataclass
class Replay:
    """A search that is repeated: the stages it refused, and the iterations each of its saturations needed."""

    refused: frozenset[str]
    iterations: Iterator[int]

    def limits(self) -> Limits:
        """Limits of the next saturation.

        Raises
        ------
        NotReached
            when the repeated search needs more saturations than the first.
        """
        count = next(self.iterations, None)
        if count is None:
            raise NotReached("another saturation")
        return Limits(nodes=sys.maxsize, iterations=count)


@dataclass(frozen=True)
class Search:
    """How to search: the engine, its limits, where to note the steps, which laws to use (None: all).

    hopeless  asked once, when a search is going to take long: True ends it (the rank test says it cannot succeed)
    replay    the successful search that this one repeats with fewer laws, or None
    """

    engine: Engine
    limits: Limits
    steps: list[Step]
    keep: Callable[[Law], bool] | None = None
    hopeless: Callable[[], bool] = lambda: False
    replay: Replay | None = None


_local = threading.local()
_MOST_ENGINES = 8


def engine_for(rules: RuleSet) -> Engine:
    """The engine of a rule set, kept for reuse by the calling thread; the oldest goes when there are too many."""
    engines: dict[RuleSet, Engine] | None = getattr(_local, "engines", None)
    if engines is None:
        engines = _local.engines = {}
    if rules not in engines:
        while len(engines) >= _MOST_ENGINES:
            del engines[next(iter(engines))]
        engines[rules] = Engine(rules)
    return engines[rules]
