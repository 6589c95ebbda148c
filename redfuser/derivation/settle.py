"""Corrections on shifted data: a total of raw data, less the pivot times its weight, is the total of shifted data.

A correction may read S - w (p + b'), with S = sum w x and S' = sum w (x - p) the sum that is kept. It equals
the small S' - w b': S is replaced by what it is in the state, and p disappears.
"""

from __future__ import annotations

import random

from redfuser.derivation.accumulate import Model
from redfuser.derivation.combine import affine
from redfuser.derivation.passes import Plan
from redfuser.derivation.pivot import Shift
from redfuser.ir import Const, Expr, Old, Op, Ref, children, substitute, walk, with_children
from redfuser.rules.arithmetic import context, precision
from redfuser.rules.real import RealEvaluator, Undefined, by_table

DIGITS = 40
ZERO = 1e-25


def settle_pivots(model: Model, plan: Plan, shifts: tuple[Shift, ...]) -> None:
    """Rewrite the corrections of all sweeps."""
    held = {r: e for r, e in model.results.items() if isinstance(e, Ref)}
    plain: dict[Expr, Expr] = {x: e for r, e in held.items() for x in (model.symbol(r), Old(r))}
    for s in shifts:
        pivot = model.results[s.pivot.name]
        if not isinstance(pivot, Ref):
            continue
        totals: dict[Expr, Expr] = {Old(r): substitute(model.results[r], plain) for r in s.twins
                                    if isinstance(model.results.get(r), Op)}
        for sweep in plan.sweeps:
            for k, e in sweep.corrections.items():
                sweep.corrections[k] = _settled(e, plain, totals, pivot)


def _settled(e: Expr, plain: dict[Expr, Expr], totals: dict[Expr, Expr], pivot: Ref) -> Expr:
    """`e` with every sum that reads a total, and does not depend on the pivot, written without either."""
    if isinstance(e, Op) and e.fn in ("add", "sub") and any(x in totals for x in walk(e)):
        form = affine(substitute(substitute(e, totals), plain), {pivot.name})
        if form is not None and pivot.name in form[0] and _vanishes(form[0][pivot.name]):
            return form[1]
    return with_children(e, tuple(_settled(c, plain, totals, pivot) for c in children(e)))


def _vanishes(e: Expr) -> bool:
    """Whether an expression of state is 0 whatever the state is, at a random point."""
    mp = context()
    rng = random.Random(str(e))
    with precision(DIGITS):
        leaves = {x: mp.mpf(rng.uniform(0.5, 2)) for x in sorted(set(walk(e)), key=str)
                  if not children(x) and not isinstance(x, Const)}
        try:
            return bool(abs(RealEvaluator(by_table(leaves), 1)(e)) < ZERO)
        except Undefined:
            return False
