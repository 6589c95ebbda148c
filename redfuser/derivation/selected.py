"""What moving values out of a reduction hides: whether anything is selected, and elements without a value.

The sum of where(c, (a/l)*x, 0) is a/l times the sum of where(c, x, 0) over the reals. With l = 0 and nothing selected
the definition gives 0 and the product 0 * NaN; with l = 0 and something selected the definition is undefined, and a
loop in which a/l reads 0 gives a number. So the epilogue asks whether anything was selected: of the mass l, where that
is a positive sum over what is selected, else of one more accumulator.

Extremes of x/d are those of x over d. With an infinite x and the d that it makes infinite, x/d is no number, and the
extreme of the others would hide it: such results are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TypeGuard

from redfuser.derivation.fusion import COUNT, NOTHING, Accumulator, FusedCascade
from redfuser.derivation.streaming import guarded
from redfuser.ir import (
    Cast,
    Const,
    Expr,
    New,
    Old,
    Op,
    Part,
    Reduction,
    Ref,
    Size,
    Tuple,
    children,
    free_axes,
    names_read,
    op,
    refs,
    rename_axes,
    rewrite,
    select,
    walk,
)
from redfuser.ir.names import counted, free_name
from redfuser.ir.ops import OPS


def mark_unselected(fused: FusedCascade) -> FusedCascade:
    """The fused cascade whose epilogue tells a quotient that nothing reads from one that is undefined."""
    marking = _Marking(fused)
    epilogue = tuple((name, marking.result(name, e)) for name, e in fused.epilogue)
    if epilogue == fused.epilogue:
        return fused
    first = (*fused.passes[0], *(a.name for a in marking.added))
    return replace(fused, accumulators=(*marking.added, *fused.accumulators), epilogue=epilogue,
                   passes=(first, *fused.passes[1:]))


@dataclass
class _Marking:
    """`plain`: result -> its expression over the final state; `bad`: result -> when it has no value though that has;
    `added`: further accumulators."""

    fused: FusedCascade
    plain: dict[str, Expr] = field(default_factory=dict)
    bad: dict[str, Expr] = field(default_factory=dict)
    added: list[Accumulator] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stages = {r.name: r for r in self.fused.cascade.reductions}
        self.producers = {p.name: p for p in self.fused.cascade.producers}
        self.axis = self.fused.cascade.axis
        self._counts = {a.name for a in self.fused.accumulators if a.counts}
        self._written: dict[Expr, Expr] = {}

    def result(self, name: str, e: Expr) -> Expr:
        """The marked epilogue of a result."""
        stage = self.stages[name]
        self.plain[name] = e
        if isinstance(e, Tuple):  # a position is one whatever the numbers are
            return Tuple((self._marked(stage, self._ordered(stage, e.args[0])), *e.args[1:]))
        if stage.monoid in NOTHING:
            e = self._ordered(stage, e)
        return self._marked(stage, e) if stage.monoid in _PLAIN else e

    def _ordered(self, stage: Reduction, e: Expr) -> Expr:
        """NaN where what was moved out of an order is infinite, or 0 because something is infinite: the element that
        has no value then, as x/x of an infinite x, need not be the one that was kept."""
        if isinstance(e.body if isinstance(e, Part) else e, Ref):
            return e
        sound: list[Expr] = []
        for d, shown in dict.fromkeys(self._scales(self._written_out(stage.body), True, set())):
            if not self._is_of_row(d):
                continue
            value = self._final(d)
            if isinstance(d, Ref):
                sound.append(_is_finite(value))
                continue
            read = reduce(_both, [_is_finite(self.plain[n]) for n in sorted(refs(d)) if n in self.stages])
            sound.append(_is_finite(value) if shown else _either(_is_finite(value), read))
            sound.append(_either(op("ne", value, 0), read))
        if not sound:
            return e
        wrong = op("and", op("not", reduce(_both, dict.fromkeys(sound))), _is_finite(e))
        return select(wrong, Const(math.nan), e)

    def _scales(self, e: Expr, shown: bool, seen: set[tuple[Expr, bool]]) -> Iterator[tuple[Expr, bool]]:
        """The largest expressions free of the stream that read results, but for those that are added (what is infinite
        shows in the sum), those that only some elements read, and results that bound an element; and whether an
        infinite one leaves no element finite: a minimum passes over it. `seen`: where they were looked for."""
        if (e, shown) in seen:
            return
        seen.add((e, shown))
        fn = e.fn if isinstance(e, Op) else ""
        bounds = fn in ("max", "min")
        for i, x in enumerate(children(e)[:1] if fn == "select" else children(e)):
            shows = shown and (fn in _SHOWING or (fn == "div" and i == 0))
            if self.axis in free_axes(x):
                yield from self._scales(x, shows, seen)
            elif self._mentions(x) and fn not in ("add", "sub") and not (bounds and isinstance(x, Ref)):
                yield x, shows

    def _marked(self, stage: Reduction, e: Expr) -> Expr:
        read: dict[Expr, list[Expr]] = {}
        always: list[Expr] = []
        for q, conditions in self._quotients(self._written_out(stage.body), (), set()):
            if not self._is_of_row(q):
                return e
            if conditions:
                read.setdefault(reduce(_both, conditions), []).append(q)
            else:
                always.append(q)
        if not read or any(map(self._mentions, read)):
            return e
        found = [q for qs in read.values() for q in qs if q not in always]
        if not found:
            return e
        chosen = reduce(_either, read)
        defined = reduce(_both, dict.fromkeys(x for q in found for x in self._defined(q)))
        mass = self._mass(found, chosen)
        some = self._selected(chosen, stage) if mass is None else op("ne", mass, 0)
        harmless = guarded(e, {})
        if always:
            harmless = select(reduce(_both, dict.fromkeys(x for q in always for x in self._defined(q))), harmless, e)
        if mass is not None and all(self._is_only(q, mass) for q in found):
            return e if harmless == e else select(some, e, harmless)
        undefined = op("and", op("not", defined), some)
        self.bad[stage.name] = undefined
        if not self._reads_dependencies(e):  # then e itself has no value where a quotient has none
            return e if harmless == e else select(_either(defined, some), e, harmless)
        outside = e if harmless == e else select(defined, e, harmless)
        return select(op("and", undefined, _is_finite(harmless)), Const(math.nan), outside)

    def _defined(self, q: Expr) -> Iterator[Expr]:
        """When a quotient has a value at the end."""
        for name in sorted(refs(q)):
            if name in self.bad:
                yield op("not", self.bad[name])
        yield _is_finite(self._final(q))

    def _is_of_row(self, q: Expr) -> bool:
        """Whether a quotient reads earlier results of its own row alone."""
        return all(x.name in self.plain and self.stages[x.name].monoid in _PLAIN
                   and x.axes == self.stages[x.name].axes
                   for x in walk(q) if isinstance(x, Ref) and x.name in self.stages)

    def _reads_dependencies(self, e: Expr) -> bool:
        """Whether accumulators in `e` read a dependency: inside the loop its quotients read 0."""
        bodies = {a.name: a.body for a in self.fused.accumulators}
        dependencies = {d.name for d in self.fused.dependencies}
        return not names_read([e], bodies).isdisjoint(dependencies)

    def _written_out(self, e: Expr) -> Expr:
        """`e` with the producers replaced that read results."""

        def definition(x: Expr) -> Expr | None:
            if not isinstance(x, Ref) or x.name not in self.producers or not self._mentions(x):
                return None
            if x not in self._written:
                p = self.producers[x.name]
                self._written[x] = self._written_out(rename_axes(p.expr, dict(zip(p.axes, x.axes, strict=True))))
            return self._written[x]

        return rewrite(e, definition)

    def _mentions(self, e: Expr) -> bool:
        read = names_read([e], {name: p.expr for name, p in self.producers.items()})
        return not read.isdisjoint(self.stages)

    def _quotients(self, e: Expr, conditions: tuple[Expr, ...],
                   seen: set[tuple[Expr, tuple[Expr, ...]]]) -> Iterator[tuple[Expr, tuple[Expr, ...]]]:
        """Quotients by results that are free of the stream, and the conditions under which they are read. `seen`: where
        they were looked for."""
        if (e, conditions) in seen:
            return
        seen.add((e, conditions))
        if isinstance(e, (Old, New)) or (isinstance(e, Op) and OPS[e.fn].kind == "compare"):  # false of a NaN
            return
        if self.axis not in free_axes(e):
            if any(map(self._may_have_no_value, walk(e))):
                yield e, conditions
        elif isinstance(e, Op) and e.fn == "select":
            c, yes, no = e.args
            yield from self._quotients(c, conditions, seen)
            yield from self._quotients(yes, (*conditions, c), seen)
            yield from self._quotients(no, (*conditions, op("not", c)), seen)
        elif self._divides(e) and self.axis not in free_axes(e.args[1]):
            yield from self._quotients(e.args[0], conditions, seen)
            yield op("div", 1.0, e.args[1]), conditions
        else:
            for x in children(e):
                yield from self._quotients(x, conditions, seen)

    def _divides(self, e: Expr) -> TypeGuard[Op]:
        return isinstance(e, Op) and e.fn == "div" and self._mentions(e.args[1])

    def _may_have_no_value(self, e: Expr) -> bool:
        """Whether it divides by results, or is a result that is such a quotient at the end."""
        if isinstance(e, Ref) and e.name in self.plain:
            return any(isinstance(x, Op) and x.fn == "div" and not refs(x.args[1]) <= self._counts
                       for x in walk(self.plain[e.name]))
        return self._divides(e)

    def _final(self, q: Expr) -> Expr:
        """A quotient over the final state."""

        def final(x: Expr) -> Expr | None:
            if isinstance(x, Size) and x.axis == self.axis:
                return Ref(self._accumulator(COUNT, "sum", Const(1.0), ()))
            return self.plain[x.name] if isinstance(x, Ref) and x.name in self.stages else None

        return rewrite(q, final)

    def _mass(self, quotients: list[Expr], chosen: Expr) -> Expr | None:
        """A divisor that is 0 exactly when nothing is selected."""
        for x in (x for q in quotients for x in walk(q)):
            divisor = x.args[1] if self._divides(x) else None
            if isinstance(divisor, Ref):
                stage = self.stages.get(divisor.name)
                if stage is not None and _is_mass(stage, chosen):
                    return self.plain[stage.name]
        return None

    def _is_only(self, q: Expr, mass: Expr) -> bool:
        """Whether a quotient has a value unless its mass is 0: every divisor is that mass, everything read is sound."""
        return not refs(q) & self.bad.keys() and all(
            isinstance(x.args[1], Ref) and self.plain.get(x.args[1].name) == mass for x in walk(q) if self._divides(x))

    def _selected(self, chosen: Expr, stage: Reduction) -> Expr:
        """Whether anything is selected."""
        if self.axis not in free_axes(chosen):
            return chosen
        order = [*stage.axes, *(a.name for a in self.fused.cascade.axes)]
        kept = tuple(sorted(free_axes(chosen) - {self.axis}, key=order.index))
        return Ref(self._accumulator("selected", "any", chosen, kept), kept)

    def _accumulator(self, stem: str, monoid: str, body: Expr, axes: tuple[str, ...]) -> str:
        """The name of an accumulator with this body, which is added where there is none."""
        first = self.fused.passes[0]
        for a in (*self.added, *(a for a in self.fused.accumulators if a.name in first)):
            if (a.monoid, a.body, a.axes) == (monoid, body, axes):
                return a.name
        taken = {*self.stages, *self.producers, *(t.name for t in self.fused.cascade.tensors),
                 *(a.name for a in (*self.fused.accumulators, *self.added)),
                 *(d.name for d in self.fused.dependencies)}
        name = free_name(counted(stem), taken)
        self.added.append(Accumulator(name, monoid, body, axes))
        return name


_SHOWING = frozenset({"add", "sub", "mul", "neg", "abs", "sqrt"})
"""Operations that are not finite where an operand is infinite."""
_PLAIN = frozenset({"sum", "prod", *NOTHING})


def _both(a: Expr, b: Expr) -> Expr:
    return op("and", a, b)


def _either(a: Expr, b: Expr) -> Expr:
    return a if a == b else op("or", a, b)


def _is_finite(e: Expr) -> Expr:
    return op("lt", op("abs", e), math.inf)


def _is_mass(stage: Reduction, chosen: Expr) -> bool:
    """Whether a sum is 0 exactly when nothing is selected: of something positive over what is."""
    e = stage.body
    if stage.monoid != "sum":
        return False
    if isinstance(e, Cast):
        return e.body == chosen
    if not isinstance(e, Op) or e.fn != "select" or e.args[0] != chosen:
        return False
    _, yes, no = e.args
    positive = (isinstance(yes, Const) and yes.value > 0) or (isinstance(yes, Op) and yes.fn == "exp")
    return positive and isinstance(no, Const) and no.value == 0
