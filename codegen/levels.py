"""Levels of accumulators: those of one level read accumulators of lower levels only. Their dtypes and identities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from redfuser.derivation.fusion import Accumulator
from redfuser.extract.flatten import Flat
from redfuser.ir import MONOIDS, Const, Expr, Let, op, refs, select
from redfuser.ir.ops import PIVOT

PIVOTS = 4
"""Elements that a pivot is taken from."""
SHIFTS = ("max", "min")


def state_dtype(a: Accumulator, compute: str) -> str:
    """Dtype of a scalar accumulator: float64 for sums and products, the compute dtype for extrema, bool for truths."""
    if a.monoid in ("any", "all"):
        return "bool"
    return "float64" if a.monoid in ("sum", "prod") else compute


def sampled(i: Expr, length: Expr) -> Expr:
    """Positions that a pivot is taken from, for i < PIVOTS: the first ones, and some spread over the whole stream."""
    last = op("sub", length, 1)
    spread = op("idiv", op("mul", op("sub", op("mul", i, 2), PIVOTS - 1), length), PIVOTS + 1)
    return select(op("lt", i, PIVOTS // 2), op("min", i, last), spread)


def nearer_zero(value: Expr, best: Expr) -> Expr:
    """The pivot after one more element; NaN and infinities never become one."""
    return select(op("lt", op("abs", value), op("abs", best)), value, best)


def read_pivot(best: Expr) -> Expr:
    """A pivot that no element gave is 0."""
    return select(op("eq", best, identity(PIVOT)), 0.0, best)


def identity(monoid: str) -> Const:
    """The neutral element as a constant."""
    value = MONOIDS[monoid].identity
    return Const(bool(value)) if monoid in ("any", "all") else Const(float(value))


@dataclass(frozen=True)
class Level:
    """Accumulators of one level and the dependencies known after it."""

    accumulators: tuple[Accumulator, ...]
    dependencies: tuple[Let, ...]


def running(levels: Iterable[Level]) -> frozenset[str]:
    """Names that change while the loop over these levels runs."""
    names = ((*(a.name for a in level.accumulators), *(d.name for d in level.dependencies)) for level in levels)
    return frozenset(n for own in names for n in own)


def levels_of(flat: Flat, names: tuple[str, ...]) -> list[Level]:
    """The levels of one pass. Pivots are known up front; results of other passes are final: neither adds a level."""
    own = {a.name: a for a in flat.accumulators if a.name in names and a.monoid != PIVOT}
    dependencies = {d.name: d for d in flat.dependencies}
    number = flat.passes.index(names)
    unknown = {n for p in flat.passes[number + 1 :] for n in p}
    memo: dict[str, int] = {}

    def level(name: str) -> int:
        """-1 for what is known before the pass, the number of accumulators for what only a later pass knows."""
        if name not in memo:
            if name in unknown:
                memo[name] = len(flat.accumulators)
            elif name in own:
                memo[name] = 1 + max((level(r) for r in refs(own[name].body)), default=-1)
            elif name in dependencies:
                memo[name] = max((level(r) for r in refs(dependencies[name].expr)), default=-1)
            else:
                memo[name] = -1
        return memo[name]

    count = 1 + max(map(level, own), default=-1)
    return [
        Level(
            tuple(a for a in own.values() if level(a.name) == i),
            tuple(d for d in flat.dependencies if level(d.name) == i),
        )
        for i in range(count)
    ]
