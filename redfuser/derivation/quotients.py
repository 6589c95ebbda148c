"""Write (sum B) / f of an output as the sum of B / f: then the algebra sees what cancels in the quotient.

Softmax-weighted values are often written sum(e v) / sum(e) with e = exp(s - max s). As two results, each sum depends on
the maximum; as one result, it cancels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from redfuser.ir import Cascade, Expr, Op, Reduction, Ref, children, free_axes, op, refs, substitute


def quotients_inside(cascade: Cascade) -> Cascade:
    """An equal cascade in which sums that outputs read only as (sum B) / f are sums of B / f, f free of the stream.

    They come last, for f may read any other result. Over the reals nothing changes: a sum is linear.
    """
    inner = frozenset[str]().union(*(refs(x) for x in (*(p.expr for p in cascade.producers),
                                                      *(r.body for r in cascade.reductions), *cascade.assumptions)))
    divisors = {r: f for r in cascade.reductions if r.monoid == "sum" and r.name not in inner
                and (f := _divisor(cascade, r)) is not None}
    moved = {r.name for r in divisors}
    divisors = {r: f for r, f in divisors.items() if not refs(f) & moved}
    if not divisors:
        return cascade
    table: dict[Expr, Expr] = {op("div", Ref(r.name, r.axes), f): Ref(r.name, r.axes) for r, f in divisors.items()}
    first = tuple(r for r in cascade.reductions if r not in divisors)
    last = tuple(replace(r, body=r.body / f) for r, f in divisors.items())
    outs = tuple(replace(o, expr=substitute(o.expr, table)) for o in cascade.outs)
    return replace(cascade, reductions=first + last, outs=outs)


def _divisor(cascade: Cascade, r: Reduction) -> Expr | None:
    """What every output divides the result by; None when one reads it otherwise, or they differ."""
    found = {f for o in cascade.outs for f in _uses(o.expr, r)}
    f = found.pop() if len(found) == 1 else None
    return f if f is not None and refs(f) and free_axes(f) <= set(r.axes) else None


def _uses(e: Expr, r: Reduction) -> Iterator[Expr | None]:
    """The divisor of every use of a result in an expression, None for a use that is no dividend."""
    if isinstance(e, Ref) and e.name == r.name:
        yield None
        return
    if isinstance(e, Op) and e.fn == "div" and e.args[0] == Ref(r.name, r.axes) and r.name not in refs(e.args[1]):
        yield e.args[1]
        return
    for c in children(e):
        yield from _uses(c, r)
