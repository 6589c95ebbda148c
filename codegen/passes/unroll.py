"""Independent accumulators per sweep: as many as the registers hold."""

from __future__ import annotations

from dataclasses import replace

from redfuser.codegen.nodes import At, Sweep
from redfuser.codegen.passes.bodies import Body, is_costly_sweep, lane_expressions, map_bodies
from redfuser.extract import Profile
from redfuser.extract.choose import unroll as choose_unroll
from redfuser.ir import Const, walk


def unroll(body: Body, profile: Profile, compute: str) -> Body:
    """Set the unroll factor of every sweep from its reductions and loads."""
    out = []
    for s in body:
        if isinstance(s, Sweep):
            loads = {x for e in lane_expressions(s) for x in walk(e) if isinstance(x, At)}
            results = len(s.reds) + sum(len(f.names) for f in s.folds) + len(s.inserts)
            factor = choose_unroll(profile, results, len(loads), is_costly_sweep(s))
            if isinstance(s.lo, Const) and isinstance(s.hi, Const):
                vectors = max(1, int(s.hi.value - s.lo.value) // profile.lanes(compute))
                factor = min(factor, vectors)
            s = replace(s, unroll=factor)
        out.append(map_bodies(s, lambda b: unroll(b, profile, compute)))
    return tuple(out)
