"""Lower the conditions of a trace: comparisons of elements and results, without any work of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from redfuser.frontend.graph import Trace
from redfuser.ir import Expr, Let, Op, Reduce, Ref, comparisons, free_axes, refs, rename_axes

Element = Callable[[int, tuple[str | int | None, ...]], Expr]

_EXTREMES = {("max", "le"), ("max", "lt"), ("min", "ge"), ("min", "gt")}
_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def assumed(element: Element, trace: Trace, lets: Sequence[Let], live: set[str]) -> Iterator[Expr]:
    """The comparisons the caller guarantees, each for every element along its free axes.

    `lets`: all definitions, those included that only conditions ask for; `live`: names of those that outputs need. A
    bound on a maximum is a bound on every element, and then holds for every part of the stream; any other comparison
    of a result that no output needs is left out, for nothing is computed on behalf of a condition.
    """
    for position in trace.assumptions:
        condition = element(position, _index(trace, position))
        for c in comparisons(condition):
            definitions = {x.name: x for x in lets}
            found = _of_elements(c, definitions)
            if refs(found) <= live and found.args[0] != found.args[1]:
                yield found


def _index(trace: Trace, position: int) -> tuple[str | int | None, ...]:
    from redfuser.frontend.lower import canonical

    return canonical(trace.nodes[position].shape)


def _of_elements(c: Expr, definitions: dict[str, Let]) -> Op:
    """`max(e) <= b` as `e <= b`, `min(e) >= b` as `e >= b`, from either side."""
    assert isinstance(c, Op)
    a, b = c.args
    for fn, x, y in ((c.fn, a, b), (_TURNED[c.fn], b, a)):
        reduce = definitions[x.name].expr if isinstance(x, Ref) else None
        if not isinstance(x, Ref) or not isinstance(reduce, Reduce) or (reduce.monoid, fn) not in _EXTREMES:
            continue
        if reduce.axis in free_axes(y) | set(x.axes):
            continue
        body = rename_axes(reduce.body, dict(zip(definitions[x.name].axes, x.axes, strict=True)))
        return _of_elements(Op(fn, (body, y)), definitions)
    return c
