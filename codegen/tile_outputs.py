"""Outputs of one row of a tile, by the definition's own arithmetic."""

from __future__ import annotations

from collections.abc import Mapping

from redfuser.codegen.block import Row
from redfuser.codegen.indexing import typed
from redfuser.codegen.nodes import At, Put, Set, Stmt, Sweep
from redfuser.codegen.tile_place import TilePlace
from redfuser.ir import Const, Expr, Out, Var


def output_value(row: Row, o: Out, lanes: Mapping[str, Expr], vectors: Mapping[str, At]) -> tuple[At, Expr]:
    """The cell of an output at the current row, and its value.

    Parameters
    ----------
    lanes : vector axis -> position on it
    vectors : accumulator with a vector axis -> its element there
    """
    env = row.env.raw().at(**lanes)
    env.values = {**env.values, **vectors}
    value = typed(row.lower(o.expr, env), o.dtype, row.names, row.space.compute)
    return At(row.space.outs[o.name], tuple(env.axes[a] for a in o.axes)), value


def store_output(row: Row, o: Out, lanes: Mapping[str, Var], vectors: Mapping[str, At],
                 place: TilePlace | None = None) -> Stmt:
    """Store an output that does not carry the stream: a sweep along its vector axis or places of a list, or a value."""
    lanes = {**lanes, **{a: row.names.integer(a) for a in row.space.flat.list_axes(o)}}
    at = lanes if place is None else {a: place.along(a, lane) for a, lane in lanes.items()}
    cell, value = output_value(row, o, at, vectors)
    axis = next((a for a in o.axes if a in lanes), None)
    if axis is None:
        return Set(cell, value)
    width = row.space.size(axis) if place is None else place.width(axis)
    return Sweep(lanes[axis].name, Const(0), width, (), (Put(cell, value),))
