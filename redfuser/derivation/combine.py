"""Fewer accumulators: sums that are only ever read in one linear combination become a single sum.

After the search, sum q a^2 and sum q b^2 may be kept apart although only their difference is a result. The sum of the
combined bodies moves like they do, provided both are corrected by the same factor, and nothing else reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations

from redfuser.derivation.accumulate import Candidate, Model, mentioned
from redfuser.derivation.correct import Sweep
from redfuser.derivation.passes import Plan
from redfuser.derivation.simplify import collapse
from redfuser.derivation.skeleton import reads_state
from redfuser.ir import Const, Expr, Op, Ref, substitute

ZERO, ONE = Const(0), Const(1)
Affine = tuple[dict[str, Expr], Expr]
"""Coefficients of accumulators, and the rest."""


def combine(model: Model, plan: Plan) -> None:
    """Replace pairs of sums by their combination until none is left."""
    plain: dict[Expr, Expr] = {e: model.symbol(r) for r, e in model.results.items() if isinstance(e, Ref)}
    for r, e in model.results.items():
        if not isinstance(e, Ref):
            model.results[r] = collapse(substitute(e, plain))
    for sweep in plan.sweeps:
        while any(_merge(model, sweep, k, j) for k, j in _pairs(model, sweep)):
            pass


def _pairs(model: Model, sweep: Sweep) -> Iterator[tuple[str, str]]:
    """Two sums of the same axes that one stage introduced."""
    for k, j in combinations(sweep.accumulators, 2):
        a, b = model.accumulators[k], model.accumulators[j]
        if a.monoid == b.monoid == "sum" and (a.stage, a.axes) == (b.stage, b.axes):
            yield k, j


def _merge(model: Model, sweep: Sweep, k: str, j: str) -> bool:
    """Make one sum of two. False when something reads them in another way."""
    pair = {k, j}
    if any(pair & mentioned(e) for name, e in sweep.corrections.items() if name not in pair):
        return False
    if any(pair & mentioned(e) for e in model.dependencies.values()):
        return False
    readers = {r: affine(e, pair) for r, e in model.results.items() if pair & mentioned(e)}
    forms = [(dict(x[0]), x[1]) for x in readers.values() if x is not None and set(x[0]) == pair]
    if not readers or len(forms) < len(readers):
        return False
    weights = _common_weights(model, sweep, [f[0] for f in forms], k, j)
    if weights is None:
        return False
    moved = _moved(model, sweep, k, j, weights)
    if moved is None:
        return False
    new = _candidate(model, k, j, weights)
    for r, (coefficients, rest) in zip(readers, forms, strict=True):
        scale = ONE if coefficients == weights else coefficients[k]
        model.results[r] = collapse(new.ref * scale + rest)
    sweep.accumulators[sweep.accumulators.index(k)] = new.id
    sweep.accumulators.remove(j)
    for name in pair:
        sweep.corrections.pop(name, None)
    factor, step = moved
    if (factor, step) != (ONE, ZERO):
        sweep.corrections[new.id] = collapse(new.ref * factor + step)
    return True


def _common_weights(model: Model, sweep: Sweep, found: list[dict[str, Expr]], k: str, j: str) -> dict[str, Expr] | None:
    """Weights of the two sums in their combination: 1 and a number where all results have them in that ratio."""
    ratios = {_ratio(c[j], c[k]) for c in found}
    ratio = ratios.pop()
    if not ratios and ratio is not None:
        return {k: ONE, j: Const(int(ratio) if ratio.denominator == 1 else ratio)}
    settled = all(_is_settled(model, sweep, w) for w in found[0].values())
    return found[0] if settled and all(c == found[0] for c in found) else None


def _ratio(a: Expr, b: Expr) -> Fraction | None:
    """a / b where that is a number."""
    (p, x), (q, y) = _numeric_factor(a), _numeric_factor(b)
    return p / q if x == y and q else None


def _numeric_factor(e: Expr) -> tuple[Fraction, Expr]:
    """`e` as a number times an expression without numeric factors."""
    if isinstance(e, Const):
        return Fraction(e.value), ONE
    if isinstance(e, Op) and e.fn in ("neg", "mul", "div"):
        parts = [_numeric_factor(a) for a in e.args]
        if e.fn == "neg":
            return -parts[0][0], parts[0][1]
        (p, x), (q, y) = parts
        if e.fn == "mul":
            return p * q, collapse(x * y)
        if q:
            return p / q, collapse(x / y)
    return Fraction(1), e


def _is_settled(model: Model, sweep: Sweep, weight: Expr) -> bool:
    """Whether a weight stays what it is during the sweep: a number, or made of results of earlier passes."""
    changing = {*sweep.changing, *sweep.accumulators}
    return not reads_state(weight) or (sweep.index > 0 and not mentioned(weight) & changing
                                       and mentioned(weight) <= set(model.results))


def _candidate(model: Model, k: str, j: str, weights: dict[str, Expr]) -> Candidate:
    a, b = model.accumulators[k], model.accumulators[j]
    body = collapse(_scaled(a.body, weights[k]))
    other = weights[j]
    negative = isinstance(other, Const) and other.value < 0
    term = _scaled(b.body, Const(-other.value) if negative else other)  # type: ignore[attr-defined]
    return model.candidate(a.stage, "sum", body - term if negative else body + term)


def _scaled(body: Expr, weight: Expr) -> Expr:
    return collapse(body * weight)


def _moved(model: Model, sweep: Sweep, k: str, j: str, weights: dict[str, Expr]) -> tuple[Expr, Expr] | None:
    """Factor and step of the combination: both sums must have the same factor, and no other part in each other."""
    total: Expr = ZERO
    factors = []
    for name in (k, j):
        correction = sweep.corrections.get(name, model.accumulators[name].ref)
        form = affine(correction, {k, j})
        if form is None or set(form[0]) != {name}:
            return None
        factors.append(form[0][name])
        total = collapse(total + form[1] * weights[name])
    return (factors[0], total) if factors[0] == factors[1] else None


def affine(e: Expr, names: set[str]) -> Affine | None:
    """`e` as a sum of accumulators times coefficients plus a rest, or None."""
    if not names & mentioned(e):
        return {}, e
    if not isinstance(e, Op):
        return ({e.name: ONE}, ZERO) if isinstance(e, Ref) else None
    if e.fn in ("add", "sub", "neg"):
        parts = [affine(a, names) for a in e.args]
        if any(p is None for p in parts):
            return None
        signs = (-1,) if e.fn == "neg" else (1, -1) if e.fn == "sub" else (1, 1)
        return _sum([p for p in parts if p is not None], signs)
    if e.fn == "mul":
        for x, y in (e.args, e.args[::-1]):
            if not names & mentioned(y):
                return _times(affine(x, names), y)
    if e.fn == "div" and not names & mentioned(e.args[1]):
        return _times(affine(e.args[0], names), 1 / e.args[1])
    return None


def _sum(parts: list[Affine], signs: tuple[int, ...]) -> Affine:
    total: dict[str, Expr] = {}
    rest: Expr = ZERO
    for (coefficients, other), sign in zip(parts, signs, strict=True):
        for name, c in coefficients.items():
            total[name] = _plus(total.get(name, ZERO), c, sign)
        rest = _plus(rest, other, sign)
    return total, rest


def _plus(a: Expr, b: Expr, sign: int) -> Expr:
    if isinstance(b, Const) and sign < 0:
        b, sign = Const(-b.value), 1
    return collapse(a + b if sign > 0 else a - b)


def _times(form: Affine | None, factor: Expr) -> Affine | None:
    if form is None:
        return None
    return {n: collapse(c * factor) for n, c in form[0].items()}, collapse(form[1] * factor)
