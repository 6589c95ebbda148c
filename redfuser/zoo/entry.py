"""One entry of the catalogue: a cascaded reduction in plain NumPy, and what mathematics says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from redfuser import pipeline
from redfuser.derivation import Verdict
from redfuser.derivation.derive import dependent_stages
from redfuser.errors import RedfuserError
from redfuser.frontend import Spec
from redfuser.ir import Axis, Cascade, Expr, Idx, Let, Load, Part, Reduce, Reduction, Ref, Size, Tensor, rewrite
from redfuser.ir.partition import Partition

KINDS = ("data", "normal", "positive", "unit", "mask", "onehot", "number")
"""What an argument holds: `data` follows the data set in use, the others are the same in all of them."""


@dataclass(frozen=True)
class Argument:
    """An argument of an entry: names of its axes and what it holds (one of `KINDS`)."""

    name: str
    axes: tuple[str, ...]
    kind: str = "data"

    @classmethod
    def parse(cls, name: str, text: str) -> Argument:
        """From "i n" or "i n: mask".

        Raises
        ------
        ValueError
            for an unknown kind.
        """
        axes, _, kind = text.partition(":")
        kind = kind.strip() or "data"
        if kind not in KINDS:
            raise ValueError(f"argument {name!r} is of kind {kind!r}; known are {', '.join(KINDS)}")
        return cls(name, tuple(axes.split()), kind)

    @property
    def spec(self) -> Spec:
        """What stands for it while the function is traced; all sizes are symbolic."""
        if self.kind == "number":
            return Spec((), "float64", weak=True)
        return Spec(self.axes, "bool" if self.kind == "mask" else "float32")


@dataclass(frozen=True)
class Entry:
    """A cascaded reduction with the right answer.

    name          unique
    family        the field it comes from
    source        where it is used, in words
    fn            the definition, plain NumPy; in longdouble it is the reference
    arguments     of `fn`, in order
    verdict       the right one
    accumulators  the least number of accumulators per row that determine every reduction of the cascade in the fewest
                  passes; neither the count of elements nor pivots are counted
    passes        the least number of passes
    hard          names of data sets (`redfuser.zoo.data`) on which it is well conditioned
    reason        why it has no single pass; for a fusible one empty, or why it has one although it does not look so
    """

    name: str
    family: str
    source: str
    fn: Callable[..., Any]
    arguments: tuple[Argument, ...]
    verdict: Verdict
    accumulators: int
    passes: int
    hard: tuple[str, ...]
    reason: str = ""

    def partition(self) -> Partition:
        """All cascades of the function."""
        traced = pipeline.trace_step(self.fn, {a.name: a.spec for a in self.arguments}, self.name)
        return pipeline.partition_step(pipeline.term_step(traced))

    def cascade(self, parts: Partition | None = None) -> Cascade:
        """The cascade of the entry: the one with dependent reductions; others may run over other axes besides.

        Raises
        ------
        RedfuserError
            when no reductions depend on each other, or the stream is swept by more than one cascade.
        """
        parts = self.partition() if parts is None else parts
        chained = [c for c in parts.cascades if dependent_stages(c) > 1]
        if not chained:
            raise RedfuserError(f"entry {self.name!r} has no dependent reductions")
        over = [c.name for c in parts.cascades if c.reductions and c.axis == chained[0].axis]
        if len(over) > 1:
            raise RedfuserError(f"the stream of {self.name!r} is swept by {len(over)} cascades: {', '.join(over)}")
        return chained[0]


@dataclass(frozen=True)
class Family:
    """A named list of entries; `family.entry(...)` decorates the function that defines one."""

    name: str
    entries: list[Entry] = field(default_factory=list)

    def entry(self, source: str, *, accumulators: int, passes: int = 1, verdict: str = "FUSIBLE", hard: str = "mixed",
              reason: str = "", **arguments: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Add the decorated function. `arguments`: name -> axes, see `Argument.parse`; `hard`: names of data sets."""

        def add(fn: Callable[..., Any]) -> Callable[..., Any]:
            parsed = tuple(Argument.parse(name, text) for name, text in arguments.items())
            self.entries.append(Entry(fn.__name__, self.name, source, fn, parsed, Verdict(verdict), accumulators,
                                      passes, tuple(hard.split()), reason))
            return fn

        return add


def canonical(c: Cascade) -> Cascade:
    """The reductions of a cascade with all names replaced by their order of appearance; outputs do not count.

    Two entries with the same canonical form ask the same question.
    """
    return _Renaming().cascade(c)


class _Renaming:
    """Replaces names consistently, in order of first use."""

    def __init__(self) -> None:
        self.names: dict[tuple[str, str], str] = {}

    def new(self, kind: str, old: str) -> str:
        count = sum(k == kind for k, _ in self.names)
        return self.names.setdefault((kind, old), f"{kind}{count}")

    def axes(self, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self.new("axis", a) for a in names)

    def expr(self, e: Expr) -> Expr:
        def rename(x: Expr) -> Expr | None:
            if isinstance(x, Load):
                return Load(self.new("tensor", x.tensor),
                            tuple(self.new("axis", a) if isinstance(a, str) else a for a in x.axes))
            if isinstance(x, Ref):
                return Ref(self.new("value", x.name), self.axes(x.axes))
            if isinstance(x, (Idx, Size)):
                return type(x)(self.new("axis", x.axis))
            if isinstance(x, Reduce):
                return Reduce(x.monoid, self.new("axis", x.axis), x.body)
            if isinstance(x, Part):
                return Part(x.part, tuple(self.new("axis", a) if isinstance(a, str) else a for a in x.axes), x.body)
            return None

        return rewrite(e, rename)

    def cascade(self, c: Cascade) -> Cascade:
        assert c.axis is not None
        stream = self.new("axis", c.axis)
        producers = tuple(Let(self.new("value", p.name), self.axes(p.axes), self.expr(p.expr)) for p in c.producers)
        reductions = tuple(Reduction(self.new("value", r.name), r.monoid, self.expr(r.body), self.axes(r.axes))
                           for r in c.reductions)
        known = {old: new for (kind, old), new in self.names.items() if kind == "tensor"}
        tensors = tuple(Tensor(known[t.name], self.axes(t.axes), t.dtype) for t in c.tensors if t.name in known)
        parts = {a.name: len(a.parts) for a in c.axes}
        axes = tuple(Axis(new, None, ("part",) * parts.get(old, 0))
                     for (kind, old), new in self.names.items() if kind == "axis")
        return Cascade("", stream, axes, tuple(sorted(tensors, key=str)), producers, reductions, (),
                       tuple(sorted(map(self.expr, c.assumptions), key=str)))
