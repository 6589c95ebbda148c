"""The cascade as the algebra sees it: arithmetic over units.

A *unit* is a subexpression the algebra does not look into: a load, a position, a producer, or anything that does not
mention earlier results or the stream length and contains a selection, a cast or a reduction over another axis
(attention scores with their mask are one unit). Where some selection does mention results, all of them are looked into.
In a skeleton a unit is `Load(name, axes)`, the stream axis is called `STREAM`, the stream length is `Size(STREAM)`, and
an earlier result is `Ref(name)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from redfuser.derivation.assumptions import Knowledge, knowledge
from redfuser.ir import (
    Cascade,
    Cast,
    Const,
    Expr,
    Load,
    New,
    Old,
    Op,
    Reduce,
    Ref,
    Size,
    Tuple,
    children,
    free_axes,
    rename_axes,
    rewrite,
    show,
    walk,
    with_children,
)
from redfuser.ir.ops import OPS
from redfuser.rules.language import STREAM

if TYPE_CHECKING:
    from redfuser.derivation.domain import Domain

_VISIBLE_KINDS = frozenset({"arith", "unary"})
_LONGEST_NAME = 24


@dataclass(frozen=True)
class Stage:
    """One reduction of the cascade in skeleton form. `crossed`: it reads a result at other axes than its own."""

    name: str
    monoid: str
    body: Expr
    axes: tuple[str, ...]
    crossed: bool = False


@dataclass
class Skeleton:
    """A cascade's stages in skeleton form, and the table that leads back.

    `state`: further names (accumulators, dependencies) that count as earlier results, with their axes. `opaque`:
    producers that are units although they read results; `look_into` replaces them by what they are. `whole`:
    expressions that are units although they are plain arithmetic of inputs. `fine`: look into selections, comparisons
    and casts as well, so that two ways of writing one expression have the same units.
    """

    cascade: Cascade
    state: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    opaque: frozenset[str] = frozenset()
    whole: frozenset[Expr] = frozenset()
    fine: bool = False
    units: dict[str, Expr] = field(default_factory=dict, init=False)
    positive: list[Expr] = field(default_factory=list, init=False)
    stages: list[Stage] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.results = {r.name: r.axes for r in self.cascade.reductions} | dict(self.state)
        self.producers = {p.name: p for p in self.cascade.producers}
        self._names: dict[Expr, str] = {}
        self._mention: dict[Expr, bool] = {}
        self._made: dict[Expr, tuple[Expr, bool]] = {}
        self._crossed = False
        self._selective = self._selects_state()
        for r in self.cascade.reductions:
            self._crossed = False
            body = self.abstract(r.body)
            self.stages.append(Stage(r.name, r.monoid, body, r.axes, self._crossed))

    @cached_property
    def known(self) -> Knowledge:
        """What the caller guarantees of units and results."""
        return knowledge(self)

    @cached_property
    def domain(self) -> Domain:
        """Where units and results may lie."""
        from redfuser.derivation.domain import Domain

        return Domain(self)

    def _selects_state(self) -> bool:
        """Whether a selection has results in it: then the algebra has to see those without, too."""
        bodies = (*(r.body for r in self.cascade.reductions), *(p.expr for p in self.cascade.producers))
        return any(isinstance(x, Op) and x.fn == "select" and self.mentions(x) for e in bodies for x in walk(e))

    def mentions(self, e: Expr) -> bool:
        """Whether an expression of the cascade reads a result or the length of the stream, which changes like one,
        directly or through producers."""
        known = self._mention.get(e)
        if known is None:
            if isinstance(e, (Old, New)) or (isinstance(e, Size) and e.axis == self.cascade.axis):
                known = True
            elif isinstance(e, Ref):
                known = e.name in self.results or (
                    e.name in self.producers and self.mentions(self.producers[e.name].expr))
            else:
                known = any(map(self.mentions, children(e)))
            self._mention[e] = known
        return known

    def abstract(self, e: Expr) -> Expr:
        """The skeleton of an expression of the cascade, made once."""
        if e not in self._made:
            outside, self._crossed = self._crossed, False
            form = self._abstracted(e)
            self._made[e] = form, self._crossed
            self._crossed = outside
        form, crossed = self._made[e]
        self._crossed |= crossed
        return form

    def _abstracted(self, e: Expr) -> Expr:
        if isinstance(e, (Const, Old, New)):
            return e
        if isinstance(e, Size) and e.axis == self.cascade.axis:
            return Size(STREAM)
        if not self.mentions(e):
            if e not in self.whole and self._visible(e):
                return with_children(e, tuple(map(self.abstract, children(e))))
            return self.unit(e)
        if isinstance(e, Ref):
            return self._ref(e)
        return with_children(e, tuple(map(self.abstract, children(e))))

    def _visible(self, e: Expr) -> bool:
        """Whether the algebra sees the parts of an expression that reads no result."""
        if isinstance(e, Tuple) or (self.fine and isinstance(e, (Op, Cast))):
            return True
        return isinstance(e, Op) and (OPS[e.fn].kind in _VISIBLE_KINDS or (self._selective and e.fn == "select"))

    def _ref(self, e: Ref) -> Expr:
        if e.name in self.opaque:
            return self.unit(e)
        if e.name in self.producers:
            p = self.producers[e.name]
            return self.abstract(rename_axes(p.expr, dict(zip(p.axes, e.axes, strict=True))))
        if e.axes == self.results[e.name]:
            return Ref(e.name, e.axes)
        self._crossed = True
        return self.unit(e)

    def unit(self, e: Expr) -> Load:
        """The unit that stands for `e`."""
        name = self._names.get(e)
        if name is None:
            name = show(e).replace('"', "'")
            number = len(self.units)
            while len(name) > _LONGEST_NAME or name in self.units:
                name, number = f"e{number}", number + 1
            self._names[e] = name
            self.units[name] = e
            if isinstance(e, Size):
                self.positive.append(self.unit(e))
        axes = sorted(free_axes(e))
        return Load(name, tuple(STREAM if a == self.cascade.axis else a for a in axes))

    def look_into(self, e: Expr) -> Expr:
        """`e` with the opaque producers replaced by their definitions."""

        def inside(x: Expr) -> Expr | None:
            unit = self.units[x.tensor] if isinstance(x, Load) else None
            if not isinstance(unit, Ref) or unit.name not in self.opaque:
                return None
            p = self.producers[unit.name]
            return self.abstract(rename_axes(p.expr, dict(zip(p.axes, unit.axes, strict=True))))

        return rewrite(e, inside)

    def concrete(self, e: Expr) -> Expr:
        """Units replaced by what they stand for."""

        def back(x: Expr) -> Expr | None:
            return self.units.get(x.tensor) if isinstance(x, Load) else None

        return rewrite(e, back)

    def readable(self, e: Expr) -> Expr:
        """`e` as a user would read it: units put back, the length of the stream under its own name."""
        axis = self.cascade.axis
        return rewrite(self.concrete(e), lambda x: Size(axis) if x == Size(STREAM) and axis else None)


def kept_axes(e: Expr) -> tuple[str, ...]:
    """The axes of a reduction of `e` over the stream."""
    return tuple(sorted(free_axes(e) - {STREAM}))


def reads_state(e: Expr) -> bool:
    """Whether an expression in skeleton form reads results, dependencies or the stream length."""
    return any(isinstance(x, (Ref, Old, New)) or x == Size(STREAM) for x in walk(e))


def maximal_free(e: Expr) -> Iterator[Expr]:
    """The maximal stream-free subexpressions that read results or the stream length: the dependencies of a body."""
    if STREAM not in free_axes(e):
        if reads_state(e):
            yield e
        return
    for child in children(e):
        yield from maximal_free(child)


def reductions_in(e: Expr) -> Iterator[Reduce]:
    """The outermost reductions over the stream."""
    if isinstance(e, Reduce) and e.axis == STREAM:
        yield e
        return
    for child in children(e):
        yield from reductions_in(child)
