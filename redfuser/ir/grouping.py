"""How the reductions of a term are grouped: which are producers, which stages share a sweep, where outputs belong.

Works on terms whose definitions are all reductions; `redfuser.ir.partition` prepares them and builds the cascades.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from redfuser.ir.dtypes import distinct
from redfuser.ir.expr import Expr, Load, Part, Ref
from redfuser.ir.folding import body_of, factors, is_contraction, is_product, is_run, reduce_of, references, stream_of
from redfuser.ir.term import Let, Out, Term
from redfuser.ir.traverse import free_axes, refs, rename_axes
from redfuser.ir.twins import NoTwin, Twins

# ---- the plan: producers, groups of stages, places of outputs

@dataclass(eq=False)
class Group:
    """Stages that share a sweep over `stream` (none: an elementwise piece).

    outs : outputs computed with them
    twins : a result at axes that are not its own -> the stage that gives it there
    """

    stream: tuple[str, ...]
    stages: list[Let] = field(default_factory=list)
    outs: list[Out] = field(default_factory=list)
    twins: dict[Ref, str] = field(default_factory=dict)

    def names(self) -> set[str]:
        return {s.name for s in self.stages}


class Plan:
    """Decisions about one term; `stored` names reductions that must not be producers."""

    def __init__(self, term: Term, stored: frozenset[str]) -> None:
        self.term = term
        self.lets = {x.name: x for x in term.lets}
        self.producers: set[str] = set()
        self._uses: dict[str, list[tuple[Let | Out, Ref]]] = {x.name: [] for x in term.lets}
        users: list[Let | Out] = [*term.lets, *term.outs]
        for user in users:
            for ref in references(user.expr):
                self._uses[ref.name].append((user, ref))
        for let in reversed(term.lets):  # consumers first
            if let.name not in stored and self._is_producer(let):
                self.producers.add(let.name)
        self.groups: list[Group] = []
        for let in term.lets:
            if let.name not in self.producers:
                self._join(let)
        self.groups = self._ordered()
        self._place_outputs()

    # producers

    def _is_producer(self, let: Let) -> bool:
        if not is_contraction(let) or self._linked_over_own_axis(let) or self._moves(let):
            return False
        feeds_stream = False
        for user, ref in self._uses[let.name]:
            if isinstance(user, Out):
                if not self._streamed_with(let, user, ref):
                    return False
            elif user.name in self.producers:
                if not set(ref.axes) <= set(user.axes):
                    return False
                feeds_stream = True
            elif len(stream_of(user)) == 1 and stream_of(user)[0] in ref.axes and self._repeats_nothing(user, ref):
                feeds_stream = True
            else:
                return False
        return feeds_stream

    def _linked_over_own_axis(self, let: Let) -> bool:
        """True when the summand needs an earlier reduction over the same axis, other than as a factor that the sum can
        leave outside: then the two belong to one cascade."""
        bound = set(stream_of(let))
        inside = [f for f in factors(body_of(let)) if bound & free_axes(f)]
        needed = {r for f in inside for r in references(f)}
        return any(set(stream_of(self.lets[r.name])) == bound and not bound & set(r.axes) for r in needed)

    def _moves(self, let: Let) -> bool:
        """True when what is reduced reads results over an axis that is kept, other than as a factor that a product can
        leave outside: in a loop over that axis they change, and the reduction cannot be moved along with them."""
        bound = set(stream_of(let))
        running = [r for r in references(body_of(let)) if set(stream_of(self.lets[r.name])) & set(let.axes)]
        return any(bound & set(r.axes) for r in running) or (bool(running) and not is_product(let))

    def _repeats_nothing(self, user: Let, ref: Ref) -> bool:
        """True when each element of the producer serves one step of the consumer, or a whole vector of it: axes of the
        consumer that the producer lacks must come from other factors of a sum."""
        reduce = reduce_of(user)
        missing = {*user.axes, reduce.axis} - set(ref.axes)
        if not missing:
            return True
        reading = [f for f in factors(reduce.body) if ref in references(f)]
        return reduce.monoid == "sum" and all(not missing & free_axes(f) for f in reading)

    def _streamed_with(self, let: Let, out: Out, ref: Ref) -> bool:
        """True when an output also reads a reduction that streams along an axis of the producer."""
        streams = {a for user, _ in self._uses[let.name] if isinstance(user, Let) for a in stream_of(user)}
        read = {a for r in references(out.expr) if r.name != let.name for a in stream_of(self.lets[r.name])}
        return bool(streams & read & set(ref.axes) & set(out.axes))

    def instance(self, ref: Ref) -> Let:
        """The definition of a producer at the axes of a use."""
        let = self.lets[ref.name]
        axes = tuple(dict.fromkeys(ref.axes))
        return Let(let.name, axes, rename_axes(let.expr, dict(zip(let.axes, ref.axes, strict=True))))

    def stage_references(self, e: Expr) -> frozenset[Ref]:
        """Results of stages that an expression needs, also by way of producers."""
        found: set[Ref] = set()
        for ref in references(e):
            if ref.name in self.producers:
                found |= self.stage_references(self.instance(ref).expr)
            else:
                found.add(ref)
        return frozenset(found)

    def producer_references(self, e: Expr) -> frozenset[Ref]:
        """Producers that an expression needs, also by way of others."""
        found = {r for r in references(e) if r.name in self.producers}
        for ref in tuple(found):
            found |= self.producer_references(self.instance(ref).expr)
        return frozenset(found)

    # groups

    def _join(self, let: Let) -> None:
        """Add a stage to the last group that can take it, or to a new one; groups it brings together become one."""
        self._unite(let)
        for group in reversed(self.groups):
            if self._fits(let, group):
                twins = self._twins(group)
                let = replace(let, expr=twins.of(let.expr))
                self._add_twins(group, twins, before=let.name)
                self.lets[let.name] = let
                group.stages.append(let)
                return
        self.groups.append(Group(stream_of(let), [let]))

    # twins of results that are read at other axes

    def _twins(self, group: Group) -> Twins:
        taken = {*self.lets, *(t.name for t in self.term.tensors), *(o.name for o in self.term.outs)}

        def fresh(name: str) -> str:
            while name in taken:
                name += "_"
            taken.add(name)
            return name

        return Twins({s.name: s for s in group.stages}, group.stream, group.twins, fresh)

    def _add_twins(self, group: Group, twins: Twins, before: str = "") -> None:
        """Make twins stages of their group; definitions stay in order."""
        group.twins = twins.known
        group.stages += twins.added
        order = list(self.lets.values())
        at = next((i for i, x in enumerate(order) if x.name == before), len(order))
        self.lets = {x.name: x for x in (*order[:at], *twins.added, *order[at:])}

    def _reads_results(self, e: Expr, group: Group) -> bool:
        """True when an expression reads results of a group at their own axes, or where twins can stand."""
        own = {s.name: s.axes for s in group.stages}
        other = {r for r in self.stage_references(e) if r.name in own and r.axes != own[r.name]}
        if not other <= references(e):
            return False  # by way of a producer
        try:
            self._twins(group).of(e)
        except NoTwin:
            return False
        return True

    def _unite(self, let: Let) -> None:
        """Make one group of those over the stream of a stage that it reads, where none needs another complete."""
        needed = self.stage_references(let.expr)
        feeding = [g for g in self.groups if g.stream == stream_of(let)
                   and any(r.name in g.names() and not set(g.stream) & set(r.axes) for r in needed)]
        for group in feeding[1:]:
            first = feeding[0]
            if not self._reaches(group, first) and not self._reaches(first, group):
                first.stages = sorted((*first.stages, *group.stages), key=lambda s: list(self.lets).index(s.name))
                first.twins |= group.twins
                self.groups.remove(group)

    def _fits(self, let: Let, group: Group) -> bool:
        if group.stream != stream_of(let):
            return False
        needed = self.stage_references(let.expr)
        if not self._reads_results(let.expr, group):
            return False  # another element of an earlier result: it must be complete
        others = [g for g in self.groups if g is not group and any(r.name in g.names() for r in needed)]
        return self._linked(let, group, needed) and not any(self._reaches(g, group) for g in others)

    def _linked(self, let: Let, group: Group, needed: Iterable[Ref]) -> bool:
        if any(r.name in group.names() for r in needed):
            return True
        mine = self.producer_references(let.expr)
        theirs = {r for s in group.stages for r in self.producer_references(s.expr)}
        if mine & theirs:
            return True  # computed once for both, whatever further axes each of them has
        if mine or theirs:
            return False
        if not all(set(let.axes) <= set(s.axes) or set(s.axes) <= set(let.axes) for s in group.stages):
            return False
        return any(s.axes == let.axes or _streamed_loads(s) & _streamed_loads(let) for s in group.stages)

    def _reaches(self, start: Group, goal: Group) -> bool:
        """True when `start` depends on `goal`, directly or through other groups."""
        todo, seen = [start], {id(start)}
        while todo:
            group = todo.pop()
            if group is goal:
                return True
            for g in self._dependencies(group):
                if id(g) not in seen:
                    seen.add(id(g))
                    todo.append(g)
        return False

    def _dependencies(self, group: Group) -> list[Group]:
        names = {r.name for s in group.stages for r in self.stage_references(s.expr)}
        return [g for g in self.groups if g is not group and names & g.names()]

    def _ordered(self) -> list[Group]:
        """Groups after those they depend on, otherwise in order of their first stage."""
        done: list[Group] = []
        pending = list(self.groups)
        while pending:
            ready = next(g for g in pending if all(d in done for d in self._dependencies(g)))
            pending.remove(ready)
            done.append(ready)
        return done

    # outputs

    def _place_outputs(self) -> None:
        """Put every output into the last group it needs; those that fit none into elementwise pieces at the end."""
        pieces: dict[frozenset[str], Group] = {}
        for out in self.term.outs:
            needed = self.stage_references(out.expr)
            users = [g for g in self.groups if any(r.name in g.names() for r in needed)]
            if users and _can_hold(users[-1], out) and self._reads_results(out.expr, users[-1]):
                twins = self._twins(users[-1])
                users[-1].outs.append(replace(out, expr=twins.of(out.expr)))
                self._add_twins(users[-1], twins)
            else:
                pieces.setdefault(frozenset(out.axes), Group(())).outs.append(out)
        self.groups += pieces.values()

    def misplaced_producers(self) -> frozenset[str]:
        """Producers that an output would have to recompute outside their stream."""
        return frozenset(r.name for g in self.groups for o in g.outs for r in self.producer_references(o.expr)
                         if not set(g.stream) & set(r.axes))


def _streamed_loads(let: Let) -> set[str]:
    """Tensors that a reduction reads along its own axes."""
    stream = set(stream_of(let))
    return {x.tensor for x in distinct(body_of(let)) if isinstance(x, Load) and stream & set(x.axes)}


def _can_hold(group: Group, out: Out) -> bool:
    """True when an output has no axis of its own, and holds all axes of the stream side by side or none of them."""
    own = {s.name: s.axes for s in group.stages}
    allowed = {*group.stream, *(a for s in group.stages for a in s.axes)}
    if not set(group.stream) & set(out.axes):
        lists = [x for x in distinct(out.expr) if isinstance(x, Part) and isinstance(x.body, Ref)]
        allowed |= {a for x in lists if refs(x) <= own.keys() for a in x.axes if isinstance(a, str)}
    return set(out.axes) <= allowed and (not set(group.stream) & set(out.axes) or is_run(group.stream, out.axes))
