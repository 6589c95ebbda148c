"""Facts that would let a finite state follow a refused stage: the evidence is asked for again with the fact granted."""

from __future__ import annotations

from dataclasses import replace

from redfuser.derivation.evidence import Ranks, growth
from redfuser.ir import Cascade, Expr, Load, Op, Reduction, Ref, rewrite, walk

_ROUNDINGS = frozenset({"rint", "floor", "ceil"})


def unlocking(cascade: Cascade, stage: str, final: frozenset[str]) -> tuple[str, ...]:
    """What would let a finite state follow a stage that has none, in words."""
    found: list[str] = []
    if _helps(growth(cascade, stage, final, positive=True)):
        names = " & ".join(f"({x} > 0)" for x in _inputs(cascade, stage))
        found.append("if its inputs were known to be positive, finitely many accumulators would do: "
                     f"rf.assume({names})")
    exact = _without_rounding(cascade)
    if exact != cascade and _helps(growth(exact, stage, final)):
        found.append("if rounding may be moved, finitely many accumulators would do: allow=\"requantize\"")
    return tuple(found)


def _helps(ranks: Ranks | None) -> bool:
    return ranks is not None and not ranks.open


def _without_rounding(cascade: Cascade) -> Cascade:
    def step(e: Expr) -> Expr | None:
        return e.args[0] if isinstance(e, Op) and e.fn in _ROUNDINGS else None

    reductions = tuple(Reduction(r.name, r.monoid, rewrite(r.body, step), r.axes) for r in cascade.reductions)
    return replace(cascade, reductions=reductions)


def _inputs(cascade: Cascade, stage: str) -> list[str]:
    """Real inputs along the stream that a stage reads, also through what it depends on."""
    bodies = {r.name: r.body for r in cascade.reductions} | {p.name: p.expr for p in cascade.producers}
    real = {t.name for t in cascade.tensors if t.dtype.startswith(("float", "bfloat")) and cascade.axis in t.axes}
    seen: set[str] = set()
    found: dict[str, None] = {}
    todo = [stage]
    while todo:
        name = todo.pop()
        if name in seen or name not in bodies:
            continue
        seen.add(name)
        for e in walk(bodies[name]):
            if isinstance(e, Load) and e.tensor in real:
                found[e.tensor] = None
            elif isinstance(e, Ref):
                todo.append(e.name)
    return list(found)
