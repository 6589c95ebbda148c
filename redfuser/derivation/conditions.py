"""On what a fused cascade rests: the assumptions it uses, and what must hold of the finished row.

An assumption counts as used when the derivation without it finds another form. What must hold of the finished row are
the domains of its partial operations: a divisor other than 0, a positive argument of a logarithm. Where they fail the
result is NaN or infinite, as in NumPy; where the signs of the parts prove them, they are not listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from redfuser.derivation.engine import Engine, Scope
from redfuser.derivation.fusion import FusedCascade
from redfuser.derivation.search import Limits, Step
from redfuser.derivation.skeleton import Skeleton
from redfuser.ir import NEG_INF, Cascade, Expr, Load, Op, Reduce, Ref, Size, names_read, refs, substitute, walk
from redfuser.rules.language import STREAM

_DOMAINS = {"div": ("nz", "{} != 0"), "log": ("pos", "{} > 0"), "log2": ("pos", "{} > 0"), "sqrt": ("nneg", "{} >= 0")}
"""Partial operation -> the sign its last operand must have, in the engine and in words."""


def used_assumptions(fused: FusedCascade, derive: Callable[[Cascade], FusedCascade]) -> tuple[Expr, ...]:
    """The assumptions without which `derive` gives another form; of two that replace each other, one."""
    cascade = fused.cascade
    kept = list(cascade.assumptions)
    for a in cascade.assumptions:
        trial = [x for x in kept if x != a]
        if _loop(derive(replace(cascade, assumptions=tuple(trial)))) == _loop(fused):
            kept = trial
    return tuple(kept)


def _loop(fused: FusedCascade) -> tuple[object, ...]:
    return fused.accumulators, fused.dependencies, fused.corrections, fused.epilogue, fused.passes


def assumed(cascade: Cascade, condition: Expr) -> str:
    """An assumption in words."""
    results = {r.name for r in cascade.reductions}
    return f"{condition}" + (" for the finished row" if refs(condition) & results else "")


def domains(fused: FusedCascade, engine: Engine) -> tuple[str, ...]:
    """What must hold of the finished row and is not proven, in words."""
    needed = list(dict.fromkeys(_partial(fused)))
    if not needed:
        return ()
    form = _Form(fused)
    with engine.scope(form.leaf) as scope:
        form.state(scope)
        converted = [(fn, e, form.skeleton.abstract(e)) for fn, e in needed]
        for _, _, e in converted:
            scope.add(e)
        scope.saturate(Step("conditions"), Limits(iterations=2))
        open_ = [(fn, e) for fn, e, x in converted
                 if form.may_be_removed(e) or not scope.holds(_DOMAINS[fn][:1], x)]
    return tuple(dict.fromkeys(f"{_DOMAINS[fn][1].format(e)} for the finished row (otherwise NaN or infinite, as in "
                               "NumPy)" for fn, e in open_))


def _partial(fused: FusedCascade) -> Iterator[tuple[str, Expr]]:
    """Partial operations of the epilogue, and their operands over accumulators."""
    counts = {a.name for a in fused.accumulators if a.counts}
    definitions: dict[Expr, Expr] = {Ref(d.name, d.axes): d.expr for d in fused.dependencies}

    def written_out(e: Expr) -> Expr:
        known = substitute(e, definitions)
        return e if known == e else written_out(known)

    for _, e in fused.epilogue:
        for x in walk(written_out(e)):
            if isinstance(x, Op) and x.fn in _DOMAINS and refs(x.args[-1]) - counts:
                yield x.fn, x.args[-1]


class _Form:
    """A fused cascade as the engine sees it."""

    def __init__(self, fused: FusedCascade) -> None:
        self.bodies = {a.name: a.body for a in fused.accumulators}
        self.accumulators = fused.accumulators
        state = {a.name: a.axes for a in fused.accumulators} | {d.name: d.axes for d in fused.dependencies}
        self.skeleton = Skeleton(fused.cascade, state)
        self.dependencies = fused.dependencies

    def leaf(self, e: Expr) -> tuple[str, frozenset[str]] | None:
        """Name and axes of the units of the engine."""
        if isinstance(e, Load):
            return e.tensor, frozenset(a for a in e.axes if isinstance(a, str))
        return (f"ref {e.name}", frozenset(e.axes)) if isinstance(e, Ref) else None

    def state(self, scope: Scope) -> None:
        """What accumulators and dependencies are, and what is guaranteed."""
        for a in self.accumulators:
            if a.counts:
                scope.equate(Ref(a.name, a.axes), Size(STREAM))
            else:
                scope.equate(Ref(a.name, a.axes), Reduce(a.monoid, STREAM, self.skeleton.abstract(a.body)))
        for d in self.dependencies:
            scope.equate(Ref(d.name, d.axes), self.skeleton.abstract(d.expr))
        for unit in self.skeleton.positive:
            scope.state("pos", unit)
        for fact in (*self.skeleton.known.element, *self.skeleton.known.final):
            scope.state(fact.relation, *fact.args)

    def may_be_removed(self, e: Expr) -> bool:
        """Whether the value reads elements that a mask may remove, all of them: then a sum of exponentials is 0."""
        definitions = self.bodies | {n: p.expr for n, p in self.skeleton.producers.items()}
        read = names_read([e], definitions) & definitions.keys()
        return any(NEG_INF in walk(x) for x in (e, *(definitions[n] for n in read)))
