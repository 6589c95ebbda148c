"""Signs and bounds: what may be concluded about an expression from what is known of its parts, and the work it saves.

Every fact must hold for every non-empty prefix of the stream: a running maximum of absolute values may be 0, so it is
nonnegative but never positive. A value that does not exist (1 / 0) has every sign. Where bounds are known, a maximum or
minimum with them does nothing: |x| <= max |x| makes clip(x / max |x|, -1, 1) the same as x / max |x|. Numeric bounds of
elements (-1 <= tanh x) come from outside, see `redfuser.derivation.interval`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from redfuser.ir import Expr, Size, Var, op, select, walk, wrap
from redfuser.rules.language import (
    STREAM,
    Condition,
    Fact,
    Law,
    Max,
    Min,
    Rule,
    Sum,
    at_most,
    exponent,
    nonnegative,
    nonpositive,
    nonzero,
    number,
    positive,
    rule,
)

a, b, c, f, k, q = map(Var, "abcfkq")
ONE, MINUS_ONE = wrap(1), wrap(-1)
larger, smaller = op("max", a, b), op("min", a, b)
One = tuple[str, Condition, *tuple[Condition, ...]]

_NUMBERS: tuple[One, ...] = (
    ("a number above 0 is positive", positive(q), number(q), positive(q)),
    ("a number from 0 on is nonnegative", nonnegative(q), number(q), nonnegative(q)),
    ("a number up to 0 is nonpositive", nonpositive(q), number(q), nonpositive(q)),
    ("a number other than 0 is nonzero", nonzero(q), number(q), nonzero(q)),
)
_SIGNS: tuple[One, ...] = (
    ("a > 0 gives a >= 0", nonnegative(a), positive(a)),
    ("a > 0 gives a != 0", nonzero(a), positive(a)),
    ("a non-empty stream has a positive length", positive(Size(STREAM))),
)
_SUMS: tuple[One, ...] = (
    ("a > 0 and b >= 0 give a + b > 0", positive(a + b), positive(a), nonnegative(b)),
    ("a, b >= 0 gives a + b >= 0", nonnegative(a + b), nonnegative(a), nonnegative(b)),
    ("a, b <= 0 gives a + b <= 0", nonpositive(a + b), nonpositive(a), nonpositive(b)),
    ("a <= b gives a - b <= 0", nonpositive(a - b), at_most(a, b)),
    ("a <= b gives b - a >= 0", nonnegative(b - a), at_most(a, b)),
)
_PRODUCTS: tuple[One, ...] = (
    ("a, b > 0 gives a b > 0", positive(a * b), positive(a), positive(b)),
    ("a, b >= 0 gives a b >= 0", nonnegative(a * b), nonnegative(a), nonnegative(b)),
    ("a, b <= 0 gives a b >= 0", nonnegative(a * b), nonpositive(a), nonpositive(b)),
    ("a <= 0 and b >= 0 give a b <= 0", nonpositive(a * b), nonpositive(a), nonnegative(b)),
    ("a, b != 0 gives a b != 0", nonzero(a * b), nonzero(a), nonzero(b)),
    ("a > 0 gives 1 / a > 0", positive(1 / a), positive(a)),
    ("a >= 0 gives 1 / a >= 0 where it exists", nonnegative(1 / a), nonnegative(a)),
    ("a <= 0 gives 1 / a <= 0 where it exists", nonpositive(1 / a), nonpositive(a)),
    ("1 / a is never 0", nonzero(1 / a), nonzero(a)),
)
_FUNCTIONS: tuple[One, ...] = (
    ("e^a > 0", positive(np.exp(a))),
    ("2^a > 0", positive(np.exp2(a))),
    ("|a| >= 0", nonnegative(abs(a))),
    ("|a| > 0 for a != 0", positive(abs(a)), nonzero(a)),
    ("sqrt a >= 0", nonnegative(np.sqrt(a))),
    ("sqrt a > 0 for a > 0", positive(np.sqrt(a)), positive(a)),
    ("a^2 >= 0", nonnegative(a**2)),
    ("a^4 >= 0", nonnegative(a**4)),
    ("a^6 >= 0", nonnegative(a**6)),
    ("a^k >= 0 for a >= 0", nonnegative(a**k), nonnegative(a), exponent(k)),
    ("a^k > 0 for a > 0", positive(a**k), positive(a), exponent(k)),
    ("a^b > 0 for a > 0 and any b", positive(a**b), positive(a)),
)
_STREAMS: tuple[One, ...] = tuple(
    (f"{word} a {sign} 0 where a {sign} 0 everywhere", holds(over(a)), holds(a))
    for word, over in (("sum", Sum), ("max", Max), ("min", Min))
    for sign, holds in ((">", positive), (">=", nonnegative), ("<=", nonpositive))
)
_EXTREMES: tuple[One, ...] = (
    *((f"{x} {sign} 0 gives max(a, b) {sign} 0", holds(larger), holds(x)) for x in (a, b)
      for sign, holds in ((">", positive), (">=", nonnegative))),
    *((f"{x} <= 0 gives min(a, b) <= 0", nonpositive(smaller), nonpositive(x)) for x in (a, b)),
    ("a, b <= 0 gives max(a, b) <= 0", nonpositive(larger), nonpositive(a), nonpositive(b)),
    ("a, b > 0 gives min(a, b) > 0", positive(smaller), positive(a), positive(b)),
    ("a, b >= 0 gives min(a, b) >= 0", nonnegative(smaller), nonnegative(a), nonnegative(b)),
    ("max a - min a >= 0", nonnegative(Max(a) - Min(a))),
)
_CHOICES: tuple[One, ...] = (
    *((f"a where {words}, else b, is {kind} for b {sign} 0", holds(e), holds(b)) for words, e, *signs in (
        ("a > 0", select(op("gt", a, 0), a, b), ("positive", ">", positive), ("nonzero", "!=", nonzero)),
        ("0 < a", select(op("lt", 0, a), a, b), ("positive", ">", positive), ("nonzero", "!=", nonzero)),
        ("a != 0", select(op("ne", a, 0), a, b), ("nonzero", "!=", nonzero)),
        ("a is not 0", select(op("eq", a, 0), b, a), ("nonzero", "!=", nonzero)),
    ) for kind, sign, holds in signs),
    *((f"a, b {sign} 0 gives (a or b) {sign} 0", holds(select(c, a, b)), holds(a), holds(b))
      for sign, holds in ((">", positive), (">=", nonnegative), ("<=", nonpositive), ("!=", nonzero))),
)
_BOUNDS: tuple[One, ...] = (
    ("|a| <= f gives a <= f", at_most(a, f), at_most(abs(a), f)),
    ("|a| <= f gives -f <= a", at_most(-f, a), at_most(abs(a), f)),
    ("|a| <= f gives a / f <= 1", at_most(a / f, ONE), at_most(abs(a), f)),
    ("|a| <= f gives -1 <= a / f", at_most(MINUS_ONE, a / f), at_most(abs(a), f)),
    ("0 <= a <= f gives a / f <= 1", at_most(a / f, ONE), at_most(a, f), nonnegative(a)),
    ("e^a <= 1 for a <= 0", at_most(np.exp(a), ONE), nonpositive(a)),
)


def _facts(title: str, rows: tuple[One, ...]) -> Iterator[Fact]:
    """One fact per row, numbered within its family."""
    for i, (law, conclusion, *conditions) in enumerate(rows):
        names = [x.name for c in (conclusion, *conditions) for e in c.args for x in walk(e) if isinstance(x, Var)]
        yield Fact(f"{title}-{i + 1}", law, tuple(sorted(set(names))), conclusion, tuple(conditions))


FACTS = tuple(x for title, rows in (
    ("sign-of-number", _NUMBERS), ("sign", _SIGNS), ("sign-of-sum", _SUMS), ("sign-of-product", _PRODUCTS),
    ("sign-of-function", _FUNCTIONS), ("sign-of-reduction", _STREAMS), ("sign-of-extreme", _EXTREMES),
    ("sign-of-choice", _CHOICES), ("bound", _BOUNDS)) for x in _facts(title, rows))


@rule("exact", phase="simplify", where=[at_most("b", "a")])
def larger_is_first(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """max(a, b) = a for b <= a"""
    return op("max", a, b), a


@rule("exact", phase="simplify", where=[at_most("a", "b")])
def larger_is_second(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """max(a, b) = b for a <= b"""
    return op("max", a, b), b


@rule("exact", phase="simplify", where=[at_most("a", "b")])
def smaller_is_first(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """min(a, b) = a for a <= b"""
    return op("min", a, b), a


@rule("exact", phase="simplify", where=[at_most("b", "a")])
def smaller_is_second(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """min(a, b) = b for b <= a"""
    return op("min", a, b), b


def _with_number(fn: str) -> tuple[Rule, ...]:
    """max (min) of a value and a number on the far side of 0, or of a bound of the value."""
    toward, away = (nonnegative, nonpositive) if fn == "max" else (nonpositive, nonnegative)
    sign, other = (">=", "<=") if fn == "max" else ("<=", ">=")

    def turned(a: Expr, q: Expr) -> tuple[Expr, Expr]:
        return op(fn, q, a), op(fn, a, q)

    def value(a: Expr, q: Expr) -> tuple[Expr, Expr]:
        return op(fn, a, q), a

    def limit(a: Expr, q: Expr) -> tuple[Expr, Expr]:
        return op(fn, a, q), q

    def bounded(a: Expr, p: Expr, q: Expr) -> tuple[Expr, Expr]:
        return op(fn, a, q), a

    turned.__doc__ = f"{fn}(q, a) = {fn}(a, q) for a number q"
    value.__doc__ = f"{fn}(a, q) = a for a {sign} 0 and a number q {other} 0"
    limit.__doc__ = f"{fn}(a, q) = q for a {other} 0 and a number q {sign} 0"
    bounded.__doc__ = f"{fn}(a, q) = a for a {sign} p and numbers p {sign} q"
    order = (at_most("q", "p"), at_most("p", "a")) if fn == "max" else (at_most("p", "q"), at_most("a", "p"))
    return tuple(
        rule("exact", phase="simplify", name=f"{fn}-{law.__name__}", group="bounds", where=[number("q"), *where])(law)
        for law, where in ((turned, ()), (value, (toward("a"), away("q"))), (limit, (away("a"), toward("q"))),
                           (bounded, (number("p"), *order))))


RULES: tuple[Law, ...] = (
    *FACTS, larger_is_first, larger_is_second, smaller_is_first, smaller_is_second, *_with_number("max"),
    *_with_number("min"))
