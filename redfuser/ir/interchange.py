"""Sums of sums that read results of the outer stream, the other way round.

sum_n m[n] sum_d f(x[n,d], r[d]) waits for r, a result over n, in a sum over d, and that sum is stored for every n. As
sum_d sum_n m[n] f(x[n,d], r[d]), the inner reduction is one more stage of the cascade over n, and what is left to do
afterwards has the size of r. Inner reductions that read no such result are contractions, recomputed where they are
needed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from redfuser.ir.expr import Expr, Op, Reduce, Ref
from redfuser.ir.folding import COMMUTATIVE, body_of, reduce_of, references, stream_of
from redfuser.ir.term import Axis, Let, Term, base_axis
from redfuser.ir.traverse import rename_axes, substitute


def interchange(t: Term) -> Term:
    """Exchange an outer and an inner reduction wherever the inner one reads results over the outer stream.

    `t` has reductions as its only lets.
    """
    uses = Counter(r.name for e in (*(x.expr for x in t.lets), *(o.expr for o in t.outs), *t.assumptions)
                   for r in references(e))
    lets: dict[str, Let] = {}
    for let in t.lets:
        inner = _inner(let, lets)
        if inner is None or uses[inner.name] > 1 or not _waits(lets[inner.name], inner, let, lets):
            lets[let.name] = let
            continue
        first, second = _exchanged(let, inner, lets.pop(inner.name))
        lets |= {first.name: first, second.name: second}
    known = {a.name for a in t.axes}
    sizes = {base_axis(a.name): a.size for a in t.axes}
    used = dict.fromkeys(a for x in lets.values() for a in (*x.axes, *stream_of(x)) if a not in known)
    return replace(t, axes=(*t.axes, *(Axis(a, sizes[base_axis(a)]) for a in used)), lets=tuple(lets.values()))


def _inner(let: Let, lets: dict[str, Let]) -> Ref | None:
    """The reduction that another one of the same monoid reduces, as it is or (in a sum) times something.

    It has all axes of the other: each of its elements is of use for one result only.
    """
    monoid = reduce_of(let).monoid
    found = _factor(body_of(let), lets) if monoid == "sum" else body_of(let)
    if not isinstance(found, Ref) or found.name not in lets or monoid not in COMMUTATIVE:
        return None
    same = reduce_of(lets[found.name]).monoid == monoid and len(set(found.axes)) == len(found.axes)
    return found if same and {*let.axes, *stream_of(let)} <= set(found.axes) else None


def _factor(e: Expr, lets: dict[str, Let]) -> Ref | None:
    """The only sum among the factors of a product: the product is linear in it."""
    if isinstance(e, Ref):
        return e if e.name in lets and reduce_of(lets[e.name]).monoid == "sum" else None
    if not isinstance(e, Op) or e.fn not in ("mul", "div", "neg"):
        return None
    found = [f for a in (e.args[:1] if e.fn == "div" else e.args) if (f := _factor(a, lets)) is not None]
    return found[0] if len(found) == 1 else None


def _waits(inner: Let, at: Ref, outer: Let, lets: dict[str, Let]) -> bool:
    """True when the inner reduction reads results over the outer stream."""
    body = rename_axes(inner.expr, dict(zip(inner.axes, at.axes, strict=True)))
    stream = set(stream_of(outer))
    return any(r.name in lets and set(stream_of(lets[r.name])) & stream and not set(r.axes) & stream
               for r in references(body))


def _exchanged(outer: Let, at: Ref, inner: Let) -> tuple[Let, Let]:
    """The reduction over the outer stream for every position of the inner one, and the reduction of those."""
    there = Let(inner.name, at.axes, rename_axes(inner.expr, dict(zip(inner.axes, at.axes, strict=True))))
    bound, monoid = stream_of(there), reduce_of(outer).monoid
    first = substitute(body_of(outer), {at: body_of(there)})
    for axis in reversed(stream_of(outer)):
        first = Reduce(monoid, axis, first)
    second: Expr = Ref(inner.name, (*outer.axes, *bound))
    for axis in reversed(bound):
        second = Reduce(monoid, axis, second)
    return Let(inner.name, (*outer.axes, *bound), first), Let(outer.name, outer.axes, second)
