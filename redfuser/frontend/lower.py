"""Lower a trace to index notation: from operations on whole arrays to expressions for one element.

Top down: `element(node, index)` is the expression for the element of a node at named axes. Elementwise operations,
views and broadcasts vanish into it. Every reduction becomes a `Let` whose axes have canonical names (the size's label,
primed when the label is already in use), so that equal reductions become one let.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import product
from typing import Any

import numpy as np

from redfuser.errors import TraceError
from redfuser.frontend.assumed import assumed
from redfuser.frontend.element import UFUNCS, cast_element, numeric, wrapped
from redfuser.frontend.graph import Trace, TraceNode, View
from redfuser.frontend.naming import choose_axis_names, rename_term
from redfuser.frontend.places import broadcast_labels, ranks, single
from redfuser.frontend.ranges import narrow, wrapping
from redfuser.ir import (
    MONOIDS,
    Axis,
    Cast,
    Const,
    Expr,
    Idx,
    Let,
    Load,
    Out,
    Part,
    Reduce,
    Ref,
    Size,
    Tensor,
    Term,
    Tuple,
    check_term,
    free_axes,
    op,
    parts_monoid,
    rename_axes,
    select,
    substitute,
    walk,
)
from redfuser.ir.dtypes import computed_in, is_float
from redfuser.ir.names import unique_name
from redfuser.ir.ops import label

Index = tuple[str | int | None, ...]
"""One entry per dimension: the name of an axis, a fixed position, or None for a dimension of size 1."""

_MONOIDS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_or": "any",
            "logical_and": "all"}
_BOOL_MONOIDS = {"maximum": "any", "minimum": "all"}  # NumPy's max and min of bool are `or` and `and`


@dataclass(frozen=True)
class Lowering:
    """A trace in index notation.

    Dimensions of size 1 do not reach the term: tensors and outputs are without them (`arrays` drops them, and
    `Trace.unflatten` puts them back). `sources`: let name -> line of the user's code.
    """

    trace: Trace
    term: Term
    sources: dict[str, str]

    def arrays(self, arguments: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
        """The term's tensors for the trace's arguments: captured arrays added, dimensions of size 1 dropped and split
        dimensions apart (views)."""
        sizes = self.trace.size_values({name: np.shape(arguments[name]) for name in self.trace.arguments})
        found: dict[str, np.ndarray[Any, Any]] = {}
        for i, node in enumerate(self.trace.nodes):
            if node.op != "input":
                continue
            name = node.param
            array = np.asarray(arguments[name] if name in arguments else self.trace.captured[name])
            dtype = scalar_dtype(self.trace) if node.weak and node.dtype == "float64" else array.dtype
            found[name] = self.trace.with_parts(array, i, sizes).astype(dtype, copy=False)
        return found

    def __str__(self) -> str:
        return str(self.term)


def lower(trace: Trace) -> Term:
    """The trace as a term. Its meaning (`run_term`) is that of `Trace.run`."""
    return lower_with_sources(trace).term


def lower_with_sources(trace: Trace) -> Lowering:
    """The trace as a term, with the source line of every let."""
    lowerer = _Lowerer(trace)
    outs = tuple(lowerer.output(name, i) for name, i in zip(lowerer.out_names, trace.outputs, strict=True))
    tensors = tuple(lowerer.tensor(name, node) for name, node in trace.inputs().items())
    lets = tuple(lowerer.lets)
    assumptions = tuple(assumed(lowerer.element, trace, lowerer.lets, {x.name for x in lets}))
    raw = Term(trace.name, _axes_of(trace, tensors, lets, outs), tensors, lets, outs)
    raw = replace(raw, assumptions=tuple(a for a in assumptions if free_axes(a) <= {x.name for x in raw.axes}))
    named = {s.label for s in trace.sizes if s.named}
    taken = {t.name for t in tensors} | {x.name for x in lets} | {o.name for o in outs}
    term = rename_term(raw, choose_axis_names(raw, named, taken))
    check_term(term)
    return Lowering(trace, term, lowerer.sources)


class _Lowerer:
    """State of one lowering: the lets found so far, and the expressions already built."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.lets: list[Let] = []
        self.sources: dict[str, str] = {}
        self.names = set(trace.inputs())
        self.out_names = tuple(unique_name(name, self.names) for name in trace.output_names())
        self._elements: dict[tuple[int, Index], Expr] = {}
        self._reductions: dict[tuple[int, Index], Expr] = {}
        self._known: dict[tuple[Expr, tuple[str, ...]], str] = {}
        self._consumers: dict[int, list[TraceNode]] = {}
        self._integers: dict[Expr, str] = {}
        self.wrapping = wrapping(trace)
        self.ranks = dict(ranks(trace))
        for n in trace.nodes:
            for i in n.inputs:
                self._consumers.setdefault(i, []).append(n)

    # ---- the parts of the term

    def tensor(self, name: str, n: TraceNode) -> Tensor:
        """The input without its dimensions of size 1."""
        dtype = scalar_dtype(self.trace) if n.weak and n.dtype == "float64" else n.dtype
        return Tensor(str(name), _named(canonical(n.shape)), dtype)

    def output(self, name: str, position: int) -> Out:
        """The output without its dimensions of size 1."""
        n = self.trace.nodes[position]
        index = canonical(n.shape)
        expr = self.element(position, index)
        if isinstance(expr, Cast) and expr.dtype == n.dtype:
            expr = expr.body  # an output converts to its dtype by itself
        return Out(name, _named(index), expr, n.dtype)

    # ---- elements

    def element(self, position: int, index: Index) -> Expr:
        """The expression for one element of node `position`."""
        key = (position, index)
        if key not in self._elements:
            n = self.trace.nodes[position]
            rule = _wrapped_ufunc if position in self.wrapping else _ELEMENT.get(n.op)
            self._elements[key] = self.reduction(position, index) if rule is None else rule(self, n, index)
        return self._elements[key]

    def operands(self, n: TraceNode, index: Index) -> list[Expr]:
        """The elements of the inputs that broadcast to `index`."""
        return [self.element(i, self.aligned(i, index)) for i in n.inputs]

    def aligned(self, position: int, index: Index) -> Index:
        """The index of an operand that broadcasts to `index`: its last dimensions, None where its size is 1."""
        shape = self.trace.nodes[position].shape
        last = index[len(index) - len(shape):]
        return tuple(None if entry == 1 else i for entry, i in zip(shape, last, strict=True))

    # ---- reductions

    def reduction(self, position: int, index: Index) -> Expr:
        """A reference to the let of a reduction, at `index`."""
        n = self.trace.nodes[position]
        own = canonical(n.shape, index)
        key = (position, own)
        if key not in self._reductions:
            build = {"einsum": self._einsum, "parts": self._parts, "reduce": self._reduce}[n.op]
            self._reductions[key] = build(position, n, own)
        found = _at(self._reductions[key], own, index)
        if isinstance(found, (Ref, Part)) and narrow(n.dtype):
            self._integers[found] = n.dtype
        return found

    def as_integer(self, e: Expr) -> Expr:
        """An operand of an operation that wraps around. Results are kept as real numbers, perhaps of fewer digits than
        products of integers have: they are converted to the integers that they are."""
        converted: dict[Expr, Expr] = {x: x for x in walk(e) if isinstance(x, Cast)}
        return substitute(e, converted | {x: Cast(d, x) for x, d in self._integers.items()})

    def _reduce(self, position: int, n: TraceNode, own: Index) -> Expr:
        ufunc, axes, keepdims = n.param
        shape = self.trace.nodes[n.inputs[0]].shape
        kept = iter(own)
        full: list[str | int | None] = []
        bound: list[str] = []
        places: dict[int, range] = {}
        for i, entry in enumerate(shape):
            if i not in axes:
                full.append(next(kept))
                continue
            if keepdims:
                next(kept)
            if entry in self.ranks:
                places[i] = range(self.ranks[str(entry)])
            full.append(None if isinstance(entry, int) or i in places else fresh_axis(entry, (*own, *bound)))
            bound += _named((full[-1],))
        is_bool = self.trace.nodes[n.inputs[0]].dtype == "bool"
        monoid = _BOOL_MONOIDS.get(ufunc, _MONOIDS[ufunc]) if is_bool else _MONOIDS[ufunc]

        def element(chosen: Sequence[int]) -> Expr:
            at = dict(zip(places, chosen, strict=True))
            body = self.element(n.inputs[0], tuple(at.get(i, entry) for i, entry in enumerate(full)))
            return select(body, 1, 0) if is_bool and monoid in ("sum", "prod") else body

        combine = MONOIDS[monoid].combine
        body = reduce(partial(op, combine), map(element, product(*places.values())))
        return self._bind(position, monoid, body, bound, _named(full))

    def _parts(self, position: int, n: TraceNode, own: Index) -> Expr:
        name, axis, keepdims, part = n.param
        monoid = parts_monoid(name)
        shape = broadcast_labels([self.trace.nodes[i].shape for i in n.inputs])
        is_list = monoid.rank is not None
        kept = own[:axis] + own[axis + (is_list or keepdims):]
        bound = None if isinstance(shape[axis], int) else fresh_axis(str(shape[axis]), own)
        full = (*kept[:axis], bound, *kept[axis:])
        bodies = [numeric(e, self.trace.nodes[i].dtype)
                  for i, e in zip(n.inputs, self.operands(n, full), strict=True)]
        place = (own[axis] or 0) if is_list else None
        if bound is None:
            return single(monoid, part, bodies)
        body = bodies[0] if len(bodies) == 1 else Tuple(tuple(bodies))
        found = self._bind(position, name, body, [bound], _named(full))
        return Part(part, () if place is None else (place,), found)

    def _einsum(self, position: int, n: TraceNode, own: Index) -> Expr:
        inputs, _, output = n.param.partition("->")
        at: dict[str, str | int | None] = dict(zip(output, own, strict=True))
        operands: list[Expr] = []
        bound: list[str] = []
        for i, letters in zip(n.inputs, inputs.split(","), strict=True):
            for letter, entry in zip(letters, self.trace.nodes[i].shape, strict=True):
                if letter not in at:
                    assert isinstance(entry, str)
                    at[letter] = fresh_axis(entry, (*own, *bound))
                    bound.append(str(at[letter]))
            element = self.element(i, tuple(at[letter] for letter in letters))
            operands.append(numeric(element, self.trace.nodes[i].dtype))
        body = operands[0]
        for operand in operands[1:]:
            body = op("mul", body, operand)
        return self._bind(position, "sum", body, bound, (*_named(own), *bound))

    def _bind(self, position: int, monoid: str, body: Expr, bound: list[str], order: Sequence[str]) -> Expr:
        """`body` reduced over the bound axes, the last one innermost: one let each."""
        for axis in reversed(bound):
            reduction = Reduce(monoid, axis, body)
            free = free_axes(reduction)
            axes = tuple(a for a in dict.fromkeys(order) if a in free)
            known = self._known.get((reduction, axes))
            if known is None:
                known = self._known[reduction, axes] = self._let_name(position, monoid, outer=axis == bound[0])
                self.lets.append(Let(known, axes, reduction))
                self.sources[known] = str(self.trace.nodes[position].source or "")
            body = Ref(known, axes)
        return body

    def _let_name(self, position: int, monoid: str, outer: bool) -> str:
        """The user's variable when the reduction is stored in it directly, else a name from the monoid."""
        source = self.trace.nodes[position].source
        target = None if source is None else source.target
        if target is None or not target.isidentifier():
            kind = label(monoid).partition(":")[0]
            return unique_name(kind, self.names, always=True)
        same_line = any(c.source == source for c in self._consumers.get(position, ()))
        return unique_name(f"{target}_{monoid}" if same_line or not outer else target, self.names)


def scalar_dtype(trace: Trace) -> str:
    """The dtype of a Python float argument: the one that the arrays it meets are computed in, which it does not widen.
    """
    floats = [computed_in(n.dtype) for n in trace.nodes if not n.weak and is_float(n.dtype)]
    return str(np.result_type(*floats)) if floats else "float64"


def canonical(shape: Sequence[str | int], index: Index | None = None) -> Index:
    """The index of a shape by its labels: primed on repetition; None for size 1; positions that `index` fixes stay."""
    found: list[str | int | None] = []
    for i, entry in enumerate(shape):
        given = None if index is None else index[i]
        if isinstance(entry, int):
            found.append(None)
        else:
            found.append(given if isinstance(given, int) else fresh_axis(entry, found))
    return tuple(found)


def fresh_axis(label: str, used: Sequence[str | int | None]) -> str:
    """The label with as many primes as it takes to be none of `used`."""
    while label in used:
        label += "'"
    return label


def _named(index: Sequence[str | int | None]) -> tuple[str, ...]:
    return tuple(i for i in index if isinstance(i, str))


def _at(e: Expr, own: Index, index: Index) -> Expr:
    """The element of a let: from the canonical axes of its definition to those of the use."""
    if not isinstance(e, Ref):
        return e if own == index else _rename_leaf_axes(e, own, index)
    table = {a: b for a, b in zip(own, index, strict=True) if isinstance(a, str) and isinstance(b, str)}
    return Ref(e.name, tuple(table.get(a, a) for a in e.axes))


def _rename_leaf_axes(e: Expr, own: Index, index: Index) -> Expr:
    return rename_axes(e, {a: b for a, b in zip(own, index, strict=True) if isinstance(a, str) and isinstance(b, str)})


# ---- one function per elementwise operation of the trace

def _input(_: _Lowerer, n: TraceNode, index: Index) -> Expr:
    return Load(str(n.param), tuple(i for i in index if i is not None))


def _const(_l: _Lowerer, n: TraceNode, _: Index) -> Expr:
    return Const(n.param)


def _size(low: _Lowerer, n: TraceNode, _: Index) -> Expr:
    return Const(low.ranks[n.param]) if n.param in low.ranks else Size(n.param)


def _arange(_l: _Lowerer, _n: TraceNode, index: Index) -> Expr:
    position = index[0]
    return Idx(position) if isinstance(position, str) else Const(position or 0)


def _ufunc(low: _Lowerer, n: TraceNode, index: Index) -> Expr:
    dtypes = [low.trace.nodes[i].dtype for i in n.inputs]
    return UFUNCS[n.param](low.operands(n, index), dtypes, n.dtype)


def _wrapped_ufunc(low: _Lowerer, n: TraceNode, index: Index) -> Expr:
    operands = [low.as_integer(e) for e in low.operands(n, index)]
    return wrapped(n.param, operands, [low.trace.nodes[i].dtype for i in n.inputs], n.dtype)


def _where(low: _Lowerer, n: TraceNode, index: Index) -> Expr:
    condition, a, b = low.operands(n, index)
    if n.dtype != "bool":
        a, b = numeric(a, low.trace.nodes[n.inputs[1]].dtype), numeric(b, low.trace.nodes[n.inputs[2]].dtype)
    return select(condition, a, b)


def _cast(low: _Lowerer, n: TraceNode, index: Index) -> Expr:
    return cast_element(low.operands(n, index)[0], low.trace.nodes[n.inputs[0]].dtype, n.dtype)


def _view(low: _Lowerer, n: TraceNode, index: Index) -> Expr:
    view: View = n.param
    source = n.inputs[0]
    shape = low.trace.nodes[source].shape
    at: dict[int, str | int | None] = {d: i for d, i in zip(view.dims, index, strict=True) if d is not None}
    at |= {d: p for d, p in view.fixed if shape[d] != 1}
    return low.element(source, tuple(None if shape[d] == 1 else at[d] for d in range(len(shape))))


def _broadcast(low: _Lowerer, n: TraceNode, index: Index) -> Expr:
    return low.operands(n, index)[0]


def _host(low: _Lowerer, n: TraceNode, _: Index) -> Expr:
    raise TraceError(f"{low.trace.name} is no single term, NumPy runs {n.param}: lower each of its stages "
                     "(redfuser.frontend.stages)")


_ELEMENT: dict[str, Callable[[_Lowerer, TraceNode, Index], Expr]] = {
    "input": _input, "const": _const, "size": _size, "arange": _arange, "ufunc": _ufunc, "where": _where, "cast": _cast,
    "view": _view, "broadcast": _broadcast, "host": _host,
}


def _axes_of(trace: Trace, tensors: Sequence[Tensor], lets: Sequence[Let], outs: Sequence[Out]) -> tuple[Axis, ...]:
    """Every axis in use, in order of appearance, with the lengths that the trace relies on."""
    lengths = {s.label: s.value for s in trace.sizes if s.fixed}
    names: dict[str, None] = {}
    for t in tensors:
        names.update(dict.fromkeys(t.axes))
    for axes, expr in [*((x.axes, x.expr) for x in lets), *((o.axes, o.expr) for o in outs)]:
        names.update(dict.fromkeys(axes))
        names.update(dict.fromkeys(y.axis for y in walk(expr) if isinstance(y, (Reduce, Size, Idx))))
        names.update(dict.fromkeys(a for y in walk(expr) if isinstance(y, Part) for a in y.axes
                                   if isinstance(a, str)))
    unknown = [a for a in names if a.rstrip("'") not in {s.label for s in trace.sizes}]
    if unknown:
        raise TraceError(f"axis {unknown[0]} of {trace.name} has no size")
    return tuple(Axis(a, lengths.get(a.rstrip("'"))) for a in names)
