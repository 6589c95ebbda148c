"""Choose what the loop accumulates: saturate the whole cascade, extract accumulators and epilogue.

Every stage that depends on earlier results is put into one e-graph together with what is known of those results. The
cheapest equal form under `AccumulatorCost` has few reductions with cheap bodies, so factors free of the stream leave
the reduction: 1/l of attention moves to the epilogue.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from redfuser.derive.cost import AccumulatorCost
from redfuser.derive.engine import Limits, Scope, Search, Step
from redfuser.derive.skeleton import Skeleton, Stage, kept_axes, maximal_free, reads_state, reductions_in
from redfuser.ir import Expr, Load, New, Old, Reduce, Ref, free_axes, refs, substitute, walk
from redfuser.rules.language import STREAM

ACCUMULATOR = "acc "
"""Prefix of the internal names of accumulators; no name of a user contains a blank."""

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


@dataclass
class Model:
    """What the choice of accumulators established.

    accumulators  internal name -> candidate
    results       reduction name -> expression over accumulators, dependencies and earlier results
    dependencies  name -> expression over results and the stream length
    axes          axes of every result and dependency
    signs         result or dependency -> sign facts that hold for every non-empty prefix
    bounds        (reduction name, monoid, body) of every max and min stage
    """

    skeleton: Skeleton
    accumulators: dict[str, Candidate] = field(default_factory=dict)
    results: dict[str, Expr] = field(default_factory=dict)
    dependencies: dict[str, Expr] = field(default_factory=dict)
    axes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    signs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    bounds: list[tuple[str, str, Expr]] = field(default_factory=list)
    stage_accumulators: dict[str, list[str]] = field(default_factory=dict)
    made: int = 0

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

    def in_order(self, axes: tuple[str, ...], stage: str) -> tuple[str, ...]:
        """Axes in the order of the stage's result, then in that of the cascade."""
        order = [*self.axes.get(stage, ()), *(a.name for a in self.skeleton.cascade.axes)]
        return tuple(sorted(axes, key=order.index))

    def definition(self, name: str) -> Expr:
        """The expression of a result or a dependency."""
        return self.results[name] if name in self.results else self.dependencies[name]

    def leaf(self, e: Expr) -> tuple[str, frozenset[str]] | None:
        """Name and axes of the units of the engine."""
        if isinstance(e, Load):
            return e.tensor, frozenset(a for a in e.axes if isinstance(a, str))
        if isinstance(e, Ref):
            return f"ref {e.name}", frozenset(e.axes)
        if isinstance(e, Old):
            return f"old {e.name}", frozenset(self.axes.get(e.name, ()))
        if isinstance(e, New):
            return f"new {e.name}", frozenset((*self.axes.get(e.name, ()), "@new"))
        return None


def choose_accumulators(search: Search, skeleton: Skeleton) -> Model:
    """Accumulators, epilogue and dependencies of every stage of a cascade."""
    model = Model(skeleton)
    with search.engine.scope(model.leaf, search.keep) as scope:
        for unit in skeleton.positive:
            scope.state("pos", unit)
        for stage in skeleton.stages:
            _choose(scope, model, stage, search)
        _collect_signs(scope, model, search)
    return model


def _choose(scope: Scope, model: Model, stage: Stage, search: Search) -> None:
    model.axes[stage.name] = stage.axes
    body = _name_dependencies(scope, model, stage.name, stage.body)
    whole = Reduce(stage.monoid, STREAM, body)
    result = model.symbol(stage.name)
    scope.add(whole)
    if stage.monoid in ("max", "min"):
        scope.state("leq", *((body, result) if stage.monoid == "max" else (result, body)))
        model.bounds.append((stage.name, stage.monoid, body))
    form: Expr = whole
    if reads_state(body):
        step = Step(f"accumulators of {stage.name}")
        search.steps.append(scope.saturate(step, search.replay.limits() if search.replay else search.limits))
        step.reached = step.iterations
        cost = AccumulatorCost(lambda name: 3 if name.startswith(f"ref {ACCUMULATOR}") else 1)
        _, form = scope.extract([whole], cost)[0]
    model.results[stage.name] = _accumulate(scope, model, stage, form)
    scope.equate(result, whole)


def _accumulate(scope: Scope, model: Model, stage: Stage, form: Expr) -> Expr:
    """`form` with its reductions replaced by accumulators."""
    table: dict[Expr, Expr] = {}
    used: list[str] = []
    for reduction in reductions_in(form):
        candidate = model.candidate(stage.name, reduction.monoid, reduction.body)
        scope.equate(candidate.ref, reduction)
        table[reduction] = candidate.ref
        used.append(candidate.id)
    model.stage_accumulators[stage.name] = used
    return substitute(form, table)


def _name_dependencies(scope: Scope, model: Model, stage: str, body: Expr) -> Expr:
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
    k = 1
    while f"d{k}" in taken:
        k += 1
    return f"d{k}"


def _collect_signs(scope: Scope, model: Model, search: Search) -> None:
    """Signs of results and dependencies, as far as the analyses prove them."""
    if not any(map(reads_state, (s.body for s in model.skeleton.stages))):
        return
    search.steps.append(scope.saturate(Step("signs"), Limits(iterations=2)))
    for name in (*model.results, *model.dependencies):
        model.signs[name] = tuple(r for r in SIGNS if scope.holds(r, model.symbol(name)))


def mentioned(e: Expr) -> frozenset[str]:
    """Results, dependencies and accumulators that an expression in skeleton form reads."""
    return refs(e) | {x.name for x in walk(e) if isinstance(x, (Old, New))}
