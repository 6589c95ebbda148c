"""Derive the incremental form of a cascade: accumulators, corrections, epilogue, passes, and the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import repeat

from redfuser.derivation.accumulate import choose_accumulators
from redfuser.derivation.assemble import assemble
from redfuser.derivation.certificate import Certificate, certify
from redfuser.derivation.combine import combine
from redfuser.derivation.conditions import assumed, domains, used_assumptions
from redfuser.derivation.engine import engine_for
from redfuser.derivation.explain import laws_needed, smallest
from redfuser.derivation.fusion import FusedCascade
from redfuser.derivation.passes import Plan, in_terms_of, plan_passes
from redfuser.derivation.pivot import Shift, add_locations, pivot
from redfuser.derivation.search import Limits, NotReached, Replay, Search, Step
from redfuser.derivation.selected import mark_unselected
from redfuser.derivation.settle import settle_pivots
from redfuser.derivation.skeleton import Skeleton
from redfuser.derivation.taste import STABLE, Taste
from redfuser.derivation.undefined import mark_undefined
from redfuser.derivation.verdict import StageReport, Verdict, fewest_passes, groups, lower_bound
from redfuser.errors import ArgumentError, EngineError, RuleError
from redfuser.ir import Cascade, check_cascade, refs
from redfuser.rules import APPROXIMATE, RuleSet, check_rule
from redfuser.rules import default as default_rules
from redfuser.rules.language import Law

DEFAULT_LIMITS = Limits()
NODES_TO_EXPLAIN = 60_000
FEWEST_QUESTIONS = 24
"""How long the search for the smallest rule set may take, in e-graph nodes: the same set on every machine."""


@dataclass(frozen=True)
class Settings:
    """What a derivation may use and prefers.

    late  results that are computed in a pass of their own, by their definition, and why: the form that was found in an
          earlier pass is wrong somewhere (where something is undefined, or a part of the stream has nothing alive)
    """

    rules: RuleSet
    allowed: tuple[str, ...] = ()
    limits: Limits = DEFAULT_LIMITS
    pivot: bool = True
    taste: Taste = STABLE
    late: tuple[tuple[str, str], ...] = ()


@dataclass
class Derivation:
    """What was found for one cascade.

    cascade       the definition
    verdict       see `Verdict`
    fused         the fused form; it can always be executed, in the fewest passes known
    stages        the stages that start a pass of their own, with reason, hint and evidence
    certificate   evidence that the fused form equals the definition; `certificate.prove()` for the symbolic proof
    timeline      the saturations, in order, with nodes, iterations and milliseconds
    milliseconds  wall time of the derivation
    """

    cascade: Cascade
    verdict: Verdict
    fused: FusedCascade
    stages: tuple[StageReport, ...]
    certificate: Certificate
    timeline: tuple[Step, ...]
    milliseconds: float
    settings: Settings = field(repr=False)

    @property
    def passes(self) -> int:
        """Number of sweeps over the stream."""
        return len(self.fused.passes)

    @property
    def lower_bound(self) -> int:
        """The fewest passes there can be, as far as the evidence goes: `passes` unless the verdict is NOT_FOUND."""
        return fewest_passes(self.cascade, self.stages)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The results that are computed together, pass after pass."""
        return groups(self.fused)

    @cached_property
    def rules(self) -> tuple[str, ...]:
        """Names of the laws this derivation rests on: a set from which none can be dropped, unless the search for it
        was cut short (long derivations). Found on first use."""
        if self.cascade.axis is None:
            return ()
        nodes = max(1, sum(s.nodes for s in self.timeline))
        most = max(FEWEST_QUESTIONS, NODES_TO_EXPLAIN // nodes)
        recorded = all(s.record.events for s in self.timeline)
        timeline = self.timeline if recorded else derive_with(self.cascade, self.settings).timeline
        for strict in (False, True):
            found = laws_needed(engine_for(self.settings.rules), self.settings.rules, timeline,
                                NODES_TO_EXPLAIN, strict=strict)
            if found is not None and self.reaches(frozenset(found)):
                return found
        names = [law.name for law in self.settings.rules if law.name in self.matched]
        if not self.reaches(frozenset(names)):
            names = [law.name for law in self.settings.rules]

        def question(trial: frozenset[str]) -> frozenset[str] | None:
            return trial if self.reaches(trial) else None

        return smallest(names, question, most)

    @property
    def approximate(self) -> tuple[str, ...]:
        """Names of the approximate laws that matched anything: the fused form may rest on them."""
        return _approximate(self.settings.rules, self.timeline)

    @property
    def matched(self) -> frozenset[str]:
        """Names of the laws that matched anything."""
        return frozenset[str]().union(*(s.matched for s in self.timeline))

    def reaches(self, kept: frozenset[str]) -> bool:
        """Whether the same search finds the same fused form with the laws of these names alone."""
        refused = frozenset(s.name for s in self.stages)
        needed = [s.reached for s in self.timeline if s.reached]
        again = frozenset(s.reconsidered for s in self.timeline if s.reached)
        try:
            fused, _ = _fuse(self.cascade, self.settings, [], lambda law: law.name in kept,
                             Replay(refused, iter(needed), again))
        except NotReached:
            return False
        return replace(fused, conditions=self.fused.conditions) == self.fused

    @cached_property
    def conditions(self) -> tuple[str, ...]:
        """What the fused form rests on: the assumptions it uses (the form is another one without them), and the domains
        of the operations on its results. Found on first use, by one more derivation for each assumption."""
        if self.cascade.axis is None:
            return ()
        used = used_assumptions(self.fused, lambda c: _fuse(c, self.settings, [])[0])
        form = replace(self.fused, cascade=replace(self.fused.cascade, assumptions=used))
        return tuple(assumed(self.cascade, a) for a in used) + domains(form, engine_for(self.settings.rules))


def derive_cascade(cascade: Cascade, *, rules: RuleSet | None = None, allow: Iterable[str] = (),
                   limits: Limits = DEFAULT_LIMITS, pivot: bool = True, taste: Taste = STABLE) -> Derivation:
    """Derive the incremental form of a cascade.

    Parameters
    ----------
    cascade
        reductions over one stream axis, and the outputs computed from them.
    rules
        the laws the engine may use (default: `redfuser.rules.default`).
    allow
        names of approximate rule groups (`redfuser.rules.APPROXIMATE`) that may be used as well.
    limits
        bounds on every single saturation.
    pivot
        accumulate data shifted by its element nearest to zero where a location (a mean) is subtracted from it.
    taste
        which of several equal forms is preferred.

    Raises
    ------
    RuleError
        when `allow` names an unknown group, or the result is wrong because a rule is.
    EngineError
        when even the form that computes a result in a pass of its own is wrong.
    """
    return derive_with(cascade, replace(settings_for(rules, allow, limits, pivot), taste=taste))


def derive_with(cascade: Cascade, settings: Settings) -> Derivation:
    """Like `derive_cascade`, with the settings of another derivation or a variation of them."""
    check_cascade(cascade)
    start = time.perf_counter()
    steps: list[Step] = []
    why = "every dependent stage has a pass of its own"
    while True:
        fused, plan = _fuse(cascade, settings, steps)
        certificate = certify(fused, rounding=not _approximate(settings.rules, steps))
        if certificate.valid:
            break
        if not certificate.refuted:  # an undecided answer is no certificate
            if settings.taste.separate:
                break
            settings = replace(settings, pivot=False, taste=replace(settings.taste, separate=True))
            why = f"no form in fewer passes could be checked: {certificate.steps[0]}"
            steps.clear()
            continue
        late = tuple((n, certificate.steps[0]) for n in certificate.wrong if n not in dict(settings.late))
        _check_own(settings.rules)
        if late:
            settings = replace(settings, late=settings.late + late)
        elif not settings.taste.separate:
            settings = replace(settings, pivot=False, taste=replace(settings.taste, separate=True))
            why = f"no form in fewer passes is right everywhere ({certificate.steps[0]})"
        else:
            raise EngineError(f"a derived form differs from its definition: {'; '.join(certificate.steps)}")
        steps.clear()
    fused = replace(fused, conditions=tuple(assumed(cascade, a) for a in cascade.assumptions))
    stages = tuple(replace(s, reason=s.reason or why) for s in plan.refused)
    return Derivation(cascade, _verdict(fused, plan), fused, stages, certificate, tuple(steps),
                      (time.perf_counter() - start) * 1e3, settings)


def fuse_unchecked(cascade: Cascade, *, rules: RuleSet | None = None, limits: Limits = DEFAULT_LIMITS) -> FusedCascade:
    """What the search finds with a rule set, before it is compared with the definition: wrong where a rule is. For
    tests of what compares it; `derive_cascade` refuses such a form.

    Raises
    ------
    EngineError
        when the rules prove 0 = 1.
    """
    check_cascade(cascade)
    return _fuse(cascade, settings_for(rules, (), limits), [])[0]


def _fuse(cascade: Cascade, settings: Settings, steps: list[Step],
          keep: Callable[[Law], bool] | None = None,
          replay: Replay | None = None) -> tuple[FusedCascade, Plan]:
    """Fused form and plan, with the laws that `keep` accepts; `replay`: see `Search`.

    Shifted by a pivot where a location is subtracted, unless that costs passes.
    """
    if cascade.axis is None:
        return FusedCascade(cascade, (), (), (), ()), Plan()
    if settings.taste.separate:
        keep, replay = (lambda law: False), Replay(frozenset(r.name for r in cascade.reductions), repeat(0))
    search = Search(engine_for(settings.rules), settings.limits, steps, cascade, keep, replay=replay,
                    taste=settings.taste, late=dict(settings.late))
    shifted = pivot(cascade) if settings.pivot else None
    if shifted is None:
        return _search(search, Skeleton(cascade), cascade)
    skeleton = Skeleton(shifted.cascade, opaque=shifted.opaque, whole=shifted.data)
    found = _search(search, skeleton, shifted.outs, shifted.shifts)
    if _is_unused(shifted.shifts, found[0]):  # the laws gave sums of the data as they are
        steps.clear()
        return _search(search, Skeleton(cascade), cascade)
    if len(found[0].passes) > 1 and replay is None:
        plainly = in_terms_of(cascade, found[1])
        if plainly is not None and lower_bound(cascade, tuple(plainly.refused)) == len(found[0].passes):
            return found[0], plainly  # without the pivot there are no fewer
        plain_steps: list[Step] = []
        plain = _search(replace(search, steps=plain_steps), Skeleton(cascade), cascade)
        if len(plain[0].passes) < len(found[0].passes):
            steps[:] = plain_steps
            return plain
        return found[0], plain[1]  # a refusal is clearer without the pivot
    return found


def _approximate(rules: RuleSet, steps: Iterable[Step]) -> tuple[str, ...]:
    """The approximate laws of a rule set that matched anything."""
    exact = frozenset(x.name for x in rules.exact())
    inexact = [x.name for x in rules if x.name not in exact]
    return tuple(n for n in inexact if any(n in s.matched for s in steps)) if inexact else ()


def _is_unused(shifts: tuple[Shift, ...], fused: FusedCascade) -> bool:
    """Whether no accumulator is shifted by a pivot."""
    pivots = {s.pivot.name for s in shifts}
    return not any(refs(a.body) & pivots for a in fused.accumulators)


def _search(search: Search, skeleton: Skeleton, cascade: Cascade,
            shifts: tuple[Shift, ...] = ()) -> tuple[FusedCascade, Plan]:
    model = choose_accumulators(search, skeleton)
    add_locations(model, cascade, shifts)
    plan = plan_passes(search, model)
    combine(model, plan)
    settle_pivots(model, plan, shifts)
    return mark_unselected(mark_undefined(assemble(model, plan, cascade, lean=search.taste.lean))), plan


def settings_for(rules: RuleSet | None = None, allow: Iterable[str] = (), limits: Limits = DEFAULT_LIMITS,
                 pivot: bool = True) -> Settings:
    """Settings with the exact laws, and the approximate ones that are allowed by name; see `derive_cascade`."""
    chosen = default_rules if rules is None else rules
    if not isinstance(chosen, RuleSet):
        raise ArgumentError(f"argument 'rules' is {rules!r}; give a rule set, such as rf.rules.default + "
                            "rf.ruleset('mine', [rule])")
    allowed = (allow,) if isinstance(allow, str) else tuple(allow)
    laws = chosen.exact()
    for name in allowed:
        own = RuleSet(name, tuple(x for x in chosen[name] if x not in laws.laws))
        if name not in APPROXIMATE and not len(own):
            raise RuleError(f"argument 'allow' names {name!r}; approximate rule groups are {', '.join(APPROXIMATE)}")
        laws = laws + APPROXIMATE.get(name, own)
    return Settings(laws, allowed, limits, pivot)


def _check_own(rules: RuleSet) -> None:
    """Raise the error that names an unsound rule of the caller."""
    known = frozenset(default_rules)
    for law in rules:
        check = None if law in known else check_rule(law)
        if check is not None and not check.ok:
            found = "its sides differ at" if check.counterexample else "no sample was found on which it has a value"
            raise RuleError(f"the rule {law.name} ({law.law}) is wrong: {found} {check.counterexample or ''}".rstrip())


def dependent_stages(cascade: Cascade) -> int:
    """Length of the longest chain of reductions in which each reads the one before: passes without any fusion."""
    bodies = {r.name: r.body for r in cascade.reductions}
    definitions = bodies | {p.name: p.expr for p in cascade.producers}
    known: dict[str, int] = {}

    def depth(name: str) -> int:
        if name not in known:
            known[name] = (name in bodies) + max(map(depth, refs(definitions[name])), default=0)
        return known[name]

    return max(map(depth, bodies), default=0)


def _verdict(fused: FusedCascade, plan: Plan) -> Verdict:
    passes = len(fused.passes)
    if passes <= 1:
        return Verdict.FUSIBLE
    if fewest_passes(fused.cascade, tuple(plan.refused)) < passes:
        return Verdict.NOT_FOUND
    return Verdict.PARTLY if passes < dependent_stages(fused.cascade) else Verdict.NOT_FUSIBLE
