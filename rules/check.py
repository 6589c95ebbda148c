"""Every rule is its own test: draw the variables so that the conditions hold, evaluate both sides, compare."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redfuser.ir import Expr, Var
from redfuser.rules.language import Condition, Fact, Law
from redfuser.rules.real import RealEvaluator, Undefined, Value, by_table, difference

DIGITS = 50
EXACT = 1e-30
"""Relative difference above which two sides differ: far above rounding at 50 digits, far below any real difference."""


@dataclass(frozen=True)
class Check:
    """Result of sampling a rule. `counterexample`: variable -> value (a list: one per stream element), or None.

    ok is False also when no sample met the conditions (`samples` is 0): an untested rule is not a checked one.
    """

    ok: bool
    samples: int
    counterexample: Mapping[str, Any] | None = None

    def __bool__(self) -> bool:
        return self.ok


def check_rule(law: Law, *, samples: int = 60, seed: int = 0) -> Check:
    """Sample a rule at random numbers (zero, negative, equal, tiny and large ones among them) in 50-digit arithmetic.

    A side without a real value (1/0, log of 0) must make the other side undefined too: an equation that holds only
    where one side is undefined would let the engine merge different numbers.
    """
    import mpmath

    rng = random.Random(f"{seed}:{law.name}")
    done = 0
    with mpmath.workdps(DIGITS):
        for _ in range(samples * 8):
            sample = _draw(law, rng)
            evaluator = RealEvaluator(by_table({Var(k): v for k, v in sample.items()}), rng.choice((1, 2, 3, 5)))
            evaluator.length = _length(sample, evaluator.length)
            if not _conditions_hold(law, evaluator):
                continue
            done += 1
            if not _holds(law, evaluator):
                return Check(False, done, {k: _readable(v) for k, v in sample.items()})
            if done >= samples:
                break
    return Check(done > 0, done)


def _length(sample: Mapping[str, Value], default: int) -> int:
    return next((len(v) for v in sample.values() if isinstance(v, tuple)), default)


def _readable(value: Value) -> Any:
    return [float(v) for v in value] if isinstance(value, tuple) else float(value)


def _kinds(law: Law, kind: str) -> frozenset[str]:
    return frozenset(a.name for c in law.conditions if c.kind == kind for a in c.args if isinstance(a, Var))


def _draw(law: Law, rng: random.Random) -> dict[str, Value]:
    """Random values of the variables; those that must be free, numbers or dependencies are scalars."""
    scalars = _kinds(law, "free") | _kinds(law, "number") | _kinds(law, "changes")
    vectors, exponents = _kinds(law, "varies"), _kinds(law, "exponent")
    signs = {name: kind for kind in ("nonnegative", "nonpositive", "nonzero", "positive") for name in _kinds(law, kind)}
    length = rng.choice((1, 2, 3, 5))
    pool: list[Any] = []
    sample: dict[str, Value] = {}
    for name in law.variables:
        if name in exponents:
            sample[name] = rng.randint(2, 6)
            continue
        is_vector = name in vectors or (name not in scalars and rng.random() < 0.5)
        values = tuple(_number(rng, signs.get(name), pool) for _ in range(length if is_vector else 1))
        sample[name] = values if is_vector else values[0]
    _solve(law, sample)
    return sample


def _number(rng: random.Random, sign: str | None, pool: list[Any]) -> Any:
    """A number of the wanted sign; often one that was drawn before, so that ties occur."""
    import mpmath

    if pool and rng.random() < 0.2:
        value = rng.choice(pool)
    else:
        value = mpmath.mpf(rng.choice((0, 0, 1, -1, 2, -0.5, rng.gauss(0, 1), rng.gauss(0, 1), rng.gauss(0, 40),
                                       rng.gauss(0, 1e-6), rng.uniform(-200, 200))))
        pool.append(value)
    if sign in ("positive", "nonnegative"):
        value = abs(value)
    elif sign == "nonpositive":
        value = -abs(value)
    return mpmath.mpf(1) / 3 if value == 0 and sign in ("positive", "nonzero") else value


def _solve(law: Law, sample: dict[str, Value]) -> None:
    """Make conditions `equals(variable, expression)` and `at_most(a, b)` between variables true."""
    for c in law.conditions:
        x = c.args[0]
        if c.kind == "equals" and isinstance(x, Var):
            try:
                sample[x.name] = _evaluator(sample)(c.args[1])
            except Undefined:
                continue
        elif c.kind == "at_most" and isinstance(x, Var) and isinstance(c.args[1], Var):
            low, high = _evaluator(sample)(x), sample[c.args[1].name]
            top = max(low) if isinstance(low, tuple) else low
            sample[c.args[1].name] = tuple(max(top, h) for h in high) if isinstance(high, tuple) else max(top, high)


def _evaluator(sample: Mapping[str, Value]) -> RealEvaluator:
    return RealEvaluator(by_table({Var(k): v for k, v in sample.items()}), _length(sample, 1))


def _conditions_hold(law: Law, evaluate: RealEvaluator) -> bool:
    try:
        return all(condition_holds(c, evaluate) for c in law.conditions)
    except Undefined:
        return False


def condition_holds(c: Condition, evaluate: RealEvaluator) -> bool:
    """Whether the sampled values meet a condition. Guides of the search hold by definition."""
    values = [evaluate(a) for a in c.args]
    if c.kind == "free":
        return not isinstance(values[0], tuple)
    if c.kind == "equals":
        return bool(difference(*values) < EXACT)
    tests = {"positive": lambda a: a > 0, "nonnegative": lambda a: a >= 0, "nonpositive": lambda a: a <= 0,
             "nonzero": lambda a: a != 0}
    if c.kind in tests:
        return all(tests[c.kind](v) for v in evaluate.elements(values[0]))
    if c.kind == "at_most":
        pairs = zip(evaluate.elements(values[0]), evaluate.elements(values[1]), strict=True)
        return all(a <= b for a, b in pairs)
    return True


def _holds(law: Law, evaluate: RealEvaluator) -> bool:
    if isinstance(law, Fact):
        try:
            return condition_holds(law.conclusion, evaluate)
        except Undefined:
            return True  # the conclusion speaks of a value that does not exist
    left, right = _defined(law.left, evaluate), _defined(law.right, evaluate)
    if left is None or right is None:
        return left is right
    if law.truth == "exact":
        return bool(difference(left, right) < EXACT)
    return _close(left, right, law.tolerance, evaluate)


def _close(left: Value, right: Value, tolerance: float, evaluate: RealEvaluator) -> bool:
    """Within `tolerance` of the largest magnitude in play, the ratio of scales included."""
    old, new = (evaluate.lookup(Var(n)) for n in ("old", "new"))
    ratio = abs(new / old) if old and new is not None else 1
    pairs = zip(evaluate.elements(left), evaluate.elements(right), strict=True)
    return all(abs(a - b) <= tolerance * (1 + ratio) * max(1, abs(a), abs(b)) for a, b in pairs)


def _defined(e: Expr, evaluate: RealEvaluator) -> Value | None:
    try:
        return evaluate(e)
    except Undefined:
        return None
