"""Every rule is its own test: draw the variables so that the conditions hold, evaluate both sides, compare."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from redfuser.errors import ArgumentError
from redfuser.ir import Cast, Expr, Part, Var, walk
from redfuser.ir.dtypes import finfo, is_float
from redfuser.ir.monoids import INDEX, NOWHERE, VALUE
from redfuser.rules.arithmetic import context, precision
from redfuser.rules.language import ANY, Condition, Fact, Law, Rule
from redfuser.rules.real import RealEvaluator, Undefined, Value, by_table, difference

DIGITS = 50
EXACT = 1e-30
"""Relative difference above which two sides differ: far above rounding at 50 digits, far below any real difference."""

SIMPLE = ("0", "1", "-1", "2", "0.5")
"""Numbers that a counterexample is made of where they break the law as well, simpler ones first."""

LONGER = 3
"""Places of a list beyond the elements of the stream."""


@dataclass(frozen=True)
class Check:
    """Result of sampling a rule. `counterexample`: variable -> value (a list: one per stream element), or None.

    `samples` counts those that met the conditions and gave the law a value; ok is False also when there was none: an
    untested rule is not a checked one. `law`: what was sampled. `sides`: what its sides are at the counterexample.
    """

    ok: bool
    samples: int
    counterexample: Mapping[str, Any] | None = None
    law: Law | None = None
    sides: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        name = "rule" if self.law is None else f"{self.law.name} ({self.law.law})"
        if self.ok:
            return f"{name}: ok, {self.samples} samples"
        if self.counterexample is None:
            return f"{name} was not checked: no sample was found on which its conditions hold and it has a value"
        where = ", ".join(f"{k} = {_shown(v)}" for k, v in self.counterexample.items())
        return f"{name} is wrong: at {where}" + "".join(f"\n  {line}" for line in self.sides)


def check_rule(law: Law, *, samples: int = 60, seed: int = 0) -> Check:
    """Sample a rule at random numbers (zero, negative, equal, tiny and large ones among them) in 50-digit arithmetic.

    A side without a real value (1/0, log of 0) must make the other side undefined too: an equation that holds only
    where one side is undefined would let the engine merge different numbers. Where both are undefined nothing was
    compared, and the sample does not count. What a fact says of a list must hold on a prefix too short to fill the list
    as well. A dependency that is a quotient
    (`equals(old, a / b)`) is 0 where its divisor is, as in the loop.

    Raises
    ------
    ArgumentError
        for anything but a rule or a fact.
    """
    if not isinstance(law, (Rule, Fact)):
        raise ArgumentError(f"check_rule takes a rule (rf.rule) or a fact, not {law!r}")
    rng = random.Random(f"{seed}:{law.name}")
    done = 0
    with precision(DIGITS):
        for _ in range(samples * 8):
            sample = draw_sample(law, rng)
            evaluator = evaluator_of(sample, rng)
            if not conditions_hold(law, evaluator):
                continue
            done += has_value(law, evaluator)
            if not law_holds(law, evaluator):
                sample = _simplest(law, sample, rng)
                shown = {k: readable(v) for k, v in sample.items()}
                return Check(False, done, shown, law, _sides(law, evaluator_of(sample, rng)))
            if done >= samples:
                break
    return Check(done > 0, done, law=law)


def _simplest(law: Law, sample: dict[str, Value], rng: random.Random) -> dict[str, Value]:
    """A sample that breaks the law on the fewest elements and the simplest numbers found."""
    def breaks(candidate: dict[str, Value]) -> bool:
        try:
            evaluator = evaluator_of(candidate, rng)
            return conditions_hold(law, evaluator) and not law_holds(law, evaluator)
        except Undefined:
            return False

    improved = True
    while improved:
        improved = False
        for candidate in _simpler(law, sample):
            if breaks(candidate):
                sample, improved = candidate, True
                break
    return sample


def _simpler(law: Law, sample: Mapping[str, Value]) -> Iterator[dict[str, Value]]:
    """Shorter streams, then the same with one number replaced by a simpler one; what conditions give follows."""
    longest = _length(sample, 1)
    for i in range(longest if longest > 1 else 0):
        yield {k: (*v[:i], *v[i + 1 :]) if isinstance(v, tuple) else v for k, v in sample.items()}
    for name, value in sample.items():
        if isinstance(value, int):  # an exponent
            yield from (_solved(law, {**sample, name: n}) for n in range(2, value))
            continue
        for i, old in enumerate(value if isinstance(value, tuple) else (value,)):
            for simple in map(context().mpf, SIMPLE):
                if old == simple:
                    break  # those before it are simpler and were tried
                new = (*value[:i], simple, *value[i + 1 :]) if isinstance(value, tuple) else simple
                candidate = _solved(law, {**sample, name: new})
                if candidate[name] == new:
                    yield candidate


def _solved(law: Law, sample: dict[str, Value]) -> dict[str, Value]:
    _solve(law, sample)
    return sample


def _sides(law: Law, evaluate: RealEvaluator) -> tuple[str, ...]:
    """What the sides of a rule are at a sample."""
    if isinstance(law, Fact):
        return (f"{law.conclusion} is false",)
    return tuple(f"{word}: {side} = {_result(_defined(side, evaluate))}"
                 for word, side in (("left", law.left), ("right", law.right)))


def _result(value: Any) -> str:
    if value is None:
        return "undefined"
    try:
        return _shown(readable(value))
    except (TypeError, ValueError, AttributeError):
        return str(value)


def _shown(value: Any) -> str:
    return f"[{', '.join(map(_shown, value))}]" if isinstance(value, list) else f"{value + 0.0:.9g}"


def evaluator_of(sample: Mapping[str, Value], rng: random.Random) -> RealEvaluator:
    """Evaluates expressions over the variables of a sample; the length is drawn where no variable has one."""
    return RealEvaluator(by_table({Var(k): v for k, v in sample.items()}), _length(sample, rng.choice((1, 2, 3, 5))))


def _length(sample: Mapping[str, Value], default: int) -> int:
    return next((len(v) for v in sample.values() if isinstance(v, tuple)), default)


def readable(value: Value) -> Any:
    """A value as plain numbers."""
    return [float(v) for v in value] if isinstance(value, tuple) else float(value)


def _kinds(law: Law, kind: str) -> frozenset[str]:
    return frozenset(a.name for c in law.conditions if c.kind == kind for a in c.args if isinstance(a, Var))


def draw_sample(law: Law, rng: random.Random) -> dict[str, Value]:
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
    mp = context()
    if pool and rng.random() < 0.2:
        value = rng.choice(pool)
    else:
        value = mp.mpf(rng.choice((0, 0, 1, -1, 2, -0.5, rng.gauss(0, 1), rng.gauss(0, 1), rng.gauss(0, 40),
                                       rng.gauss(0, 1e-6), rng.uniform(-200, 200))))
        pool.append(value)
    if sign in ("positive", "nonnegative"):
        value = abs(value)
    elif sign == "nonpositive":
        value = -abs(value)
    return mp.mpf(1) / 3 if value == 0 and sign in ("positive", "nonzero") else value


def _solve(law: Law, sample: dict[str, Value]) -> None:
    """Make conditions `equals(variable, expression)` true, and `at_most` with a variable on either side."""
    for c in (c for c in law.conditions if c.args):
        x = c.args[0]
        if c.kind == "equals" and isinstance(x, Var):
            try:
                sample[x.name] = _in_the_loop(_evaluator(sample))(c.args[1])
            except Undefined:
                continue
        elif c.kind == "at_most" and isinstance(c.args[1], Var):
            _push(sample, c.args[1].name, max, _evaluator(sample)(x))
        elif c.kind == "at_most" and isinstance(x, Var):
            _push(sample, x.name, min, _evaluator(sample)(c.args[1]))


def _push(sample: dict[str, Value], name: str, further: Callable[..., Any], bound: Value) -> None:
    """Move a variable beyond a bound, where it is not there yet."""
    value = sample[name]
    limit = further(bound) if isinstance(bound, tuple) else bound
    sample[name] = tuple(further(limit, v) for v in value) if isinstance(value, tuple) else further(limit, value)


def _evaluator(sample: Mapping[str, Value]) -> RealEvaluator:
    return RealEvaluator(by_table({Var(k): v for k, v in sample.items()}), _length(sample, 1))


def _in_the_loop(evaluate: RealEvaluator) -> RealEvaluator:
    """The same with 1/0 = 0: what a dependency is while nothing with weight was seen."""
    total = RealEvaluator(evaluate.lookup, evaluate.length)
    divide = total.ops["div"]
    total.ops = {**total.ops, "div": lambda a, b: divide(a, b) if b != 0 else total.mp.mpf(0)}
    return total


class _LongLists(RealEvaluator):
    """The same on a prefix that does not fill its lists: they are longer than the stream, the place spoken of is the
    last one where it may be any, and an empty place reads 0, as in the loop."""

    def __init__(self, evaluate: RealEvaluator) -> None:
        super().__init__(evaluate.lookup, evaluate.length)

    def _sampled(self, monoid: str) -> str:
        return monoid.replace(ANY, str(self.length + LONGER))

    def _part(self, e: Part) -> Value:
        value = self(e.body)
        place = -1 if e.axes == (ANY,) else e.axes[0] if e.axes else 0
        if isinstance(place, int) and place >= len(value.parts[e.part]):
            raise Undefined("no such place")
        empty = e.part == VALUE and INDEX in value.parts and value.parts[INDEX][place] == NOWHERE
        return self.mp.mpf(0) if empty else value.parts[e.part][place]


def conditions_hold(law: Law, evaluate: RealEvaluator) -> bool:
    """Whether the sampled values meet all conditions."""
    try:
        return all(condition_holds(c, evaluate) for c in law.conditions)
    except Undefined:
        return False


def condition_holds(c: Condition, evaluate: RealEvaluator) -> bool:
    """Whether the sampled values meet a condition. Guides of the search hold by definition."""
    values = [(_in_the_loop(evaluate) if c.kind == "equals" else evaluate)(a) for a in c.args]
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


def law_holds(law: Law, evaluate: RealEvaluator) -> bool:
    """Whether the sampled values obey the law, its conditions aside."""
    if isinstance(law, Fact):
        try:
            return all(condition_holds(law.conclusion, e) for e in (evaluate, _LongLists(evaluate)))
        except Undefined:
            return True  # the conclusion speaks of a value that does not exist
    left, right = _defined(law.left, evaluate), _defined(law.right, evaluate)
    if left is None or right is None:
        return left is right
    if law.truth == "exact":
        return bool(difference(left, right) < EXACT)
    if _out_of_range(law.left, evaluate) or _out_of_range(law.right, evaluate):
        return True  # what the type cannot hold has no rounding
    return _close(left, right, law.tolerance, evaluate)


def _out_of_range(e: Expr, evaluate: RealEvaluator) -> bool:
    """Whether a number is converted to a floating type that does not reach so far."""
    casts = [x for x in walk(e) if isinstance(x, Cast) and is_float(x.dtype)]
    return any(abs(v) > float(finfo(x.dtype).max) for x in casts for v in evaluate.elements(evaluate(x.body)))


def _close(left: Value, right: Value, tolerance: float, evaluate: RealEvaluator) -> bool:
    """Within `tolerance` of the largest magnitude in play, or within so many steps of a rounding to integers when it is
    1 or more (of the magnitude that would say nothing); the ratio of scales included."""
    old, new = (evaluate.lookup(Var(n)) for n in ("old", "new"))
    ratio = max(abs(new / old), abs(old / new)) if old and new else 1
    steps = tolerance >= 1
    pairs = zip(evaluate.elements(left), evaluate.elements(right), strict=True)
    return all(abs(a - b) <= tolerance * (1 + ratio) * (1 if steps else max(1, abs(a), abs(b))) for a, b in pairs)


def _defined(e: Expr, evaluate: RealEvaluator) -> Value | None:
    try:
        return evaluate(e)
    except Undefined:
        return None


def has_value(law: Law, evaluate: RealEvaluator) -> bool:
    """Whether any side of a rule, or all that a fact speaks of, has a real value."""
    if isinstance(law, Fact):
        return all(_defined(e, evaluate) is not None for e in law.conclusion.args)
    return any(_defined(e, evaluate) is not None for e in (law.left, law.right))
