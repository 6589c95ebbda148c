"""Find corrections by telescoping.

For an accumulator P(d) = (+)_n F(x_n, d), the loop holds P(d_old) and needs P(d_new). Both go into one e-graph,
P(d_old) is equated with the accumulator's value, and the update rules of `redfuser.rules.telescoping` are on. When the
class of P(d_new) holds a term without any reduction over data, that term is the correction. Where none is found, a
reduction that reads no new value may become a further accumulator; this repeats until the state is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from redfuser.derivation.accumulate import Location, Model, mentioned, state_given
from redfuser.derivation.cost import ClosureCost, CorrectionCost
from redfuser.derivation.engine import Scope
from redfuser.derivation.fusion import COUNT
from redfuser.derivation.parts import spread
from redfuser.derivation.search import Limits, Search, Step
from redfuser.derivation.skeleton import reductions_in
from redfuser.ir import Expr, New, Old, Reduce, Ref, Size, refs, rewrite, substitute, walk
from redfuser.rules.language import STREAM
from redfuser.rules.theory import TOO_MUCH

MOST_NEW_ACCUMULATORS = 8
QUICK = Limits(nodes=1500, iterations=8)
"""A search that has found nothing by then asks whether it is hopeless before it goes on."""
GROWTH = 3
"""How many times its size an e-graph may grow while all forms are written out, in a search that is not patient."""
ROOM = 3
"""How many times the node limit the last search for an expandable stage may use."""
FEW = 8
"""A round that adds less than one node to so many is as good as the last."""
SOONEST = 3
"""The round before which nothing is asked: no correction is found and stays the cheapest so soon."""
CHEAP = 40
"""A correction that costs no more is taken at once: it is a product or two, at most two exponentials, and hardly
anything does the same for less. In the zoo no search went on from there and found anything cheaper."""
LATE = 2
"""So many rounds before the last a search ends that has found nothing, unless it is patient: what is found first in the
last rounds is seldom the cheapest form."""
LENGTH = Size(STREAM)


@dataclass
class Sweep:
    """One pass over the stream: its accumulators, the values that change during it, the corrections found so far.

    index         0 for the first pass
    accumulators  internal names, in order
    changing      results and dependencies that change while the pass runs
    corrections   internal name of an accumulator -> correction in skeleton form
    final         accumulators of earlier passes
    """

    index: int
    accumulators: list[str] = field(default_factory=list)
    changing: list[str] = field(default_factory=list)
    corrections: dict[str, Expr] = field(default_factory=dict)
    final: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Refusal:
    """Why no correction was found: the accumulator, and how the search ended."""

    accumulator: str
    outcome: str


class Versions:
    """Old and new values of what changes during a sweep."""

    def __init__(self, sweep: Sweep, locations: Mapping[str, Location] | None = None) -> None:
        self.sweep = sweep
        self.changing = frozenset(sweep.changing)
        self.changing |= {n for n, x in (locations or {}).items() if x.shifted.name in self.changing}

    def old(self, e: Expr) -> Expr:
        """`e` at the values before the chunk. In a first pass the stream length is the number of elements so far."""
        return rewrite(e, lambda x: self._version(x, Old))

    def new(self, e: Expr) -> Expr:
        """`e` at the values after the chunk."""
        return rewrite(e, lambda x: self._version(x, New))

    def _version(self, x: Expr, kind: type[Old] | type[New]) -> Expr | None:
        if isinstance(x, Ref) and x.name in self.changing:
            return kind(x.name)
        if x == LENGTH:
            if self.sweep.index > 0:
                return Ref(COUNT)
            return None if kind is Old else New(COUNT)
        return None

    def changes(self, e: Expr) -> bool:
        """Whether `e` reads anything that changes during the sweep."""
        return bool(refs(e) & self.changing) or (self.sweep.index == 0 and LENGTH in walk(e))


def find_corrections(search: Search, model: Model, sweep: Sweep, stage: str, goals: Iterable[str]) -> Refusal | None:
    """Corrections for the accumulators `goals`, which join the sweep together with any that they need.

    Returns the refusal when there is none; the sweep is then unchanged.
    """
    trial = Sweep(sweep.index, [*sweep.accumulators], sweep.changing, dict(sweep.corrections), sweep.final)
    known = set(model.accumulators)
    trial.accumulators += [g for g in goals if g not in trial.accumulators]
    versions = Versions(trial, model.locations)
    open_: list[str] = []
    for _ in range(MOST_NEW_ACCUMULATORS):
        open_ = [k for k in trial.accumulators
                 if k not in trial.corrections and versions.changes(model.accumulators[k].body)]
        if not open_:
            sweep.accumulators, sweep.corrections = trial.accumulators, trial.corrections
            return None
        refusal = _attempt(search, model, trial, stage, open_)
        if refusal is not None:
            break
    else:
        refusal = Refusal(open_[0], "no closed state")
    for k in set(model.accumulators) - known:
        del model.accumulators[k]
    return refusal


def nothing_to_correct(model: Model, sweep: Sweep, goals: Iterable[str]) -> bool:
    """Whether no accumulator among `goals` reads a value that changes during the sweep."""
    versions = Versions(sweep, model.locations)
    return not any(versions.changes(model.accumulators[k].body) for k in goals)


def _attempt(search: Search, model: Model, trial: Sweep, stage: str, open_: list[str]) -> Refusal | None:
    """One saturation: settles the corrections it finds and adds the accumulators that the others ask for."""
    versions = Versions(trial, model.locations)
    step = Step(f"corrections for {stage}")
    search.steps.append(step)
    with search.engine.scope(model.leaf, search.keep) as scope:
        _state_knowledge(scope, model, trial)
        goals = [_whole(model.accumulators[k].monoid, versions.new(model.body(k))) for k in open_]
        for goal in goals:
            scope.add(goal)
        cost = CorrectionCost(taste=search.taste)
        price = _saturate(scope, search, step, goals)
        overgrown = step.nodes > search.limits.nodes  # one more round, with all forms, might not end
        if price >= TOO_MUCH and step.outcome != "hopeless" and not overgrown:
            step.reached = step.iterations
            scope.state("unbound")
            few = GROWTH * step.nodes + QUICK.nodes // 3
            limits = search.limits if search.patient else replace(search.limits, nodes=min(search.limits.nodes, few))
            step = Step(f"corrections for {stage}, all forms")
            search.steps.append(step)
            price = _saturate(scope, replace(search, limits=limits), step, goals)
        if price < TOO_MUCH or len(goals) > 1:  # else there is none for the only goal
            for k, (own, found) in zip(open_, scope.extract(goals, cost), strict=True):
                if own < TOO_MUCH:
                    trial.corrections[k] = _split_locations(model, found)
        missing = {k: g for k, g in zip(open_, goals, strict=True) if k not in trial.corrections}
        if missing:
            step.reached = step.iterations  # which accumulators are asked for may depend on the last iteration
            closures = scope.extract(list(missing.values()), ClosureCost(taste=search.taste))
            for k, (price, found) in zip(missing, closures, strict=True):
                if price >= TOO_MUCH or not _add_accumulators(model, trial, stage, found):
                    return Refusal(k, step.outcome)
    return None


def _saturate(scope: Scope, search: Search, step: Step, goals: list[Expr]) -> int:
    """Saturate for corrections. Returns what the goals cost at the end."""
    enough = _Enough(lambda: scope.price(goals), search)
    if search.replay:
        scope.saturate(step, search.replay.limits())
    else:
        scope.saturate(step, search.limits, enough)
    known = enough.rounds == step.iterations or (enough.rounds and step.outcome == "saturated")
    return enough.last if known else scope.price(goals)


def _whole(monoid: str, body: Expr) -> Expr:
    """The reduction of a body, part by part where the parts obey laws."""
    return spread(monoid, Reduce(monoid, STREAM, body))


def _split_locations(model: Model, e: Expr) -> Expr:
    for location in model.locations.values():
        names = [n for n, definition in model.dependencies.items() if definition == location.definition]
        for kind in (Old, New):
            e = substitute(e, {kind(n): kind(location.name) for n in names})
        e = location.split(e)
    return e


class _Enough:
    """When to stop a search: the corrections are cheap, or none got cheaper in two more iterations, or the search is
    hopeless."""

    def __init__(self, cost: Callable[[], int], search: Search) -> None:
        self.cost = cost
        self.search = search
        self.last = -1
        self.rounds = 0
        self.nodes = 0
        self.same = 0
        self.asked = False

    def __call__(self, step: Step) -> str:
        if step.iterations < SOONEST:
            return ""
        self.rounds = step.iterations
        before, self.last = self.last, self.cost()
        grown, self.nodes = step.nodes - self.nodes, step.nodes
        self.same = self.same + 1 if before == self.last else 0
        if not self.same:
            step.reached = step.iterations
        if self.last < TOO_MUCH:
            done = self.last <= CHEAP or self.same == 2 or (self.same and FEW * grown <= step.nodes)
            return "settled" if done else ""
        if not self.asked and (step.nodes > QUICK.nodes or step.iterations >= QUICK.iterations):
            self.asked = True
            if self.search.hopeless():
                return "hopeless"
        late = step.iterations >= self.search.limits.iterations - LATE
        return "in vain" if late and not self.search.patient else ""


def _state_knowledge(scope: Scope, model: Model, sweep: Sweep) -> None:
    """Everything known about the values before and after the chunk."""
    versions = Versions(sweep, model.locations)
    for unit in model.skeleton.positive:
        scope.state("pos", unit)
    for relation, args in dict.fromkeys((f.relation, tuple(map(version, f.args)))
                                        for f in model.facts() for version in (versions.old, versions.new)):
        scope.state(relation, *args)
    for fact in model.skeleton.known.final if sweep.index > 0 else ():
        if not any(map(versions.changes, fact.args)):
            scope.state(fact.relation, *fact.args)
    for k in sweep.accumulators:
        a = model.accumulators[k]
        body = versions.old(model.body(k))
        scope.equate(a.ref, Reduce(a.monoid, STREAM, body))
        state_given(scope, body)
    if sweep.index == 0:
        scope.state("changes", LENGTH, New(COUNT))
        scope.state("pos", New(COUNT))
    for name, (monoid, restated) in model.restated.items():
        if name in versions.changing:
            scope.equate(Old(name), Reduce(monoid, STREAM, versions.old(restated)))
    read = _read_by(model, sweep.accumulators)
    for name in (*sweep.changing, *sorted(versions.changing - set(sweep.changing))):
        if name not in read:  # no sum moves with it: it would only be one more thing to look at
            continue
        definition = model.definition(name)
        scope.equate(Old(name), versions.old(definition))
        scope.state("changes", Old(name), New(name))
        if name not in model.results:
            scope.equate(New(name), versions.new(definition))
        for sign in model.signs.get(name, ()):
            scope.state(sign, Old(name))
            scope.state(sign, New(name))
    for name in (*model.results, *model.dependencies):
        if name in read and name not in versions.changing:
            for sign in model.signs.get(name, ()):
                scope.state(sign, model.symbol(name))
    for name, monoid, body in model.bounds:
        if name in read:
            _state_bound(scope, versions, model.symbol(name), monoid, body)


def _read_by(model: Model, accumulators: Iterable[str]) -> frozenset[str]:
    """Results, dependencies and locations that the bodies of accumulators read, directly or through others."""
    own = frozenset[str]().union(*(mentioned(e) for k in accumulators
                                   for e in (model.accumulators[k].body, model.body(k))))
    known = model.results.keys() | model.dependencies.keys() | model.locations.keys()
    return own.union(*(model.behind(n) for n in own & known))


def _state_bound(scope: Scope, versions: Versions, result: Ref, monoid: str, body: Expr) -> None:
    """Every element so far is bounded by the old extremum, and that by the new one unless the body itself changes."""

    def ordered(low: Expr, high: Expr) -> None:
        scope.state("leq", *((low, high) if monoid == "max" else (high, low)))

    ordered(versions.old(body), versions.old(result))
    if result.name in versions.changing and not versions.changes(body):
        ordered(Old(result.name), New(result.name))
        ordered(versions.old(body), New(result.name))


def _add_accumulators(model: Model, trial: Sweep, stage: str, found: Expr) -> bool:
    """Make accumulators of the reductions left in a correction. False when there is nothing new to add."""
    added = False
    for reduction in reductions_in(found):
        old = _split_locations(model, reduction.body)
        body = model.named(rewrite(old, lambda x: model.symbol(x.name) if isinstance(x, Old) else None))
        if body is None:
            return False
        candidate = model.candidate(stage, reduction.monoid, body, trial.final)
        if candidate.id not in trial.accumulators:
            trial.accumulators.append(candidate.id)
            added = True
    return added
