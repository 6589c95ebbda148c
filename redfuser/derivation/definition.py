"""Write a cascade as equations: axes, tensors, reductions by name. See `redfuser.derivation.math_level`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from redfuser.derivation.fusion import COUNT
from redfuser.derivation.monoid import UserMonoid
from redfuser.errors import ArgumentError, ShapeError, TraceError
from redfuser.ir import (
    MONOIDS,
    Axis,
    Expr,
    Load,
    Part,
    Reduction,
    Ref,
    Size,
    Tensor,
    Tuple,
    check_cascade,
    comparisons,
    computed,
    free_axes,
    walk,
    wrap,
)
from redfuser.ir import Cascade as CascadeNode
from redfuser.ir.monoids import INDEX, VALUE, list_monoid
from redfuser.ir.ops import PIVOT


def axes(names: str) -> Any:
    """Axes by name: `n, d = axes("n d")`; a single name gives a single axis.

    Raises
    ------
    ShapeError
        when a name is repeated or is not an identifier.
    ArgumentError
        when `names` is not text.
    """
    if not isinstance(names, str):
        raise ArgumentError(f"argument 'names' is {names!r}; give a text of names separated by blanks, like \"n d\"")
    words = names.replace(",", " ").split()
    if not words or len(set(words)) < len(words) or not all(w.isidentifier() for w in words):
        raise ShapeError(f"argument 'names' is {names!r}; give different names separated by blanks, like \"n d\"")
    first, *others = map(Axis, words)
    return (first, *others) if others else first


def tensor(name: str, *where: Axis) -> Load:
    """An input array with the given axes, in this order; a run-time scalar without any.

    Raises
    ------
    ShapeError
        when the name is no identifier.
    ArgumentError
        for axes that were not made by `axes`.
    """
    for a in where:
        if not isinstance(a, Axis):
            raise ArgumentError(f"argument 'where' of tensor {name!r} holds {a!r}; give axes: n = rf.axes('n'), "
                                f"rf.tensor({name!r}, n)")
    if not isinstance(name, str) or not name.isidentifier():
        raise ShapeError(f"argument 'name' is {name!r}; a tensor needs an identifier, it is a keyword of `update`")
    return Load(name, tuple(a.name for a in where))


class Cascade:
    """A cascade under construction: reductions over one axis, in order; a later one may use earlier ones.

    Parameters
    ----------
    name
        used in messages and names of kernels.
    axis
        the stream axis all reductions run over.

    Raises
    ------
    ArgumentError
        for an axis that was not made by `axes`.
    """

    def __init__(self, name: str, *, axis: Axis) -> None:
        if not isinstance(axis, Axis):
            raise ArgumentError(f"argument 'axis' of cascade {name!r} is {axis!r}; give an axis: n = rf.axes('n')")
        self.name = name
        self.axis = axis
        self._reductions: list[Reduction] = []
        self._assumptions: list[Expr] = []

    @property
    def size(self) -> Size:
        """The length of the stream axis."""
        return Size(self.axis.name)

    def reduce(self, monoid: str | UserMonoid, name: str, body: Any) -> Any:
        """The reduction of `body` by a monoid of `redfuser.ir.MONOIDS` or one made by `rf.monoid`.

        Returns its value for use in later bodies. Where values of the monoid have several parts, `body` is a tuple with
        an expression for each, and so is what is returned.

        Raises
        ------
        ShapeError
            when the name is taken, `count` or no identifier, the monoid is unknown, or `body` has another number of
            parts.
        """
        if isinstance(monoid, UserMonoid):
            return self._reduce_parts(monoid, name, body)
        if monoid not in MONOIDS or monoid == PIVOT:
            known = ", ".join(m for m in MONOIDS if m != PIVOT)
            raise ShapeError(f"argument 'monoid' is {monoid!r}; known are {known}, and those made by rf.monoid")
        return self._add(monoid, name, _body(body))

    def _add(self, monoid: str, name: str, body: Expr) -> Ref:
        """A new reduction; returns its value."""
        if not name.isidentifier() or name == COUNT or any(r.name == name for r in self._reductions):
            raise ShapeError(f"argument 'name' is {name!r}; every reduction needs an identifier of its own, and "
                             f"{COUNT!r} is the number of elements seen")
        kept = tuple(a for a in _axis_order(body) if a != self.axis.name)
        self._reductions.append(Reduction(name, monoid, body, kept))
        return Ref(name, kept)

    def _reduce_parts(self, monoid: UserMonoid, name: str, body: Any) -> Any:
        bodies = tuple(map(_body, body)) if isinstance(body, (tuple, list)) else (_body(body),)
        if len(bodies) != len(monoid.parts):
            raise ShapeError(f"argument 'body' has {len(bodies)} parts, {monoid.name} reduces "
                             f"{', '.join(monoid.parts)}")
        ref = self._add(monoid.definition.name, name, bodies[0] if len(bodies) == 1 else Tuple(bodies))
        found = tuple(Part(p, (), ref) for p in monoid.parts)
        return found[0] if len(found) == 1 else found

    def argmax(self, name: str, body: Any) -> Part:
        """Position of the largest `body` on the stream: of the first one among equals, of the first NaN."""
        return Part(INDEX, (), self._add("argmax", name, _body(body)))

    def argmin(self, name: str, body: Any) -> Part:
        """Position of the smallest `body` on the stream: of the first one among equals, of the first NaN."""
        return Part(INDEX, (), self._add("argmin", name, _body(body)))

    def topk(self, name: str, body: Any, k: int, *, largest: bool = True) -> tuple[Places, Places]:
        """The k largest (or smallest) of `body` and their positions, best first, as `rf.topk` orders them.

        Returns (values, indices); `values[0]` is the best one, for use in later bodies.

        Raises
        ------
        ShapeError
            when the name is taken or no identifier, or k is below 1.
        """
        if k < 1:
            raise ShapeError(f"argument 'k' is {k}; a top-k has at least one element")
        ref = self._add(list_monoid(largest, k), name, _body(body))
        return Places(VALUE, k, ref), Places(INDEX, k, ref)

    def sum(self, name: str, body: Any) -> Ref:
        """Sum of `body` over the stream."""
        return self._add("sum", name, _body(body))

    def max(self, name: str, body: Any) -> Ref:
        """Maximum of `body` over the stream."""
        return self._add("max", name, _body(body))

    def min(self, name: str, body: Any) -> Ref:
        """Minimum of `body` over the stream."""
        return self._add("min", name, _body(body))

    def prod(self, name: str, body: Any) -> Ref:
        """Product of `body` over the stream."""
        return self._add("prod", name, _body(body))

    def assume(self, condition: Any) -> None:
        """State that a condition holds: comparisons of tensors, numbers and results, joined by `&`.

        One on tensors holds for every element, one on results for their final values. The derivation may rely on it;
        data that break it may give any result.

        Raises
        ------
        TraceError
            when the condition holds no comparison.
        """
        if isinstance(condition, bool):
            raise TraceError(f"argument 'condition' is {condition}; state comparisons, like (0 <= p) & (p <= 1); for "
                             "equality use np.equal(a, b)")
        found = tuple(comparisons(wrap(condition)))
        if not found:
            raise TraceError(f"argument 'condition' is {condition}; state comparisons, like (0 <= p) & (p <= 1)")
        self._assumptions += found

    def build(self) -> CascadeNode:
        """The cascade as a term: what the compiler works on. Tensors appear in order of first use.

        Raises
        ------
        ShapeError
            without a reduction, or when a tensor is used with different axes.
        TraceError
            when an assumption names a tensor that no reduction reads.
        """
        loads: dict[str, Load] = {}
        for r in self._reductions:
            for x in walk(r.body):
                if isinstance(x, Load) and loads.setdefault(x.tensor, x).axes != x.axes:
                    raise ShapeError(f"tensor {x.tensor} is used with axes {x.axes} and {loads[x.tensor].axes}")
        if not self._reductions:
            raise ShapeError(f"cascade {self.name} has no reduction: add one with .sum, .max, .min")
        for a in self._assumptions:
            for name in sorted(_reads(a) - set(loads)):
                raise TraceError(f"cascade {self.name} assumes {a}, but no reduction reads {name}: drop the assumption")
        names = dict.fromkeys(a for x in loads.values() for a in x.axes if isinstance(a, str))
        names.setdefault(self.axis.name)
        tensors = tuple(Tensor(x.tensor, tuple(map(str, x.axes))) for x in loads.values())
        all_axes = tuple(map(Axis, names))
        built = CascadeNode(self.name, self.axis.name, all_axes, tensors, (), tuple(self._reductions), (),
                            tuple(self._assumptions))
        check_cascade(built)
        return built

    def __str__(self) -> str:
        return str(self.build())


@dataclass(frozen=True)
class Places:
    """One part of a sorted list of k elements, by place: `values[0]` belongs to the best element."""

    part: str
    k: int
    of: Ref

    def __len__(self) -> int:
        return self.k

    def __getitem__(self, place: int) -> Part:
        if not -self.k <= place < self.k:
            raise IndexError(f"place {place} of a list of length {self.k}")
        return Part(self.part, (place % self.k,), self.of)


def _body(value: Any) -> Expr:
    """The expression that a user gives."""
    return wrap(computed(value))


def _reads(e: Expr) -> set[str]:
    """Tensors that an expression reads."""
    return {x.tensor for x in walk(e) if isinstance(x, Load)}


def _axis_order(e: Expr) -> list[str]:
    """Free axes in order of first appearance."""
    free = free_axes(e)
    seen = [a for x in walk(e) if isinstance(x, (Load, Ref)) for a in x.axes if isinstance(a, str)]
    return [a for a in dict.fromkeys(seen) if a in free]
