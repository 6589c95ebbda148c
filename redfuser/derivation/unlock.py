"""Facts that would let a finite state follow a refused stage: the evidence is asked for again with the fact granted."""

from __future__ import annotations

from dataclasses import replace

from redfuser.derivation.evidence import SIZE, Ranks, growth
from redfuser.errors import RedfuserError
from redfuser.ir import Cascade, Const, Expr, Load, Op, names_read, op, refs, rewrite, walk
from redfuser.rules import APPROXIMATE, Rule

_MOVABLE = frozenset(law.left.fn for law in APPROXIMATE["requantize"]
                     if isinstance(law, Rule) and isinstance(law.left, Op))


def unlocking(cascade: Cascade, stage: str, final: frozenset[str]) -> tuple[str, ...]:
    """What would let a finite state follow a stage that has none, in words."""
    found: list[str] = []
    if _helps(growth(cascade, stage, final, positive=True)):
        names = " & ".join(f"({x} > 0)" for x in _inputs(cascade, stage))
        if names:
            found.append("if its inputs were known to be positive, finitely many accumulators would do: "
                         f"rf.assume({names})")
    if _without_rounding(cascade) != cascade:
        found += _requantized(cascade, stage)
    return tuple(found)


def _requantized(cascade: Cascade, stage: str) -> list[str]:
    """Whether roundings that may be moved let a stage be followed: tried, with its scales as they are and above 0."""
    option = 'allow=("requantize",)'
    if _follows(cascade, stage):
        return [f"if rounding may be moved: {option}"]
    if _follows(_with_safe_scales(cascade), stage):
        return [f"if rounding may be moved and the scale is never 0: np.maximum(scale, 1e-12) and {option}"]
    return []


def _follows(cascade: Cascade, stage: str) -> bool:
    from redfuser.derivation.derive import derive_cascade

    try:
        found = derive_cascade(cascade, allow=("requantize",))
    except RedfuserError:
        return False
    return stage not in {s.name for s in found.stages}


def _with_safe_scales(cascade: Cascade) -> Cascade:
    """The cascade with every divisor that is an earlier result at least a small number."""
    def step(e: Expr) -> Expr | None:
        if isinstance(e, Op) and e.fn == "div" and refs(e.args[1]):
            return op("div", e.args[0], op("max", e.args[1], Const(1e-12)))
        return None

    return replace(cascade, reductions=tuple(replace(r, body=rewrite(r.body, step)) for r in cascade.reductions))


def _helps(ranks: Ranks | None) -> bool:
    return ranks is not None and ranks.rank <= SIZE // 2


def _without_rounding(cascade: Cascade) -> Cascade:
    def step(e: Expr) -> Expr | None:
        return e.args[0] if isinstance(e, Op) and e.fn in _MOVABLE else None

    reductions = tuple(replace(r, body=rewrite(r.body, step)) for r in cascade.reductions)
    return replace(cascade, reductions=reductions)


def _inputs(cascade: Cascade, stage: str) -> list[str]:
    """Numeric inputs along the stream that a stage reads, also through what it depends on."""
    bodies = {r.name: r.body for r in cascade.reductions} | {p.name: p.expr for p in cascade.producers}
    names = {stage, *names_read([bodies[stage]], bodies)} & bodies.keys()
    loaded = {x.tensor for name in names for x in walk(bodies[name]) if isinstance(x, Load)}
    return [t.name for t in cascade.tensors
            if t.name in loaded and t.dtype != "bool" and cascade.axis in t.axes]
