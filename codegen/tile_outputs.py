"""Outputs of one row of a tile, by the definition's own arithmetic."""

from __future__ import annotations

from collections.abc import Mapping

from redfuser.codegen.block import Row
from redfuser.codegen.indexing import typed
from redfuser.codegen.nodes import At, Put, Set, Stmt, Sweep
from redfuser.ir import Const, Expr, Out, Var


def output_value(row: Row, o: Out, lanes: Mapping[str, Var], vectors: Mapping[str, At]) -> tuple[At, Expr]:
    """The cell of an output at the current row, and its value.

    Parameters
    ----------
    lanes : vector axis -> variable of sweeps along it
    vectors : accumulator with a vector axis -> its element there
    """
    env = row.env.raw().at(**lanes)
    env.values = {**env.values, **vectors}
    value = typed(row.lower(o.expr, env), o.dtype, row.names, row.space.compute)
    return At(row.space.outs[o.name], tuple(env.axes[a] for a in o.axes)), value


def store_output(row: Row, o: Out, lanes: Mapping[str, Var], vectors: Mapping[str, At]) -> Stmt:
    """Store an output that does not carry the stream: a sweep along its vector axis or places of a list, or a value."""
    lanes = {**lanes, **{a: row.names.integer(a) for a in row.space.flat.list_axes(o)}}
    cell, value = output_value(row, o, lanes, vectors)
    axis = next((a for a in o.axes if a in lanes), None)
    if axis is None:
        return Set(cell, value)
    return Sweep(lanes[axis].name, Const(0), row.space.size(axis), (), (Put(cell, value),))
