"""Small algebra on expressions that scheduling needs: separating factors, affine forms, evaluation at points."""

from __future__ import annotations

from redfuser.ir import (
    Const,
    Expr,
    Idx,
    Load,
    Op,
    Reduce,
    Ref,
    Size,
    Var,
    children,
    free_axes,
    op,
    wrap,
)

Affine = dict[Expr | None, int]
"""Coefficient of every atom (an index or a size); None is the constant."""


def reads_state(e: Expr) -> bool:
    """True when an accumulator or a dependency occurs in `e`."""
    return isinstance(e, Ref) or any(reads_state(c) for c in children(e))


def split_factor(e: Expr, axis: str) -> tuple[Expr | None, Load] | None:
    """`e` as weight * load, where only the load depends on `axis`; the weight None stands for 1.

    Products, quotients and negation are looked through. None when `e` has no such form.
    """
    if isinstance(e, Load):
        return (None, e) if e.axes.count(axis) == 1 else None
    if not isinstance(e, Op) or e.fn not in ("mul", "div", "neg"):
        return None
    inside = [axis in free_axes(a) for a in e.args]
    if sum(inside) != 1 or (e.fn == "div" and inside[1]):
        return None
    inner = split_factor(e.args[inside.index(True)], axis)
    if inner is None:
        return None
    weight, load = inner
    if e.fn == "neg":
        return (wrap(-1.0) if weight is None else op("neg", weight)), load
    other = e.args[inside.index(False)]
    if e.fn == "div":
        return op("div", wrap(1.0) if weight is None else weight, other), load
    return (other if weight is None else op("mul", weight, other)), load


def affine(e: Expr) -> Affine | None:
    """An integer expression as a linear form over indices, sizes and variables, None when it is not one."""
    if isinstance(e, Const):
        return {None: e.value} if type(e.value) is int else None
    if isinstance(e, (Idx, Size, Var)):
        return {e: 1}
    if not isinstance(e, Op) or e.fn not in ("add", "sub", "neg", "mul"):
        return None
    parts = [affine(a) for a in e.args]
    if any(p is None for p in parts):
        return None
    left, right = parts[0] or {}, (parts[1] or {}) if len(parts) > 1 else {}
    if e.fn == "mul":
        if set(left) <= {None}:
            left, right = right, left
        return _scaled(left, right.get(None, 0)) if set(right) <= {None} else None
    if e.fn == "neg":
        return _scaled(left, -1)
    return _added(left, _scaled(right, 1 if e.fn == "add" else -1))


def _scaled(f: Affine, factor: int) -> Affine:
    return {atom: c * factor for atom, c in f.items()}


def _added(f: Affine, g: Affine) -> Affine:
    return {atom: f.get(atom, 0) + g.get(atom, 0) for atom in (*f, *(a for a in g if a not in f))}


def difference(a: Expr, b: Expr) -> Affine | None:
    """a - b as a linear form."""
    return affine(Op("sub", (a, b)))


def from_affine(f: Affine) -> Expr:
    """The expression of a linear form."""
    e: Expr | None = None
    terms = [(atom, c) for atom, c in f.items() if atom is not None and c != 0]
    for atom, c in sorted(terms, key=lambda t: t[1] < 0):  # a positive term first, so that it reads well
        term = atom if abs(c) == 1 else op("mul", abs(c), atom)
        if e is None:
            e = term if c > 0 else op("neg", term)
            continue
        e = op("add" if c > 0 else "sub", e, term)
    constant = f.get(None, 0)
    if e is None:
        return Const(constant)
    if constant == 0:
        return e
    return op("add" if constant > 0 else "sub", e, abs(constant))


def reduces_in(e: Expr) -> list[Reduce]:
    """The outermost reductions inside `e`, without repetition."""
    if isinstance(e, Reduce):
        return [e]
    return list(dict.fromkeys(r for c in children(e) for r in reduces_in(c)))
