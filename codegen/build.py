"""From a plan to a tile program."""

from __future__ import annotations

from redfuser.codegen.build_elementwise import build_elementwise
from redfuser.codegen.build_rows import build_rows
from redfuser.codegen.build_tiles import build_tiles
from redfuser.codegen.lower import Space
from redfuser.codegen.nodes import Buf, Kernel, Phase
from redfuser.extract import Plan
from redfuser.ir import op


def build(plan: Plan) -> Kernel:
    """The tile program of a plan: nodes of `redfuser.codegen.nodes`, checked by `check_kernel`, run by printers."""
    space = Space(plan, dict(plan.tiles.static) if plan.tiles else {})
    shared: tuple[Buf, ...] = ()
    if plan.strategy == "tiles":
        phases, shared = build_tiles(space)
    elif plan.strategy in ("rows", "columns"):
        phases, shared = build_rows(space)
    else:
        phases = build_elementwise(space, space.flat.outs)
    phases += _empty_stream(space)
    return Kernel(
        space.flat.name,
        space.compute,
        tuple(space.tensors.values()),
        tuple(space.outs.values()),
        space.sizes,
        tuple(space.static.items()),
        phases,
        shared,
        (f"schedule: {plan.strategy}", *plan.notes),
    )


def _empty_stream(space: Space) -> tuple[Phase, ...]:
    """Where the stream is empty, outputs are what the definition makes of identities: written last."""
    if not space.flat.empty or space.flat.stream is None:
        return ()
    length = space.size(space.flat.stream)
    return build_elementwise(space, space.flat.empty, op("eq", length, 0))
