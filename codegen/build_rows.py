"""The row schedule, right for every fusion: one task per point of the parallel axes, lanes along the stream.

Outputs with the same parallel axes share their phases. A row that fits in cache runs its reductions one after the
other (no state, no correction); a longer one streams in blocks. Which of the two is decided when the kernel runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from redfuser.codegen.block import PIVOT, SHIFTS, Level, Row, identity, levels_of, state_dtype
from redfuser.codegen.indexing import product, typed, unravel
from redfuser.codegen.lower import Env, Space
from redfuser.codegen.materialise import Materialiser
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf, For, If, LetInt, Phase, Put, Set, Stmt, Sweep
from redfuser.codegen.passes.hoist import hoist
from redfuser.codegen.passes.prune import prune
from redfuser.codegen.passes.share import share
from redfuser.codegen.passes.unroll import unroll
from redfuser.extract.algebra import reduces_in
from redfuser.extract.flatten import Flat
from redfuser.extract.plan import RowDecisions
from redfuser.ir import Const, Expr, Let, New, Old, Out, Var, op, refs, walk

PAD = 64
"""Elements after the end of a scratch row that a vector may touch: one vector of any supported width."""


def build_rows(space: Space) -> tuple[Phase, ...]:
    """All phases of the row schedule."""
    groups: dict[frozenset[str], list[Out]] = {}
    for o in space.flat.outs:
        groups.setdefault(frozenset(o.axes) - {space.flat.stream or ""}, []).append(o)
    phases: list[Phase] = []
    for outs in groups.values():
        flat = restrict(space.flat, outs)
        phases += _group_phases(space, flat)
    return tuple(phases)


def restrict(flat: Flat, outs: Iterable[Out]) -> Flat:
    """The part of a fusion that some of its outputs need."""
    outs = tuple(outs)
    needed = _closure(flat, {n for o in outs for n in refs(o.expr)})
    passes = tuple(kept for p in flat.passes if (kept := tuple(n for n in p if n in needed)))
    return replace(
        flat,
        accumulators=tuple(a for a in flat.accumulators if a.name in needed),
        dependencies=tuple(d for d in flat.dependencies if d.name in needed),
        corrections=tuple((n, e) for n, e in flat.corrections if n in needed),
        outs=outs,
        passes=passes,
    )


def _closure(flat: Flat, names: set[str]) -> set[str]:
    """Names reachable through bodies, dependencies and corrections."""
    reads: dict[str, set[str]] = {a.name: set(refs(a.body)) for a in flat.accumulators}
    reads |= {d.name: set(refs(d.expr)) for d in flat.dependencies}
    for name, e in flat.corrections:
        reads[name] |= {x.name for x in walk(e) if isinstance(x, (Old, New))}
    found: set[str] = set()
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += reads[name]
    return found


def _group_phases(space: Space, flat: Flat) -> list[Phase]:
    """One or two phases: whole rows up to a length, blocks beyond it."""
    assert flat.stream is not None
    decisions = space.plan.rows
    length = space.size(flat.stream)
    if not flat.accumulators:
        return [_RowPhase(space, flat, decisions).streaming(None)]
    if decisions.whole_row == 0:
        return [_RowPhase(space, flat, decisions).streaming(None)]
    fits = op("le", length, decisions.whole_row)
    if isinstance(length, Const):
        make = _RowPhase(space, flat, decisions)
        return [make.whole(None) if length.value <= decisions.whole_row else make.streaming(None)]
    return [
        _RowPhase(space, flat, decisions).whole(fits),
        _RowPhase(space, flat, decisions).streaming(op("gt", length, decisions.whole_row)),
    ]


@dataclass(frozen=True)
class _Place:
    """Names of one phase: the task, the positions of the row, the lane variable."""

    task: str
    before: tuple[Stmt, ...]
    axes: dict[str, Expr]
    lane: str


class _RowPhase:
    """Builds one phase for one group of outputs."""

    def __init__(self, space: Space, flat: Flat, decisions: RowDecisions) -> None:
        self.space, self.flat, self.decisions = space, flat, decisions
        self.stream = flat.stream or ""
        self.length = space.size(self.stream)
        self.names = Names([b.name for b in (*space.tensors.values(), *space.outs.values())])
        self.parallel = tuple(a for a in flat.outs[0].axes if a != self.stream)
        self.place = self._place()
        cells = {a.name: self._register(a.name, state_dtype(a, space.compute)) for a in flat.accumulators}
        self.row = Row(
            space.restricted(flat), self.names, Env(self.place.axes), self.place.lane, lambda n: cells[n]
        )
        self.levels = [levels_of(flat, p) for p in flat.passes]

    def _register(self, name: str, dtype: str) -> At:
        return At(Buf(self.names.fresh(name), (), "reg", dtype))

    def _place(self) -> _Place:
        task = self.names.fresh("row")
        before, axes = unravel(self.space, self.names, Var(task), self.parallel)
        lane = self.names.fresh(self.stream)
        return _Place(task, tuple(before), {**axes, self.stream: Var(lane)}, lane)

    # -------------------------------- whole rows

    def whole(self, when: Expr | None) -> Phase:
        """The row stays in cache: its reductions run one after another, then the outputs."""
        extent = (op("add", self.length, PAD),)
        inner = self._materialiser(extent)
        zero = Const(0)
        body: list[Stmt] = self.row.read_pivots(self.flat.accumulators, self.length)
        for levels in self.levels:
            body += self.row.whole(levels, zero, self.length)
        self._know_rest(body)
        for o in self._stream_outs():
            body += self._cached_output(o)
        body += self._row_outputs()
        hoisted = hoist(tuple(body), self.names, self.space.compute)
        shared = share(hoisted, self.place.lane, extent, self.names, self.space.compute)
        return self._phase(shared.body, (*inner.scratch, *shared.scratch), when)

    def _cached_output(self, o: Out) -> list[Stmt]:
        """The output from guarded values (so that it shares terms), again by the definition where a guard acted."""
        out: list[Stmt] = []
        guarded = self._output_sweep(o, out, Const(0), self.length)
        out.append(guarded)
        before: list[Stmt] = []
        env, self.row.env = self.row.env, self.row.env.raw()
        plain = self._output_sweep(o, before, Const(0), self.length)
        self.row.env = env
        if plain == guarded:
            return out
        dead = [
            op("eq", env.values[a.name], identity(a.monoid))
            for a in self.flat.accumulators
            if a.monoid in SHIFTS and a.name in refs(o.expr)
        ]
        condition = dead[0]
        for d in dead[1:]:
            condition = op("or", condition, d)
        return [*out, If(condition, (*before, plain))]

    # -------------------------------- streaming

    def streaming(self, when: Expr | None) -> Phase:
        """One loop over blocks per pass, then a second sweep for outputs that carry the stream."""
        block = self.decisions.block
        extent = (Const(block + PAD),)
        inner = self._materialiser(extent)
        scratch: list[Buf] = []
        body = self.row.read_pivots(self.flat.accumulators, self.length)
        for names, levels in zip(self.flat.passes, self.levels, strict=True):
            own = [a for a in self.flat.accumulators if a.name in names]
            if levels:
                body += self.row.start(own)
                loop, more = self._block_loop(levels, extent)
                scratch += more
                body.append(loop)
            self.row.finish(body, own, self._completed(levels))
        self._know_rest(body)
        self.row.env = self.row.env.raw()
        for o in self._stream_outs():
            body += self._second_sweep(o)
        body += self._row_outputs()
        hoisted = hoist(tuple(body), self.names, self.space.compute)
        return self._phase(hoisted, (*inner.scratch, *scratch), when)

    def _block_loop(self, levels: list[Level], extent: tuple[Expr, ...]) -> tuple[Stmt, list[Buf]]:
        """The loop of one pass; costly terms are shared between the sweeps of a block."""
        scratch: list[Buf] = []

        def write(lo: Expr, hi: Expr) -> list[Stmt]:
            body = self.row.advance(levels, lo, hi, op("gt", lo, 0))
            hoisted = hoist(tuple(body), self.names, self.space.compute)
            shared = share(hoisted, self.place.lane, extent, self.names, self.space.compute)
            scratch.extend(shared.scratch)
            return list(shared.body)

        return self._blocks(write), scratch

    def _blocks(self, write: Callable[[Expr, Expr], list[Stmt]]) -> For:
        """`for b0 in range(0, length, block)` around what `write(b0, b1)` returns."""
        b0, b1 = self.names.integer("b0"), self.names.integer("b1")
        block = Const(self.decisions.block)
        end = LetInt(b1.name, op("min", op("add", b0, block), self.length))
        return For(b0.name, Const(0), self.length, block, (end, *write(b0, b1)))

    def _second_sweep(self, o: Out) -> list[Stmt]:
        """An output that carries the stream: one long sweep, in blocks where inner reductions need scratch."""

        def write(lo: Expr, hi: Expr) -> list[Stmt]:
            out: list[Stmt] = []
            sweep = self._output_sweep(o, out, lo, hi)
            return [*out, sweep]

        return [self._blocks(write)] if reduces_in(o.expr) else write(Const(0), self.length)

    # -------------------------------- common

    def _materialiser(self, extent: tuple[Expr, ...]) -> Materialiser:
        inner = Materialiser(self.row, self.stream, extent)
        self.row.materialise = inner.env
        return inner

    def _completed(self, levels: list[Level]) -> list[Let]:
        return [d for level in levels for d in level.dependencies]

    def _know_rest(self, body: list[Stmt]) -> None:
        """Dependencies that hang on pivots only belong to no level."""
        self.row.know(body, [d for d in self.flat.dependencies if d.name not in self.row.env.values])

    def _stream_outs(self) -> list[Out]:
        return [o for o in self.flat.outs if self.stream in o.axes]

    def _output_sweep(self, o: Out, before: list[Stmt], lo: Expr, hi: Expr) -> Sweep:
        """The sweep that writes an output row; statements it needs go to `before`."""
        assert self.row.materialise is not None
        env = self.row.materialise(before, lo, hi)
        value = self.row.lower(o.expr, env)
        return self.row.sweep(lo, hi, (), (self._put(o, value),))

    def _put(self, o: Out, value: Expr) -> Put:
        cell = At(self.space.outs[o.name], tuple(self.place.axes[a] for a in o.axes))
        return Put(cell, typed(value, o.dtype, self.names, self.space.compute), self.decisions.streaming_stores)

    def _row_outputs(self) -> list[Stmt]:
        """Outputs without the stream axis, by the definition's own arithmetic."""
        out: list[Stmt] = []
        for o in self.flat.outs:
            if self.stream in o.axes:
                continue
            assert self.row.materialise is not None
            env = self.row.materialise(out, Const(0), Const(0)).raw()
            value = typed(self.row.lower(o.expr, env), o.dtype, self.names, self.space.compute)
            out.append(Set(At(self.space.outs[o.name], tuple(self.place.axes[a] for a in o.axes)), value))
        return out

    def _phase(self, body: Iterable[Stmt], scratch: Iterable[Buf], when: Expr | None) -> Phase:
        """The task loop around one row, cleaned up."""
        total = product([self.space.size(a) for a in self.parallel])
        step = self._rows_per_grab(total)
        cleaned = prune((*self.place.before, *body))
        cleaned = unroll(cleaned, self.space.plan.profile, self.space.compute)
        loop = For(self.place.task, Const(0), total, step, cleaned, "task")
        return Phase(loop, tuple(scratch), when)

    def _rows_per_grab(self, total: Expr) -> Expr:
        """16 grabs per thread, never more than 2**18 elements in one (see `choose.rows_per_grab`)."""
        grabs = 16 * self.space.plan.profile.threads
        most = op("idiv", 2**18, op("max", self.length, 1))
        return op("max", op("min", op("idiv", total, grabs), most), 1)
