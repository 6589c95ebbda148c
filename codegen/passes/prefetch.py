"""Prefetch what the next row or block will read, from the sweep that computes long enough to hide it.

That is the first sweep with a transcendental operation, else the last one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from redfuser.codegen.nodes import At, Stmt, Sweep
from redfuser.codegen.passes.bodies import Body, lane_expressions
from redfuser.ir import COSTLY, Expr, Op, children


def prefetch(body: Body, lane: str, cells: Iterable[At]) -> Body:
    """Add `cells` (over the lane variable) to one sweep of the statement list."""
    ahead = tuple(cells)
    sweeps = [i for i, s in enumerate(body) if isinstance(s, Sweep) and s.var == lane]
    if not ahead or not sweeps:
        return body
    chosen = next((i for i in sweeps if _is_costly(body[i])), sweeps[-1])
    sweep = body[chosen]
    assert isinstance(sweep, Sweep)
    return (*body[:chosen], replace(sweep, ahead=ahead), *body[chosen + 1 :])


def _is_costly(s: Stmt) -> bool:
    return isinstance(s, Sweep) and any(_holds_costly(e) for e in lane_expressions(s))


def _holds_costly(e: Expr) -> bool:
    return (isinstance(e, Op) and e.fn in COSTLY) or any(_holds_costly(c) for c in children(e))
