"""Whether the outputs of a cascade need what no finite state can follow.

Evidence speaks of stages, a verdict of the program: the sum of max(x - mean, 0) and that of min(x - mean, 0) have no
finite state each, and their total is 0. So a program is called impossible only where an output shows it. It does where
it tells the value of such a stage, everything else in it having a finite state; or where the derivatives of the output
by the elements of a prefix have a rank that grows.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import lru_cache
from typing import Any

from redfuser.derivation.evidence import growth, written_out
from redfuser.ir import Cascade, Const, Expr, Idx, Load, Part, Reduction, Ref, names_read, refs, rewrite
from redfuser.ir.names import free_name, numbered
from redfuser.rules.arithmetic import context, precision
from redfuser.rules.real import RealEvaluator, Undefined

DIGITS = 30
DRAWS = 4
"""Values of a stage of which an output must tell each pair apart."""


@lru_cache(maxsize=256)
def demanded(cascade: Cascade, refused: frozenset[str]) -> bool:
    """Whether some output shows that no finite state is enough. `refused`: stages that no finite state follows."""
    bodies = {r.name: r.body for r in cascade.reductions}
    definitions = bodies | {p.name: p.expr for p in cascade.producers}
    rests = {n: n in refused or bool(names_read([e], definitions) & refused) for n, e in bodies.items()}
    outputs = [written_out(cascade, o.expr) for o in cascade.outs] or [Ref(r.name, r.axes) for r in cascade.reductions]
    open_ = [(e, sorted(n for n in refs(e) if rests.get(n))) for e in outputs]
    return (any(len(names) == 1 and _tells(e, names[0]) and _grows(cascade, names[0]) for e, names in open_)
            or any(names and _output_grows(cascade, e) for e, names in open_))


def _grows(cascade: Cascade, stage: str) -> bool:
    found = growth(cascade, stage)
    return found is not None and found.growing


def _output_grows(cascade: Cascade, e: Expr) -> bool:
    """The same of an output, as the largest of a stream of equal numbers: the elements it reads are not those of the
    prefix."""
    def step(x: Expr) -> Expr | None:
        along = isinstance(x, (Load, Ref)) and cascade.axis in x.axes
        return Const(1.0) if along or (isinstance(x, Idx) and x.axis == cascade.axis) else None

    name = free_name(numbered("output"), {r.name for r in cascade.reductions} | {p.name for p in cascade.producers})
    shown = replace(cascade, reductions=(*cascade.reductions, Reduction(name, "max", rewrite(e, step), ())), outs=())
    found = growth(shown, name)
    return found is not None and found.open


def _tells(e: Expr, stage: str) -> bool:
    """Whether different values of a stage give different values of an output, whatever else it reads being the same."""
    if isinstance(e, Ref) or (isinstance(e, Part) and isinstance(e.body, Ref)):
        return True
    rng = random.Random(stage)
    with precision(DIGITS):
        number = context().mpf
        others: dict[str, Any] = {}

        def value(candidate: Any) -> Any:
            def find(x: Expr) -> Any:
                if isinstance(x, Ref) and x.name == stage:
                    return candidate
                if isinstance(x, (Ref, Load)):
                    return others.setdefault(str(x), number(rng.uniform(0.5, 1.5)))
                return number(1) if isinstance(x, Idx) else None

            return RealEvaluator(find, 1)(e)

        try:
            found = {value(number(rng.uniform(0.5, 3.0))) for _ in range(DRAWS)}
        except (Undefined, AttributeError, TypeError):  # a part of a value with several
            return False
        return len(found) == DRAWS
