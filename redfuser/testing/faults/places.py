"""Walking a tile program: every statement once with its surroundings, replaced in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from redfuser.codegen.kinds import BOOL, INT, REAL, dtype_kind, kind_of
from redfuser.codegen.nodes import At, For, If, LetInt, LetScalar, Put, Set, Stmt, Sweep
from redfuser.codegen.passes.bodies import Body, lane_expressions, nested
from redfuser.codegen.show import show_expr, show_stmt
from redfuser.ir import Expr, Op, Var, children, walk, with_children

Change = tuple[str, tuple[Stmt, ...]]
"""What was changed, and the statements that stand there instead."""


@dataclass(frozen=True)
class Place:
    """Where a statement stands.

    outer  the task loop, then the loops and conditions around it
    body   the statements it is one of
    at     which of them
    """

    outer: tuple[For | If, ...]
    body: Body
    at: int

    @property
    def stmt(self) -> Stmt:
        """The statement."""
        return self.body[self.at]

    @property
    def loops(self) -> list[For]:
        """The loops around it that run in order: all but that over tasks."""
        return [s for s in self.outer[1:] if isinstance(s, For)]

    @property
    def task(self) -> For:
        """The loop over tasks."""
        assert isinstance(self.outer[0], For)
        return self.outer[0]


def changed(loop: For, edit: Callable[[Place], Iterator[Change]], span: int = 1) -> Iterator[tuple[str, For]]:
    """The task loop with `span` statements replaced from one on, for every replacement at every statement."""
    for text, body in _in_body(loop.body, (loop,), edit, span):
        yield text, replace(loop, body=body)


def _in_body(body: Body, outer: tuple[For | If, ...], edit: Callable[[Place], Iterator[Change]], span: int
             ) -> Iterator[tuple[str, Body]]:
    for i, s in enumerate(body):
        for text, new in edit(Place(outer, body, i)) if i + span <= len(body) else ():
            yield text, (*body[:i], *new, *body[i + span :])
        if isinstance(s, (For, If)):
            for text, inner in _in_body(s.body, (*outer, s), edit, span):
                yield text, (*body[:i], replace(s, body=inner), *body[i + 1 :])


def title(s: Stmt) -> str:
    """A statement in one line."""
    lines = show_stmt(replace(s, body=()) if isinstance(s, (For, If)) else s)
    text = " ".join(line.strip() for line in lines[:3])
    return text if len(text) <= 110 else text[:107] + "..."


def edits(e: Expr, f: Callable[[Expr], Iterator[tuple[str, Expr]]]) -> Iterator[tuple[str, Expr]]:
    """The expression with one part of it replaced. Conditions, indices and arguments of functions count as parts."""
    yield from f(e)
    for i, c in enumerate(children(e)):
        for text, new in edits(c, f):
            yield text, with_children(e, (*children(e)[:i], new, *children(e)[i + 1 :]))


def scope_of(loop: For) -> dict[str, str]:
    """Kinds of the variables of a task: names that are missing are integers."""
    found: dict[str, str] = {}
    for s in nested(loop.body):
        if isinstance(s, LetScalar):
            found[s.name] = dtype_kind(s.dtype)
        elif isinstance(s, Sweep):
            found |= {r.name: BOOL if r.monoid in ("any", "all") else REAL for r in s.reds}
            found |= {n: dtype_kind(d) for f in s.folds for n, d in zip(f.names, f.dtypes, strict=True)}
    return found


def is_whole(e: Expr, scope: dict[str, str]) -> bool:
    """Whether it is an integer."""
    return kind_of(e, scope) == INT


def live(loop: For) -> set[str]:
    """Names of variables and buffers that decide a result, or which statements run. (A state that only decides itself
    does not: of a recurrence, the factor of what came before everything.)"""
    sources: dict[str, set[str]] = {}
    roots: set[str] = set()

    def flows(to: str, *exprs: Expr) -> None:
        sources.setdefault(to, set()).update(*map(_names, exprs))

    for s in nested(loop.body):
        if isinstance(s, (LetInt, LetScalar)):
            flows(s.name, s.expr)
        elif isinstance(s, If):
            roots |= _names(s.condition)
        elif isinstance(s, For):
            roots |= _names(s.lo) | _names(s.hi)
        elif isinstance(s, Set):
            _stored(s.cell, s.expr, flows, roots)
        elif isinstance(s, Sweep):
            roots |= _names(s.lo) | _names(s.hi)
            _swept(s, flows, roots)
    found: set[str] = set()
    while roots:
        name = roots.pop()
        found.add(name)
        roots |= sources.get(name, set()) - found
    return found


Flow = Callable[..., None]


def _swept(s: Sweep, flows: Flow, roots: set[str]) -> None:
    for p in s.puts:
        _stored(p.cell, p.expr, flows, roots)
    for r in s.reds:
        flows(r.name, r.expr)
    for f in s.folds:
        for name, element, law in zip(f.names, f.elements, f.combine, strict=True):
            flows(name, element)
            parts = zip(f.names, f.left, f.right, strict=True)
            flows(name, *(Var(n) for n, a, b in parts if {a, b} & _names(law)))
    for i in s.inserts:
        for cell in (i.keys, i.indices):
            flows(cell.buf.name, i.key, i.index)


def _stored(cell: At, e: Expr, flows: Flow, roots: set[str]) -> None:
    if cell.buf.home in ("reg", "local"):
        flows(cell.buf.name, e, *cell.idx)
    else:
        roots |= _names(e).union(*map(_names, cell.idx))


def _names(e: Expr) -> set[str]:
    """Variables and buffers that an expression reads."""
    return {x.buf.name if isinstance(x, At) else x.name for x in walk(e) if isinstance(x, (At, Var))}


def written(s: Stmt) -> set[str]:
    """Names that a statement gives a value to, those inside of it included."""
    found: set[str] = set()
    for x in nested((s,)):
        if isinstance(x, (LetInt, LetScalar)):
            found.add(x.name)
        elif isinstance(x, Set):
            found.add(x.cell.buf.name)
        elif isinstance(x, Sweep):
            found |= {p.cell.buf.name for p in x.puts} | {r.name for r in x.reds}
            found |= {n for f in x.folds for n in f.names}
            found |= {b.name for i in x.inserts for b in (i.keys.buf, i.indices.buf)}
    return found


def only_free(s: Stmt, free: frozenset[str]) -> bool:
    """Whether all that a statement computes are pivots: results are the same for each of their values."""
    names = written(s)
    return bool(free) and bool(names) and all(is_free(n, free) for n in names)


def is_free(name: str, free: frozenset[str]) -> bool:
    """Whether a variable is a pivot, or a copy or an element for one (their names begin with the pivot's)."""
    return any(name == p or name.startswith(f"{p}_") for p in free)


def certain_cells(s: Sweep) -> list[At]:
    """Elements of arrays that a sweep touches in every lane: not those that only one branch of a choice reads."""
    found = [x for e in lane_expressions(s) for x in _certain(e) if isinstance(x, At)]
    return [x for x in (*found, *(p.cell for p in s.puts)) if x.buf.home in ("global", "shared")]


def _certain(e: Expr) -> Iterator[Expr]:
    if isinstance(e, Op) and e.fn in ("select", "and", "or"):
        yield from _certain(e.args[0])
        return
    yield e
    for c in children(e):
        yield from _certain(c)


def depends(e: Expr, name: str) -> bool:
    """Whether a variable occurs in an expression."""
    return Var(name) in walk(e)


def element_data(p: Put) -> bool:
    """Whether a stored value is computed from an element of an array."""
    return any(isinstance(x, At) and x.buf.home == "global" for x in walk(p.expr))


__all__ = ["Change", "Place", "certain_cells", "changed", "depends", "edits", "element_data", "is_free", "is_whole",
           "live", "only_free", "scope_of", "show_expr", "title", "written"]
