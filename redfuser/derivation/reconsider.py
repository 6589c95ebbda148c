"""Choose accumulators again for a stage whose first ones have no correction.

Some laws give more accumulators, and of larger numbers, than the stage needs: the square of a difference is expanded
into its three products. They are a last resort, on only here, where the sums that cannot be corrected are refused.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from redfuser.derivation.accumulate import (
    Model,
    accumulate,
    leaf_price,
    mentioned,
    name_dependencies,
    state_given,
)
from redfuser.derivation.cost import OtherAccumulatorCost
from redfuser.derivation.engine import Scope
from redfuser.derivation.parts import obeys_laws, spread
from redfuser.derivation.search import Search, Step
from redfuser.derivation.skeleton import Stage, reads_state, reductions_in
from redfuser.ir import Expr, Op, Reduce, Ref, free_axes, refs, substitute
from redfuser.rules.language import STREAM
from redfuser.rules.theory import FORBIDDEN, TOO_MUCH

MOST_RECONSIDERED = 1500
"""Nodes of a search for other accumulators: it finds them early or never."""


def reconsider(search: Search, model: Model, stage: Stage, refused: list[str]) -> list[str] | None:
    """Choose accumulators for a stage again: with the laws of last resort, and without those that have no correction.

    Returns their internal names, those of earlier stages left out; None when the laws give no others. The model is
    changed accordingly (see `Model.on_trial`).
    """
    earlier = list(model.results)[: list(model.results).index(stage.name)]
    with search.engine.scope(model.leaf, search.keep) as scope:
        _restate_earlier(scope, model, earlier)
        whole = Reduce(stage.monoid, STREAM, name_dependencies(scope, model, stage.name, stage.body))
        goal = spread(stage.monoid, whole)
        scope.add(goal)
        scope.state("resort")
        scope.state("refused", whole.body)
        state_given(scope, whole.body)
        for k in refused:
            scope.state("refused", model.chosen.get(k, model.accumulators[k].body))
        cost = OtherAccumulatorCost(partial(leaf_price, search.taste), search.taste)
        step = Step(f"other accumulators of {stage.name}", reconsidered=stage.name)
        search.steps.append(step)
        if search.replay:
            scope.saturate(step, search.replay.limits())
        else:
            few = replace(search.limits, nodes=min(search.limits.nodes, MOST_RECONSIDERED))
            scope.saturate(step, few, _Others(scope, goal, cost))
        step.reached = step.iterations
        price, form = scope.extract([goal], cost)[0]
        if price >= TOO_MUCH or any(model.named(x.body) is None for x in reductions_in(form)):
            return None
        _release(model, stage.name)
        model.results[stage.name] = accumulate(scope, model, stage, form)
    kept = frozenset[str]().union(*map(mentioned, model.results.values()))
    for k in set(refused) - kept:  # or later stages would build on what nothing computes
        del model.accumulators[k]
    return model.stage_accumulators[stage.name]


def _release(model: Model, name: str) -> None:
    """Let later results that share the accumulator of a result read the result instead: it gets other accumulators."""
    shared = model.results[name]
    if isinstance(shared, Ref) and shared.name in model.accumulators:
        for n, e in model.results.items():
            if n != name:
                model.results[n] = substitute(e, {shared: model.symbol(name)})


def _restate_earlier(scope: Scope, model: Model, stages: list[str]) -> None:
    """What is known of the stages before the one that is reconsidered."""
    for unit in model.skeleton.positive:
        scope.state("pos", unit)
    for a in model.accumulators.values():
        if a.stage in stages:
            scope.equate(a.ref, Reduce(a.monoid, STREAM, model.chosen.get(a.id, a.body)))
    for name in (*stages, *(n for n, e in model.dependencies.items() if refs(e) <= set(stages))):
        scope.equate(model.symbol(name), model.definition(name))
        for sign in model.signs.get(name, ()):
            scope.state(sign, model.symbol(name))
    for fact in model.skeleton.known.element:
        scope.state(fact.relation, *fact.args)


class _Others:
    """When to stop looking for other accumulators: the price of those found stayed the same for two rounds."""

    def __init__(self, scope: Scope, goal: Expr, cost: OtherAccumulatorCost) -> None:
        self.scope, self.goal, self.cost = scope, goal, cost
        self.prices = [FORBIDDEN, FORBIDDEN]

    def __call__(self, step: Step) -> str:
        self.prices.append(self.scope.extract([self.goal], self.cost)[0][0])
        return "settled" if self.prices[-3:] == [self.prices[-1]] * 3 and self.prices[-1] < TOO_MUCH else ""


def is_expandable(stage: Stage) -> bool:
    """Whether laws of last resort may give a stage other accumulators."""
    return _expands(stage.body) or (obeys_laws(stage.monoid) and reads_state(stage.body))


def _expands(e: Expr) -> bool:
    """Whether a body has a power or product of sums in which something scaled by earlier results takes part."""
    if not isinstance(e, Op) or STREAM not in free_axes(e) or not reads_state(e):
        return False
    product = e.fn == "mul" and all(reads_state(a) and STREAM in free_axes(a) for a in e.args)
    return ((product or e.fn == "pow") and any(map(_adds_scaled, e.args))) or any(map(_expands, e.args))


def _adds_scaled(e: Expr) -> bool:
    """Whether a sum has a term that earlier results multiply, or an addition theorem gives it one."""
    if not isinstance(e, Op) or not reads_state(e):
        return False
    scaled = [a for a in e.args if isinstance(a, Op) and STREAM in free_axes(a) and any(map(_is_state, a.args))]
    return e.fn in ("sin", "cos") or (e.fn in ("add", "sub") and bool(scaled)) or any(map(_adds_scaled, e.args))


def _is_state(e: Expr) -> bool:
    return STREAM not in free_axes(e) and reads_state(e)
