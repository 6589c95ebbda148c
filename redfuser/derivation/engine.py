"""The equality-saturation engine: one e-graph with the theory of a rule set, used goal after goal.

Loading a theory costs tens of milliseconds, so one `Engine` per rule set and thread is kept and each derivation works
in a `scope()`, which leaves no trace. A running `run` cannot be interrupted: every call runs one iteration, and the
caller looks at node count, time and cost in between.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any

from redfuser.derivation.commands import expression, lines, program
from redfuser.derivation.record import Record
from redfuser.derivation.search import Limits, Step
from redfuser.errors import EngineError
from redfuser.ir import Expr
from redfuser.logs import derive as log
from redfuser.rules.encoding import Encoder, LeafOf, decode, parse
from redfuser.rules.language import Law, RuleSet
from redfuser.rules.theory import ABSURD, ROUNDS, START, TABLES, TOGETHER, Theory, tables

RUNAWAY = 2
"""No round is started that would exceed the node limit this many times, if growth goes on as it did: it could not be
interrupted."""

MOST_REPEATED = 8000
"""Nodes of a repeated search with which it goes on."""
MOST_GARBAGE = 2000
"""Subsumed nodes of earlier goals that an e-graph may hold."""
MOST_ROUNDS = 1000
"""Rounds after which an e-graph is built anew. It keeps a report of each for ever, some 20 kB, and its own data lie
scattered between them: after 1000 rounds a round takes 1.2 times as long as at first, after 4000 1.45 times. Building
costs as much as some fifty rounds."""


@dataclass
class Scope:
    """One derivation inside the engine: expressions are added, equated, saturated and extracted here.

    `leaf` tells which expressions are units for the engine, with their name and axes; `units` maps names back.
    `filled` are the tables with rows; `settled` those of the last round, empty when something was stated since.
    """

    engine: Engine
    leaf: LeafOf
    keep: Callable[[Law], bool] | None = None
    units: dict[str, Expr] = field(default_factory=dict)
    filled: frozenset[str] = frozenset(("Num",))
    record: Record = field(default_factory=Record)
    watched: bool = False
    settled: frozenset[str] = frozenset()
    _unsaid: list[str] = field(default_factory=list)
    _said: set[str] = field(default_factory=set)
    _texts: dict[Expr, str] = field(default_factory=dict)

    def text(self, e: Expr) -> str:
        """The engine's text of an expression."""
        text = self._texts.get(e)
        if text is None:
            text = self._texts[e] = Encoder(self._leaf)(e)
            self.filled |= tables(text)
        return text

    def _leaf(self, e: Expr) -> tuple[str, frozenset[str]] | None:
        unit = self.leaf(e)
        if unit is not None and self.units.setdefault(unit[0], e) != e:
            raise EngineError(f"two different expressions are called {unit[0]}")
        return unit

    def add(self, e: Expr) -> None:
        """Put an expression into the e-graph."""
        self.say(self.text(e))

    def equate(self, a: Expr, b: Expr) -> None:
        """State that two expressions are equal."""
        self.say(f"(union {self.text(a)} {self.text(b)})")

    def state(self, relation: str, *args: Expr) -> None:
        """State a fact (`pos`, `nneg`, `nz`, `npos`, `leq`, `changes`)."""
        self.filled |= {relation}
        self.say(f"({relation} {' '.join(map(self.text, args))})")

    def say(self, text: str) -> None:
        """Run text in the e-graph before anything is asked of it, and note it for a repetition; once is enough."""
        if text not in self._said:
            self._said.add(text)
            self.record.texts(text)
            self._unsaid.append(text)

    def _speak(self) -> None:
        """Run what was said: in one call, for a call costs more than most of what is said."""
        if self._unsaid:
            self.settled = frozenset()
            self.engine.run("\n".join(self._unsaid))
            self._unsaid.clear()

    def holds(self, relations: Sequence[str], e: Expr) -> tuple[str, ...]:
        """Those of the relations that have been derived for an expression."""
        text = self.text(e)
        self._speak()
        found = self.engine.holds(relations, text)
        self.record.questions(tuple(relations), text, found)
        return found

    def tell(self, texts: list[str]) -> None:
        """Run texts of another scope."""
        if texts:
            self.filled |= tables("\n".join(texts))
            self.settled = frozenset()
            self.engine.run("\n".join(texts))

    def repeat(self, rounds: int, matched: set[str]) -> None:
        """Several rounds like `iterate`, of which only the size is looked at: without the laws that keep terms small,
        a few rounds may not end."""
        for _ in range(rounds):
            if self._round(matched)[1] > MOST_REPEATED:
                break

    def iterate(self, matched: set[str]) -> tuple[bool, int]:
        """One round of every phase, signs and simplifications run to their fixed point in between.

        Names of the laws that matched anything are added to `matched`. Returns whether anything changed, and the
        number of nodes.

        Raises
        ------
        EngineError
            when two different numbers were proven equal.
        """
        updated, nodes = self._round(matched)
        if ABSURD in self.filled:
            raise EngineError("the rules prove 0 = 1: one of them is unsound; sample each with rf.check_rule")
        return updated, nodes

    def _round(self, matched: set[str]) -> tuple[bool, int]:
        """One round of the laws that can match what there is: those of nodes and relations without any row wait."""
        self._speak()
        settled, self.settled = self.settled == self.filled, self.filled
        report, sizes = self.engine.round(self.filled, self.keep, settled)
        matched.update(name for name, count in report.report.num_matches_per_rule.items() if count)
        counts = self.engine.counts(sizes.sizes)
        new = [t for t in counts if t not in self.filled and t in TABLES]
        self.filled = self.filled.union(new)
        return bool(report.report.updated or new), _nodes(counts)

    def saturate(self, step: Step, limits: Limits, enough: Callable[[Step], str] = lambda _: "") -> Step:
        """Iterate until nothing changes, `enough` gives a word for the outcome, or a limit is hit."""
        start = time.perf_counter()
        step.record = self.record
        self.record.saturations(step)
        step.outcome = "limit"
        growth = 1.0
        for _ in range(limits.iterations):
            step.iterations += 1
            before, growing = step.nodes, growth
            updated, step.nodes = self.iterate(step.matched)
            step.growth.append(step.nodes)
            if not updated:
                step.outcome = "saturated"
                break
            self.watched = True
            word = enough(step)
            self.watched = False
            if word:
                step.outcome = word
                break
            growth = max(step.nodes / (before or step.nodes or 1), 1)
            if step.nodes * growth * max(growth / growing, 1) > RUNAWAY * limits.nodes or step.nodes > limits.nodes:
                break
            if time.perf_counter() - start > limits.seconds:
                step.outcome = "time"
                break
        step.milliseconds += (time.perf_counter() - start) * 1e3
        log.debug("%s", step)
        return step

    def price(self, goals: list[Expr]) -> int:
        """Cost of the goals together under the fixed weights of `redfuser.rules.theory`: quick, no term is built."""
        texts = [self.text(g) for g in goals]
        self._speak()
        return self.engine.price(texts)

    def extract(self, goals: list[Expr], cost: Any) -> list[tuple[int, Expr]]:
        """The cheapest equal expression of each goal under a cost model (`redfuser.derivation.cost`)."""
        texts = [self.text(g) for g in goals]
        self._speak()
        found = self.engine.extract(texts, cost)
        if not self.watched:
            self.record.extractions(texts, cost, [text for _, text in found])
        return [(value, decode(parse(text), self.units.__getitem__)) for value, text in found]


class Engine:
    """The e-graph of one rule set. It belongs to the thread that made it: the bindings refuse any other."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules
        self.counter = 0
        self.theory = Theory(rules)
        self._egraph: Any = None
        self._busy = False
        self._garbage: dict[str, int] = {}
        self._rounds = 0
        self._schedules: dict[tuple[frozenset[str], frozenset[str] | None], tuple[Any, Any]] = {}

    def fresh(self) -> int:
        """A number not used before."""
        self.counter += 1
        return self.counter

    def load(self) -> None:
        """Build the e-graph and load the theory, unless that is done."""
        if self._egraph is None:
            import egglog.bindings

            self._egraph = egglog.bindings.EGraph()
            for line in lines(self.theory.text):
                self.run(line)
            self.run("(push)")

    @contextmanager
    def scope(self, leaf: LeafOf, keep: Callable[[Law], bool] | None = None) -> Iterator[Scope]:
        """The empty e-graph; with `keep`, only the laws it accepts are active. Scopes do not nest."""
        if self._busy:
            raise EngineError("a scope of the engine is open already")
        if self._rounds > MOST_ROUNDS:
            self._drop()
        self.load()
        self._busy = True
        try:
            self._clear()
            yield Scope(self, leaf, keep)
        finally:
            self._busy = False

    def _clear(self) -> None:
        """Empty the e-graph. Subsumed rows cannot be deleted: unreachable as they are, they gather until there are so
        many that copying the theory is cheaper than to drag them along."""
        _, sizes, *_ = self.run(f"{START[0]} (print-size) {START[1]}")
        self._garbage = dict(sizes.sizes)
        if _nodes(self._garbage) > MOST_GARBAGE:
            self._garbage.clear()
            self._schedules.clear()
            self.run(f"(pop) (push) {START[1]}")

    def _drop(self) -> None:
        """Forget the e-graph: the next use builds another."""
        self._egraph = None
        self._rounds = 0
        self._schedules.clear()

    def round(self, found: frozenset[str], keep: Callable[[Law], bool] | None, settled: bool) -> list[Any]:
        """Run one round of the laws that can match among the nodes `found` and that `keep` accepts. `settled`: signs
        and simplifications are at their fixed point."""
        self._rounds += 1
        return self._execute(self._schedule(found, keep)[settled])

    def _schedule(self, found: frozenset[str], keep: Callable[[Law], bool] | None) -> tuple[Any, Any]:
        """The commands of such a round. Commuted terms need no settling: they are in the class of the others."""
        key = found, None if keep is None else frozenset(law.name for law in self.rules if keep(law))
        if key not in self._schedules:
            prefix = f"part{self.fresh()}"
            declared = self.theory.combined(prefix, found, keep)
            self.run(declared)
            settle = f"(saturate {prefix}-settle)"
            parts = [settle]
            for phase in ROUNDS:
                if f" {prefix}-{phase} " in declared:
                    parts += [f"(run {prefix}-{phase})", *([settle] if phase != "commute" else [])]
            first, later = (f"(run-schedule (seq {' '.join(x)})) (print-size)" for x in (parts, parts[1:]))
            self._schedules[key] = program(first), program(later)
        return self._schedules[key]

    def run(self, text: str) -> list[Any]:
        """Run egglog text.

        Raises
        ------
        EngineError
            when the engine rejects it or panics (the e-graph is rebuilt at the next use).
        """
        return self._execute(program(text) or self._parsed(text))

    def _parsed(self, text: str) -> Any:
        with self._alert():
            return self._egraph.parse_program(text)

    def _execute(self, commands: Any) -> list[Any]:
        """Run commands of the bindings."""
        with self._alert():
            return list(self._egraph.run_program(*commands))

    @contextmanager
    def _alert(self) -> Iterator[None]:
        """Rejections and panics of the engine become errors of ours; after a panic the e-graph is built again."""
        try:
            yield
        except BaseException as problem:  # a Rust panic arrives as a BaseException
            name = type(problem).__name__
            if name == "PanicException":
                self._drop()
            elif name != "EggSmolError":
                raise
            raise EngineError(f"the equality-saturation engine failed: {problem}") from problem

    def holds(self, relations: Sequence[str], text: str) -> tuple[str, ...]:
        """Those of the relations that hold for an expression."""
        with self._alert():
            _, value = self._egraph.eval_expr(expression(text))
            return tuple(r for r in relations if self._egraph.lookup_function(r, [value]) is not None)

    def counts(self, sizes: Iterable[tuple[str, int]]) -> dict[str, int]:
        """Rows of the tables that have any, those left behind by earlier goals not counted."""
        return {name: left for name, rows in sizes if rows and (left := rows - self._garbage.get(name, 0))}

    def price(self, texts: list[str]) -> int:
        """Cost of the cheapest terms of all these classes under the fixed weights: one extraction, whatever their
        number."""
        (found,) = self.run(f"(extract {reduce(lambda a, b: f'({TOGETHER} {a} {b})', texts)})")
        return int(found.cost)

    def extract(self, texts: list[str], cost: Any) -> list[tuple[int, str]]:
        """Cost and text of the cheapest term of each class."""
        import egglog.bindings as bindings

        found = []
        with self._alert():
            model = bindings.CostModel(cost.fold, partial(cost.node, self._egraph), lambda *_: 0, lambda *_: 0)
            extractor = bindings.Extractor(["E"], self._egraph, model)
            for text in texts:
                _, value = self._egraph.eval_expr(expression(text))
                dag = bindings.TermDag()
                price, term = extractor.extract_best(self._egraph, dag, value, "E")
                found.append((price, dag.to_string(term)))
        return found


def _nodes(counts: dict[str, int]) -> int:
    return sum(rows for name, rows in counts.items() if name[0].isupper() and name != TOGETHER)


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
