"""Partition a term into cascades: which reductions share a sweep, which are recomputed inside it, what is stored.

Every reduction of the term becomes one of two things:

producer   a contraction recomputed tile by tile inside the loop that consumes it (attention's scores). It must be a
           sum of products over different axes, every consumer must run along one of its axes, and recomputing must
           not repeat work: each element is needed for one element of the stream only.
stage      a reduction of a cascade over its own axis. Stages over one axis that are linked, and whose other operands
           do not depend on the cascade, share it. Results that other cascades need are stored as temporaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from redfuser.errors import CheckError
from redfuser.ir.dtypes import distinct, expr_dtype
from redfuser.ir.expr import (
    Expr,
    Idx,
    Load,
    Node,
    Reduce,
    Ref,
    Size,
    children,
    free_axes,
    node,
    rename_axes,
    rewrite,
    substitute,
    with_children,
)
from redfuser.ir.grouping import Group, Plan, reduce_of
from redfuser.ir.interpret import Arrays, axis_sizes, run_cascade
from redfuser.ir.term import (
    Axis,
    Cascade,
    Let,
    Out,
    Reduction,
    Tensor,
    Term,
    base_axis,
    check_cascade,
)


@node
class Partition(Node):
    """A term as cascades in execution order. `temporaries`: outputs of a cascade that are tensors of a later one."""

    term: Term
    cascades: tuple[Cascade, ...]
    temporaries: tuple[Tensor, ...]

    def __str__(self) -> str:
        stored = ", ".join(map(str, self.temporaries)) or "nothing"
        return "\n".join([f"partition {self.term.name}: stores {stored}", *map(str, self.cascades)])

    def run(self, arrays: Arrays, dtype: Any = None) -> dict[str, np.ndarray[Any, Any]]:
        """The term's outputs, cascade after cascade by their definitions (`dtype`: compute in this float type)."""
        known: dict[str, Any] = dict(arrays)
        sizes = axis_sizes(self.term.tensors, arrays, {a.name: a.size for a in self.term.axes})
        for c in self.cascades:
            results = run_cascade(c, known, dtype, sizes)
            known |= {o.name: results[o.name] for o in c.outs}
        return {o.name: known[o.name] for o in self.term.outs}


def partition(term: Term) -> Partition:
    """The cascades of a term. Its outputs are theirs; `Partition.run` equals `run_term`."""
    term = inline_elementwise(term)
    stored: frozenset[str] = frozenset()
    while True:
        plan = Plan(term, stored)
        misplaced = plan.misplaced_producers()
        if not misplaced:
            break
        stored |= misplaced  # an output cannot recompute them where it is placed: store them instead
    result = _build(plan)
    check_partition(result)
    return result


def inline_elementwise(t: Term) -> Term:
    """The term with lets that are not reductions substituted into their uses."""
    bodies: dict[str, Let] = {}

    def inline(e: Expr) -> Expr | None:
        if isinstance(e, Ref) and e.name in bodies:
            return rename_axes(bodies[e.name].expr, dict(zip(bodies[e.name].axes, e.axes, strict=True)))
        return None

    lets: list[Let] = []
    for let in t.lets:
        let = Let(let.name, let.axes, rewrite(let.expr, inline))
        if isinstance(let.expr, Reduce):
            lets.append(let)
        else:
            bodies[let.name] = let
    outs = tuple(Out(o.name, o.axes, rewrite(o.expr, inline), o.dtype) for o in t.outs)
    return Term(t.name, t.axes, t.tensors, tuple(lets), outs)


# ---- cascades from the plan

def _build(plan: Plan) -> Partition:
    term = plan.term
    known = {t.name: t.dtype for t in term.tensors}
    for let in term.lets:
        known[let.name] = expr_dtype(let.expr, known)
    home = {s.name: g for g in plan.groups for s in g.stages}
    stored = _stored_results(plan, home)
    temporaries: dict[str, Tensor] = {}
    taken = {*known, *(o.name for o in term.outs)}
    for name in stored:
        let = plan.lets[name]
        stored_as = (let.axes, Ref(name, let.axes), known[name])
        out = next((o for o in home[name].outs if (o.axes, o.expr, o.dtype) == stored_as), None)
        if out is None:
            out = Out(_fresh(f"tmp_{name}", taken), *stored_as)
            home[name].outs.append(out)
        temporaries[name] = Tensor(out.name, out.axes, out.dtype)
    tensors = {t.name: t for t in (*term.tensors, *temporaries.values())}
    several = len(plan.groups) > 1
    cascades = tuple(
        _Builder(plan, group, temporaries, tensors).cascade(f"{term.name}_{i}" if several else term.name)
        for i, group in enumerate(plan.groups)
    )
    return Partition(term, cascades, tuple(temporaries.values()))


def _stored_results(plan: Plan, home: Mapping[str, Group]) -> list[str]:
    """Stages whose results another group reads, or their own group at other axes, in order."""
    read: set[str] = set()
    for group in plan.groups:
        for e in [*(s.expr for s in group.stages), *(o.expr for o in group.outs)]:
            read |= {r.name for r in plan.stage_references(e) if home[r.name] is not group}
    return [name for name in plan.lets if name in read]


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


class _Builder:
    """Builds the cascade of one group."""

    def __init__(self, plan: Plan, group: Group, temporaries: Mapping[str, Tensor],
                 tensors: Mapping[str, Tensor]) -> None:
        self.plan, self.group = plan, group
        self.temporaries, self.tensors = temporaries, tensors
        self.producers: dict[Ref, Let] = {}
        self.names = {*plan.lets, *tensors}

    def cascade(self, name: str) -> Cascade:
        """Stages, the producers they need (each at every combination of axes in use) and the outputs."""
        reductions = tuple(
            Reduction(s.name, reduce_of(s).monoid, self.counting(self.local(reduce_of(s).body)), s.axes)
            for s in self.group.stages
        )
        outs = tuple(Out(o.name, o.axes, self.local(o.expr), o.dtype) for o in self.group.outs)
        producers, reductions, outs = absorb_elementwise(tuple(self.producers.values()), reductions, outs)
        exprs = [*(p.expr for p in producers), *(r.body for r in reductions), *(o.expr for o in outs)]
        read = {x.tensor for e in exprs for x in distinct(e) if isinstance(x, Load)}
        tensors = tuple(t for t in self.tensors.values() if t.name in read)
        axes = self._axes(tensors, exprs, [*(p.axes for p in producers), *(r.axes for r in reductions),
                                           *(o.axes for o in outs)])
        return Cascade(name, self.group.axis, axes, tensors, producers, reductions, outs)

    def local(self, e: Expr) -> Expr:
        """The expression inside this cascade: foreign results are loads, producers are at the axes of their use."""
        own = self.group.names()

        def replace(x: Expr) -> Expr | None:
            if isinstance(x, Size) and self.group.axis is not None and base_axis(self.group.axis) == base_axis(x.axis):
                return Size(self.group.axis)
            if not isinstance(x, Ref) or x.name in own:
                return None
            if x.name in self.plan.producers:
                return self._produced(x)
            return Load(self.temporaries[x.name].name, x.axes)

        return rewrite(e, replace)

    def counting(self, e: Expr) -> Expr:
        """The body of a stage with its two kinds of stream length kept apart.

        Within a dependency (free of the stream, reading results of this cascade) the length belongs to those results:
        it is the number of elements they have seen, `Size(stream)`. Elsewhere it is a finished number, known before
        the loop: `Size` of the primed axis. A final mean S / n that counted along would start far too large.
        """
        stream = self.group.axis
        assert stream is not None
        own = self.group.names()

        def go(x: Expr) -> Expr:
            if x == Size(stream):
                return Size(stream + "'")
            if stream not in free_axes(x) and any(isinstance(r, Ref) and r.name in own for r in distinct(x)):
                return x
            return with_children(x, tuple(map(go, children(x))))

        return go(e)

    def _produced(self, ref: Ref) -> Ref:
        if ref not in self.producers:
            let = self.plan.instance(ref)
            local = self.local(let.expr)  # may add producers that this one reads: they come first
            canonical = let.axes == self.plan.lets[ref.name].axes
            name = ref.name if canonical else _fresh(f"{ref.name}_at_{'_'.join(map(base_axis, let.axes))}", self.names)
            self.producers[ref] = Let(name, let.axes, local)
        found = self.producers[ref]
        return Ref(found.name, found.axes)

    def _axes(self, tensors: Iterable[Tensor], exprs: Iterable[Expr],
              named: Iterable[tuple[str, ...]]) -> tuple[Axis, ...]:
        """The axes in use: those of the term in its order, then primed copies made here."""
        used = {a for t in tensors for a in t.axes} | {a for axes in named for a in axes}
        used |= {x.axis for e in exprs for x in distinct(e) if isinstance(x, (Reduce, Idx, Size))}
        used |= {self.group.axis} if self.group.axis is not None else set()
        size = {base_axis(a.name): a.size for a in self.plan.term.axes}
        order = [a.name for a in self.plan.term.axes if a.name in used]
        order += sorted(used - set(order))
        return tuple(Axis(a, size[base_axis(a)]) for a in order)


def absorb_elementwise(
    producers: tuple[Let, ...], reductions: tuple[Reduction, ...], outs: tuple[Out, ...]
) -> tuple[tuple[Let, ...], tuple[Reduction, ...], tuple[Out, ...]]:
    """Move what every use does to a producer (scale it, mask it) into its definition, so that it is computed once.

    Computing `s * scale` in two places may round differently in each (one of them contracted to a fused multiply-add),
    and then x - max x is not 0 at the maximum.
    """
    results = {r.name for r in reductions}
    for p in producers:
        others = [q.expr for q in producers if q is not p]
        uses = [*(r.body for r in reductions), *(o.expr for o in outs)]
        images = {image for e in uses for image in _images(e, p, results)}
        if len(images) != 1 or any(x.name == p.name for e in others for x in distinct(e) if isinstance(x, Ref)):
            continue
        image = images.pop()
        own = Ref(p.name, p.axes)
        merged = Let(p.name, p.axes, substitute(image, {own: p.expr}))
        producers = tuple(merged if q is p else q for q in producers)
        reductions = tuple(Reduction(r.name, r.monoid, substitute(r.body, {image: own}), r.axes) for r in reductions)
        outs = tuple(Out(o.name, o.axes, substitute(o.expr, {image: own}), o.dtype) for o in outs)
    return producers, reductions, outs


def _images(e: Expr, p: Let, results: set[str]) -> Iterator[Expr]:
    """The largest subexpressions that read producer `p`, no result of the cascade, and have no axis beyond its own."""
    names = {x.name for x in distinct(e) if isinstance(x, Ref)}
    if p.name not in names:
        return
    if not names & results and free_axes(e) <= set(p.axes):
        yield e
        return
    for c in children(e):
        yield from _images(c, p, results)


def check_partition(p: Partition) -> None:
    """Raise CheckError unless every cascade is valid, reads only inputs and earlier outputs, and all outputs exist."""
    known = {t.name for t in p.term.tensors}
    for c in p.cascades:
        check_cascade(c)
        unknown = {t.name for t in c.tensors} - known
        if unknown:
            raise CheckError(f"partition {p.term.name}: {c.name} reads {sorted(unknown)} before it exists")
        known |= {o.name for o in c.outs}
    missing = {o.name for o in p.term.outs} - known
    if missing:
        raise CheckError(f"partition {p.term.name}: outputs {sorted(missing)} are computed nowhere")
