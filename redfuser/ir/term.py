"""The term level: a whole program in index notation, and one cascade of it.

A `Term` is what the frontend hands over: inputs, definitions (`Let`) in dependency order, outputs. Every reduction is
a let of its own, `Let(name, axes, Reduce(monoid, axis, body))`. A `Cascade` is the part of a term that shares one
stream axis: its reductions r_1..r_k, the producers computed on the fly inside the loop, and the outputs.
"""

from __future__ import annotations

import sys

from redfuser.errors import CheckError, DepthError
from redfuser.ir.expr import Expr, Load, Reduce, Ref
from redfuser.ir.monoids import is_monoid
from redfuser.ir.node import Node, node
from redfuser.ir.ops import label
from redfuser.ir.traverse import depth, free_axes, refs, walk


@node
class Axis(Node):
    """A named dimension. `size` None: known when called. `primed` copies (i, i') share the size of their base.

    A product axis lists its `parts`, the outermost first: it runs over all their positions in row-major order.
    """

    name: str
    size: int | None = None
    parts: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name if self.size is None else f"{self.name}={self.size}"


@node
class View(Node):
    """How a tensor of a cascade reads an array: `source` at `index`, one axis or fixed position per dimension."""

    source: str
    index: tuple[str | int, ...]

    def __str__(self) -> str:
        return f"{self.source}[{','.join(map(str, self.index))}]"


@node
class Tensor(Node):
    """An input array (or a run-time scalar when `axes` is empty) with its NumPy dtype name.

    `view`: in a cascade over a product axis, the array that this tensor flattens (and repeats along parts it lacks).
    """

    name: str
    axes: tuple[str, ...]
    dtype: str = "float64"
    view: View | None = None

    def __str__(self) -> str:
        of = "" if self.view is None else f" = {self.view}"
        return f"{self.name}[{','.join(self.axes)}]:{self.dtype}{of}"


@node
class Let(Node):
    """A named definition: `name[axes] = expr`."""

    name: str
    axes: tuple[str, ...]
    expr: Expr

    def __str__(self) -> str:
        return f"{Ref(self.name, self.axes)} = {self.expr}"


@node
class Out(Node):
    """An output array `name[axes] = expr`, cast to `dtype`. `axes` are in memory order of the result."""

    name: str
    axes: tuple[str, ...]
    expr: Expr
    dtype: str = "float64"

    def __str__(self) -> str:
        return f"{Ref(self.name, self.axes)}:{self.dtype} = {self.expr}"


@node
class Term(Node):
    """A program in index notation. `axes` lists every axis name used, primed copies included.

    `assumptions`: comparisons the caller guarantees for every element along their free axes.
    """

    name: str
    axes: tuple[Axis, ...]
    tensors: tuple[Tensor, ...]
    lets: tuple[Let, ...]
    outs: tuple[Out, ...]
    assumptions: tuple[Expr, ...] = ()

    def __str__(self) -> str:
        lines = [f"term {self.name}", f"  axes {', '.join(map(str, self.axes))}"]
        lines += [f"  in   {t}" for t in self.tensors]
        lines += [f"  let  {x}" for x in self.lets]
        lines += [f"  out  {o}" for o in self.outs]
        lines += [f"  assume {a}" for a in self.assumptions]
        return "\n".join(lines)


@node
class Reduction(Node):
    """One stage of a cascade: `name[axes] = (+)_stream body`."""

    name: str
    monoid: str
    body: Expr
    axes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{Ref(self.name, self.axes)} = {label(self.monoid)}({self.body})"


@node
class Cascade(Node):
    """Reductions r_1..r_k over one stream axis, with the outputs computed from them.

    `producers` carry the stream axis and are recomputed inside the loop (for attention: the scores); a body or an
    output mentions them as `Ref(name, axes)`. `Ref` of an earlier reduction is its final value. `Size(axis)` is the
    number of elements reduced. `axis` is None for a purely elementwise piece (no reductions). `assumptions` are
    comparisons the caller guarantees for every element along their free axes; one that reads a reduction speaks of its
    final value.
    """

    name: str
    axis: str | None
    axes: tuple[Axis, ...]
    tensors: tuple[Tensor, ...]
    producers: tuple[Let, ...]
    reductions: tuple[Reduction, ...]
    outs: tuple[Out, ...]
    assumptions: tuple[Expr, ...] = ()

    def __str__(self) -> str:
        lines = [f"cascade {self.name} over {self.axis}", f"  axes {', '.join(map(str, self.axes))}"]
        lines += [f"  in   {t}" for t in self.tensors]
        lines += [f"  let  {x}" for x in self.producers]
        lines += [f"  red  {r}" for r in self.reductions]
        lines += [f"  out  {o}" for o in self.outs]
        lines += [f"  assume {a}" for a in self.assumptions]
        return "\n".join(lines)

    def reduction(self, name: str) -> Reduction:
        """The stage called `name`."""
        return next(r for r in self.reductions if r.name == name)


FRAMES = 6
"""Frames of Python's stack that the deepest walk over an expression (printing C) needs for every level."""
SPARE = 80
"""Frames that lead to it."""
SPLIT = "split it into several functions, or call sys.setrecursionlimit with a larger number"
"""What helps."""


def check_depth(t: Term) -> None:
    """Raise DepthError when an expression is too deep for what is left of Python's stack."""
    used, frame = 0, sys._getframe().f_back
    while frame is not None:
        used, frame = used + 1, frame.f_back
    most = (sys.getrecursionlimit() - used - SPARE) // FRAMES
    found = max(map(depth, (*(x.expr for x in t.lets), *(o.expr for o in t.outs))), default=0)
    if found > most:
        raise DepthError(f"{t.name} nests {found} operations in one expression, at most {most} compile: {SPLIT}")


def base_axis(name: str) -> str:
    """The axis whose size a primed copy shares."""
    return name.rstrip("'")


def check_expr(e: Expr, where: str, axes: frozenset[str], tensors: dict[str, Tensor], known: dict[str, int]) -> None:
    """Raise CheckError unless `e` is closed under `axes`, reads known tensors with the right rank and known refs."""
    loose = free_axes(e) - axes
    if loose:
        raise CheckError(f"{where}: axis {', '.join(sorted(loose))} is free")
    for x in walk(e):
        if isinstance(x, Load):
            tensor = tensors.get(x.tensor)
            if tensor is None:
                raise CheckError(f"{where}: unknown tensor {x.tensor}")
            if len(x.axes) != len(tensor.axes):
                raise CheckError(f"{where}: {x} has {len(x.axes)} indices, {tensor} has {len(tensor.axes)}")
        elif isinstance(x, Ref):
            if x.name not in known:
                raise CheckError(f"{where}: {x.name} is read before its definition")
            if len(x.axes) != known[x.name]:
                raise CheckError(f"{where}: {x} has {len(x.axes)} indices, its definition {known[x.name]}")
        elif isinstance(x, Reduce) and not is_monoid(x.monoid):
            raise CheckError(f"{where}: unknown monoid {x.monoid}")


def check_term(t: Term) -> None:
    """Raise CheckError unless names are bound once, before use, over declared axes; every Reduce is a let itself."""
    axes = frozenset(a.name for a in t.axes)
    tensors = {x.name: x for x in t.tensors}
    known: dict[str, int] = {}
    if len(tensors) != len(t.tensors):
        raise CheckError("a tensor name is bound twice")
    definitions: list[Let | Out] = [*t.lets, *t.outs]
    for x in definitions:
        where = f"term {t.name}, {x.name}"
        if x.name in known or (isinstance(x, Let) and x.name in tensors):
            raise CheckError(f"{where}: bound twice")
        inner = [y for y in walk(x.expr) if isinstance(y, Reduce)]
        if inner and (isinstance(x, Out) or inner != [x.expr]):
            raise CheckError(f"{where}: a reduction must be a let of its own")
        bound = {y.axis for y in inner}
        if not set(x.axes) <= axes or not bound <= axes:
            raise CheckError(f"{where}: undeclared axis")
        check_expr(x.expr, where, frozenset(x.axes), tensors, known)
        if isinstance(x, Let):
            known[x.name] = len(x.axes)
    for a in t.assumptions:
        check_expr(a, f"term {t.name}, assumption {a}", axes, tensors, known)


def check_cascade(c: Cascade) -> None:
    """Raise CheckError unless every stage depends on earlier stages only and reduces over the stream axis."""
    axes = frozenset(a.name for a in c.axes)
    tensors = {x.name: x for x in c.tensors}
    known: dict[str, int] = {}
    stream = frozenset() if c.axis is None else frozenset((c.axis,))
    if c.reductions and c.axis is None:
        raise CheckError(f"cascade {c.name}: reductions without a stream axis")
    pending = list(c.producers)

    def admit_producers() -> None:
        for p in list(pending):
            if refs(p.expr) <= set(known):
                check_expr(p.expr, f"cascade {c.name}, {p.name}", frozenset(p.axes), tensors, known)
                known[p.name] = len(p.axes)
                pending.remove(p)
                admit_producers()
                return

    admit_producers()
    for r in c.reductions:
        where = f"cascade {c.name}, {r.name}"
        if not is_monoid(r.monoid):
            raise CheckError(f"{where}: unknown monoid {r.monoid}")
        if not set(r.axes) <= axes or stream & set(r.axes):
            raise CheckError(f"{where}: bad axes")
        check_expr(r.body, where, frozenset(r.axes) | stream, tensors, known)
        if r.name in known:
            raise CheckError(f"{where}: bound twice")
        known[r.name] = len(r.axes)
        admit_producers()
    if pending:
        raise CheckError(f"cascade {c.name}: producer {pending[0].name} reads something undefined")
    for o in c.outs:
        check_expr(o.expr, f"cascade {c.name}, {o.name}", frozenset(o.axes), tensors, known)
    for a in c.assumptions:
        check_expr(a, f"cascade {c.name}, assumption {a}", axes, tensors, known)
