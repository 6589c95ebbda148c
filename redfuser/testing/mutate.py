"""Planted mistakes: fused cascades with one thing wrong, for tests of the tests."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from redfuser.derivation import FusedCascade
from redfuser.ir import Expr, New, Old, Op, children, with_children
from redfuser.ir.ops import PIVOT

_OTHER_MONOID = {"sum": "max", "prod": "sum", "max": "min", "min": "max", "any": "all", "all": "any", PIVOT: "max"}
_OTHER_ORDER = {"argmax": "argmin", "argmin": "argmax", "topk": "bottomk", "bottomk": "topk"}
_DROPS = {"add": "term", "sub": "term", "mul": "factor", "div": "divisor", "select": "guard", "exp": "exponential",
          "neg": "sign"}


def mutants(fused: FusedCascade) -> Iterator[tuple[FusedCascade, str]]:
    """Every mutant of a fused cascade with what was changed; each differs from `fused` as a node."""
    seen = {fused}
    for mutant, description in _all(fused):
        if mutant not in seen:
            seen.add(mutant)
            yield mutant, description


def other_monoid(monoid: str) -> str:
    """Another monoid whose values look the same; the same one where there is none."""
    kind, colon, length = monoid.partition(":")
    return _OTHER_MONOID.get(monoid) or _OTHER_ORDER.get(kind, kind) + colon + length


def mutate_fused(fused: FusedCascade, seed: int) -> tuple[FusedCascade, str]:
    """One mutant, and what was changed.

    Raises
    ------
    ValueError
        when there is nothing to change (a cascade without accumulators).
    """
    found = list(mutants(fused))
    if not found:
        raise ValueError(f"fusion {fused.cascade.name} has no accumulator that could be wrong")
    return random.Random(seed).choice(found)


def _all(fused: FusedCascade) -> Iterator[tuple[FusedCascade, str]]:
    corrections = dict(fused.corrections)
    for name, e in corrections.items():
        kept = tuple((n, x) for n, x in fused.corrections if n != name)
        yield replace(fused, corrections=kept), f"correction of {name} dropped"
        for changed, what in ((_swapped(e, name), "old and new exchanged"), *_edits(e)):
            new = tuple((n, changed if n == name else x) for n, x in fused.corrections)
            yield replace(fused, corrections=new), f"correction of {name}: {what}"
    for i, a in enumerate(fused.accumulators):
        others = fused.accumulators[:i], fused.accumulators[i + 1 :]
        wrong = replace(a, monoid=other_monoid(a.monoid))
        if wrong != a:
            what = f"{a.name}: {wrong.monoid} for {a.monoid}"
            yield replace(fused, accumulators=(*others[0], wrong, *others[1])), what
        for changed, what in _edits(a.body):
            wrong = replace(a, body=changed)
            yield replace(fused, accumulators=(*others[0], wrong, *others[1])), f"body of {a.name}: {what}"
    for i, d in enumerate(fused.dependencies):
        for changed, what in _edits(d.expr):
            new_deps = (*fused.dependencies[:i], replace(d, expr=changed), *fused.dependencies[i + 1 :])
            yield replace(fused, dependencies=new_deps), f"dependency {d.name}: {what}"
    for name, e in fused.epilogue:
        for changed, what in _edits(e):
            epilogue = tuple((n, changed if n == name else x) for n, x in fused.epilogue)
            yield replace(fused, epilogue=epilogue), f"epilogue of {name}: {what}"


def _swapped(e: Expr, own: str) -> Expr:
    """Old and new exchanged, but for the value that is being corrected."""
    if isinstance(e, Old) and e.name != own:
        return New(e.name)
    if isinstance(e, New):
        return Old(e.name)
    return with_children(e, tuple(_swapped(c, own) for c in children(e)))


def _edits(e: Expr) -> Iterator[tuple[Expr, str]]:
    """The expression with one operand, guard or function left out."""
    for i, c in enumerate(children(e)):
        for changed, what in _edits(c):
            yield with_children(e, (*children(e)[:i], changed, *children(e)[i + 1 :])), what
    if not isinstance(e, Op) or e.fn not in _DROPS:
        return
    word = _DROPS[e.fn]
    if e.fn == "select":
        yield e.args[1], f"{word} {e.args[0]} dropped (always the first branch)"
        yield e.args[2], f"{word} {e.args[0]} dropped (always the second branch)"
    elif len(e.args) == 1:
        yield e.args[0], f"{word} of {e.args[0]} dropped"
    else:
        yield e.args[0], f"{word} {e.args[1]} dropped"
        if e.fn in ("add", "mul"):
            yield e.args[1], f"{word} {e.args[0]} dropped"
