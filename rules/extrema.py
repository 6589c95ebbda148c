"""max and min commute with monotone maps: shifts by, scalings by and maxima with something free of the stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from redfuser.ir import Expr, op
from redfuser.rules.language import Condition, Max, Min, Rule, nonnegative, positive, rule


@rule("exact", free_of="f", varying="a")
def max_shift(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """max (a + f) = max a + f"""
    return Max(a + f), Max(a) + f


@rule("exact", free_of="f", varying="a")
def min_shift(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """min (a + f) = min a + f"""
    return Min(a + f), Min(a) + f


@rule("exact", free_of="f", varying="a", where=[nonnegative("f")])
def max_scale(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """max (a f) = (max a) f for f >= 0"""
    return Max(a * f), Max(a) * f


@rule("exact", free_of="f", varying="a", where=[nonnegative("f")])
def min_scale(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """min (a f) = (min a) f for f >= 0"""
    return Min(a * f), Min(a) * f


@rule("exact")
def max_of_negative(a: Expr) -> tuple[Expr, Expr]:
    """max (-a) = -min a"""
    return Max(-a), -Min(a)


@rule("exact")
def min_of_negative(a: Expr) -> tuple[Expr, Expr]:
    """min (-a) = -max a"""
    return Min(-a), -Max(a)


@rule("exact", free_of="f", varying="a")
def max_of_distance(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """max |a + f| is reached where a is largest or smallest"""
    return Max(abs(a + f)), op("max", Max(a) + f, -(Min(a) + f))


@rule("exact", varying="a")
def max_of_square(a: Expr) -> tuple[Expr, Expr]:
    """max a^2 = (max |a|)^2"""
    return Max(a**2), Max(abs(a)) ** 2


@rule("exact", free_of="f", varying="a")
def max_of_multiple(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """max (a f) is reached where a is largest or smallest, by the sign of f"""
    return Max(a * f), op("max", Max(a) * f, Min(a) * f)


@rule("exact", free_of="f", varying="a")
def min_of_multiple(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """min (a f) is reached where a is largest or smallest, by the sign of f"""
    return Min(a * f), op("min", Max(a) * f, Min(a) * f)


@rule("exact", free_of="f", varying="a")
def max_with(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """max over the stream of max(a, f) = max(max a, f)"""
    return Max(op("max", a, f)), op("max", Max(a), f)


@rule("exact", free_of="f", varying="a")
def min_with(a: Expr, f: Expr) -> tuple[Expr, Expr]:
    """min over the stream of min(a, f) = min(min a, f)"""
    return Min(op("min", a, f)), op("min", Min(a), f)


def _monotone(word: str, over: Callable[[Any], Expr], map_: np.ufunc, where: tuple[Condition, ...] = ()) -> Rule:
    """max (or min) of an increasing function of a is that function of max a."""

    def law(a: Expr) -> tuple[Expr, Expr]:
        return over(map_(a)), map_(over(a))

    law.__doc__ = f"{word} {map_.__name__}(a) = {map_.__name__}({word} a): {map_.__name__} increases"
    return rule("exact", where=where, name=f"{word}-of-{map_.__name__}", group="extrema")(law)


MONOTONE = tuple(
    _monotone(word, over, map_, where)
    for word, over in (("max", Max), ("min", Min))
    for map_, where in ((np.exp, ()), (np.exp2, ()), (np.tanh, ()), (np.arctan, ()), (np.log, (positive("a"),)),
                        (np.log2, (positive("a"),)), (np.sqrt, (nonnegative("a"),)))
)

RULES = (max_shift, min_shift, max_scale, min_scale, max_of_negative, min_of_negative, max_of_distance, max_of_square,
         max_of_multiple, min_of_multiple, max_with,
         min_with, *MONOTONE)
