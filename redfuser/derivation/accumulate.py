"""Choose what the loop accumulates: saturate the whole cascade, extract accumulators and epilogue.

Every stage that depends on earlier results is put into one e-graph together with what is known of those results. The
cheapest equal form under `AccumulatorCost` has few reductions with cheap bodies, so factors free of the stream leave
the reduction: 1/l of attention moves to the epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

from redfuser.derivation.assumptions import Fact
from redfuser.derivation.cost import AccumulatorCost
from redfuser.derivation.engine import Scope
from redfuser.derivation.parts import gathered, share_extremes, spread
from redfuser.derivation.search import Limits, Search, Step
from redfuser.derivation.skeleton import Skeleton, Stage, kept_axes, maximal_free, reads_state, reductions_in
from redfuser.derivation.taste import Taste
from redfuser.ir import Expr, Load, New, Old, Op, Reduce, Ref, free_axes, refs, substitute, walk
from redfuser.ir.names import free_name, numbered
from redfuser.rules.language import NEW, STREAM
from redfuser.rules.theory import TOO_MUCH

ACCUMULATOR = "acc "
"""Prefix of the internal names of accumulators; no name of a user contains a blank."""

SMALL = 400
"""Nodes of an e-graph that is saturated for good measure."""
ROUNDS_WITHOUT_GAIN = 3
FEW = 16
"""A small e-graph is as good as saturated by a round that adds less than one node to so many."""

SIGNS = ("pos", "nneg", "nz")


@dataclass(frozen=True)
class Candidate:
    """An accumulator in skeleton form, under its internal name."""

    id: str
    stage: str
    monoid: str
    body: Expr
    axes: tuple[str, ...]

    @property
    def ref(self) -> Ref:
        """The value of the accumulator, in skeletons."""
        return Ref(self.id, self.axes)


@dataclass(frozen=True)
class Location:
    """A location b of data x, kept as pivot + shifted location: x - b = (x - pivot) - shifted.

    `definition` is b over the original results. A correction is searched in terms of b, then written in the two parts.
    """

    load: Expr
    pivot: Ref
    shifted: Ref
    definition: Expr

    @property
    def name(self) -> str:
        """Internal name of the value b."""
        return f"{self.pivot.name} + {self.shifted.name}"

    def join(self, e: Expr) -> Expr:
        """(x - pivot) - shifted becomes x - b."""
        parts = self.load - self.pivot - self.shifted
        return substitute(e, {parts: self.load - Ref(self.name, self.shifted.axes)})

    def split(self, e: Expr) -> Expr:
        """b becomes pivot + shifted, and a difference of two b the sum of two differences."""
        if isinstance(self.definition, Ref):
            name = self.definition.name
            e = substitute(e, {Old(name): Old(self.name), New(name): New(self.name)})
        old = Old(self.pivot.name), Old(self.shifted.name)
        new = New(self.pivot.name), New(self.shifted.name)
        final = Ref(self.name, self.shifted.axes)  # in a pass after the one that finds it
        moved = (old[0] - new[0]) + (old[1] - new[1])
        e = substitute(e, {Old(self.name) - New(self.name): moved, New(self.name) - Old(self.name): -moved,
                           self.load - Old(self.name): self.load - old[0] - old[1],
                           self.load - final: self.load - self.pivot - self.shifted})
        return substitute(e, {Old(self.name): old[0] + old[1], New(self.name): new[0] + new[1],
                              final: self.pivot + self.shifted})


@dataclass
class Model:
    """What the choice of accumulators established.

    accumulators  internal name -> candidate
    results       reduction name -> expression over accumulators, dependencies and earlier results
    dependencies  name -> expression over results and the stream length
    axes          axes of every result and dependency
    signs         result or dependency -> sign facts that hold for every non-empty prefix
    bounds        (reduction name, monoid, body) of every max and min stage
    locations     internal name -> location that is kept in two parts
    restated      reduction name -> (monoid, body) of reductions that are accumulated on shifted data
    postponed     results whose expression is right for finished rows only
    chosen        internal name -> body of an accumulator before opaque producers were looked into
    """

    skeleton: Skeleton
    accumulators: dict[str, Candidate] = field(default_factory=dict)
    results: dict[str, Expr] = field(default_factory=dict)
    dependencies: dict[str, Expr] = field(default_factory=dict)
    axes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    signs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    bounds: list[tuple[str, str, Expr]] = field(default_factory=list)
    locations: dict[str, Location] = field(default_factory=dict)
    restated: dict[str, tuple[str, Expr]] = field(default_factory=dict)
    stage_accumulators: dict[str, list[str]] = field(default_factory=dict)
    chosen: dict[str, Expr] = field(default_factory=dict)
    postponed: set[str] = field(default_factory=set)
    made: int = 0

    def facts(self) -> Iterator[Fact]:
        """What the assumptions on elements say, values aside that are right for finished rows only."""
        late: set[str] = set()
        for stage in self.skeleton.stages:
            if stage.name in self.postponed or refs(stage.body) & late:
                late.add(stage.name)
        return (f for f in self.skeleton.known.element if not refs(Op("", f.args)) & late)

    def symbol(self, name: str) -> Ref:
        """The value of a result or a dependency, in skeletons."""
        return Ref(name, self.axes[name])

    def candidate(self, stage: str, monoid: str, body: Expr, final: frozenset[str] = frozenset()) -> Candidate:
        """The accumulator with this monoid and body; made when it does not exist or is `final` (of an earlier pass)."""
        for known in self.accumulators.values():
            if known.id not in final and (known.monoid, known.body) == (monoid, body):
                return known
        self.made += 1
        new = Candidate(f"{ACCUMULATOR}{self.made}", stage, monoid, body, self.in_order(kept_axes(body), stage))
        self.accumulators[new.id] = new
        return new

    @contextmanager
    def on_trial(self) -> Iterator[Callable[[], None]]:
        """Changes made inside are taken back, unless the given function was called."""
        before = dict(self.results), dict(self.accumulators), dict(self.stage_accumulators)
        kept = []
        yield lambda: kept.append(True)
        if not kept:
            self.results, self.accumulators, self.stage_accumulators = before

    def in_order(self, axes: tuple[str, ...], stage: str) -> tuple[str, ...]:
        """Axes in the order of the stage's result, then in that of the cascade."""
        order = [*self.axes.get(stage, ()), *(a.name for a in self.skeleton.cascade.axes)]
        return tuple(sorted(axes, key=order.index))

    def named(self, e: Expr) -> Expr | None:
        """`e` with accumulators replaced by the results they are; None when one of them is no result."""
        plain = {x.name: self.symbol(r) for r, x in self.results.items() if isinstance(x, Ref)}
        read = [n for n in refs(e) if n.startswith(ACCUMULATOR)]
        if any(n not in plain for n in read):
            return None
        return substitute(e, {self.accumulators[n].ref: plain[n] for n in read})

    def body(self, k: str) -> Expr:
        """The body of an accumulator in terms of whole locations."""
        body = self.accumulators[k].body
        for location in self.locations.values():
            body = location.join(body)
        return body

    def definition(self, name: str) -> Expr:
        """The expression of a result, a dependency or a location."""
        if name in self.locations:
            return self.locations[name].definition
        return self.results[name] if name in self.results else self.dependencies[name]

    def behind(self, name: str) -> frozenset[str]:
        """Everything that a result or a dependency is computed from: results, dependencies, accumulators."""
        found: set[str] = set()
        todo = [name]
        while todo:
            for n in mentioned(self.definition(todo.pop())) - found:
                found.add(n)
                if n in self.results or n in self.dependencies or n in self.locations:
                    todo.append(n)
        return frozenset(found)

    def leaf(self, e: Expr) -> tuple[str, frozenset[str]] | None:
        """Name and axes of the units of the engine."""
        if isinstance(e, Load):
            return e.tensor, frozenset(a for a in e.axes if isinstance(a, str))
        if isinstance(e, Ref):
            return f"ref {e.name}", frozenset(e.axes)
        if isinstance(e, Old):
            return f"old {e.name}", frozenset(self.axes.get(e.name, ()))
        if isinstance(e, New):
            return f"new {e.name}", frozenset((*self.axes.get(e.name, ()), NEW))
        return None


def choose_accumulators(search: Search, skeleton: Skeleton) -> Model:
    """Accumulators, epilogue and dependencies of every stage of a cascade."""
    model = Model(skeleton)
    pending = list(skeleton.stages)
    stage = None
    while True:
        with search.engine.scope(model.leaf, search.keep) as scope:
            scope.state("choosing")
            if search.taste.reference > 1:  # sums that read no earlier result are wanted: write everything out
                scope.state("unbound")
            _restate(scope, model)
            leave = False
            while pending and not leave:
                stage = pending.pop(0)
                leave = _choose(scope, model, stage, search) or bool(skeleton.known.final)
            if not leave:
                _collect_signs(scope, model, search)
                break
        if skeleton.known.final and stage is not None:
            _postpone(search, model, stage)
    if skeleton.opaque:
        _look_into(model)
    share_extremes(model)
    return model


def _restate(scope: Scope, model: Model) -> None:
    """What is known so far, without the terms of earlier searches: an overgrown e-graph is left behind."""
    for unit in model.skeleton.positive:
        scope.state("pos", unit)
    for a in model.accumulators.values():
        scope.equate(a.ref, Reduce(a.monoid, STREAM, a.body))
    for name in (*model.results, *model.dependencies):
        scope.equate(model.symbol(name), model.definition(name))
    for name, monoid, body in model.bounds:
        _state_bound(scope, model.symbol(name), monoid, body)
    for fact in model.facts():
        scope.state(fact.relation, *fact.args)


def _state_bound(scope: Scope, result: Ref, monoid: str, body: Expr) -> None:
    scope.state("leq", *((body, result) if monoid == "max" else (result, body)))


def _choose(scope: Scope, model: Model, stage: Stage, search: Search) -> bool:
    """Accumulators and epilogue of one stage. True when the search hit a limit."""
    overgrown = False
    model.axes[stage.name] = stage.axes
    body = name_dependencies(scope, model, stage.name, stage.body)
    whole = Reduce(stage.monoid, STREAM, body)
    goal = spread(stage.monoid, whole)
    result = model.symbol(stage.name)
    scope.add(goal)
    if stage.monoid in ("max", "min"):
        _state_bound(scope, result, stage.monoid, body)
        model.bounds.append((stage.name, stage.monoid, body))
    form: Expr = whole
    if reads_state(body) and stage.name not in search.late:
        state_given(scope, body)
        step = Step(f"accumulators of {stage.name}")
        if search.replay:
            search.steps.append(scope.saturate(step, search.replay.limits()))
        else:
            search.steps.append(scope.saturate(step, search.limits, _Steady(scope, goal)))
        step.reached = step.iterations
        overgrown = step.outcome in ("limit", "time") and search.replay is None
        cost = AccumulatorCost(partial(leaf_price, search.taste), search.taste)
        price, form = scope.extract([goal], cost)[0]
        form = form if price < TOO_MUCH else whole
    if any(model.named(x.body) is None for x in reductions_in(form)):
        form = whole
    model.results[stage.name] = accumulate(scope, model, stage, form, fresh=True)
    scope.equate(result, whole)
    return overgrown


def state_given(scope: Scope, body: Expr) -> None:
    """State which exponentials the caller's own reductions hold: accumulators may hold these, whether they overflow or
    not."""
    for x in walk(body):
        if isinstance(x, Op) and x.fn in ("exp", "exp2"):
            scope.state("given", x)


class _Steady:
    """When to stop looking for better accumulators: none came up in a few rounds, in an e-graph no longer small; or a
    small one hardly grows."""

    def __init__(self, scope: Scope, goal: Expr) -> None:
        self.scope = scope
        self.goal = goal
        self.prices: list[int] = []
        self.nodes = 0

    def __call__(self, step: Step) -> str:
        grown, self.nodes = step.nodes - self.nodes, step.nodes
        if FEW * grown <= step.nodes <= SMALL:
            return "settled"
        if step.nodes > SMALL // 2:
            self.prices.append(self.scope.price([self.goal]))
        last = self.prices[-ROUNDS_WITHOUT_GAIN - 1 :]
        return "settled" if step.nodes > SMALL and last == last[:1] * (ROUNDS_WITHOUT_GAIN + 1) else ""


def _postpone(search: Search, model: Model, stage: Stage) -> None:
    """Move what a stage does with results into the epilogue, if what is guaranteed of the finished row allows it.

    A form found this way equals the stage for finished rows only. It is used when its accumulators read no result, so
    that nothing is done with running values; and of the running value it gives, nothing but its definition is known.
    """
    own = [k for k in model.stage_accumulators[stage.name] if model.accumulators[k].stage == stage.name]
    if not any(reads_state(model.accumulators[k].body) for k in own):
        return
    earlier = replace(model, accumulators={k: a for k, a in model.accumulators.items() if k not in own},
                      results={n: e for n, e in model.results.items() if n != stage.name},
                      bounds=[x for x in model.bounds if x[0] != stage.name])
    with search.engine.scope(model.leaf, search.keep) as scope:
        scope.state("choosing")
        _restate(scope, earlier)
        for fact in model.skeleton.known.final:
            if refs(Op("", fact.args)) <= set(earlier.results):
                scope.state(fact.relation, *fact.args)
        body = name_dependencies(scope, model, stage.name, stage.body)
        goal = spread(stage.monoid, Reduce(stage.monoid, STREAM, body))
        scope.add(goal)
        state_given(scope, body)
        step = Step(f"accumulators of {stage.name}, finished row")
        search.steps.append(scope.saturate(step, search.replay.limits() if search.replay else search.limits))
        step.reached = step.iterations
        _, form = scope.extract([goal], AccumulatorCost(partial(leaf_price, search.taste), search.taste))[0]
        bodies = [x.body for x in reductions_in(form)]
        if any(reads_state(x) or model.named(x) is None for x in bodies):
            return
        model.accumulators, model.bounds = earlier.accumulators, earlier.bounds
        model.results[stage.name] = accumulate(scope, model, stage, form)
        model.postponed.add(stage.name)


def leaf_price(taste: Taste, name: str) -> int:
    """Cost of a unit: a few for the value of an accumulator, what the taste asks for a result, 1 for anything else."""
    if name.startswith(f"ref {ACCUMULATOR}"):
        return 3 + taste.reference // 8
    return taste.reference if name.startswith("ref ") else 1


def accumulate(scope: Scope, model: Model, stage: Stage, form: Expr, fresh: bool = False) -> Expr:
    """`form` with its reductions replaced by accumulators; `fresh`: new dependencies may be named."""
    table: dict[Expr, Expr] = {}
    used: list[str] = []
    for reduction in reductions_in(form):
        body = model.named(reduction.body)
        assert body is not None
        body = _name_mixtures(scope, model, stage.name, body, fresh)
        shown = model.skeleton.look_into(body) if model.chosen else body
        candidate = model.candidate(stage.name, reduction.monoid, shown)
        if shown != body:
            model.chosen.setdefault(candidate.id, body)
        scope.equate(candidate.ref, reduction)
        table[reduction] = candidate.ref
        used.append(candidate.id)
    model.stage_accumulators[stage.name] = list(dict.fromkeys(used))
    return gathered(substitute(form, table))


def _name_mixtures(scope: Scope, model: Model, stage: str, body: Expr, fresh: bool) -> Expr:
    """The body with quotients of running values, and what mixes these with inputs, under names of their own: a
    dependency with divisor 0 reads 0, and one name changes where several parts would."""
    known = set(model.dependencies.values())
    for e in maximal_free(body):
        quotient = any(isinstance(x, Op) and x.fn == "div" and refs(x.args[1]) for x in walk(e))
        mixed = bool(refs(e)) and any(isinstance(x, Load) for x in walk(e))
        if (quotient or mixed) and (fresh or e in known):
            return name_dependencies(scope, model, stage, body)
    return body


def name_dependencies(scope: Scope, model: Model, stage: str, body: Expr) -> Expr:
    """The body with every compound dependency replaced by its name."""
    table: dict[Expr, Expr] = {}
    for e in maximal_free(body):
        if isinstance(e, Ref) or e in table:
            continue
        name = next((n for n, known in model.dependencies.items() if known == e), None)
        if name is None:
            name = _fresh_name(model)
            model.dependencies[name] = e
            model.axes[name] = model.in_order(tuple(free_axes(e)), stage)
            scope.equate(model.symbol(name), e)
        table[e] = model.symbol(name)
    return substitute(body, table)


def _fresh_name(model: Model) -> str:
    taken = {*model.skeleton.results, *model.dependencies, *model.skeleton.producers,
             *(t.name for t in model.skeleton.cascade.tensors)}
    return free_name(numbered("d"), taken)


def _look_into(model: Model) -> None:
    """From here on, the algebra sees what opaque producers are made of."""
    inside = model.skeleton.look_into
    model.chosen = {k: a.body for k, a in model.accumulators.items()}
    model.accumulators = {k: replace(a, body=inside(a.body)) for k, a in model.accumulators.items()}
    model.bounds = [(name, monoid, inside(body)) for name, monoid, body in model.bounds]


def _collect_signs(scope: Scope, model: Model, search: Search) -> None:
    """Signs of results and dependencies, as far as the analyses prove them."""
    if not any(map(reads_state, (s.body for s in model.skeleton.stages))):
        return
    search.steps.append(scope.saturate(Step("signs"), Limits(iterations=1)))
    for name in (*model.results, *model.dependencies):
        held = scope.holds(SIGNS, model.symbol(name))
        model.signs[name] = held[:1] if held[:1] == SIGNS[:1] else held  # the laws conclude the others from it


def mentioned(e: Expr) -> frozenset[str]:
    """Results, dependencies and accumulators that an expression in skeleton form reads."""
    return refs(e) | {x.name for x in walk(e) if isinstance(x, (Old, New))}
