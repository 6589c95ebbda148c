"""Flatten a fusion for scheduling: producers inlined, outputs over accumulators, one name per reference.

After flattening, every expression reads only tensors, indices, sizes, accumulators and dependencies, and every
reference to an accumulator uses exactly the axes of its definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from redfuser.derivation.dead import from_dead_parts
from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.errors import CheckError
from redfuser.ir import (
    MONOIDS,
    Axis,
    Cast,
    Const,
    Expr,
    Let,
    Load,
    New,
    Old,
    Op,
    Out,
    Part,
    Ref,
    Tensor,
    Tuple,
    children,
    find_parts,
    has_parts,
    parts_monoid,
    refs,
    rename_axes,
    rewrite,
    walk,
    with_children,
)
from redfuser.ir.dtypes import STORAGE_ONLY, numpy_dtype
from redfuser.ir.interpret import at_place
from redfuser.ir.ops import PIVOT

Definition = tuple[tuple[str, ...], Expr]
STATE = "state:"
"""Prefix that marks, during flattening, a reference to an accumulator or dependency (not to a result)."""


@dataclass(frozen=True)
class Flat:
    """A flattened fusion. `outs` are written over final values; `passes` as in `FusedCascade`.

    empty : outputs whose value on an empty stream the state cannot give (0 / 0 where the definition sums nothing)
    loose : extremes that may be any number where an element is NaN (`redfuser.extract.nans`)
    """

    name: str
    stream: str | None
    axes: tuple[Axis, ...]
    tensors: tuple[Tensor, ...]
    accumulators: tuple[Accumulator, ...]
    dependencies: tuple[Let, ...]
    corrections: tuple[tuple[str, Expr], ...]
    outs: tuple[Out, ...]
    passes: tuple[tuple[str, ...], ...]
    empty: tuple[Out, ...] = ()
    loose: frozenset[str] = frozenset()

    def accumulator(self, name: str) -> Accumulator | None:
        """The accumulator called `name`, None for a dependency."""
        return next((a for a in self.accumulators if a.name == name), None)

    def dependency(self, name: str) -> Let | None:
        """The dependency called `name`, None for an accumulator."""
        return next((d for d in self.dependencies if d.name == name), None)

    def correction(self, name: str) -> Expr | None:
        """The correction of accumulator `name`, None when it has none."""
        return dict(self.corrections).get(name)

    def list_axes(self, o: Out) -> tuple[str, ...]:
        """Axes of an output that run over the places of sorted lists, and over nothing else of a row.

        An output that carries the stream, or state that has such an axis itself, makes it a parallel axis.
        """
        if self.stream in o.axes:
            return ()
        state = {a for x in self.accumulators for a in x.axes} | {a for d in self.dependencies for a in d.axes}
        places = {a for x in walk(o.expr) if isinstance(x, Part) for a in x.axes}
        return tuple(a for a in o.axes if a in places - state)

    def row_axes(self, o: Out) -> tuple[str, ...]:
        """The parallel axes of an output: a point of them is a row of the stream."""
        lists = self.list_axes(o)
        return tuple(a for a in o.axes if a != self.stream and a not in lists)

    def map_exprs(self, f: Callable[[Expr], Expr]) -> Flat:
        """Apply `f` to every body, dependency and output (corrections stay)."""
        return replace(
            self,
            accumulators=tuple(Accumulator(a.name, a.monoid, f(a.body), a.axes) for a in self.accumulators),
            dependencies=tuple(Let(d.name, d.axes, f(d.expr)) for d in self.dependencies),
            outs=tuple(Out(o.name, o.axes, f(o.expr), o.dtype) for o in self.outs),
        )


def awaited_places(flat: Flat) -> int:
    """The lowest place of a sorted list, counted from 1, that the loop itself reads; 0 where the best is enough.

    A place has no value before as many elements were seen, and what is computed from it cannot be corrected.
    """
    loop = [*(a.body for a in flat.accumulators), *(d.expr for d in flat.dependencies)]
    places = [a for e in loop for x in walk(e) if isinstance(x, Part) for a in x.axes]
    sizes = {a.name: a.size or 1 for a in flat.axes}
    lowest = max((a + 1 if isinstance(a, int) else sizes.get(a, 1) for a in places), default=0)
    return lowest if lowest > 1 else 0


def flatten(fused: FusedCascade, compute: str) -> Flat:
    """Inline producers and epilogue; give every renamed reference its own accumulator.

    In bodies, dependencies and corrections a name means state first; in producers and outputs (which belong to the
    definition) it means the result of a reduction first.

    Raises
    ------
    CheckError
        when an accumulator is read at positions of the stream axis (that is a second cascade, not this one).
    """
    c = fused.cascade
    inline = _Inliner(fused)
    passes = fused.passes or ((tuple(a.name for a in fused.accumulators),) if fused.accumulators else ())
    flat = Flat(
        c.name,
        c.axis,
        c.axes,
        c.tensors,
        tuple(Accumulator(a.name, a.monoid, inline.of_state(a.body), a.axes) for a in fused.accumulators),
        tuple(Let(d.name, d.axes, inline.of_state(d.expr)) for d in fused.dependencies),
        _without_pivot_moves(fused),
        tuple(Out(o.name, o.axes, inline.of_results(o.expr), o.dtype) for o in c.outs),
        passes,
        _empty_outputs(fused),
    )
    dtypes = {t.name: t.dtype for t in c.tensors}
    whole = _Instances(flat.map_exprs(lambda e: _untagged(_without_widening(e, dtypes, compute)))).flat()
    corrections = from_dead_parts(whole.corrections, whole.accumulators, whole.dependencies)
    return replace(whole, corrections=corrections)


def _empty_outputs(fused: FusedCascade) -> tuple[Out, ...]:
    """Outputs that read a sum or product the epilogue computes from state, with every reduction at its identity.

    A cascade with a max or min has no value on an empty stream: it needs none.
    """
    c = fused.cascade
    if any(r.monoid in ("max", "min", "argmax", "argmin") for r in c.reductions):
        return ()
    epilogue = dict(fused.epilogue)
    derived = {r.name for r in c.reductions if epilogue.get(r.name, Ref(r.name, r.axes)) != Ref(r.name, r.axes)}
    return tuple(
        Out(o.name, o.axes, _of_nothing(o.expr, {r.name: r.monoid for r in c.reductions}), o.dtype)
        for o in c.outs
        if c.axis not in o.axes and refs(o.expr) & derived and refs(o.expr) <= {r.name for r in c.reductions}
    )


def _of_nothing(e: Expr, monoids: Mapping[str, str]) -> Expr:
    """`e` where every reduction is that of no elements."""

    def leaf(x: Expr) -> Expr | None:
        if isinstance(x, Ref) and not has_parts(monoids[x.name]):
            return Const(float(MONOIDS[monoids[x.name]].identity))
        if isinstance(x, Part) and isinstance(x.body, Ref):
            return Const(parts_monoid(monoids[x.body.name]).part_identity(x.part))
        return None

    return rewrite(e, leaf)


def _without_pivot_moves(fused: FusedCascade) -> tuple[tuple[str, Expr], ...]:
    """Corrections for a pivot that never moves: a kernel reads it before the stream, the same for every part.

    Old(pivot) - New(pivot) is 0; what that leaves unchanged needs no correction at all.
    """
    pivots = {a.name for a in fused.accumulators if a.monoid == PIVOT}
    if not pivots:
        return fused.corrections
    simplified = ((name, rewrite(e, lambda x: _settled(x, pivots))) for name, e in fused.corrections)
    return tuple((name, e) for name, e in simplified if e != Old(name) and name not in pivots)


def _settled(e: Expr, pivots: set[str]) -> Expr | None:
    """One step of x - x = 0, 0 + x = x, 0 * x = 0 where x involves a pivot."""
    if isinstance(e, Old) and e.name in pivots:
        return New(e.name)
    if not isinstance(e, Op) or e.fn not in ("add", "sub", "mul"):
        return None
    a, b = e.args
    zeros = [isinstance(x, Const) and x.value == 0 for x in e.args]
    if e.fn == "sub" and a == b and isinstance(a, New):
        return Const(0)
    if e.fn == "mul" and any(zeros):
        return Const(0)
    if e.fn == "add" and any(zeros):
        return b if zeros[0] else a
    return a if e.fn == "sub" and zeros[1] else None


class _Inliner:
    """Expands names; references to state are tagged so that they are never taken for results of the same name."""

    def __init__(self, fused: FusedCascade) -> None:
        self.state = {a.name for a in fused.accumulators} | {d.name for d in fused.dependencies}
        self.producers: dict[str, Definition] = {p.name: (p.axes, p.expr) for p in fused.cascade.producers}
        axes = {a.name: a.axes for a in fused.accumulators} | {d.name: d.axes for d in fused.dependencies}
        axes |= {r.name: r.axes for r in fused.cascade.reductions}
        monoids = {a.name: find_parts(a.monoid) for a in fused.accumulators}
        monoids |= {r.name: find_parts(r.monoid) for r in fused.cascade.reductions}
        self.parts = {name: m.parts for name, m in monoids.items() if m is not None}
        self.results: dict[str, Definition] = {}
        for name, e in fused.epilogue:
            self.results[name] = axes[name], self.of_state(e)

    def of_state(self, e: Expr) -> Expr:
        """Expand an expression of the loop or the epilogue."""
        return self._expand(e, results_first=False)

    def of_results(self, e: Expr) -> Expr:
        """Expand an expression of the definition: an output or a producer."""
        return self._expand(e, results_first=True)

    def _expand(self, e: Expr, results_first: bool) -> Expr:
        memo: dict[Expr, Expr] = {}

        def go(x: Expr) -> Expr:
            if x not in memo:
                memo[x] = expanded(x)
            return memo[x]

        def expanded(x: Expr) -> Expr:
            if isinstance(x, Part) and isinstance(x.body, Ref):
                return self._projected(x, go(x.body))
            if not isinstance(x, Ref):
                return with_children(x, tuple(map(go, children(x))))
            is_state = x.name in self.state
            if is_state and not (results_first and x.name in self.results):
                return Ref(STATE + x.name, x.axes)
            axes, value = self._definition(x.name)
            return rename_axes(value, dict(zip(axes, x.axes, strict=True)))

        return go(e)

    def _projected(self, x: Part, value: Expr) -> Expr:
        """A part of an expanded value."""
        if not isinstance(value, Tuple):
            return Part(x.part, x.axes, value)
        assert isinstance(x.body, Ref)
        component = value.args[self.parts[x.body.name].index(x.part)]
        return at_place(component, x.axes[0]) if x.axes else component

    def _definition(self, name: str) -> Definition:
        if name in self.results:
            return self.results[name]
        axes, value = self.producers[name]
        return axes, self.of_results(value)


def _untagged(e: Expr) -> Expr:
    return rewrite(e, lambda x: Ref(x.name.removeprefix(STATE), x.axes) if isinstance(x, Ref) else None)


def _without_widening(e: Expr, dtypes: Mapping[str, str], compute: str) -> Expr:
    """Drop conversions of a loaded float to a wider one: loading converts to the compute dtype anyway."""

    def leaf(x: Expr) -> Expr | None:
        if not (isinstance(x, Cast) and isinstance(x.body, Load)):
            return None
        source, target = numpy_dtype(dtypes[x.body.tensor]), numpy_dtype(x.dtype)
        floats = source.kind not in "biu" and target.kind not in "biu"
        wider = target.name not in STORAGE_ONLY and source.itemsize <= target.itemsize
        exact = floats and (source == target or wider)
        return x.body if exact and source.itemsize <= numpy_dtype(compute).itemsize else None

    return rewrite(e, leaf)


class _Instances:
    """Copies accumulators that are read under other axis names than those of their definition."""

    def __init__(self, flat: Flat) -> None:
        self.source = flat
        self.copies: dict[tuple[str, tuple[str, ...]], str] = {}
        self.accumulators: list[Accumulator] = []
        self.dependencies: list[Let] = []
        self.corrections: list[tuple[str, Expr]] = []
        self.passes = [list(p) for p in flat.passes]

    def flat(self) -> Flat:
        """The fusion with all copies added; the same object when none is needed."""
        f = self.source
        outs = tuple(Out(o.name, o.axes, self.retarget(o.expr), o.dtype) for o in f.outs)
        accumulators = [Accumulator(a.name, a.monoid, self.retarget(a.body), a.axes) for a in f.accumulators]
        dependencies = [Let(d.name, d.axes, self.retarget(d.expr)) for d in f.dependencies]
        if not self.copies:
            return f
        return replace(
            f,
            accumulators=(*accumulators, *self.accumulators),
            dependencies=(*dependencies, *self.dependencies),
            corrections=(*f.corrections, *self.corrections),
            outs=outs,
            passes=tuple(map(tuple, self.passes)),
        )

    def retarget(self, e: Expr) -> Expr:
        """Let every reference name the instance it means."""
        return rewrite(
            e, lambda x: Ref(self.instance(x.name, x.axes), x.axes) if isinstance(x, Ref) else None
        )

    def instance(self, name: str, axes: tuple[str, ...]) -> str:
        """The name of `name` at `axes`, creating the copy (and those it depends on) at first use."""
        definition = self.source.accumulator(name) or self.source.dependency(name)
        assert definition is not None
        if axes == definition.axes:
            return name
        if self.source.stream in axes:
            raise CheckError(
                f"fusion {self.source.name}: {name} is read along the stream axis {self.source.stream}; "
                "split the cascade so that it is an input of a second one"
            )
        if (name, axes) not in self.copies:
            self.copies[name, axes] = copy = f"{name}_{'_'.join(axes)}"
            self._copy(definition, copy, dict(zip(definition.axes, axes, strict=True)))
        return self.copies[name, axes]

    def _copy(self, definition: Accumulator | Let, name: str, table: dict[str, str]) -> None:
        axes = tuple(table[a] for a in definition.axes)
        if isinstance(definition, Let):
            self.dependencies.append(Let(name, axes, self.retarget(rename_axes(definition.expr, table))))
            return
        body = self.retarget(rename_axes(definition.body, table))
        self.accumulators.append(Accumulator(name, definition.monoid, body, axes))
        next(p for p in self.passes if definition.name in p).append(name)
        correction = self.source.correction(definition.name)
        if correction is not None:
            self.corrections.append((name, rewrite(correction, lambda x: self._moved(x, table))))

    def _moved(self, x: Expr, table: dict[str, str]) -> Expr | None:
        """Old and New of the copies: they carry no axes, so those of their definition are renamed."""
        if not isinstance(x, (Old, New)):
            return None
        definition = self.source.accumulator(x.name) or self.source.dependency(x.name)
        assert definition is not None
        name = self.instance(x.name, tuple(table.get(a, a) for a in definition.axes))
        return Old(name) if isinstance(x, Old) else New(name)
