"""What the caller guarantees (`rf.assume`), as facts for the algebra.

Two kinds, kept apart. A condition on elements (x > 0, |s| <= 30, x <= y) holds for each of them, so what follows for
results holds for every non-empty prefix of the stream: sum x > 0, max s <= 30. A condition on a result (sum w > 0)
holds for the finished row only: while the loop runs, the sum of the weights seen so far may be anything. It helps to
choose what the loop accumulates and what is computed afterwards, never to correct a running value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redfuser.derivation.interval import Intervals, ends
from redfuser.ir import (
    COMPARISONS,
    Const,
    Expr,
    Load,
    Op,
    Ref,
    rename_axes,
    walk,
)

if TYPE_CHECKING:
    from redfuser.derivation.skeleton import Skeleton

TAME = 60
"""Exponentials of arguments up to this magnitude, and sums of them, are ordinary float32 numbers (e^89 is not)."""
_TURNED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


@dataclass(frozen=True)
class Fact:
    """`relation(args)` in the language of the engine; the arguments are in skeleton form."""

    relation: str
    args: tuple[Expr, ...]


@dataclass(frozen=True)
class Knowledge:
    """The facts of a cascade.

    element  hold for every element and every non-empty prefix
    final    hold for the results of the finished row
    """

    element: tuple[Fact, ...] = ()
    final: tuple[Fact, ...] = ()


def knowledge(skeleton: Skeleton) -> Knowledge:
    """What the assumptions of a cascade say of its skeleton."""
    conditions = skeleton.cascade.assumptions
    bounded = any(t.dtype.startswith("uint") for t in skeleton.cascade.tensors)
    if not conditions and not bounded and not any(map(_is_extreme, _subterms(skeleton))):
        return Knowledge()
    intervals = known_intervals(skeleton)
    seen = set(_subterms(skeleton))
    stated = [f for c in element_conditions(skeleton) for f in _facts(c)
              if all(isinstance(a, Const) or a in seen for a in f.args)]  # other terms would only be in the way
    element = [*_signs(skeleton, intervals), *_tame(skeleton, intervals), *stated]
    final = [f for c in final_conditions(skeleton) for f in _facts(c)]
    return Knowledge(tuple(dict.fromkeys(element)), tuple(dict.fromkeys(final)))


def element_conditions(skeleton: Skeleton) -> list[Op]:
    """The comparisons of units that hold for every element, in skeleton form."""
    conditions = [c for c in skeleton.cascade.assumptions if not skeleton.mentions(c)]
    if not conditions:
        return []
    loads = {x for e in _concrete_bodies(skeleton) for x in walk(e) if isinstance(x, Load)}
    return [_in_skeleton(skeleton, form) for c in conditions for form in _instances(c, loads)]


def final_conditions(skeleton: Skeleton) -> list[Op]:
    """The comparisons that read results of the finished row, in skeleton form."""
    return [_in_skeleton(skeleton, c) for c in skeleton.cascade.assumptions
            if skeleton.mentions(c) and _at_own_axes(skeleton, c)]


def _in_skeleton(skeleton: Skeleton, c: Expr) -> Op:
    assert isinstance(c, Op)
    return Op(c.fn, tuple(map(skeleton.abstract, c.args)))


def known_intervals(skeleton: Skeleton) -> Intervals:
    """Intervals under the conditions on elements that compare with numbers or with bounded values."""
    intervals = Intervals(skeleton.cascade)
    conditions = [c for c in skeleton.cascade.assumptions if not skeleton.mentions(c)]
    for _ in range(2):  # x <= y and y <= 1, in either order
        for c in conditions:
            assert isinstance(c, Op)
            left, right = c.args
            for fn, a, b in ((c.fn, left, right), (_TURNED[c.fn], right, left)):
                low, high = ends(intervals(b))
                if fn in ("lt", "le", "eq"):
                    intervals.narrow(a, ends(intervals(a))[0], high)
                if fn in ("gt", "ge", "eq"):
                    intervals.narrow(a, low, ends(intervals(a))[1])
    return intervals


def _concrete_bodies(skeleton: Skeleton) -> Iterator[Expr]:
    """Bodies and producers of the cascade."""
    for r in skeleton.cascade.reductions:
        yield r.body
    for p in skeleton.cascade.producers:
        yield p.expr


def _subterms(skeleton: Skeleton) -> Iterator[Expr]:
    """Subexpressions of all stages in skeleton form, each once."""
    seen: set[Expr] = set()
    for stage in skeleton.stages:
        for e in walk(stage.body):
            if e not in seen and not isinstance(e, Const):
                seen.add(e)
                yield e


def _signs(skeleton: Skeleton, intervals: Intervals) -> Iterator[Fact]:
    """Signs that intervals decide, and the order of operands of max and min."""
    for e in _subterms(skeleton):
        if isinstance(e, Op) and (e.fn in COMPARISONS or e.fn in ("and", "or", "not")):
            continue
        low, high = ends(intervals(skeleton.readable(e)))
        if low >= 0:
            yield Fact("pos" if low > 0 else "nneg", (e,))
        if high <= 0:
            yield Fact("npos", (e,))
        if high < 0:
            yield Fact("nz", (e,))
        if isinstance(e, Op) and _is_extreme(e):
            yield from _order(skeleton, intervals, *e.args)


def _is_extreme(e: Expr) -> bool:
    return isinstance(e, Op) and e.fn in ("max", "min")


def _order(skeleton: Skeleton, intervals: Intervals, a: Expr, b: Expr) -> Iterator[Fact]:
    (a_low, a_high), (b_low, b_high) = (ends(intervals(skeleton.readable(x))) for x in (a, b))
    if a_high <= b_low:
        yield Fact("leq", (a, b))
    if b_high <= a_low:
        yield Fact("leq", (b, a))


def _tame(skeleton: Skeleton, intervals: Intervals) -> Iterator[Fact]:
    """Arguments of exponentials, and what is added in them, that are small numbers for sure."""
    for e in _subterms(skeleton):
        if isinstance(e, Op) and e.fn in ("exp", "exp2"):
            for part in walk(e.args[0]):
                if not isinstance(part, Const) and _is_tame(skeleton.readable(part), intervals, masked=True):
                    yield Fact("tame", (part,))
                    if _is_tame(skeleton.readable(part), intervals, masked=False):
                        yield Fact("tame", (-part,))


def _is_tame(e: Expr, intervals: Intervals, masked: bool) -> bool:
    """Whether e^x is an ordinary number for every value x of `e`; `masked`: or 0, for elements that are removed."""
    if isinstance(e, Const) and e.value == float("-inf"):
        return masked
    if isinstance(e, Op) and e.fn == "select":
        return all(_is_tame(x, intervals, masked) for x in e.args[1:])
    if isinstance(e, Ref) and e.name in intervals.definitions:
        return _is_tame(intervals.definitions[e.name], intervals, masked)
    if isinstance(e, Ref) and e.name in intervals.reductions:
        r = intervals.reductions[e.name]
        return r.monoid in ("max", "min") and _is_tame(r.body, intervals, masked)
    low, high = ends(intervals(e))
    return bool(low >= -TAME and high <= TAME)


def _instances(c: Expr, loads: Iterable[Load]) -> Iterator[Expr]:
    """The comparison at the axes with which the cascade reads its first tensor."""
    first = next((x for x in walk(c) if isinstance(x, Load)), None)
    if first is None:
        yield c
        return
    names = [a for a in first.axes if isinstance(a, str)]
    for x in sorted({x for x in loads if x.tensor == first.tensor}, key=str):
        if len(set(names)) == len(names) == len(x.axes) and all(isinstance(a, str) for a in x.axes):
            yield rename_axes(c, {a: str(b) for a, b in zip(names, x.axes, strict=True)})


def _at_own_axes(skeleton: Skeleton, c: Expr) -> bool:
    """Whether a condition reads results as whole values of their own row."""
    return all(x.axes == skeleton.results.get(x.name, x.axes) for x in walk(c) if isinstance(x, Ref))


def _facts(c: Op) -> Iterator[Fact]:
    """A comparison as facts about the two sides and their difference."""
    a, b = c.args
    if c.fn in ("lt", "le"):
        a, b = b, a
    if c.fn == "ne":
        yield Fact("nz", (a if _value(b) == 0 else b if _value(a) == 0 else a - b,))
        return
    yield Fact("leq", (b, a))
    if c.fn == "eq":
        yield Fact("leq", (a, b))
        return
    strict = c.fn in ("lt", "gt")
    low, high = _value(b), _value(a)
    if low is not None and low >= 0:
        yield Fact("pos" if strict or low > 0 else "nneg", (a,))
    elif high is not None and high <= 0:
        yield Fact("npos", (b,))
        if strict or high < 0:
            yield Fact("nz", (b,))
    if (low is None and high is None) or (strict and low):
        yield Fact("pos" if strict else "nneg", (a - b,))


def _value(e: Expr) -> Any:
    """The number that a literal is, None for anything else."""
    return e.value if isinstance(e, Const) and not isinstance(e.value, bool) else None
