"""What masked elements are for certain: proofs that no data, however large, may break."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from expression_values import evaluate

from redfuser.extract.certain import certainly
from redfuser.ir import Cast, Const, Expr, Idx, Load, Ref, op, select

INF = math.inf
X, Y, KEEP, M = Load("x", ("n",)), Load("y", ("n",)), Load("keep", ("n",)), Ref("m")
DTYPES = {"x": "float32", "y": "float32", "keep": "bool"}
OUT, HIGH = Const(-INF), Const(INF)

CERTAIN: list[tuple[Expr, float]] = [
    (OUT - M, -INF), (op("exp", OUT - M), 0.0), (op("exp", OUT - M) * Y, 0.0),
    (op("exp", OUT * 0.5 + X) / Ref("l"), 0.0),
    (op("exp2", (OUT + X) * 1.4), 0.0), (op("exp", -(HIGH + X)), 0.0), (op("exp", OUT * op("exp", X)), 0.0),
    (op("exp", OUT / (abs(X) + 1.0)), 0.0), (op("max", OUT, Const(-INF)), -INF), (op("min", HIGH, X) * 0.0, 0.0),
    (X / HIGH, 0.0), (Const(0.0) * X, 0.0), (Const(0.0) / X, 0.0), (Const(0.0) * Const(0.0) * op("log", X), 0.0),
    (1.0 / (1.0 + op("exp", HIGH - X)), 0.0), (op("tanh", OUT + X) + 1.0, 0.0), (op("exp", OUT / (X * X)), 0.0),
    (select(op("gt", OUT, Y), X, 0.0), 0.0), (select(op("lt", X, HIGH), 0.0, Y), 0.0),
    (op("and", KEEP, Const(False)), 0),
    (op("not", op("eq", OUT, X)), 1), (Cast("bool", op("exp", OUT)), 0), (op("max", OUT + X, 5.0) - 5.0, 0.0),
    (select(KEEP, Const(0.0), op("exp", OUT)), 0.0), (op("max", OUT, X) * 0.0, 0.0), (op("sign", OUT) + 1.0, 0.0),
    (op("gt", Idx("n"), Const(-1.0)), 1), (op("le", op("exp", X), Const(0.0)), 0),
]
UNCERTAIN: list[tuple[Expr, float]] = [
    (op("exp", Const(-1e4) - M), 0.0), (op("max", Const(-3.0), X) - X, 0.0), (op("exp", OUT * X), 0.0),
    (op("exp", OUT / X), 0.0), (OUT - OUT, 0.0), (op("exp", op("max", OUT, -800.0) + X), 0.0), (OUT * 0.0, 0.0),
    (select(op("gt", op("min", HIGH, 3.0), X), 0.0, Y), 0.0), (op("max", Const(-1e4) + X, 0.0), 0.0),
    (1.0 / (1.0 + op("exp", -(Const(-1e4) + X))), 0.0), (select(op("gt", Const(-100.0), X), 1.0, 0.0), 0.0),
    (op("exp", OUT + HIGH), 0.0), (X - X * 1.0, 0.0), (select(KEEP, OUT, X), -INF), (op("exp", OUT * Idx("n")), 0.0),
    (op("exp", Const(-1000.0)), 0.0), (op("exp", Const(-1000.0)) * op("exp", X), 0.0),
    (1.0 / op("exp", op("max", X, 1000.0)), 0.0), (op("exp", op("min", X, -1000.0)) * Y, 0.0),
    (op("exp", OUT * op("tanh", X)), 0.0), (op("ge", Idx("n"), Const(1.0)), 1),
]


@pytest.mark.parametrize(("e", "value"), CERTAIN, ids=lambda x: str(x)[:50])
def test_certain_whatever_the_data_are(e: Expr, value: float) -> None:
    assert certainly(e, value, DTYPES)
    assert not certainly(e, value + 2.0 if math.isfinite(value) else -value, DTYPES)


@pytest.mark.parametrize(("e", "value"), UNCERTAIN, ids=lambda x: str(x)[:50])
def test_data_could_break_it(e: Expr, value: float) -> None:
    assert not certainly(e, value, DTYPES)


def grown(rng: random.Random, size: int) -> Expr:
    """A random expression over elements, results, masks and numbers."""
    if size <= 1:
        numbers = [Const(v) for v in (-INF, -INF, INF, 0.0, 1.0, -3.0, 8.0)]
        return rng.choice([X, Y, M, Cast("float64", KEEP), *numbers])
    kind = rng.random()
    if kind < 0.35:
        fn = rng.choice(["neg", "abs", "exp", "exp2", "tanh", "sign", "floor", "atan", "sin"])
        return op(fn, grown(rng, size - 1))
    left = rng.randrange(1, size)
    a, b = grown(rng, left), grown(rng, size - left)
    if kind < 0.85:
        fn = rng.choice(["add", "sub", "mul", "mul", "div", "max", "min"])
        return op(fn, a, rng.choice([X, M, op("exp", X), Const(INF)]) if fn == "div" else b)  # no divisor is 0
    comparison = op(rng.choice(["lt", "le", "gt", "ge", "eq", "ne"]), a, b)
    return select(comparison, rng.choice([Const(0.0), Const(-INF), X]), rng.choice([Const(0.0), Y]))


def test_claims_hold_for_random_numbers() -> None:
    """Whatever value is certain is that of every draw in which nothing overflows, underflows or is undefined."""
    rng, claims = random.Random(7), 0
    for _ in range(12000):
        e = grown(rng, rng.randrange(2, 9))
        claimed = [v for v in (0.0, -INF, INF, 1.0) if certainly(e, v, DTYPES)]
        assert len(claimed) < 2
        found = {v for _ in range(8) if not math.isnan(v := _drawn(e, rng))} if claimed else set()
        assert found <= set(claimed), (str(e), claimed, found)
        claims += bool(found)
    assert claims > 300


def _drawn(e: Expr, rng: random.Random) -> float:
    values: dict[Expr, Any] = {}

    def leaf(e: Expr) -> Any:
        if e not in values:
            values[e] = float(rng.random() < 0.5) if e == KEEP else 10 ** rng.uniform(-3, 3) * rng.choice((-1, 1))
        return values[e]

    try:
        return float(evaluate(e, leaf, over="raise", under="raise", divide="raise"))
    except FloatingPointError:
        return math.nan
