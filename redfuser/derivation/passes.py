"""Assign every stage to the earliest pass over the stream in which it can be kept up to date.

A stage joins the pass of the results it depends on when corrections exist for it; otherwise it starts a later pass,
in which those results are final. A refusal is backed by evidence where there is any.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

from redfuser.derivation.accumulate import Model, mentioned
from redfuser.derivation.correct import QUICK, ROOM, Refusal, Sweep, find_corrections, nothing_to_correct
from redfuser.derivation.evidence import Ranks, growth, is_finite
from redfuser.derivation.fusion import COUNT
from redfuser.derivation.reconsider import is_expandable, reconsider
from redfuser.derivation.search import NotReached, Replay, Search
from redfuser.derivation.simplify import collapse
from redfuser.derivation.skeleton import Skeleton, Stage
from redfuser.derivation.verdict import StageReport
from redfuser.ir import Cascade, Expr, New, Old, names_read, refs, rewrite, substitute, walk


@dataclass
class Plan:
    """Sweeps in order, the refused stages, and the pass in which each result and dependency becomes final."""

    sweeps: list[Sweep] = field(default_factory=list)
    refused: list[StageReport] = field(default_factory=list)
    pass_of: dict[str, int] = field(default_factory=dict)

    def sweep(self, index: int) -> Sweep:
        """The sweep number `index`, made when it is the next one."""
        if index == len(self.sweeps):
            final = frozenset(k for s in self.sweeps for k in s.accumulators)
            self.sweeps.append(Sweep(index, final=final))
        return self.sweeps[index]


def plan_passes(search: Search, model: Model) -> Plan:
    """Place every stage of a model."""
    plan = Plan()
    plan.sweep(0)
    for stage in model.skeleton.stages:
        _place(search, model, plan, stage)
    return plan


def _place(search: Search, model: Model, plan: Plan, stage: Stage) -> None:
    placed = {k for s in plan.sweeps for k in s.accumulators}
    shared = [k for k in sorted(mentioned(model.results[stage.name])) if k in model.accumulators]
    needed = dict.fromkeys((*model.stage_accumulators[stage.name], *shared))
    goals = [k for k in needed if k in model.accumulators and k not in placed]
    _register_dependencies(model, plan)
    reads = mentioned(model.results[stage.name]).union(*(mentioned(model.accumulators[k].body) for k in goals))
    index = max((plan.pass_of[n] for n in reads if n in plan.pass_of), default=0)
    if stage.crossed:
        crossed = _crossed_results(model, stage)
        index = max(index, 1 + max(plan.pass_of[n] for n in crossed))
        plan.refused.append(_report_crossed(model, stage, crossed))
        while len(plan.sweeps) < index:
            plan.sweep(len(plan.sweeps))
    while True:
        sweep = plan.sweep(index)
        report, goals = _try(search, model, sweep, stage, goals)
        if report is None:
            break
        plan.refused.append(report)
        index += 1
    _drop_redundant(model, sweep, goals)
    used = [k for k in mentioned(model.results[stage.name]) if k in model.accumulators]
    homes = [s.index for s in plan.sweeps for k in used if k in s.accumulators]
    plan.pass_of[stage.name] = max([index if goals else 0, *homes,
                                    *(plan.pass_of[n] for n in reads if n in plan.pass_of)])
    home = plan.sweep(plan.pass_of[stage.name])
    home.changing.append(stage.name)
    if stage.name in model.restated:
        _merge_restated(model, home, stage.name)


def _drop_redundant(model: Model, sweep: Sweep, goals: list[str]) -> None:
    """An accumulator whose correction does not read it is a function of the others: compute it in the epilogue."""
    for k in goals:
        correction = sweep.corrections.get(k)
        others = [e for j, e in sweep.corrections.items() if j != k]
        if correction is None or any(k in mentioned(e) for e in (correction, *others)):
            continue

        def current(x: Expr) -> Expr | None:
            return model.symbol(x.name) if isinstance(x, (Old, New)) and x.name != COUNT else None

        value = collapse(rewrite(correction, current))
        if any(isinstance(x, New) for x in walk(value)):
            continue
        for name, e in model.results.items():
            model.results[name] = substitute(e, {model.accumulators[k].ref: value})
        del sweep.corrections[k]
        _remove(model, sweep, k)


def _merge_restated(model: Model, sweep: Sweep, name: str) -> None:
    """A raw sum kept for a correction is the result of this stage, which is accumulated on shifted data: one of them
    is enough."""
    monoid, body = model.restated[name]
    for k in sweep.accumulators:
        a = model.accumulators[k]
        plain = k not in sweep.corrections and k not in model.behind(name)
        if plain and (a.monoid, a.body) == (monoid, body):
            for j, e in sweep.corrections.items():
                sweep.corrections[j] = substitute(e, {a.ref: Old(name)})
            for r, e in model.results.items():
                model.results[r] = substitute(e, {a.ref: model.symbol(name)})
            _remove(model, sweep, k)
            return


def _remove(model: Model, sweep: Sweep, k: str) -> None:
    """Give up an accumulator, so that no later stage builds on it."""
    sweep.accumulators.remove(k)
    del model.accumulators[k]


def _crossed_results(model: Model, stage: Stage) -> list[str]:
    """Earlier results that a stage reads, through units as well."""
    producers = {n: p.expr for n, p in model.skeleton.producers.items()}
    names = names_read([model.skeleton.concrete(stage.body)], producers)
    return [n for n in model.results if n in names and n != stage.name]


def _register_dependencies(model: Model, plan: Plan) -> None:
    """A dependency becomes final with the last result it reads."""
    for name, definition in model.dependencies.items():
        if name not in plan.pass_of and refs(definition) <= set(plan.pass_of):
            plan.pass_of[name] = max((plan.pass_of[r] for r in refs(definition)), default=0)
            plan.sweep(plan.pass_of[name]).changing.append(name)


def _try(search: Search, model: Model, sweep: Sweep, stage: Stage,
         goals: list[str]) -> tuple[StageReport | None, list[str]]:
    """Corrections for the accumulators `goals` of a stage, or for others it can do with: those that join the sweep."""
    if stage.name in search.late and not nothing_to_correct(model, sweep, goals):
        return _report_late(model, sweep, stage, search.late[stage.name]), goals
    if search.replay is not None:
        return _try_again(search, search.replay, model, sweep, stage, goals)
    final = frozenset(model.results) - frozenset(sweep.changing)

    given = search.cascade  # a closure over the search itself would be a cycle, which any thread may collect

    @cache
    def ranks() -> Ranks | None:
        asked = given if stage.name in {r.name for r in given.reductions} else model.skeleton.cascade
        return growth(asked, stage.name, final & {r.name for r in asked.reductions})

    def hopeless() -> bool:
        if is_finite(stage):
            return False
        found = ranks()
        return found is not None and found.growing

    search = replace(search, hopeless=hopeless)
    if is_expandable(stage):
        quick = replace(search, limits=replace(search.limits, nodes=min(search.limits.nodes, QUICK.nodes)))
        refusal = _search(quick, model, sweep, stage, goals)
        if refusal is None:
            return None, goals
        if refusal.outcome == "hopeless":  # a longer search is none the less
            return _report(model, sweep, stage, refusal, ranks()), goals
        if not hopeless() and (others := _with_others(search, model, sweep, stage, goals)) is not None:
            return None, others
        search = replace(search, limits=replace(search.limits, nodes=ROOM * search.limits.nodes),
                         patient=True)
    refusal = _search(search, model, sweep, stage, goals)
    return (None if refusal is None else _report(model, sweep, stage, refusal, ranks())), goals


def _search(search: Search, model: Model, sweep: Sweep, stage: Stage, goals: list[str]) -> Refusal | None:
    """Corrections for `goals`; the steps of a search in vain need not be repeated."""
    start = len(search.steps)
    refusal = find_corrections(search, model, sweep, stage.name, goals)
    if refusal is not None:
        for step in search.steps[start:]:
            step.reached = 0
    return refusal


def _with_others(search: Search, model: Model, sweep: Sweep, stage: Stage, goals: list[str]) -> list[str] | None:
    """Other accumulators for a stage, for which there are corrections."""
    start = len(search.steps)
    with model.on_trial() as keep:
        others = reconsider(search, model, stage, goals)
        if others is not None:
            others = [k for k in others if k not in sweep.accumulators]
            if _search(search, model, sweep, stage, others) is None:
                keep()
                return others
    for step in search.steps[start:]:
        step.reached = 0
    return None


def _try_again(search: Search, replay: Replay, model: Model, sweep: Sweep, stage: Stage,
               goals: list[str]) -> tuple[StageReport | None, list[str]]:
    """Like `_try` where it is known which stages are refused and which have other accumulators than at first."""
    if stage.name in replay.refused and not nothing_to_correct(model, sweep, goals):
        return StageReport(stage.name, "", ""), goals
    if stage.name in replay.reconsidered:
        others = _with_others(search, model, sweep, stage, goals)
        if others is None:
            raise NotReached(stage.name)
        return None, others
    if find_corrections(search, model, sweep, stage.name, goals) is not None:
        raise NotReached(stage.name)
    return None, goals


def _report_crossed(model: Model, stage: Stage, crossed: list[str]) -> StageReport:
    """Why a stage waits that reads results of other rows: every row would have to follow all the others."""
    reason = f"{stage.monoid} of {model.skeleton.readable(stage.body)} reads {' and '.join(crossed)} of other rows"
    hint = "One pass is searched for where every row reads its own results"
    return StageReport(stage.name, reason, hint, "", model.skeleton.cascade)


def _report_late(model: Model, sweep: Sweep, stage: Stage, why: str) -> StageReport:
    """Why a stage waits that could be corrected wherever it has a value."""
    own = (k for k in model.stage_accumulators[stage.name] if k in model.accumulators)  # some may have been given up
    bodies = [model.accumulators[k].body for k in own]
    values = sorted(frozenset[str]().union(*map(mentioned, bodies)) & set(sweep.changing))
    reason = (f"{stage.monoid} of {model.skeleton.readable(stage.body)} can be corrected while {' and '.join(values)} "
              f"changes, but then it is not right everywhere ({why})")
    return StageReport(stage.name, reason, "Where every quotient has a divisor other than 0, that form would do", "",
                       model.skeleton.cascade)


def _report(model: Model, sweep: Sweep, stage: Stage, refusal: Refusal, ranks: Ranks | None) -> StageReport:
    a = model.accumulators.get(refusal.accumulator)
    body = stage.body if a is None else a.body
    values = sorted(mentioned(body) & set(sweep.changing)) or ["the stream length"]
    read = model.skeleton.readable
    moving = [f"{n} = {read(model.dependencies[n])}" if n in model.dependencies else n for n in values]
    reason = _reason(stage.monoid, read(body), moving)
    hint, evidence = _hint(values, refusal, ranks)
    earlier = [s.name for s in model.skeleton.stages[: model.skeleton.stages.index(stage)]]
    return StageReport(stage.name, reason, hint, evidence, model.skeleton.cascade,
                       frozenset(earlier) - frozenset(sweep.changing))


def in_terms_of(cascade: Cascade, plan: Plan) -> Plan | None:
    """A plan with its refusals stated of `cascade`, of which it was made in another form; None where that says nothing
    of `cascade`: a refused stage is not in it, or nothing but a failed search speaks against the stage."""
    stages = {r.name: r for r in cascade.reductions}
    if not all(report.name in stages and report.evidence for report in plan.refused):
        return None
    read = Skeleton(cascade)
    bodies = {s.name: s.body for s in read.stages}
    refused = []
    for report in plan.refused:
        final = report.final & stages.keys()
        values = sorted(refs(bodies[report.name]) & stages.keys() - final)
        reason = _reason(stages[report.name].monoid, read.readable(bodies[report.name]), values)
        refused.append(replace(report, reason=reason, hint=_needs(values), cascade=cascade, final=final))
    return replace(plan, refused=refused)


def _reason(monoid: str, body: Expr, moving: list[str]) -> str:
    change = "changes" if len(moving) == 1 else "change"
    return f"{monoid} of {body} cannot be corrected while {' and '.join(moving)} {change}"


def _needs(values: list[str]) -> str:
    final = f"{' and '.join(values)} {'is' if len(values) == 1 else 'are'} final"
    return f"No finite number of accumulators can follow it: it needs a pass in which {final}"


def _hint(values: list[str], refusal: Refusal, ranks: Ranks | None) -> tuple[str, str]:
    """What would unlock a stage, and the evidence that nothing less does."""
    if ranks is not None and ranks.growing:
        return _needs(values), str(ranks)
    if ranks is not None:
        rank = f"{ranks.kind} is {'at least ' if ranks.open else ''}{ranks.rank}"
        rules = "add a rule (rules=rf.rules.default + mine) or raise limits="
        return f"Its {rank}, so that many accumulators may do: {rules}", ""
    if refusal.outcome == "saturated":  # says something of the rules, nothing of the mathematics: no evidence
        unlock = "a rule that moves the change out of the reduction would unlock it"
        return f"The rules were exhausted without a correction: {unlock}", ""
    return "The search hit its limits: raise limits= or add a rule", ""
