"""Decisions of the tile schedule for matrix units of a GPU: which cascades may use them, tile sizes, chunks.

A product runs on matrix units where both operands are, or may be rounded to, one half type: inputs of that type, and
weights that the loop computes (the exponentials of attention), which round to it as those of hand-written kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from redfuser.extract import choose_fragments
from redfuser.extract.algebra import reduces_in, split_factor
from redfuser.extract.choose import round_up
from redfuser.extract.choose_fragments import Fragments
from redfuser.extract.decisions import OperandDecision, Options, TileDecisions
from redfuser.extract.gpu import Gpu
from redfuser.extract.plan import Plan
from redfuser.extract.plan_tiles import PLACE
from redfuser.extract.roles import Contraction, NoTiles, TileRoles
from redfuser.ir import Const, Expr, Load, Op, find_parts, has_parts
from redfuser.ir.term import base_axis

HALVES = ("float16", "bfloat16")
"""Types of the operands of matrix units."""
REGISTER_ROWS = 1
"""Rows that share the bounds of the stream: each has its own, fragments mask single elements."""


def matrix_tiles(p: Plan, sizes: Mapping[str, int], gpu: Gpu, asked: Options) -> tuple[TileDecisions, tuple[str, ...]]:
    """The decisions for a plan that has tiles for a CPU, with a note per decision.

    Raises
    ------
    NoTiles
        when matrix units do not serve, with the reason.
    """
    assert p.tiles is not None
    roles = _unscaled(p.tiles.roles)
    hints = {a.name: max(1, a.size if a.size is not None else sizes.get(base_axis(a.name), 1)) for a in p.flat.axes}
    dtype = _operand_dtype(p, roles)
    _check(p, roles, dtype)
    shape = Fragments(
        tuple(hints[c.axis] for c in roles.contractions), tuple(hints[v.axis] for v in roles.vectors),
        hints[roles.row] if roles.row else 1, hints[roles.flat.stream or ""],
    )
    found = choose_fragments.tile_shape(shape, gpu.shared)
    if found is None or (found.span and len({v.axis for v in roles.vectors}) != 1):
        raise NoTiles("fragments do not fit into registers and shared memory")
    rows, block, span = _asked_rows(asked, found.rows), round_up(asked.block or found.block, 16), found.span
    if not choose_fragments.has_room(shape, choose_fragments.TileShape(rows, block, span), gpu.shared):
        raise NoTiles(f"fragments of {rows} rows x {block} do not fit into registers and shared memory")
    operands = [*(c.use for c in roles.contractions), *(v.name for v in roles.vectors)]
    tasks = math.prod(hints[a] for a in roles.batch) * -(-shape.rows // rows)
    tasks *= -(-max(shape.widths, default=1) // span) if span else 1
    chunk = _chunk(p, roles, gpu, asked, tasks, block, shape.stream)
    decisions = TileDecisions(
        roles, rows, block, REGISTER_ROWS, 8, max(shape.depths, default=0), p.tiles.static,
        tuple((use, OperandDecision(PLACE, "panel")) for use in operands), (), chunk, (), dtype, span,
    )
    return decisions, _notes(decisions)


def _asked_rows(asked: Options, rows: int) -> int:
    """A number of rows that a block of warps can share."""
    if asked.tile is None:
        return rows
    return round_up(asked.tile, choose_fragments.tile_warps(asked.tile) * choose_fragments.FRAGMENT_ROWS)


def _unscaled(roles: TileRoles) -> TileRoles:
    """The same products without factors: a scaled operand would be rounded once more."""
    return replace(roles, contractions=tuple(_raw(c, roles.flat.stream or "") for c in roles.contractions))


def _raw(c: Contraction, stream: str) -> Contraction:
    inner = reduces_in(c.tile)
    assert len(inner) == 1
    split = split_factor(inner[0].body, stream)
    assert split is not None
    return replace(c, tile=inner[0], rows=Const(1.0) if split[0] is None else split[0])


def _operand_dtype(p: Plan, roles: TileRoles) -> str:
    """The half type of all operands.

    Raises
    ------
    NoTiles
        when there is none.
    """
    dtypes = {t.name: t.dtype for t in p.flat.tensors}
    rows = [c.rows for c in roles.contractions]
    if not all(isinstance(r, Load) and len(set(r.axes)) == len(r.axes) for r in rows):
        raise NoTiles("matrix units take row operands as they lie in memory")
    loads = [*(r for r in rows if isinstance(r, Load)), *(c.operand for c in roles.contractions)]
    loads += [v.operand for v in roles.vectors]
    found = {dtypes[x.tensor] for x in loads}
    if len(found) != 1 or not found <= set(HALVES):
        raise NoTiles(f"matrix units take operands of one half type, not {', '.join(sorted(found))}")
    return found.pop()


def _check(p: Plan, roles: TileRoles, dtype: str) -> None:
    """Raise NoTiles for what fragments do not hold."""
    if p.dtype != "float32":
        raise NoTiles(f"matrix units sum in float32, not in {p.dtype}")
    if roles.row is None:
        raise NoTiles("a tile of one row would leave matrix units idle")
    if roles.inner:
        raise NoTiles(f"the inner reduction {roles.inner[0].tile} is no product")
    parts = [m for a in roles.flat.accumulators if (m := find_parts(a.monoid)) is not None]
    if any(m.largest is None or (m.rank or 1) > choose_fragments.LONGEST_LIST for m in parts):
        raise NoTiles("fragments hold no state of several parts but short lists")
    for v in roles.vectors:
        if dtype == "float16" and not _fits_half(v.weight, p):
            raise NoTiles(f"the weights of {v.name} may exceed the range of {dtype}")


def _fits_half(weight: Expr, p: Plan) -> bool:
    """Whether weights lie in the range of float16, and small ones may be lost beside large ones.

    True of exponentials of what is at most zero, of inputs of that type, and of choices between these and zeros.
    """
    if isinstance(weight, Const):
        return abs(float(weight.value)) <= 1
    if isinstance(weight, Load):
        return {t.name: t.dtype for t in p.flat.tensors}[weight.tensor] == "float16"
    if isinstance(weight, Op) and weight.fn == "select":
        return all(_fits_half(w, p) for w in weight.args[1:])
    return isinstance(weight, Op) and weight.fn in ("exp_below", "exp2_below")


def _chunk(p: Plan, roles: TileRoles, gpu: Gpu, asked: Options, tasks: int, block: int, length: int) -> int:
    """Stream elements per task where tiles are few, 0 where the stream is not split."""
    stream = roles.flat.stream
    if len(roles.flat.passes) != 1 or any(stream in o.axes for o in roles.flat.outs):
        return 0
    if any(has_parts(a.monoid) for a in roles.flat.accumulators):
        return 0
    if asked.chunk is not None:
        return round_up(asked.chunk, block) if asked.chunk else 0
    return choose_fragments.tile_chunk(gpu.units, tasks, length, block)


def _notes(d: TileDecisions) -> tuple[str, ...]:
    """The decisions in words."""
    roles = d.roles
    row, stream = roles.row or "one row", roles.flat.stream
    notes = [f"matrix units: {d.units} operands, float32 sums"]
    notes += [f"matrix product {c.tile} (rows {row}, lanes {stream})" for c in roles.contractions]
    notes += [f"{v.name} += weights . {v.operand} (rows {row}, lanes {v.axis})" for v in roles.vectors]
    if roles.bounds:
        notes.append(f"bounds of the stream: {', '.join(map(str, roles.bounds))}")
    if roles.repairs:
        notes.append("masked: a row that ends with NaN or an infinity is summed again over its live elements")
    notes.append(f"tiles of {d.rows} rows x {d.block} elements of {stream}")
    if d.span:
        notes.append(f"each task computes {d.span} elements of {roles.vectors[0].axis}: more do not fit into registers")
    if d.chunk:
        notes.append(f"few tiles: the stream is split into chunks of {d.chunk} elements, partial states are merged")
    return (*notes, *(f"specialised for {a} = {n}" for a, n in d.static))
