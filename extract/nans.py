"""Extremes that need not be NaN where an element is: a NaN reaches every output that reads them all the same.

log(sum exp(x - m)) + m is NaN through the sum if an x is, whatever m is then: to look for NaN in the sweep that finds m
would be wasted. Nothing but the order of operations is used: a sum is NaN where one of its terms is, and a term where
the element of the extreme is that it computes with. An output of which that is not certain keeps the extreme exact.
"""

from __future__ import annotations

from redfuser.derivation.fusion import Accumulator
from redfuser.extract.flatten import Flat
from redfuser.ir import Cast, Expr, New, Old, Op, Out, Ref, Var, free_axes, refs, substitute, walk
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.ops import BELOW

KEEPING = frozenset(
    {"add", "sub", "mul", "div", "max", "min", "neg", "abs", "sqrt", "exp", "exp2", *BELOW.values(), "log", "log2"}
)
"""Operations that are NaN where an operand is."""
HERE = Var("element")


def loose_extremes(flat: Flat) -> frozenset[str]:
    """Accumulators that may be any number where an element is NaN."""
    extremes = [a for a in flat.accumulators if a.monoid in ("max", "min") and flat.stream in free_axes(a.body)]
    return frozenset(a.name for a in extremes if all(_shows(a, o, flat) for o in flat.outs if a.name in _read(o, flat)))


def _read(o: Out, flat: Flat) -> set[str]:
    """Accumulators and dependencies an output is computed from."""
    found, todo = set[str](), set(refs(o.expr))
    corrections = dict(flat.corrections)
    while todo:
        name = todo.pop()
        found.add(name)
        definition = flat.accumulator(name) or flat.dependency(name)
        assert definition is not None
        todo |= refs(definition.body if isinstance(definition, Accumulator) else definition.expr) - found
        if name in corrections:
            todo |= {x.name for x in walk(corrections[name]) if isinstance(x, (Old, New))} - found
    return found


def _shows(a: Accumulator, o: Out, flat: Flat) -> bool:
    """Is the output NaN where an element of `a` is, by way of another sum over the same elements?"""
    if numpy_dtype(o.dtype).kind in "biu":
        return False
    sums = [s for s in flat.accumulators if s.monoid == "sum" and s.axes == a.axes and _is_term(s.body, a.body)]
    return any(_keeps(o.expr, Ref(s.name, s.axes), flat) for s in sums)


def _is_term(term: Expr, element: Expr) -> bool:
    """Is `term` NaN wherever `element` is? Masks that the extreme lacks may leave it out of the sum, and a quotient by
    running state reads 0 where that is 0."""
    rest = substitute(term, {element: HERE})
    left_out = any(isinstance(x, Op) and (x.fn == "select" or (x.fn == "div" and refs(x.args[1]))) for x in walk(rest))
    return not left_out and _keeps(rest, HERE, None)


def _keeps(e: Expr, source: Expr, flat: Flat | None) -> bool:
    """Is `e` NaN where `source` is? `flat` gives the meaning of dependencies."""
    if e == source:
        return True
    if isinstance(e, Cast):
        return numpy_dtype(e.dtype).kind not in "biu" and _keeps(e.body, source, flat)
    if isinstance(e, Op):
        return e.fn in KEEPING and any(_keeps(x, source, flat) for x in e.args)
    known = flat.dependency(e.name) if flat is not None and isinstance(e, Ref) else None
    return known is not None and _keeps(known.expr, source, flat)
