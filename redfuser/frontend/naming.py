"""Readable, deterministic names for axes: n for the stream, k for contractions, d for vector axes, i for rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from redfuser.ir import Axis, Expr, Idx, Let, Load, Out, Part, Reduce, Ref, Size, Tensor, Term, rewrite, walk
from redfuser.ir.names import free_name, numbered
from redfuser.ir.partition import partition
from redfuser.ir.term import Cascade, base_axis
from redfuser.ir.views import expanded, parts_of

_ROLES = {"stream": ("n", "m", "t"), "contraction": ("k", "c", "e"), "vector": ("d", "f", "g"),
          "place": ("r", "q", "z")}
_PARALLEL = ("i", "h", "b", "a")  # the innermost first


def choose_axis_names(t: Term, named: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """New names for the axes of `t` except those the user `named`; `taken` names (tensors, lets) are avoided."""
    fixed = set(named)
    used = fixed | set(taken)
    axes = list(dict.fromkeys(base_axis(a.name) for a in t.axes))
    roles = _roles(t)
    table: dict[str, str] = {}
    for axis, role in roles.items():
        if axis not in fixed:
            table[axis] = _free_axis(_ROLES[role], used)
    rows = [a for a in axes if a not in roles and a not in fixed]
    for axis in reversed(rows):
        table[axis] = _free_axis(_PARALLEL, used)
    return table


def _free_axis(candidates: tuple[str, ...], used: set[str]) -> str:
    return free_name(chain(candidates, numbered(candidates[0])), used)


def _roles(t: Term) -> dict[str, str]:
    """Role of each axis but the parallel ones. The longest cascade decides where cascades disagree."""
    roles: dict[str, str] = {}
    for c in sorted(partition(t).cascades, key=lambda c: -len(c.reductions)):
        parts = parts_of(c.axes)
        for part in reversed(expanded((c.axis,) if c.axis else (), parts)):
            roles.setdefault(base_axis(part), "stream")
        for p in c.producers:
            for inner in walk(p.expr):
                if isinstance(inner, Reduce):
                    roles.setdefault(base_axis(inner.axis), "contraction")
        for a in _vector_axes(c):
            roles.setdefault(base_axis(a), "vector")
    for expr in (*(x.expr for x in t.lets), *(o.expr for o in t.outs)):
        for e in walk(expr):
            if isinstance(e, Part):
                roles |= {base_axis(a): roles.get(base_axis(a), "place") for a in e.axes if isinstance(a, str)}
    return roles


def _vector_axes(c: Cascade) -> list[str]:
    """Axes that some stages of a cascade carry, but not all stages and producers do."""
    carried = [set(r.axes) for r in c.reductions] + [set(p.axes) for p in c.producers]
    return [a for r in c.reductions for a in r.axes if not all(a in axes for axes in carried)]


def rename_term(t: Term, table: Mapping[str, str]) -> Term:
    """The term with its axes renamed; `table` maps unprimed names one to one, primes are kept."""

    def name(axis: str) -> str:
        base = base_axis(axis)
        return table.get(base, base) + axis[len(base):]

    def leaf(e: Expr) -> Expr | None:
        if isinstance(e, Load):
            return Load(e.tensor, tuple(name(a) if isinstance(a, str) else a for a in e.axes))
        if isinstance(e, Ref):
            return Ref(e.name, tuple(map(name, e.axes)))
        if isinstance(e, Idx):
            return Idx(name(e.axis))
        if isinstance(e, Size):
            return Size(name(e.axis))
        if isinstance(e, Part):
            return Part(e.part, tuple(name(a) if isinstance(a, str) else a for a in e.axes), e.body)
        return Reduce(e.monoid, name(e.axis), e.body) if isinstance(e, Reduce) else None

    return Term(
        t.name,
        tuple(Axis(name(a.name), a.size) for a in t.axes),
        tuple(Tensor(x.name, tuple(map(name, x.axes)), x.dtype) for x in t.tensors),
        tuple(Let(x.name, tuple(map(name, x.axes)), rewrite(x.expr, leaf)) for x in t.lets),
        tuple(Out(x.name, tuple(map(name, x.axes)), rewrite(x.expr, leaf), x.dtype) for x in t.outs),
        tuple(rewrite(a, leaf) for a in t.assumptions),
    )
