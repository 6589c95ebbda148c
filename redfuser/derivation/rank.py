"""Separation rank: how many accumulators a sum needs, measured numerically.

F(x, d) = sum over r of G_r(x) H_r(d) has a table F(x_i, d_j) of rank at most the number of terms. A rank that
grows with the table is evidence that no finite state can follow d. The x and d are sampled under their proven
relation: d_j are the results of a stream that contains every x_i (so x <= max x holds, sums of squares are
nonnegative, ...). It speaks of sums only: a max of |x - d| has full rank and yet two accumulators. And a table of
finite size cannot tell rank 25, as of (x - a)^4 (y - b)^4, from none: a body that is visibly a finite sum of products
is never held for infinite.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from redfuser.derivation.sample import Sampler, evaluate_results
from redfuser.derivation.skeleton import Skeleton, Stage, reads_state
from redfuser.ir import Const, Expr, Op, free_axes
from redfuser.rules.language import STREAM
from redfuser.rules.real import RealEvaluator, Undefined

SIZES = (8, 12)
"""Numbers of x: more than the accumulators of any moment with a binomial rule."""
ROWS_PER_COLUMN = 12
"""Number of d per x: kinks of F between neighbouring x must be met."""
DIGITS = 60
NEGLIGIBLE = 1e-30
EXTRA_ELEMENTS = (2, 3, 5)
WIDEST = 20.0
"""Standard deviation of the further elements of a stream, up to: the results must move across the whole range of x,
and also by little where the x are dense."""


@dataclass(frozen=True)
class Ranks:
    """Rank found at each size of the table. `finite`: the body is a finite sum of products, whatever the table says."""

    found: tuple[int, ...]
    sizes: tuple[int, ...] = SIZES
    finite: bool = False

    @property
    def growing(self) -> bool:
        """The rank grows with the table, full at first: no finite number of accumulators in sight.

        The larger table need not be full: two of its x may lie so close that no sampled d tells them apart.
        """
        return not self.finite and self.found[0] == self.sizes[0] < self.found[-1]

    @property
    def highest(self) -> int:
        """The largest rank found."""
        return max(self.found)

    def __str__(self) -> str:
        return " and ".join(f"{r} of {k}" for r, k in zip(self.found, self.sizes, strict=True))


def separation_ranks(skeleton: Skeleton, stage: Stage, final: frozenset[str] = frozenset()) -> Ranks | None:
    """Ranks of the body of a sum in its changing results (those not `final`); None where the test says nothing."""
    import mpmath

    if stage.monoid != "sum" or stage.crossed:
        return None
    with mpmath.workdps(DIGITS):
        try:
            found = tuple(_rank(_table(skeleton, stage, final, k), NEGLIGIBLE) for k in SIZES)
        except Undefined:
            return None
    return Ranks(found, finite=_is_finite(stage.body))


def _is_finite(e: Expr) -> bool:
    """Whether an expression is visibly a finite sum of products G(x) H(d)."""
    if _is_one_sided(e):
        return True
    if not isinstance(e, Op):
        return False
    if e.fn in ("add", "sub", "mul", "neg"):
        return all(map(_is_finite, e.args))
    if e.fn == "div":
        return _is_finite(e.args[0]) and _is_one_sided(e.args[1])
    if e.fn == "pow":
        power = e.args[1]
        return (isinstance(power, Const) and isinstance(power.value, int) and power.value >= 0
                and _is_finite(e.args[0]))
    return e.fn in ("exp", "exp2", "sin", "cos") and _is_additive(e.args[0])


def _is_additive(e: Expr) -> bool:
    """Whether an expression is a sum of terms that each depend on the stream or on results, not on both."""
    return _is_one_sided(e) or (isinstance(e, Op) and e.fn in ("add", "sub", "neg") and all(map(_is_additive, e.args)))


def _is_one_sided(e: Expr) -> bool:
    return STREAM not in free_axes(e) or not reads_state(e)


def _table(skeleton: Skeleton, stage: Stage, final: frozenset[str], k: int) -> list[list[Any]]:
    """Rows d_j, columns x_i."""
    rng = random.Random(f"{stage.name}:{k}")
    for signed in (True, False):
        sampler = Sampler(skeleton, rng, signed)
        try:
            return _sampled_table(skeleton, stage, final, k, sampler)
        except Undefined:
            if not signed:
                raise
    raise AssertionError("unreachable")


def _sampled_table(skeleton: Skeleton, stage: Stage, final: frozenset[str], k: int,
                   sampler: Sampler) -> list[list[Any]]:
    shared = sampler.units(k)
    fixed: dict[str, Any] = {}
    rows = []
    for _ in range(ROWS_PER_COLUMN * k):
        spread = sampler.rng.choice((sampler.rng.uniform(1.0, WIDEST), WIDEST ** sampler.rng.uniform(-0.5, 1.0)))
        stream = sampler.extended(shared, k, sampler.rng.choice(EXTRA_ELEMENTS), spread)
        results = evaluate_results(skeleton, stream, before=stage.name, fixed=fixed)
        fixed = fixed or {name: results[name] for name in results if name in final}
        evaluator = RealEvaluator(stream.lookup(results), stream.length)
        rows.append(list(evaluator.elements(evaluator(stage.body))[:k]))
    return rows


def _rank(table: list[list[Any]], negligible: float) -> int:
    """Rank by elimination with full pivoting; entries below `negligible` times the largest count as 0."""
    rows = [list(r) for r in table]
    size = len(rows[0])
    scale = max(abs(v) for r in rows for v in r)
    for rank in range(size):
        value, i, j = max((abs(rows[i][j]), i, j) for i in range(rank, len(rows))
                          for j in range(rank, size))
        if value <= scale * negligible:
            return rank
        rows[rank], rows[i] = rows[i], rows[rank]
        for r in rows:
            r[rank], r[j] = r[j], r[rank]
        for i in range(rank + 1, len(rows)):
            factor = rows[i][rank] / rows[rank][rank]
            rows[i] = [*rows[i][: rank + 1], *(a - factor * b for a, b in zip(rows[i][rank + 1:], rows[rank][rank + 1:],
                                                                             strict=True))]
    return size
