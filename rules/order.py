"""The best elements and their positions keep their order under strictly increasing maps: shifts, positive scales, exp.

The position rests on every difference between elements, so a factor must be positive, not merely nonnegative, and a
map that saturates in floating-point arithmetic (tanh) moves nothing: elements that differ would become equal. The
places of a list that is longer than the stream are left out of these laws: a finished stream has enough elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from redfuser.ir import Expr, Part, Reduce, op, select
from redfuser.ir.monoids import INDEX, VALUE
from redfuser.rules.language import (
    ANY,
    STREAM,
    Best,
    Condition,
    Fact,
    Rule,
    fact,
    nonnegative,
    nonpositive,
    part,
    positive,
    rule,
)


def _moved(word: str, largest: bool) -> Iterator[Rule]:
    """Shift, scale and increasing functions, for the value and the index at every place."""

    def best(body: Expr) -> Expr:
        return Best(body, largest=largest)

    def named(name: str) -> str:
        return f"{word}-{name}"

    @rule("exact", free_of="f", varying="a", name=named("value-shift"))
    def value_shift(a: Expr, f: Expr) -> tuple[Expr, Expr]:
        """the best of a + f are those of a, plus f"""
        return part(VALUE, best(a + f)), part(VALUE, best(a)) + f

    @rule("exact", free_of="f", varying="a", name=named("index-shift"))
    def index_shift(a: Expr, f: Expr) -> tuple[Expr, Expr]:
        """a + f is best where a is"""
        return part(INDEX, best(a + f)), part(INDEX, best(a))

    @rule("exact", free_of="f", varying="a", where=[positive("f")], name=named("value-scale"))
    def value_scale(a: Expr, f: Expr) -> tuple[Expr, Expr]:
        """the best of a f are those of a, times f, for f > 0"""
        return part(VALUE, best(a * f)), part(VALUE, best(a)) * f

    @rule("exact", free_of="f", varying="a", where=[positive("f")], name=named("index-scale"))
    def index_scale(a: Expr, f: Expr) -> tuple[Expr, Expr]:
        """a f is best where a is, for f > 0"""
        return part(INDEX, best(a * f)), part(INDEX, best(a))

    @rule("exact", varying="a", name=named("value-of-negative"))
    def value_of_negative(a: Expr) -> tuple[Expr, Expr]:
        """the largest of -a are the smallest of a, negated"""
        return part(VALUE, best(-a)), -part(VALUE, Best(a, largest=not largest))

    @rule("exact", varying="a", name=named("index-of-negative"))
    def index_of_negative(a: Expr) -> tuple[Expr, Expr]:
        """-a is largest where a is smallest"""
        return part(INDEX, best(-a)), part(INDEX, Best(a, largest=not largest))

    yield from (value_shift, index_shift, value_scale, index_scale, value_of_negative, index_of_negative)
    for map_, where in ((np.exp, ()), (np.exp2, ()), (np.log, (positive("a"),)), (np.log2, (positive("a"),)),
                        (np.sqrt, (nonnegative("a"),))):
        yield from _increasing(word, largest, map_, where)


def _increasing(word: str, largest: bool, map_: np.ufunc, where: tuple[Condition, ...]) -> Iterator[Rule]:
    """The laws of one strictly increasing function."""

    def value(a: Expr) -> tuple[Expr, Expr]:
        best = Best(map_(a), largest=largest)
        return part(VALUE, best), map_(part(VALUE, Best(a, largest=largest)))

    def index(a: Expr) -> tuple[Expr, Expr]:
        return part(INDEX, Best(map_(a), largest=largest)), part(INDEX, Best(a, largest=largest))

    plural = {VALUE: "values", INDEX: "positions"}
    for law, name in ((value, VALUE), (index, INDEX)):
        law.__doc__ = f"{map_.__name__} increases: it keeps the order of the elements ({plural[name]} of the {word})"
        yield rule("exact", varying="a", where=where, name=f"{word}-{name}-of-{map_.__name__}", group="order")(law)


def _arg(name: str, body: Expr) -> Expr:
    return Reduce(name, STREAM, body)


def _one(name: str, value: Expr) -> Expr:
    return Part(name, (), value)


@rule("exact", free_of="f", varying="a")
def argmax_of_distance(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """|a + f| is largest where a is largest or where it is smallest, at the first of both when they are as far"""
    high, low = _arg("argmax", a), _arg("argmin", a)
    above, below = _one(VALUE, high) + f, -(_one(VALUE, low) + f)
    first, last = _one(INDEX, high), _one(INDEX, low)
    where = select(op("gt", above, below), first, select(op("gt", below, above), last, op("min", first, last)))
    return _one(INDEX, _arg("argmax", abs(a + f))), where


@rule("exact", free_of="f", varying="a")
def value_of_argmax_of_distance(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """the value at the argmax of |a + f| is the larger of both distances"""
    above, below = _one(VALUE, _arg("argmax", a)) + f, -(_one(VALUE, _arg("argmin", a)) + f)
    return _one(VALUE, _arg("argmax", abs(a + f))), op("max", above, below)


@rule("exact", free_of="f", varying="a")
def argmax_of_multiple(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """a f is largest where a is largest or smallest, by the sign of f; at the first element for f = 0"""
    first, last = _one(INDEX, _arg("argmax", a)), _one(INDEX, _arg("argmin", a))
    return _one(INDEX, _arg("argmax", a * f)), select(op("gt", f, 0), first, select(op("lt", f, 0), last, 0))


@rule("exact", free_of="f", varying="a")
def value_of_argmax_of_multiple(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """the value at the argmax of a f is the larger of the extremes times f"""
    high, low = _one(VALUE, _arg("argmax", a)), _one(VALUE, _arg("argmin", a))
    return _one(VALUE, _arg("argmax", a * f)), op("max", high * f, low * f)


def _signs(word: str, largest: bool) -> Iterator[Fact]:
    """A sign that all elements have is that of the best ones. A place that is still empty reads 0, so that only the
    first one, which no element leaves empty, is known to be positive."""
    for condition in (nonnegative, nonpositive):
        yield _sign(f"{condition.__name__}-{word}", largest, condition, (ANY,))
    yield _sign(f"positive-{word}", largest, positive, (0,))
    yield _sign(f"positive-{word}-single", largest, positive, ())


def _sign(name: str, largest: bool, condition: Callable[[Any], Condition], place: tuple[int | str, ...]) -> Fact:
    def sign(a: Expr) -> Condition:
        return condition(Part(VALUE, place, Best(a, largest=largest)))

    which = "best" if place == (ANY,) else "very best"
    sign.__doc__ = f"the {which} of {condition.__name__} elements is {condition.__name__} ({name})"
    return fact(where=[condition("a")], name=name)(sign)


RULES: tuple[Rule | Fact, ...] = (
    *_moved("largest", True), *_signs("largest", True), *_moved("smallest", False), *_signs("smallest", False),
    argmax_of_distance, value_of_argmax_of_distance, argmax_of_multiple, value_of_argmax_of_multiple,
)
