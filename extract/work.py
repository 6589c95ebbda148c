"""Count the work of a fused cascade: operations by class, state, bytes, for given lengths of its axes.

Expressions are counted as a graph: what occurs twice is computed once. An operation runs once per combination of the
axes its operands depend on, so what is free of the stream is counted outside of it. See docs/cost.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.extract.flatten import Flat, flatten
from redfuser.ir import (
    COSTLY,
    OPS,
    Cast,
    Const,
    Expr,
    New,
    Old,
    Op,
    Reduce,
    Ref,
    children,
    find_parts,
    free_axes,
    rewrite,
)
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.ops import BELOW, PIVOT
from redfuser.ir.term import base_axis

CLASSES = ("fma", "matmul", "div", "special", "libm", "compare", "shuffle")
"""fma: additions, multiplications and both at once; matmul: the same where operands with axes of their own meet, as in
a matrix product; div: division and square root; special: exp and log; libm: other functions, which a CPU computes one
by one; compare: comparisons, extrema, selections, conversions; shuffle: exchanges between lanes or threads at the
end of a reduction."""
VECTORS = frozenset({"exp", "exp2", *BELOW.values(), "log"})
"""Functions that CPU kernels compute in vectors."""


@dataclass(frozen=True)
class Work:
    """The work of one call.

    operations  class -> number of scalar operations
    state       bytes of accumulators per row (per combination of the axes all accumulators share)
    read        bytes of inputs that one sweep of the stream reads
    written     bytes of outputs
    sweeps      sweeps over the inputs: the passes, and one more for outputs along the stream
    row         bytes of inputs and outputs along the stream of one row: what must stay on chip to be read once
    """

    operations: Mapping[str, float]
    state: int
    read: float
    written: float
    sweeps: int
    row: float

    @property
    def total(self) -> float:
        """All scalar operations."""
        return sum(self.operations.values())

    @property
    def flops(self) -> float:
        """Operations as peak rates count them: a slot of a multiply-add as two, all others but exchanges as one."""
        return self.total + self.operations["fma"] + self.operations["matmul"] - self.operations["shuffle"]


def work(fused: FusedCascade, sizes: Mapping[str, int], dtype: str = "float32", *, block: int = 1024,
         lanes: int = 8, segments: int = 1, corrects: bool = True) -> Work:
    """The work of a fused cascade.

    Parameters
    ----------
    sizes
        length of every axis.
    dtype
        dtype of the arithmetic.
    block
        stream elements between two corrections.
    lanes
        elements that one vector, or one group of threads, works on together.
    segments
        parts the stream is split into; their states are merged.
    corrects
        False where rows stay on chip: final dependencies are known before they are used, nothing is corrected.
    """
    return work_of(flatten(fused, dtype), sizes, dtype, block=block, lanes=lanes, segments=segments, corrects=corrects)


def work_of(flat: Flat, sizes: Mapping[str, int], dtype: str = "float32", *, block: int = 1024, lanes: int = 8,
            segments: int = 1, corrects: bool = True) -> Work:
    """The work of a flattened cascade; see `work`."""
    count = Count(flat, sizes)
    stream = flat.stream
    length = count.size(stream) if stream else 1
    for names in flat.passes or ((),):
        count.start()  # a later pass computes its operands again
        for a in flat.accumulators:
            if a.name in names:
                count.reduction(a.monoid, a.body, {*a.axes, *((stream,) if stream else ())})
                count.add("shuffle", math.log2(max(lanes, 1)) * count.points(a.axes))
    blocks = max(1, -(-length // block)) if corrects else 1
    count.state(blocks, (blocks - 1 if corrects else 0) + 2 * (segments - 1))
    if corrects:
        count.start()  # a row that stays on chip keeps what it has computed
    for o in flat.outs:
        count.expression(o.expr)
    itemsize = numpy_dtype(dtype).itemsize
    wide = any(stream in o.axes for o in flat.outs)
    along = [(t.axes, t.dtype) for t in flat.tensors if stream in t.axes]
    along += [(o.axes, o.dtype) for o in flat.outs if stream in o.axes]
    shaped = [set(a.axes) for a in flat.accumulators if a.axes]
    shared = set.intersection(*shaped) if shaped else set[str]()
    return Work(
        operations=count.operations,
        state=sum(itemsize * values_of(a) * count.points(set(a.axes) - shared) for a in flat.accumulators),
        read=sum(count.points(t.axes) * numpy_dtype(t.dtype).itemsize for t in flat.tensors),
        written=sum(count.points(o.axes) * numpy_dtype(o.dtype).itemsize for o in flat.outs),
        sweeps=max(1, len(flat.passes)) + wide,
        row=sum(numpy_dtype(d).itemsize * count.points(set(axes) - shared) for axes, d in along),
    )


def values_of(a: Accumulator) -> int:
    """Numbers in one value of an accumulator: a sorted list has its length, in each of its parts."""
    m = find_parts(a.monoid)
    return 1 if m is None else len(m.parts) * (m.rank or 1)


def row_costs(flat: Flat, sizes: Mapping[str, int], slots: Mapping[str, float]) -> tuple[float, float]:
    """Multiply-add slots of one row: per element of the stream, and per merge of two states.

    `slots`: class of operation -> slots it takes.
    """
    rows = {a for o in flat.outs[:1] for a in o.axes} - {flat.stream}
    one = dict(sizes) | dict.fromkeys(rows, 1)
    elements = Count(flat, one | {flat.stream or "": 1})
    for a in flat.accumulators:
        elements.reduction(a.monoid, a.body, {*a.axes, *((flat.stream,) if flat.stream else ())})
    for o in flat.outs:
        if flat.stream in o.axes:
            elements.expression(o.expr)
    merge = Count(flat, one | {flat.stream or "": 1})
    merge.state(1, 2)
    return elements.slots(slots), merge.slots(slots)


def _placed(e: Expr, flat: Flat) -> Expr:
    """A correction with old and new values as references that know their axes."""
    axes = {a.name: a.axes for a in flat.accumulators} | {d.name: d.axes for d in flat.dependencies}

    def place(x: Expr) -> Expr | None:
        if isinstance(x, (Old, New)):
            return Ref(f"{type(x).__name__} {x.name}", axes.get(x.name, ()))
        return None

    return rewrite(e, place)


@dataclass
class Count:
    """Adds up operations; an expression that was counted since the last `start` is there already."""

    flat: Flat
    sizes: Mapping[str, int]
    operations: dict[str, float] = field(default_factory=lambda: dict.fromkeys(CLASSES, 0.0))
    seen: set[Expr] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.static = {a.name: a.size for a in self.flat.axes}

    def size(self, axis: str) -> int:
        """Length of an axis."""
        static = self.static.get(axis)
        return self.sizes.get(base_axis(axis), 1) if static is None else static

    def points(self, axes: Iterable[str]) -> int:
        """Number of combinations of positions."""
        return math.prod(self.size(a) for a in axes)

    def slots(self, taken: Mapping[str, float]) -> float:
        """What was counted, in slots of a multiply-add."""
        return sum(n * taken[k] for k, n in self.operations.items())

    def state(self, blocks: int, merges: int) -> None:
        """Dependencies once per block, corrections and combinations once per merge."""
        self.start()
        for e in [d.expr for d in self.flat.dependencies]:
            self.expression(e, blocks)
        if not merges:
            return
        for name, e in self.flat.corrections:
            if self.flat.accumulator(name) is not None:
                self.expression(_placed(e, self.flat), merges)
        self.add("fma", merges * sum(values_of(a) * self.points(a.axes) for a in self.flat.accumulators))

    def start(self) -> None:
        """A new region: nothing is at hand."""
        self.seen = set()

    def add(self, kind: str, number: float) -> None:
        """Count operations of a class."""
        self.operations[kind] += number

    def reduction(self, monoid: str, body: Expr, axes: set[str]) -> None:
        """A reduction over some of the axes: its body, and one combination per position."""
        if monoid == PIVOT:
            return  # a pivot is taken from a few elements
        points = self.points(axes | free_axes(body))
        if monoid == "sum" and isinstance(body, Op) and body.fn == "mul" and body not in self.seen:
            self.seen.add(body)
            for a in body.args:
                self.expression(a)
            self.add("matmul" if _is_matmul(body) else "fma", points)
            return
        self.expression(body)
        if not isinstance(body, Const):
            self.add("fma" if monoid in ("sum", "prod") else "compare", points)

    def expression(self, e: Expr, times: int = 1) -> None:
        """All operations of an expression that are not at hand, each `times` as often as its axes say."""
        if e in self.seen:
            return
        self.seen.add(e)
        if isinstance(e, Reduce):
            self.reduction(e.monoid, e.body, {e.axis})
            return
        parts = children(e)
        points = times * self.points(free_axes(e))
        if isinstance(e, Cast):
            self.add("compare", points)
        elif isinstance(e, Op):
            fused_with = next((a for a in e.args if _multiplies(a) and a not in self.seen), None)
            if e.fn in ("add", "sub") and fused_with is not None:
                self.seen.add(fused_with)
                parts = (*children(fused_with), *(a for a in e.args if a != fused_with))
            self.add(*_class_of(e, points))
        for c in parts:
            self.expression(c, times)


def _multiplies(e: Expr) -> bool:
    return isinstance(e, Op) and e.fn == "mul"


def _class_of(e: Op, points: float) -> tuple[str, float]:
    """Class and number of operations."""
    if e.fn == "pow":
        power = e.args[1].value if isinstance(e.args[1], Const) else None
        if power is not None and Fraction(power).denominator == 1 and 0 < power <= 64:
            n = int(power)
            return "fma", points * (n.bit_length() + bin(n).count("1") - 2)
        return "libm", 2 * points
    if e.fn in COSTLY:
        return "special" if e.fn in VECTORS else "libm", points
    if e.fn in ("div", "sqrt"):
        return "div", points
    if e.fn in ("add", "sub", "mul"):
        return "fma", points
    return "compare", 0 if e.fn == "neg" else points * (OPS[e.fn].arity > 0)


def _is_matmul(product: Op) -> bool:
    """Whether each operand has an axis that the other lacks, and one is common: both are used many times."""
    a, b = map(free_axes, product.args)
    return bool(a - b and b - a and a & b)

