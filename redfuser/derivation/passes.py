"""Assign every stage to the earliest pass over the stream in which it can be kept up to date.

A stage joins the pass of the results it depends on when corrections exist for it; otherwise it starts a later pass,
in which those results are final. A refusal is backed by evidence where there is any.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache

from redfuser.derivation.accumulate import Model, mentioned
from redfuser.derivation.correct import Refusal, Sweep, find_corrections, nothing_to_correct
from redfuser.derivation.engine import NotReached, Replay, Search
from redfuser.derivation.fusion import COUNT
from redfuser.derivation.rank import Ranks, separation_ranks
from redfuser.derivation.simplify import collapse
from redfuser.derivation.skeleton import Stage
from redfuser.ir import Expr, New, Old, refs, rewrite, substitute, walk


class Verdict(StrEnum):
    """FUSIBLE: one pass. PARTLY: fewer passes than dependent stages. NOT_FUSIBLE: as many, and shown. NOT_FOUND: as
    many, not shown."""

    FUSIBLE = "FUSIBLE"
    PARTLY = "PARTLY"
    NOT_FUSIBLE = "NOT_FUSIBLE"
    NOT_FOUND = "NOT_FOUND"


@dataclass(frozen=True)
class StageReport:
    """Why a stage starts a pass of its own: the failed condition, what would unlock it, the evidence ("" if none)."""

    name: str
    reason: str
    hint: str
    evidence: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}. {self.hint}" + (f" ({self.evidence})" if self.evidence else "")


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
    used = model.stage_accumulators[stage.name]
    goals = [k for k in used if k not in placed]
    _register_dependencies(model, plan)
    reads = mentioned(model.results[stage.name]).union(*(mentioned(model.accumulators[k].body) for k in goals))
    index = max((plan.pass_of[n] for n in reads if n in plan.pass_of), default=0)
    if stage.crossed:
        index = max(index, 1 + max(plan.pass_of[n] for n in _crossed_results(model, stage)))
        while len(plan.sweeps) < index:
            plan.sweep(len(plan.sweeps))
    while True:
        sweep = plan.sweep(index)
        report = _try(search, model, sweep, stage, goals)
        if report is None:
            break
        plan.refused.append(report)
        index += 1
    _drop_redundant(model, sweep, goals)
    used = [k for k in mentioned(model.results[stage.name]) if k in model.accumulators]
    homes = [s.index for s in plan.sweeps for k in used if k in s.accumulators]
    plan.pass_of[stage.name] = max([index if goals else 0, *homes,
                                    *(plan.pass_of[n] for n in reads if n in plan.pass_of)])
    plan.sweep(plan.pass_of[stage.name]).changing.append(stage.name)


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
        sweep.accumulators.remove(k)
        del sweep.corrections[k]


def _crossed_results(model: Model, stage: Stage) -> list[str]:
    """Earlier results that a stage reads, through units as well."""
    names = refs(model.skeleton.concrete(stage.body))
    seen: set[str] = set()
    while names - seen:
        seen |= names
        names = names.union(*(refs(model.skeleton.producers[n].expr) for n in names if n in model.skeleton.producers))
    return [n for n in model.results if n in names and n != stage.name]


def _register_dependencies(model: Model, plan: Plan) -> None:
    """A dependency becomes final with the last result it reads."""
    for name, definition in model.dependencies.items():
        if name not in plan.pass_of and refs(definition) <= set(plan.pass_of):
            plan.pass_of[name] = max((plan.pass_of[r] for r in refs(definition)), default=0)
            plan.sweep(plan.pass_of[name]).changing.append(name)


def _try(search: Search, model: Model, sweep: Sweep, stage: Stage, goals: list[str]) -> StageReport | None:
    if search.replay is not None:
        return _try_again(search, search.replay, model, sweep, stage, goals)
    final = frozenset(model.results) - frozenset(sweep.changing)

    @cache
    def ranks() -> Ranks | None:
        return separation_ranks(model.skeleton, stage, final)

    def hopeless() -> bool:
        found = ranks()
        return found is not None and found.growing

    refusal = find_corrections(replace(search, hopeless=hopeless), model, sweep, stage.name, goals)
    return None if refusal is None else _report(model, sweep, stage, refusal, ranks())


def _try_again(search: Search, replay: Replay, model: Model, sweep: Sweep, stage: Stage,
               goals: list[str]) -> StageReport | None:
    """Like `_try` where it is known which stages are refused."""
    if stage.name in replay.refused and not nothing_to_correct(model, sweep, goals):
        return StageReport(stage.name, "", "")
    if find_corrections(search, model, sweep, stage.name, goals) is not None:
        raise NotReached(stage.name)
    return None


def _report(model: Model, sweep: Sweep, stage: Stage, refusal: Refusal, ranks: Ranks | None) -> StageReport:
    a = model.accumulators.get(refusal.accumulator)
    body = stage.body if a is None else a.body
    values = sorted(mentioned(body) & set(sweep.changing)) or ["the stream length"]
    read = model.skeleton.readable
    moving = " and ".join(f"{n} = {read(model.dependencies[n])}" if n in model.dependencies else n for n in values)
    reason = f"{stage.monoid} of {read(body)} cannot be corrected while {moving} changes"
    if ranks is not None and ranks.growing:
        return StageReport(stage.name, reason, "No finite number of accumulators can follow it: it needs a pass in "
                           f"which {' and '.join(values)} is final", f"separation rank {ranks}")
    if ranks is not None:
        count = "at least " if ranks.finite and ranks.highest == ranks.sizes[-1] else ""
        return StageReport(stage.name, reason, f"Its separation rank is {count}{ranks.highest}, so that many "
                           "accumulators would do: add a rule (rules=rf.rules.default + mine) or raise limits=")
    if refusal.outcome == "saturated":  # says something of the rules, nothing of the mathematics: no evidence
        return StageReport(stage.name, reason, "The rules were exhausted without a correction: a rule that moves the "
                           "change out of the reduction would unlock it")
    return StageReport(stage.name, reason, "The search hit its limits: raise limits= or add a rule")
