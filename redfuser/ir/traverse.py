"""Walks over expressions: subexpressions, rewriting, and what an expression reads.

An expression shares subexpressions: written out it may be exponentially larger, and it may be deeper than the stack.
Everything here looks at every distinct subexpression once, without recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from redfuser.ir.expr import RANK, Cast, Expr, Idx, Load, Op, Part, Reduce, Ref, Tuple


def children(e: Expr) -> tuple[Expr, ...]:
    """The direct subexpressions."""
    if isinstance(e, (Op, Tuple)):
        return e.args
    if isinstance(e, (Reduce, Cast, Part)):
        return (e.body,)
    extra = getattr(e, "idx", None)  # tile-level At
    return extra if extra is not None else ()


def with_children(e: Expr, new: tuple[Expr, ...]) -> Expr:
    """The same node over other subexpressions."""
    if new == children(e):
        return e
    if isinstance(e, Op):
        return Op(e.fn, new)
    if isinstance(e, Reduce):
        return Reduce(e.monoid, e.axis, new[0])
    if isinstance(e, Cast):
        return Cast(e.dtype, new[0])
    if isinstance(e, Part):
        return Part(e.part, e.axes, new[0])
    if isinstance(e, Tuple):
        return Tuple(new)
    return e.with_idx(new)  # type: ignore[attr-defined, no-any-return]


def walk(e: Expr) -> Iterator[Expr]:
    """Every distinct subexpression once, the root first: written out, an expression may be exponentially larger."""
    seen: set[Expr] = set()
    todo = [e]
    while todo:
        x = todo.pop()
        if x not in seen:
            seen.add(x)
            yield x
            todo.extend(reversed(children(x)))


def _mapped(e: Expr, before: Callable[[Expr], Expr | None], after: Callable[[Expr], Expr | None]) -> Expr:
    """Bottom-up map of every distinct subexpression. `before` may replace one whole; `after` sees it with its parts
    replaced. Without recursion: expressions are deep."""
    memo: dict[Expr, Expr] = {}
    todo = [e]
    while todo:
        x = todo[-1]
        if x in memo:
            todo.pop()
            continue
        whole = before(x)
        waiting = [c for c in children(x) if c not in memo] if whole is None else []
        if waiting:
            todo.extend(reversed(waiting))
            continue
        if whole is None:
            y = with_children(x, tuple(memo[c] for c in children(x)))
            changed = after(y)
            whole = y if changed is None else changed
        memo[todo.pop()] = whole
    return memo[e]


def _unchanged(_: Expr) -> None:
    return None


def rewrite(e: Expr, f: Callable[[Expr], Expr | None]) -> Expr:
    """Bottom-up map: `f` returns a replacement or None. Each distinct subexpression is rewritten once."""
    return _mapped(e, _unchanged, f)


def substitute(e: Expr, table: Mapping[Expr, Expr]) -> Expr:
    """Replace whole subexpressions (outermost match first)."""
    return _mapped(e, table.get, _unchanged)


def _noted(e: Expr, name: str, value: Callable[[Expr], Any]) -> Any:
    """What `value` says of a node, from what it says of its parts. Kept at every node, and found without recursion."""
    todo = [e]
    while todo:
        x = todo[-1]
        waiting = [] if name in x.__dict__ else [c for c in children(x) if name not in c.__dict__]
        if waiting:
            todo += waiting
            continue
        if name not in x.__dict__:
            object.__setattr__(x, name, value(x))
        todo.pop()
    return e.__dict__[name]


def free_axes(e: Expr) -> frozenset[str]:
    """Axes an expression depends on: those of its loads, indices and refs that no Reduce binds."""
    found: frozenset[str] | None = e.__dict__.get("_free_axes")
    return _noted(e, "_free_axes", _free_axes) if found is None else found


def _free_axes(e: Expr) -> frozenset[str]:
    if isinstance(e, (Load, Ref)):
        return frozenset(a for a in e.axes if isinstance(a, str))
    if isinstance(e, Idx):
        return frozenset((e.axis,))
    inner = frozenset[str]().union(*(c.__dict__["_free_axes"] for c in children(e)))
    if isinstance(e, Reduce):
        return inner - {e.axis}
    return inner | {a for a in e.axes if isinstance(a, str) and a != RANK} if isinstance(e, Part) else inner


def written_size(e: Expr) -> int:
    """The number of nodes of an expression when it is written out: what is shared counts every time it is read."""
    return _noted(e, "_size", lambda x: 1 + sum(c.__dict__["_size"] for c in children(x)))  # type: ignore[no-any-return]


def depth(e: Expr) -> int:
    """The number of nodes on the longest way down."""
    return _noted(e, "_depth", lambda x: 1 + max((c.__dict__["_depth"] for c in children(x)), default=0))  # type: ignore[no-any-return]


def refs(e: Expr) -> frozenset[str]:
    """Names of the definitions an expression reads."""
    return frozenset(x.name for x in walk(e) if isinstance(x, Ref))


def names_read(exprs: Iterable[Expr], definitions: Mapping[str, Expr]) -> frozenset[str]:
    """Names that expressions read, directly or through the given definitions of names."""
    found: set[str] = set()
    todo = list(exprs)
    while todo:
        new = refs(todo.pop()) - found
        found |= new
        todo += [definitions[n] for n in new if n in definitions]
    return frozenset(found)


def rename_axes(e: Expr, table: Mapping[str, str]) -> Expr:
    """Rename free axes. A bound axis that would capture a new name gets primes."""
    table = {a: b for a, b in table.items() if a != b}

    def leaf(x: Expr) -> Expr | None:
        if free_axes(x).isdisjoint(table):
            return x
        if isinstance(x, Load):
            return Load(x.tensor, tuple(table.get(a, a) if isinstance(a, str) else a for a in x.axes))
        if isinstance(x, Ref):
            return Ref(x.name, tuple(table.get(a, a) for a in x.axes))
        if isinstance(x, Idx):
            return Idx(table[x.axis])
        return _rename_bound(x, table) if isinstance(x, Reduce) else None

    def place(x: Expr) -> Expr | None:
        if not isinstance(x, Part):
            return None
        return Part(x.part, tuple(table.get(a, a) if isinstance(a, str) else a for a in x.axes), x.body)

    return _mapped(e, leaf, place)


def _rename_bound(e: Reduce, table: Mapping[str, str]) -> Expr:
    inner = {a: b for a, b in table.items() if a != e.axis and a in free_axes(e.body)}
    axis = e.axis
    while axis in inner.values():
        axis += "'"
    return Reduce(e.monoid, axis, rename_axes(e.body, {**inner, e.axis: axis}))
