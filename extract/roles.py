"""Roles of axes in a tile schedule, read off the term: rows, batch, contraction, vector axes. No workload is known.

A tile schedule needs a contraction feeding the stream (sum over k of A * B, B carrying the stream) or an accumulator
sum of E(row, stream) * V(stream, d) with a vector axis d. Both become matrix products on a tile of rows x stream.
Any other reduction that feeds the stream (a distance) fills its tile row by row, from operands that all rows share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from redfuser.derivation.fusion import Accumulator
from redfuser.extract.algebra import reads_state, reduces_in, split_factor
from redfuser.extract.flatten import Flat, awaited_places
from redfuser.extract.masks import Bound, guard_removed, guarded, live_conditions, peel_masks
from redfuser.ir import Const, Expr, Load, New, Old, Op, Reduce, Ref, children, free_axes, refs, substitute, walk
from redfuser.ir.term import base_axis


@dataclass(frozen=True)
class Contraction:
    """`tile` = sum over `axis` of rows * operand: the node that a tile element stands for.

    `rows` (free of the stream) includes every factor that scales the sum; `operand` carries the stream. `use` names the
    operand among the decisions.
    """

    tile: Expr
    axis: str
    rows: Expr
    operand: Load
    use: str = "contraction"


@dataclass(frozen=True)
class Inner:
    """`tile`: a reduction over `axis` that is no product of two operands, computed element by element.

    `operands` carry the stream and that axis: they are the same for all rows of a tile.
    """

    tile: Reduce
    axis: str
    operands: tuple[Load, ...]


@dataclass(frozen=True)
class VectorSum:
    """Accumulator `name` = sum of weight(row, stream) * operand(stream, axis).

    An element is removed, and contributes nothing, where one of the conditions in `live` does not hold.
    """

    name: str
    axis: str
    weight: Expr
    operand: Load
    live: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class TileRoles:
    """What a tile schedule needs to know. `row` None: a tile of one row. `flat` has its masks peeled into bounds."""

    flat: Flat
    row: str | None
    batch: tuple[str, ...]
    contractions: tuple[Contraction, ...]
    vectors: tuple[VectorSum, ...]
    bounds: tuple[Bound, ...]
    inner: tuple[Inner, ...] = ()

    @property
    def repairs(self) -> bool:
        """Can a matrix product meet elements that a mask removes? It multiplies them by a weight of 0."""
        return any(v.live or self.bounds for v in self.vectors)


class NoTiles(Exception):
    """The tile schedule does not apply; the message says why, in words for the plan's notes."""


def tile_roles(flat: Flat, sizes: Mapping[str, int], layouts: Mapping[str, str | None]) -> TileRoles:
    """Find the roles of a tile schedule.

    Parameters
    ----------
    sizes : example lengths, used to pick the longest of several possible row axes
    layouts : tensor name -> its contiguous axis

    Raises
    ------
    NoTiles
        with the reason.
    """
    if flat.stream is None:
        raise NoTiles("no reduction")
    if depth := awaited_places(flat):
        raise NoTiles(f"the loop reads place {depth} of a sorted list")
    contractions, inner = _find_contractions(flat)
    tiles = [*(c.tile for c in contractions), *(i.tile for i in inner)]
    vectors = _find_vectors(flat, tiles, layouts)
    if not tiles and not vectors:
        raise NoTiles("no contraction feeds the stream and no accumulator has a vector axis")
    lanes = {v.axis for v in vectors}
    parallel = _parallel_axes(flat, lanes)
    _check_outputs(flat, parallel, lanes)
    _check_corrections(flat, {v.name for v in vectors})
    operands = [v.operand for v in vectors] + [c.operand for c in contractions]
    operands += [x for i in inner for x in i.operands]
    taken = {a for load in operands for a in load.axes}
    free = [a for a in parallel if a not in taken]
    row = max(free, key=lambda a: sizes.get(base_axis(a), 1), default=None)
    if row is None and not all(layouts.get(v.operand.tensor) == v.axis for v in vectors):
        raise NoTiles("one row per tile and an operand whose lanes would be strided")
    peeled, bounds = peel_masks(flat)
    if bounds:
        vectors = _find_vectors(peeled, tiles, layouts)
    vectors = tuple(_with_removals(v, peeled) for v in vectors)
    peeled = guard_removed(peeled, {v.name for v in vectors})
    return TileRoles(peeled, row, tuple(a for a in parallel if a != row), contractions, vectors, bounds, inner)


def _with_removals(v: VectorSum, flat: Flat) -> VectorSum:
    """`v` with the masks of its weight, which is 0 where they remove an element."""
    return replace(v, weight=guarded(v.weight, flat), live=live_conditions(v.weight, flat))


def _parallel_axes(flat: Flat, lanes: set[str]) -> list[str]:
    used = {a for x in flat.accumulators for a in x.axes} | {a for o in flat.outs for a in flat.row_axes(o)}
    used -= lanes
    return [a.name for a in flat.axes if a.name in used]


# -------------------------------- the contractions that feed the stream


def _find_contractions(flat: Flat) -> tuple[tuple[Contraction, ...], tuple[Inner, ...]]:
    """The reductions inside the loop: matrix products, and others.

    Raises
    ------
    NoTiles
        when one of them is neither.
    """
    exprs = [a.body for a in flat.accumulators] + [o.expr for o in flat.outs]
    found = dict.fromkeys(r for e in exprs for r in reduces_in(e))
    if found and any(reduces_in(d.expr) for d in flat.dependencies):
        raise NoTiles("a dependency holds a contraction")
    uses = iter(("contraction", *(f"contraction {i}" for i in range(2, len(found) + 1))))
    products: list[Contraction] = []
    others: list[Inner] = []
    for r in found:
        if reduces_in(r.body) or reads_state(r.body) or flat.stream not in free_axes(r):
            raise NoTiles(f"the inner reduction {r} is not over inputs along the stream")
        product = _contraction(r, flat, exprs)
        if product is None:
            others.append(_inner(r, flat))
        else:
            products.append(replace(product, use=next(uses)))
    return tuple(products), tuple(others)


def _contraction(inner: Reduce, flat: Flat, exprs: list[Expr]) -> Contraction | None:
    """The roles of a product of a row operand and a tensor along the stream, None for another reduction."""
    assert flat.stream is not None
    split = split_factor(inner.body, flat.stream) if inner.monoid == "sum" else None
    if split is None or split[1].axes.count(inner.axis) != 1 or any(isinstance(a, int) for a in split[1].axes):
        return None
    weight, operand = split
    tile = _scaled_tile(inner, exprs, flat.stream)
    rows = substitute(tile, {inner: Const(1.0) if weight is None else weight})
    return Contraction(tile, inner.axis, rows, operand)


def _inner(r: Reduce, flat: Flat) -> Inner:
    """The roles of a reduction of any expression of inputs.

    Raises
    ------
    NoTiles
        for truth values, which a tile does not hold.
    """
    if r.monoid in ("any", "all"):
        raise NoTiles(f"the inner reduction {r} has truth values")
    loads = dict.fromkeys(x for x in walk(r.body) if isinstance(x, Load) and {flat.stream, r.axis} <= set(x.axes))
    shared = [x for x in loads if len(set(x.axes)) == len(x.axes) and all(isinstance(a, str) for a in x.axes)]
    return Inner(r, r.axis, tuple(shared))


def _scaled_tile(inner: Reduce, exprs: list[Expr], stream: str) -> Expr:
    """The largest product around `inner` by stream-free factors, the same at every occurrence."""
    found = {node for e in exprs for node in _scaled_occurrences(e, inner, stream)}
    return found.pop() if len(found) == 1 else inner


def _scaled_occurrences(e: Expr, inner: Reduce, stream: str) -> Iterable[Expr]:
    if _is_scaled(e, inner, stream):
        yield e
        return
    for c in children(e):
        yield from _scaled_occurrences(c, inner, stream)


def _is_scaled(e: Expr, inner: Reduce, stream: str) -> bool:
    if e == inner:
        return True
    if not isinstance(e, Op) or e.fn not in ("mul", "div"):
        return False
    a, b = e.args

    def constant(x: Expr) -> bool:
        return stream not in free_axes(x) and not reads_state(x) and not reduces_in(x)

    return (_is_scaled(a, inner, stream) and constant(b)) or (
        e.fn == "mul" and constant(a) and _is_scaled(b, inner, stream)
    )


# -------------------------------- accumulators with a vector axis


def _find_vectors(
    flat: Flat, tiles: Iterable[Expr], layouts: Mapping[str, str | None]
) -> tuple[VectorSum, ...]:
    """One vector axis per accumulator that can have one; all other axes are parallel."""
    read = {n for x in flat.accumulators for n in refs(x.body)} | {
        n for d in flat.dependencies for n in refs(d.expr)
    }
    options = {a.name: [] if a.name in read else _options(a, flat) for a in flat.accumulators}
    fixed = {x for a in flat.accumulators if not options[a.name] for x in a.axes}
    fixed |= {x for tile in tiles for x in free_axes(tile)}
    picked: list[VectorSum] = []
    for a in flat.accumulators:
        candidates = [v for v in options[a.name] if v.axis not in fixed]
        best = max(candidates, key=lambda v: layouts.get(v.operand.tensor) == v.axis, default=None)
        if best is not None:
            picked.append(best)
    shared = {v.axis for v in picked if flat.stream in free_axes(v.weight)}
    vectors = tuple(v for v in picked if v.axis in shared)
    lanes = {v.axis for v in vectors}
    for a in flat.accumulators:
        own = {v.axis for v in vectors if v.name == a.name}
        if set(a.axes) & lanes != own:
            raise NoTiles(f"accumulator {a.name} has several vector axes")
    return vectors


def _options(a: Accumulator, flat: Flat) -> list[VectorSum]:
    """The ways to read the body of `a` as weight * operand with a vector axis."""
    options = []
    for axis in a.axes:
        split = split_factor(a.body, axis) if a.monoid == "sum" else None
        if split is None:
            continue
        weight, operand = split
        if operand.axes.count(flat.stream or "") == 1 and not any(isinstance(x, int) for x in operand.axes):
            options.append(VectorSum(a.name, axis, Const(1.0) if weight is None else weight, operand))
    return options


# -------------------------------- conditions


def _check_outputs(flat: Flat, parallel: list[str], lanes: set[str]) -> None:
    for o in flat.outs:
        vector = set(o.axes) & lanes
        if not set(parallel) <= set(o.axes):
            raise NoTiles(f"output {o.name} lacks a parallel axis")
        if len(vector) + len(flat.list_axes(o)) > 1 or (vector and flat.stream in o.axes):
            raise NoTiles(f"output {o.name} has several lane axes")


def _check_corrections(flat: Flat, vectors: set[str]) -> None:
    """Vector state may be read by corrections only where its old value is still in place."""
    for d in flat.dependencies:
        if refs(d.expr) & vectors:
            raise NoTiles(f"dependency {d.name} reads an accumulator with a vector axis")
    for name, e in flat.corrections:
        read = {x.name for x in walk(e) if isinstance(x, (New, Ref))} & vectors
        olds = {x.name for x in walk(e) if isinstance(x, Old)} & vectors - {name}
        if read or (olds and name not in vectors) or any(flat.correction(o) is not None for o in olds):
            raise NoTiles(f"the correction of {name} reads another corrected vector accumulator")
