"""Random cascades from a small typed grammar: chains of reductions as people write them.

A move (`redfuser.testing.moves`) adds one reduction. Each needs facts of a certain type (a shift and its maximum, a
location and the data it belongs to, a mass and its weights), so later stages depend on earlier ones in ways that are
often fusible. A few moves are not fusible on purpose. Choices come from a `Chooser`: the standard generator of a seed,
or hypothesis.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from redfuser.ir import Axis, Cascade, Expr, Load, Out, Ref, Tensor, check_cascade, free_axes, walk
from redfuser.testing.draft import AXES, PRODUCERS, STREAM, Chooser, Draft
from redfuser.testing.moves import FIRST, next_move
from redfuser.testing.subjects import outs_of

STAGES = 4
LONG_STAGES = 7
"""Most moves of a cascade, and of one in eight."""


DTYPES = ("float64", "float32")
"""Dtypes of the inputs and outputs of random cascades."""


def draw_cascade(choose: Chooser, stages: int = STAGES, name: str = "random",
                 dtypes: Sequence[str] = DTYPES) -> Cascade:
    """A cascade of 3 or more reductions over the axis n; every result and sometimes two arrays among its outs."""
    s = Draft(choose, choose.choice(dtypes))
    choose.choice(FIRST)(s)
    most = LONG_STAGES if stages >= STAGES and choose.choice(range(8)) == 0 else stages
    for _ in range(choose.choice(range(2, most + 1))):
        next_move(s)(s)
    return _finish(s, name)


def _finish(s: Draft, name: str) -> Cascade:
    """The cascade with the tensors, axes and producers it uses."""
    outs = [o for r in s.reductions for o in outs_of(r, s.dtype)]
    if s.masses and s.pick(0, 1):
        weight, mass = s.choose.choice(s.masses)
        outs.append(_array("out_w", weight / mass, s.dtype))
    if s.locations and s.scales and s.pick(0, 1):
        data, location = s.choose.choice(s.locations)
        outs.append(_array("out_z", (data - location) / s.choose.choice(s.scales), s.dtype))
    tensors = tuple(Tensor(t, axes, s.dtype) for t, axes in AXES.items())
    built = used_only(Cascade(name, STREAM, tuple(Axis(a) for a in "pnkd"), tensors, PRODUCERS,
                              tuple(s.reductions), tuple(outs)))
    check_cascade(built)
    return built


def _array(name: str, e: Expr, dtype: str) -> Out:
    return Out(name, tuple(a for a in ("p", STREAM) if a in free_axes(e)), e, dtype)


def used_only(c: Cascade) -> Cascade:
    """The cascade without the tensors, axes and producers that nothing reads."""
    producers = {p.name: p for p in c.producers}
    exprs: list[Expr] = [*(r.body for r in c.reductions), *(o.expr for o in c.outs)]
    read: set[str] = set()
    for e in exprs:  # grows while it is read
        for name in sorted({x.name for x in walk(e) if isinstance(x, Ref)} & producers.keys() - read):
            read.add(name)
            exprs.append(producers[name].expr)
    loads = {x.tensor for e in exprs for x in walk(e) if isinstance(x, Load)}
    tensors = tuple(t for t in c.tensors if t.name in loads)
    carried = [t.axes for t in tensors] + [r.axes for r in c.reductions] + [o.axes for o in c.outs]
    used = {a for axes in carried for a in axes} | {str(c.axis)}
    return replace(c, axes=tuple(a for a in c.axes if a.name in used), tensors=tensors,
                   producers=tuple(p for p in c.producers if p.name in read))


def random_cascade(seed: int, stages: int = STAGES) -> Cascade:
    """The cascade of a seed."""
    return draw_cascade(random.Random(f"cascade {seed}"), stages, f"random{seed}")
