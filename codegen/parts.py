"""State with several parts in tile programs: sorted lists of top-k, states of users' monoids.

Every part has a cell of its own, called `part_name(accumulator, part)`. A list (argmax is one of length 1) is a row of
scratch, its cell runs over Var("z_"), the place in it; each part of any other monoid is a scalar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from redfuser.codegen.kinds import BOOL, kind_of
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf, Fold, Insert, Put, Set, Stmt, Sweep
from redfuser.derivation.fusion import Accumulator
from redfuser.ir import RANK, Cast, Const, Expr, Part, PartsMonoid, Tuple, Var, find_parts, rewrite
from redfuser.ir.monoids import INDEX, KEY, VALUE, left, right

PLACE = Var("z_")
WIDE = "float64"


def part_name(name: str, part: str) -> str:
    """What a part of an accumulator is called in tables of cells and values."""
    return f"{name}.{part}"


def cell_names(a: Accumulator) -> dict[str, str]:
    """Part -> name of its cell; a scalar accumulator is its own only part."""
    m = find_parts(a.monoid)
    return {"": a.name} if m is None else {p: part_name(a.name, p) for p in m.parts}


def list_length(monoid: str) -> int:
    """Places of the sorted list that the state of a monoid is; 0 where it is none."""
    m = find_parts(monoid)
    return 0 if m is None or m.largest is None else m.rank or 1


def part_dtype(m: PartsMonoid, part: str, compute: str, *, state: bool) -> str:
    """Dtype of a part: keys of lists as computed, numbers of users' monoids wide between blocks (`state`)."""
    dtype = m.part_dtype(part)
    if dtype != KEY:
        return dtype
    return WIDE if state and m.largest is None else compute


def state_shapes(a: Accumulator, compute: str, scalar: str) -> dict[str, tuple[tuple[Expr, ...], str]]:
    """Cell name -> (shape, dtype) of the state of an accumulator; `scalar` is the dtype of one without parts."""
    m = find_parts(a.monoid)
    if m is None:
        return {a.name: ((), scalar)}
    shape = (Const(n),) if (n := list_length(a.monoid)) else ()
    return {part_name(a.name, p): (shape, part_dtype(m, p, compute, state=True)) for p in m.parts}


def identity_of(m: PartsMonoid, part: str) -> Const:
    """The state of nothing."""
    number = m.part_identity(part)
    return Const(float(number) if m.part_dtype(part) == KEY else int(number))


def at_place(e: Expr, place: Expr) -> Expr:
    """A value over the places of a list, at one of them."""
    return rewrite(e, lambda x: place if x == PLACE else None)


def is_list_cell(cell: At) -> bool:
    """Does the cell run over the places of a list?"""
    return bool(cell.idx) and cell.idx[-1] == PLACE


def assign(names: Names, *pairs: tuple[At, Expr]) -> list[Stmt]:
    """Store values to cells: lists in one sweep over their places, scalars one by one."""
    out: list[Stmt] = [Set(cell, e) for cell, e in pairs if not is_list_cell(cell)]
    lists: dict[Expr, list[tuple[At, Expr]]] = {}
    for cell, e in pairs:
        if is_list_cell(cell):
            lists.setdefault(cell.buf.shape[-1], []).append((cell, e))
    for length, stores in lists.items():
        place = names.integer("place")
        puts = tuple(Put(_cell_at(cell, place), at_place(e, place)) for cell, e in stores)
        out.append(Sweep(place.name, Const(0), length, (), puts))
    return out


def _cell_at(cell: At, place: Expr) -> At:
    return At(cell.buf, (*cell.idx[:-1], place))


def new_cell(names: Names, base: str, shape: tuple[Expr, ...], dtype: str, scratch: list[Buf]) -> At:
    """A register, or a list in scratch."""
    if not shape:
        return At(Buf(names.fresh(base), (), "reg", dtype))
    buf = Buf(names.fresh(base), shape, "local", dtype)
    scratch.append(buf)
    return At(buf, (PLACE,))


def insertion(a: Accumulator, cells: Callable[[str], At], key: Expr, index: Expr) -> Insert:
    """Elements of a sweep into the list of `a`."""
    largest = find_parts(a.monoid)
    assert largest is not None
    name = cell_names(a)
    return Insert(cells(name[VALUE]), cells(name[INDEX]), key, index, bool(largest.largest))


def merged_list(
    names: Names, a: Accumulator, cells: Callable[[str], At], theirs: Mapping[str, Expr]
) -> Sweep:
    """The list of another state into that of `a`; `theirs`: cell name -> value over the places of the other list."""
    place = names.integer("place")
    value, index = (at_place(theirs[cell_names(a)[p]], place) for p in (VALUE, INDEX))
    return Sweep(place.name, Const(0), Const(list_length(a.monoid)), inserts=(insertion(a, cells, value, index),))


def combination(m: PartsMonoid, mine: Iterable[Expr], theirs: Iterable[Expr]) -> tuple[Expr, ...]:
    """The parts of two states combined, `mine` the earlier."""
    given = dict(zip((left(p) for p in m.parts), mine, strict=True))
    given |= dict(zip((right(p) for p in m.parts), theirs, strict=True))
    return tuple(rewrite(e, lambda x: given.get(x.name) if isinstance(x, Var) else None) for e in m.combine)


def corrected_parts(a: Accumulator, correction: Expr, lower: Callable[[Expr], Expr]) -> list[Expr]:
    """The parts of a corrected state."""
    m = find_parts(a.monoid)
    assert m is not None
    if isinstance(correction, Tuple):
        return [lower(e) for e in correction.args]
    axes = (RANK,) if m.rank is not None else ()
    return [lower(Part(p, axes, correction)) for p in m.parts]  # the state of another accumulator as it is


def elements_of(a: Accumulator) -> tuple[Expr, ...]:
    """The state of one element of the stream, part by part."""
    return a.body.args if isinstance(a.body, Tuple) else (a.body,)


def fold(
    names: Names, a: Accumulator, elements: Iterable[Expr], compute: str, typed: Callable[[Expr], Expr]
) -> Fold:
    """A users' monoid over the elements of a sweep; `typed` gives its law the form of tile expressions."""
    m = find_parts(a.monoid)
    assert m is not None
    dtypes = {p: part_dtype(m, p, compute, state=m.ordered) for p in m.parts}  # in order: one by one, wide for nothing
    results, mine, theirs = (
        [names.scalar(f"{a.name}_{p}{suffix}", dtypes[p]) for p in m.parts] for suffix in ("_block", "_a", "_b")
    )
    numbers = (Cast(compute, e) if kind_of(e, names.kinds) == BOOL else e for e in elements)
    return Fold(
        tuple(v.name for v in results),
        tuple(dtypes.values()),
        tuple(numbers),
        tuple(identity_of(m, p) for p in m.parts),
        tuple(v.name for v in mine),
        tuple(v.name for v in theirs),
        tuple(map(typed, combination(m, mine, theirs))),
        m.ordered,
    )
