"""Derive the incremental form of a cascade: accumulators, corrections, epilogue, passes, and the verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from redfuser.derivation.accumulate import choose_accumulators
from redfuser.derivation.assemble import assemble
from redfuser.derivation.certificate import Certificate, certify
from redfuser.derivation.engine import Limits, NotReached, Replay, Search, Step, engine_for
from redfuser.derivation.explain import smallest
from redfuser.derivation.fusion import FusedCascade
from redfuser.derivation.passes import Plan, StageReport, Verdict, plan_passes
from redfuser.derivation.pivot import Shift, add_locations, pivot
from redfuser.derivation.skeleton import Skeleton
from redfuser.derivation.undefined import mark_undefined
from redfuser.errors import EngineError, RuleError
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
    """What a derivation may use."""

    rules: RuleSet
    allowed: tuple[str, ...] = ()
    limits: Limits = DEFAULT_LIMITS
    pivot: bool = True


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

    @cached_property
    def rules(self) -> tuple[str, ...]:
        """Names of the laws this derivation rests on: a set from which none can be dropped, unless the search for it
        was cut short (long derivations). Found on first use."""
        if self.cascade.axis is None:
            return ()
        matched = set[str]().union(*(s.matched for s in self.timeline))
        names = [law.name for law in self.settings.rules if law.name in matched]

        refused = frozenset(s.name for s in self.stages)
        needed = [s.reached for s in self.timeline if s.reached]

        def reaches(kept: frozenset[str]) -> bool:
            try:
                fused, _ = _fuse(self.cascade, self.settings, [], lambda law: law.name in kept,
                                 Replay(refused, iter(needed)))
            except NotReached:
                return False
            return fused == self.fused

        if not reaches(frozenset(names)):
            names = [law.name for law in self.settings.rules]
        nodes = max(1, sum(s.nodes for s in self.timeline))
        return smallest(names, reaches, max(FEWEST_QUESTIONS, NODES_TO_EXPLAIN // nodes))


def derive_cascade(cascade: Cascade, *, rules: RuleSet | None = None, allow: Iterable[str] = (),
                   limits: Limits = DEFAULT_LIMITS, pivot: bool = True) -> Derivation:
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
        accumulate data shifted by its first element where a location (a mean) is subtracted from it.

    Raises
    ------
    RuleError
        when `allow` names an unknown group, or the result is wrong because a rule is.
    EngineError
        when the result is wrong although every rule passes its own test.
    """
    check_cascade(cascade)
    start = time.perf_counter()
    settings = _settings(rules, allow, limits, pivot)
    steps: list[Step] = []
    fused, plan = _fuse(cascade, settings, steps)
    certificate = certify(fused, rounding=not settings.allowed)
    if certificate.refuted:
        _blame(settings.rules, certificate)
    return Derivation(cascade, _verdict(fused, plan), fused, tuple(plan.refused), certificate, tuple(steps),
                      (time.perf_counter() - start) * 1e3, settings)


def _fuse(cascade: Cascade, settings: Settings, steps: list[Step],
          keep: Callable[[Law], bool] | None = None,
          replay: Replay | None = None) -> tuple[FusedCascade, Plan]:
    """Fused form and plan, with the laws that `keep` accepts; `replay`: see `Search`.

    Shifted by a pivot where a location is subtracted, unless that costs passes.
    """
    if cascade.axis is None:
        return FusedCascade(cascade, (), (), (), ()), Plan()
    search = Search(engine_for(settings.rules), settings.limits, steps, keep, replay=replay)
    shifted = pivot(cascade) if settings.pivot else None
    if shifted is None:
        return _search(search, Skeleton(cascade), cascade)
    skeleton = Skeleton(shifted.cascade, opaque=shifted.opaque, whole=shifted.data)
    found = _search(search, skeleton, shifted.outs, shifted.shifts)
    if len(found[0].passes) > 1 and replay is None:
        plain_steps: list[Step] = []
        plain = _search(replace(search, steps=plain_steps), Skeleton(cascade), cascade)
        if len(plain[0].passes) < len(found[0].passes):
            steps[:] = plain_steps
            return plain
        return found[0], plain[1]  # a refusal is clearer without the pivot
    return found


def _search(search: Search, skeleton: Skeleton, cascade: Cascade,
            shifts: tuple[Shift, ...] = ()) -> tuple[FusedCascade, Plan]:
    model = choose_accumulators(search, skeleton)
    add_locations(model, cascade, shifts)
    plan = plan_passes(search, model)
    return mark_undefined(assemble(model, plan, cascade)), plan


def _settings(rules: RuleSet | None, allow: Iterable[str], limits: Limits, shifted: bool) -> Settings:
    """The exact laws, and the approximate ones that are allowed by name."""
    chosen = default_rules if rules is None else rules
    allowed = (allow,) if isinstance(allow, str) else tuple(allow)
    laws = chosen.exact()
    for name in allowed:
        own = RuleSet(name, tuple(x for x in chosen[name] if x not in laws.laws))
        if name not in APPROXIMATE and not len(own):
            raise RuleError(f"argument 'allow' names {name!r}; approximate rule groups are {', '.join(APPROXIMATE)}")
        laws = laws + APPROXIMATE.get(name, own)
    return Settings(laws, allowed, limits, shifted)


def _blame(rules: RuleSet, certificate: Certificate) -> None:
    """Raise the error that names the unsound rule."""
    for law in rules:
        check = check_rule(law)
        if not check.ok:
            raise RuleError(f"the rule {law.name} ({law.law}) is wrong: its sides differ at {check.counterexample}")
    raise EngineError(f"a derived form differs from its definition: {'; '.join(certificate.steps)}")


def dependent_stages(cascade: Cascade) -> int:
    """Length of the longest chain of reductions in which each reads the one before: passes without any fusion."""
    producers = {p.name: p.expr for p in cascade.producers}
    bodies = {r.name: r.body for r in cascade.reductions}

    def depth(names: Iterable[str]) -> int:
        return max((depth(refs(producers[n])) if n in producers else 1 + depth(refs(bodies[n])) for n in names),
                   default=0)

    return depth(bodies)


def _verdict(fused: FusedCascade, plan: Plan) -> Verdict:
    passes = len(fused.passes)
    if passes <= 1:
        return Verdict.FUSIBLE
    if not all(r.evidence for r in plan.refused):
        return Verdict.NOT_FOUND
    return Verdict.PARTLY if passes < dependent_stages(fused.cascade) else Verdict.NOT_FUSIBLE
