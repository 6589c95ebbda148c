"""The fusion level: what the derivation found. Accumulators, dependencies, corrections, epilogue, passes.

The streaming meaning (every later level implements exactly this), for one pass over chunks of the stream axis:

    new dependencies  = combine(old, chunk) of the accumulators they read, then their expressions
    accumulator       = correction(old accumulators, old -> new dependencies) (+) reduce(body(chunk, new dependencies))

and for two partial states: merge(a, b) = correction(a: a -> ab) (+) correction(b: b -> ab). The empty state is
neutral and decided before any arithmetic. An extreme of nothing alive reads 0 in all of these
(`redfuser.derivation.dead`); results of earlier passes are final and read as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from redfuser.errors import CheckError
from redfuser.ir import (
    MONOIDS,
    Cascade,
    Const,
    Expr,
    Let,
    New,
    Node,
    Old,
    Reduce,
    Ref,
    free_axes,
    names_read,
    node,
    refs,
    walk,
)
from redfuser.ir.ops import label

COUNT = "count"
"""Name of the accumulator that counts the elements seen (sum of 1); added when anything mentions the stream length."""

NOTHING: Mapping[str, float] = {m: MONOIDS[m].identity for m in ("max", "min")}
"""What an extreme of nothing alive holds; the loop reads 0 for it."""


@node
class Accumulator(Node):
    """A value the loop carries: `name[axes] = (+)_stream body`.

    `body` reads loads, indices, producers of the cascade, and `Ref`s of accumulators and dependencies of lower level
    (their newest value). The monoid `pivot` holds a number to shift data by, the element nearest to zero: any
    value serves, so kernels take it from a few elements up front.
    """

    name: str
    monoid: str
    body: Expr
    axes: tuple[str, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether it counts the elements seen, whatever it is called: never 0 once there was one."""
        return (self.monoid, self.body) == ("sum", Const(1.0))

    def __str__(self) -> str:
        return f"{Ref(self.name, self.axes)} = {label(self.monoid)}({self.body})"


@node
class FusedCascade(Node):
    """The derived incremental form of one cascade.

    accumulators  in level order; `count` among them when needed
    dependencies  stream-free values computed from accumulators (mu = S / count), in dependency order
    corrections   accumulator name -> expression over Old(name)/New(name) of accumulators and dependencies.
                  Old(own name) is the accumulator being corrected. An accumulator without an entry is never corrected.
    epilogue      (reduction name, expression over Refs of accumulators, dependencies and earlier reductions), at least
                  for the reductions that outputs read
    conditions    the assumptions it was derived under, as text (`Derivation.conditions` tells those it needs)
    cascade       the definition; its outputs may have been rewritten to read accumulators and dependencies too (a name
                  means the result of a reduction first)
    passes        accumulator names swept together, in order; one entry: a single sweep of the stream. An accumulator
                  of a later pass reads results of earlier passes as final values and is never corrected for them.
    """

    cascade: Cascade
    accumulators: tuple[Accumulator, ...]
    dependencies: tuple[Let, ...]
    corrections: tuple[tuple[str, Expr], ...]
    epilogue: tuple[tuple[str, Expr], ...]
    conditions: tuple[str, ...] = ()
    passes: tuple[tuple[str, ...], ...] = ()

    def correction(self, name: str) -> Expr | None:
        """The correction of accumulator `name`, None when it has none."""
        return dict(self.corrections).get(name)

    def level(self, name: str) -> int:
        """0 for an accumulator whose body reads no accumulator, else one more than the deepest it reads."""
        return self._levels[name]

    @cached_property
    def _levels(self) -> Mapping[str, int]:
        """The level of every name that the loop reads."""
        accumulators = {a.name: a.body for a in self.accumulators}
        definitions = {p.name: p.expr for p in self.cascade.producers}
        definitions |= {d.name: d.expr for d in self.dependencies} | accumulators
        found: dict[str, int] = {}

        def level(name: str) -> int:
            if name not in found:
                read = refs(definitions[name]) & definitions.keys()
                found[name] = max((level(n) + (n in accumulators) for n in read), default=0)
            return found[name]

        for name in definitions:
            level(name)
        return found

    def __str__(self) -> str:
        lines = [f"fusion {self.cascade.name} over {self.cascade.axis}"]
        lines += [f"  producer    {p}" for p in self.cascade.producers]
        lines += [f"  accumulator {a}" for a in self.accumulators]
        lines += [f"  dependency  {d}" for d in self.dependencies]
        lines += [f"  correct     {n} <- {e}" for n, e in self.corrections]
        lines += [f"  result      {n} = {e}" for n, e in self.epilogue]
        lines += [f"  condition   {c}" for c in self.conditions]
        lines += [f"  pass {i + 1}      {', '.join(p)}" for i, p in enumerate(self.passes)]
        lines += [f"  output      {o}" for o in self.cascade.outs]
        return "\n".join(lines)


def needed_results(cascade: Cascade) -> frozenset[str]:
    """Names of the reductions whose results outputs read, directly or through producers; all without outputs."""
    own = frozenset(r.name for r in cascade.reductions)
    if not cascade.outs:
        return own
    producers = {p.name: p.expr for p in cascade.producers}
    return names_read((o.expr for o in cascade.outs), producers) & own


def check_fusion_node(f: FusedCascade) -> None:
    """Raise CheckError unless every name is bound once and the passes cover every accumulator exactly once."""
    names = [a.name for a in f.accumulators] + [d.name for d in f.dependencies]
    if len(set(names)) != len(names):
        raise CheckError(f"fusion {f.cascade.name}: a name is bound twice")
    covered = [n for p in f.passes for n in p]
    if sorted(covered) != sorted(a.name for a in f.accumulators):
        raise CheckError(f"fusion {f.cascade.name}: passes {f.passes} do not cover the accumulators once each")
    known = set(names) | {p.name for p in f.cascade.producers}
    stream = f.cascade.axis
    for a in f.accumulators:
        if stream in a.axes:
            raise CheckError(f"fusion {f.cascade.name}: accumulator {a.name} carries the stream axis")
        if not refs(a.body) <= known:
            raise CheckError(f"fusion {f.cascade.name}: {a} reads {sorted(refs(a.body) - known)}")
    for name, e in (*f.corrections, *f.epilogue):
        if any(isinstance(x, Reduce) and x.axis == stream for x in walk(e)) or (stream and stream in free_axes(e)):
            raise CheckError(f"fusion {f.cascade.name}: what becomes of {name} after the loop reads the stream: {e}")
    order = {a.name: i for i, a in enumerate(f.accumulators)}
    for name, e in f.corrections:
        if name not in order:
            raise CheckError(f"fusion {f.cascade.name}: correction of unknown {name}")
        bad = {x.name for x in walk(e) if isinstance(x, (Old, New))} - set(names)
        bad |= refs(e) - {p.name for p in f.cascade.producers}  # values of state are old or new
        bad |= {x.name for x in walk(e) if isinstance(x, New) and order.get(x.name, -1) >= order[name]}  # not known yet
        if bad:
            raise CheckError(f"fusion {f.cascade.name}: correction of {name} reads {sorted(bad)}")
    results: set[str] = set()
    for name, e in f.epilogue:
        if not refs(e) <= set(names) | results:
            raise CheckError(f"fusion {f.cascade.name}: result {name} reads {sorted(refs(e) - set(names) - results)}")
        results.add(name)
    if needed_results(f.cascade) - results:
        raise CheckError(f"fusion {f.cascade.name}: a result has no epilogue")
