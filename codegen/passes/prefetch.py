"""Prefetch what the next row or block will read, while sweeps compute.

The first sweep with a transcendental operation computes long enough to hide all of it. Cheap sweeps are as fast as
memory: two of them share it, each a half of the row, so that memory never idles, and those that write leave it to the
others (variance of rows beyond the last cache: one sweep alone 1.1x, every second line for each 1.08x). A cheap sweep
alone reads one line after the other, and the machine fetches ahead as well (with ours: 1.02 to 1.06x, cosine of rows).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from redfuser.codegen.nodes import At, Stmt, Sweep
from redfuser.codegen.passes.bodies import Body, is_costly_sweep

SHARES = 2
"""Sweeps that share the lines: a trip of a sweep covers at least two."""


def prefetch(body: Body, lane: str, cells: Iterable[At]) -> Body:
    """Add `cells` (over the lane variable) to one or two sweeps of the statement list."""
    ahead = tuple(cells)
    sweeps = [i for i, s in enumerate(body) if isinstance(s, Sweep) and s.var == lane]
    if not ahead or not sweeps:
        return body
    costly = [i for i in sweeps if is_costly_sweep(body[i])]
    if len(sweeps) == 1 and not costly:
        return body
    reading = [i for i in sweeps if not _writes(body[i])] or sweeps
    chosen = costly[:1] or reading[-SHARES:]
    turns = {i: (k, len(chosen)) for k, i in enumerate(chosen)}
    return tuple(replace(s, ahead=ahead, turn=turns[i]) if i in turns and isinstance(s, Sweep) else s
                 for i, s in enumerate(body))


def _writes(s: Stmt) -> bool:
    return isinstance(s, Sweep) and bool(s.puts)
