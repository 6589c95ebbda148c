"""Turn the chosen accumulators and corrections into a `FusedCascade`: names, reachability, concrete expressions.

Names: an accumulator is called like the reduction whose result it is, or whose result alone needs it; expressions of
the epilogue read accumulators and dependencies only, so a name never means two different values in one expression.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from redfuser.derivation.accumulate import ACCUMULATOR, Model, mentioned
from redfuser.derivation.duplicates import without_duplicates
from redfuser.derivation.fusion import COUNT, Accumulator, FusedCascade, check_fusion_node, needed_results
from redfuser.derivation.parts import projected
from redfuser.derivation.passes import Plan
from redfuser.derivation.simplify import cancel_exponentials, collapse
from redfuser.ir import Cascade, Const, Expr, Let, Load, New, Old, Ref, Size, names_read, refs, rewrite, walk
from redfuser.ir.names import counted, free_name, numbered, unique_name
from redfuser.ir.ops import label
from redfuser.rules.language import STREAM

LENGTH = Size(STREAM)


@dataclass
class Names:
    """Final names. `accumulators`: internal name -> name; `inlined`: results and dependencies that have no name."""

    accumulators: dict[str, str] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    inlined: set[str] = field(default_factory=set)
    counts: dict[int, str] = field(default_factory=dict)


def assemble(model: Model, plan: Plan, cascade: Cascade, *, lean: bool = False) -> FusedCascade:
    """The fused form of a planned cascade. `cascade`: the definition, which may have fewer stages than the model;
    `lean`: only with the results that its outputs read."""
    needed = needed_results(cascade)
    wanted = [r.name for r in cascade.reductions if r.name in needed or not lean]
    if lean:
        known: dict[str, Expr] = {}
        whole = {name: _written_out(model, model.definition(name), known) for name in (*wanted, *model.dependencies)}
        model.results |= {name: cancel_exponentials(whole[name]) for name in wanted}
        # e^-max x is infinite while all elements are masked
        model.dependencies |= {name: cancel_exponentials(whole[name]) for name in model.dependencies}
    shown = frozenset[str]().union(*(refs(o.expr) for o in cascade.outs)) & set(model.results) - set(wanted)
    live = _Reachable(model, plan, wanted, sorted(shown))
    names = _choose_names(model, plan, live)
    build = _Builder(model, names)
    accumulators, passes, corrections = [], [], []
    for sweep in plan.sweeps:
        members = [k for k in sweep.accumulators if k in live.accumulators]
        own = [build.accumulator(k) for k in members]
        corrections += [(names.accumulators[k], build.correction(sweep.corrections[k], sweep.index))
                        for k in members if k in sweep.corrections]
        if sweep.index in names.counts:
            own.append(Accumulator(names.counts[sweep.index], "sum", Const(1.0), ()))
        accumulators += own
        passes.append(tuple(a.name for a in own))
    fused = FusedCascade(
        cascade=build.cascade(cascade),
        accumulators=tuple(accumulators),
        dependencies=tuple(build.dependency(n) for n in live.ordered if n not in names.inlined),
        corrections=tuple(corrections),
        epilogue=tuple((r, collapse(build.expression(model.symbol(r), epilogue=True))) for r in wanted),
        passes=tuple(p for p in passes if p),
    )
    fused = without_duplicates(_in_level_order(fused))
    check_fusion_node(fused)
    return fused


def _written_out(model: Model, e: Expr, known: dict[str, Expr]) -> Expr:
    """`e` over accumulators alone. `known`: the results and dependencies written out so far."""

    def definition(x: Expr) -> Expr | None:
        if not isinstance(x, Ref) or x.name not in (*model.results, *model.dependencies):
            return None
        if x.name not in known:
            known[x.name] = _written_out(model, model.definition(x.name), known)
        return known[x.name]

    return rewrite(e, definition)


class _Reachable:
    """Accumulators, results and dependencies that the results need, directly or through bodies and corrections.

    `wanted`: the reductions of the definition; `shown`: further values that outputs read under their own name.
    `named`: results and dependencies that bodies or corrections read; `ordered`: those in definition order.
    """

    def __init__(self, model: Model, plan: Plan, wanted: list[str], shown: list[str]) -> None:
        self.model = model
        self.corrections = {k: e for s in plan.sweeps for k, e in s.corrections.items()}
        self.accumulators: set[str] = set()
        self.named: set[str] = set()
        self.lengths: set[int] = set()
        self._sweep_of = {k: s.index for s in plan.sweeps for k in s.accumulators}
        self._visited: set[Expr] = set()
        self._depths: dict[str, int] = {}
        for name in wanted:
            self._visit(model.results[name])
        for name in (*shown, *sorted(self._final_reads())):
            self._name(name)
        order = [*model.results, *model.dependencies]
        self.ordered = sorted(self.named, key=lambda n: (self._depth(n), order.index(n)))

    def _final_reads(self) -> set[str]:
        """Results that units read at other axes than their own."""
        return {n for e in self.model.skeleton.units.values() for n in refs(e) if n in self.model.results}

    def _depth(self, name: str) -> int:
        if name not in self._depths:
            inner = {m for m in mentioned(self.model.definition(name)) if not m.startswith(ACCUMULATOR)}
            self._depths[name] = 1 + max(map(self._depth, inner), default=0)
        return self._depths[name]

    def _visit(self, e: Expr) -> None:
        if e in self._visited:
            return
        self._visited.add(e)
        if LENGTH in walk(e):
            self.lengths.add(0)
        for name in sorted(mentioned(e)):
            if name.startswith(ACCUMULATOR):
                self._accumulate(name)
            elif name != COUNT:
                self._visit(self.model.definition(name))

    def _name(self, name: str) -> None:
        if name not in self.named:
            self.named.add(name)
            self._visit(self.model.definition(name))

    def _accumulate(self, k: str) -> None:
        if k in self.accumulators:
            return
        self.accumulators.add(k)
        body, correction = self.model.accumulators[k].body, self.corrections.get(k)
        self._visit(body)
        for name in mentioned(body):
            self._name(name)
        if correction is None:
            return
        parts = list(walk(correction))
        if any(x == LENGTH or x in (Old(COUNT), New(COUNT)) for x in parts):
            self.lengths.add(self._sweep_of[k])
        if any(isinstance(x, Ref) and x.name == COUNT for x in parts):  # the length, known since the first pass
            self.lengths.add(0)
        self._visit(correction)
        for x in parts:
            if isinstance(x, (Old, New, Ref)) and x.name != COUNT and not x.name.startswith(ACCUMULATOR):
                self._name(x.name)


def _choose_names(model: Model, plan: Plan, live: _Reachable) -> Names:
    names = Names()
    taken = {*model.results, *model.dependencies, *model.skeleton.producers,
             *(t.name for t in model.skeleton.cascade.tensors)}
    for index in sorted(live.lengths):
        names.counts[index] = COUNT if index == 0 else unique_name(f"{COUNT}_{index + 1}", taken)
        taken.add(names.counts[index])
    plain = {e.name: r for r, e in reversed(model.results.items())
             if isinstance(e, Ref) and e.name.startswith(ACCUMULATOR)}
    for k in (k for s in plan.sweeps for k in s.accumulators if k in live.accumulators):
        name = plain.get(k) or _private_name(model, live, k, names) or _free_name(model, k, taken)
        names.accumulators[k] = name
        taken.add(name)
    for name in (*model.results, *model.dependencies):
        e = model.definition(name)
        if name in model.results and isinstance(e, Ref) and e.name in names.accumulators:
            names.values[name] = names.accumulators[e.name]
            names.inlined.add(name)
        elif name not in live.named:
            names.inlined.add(name)
    return names


def _private_name(model: Model, live: _Reachable, k: str, names: Names) -> str | None:
    """The stage's own name, when no expression but that stage's result reads the accumulator."""
    stage = model.accumulators[k].stage
    others = [model.definition(n) for n in (*model.results, *model.dependencies) if n != stage]
    others += [model.accumulators[j].body for j in live.accumulators]
    others += [e for j, e in live.corrections.items() if j != k and j in live.accumulators]
    if stage in live.named or stage in names.accumulators.values() or any(k in mentioned(e) for e in others):
        return None
    own = mentioned(model.results[stage]) if stage in model.results else frozenset()
    return stage if k in own else None


def _free_name(model: Model, k: str, taken: set[str]) -> str:
    """A readable name: sum_w for the sum of an input w, else the stage's name with a number."""
    a = model.accumulators[k]
    unit = model.skeleton.units.get(a.body.tensor) if isinstance(a.body, Load) else None
    if isinstance(unit, Load):
        return free_name(counted(f"{label(a.monoid).replace(':', '')}_{unit.tensor}"), taken)
    return free_name(numbered(f"{a.stage}_"), taken)


class _Builder:
    """Writes skeleton expressions in final names and concrete units."""

    def __init__(self, model: Model, names: Names) -> None:
        self.model = model
        self.names = names
        self._written: dict[tuple[str, bool], Expr] = {}

    def expression(self, e: Expr, epilogue: bool = False) -> Expr:
        """An expression over accumulators and dependencies. In the epilogue, quotients are read raw: inline them."""

        def final(x: Expr) -> Expr | None:
            if x == LENGTH:
                return Ref(COUNT)
            if not isinstance(x, Ref) or x.name == COUNT:
                return None
            if x.name.startswith(ACCUMULATOR):
                return Ref(self.names.accumulators[x.name], x.axes)
            if x.name in self.names.values:
                return self._definition(x.name, epilogue=False)
            if epilogue or x.name in self.names.inlined:
                return self._definition(x.name, epilogue)
            return None

        return self._concrete(projected(rewrite(e, final)))

    def _definition(self, name: str, epilogue: bool) -> Expr:
        """What a result or a dependency is, made once: many may read it."""
        key = name, epilogue
        if key not in self._written:
            self._written[key] = self.expression(self.model.definition(name), epilogue)
        return self._written[key]

    def _concrete(self, e: Expr) -> Expr:
        """Units put back, and the results they read at other axes renamed."""
        return self.model.skeleton.concrete(e)

    def accumulator(self, k: str) -> Accumulator:
        a = self.model.accumulators[k]
        return Accumulator(self.names.accumulators[k], a.monoid, self.expression(a.body), a.axes)

    def dependency(self, name: str) -> Let:
        return Let(name, self.model.axes[name], self.expression(self.model.definition(name)))

    def correction(self, e: Expr, index: int) -> Expr:
        count = self.names.counts.get(index, COUNT)

        def final(x: Expr) -> Expr | None:
            if x == LENGTH:
                return Old(count)
            if isinstance(x, (Old, New)):
                return type(x)(self.names.values.get(x.name, x.name))
            if isinstance(x, Ref) and x.name.startswith(ACCUMULATOR):
                return Old(self.names.accumulators[x.name])
            if isinstance(x, Ref):  # final since an earlier pass
                return New(self.names.values.get(x.name, x.name) if x.name != COUNT else self.names.counts[0])
            return None

        return self._concrete(rewrite(e, final))

    def cascade(self, cascade: Cascade) -> Cascade:
        """The cascade without the producers that were inlined into bodies because they read results."""
        skeleton = self.model.skeleton
        kept = tuple(p for p in cascade.producers if not skeleton.mentions(p.expr) or _read_by_outs(cascade, p.name))
        own = {r.name for r in cascade.reductions}

        def shared(x: Expr) -> Expr | None:
            if not isinstance(x, Ref) or x.name in own or x.name not in self.names.values:
                return None
            return Ref(self.names.values[x.name], x.axes)  # two results share an accumulator: it has one name

        outs = tuple(replace(o, expr=rewrite(o.expr, shared)) for o in cascade.outs)
        return replace(cascade, producers=kept, outs=outs) if (kept, outs) != (
            cascade.producers, cascade.outs) else cascade


def _read_by_outs(cascade: Cascade, name: str) -> bool:
    return name in names_read((o.expr for o in cascade.outs), {p.name: p.expr for p in cascade.producers})


def _in_level_order(fused: FusedCascade) -> FusedCascade:
    """Accumulators sorted by level within each pass."""
    position = {name: i for i, p in enumerate(fused.passes) for name in p}
    original = {a.name: i for i, a in enumerate(fused.accumulators)}
    ordered = sorted(fused.accumulators, key=lambda a: (position[a.name], fused.level(a.name), original[a.name]))
    passes = tuple(tuple(a.name for a in ordered if position[a.name] == i) for i in range(len(fused.passes)))
    return replace(fused, accumulators=tuple(ordered), passes=passes)
