"""Which integer operations of a trace can leave the range of their dtype: there the result wraps around, as NumPy's.

Ranges are closed intervals of what a node can hold, from the dtypes and constants that it is computed from. int64 is
no narrow dtype: sizes, positions and Python numbers are int64, and arithmetic on them counts as exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from redfuser.frontend.element import LARGEST_POWER
from redfuser.frontend.graph import Trace, TraceNode
from redfuser.ir.dtypes import numpy_dtype

Range = tuple[float, float]
"""Lowest and highest value; integers are Python integers, which are exact."""

EVERYTHING: Range = (-math.inf, math.inf)
TRUTH: Range = (0, 1)


def narrow(dtype: str) -> bool:
    """Whether arithmetic in a dtype wraps around within what float64 holds exactly: the integers below 64 bits."""
    kind = numpy_dtype(dtype)
    return kind.kind in "iu" and kind.itemsize < 8


def dtype_range(dtype: str) -> Range:
    """What a dtype can hold; everything for floats and for int64, whose arithmetic does not wrap here."""
    if dtype == "bool":
        return TRUTH
    if not narrow(dtype):
        return EVERYTHING
    info = np.iinfo(numpy_dtype(dtype))
    return int(info.min), int(info.max)


def wrapping(trace: Trace) -> frozenset[int]:
    """Positions of the elementwise operations whose exact result need not fit their dtype."""
    ranges: list[Range] = []
    found: set[int] = set()
    for i, n in enumerate(trace.nodes):
        exact, held = _exact(n, [ranges[j] for j in n.inputs]), dtype_range(n.dtype)
        fits = held[0] <= exact[0] and exact[1] <= held[1]
        if n.op == "ufunc" and not fits:
            found.add(i)
        ranges.append(exact if fits else held)
    return frozenset(found)


def _exact(n: TraceNode, given: list[Range]) -> Range:
    """The range of what a node computes from operands in these ranges, before it is converted to its dtype."""
    if n.op == "const":
        return (n.param, n.param) if math.isfinite(n.param) else EVERYTHING
    if n.op in ("size", "arange"):
        return 0, math.inf
    if n.op in ("view", "broadcast", "reshape"):
        return given[0]
    if n.op == "where":
        return _hull(*given[1:])
    if n.op == "cast":
        return _converted(n.dtype, given[0])
    if n.op == "reduce" and n.param[0] in ("maximum", "minimum"):
        return given[0]
    if n.op == "ufunc" and n.dtype != "bool":
        is_float = numpy_dtype(n.dtype).kind not in "iu"
        rule = None if is_float and n.param not in _ALSO_FLOAT else _UFUNCS.get(n.param)
        return EVERYTHING if rule is None else rule(*given)
    return dtype_range(n.dtype)


def _converted(dtype: str, given: Range) -> Range:
    if dtype == "bool":
        return TRUTH
    if numpy_dtype(dtype).kind not in "iu":
        return given
    low, high = (x if math.isinf(x) else math.trunc(x) for x in given)
    return low, high


def _hull(*ranges: Range) -> Range:
    return min(r[0] for r in ranges), max(r[1] for r in ranges)


def _times(a: float, b: float) -> float:
    return 0 if a == 0 or b == 0 else a * b


def _product(a: Range, b: Range) -> Range:
    corners = [_times(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _size(a: Range) -> Range:
    low, high = sorted((abs(a[0]), abs(a[1])))
    return (low if a[0] > 0 or a[1] < 0 else 0), high


def _square(a: Range) -> Range:
    return _product(_size(a), _size(a))


def _quotient(a: Range, b: Range) -> Range:
    """Rounded down; what is divided by 0 is 0. Only a negative divisor turns the sign around."""
    if b[0] >= 0:
        ends = [x if math.isinf(x) else x // max(b[0], 1) for x in a]
        return _hull((ends[0], ends[1]), (min(a[0], 0) and -1, 0))
    most = _size(a)[1]
    return -most, most


def _remainder(_: Range, b: Range) -> Range:
    """Of the sign of the divisor, and less in size."""
    return min(b[0] + 1, 0), max(b[1] - 1, 0)


def _power(a: Range, b: Range) -> Range:
    most = _size(a)[1]
    if most > 1 and b[1] > LARGEST_POWER:  # no narrow dtype holds it
        return EVERYTHING
    if b[0] == b[1] and b[0] % 2 == 0:
        a = _size(a)
    high = 1 if most <= 1 else most ** b[1]
    return (0 if a[0] >= 0 else -high), high


_UFUNCS: dict[str, Callable[..., Range]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]), "subtract": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "multiply": _product, "square": _square, "power": _power, "negative": lambda a: (-a[1], -a[0]), "absolute": _size,
    "positive": lambda a: a, "sign": lambda a: (-1, 1), "reciprocal": lambda a: (-1, 1),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])), "floor_divide": _quotient, "remainder": _remainder,
    **dict.fromkeys(("rint", "floor", "ceil", "trunc"),
                    lambda a: (a[0] if math.isinf(a[0]) else math.floor(a[0]),
                               a[1] if math.isinf(a[1]) else math.ceil(a[1]))),
}
_ALSO_FLOAT = frozenset({"negative", "absolute", "positive", "maximum", "minimum", "rint", "floor", "ceil", "trunc"})
"""Operations that round nothing beyond the range of their operands."""
