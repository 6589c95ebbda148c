"""Which laws a derivation rests on: a set that still gives the same fused cascade and from which none can be dropped.

The engine gives no proofs and counts matches, not uses. So ask directly: switch laws off and look again. A derivation
is a sequence of scopes of the engine, and what a scope was told and answered is on record: each is repeated by itself
with fewer laws, the cheap ones first, so that a dear one has to find only what the others do not need already. A law
that did not match in a scope cannot matter there, and a scope that needs no further law is asked once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from redfuser.derivation.cost import CorrectionCost
from redfuser.derivation.engine import Engine
from redfuser.derivation.record import Record
from redfuser.derivation.search import Step
from redfuser.rules.encoding import REDUCTION_NODES
from redfuser.rules.theory import TOO_MUCH

if TYPE_CHECKING:
    from redfuser.rules import RuleSet

Matched = frozenset[str]
Question = Callable[[frozenset[str]], Matched | None]
"""Is the goal reached with the laws of these names alone? If so, which of them matched anything; None if not."""


def smallest(names: Iterable[str], question: Question, most: int) -> tuple[str, ...]:
    """A subset of `names` from which nothing can be dropped without losing the goal (order kept).

    `question(all names)` must succeed, and a superset must reach what a subset does. A law that did not match when the
    goal was reached goes without a question. The result is minimal, not necessarily the smallest of all. After `most`
    questions the set found so far is returned.
    """
    kept = list(names)
    size = max(len(kept) // 4, 1)
    asked = 0
    while True:
        i = 0
        while i < len(kept):
            if asked >= most:
                return tuple(kept)
            asked += 1
            trial = kept[:i] + kept[i + size :]
            matched = question(frozenset(trial))
            if matched is None:
                i += size
                continue
            i -= sum(name not in matched for name in kept[:i])
            kept = [name for name in trial if name in matched]
        if size == 1:
            return tuple(kept)
        size //= 2


def laws_needed(engine: Engine, rules: RuleSet, steps: Sequence[Step], most: int, *,
                strict: bool = False) -> tuple[str, ...] | None:
    """Names of the laws that the recorded scopes need for their answers, in the order of the rule set.

    Questions are asked until scopes with `most` e-graph nodes in all were repeated. None where a scope does not repeat
    even with all laws that matched in it: its answers are then no measure. `strict`: signs that were established must
    be established again, needed or not.
    """
    return _Union(engine, [law.name for law in rules], most, strict).over(sorted(_scopes(steps), key=lambda s: s.nodes))


class _Union:
    """The laws that several scopes need, found scope by scope."""

    def __init__(self, engine: Engine, order: list[str], most: int, strict: bool) -> None:
        self.engine = engine
        self.order = order
        self.most = most
        self.strict = strict
        self.needed: dict[str, int] = {}  # law -> number of the scope that asked for it
        self.asked = 0

    def over(self, scopes: Sequence[Scoped]) -> tuple[str, ...] | None:
        for i, scope in enumerate(scopes):
            if self._ask(scope, frozenset(self.needed)) is not None:
                continue
            fresh = [name for name in self.order if name in scope.matched and name not in self.needed]
            known = frozenset(self.needed)
            matched = self._ask(scope, known.union(fresh))
            if matched is None:
                return None
            fresh = [name for name in fresh if name in matched]

            def question(trial: frozenset[str], scope: Scoped = scope, known: frozenset[str] = known) -> Matched | None:
                return self._ask(scope, trial | known)

            questions = max(self.most - self.asked, 0) // max(scope.nodes, 1)
            self.needed |= dict.fromkeys(smallest(fresh, question, questions), i)
        self._drop(scopes)
        return tuple(name for name in self.order if name in self.needed)

    def _ask(self, scope: Scoped, kept: frozenset[str]) -> Matched | None:
        self.asked += scope.nodes
        return scope.repeats(self.engine, kept, self.strict)

    def _drop(self, scopes: Sequence[Scoped]) -> None:
        """Drop what later scopes made superfluous, the scope that asked for it first asked."""
        last = max(self.needed.values(), default=0)
        for name in [n for n, i in self.needed.items() if i < last]:
            own = scopes[self.needed[name]]
            users = [own, *(s for s in scopes if name in s.matched and s is not own)]
            rest = frozenset(self.needed) - {name}
            room = self.asked + sum(s.nodes for s in users) <= self.most
            if room and all(self._ask(s, rest) is not None for s in users):
                del self.needed[name]


class Scoped:
    """One scope of a derivation: its record, the laws that matched in it, its nodes."""

    def __init__(self, record: Record, steps: Sequence[Step]) -> None:
        self.record = record
        self.matched = frozenset[str]().union(*(s.matched for s in steps))
        self.nodes = sum(s.nodes for s in steps)

    def repeats(self, engine: Engine, kept: frozenset[str], strict: bool) -> Matched | None:
        """Whether the scope gives the same answers with the laws of these names alone: those that matched, or None."""
        rounds, matched, texts = 0, set[str](), list[str]()
        with engine.scope(lambda e: None, lambda law: law.name in kept) as scope:
            for event in self.record.events:
                if event[0] == "text":
                    texts.append(event[1])
                    continue
                scope.tell(texts)
                texts = []
                if event[0] == "saturate":
                    rounds = event[1].reached
                    scope.repeat(rounds or event[1].iterations, matched)
                elif event[0] == "extract" and rounds:
                    _, goals, cost, answers = event
                    if isinstance(cost, CorrectionCost) and _hopeless(engine, goals, answers):
                        return None
                    if [text for _, text in engine.extract(goals, cost)] != answers:
                        return None
                elif event[0] == "holds" and strict and engine.holds(event[1], event[2]) != event[3]:
                    return None
        return frozenset(matched) & kept


def _hopeless(engine: Engine, goals: Sequence[str], answers: Sequence[str]) -> bool:
    """Whether a correction without a reduction was found, and there is none now: asked with fixed weights, quickly."""
    clean = [g for g, a in zip(goals, answers, strict=True) if not any(f"({n} " in a for n in REDUCTION_NODES)]
    return bool(clean) and engine.price(clean) >= TOO_MUCH


def _scopes(steps: Iterable[Step]) -> list[Scoped]:
    """The scopes in which anything was found."""
    own: dict[int, list[Step]] = {}
    for step in steps:
        own.setdefault(id(step.record), []).append(step)
    return [Scoped(group[0].record, group) for group in own.values() if any(s.reached for s in group)]
