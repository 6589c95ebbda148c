"""Partition a term into cascades: which reductions share a sweep, which are recomputed inside it, what is stored.

Every reduction of the term becomes one of two things:

producer   a contraction recomputed tile by tile inside the loop that consumes it (attention's scores, distances). It
           must reduce elements that lie at different axes, every consumer must run along one of its axes, and
           recomputing must not repeat work: each element is needed for one element of the stream only.
stage      a reduction of a cascade over its own axis. Stages over one axis that are linked, and whose other operands
           do not depend on the cascade, share it. Results that other cascades need are stored as temporaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from redfuser.errors import CheckError
from redfuser.ir.dtypes import distinct, expr_dtype
from redfuser.ir.expr import Expr, Idx, Load, Part, Reduce, Ref, Size
from redfuser.ir.folding import body_of, fold_nested, reduce_of
from redfuser.ir.grouping import Group, Plan
from redfuser.ir.interchange import interchange
from redfuser.ir.interpret import Arrays, axis_sizes, run_cascade
from redfuser.ir.monoids import has_parts
from redfuser.ir.node import Node, node
from redfuser.ir.products import Products
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
from redfuser.ir.traverse import children, free_axes, rename_axes, rewrite, substitute, with_children


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
    term = interchange(fold_nested(inline_elementwise(term)))
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
    return Term(t.name, t.axes, t.tensors, tuple(lets), outs, tuple(rewrite(a, inline) for a in t.assumptions))


# ---- cascades from the plan

def _build(plan: Plan) -> Partition:
    term = plan.term
    known = {t.name: t.dtype for t in term.tensors}
    for let in plan.lets.values():
        known[let.name] = expr_dtype(let.expr, known)
    home = {s.name: g for g in plan.groups for s in g.stages}
    stored = _stored_results(plan, home)
    temporaries: dict[str, Tensor] = {}
    taken = {*known, *(o.name for o in term.outs)}
    for name in stored:
        for key, value in _stored_values(plan, name, home[name]):
            axes = (*plan.lets[name].axes, *(value.axes if isinstance(value, Part) else ()))
            stored_as = (tuple(a for a in axes if isinstance(a, str)), value, expr_dtype(value, known))
            out = next((o for o in home[name].outs if (o.axes, o.expr, o.dtype) == stored_as), None)
            if out is None:
                out = Out(_fresh(f"tmp_{key.replace('.', '_')}", taken), *stored_as)
                home[name].outs.append(out)
            temporaries[key] = Tensor(out.name, out.axes, out.dtype)
    tensors = {t.name: t for t in (*term.tensors, *temporaries.values())}
    several = len(plan.groups) > 1
    products = Products(term, taken)
    cascades = tuple(
        _Builder(plan, group, temporaries, tensors, products).cascade(f"{term.name}_{i}" if several else term.name)
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


def _stored_values(plan: Plan, name: str, home: Group) -> Iterator[tuple[str, Expr]]:
    """What of a result other groups read, with its key: the value, or each of its parts. A sorted list is stored as a
    whole when it is read along an axis, else its places are stored by themselves."""
    own = Ref(name, plan.lets[name].axes)
    if not has_parts(reduce_of(plan.lets[name]).monoid):
        yield name, own
        return
    definitions: tuple[Let | Out, ...] = (*plan.lets.values(), *plan.term.outs)
    readers = [x.expr for x in definitions if x not in home.stages and x not in home.outs]
    found = {x for e in readers for x in distinct(e) if isinstance(x, Part) and isinstance(x.body, Ref)
             and x.body.name == name}
    for part in sorted({x.part for x in found}):
        places = sorted({x.axes for x in found if x.part == part}, key=str)
        along = next((p for p in places if p and isinstance(p[0], str)), None)
        for place in (places if along is None else [along]):
            value = Part(part, place, own)
            yield _part_key(value), value


def _part_key(e: Part) -> str:
    """The key of a stored part: `name.part`, with the number of the place when it is stored alone."""
    assert isinstance(e.body, Ref)
    return ".".join((e.body.name, e.part, *(str(a) for a in e.axes if isinstance(a, int))))


def _fresh(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


class _Builder:
    """Builds the cascade of one group."""

    def __init__(self, plan: Plan, group: Group, temporaries: Mapping[str, Tensor],
                 tensors: Mapping[str, Tensor], products: Products) -> None:
        self.plan, self.group = plan, group
        self.temporaries, self.tensors = temporaries, tensors
        self.flat = products.flattening(group.stream)
        self.axis = self.flat.axis
        self.producers: dict[Ref, Let] = {}
        self.names = {*plan.lets, *tensors}

    def cascade(self, name: str) -> Cascade:
        """Stages, the producers they need (each at every combination of axes in use) and the outputs."""
        reductions = tuple(
            Reduction(s.name, reduce_of(s).monoid, self.counting(self.local(body_of(s))), s.axes)
            for s in self.group.stages
        )
        outs = tuple(Out(o.name, self.flat.merged(o.axes), self.local(o.expr), o.dtype) for o in self.group.outs)
        assumptions = tuple(self.assumptions())
        producers, reductions, outs, assumptions = absorb_elementwise(tuple(self.producers.values()), reductions, outs,
                                                                      assumptions)
        exprs = [*(p.expr for p in producers), *(r.body for r in reductions), *(o.expr for o in outs)]
        read = {x.tensor for e in exprs for x in distinct(e) if isinstance(x, Load)}
        tensors = tuple(t for t in (*self.tensors.values(), *self.flat.views(self.tensors)) if t.name in read)
        axes = self._axes(tensors, exprs, [*(p.axes for p in producers), *(r.axes for r in reductions),
                                           *(o.axes for o in outs)])
        read |= {a.name for a in axes}
        assumptions = tuple(a for a in assumptions if _leaf_names(a) <= read)
        return Cascade(name, self.axis, axes, tensors, producers, reductions, outs, assumptions)

    def assumptions(self) -> Iterator[Expr]:
        """What the term assumes of values this cascade has, each producer at the axes it is used with."""
        for a in self.plan.term.assumptions if self.axis is not None else ():
            produced = [x for x in distinct(a) if isinstance(x, Ref) and x.name in self.plan.producers]
            forms = [a]
            if len({x.name for x in produced}) == 1:
                forms = [rename_axes(a, dict(zip(produced[0].axes, use.axes, strict=True)))
                         for use in self.producers
                         if use.name == produced[0].name and len(set(use.axes)) == len(use.axes)]
            for form in forms:
                known = {*self.group.names(), *(key.partition(".")[0] for key in self.temporaries)}
                if all(x in self.producers or x.name in known for x in distinct(form) if isinstance(x, Ref)):
                    yield self.counting(self.local(form))

    def local(self, e: Expr) -> Expr:
        """The expression inside this cascade: foreign results are loads, producers are at the axes of their use."""
        own = self.group.names()

        def stored_part(x: Part) -> Load | None:
            if not isinstance(x.body, Ref) or x.body.name in own:
                return None
            whole = self.temporaries.get(f"{x.body.name}.{x.part}")
            if whole is not None:
                return Load(whole.name, (*x.body.axes, *x.axes))
            return Load(self.temporaries[_part_key(x)].name, x.body.axes)

        def replace(x: Expr) -> Expr | None:
            if isinstance(x, Size) and self.axis is not None and base_axis(self.axis) == base_axis(x.axis):
                return Size(self.axis)
            if isinstance(x, Ref) and x.name in self.plan.producers:
                return self._produced(x)
            if isinstance(x, Ref) and x.name not in own:
                x = Load(self.temporaries[x.name].name, x.axes)
            flat = self.flat.leaf(x)
            return x if flat is None else flat

        loads = {x: stored_part(x) for x in distinct(e) if isinstance(x, Part)}
        parts: dict[Expr, Expr] = {x: load for x, load in loads.items() if load is not None}
        return rewrite(substitute(e, parts) if parts else e, replace)

    def counting(self, e: Expr) -> Expr:
        """The body of a stage with its two kinds of stream length kept apart.

        Within a dependency (free of the stream, reading results of this cascade) the length belongs to those results:
        it is the number of elements they have seen, `Size(stream)`. Elsewhere it is a finished number, known before
        the loop: `Size` of the primed axis. A final mean S / n that counted along would start far too large.
        """
        stream = self.axis
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
        used |= {a for e in exprs for x in distinct(e) if isinstance(x, Part) for a in x.axes if isinstance(a, str)}
        used |= {self.axis} if self.axis is not None else set()
        known = {base_axis(a.name): a for a in (*self.plan.term.axes, *self.flat.product())}
        order = [a for a in (*(x.name for x in self.plan.term.axes), self.axis) if a in used]
        order += sorted(used - set(order))
        return tuple(Axis(a, known[base_axis(a)].size, known[base_axis(a)].parts) for a in dict.fromkeys(order))


def _leaf_names(e: Expr) -> frozenset[str]:
    """Tensors an expression reads and axes it mentions."""
    tensors = {x.tensor for x in distinct(e) if isinstance(x, Load)}
    return free_axes(e) | tensors | {x.axis for x in distinct(e) if isinstance(x, (Idx, Size, Reduce))}


def absorb_elementwise(
    producers: tuple[Let, ...], reductions: tuple[Reduction, ...], outs: tuple[Out, ...],
    assumptions: tuple[Expr, ...] = (),
) -> tuple[tuple[Let, ...], tuple[Reduction, ...], tuple[Out, ...], tuple[Expr, ...]]:
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
        assumptions = tuple(substitute(a, {image: own, own: p.expr}) for a in assumptions)
    return producers, reductions, outs, assumptions


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
        unknown = {t.name if t.view is None else t.view.source for t in c.tensors} - known
        if unknown:
            raise CheckError(f"partition {p.term.name}: {c.name} reads {sorted(unknown)} before it exists")
        known |= {o.name for o in c.outs}
    missing = {o.name for o in p.term.outs} - known
    if missing:
        raise CheckError(f"partition {p.term.name}: outputs {sorted(missing)} are computed nowhere")
