"""Reductions of reductions as one: max_a(max_b(x)) is the maximum over all (a, b), one stream for one cascade."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from redfuser.ir.dtypes import distinct
from redfuser.ir.expr import Expr, Load, Op, Reduce, Ref, op
from redfuser.ir.term import Let, Term
from redfuser.ir.traverse import children, free_axes, rename_axes, rewrite

COMMUTATIVE = frozenset({"sum", "prod", "max", "min", "any", "all"})
NUMBERS = frozenset({"sum", "prod", "max", "min"})
Stream = frozenset[str]


def reduce_of(let: Let) -> Reduce:
    """The (outermost) reduction of a let."""
    assert isinstance(let.expr, Reduce)
    return let.expr


def stream_of(let: Let) -> tuple[str, ...]:
    """The axes a let reduces over, the outermost first."""
    e, axes = let.expr, []
    while isinstance(e, Reduce):
        axes.append(e.axis)
        e = e.body
    return tuple(axes)


def body_of(let: Let) -> Expr:
    """What a let reduces."""
    e = let.expr
    while isinstance(e, Reduce):
        e = e.body
    return e


def factors(e: Expr) -> Iterator[Expr]:
    """The operands of a product (quotients count as products with the reciprocal; signs are dropped)."""
    if isinstance(e, Op) and e.fn in ("mul", "div", "neg"):
        for a in e.args:
            yield from factors(a)
    else:
        yield e


def is_contraction(let: Let) -> bool:
    """True for a matrix product, and for a reduction over one axis of other elements that lie at different axes (a
    distance).

    Its results outnumber the elements of each operand, so that they are better made again than kept. A reduction of
    elements that all have the same axes is smaller than what it reads: it is kept.
    """
    if len(stream_of(let)) != 1 or reduce_of(let).monoid not in NUMBERS:
        return is_product(let)
    [bound] = stream_of(let)
    axes = {free_axes(x) for x in distinct(body_of(let)) if isinstance(x, (Load, Ref)) and bound in free_axes(x)}
    return len(axes) > 1 or is_product(let)


def is_product(let: Let) -> bool:
    """True for a sum, over the bound axes, of a product whose factors have different axes: a matrix product."""
    if not isinstance(let.expr, Reduce) or let.expr.monoid != "sum":
        return False
    bound = set(stream_of(let))
    axes = {free_axes(f) for f in factors(body_of(let)) if bound & free_axes(f)}
    return len(axes) > 1


def references(e: Expr) -> frozenset[Ref]:
    """The definitions an expression reads, each at the axes of its use. Remembered by every node."""
    found: frozenset[Ref] | None = e.__dict__.get("_references")
    if found is None:
        found = frozenset((e,)) if isinstance(e, Ref) else frozenset[Ref]().union(*map(references, children(e)))
        object.__setattr__(e, "_references", found)
    return found


def fold_nested(t: Term) -> Term:
    """Put a reduction that only another reduction of the same monoid reads into that one, where it saves a sweep.

    `t` has reductions as its only lets. See `_Sweeps` for the cases in which the two are better left apart.
    """
    lets = {x.name: x for x in t.lets}
    operands = ((x, _operand(x)) for x in t.lets)
    if not any(o is not None and reduce_of(lets[o.ref.name]).monoid == reduce_of(x).monoid for x, o in operands):
        return t
    widest = _fold(t, lambda folded, lets: not _has_mates(folded, lets))
    sweeps = _Sweeps(widest)
    return _fold(t, sweeps.accepts) if sweeps.several else t


class _Sweeps:
    """Which streams over several axes are worth it, judged on a term folded wherever it can be.

    Where reductions over the same axes depend on each other, one stream makes them one cascade. Operands that lack
    some of its axes are repeated along them then, so that one with all axes has to be there; and matrix products that
    it reads are stored. A reduction that nothing depends on gains little: it is folded where that costs nothing.
    """

    def __init__(self, folded: Term) -> None:
        lets = {x.name: x for x in folded.lets}
        streams: dict[Stream, list[Let]] = {}
        for x in folded.lets:
            if len(stream_of(x)) > 1:
                streams.setdefault(frozenset(stream_of(x)), []).append(x)
        self.several = bool(streams)
        self.chained = [s for s, own in streams.items() if any(map(_vary_together, own))
                        and any(frozenset(stream_of(lets[r.name])) == s for x in own for r in references(body_of(x)))]

    def accepts(self, folded: Let, lets: dict[str, Let]) -> bool:
        """Whether a folded let is better than two."""
        if _has_mates(folded, lets):
            return False
        if any(frozenset(stream_of(folded)) <= s for s in self.chained):
            return True
        products = any(is_contraction(lets[r.name]) for r in references(body_of(folded)) if r.name in lets)
        return not products and _vary_together(folded) and _side_by_side(folded)


def _has_mates(folded: Let, lets: dict[str, Let]) -> bool:
    """True when it reads a reduction over a part of its stream: left apart, the two may share a sweep."""
    stream = set(stream_of(folded))
    return any(r.name in lets and set(stream_of(lets[r.name])) < stream for r in references(body_of(folded)))


def _vary_together(let: Let) -> bool:
    """True when every operand that varies along the stream is repeated only as often as another one varies."""
    stream = set(stream_of(let))
    operands = [{a for a in x.axes if isinstance(a, str)} for x in distinct(body_of(let)) if isinstance(x, (Load, Ref))]
    return all(any(axes | stream <= full for full in operands) for axes in operands if axes & stream)


def _side_by_side(let: Let) -> bool:
    """True when an operand has the axes of the stream next to each other, in this order."""
    stream = stream_of(let)
    found = [x.axes for x in distinct(body_of(let)) if isinstance(x, (Load, Ref)) and set(stream) & set(x.axes)]
    return all(is_run(tuple(a for a in stream if a in axes), axes) for axes in found)


def is_run(part: tuple[str, ...], whole: tuple[str | int, ...]) -> bool:
    """Whether `part` occurs in `whole` in one piece."""
    return any(whole[i : i + len(part)] == part for i in range(len(whole) - len(part) + 1))


# ---- folding where it is accepted

@dataclass(frozen=True)
class _Scaled:
    """`ref` times `factor`, over `divisor` (None: 1); both are the same for all elements."""

    ref: Ref
    factor: Expr | None = None
    divisor: Expr | None = None

    def of(self, e: Expr) -> Expr:
        """Another expression scaled alike."""
        e = e if self.factor is None else op("mul", e, self.factor)
        return e if self.divisor is None else op("div", e, self.divisor)


def _fold(t: Term, accepts: Callable[[Let, dict[str, Let]], bool]) -> Term:
    read: list[Expr] = [*(x.expr for x in t.lets), *(o.expr for o in t.outs), *t.assumptions]
    uses = Counter(r.name for e in read for r in references(e))
    order = [a.name for a in t.axes]
    lets: dict[str, Let] = {}
    scales: dict[str, _Scaled] = {}

    def scaled(e: Expr) -> Expr | None:
        return scales[e.name].of(e) if isinstance(e, Ref) and e.name in scales else None

    for original in t.lets:
        let = replace(original, expr=rewrite(original.expr, scaled))
        inner = _operand(let)
        folded = None if inner is None or uses[inner.ref.name] > 1 else _folded(let, lets[inner.ref.name], inner, order)
        if inner is None or folded is None or not accepts(folded, lets):
            lets[let.name] = let
            continue
        del lets[inner.ref.name]
        lets[let.name] = folded
        if inner != _Scaled(inner.ref):
            scales[let.name] = inner
    outs = tuple(replace(o, expr=rewrite(o.expr, scaled)) for o in t.outs)
    assumptions = tuple(rewrite(a, scaled) for a in t.assumptions)
    return replace(t, lets=tuple(lets.values()), outs=outs, assumptions=assumptions)


def _operand(let: Let) -> _Scaled | None:
    """The reduction whose elements another reduces; sums may scale it by what is the same for all of them."""
    outer = reduce_of(let)
    found = _peeled(outer.body) if outer.monoid == "sum" or isinstance(outer.body, Ref) else None
    return found if found is not None and len(set(found.ref.axes)) == len(found.ref.axes) else None


def _peeled(e: Expr) -> _Scaled | None:
    """A reference times and over expressions that have no axes and read no definitions."""
    if isinstance(e, Ref):
        return _Scaled(e)
    if not isinstance(e, Op) or e.fn not in ("mul", "div"):
        return None
    a, b = e.args
    if e.fn == "mul" and _is_fixed(a):
        a, b = b, a
    inner = _peeled(a) if _is_fixed(b) else None
    if inner is None:
        return None
    if e.fn == "mul":
        return replace(inner, factor=_times(inner.factor, b))
    return replace(inner, divisor=_times(inner.divisor, b))


def _is_fixed(e: Expr) -> bool:
    return not free_axes(e) and not references(e)


def _times(a: Expr | None, b: Expr) -> Expr:
    return b if a is None else op("mul", a, b)


def _folded(let: Let, inner: Let, operand: _Scaled, order: Iterable[str]) -> Let | None:
    outer = reduce_of(let)
    if reduce_of(inner).monoid != outer.monoid or outer.monoid not in COMMUTATIVE:
        return None
    nested = rename_axes(inner.expr, dict(zip(inner.axes, operand.ref.axes, strict=True)))
    return _in_order(Let(let.name, let.axes, Reduce(outer.monoid, outer.axis, nested)), list(order))


def _in_order(let: Let, order: list[str]) -> Let:
    """The let with its stream in the order of the term's axes, so that equal streams are written alike."""
    e, monoid = body_of(let), reduce_of(let).monoid
    for axis in sorted(stream_of(let), key=order.index, reverse=True):
        e = Reduce(monoid, axis, e)
    return Let(let.name, let.axes, e)
