"""What every phase of the row schedule needs: the place of a row, loops over blocks, outputs, the task loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from redfuser.codegen.block import Row
from redfuser.codegen.indexing import LANE_PAD, product, typed, unravel_sizes
from redfuser.codegen.levels import Level, levels_of, state_dtype
from redfuser.codegen.lower import Env, Space
from redfuser.codegen.materialise import Materialiser
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, Buf, For, LetInt, Phase, Put, Set, Stmt, Sweep
from redfuser.codegen.parts import new_cell, state_shapes
from redfuser.codegen.passes.hoist import hoist
from redfuser.codegen.passes.prefetch import prefetch
from redfuser.codegen.passes.prune import prune
from redfuser.codegen.passes.share import share
from redfuser.codegen.passes.unroll import unroll
from redfuser.extract.algebra import reduces_in
from redfuser.extract.flatten import Flat
from redfuser.ir import Const, Expr, Let, Out, Tensor, Var, op


@dataclass(frozen=True)
class Place:
    """Names of one phase: the task, the positions of the row, the lane variable."""

    task: str
    before: tuple[Stmt, ...]
    axes: dict[str, Expr]
    lane: str
    total: Expr


class RowPhase:
    """Base of the phases of one group of outputs; `extra` are task dimensions besides the parallel axes."""

    def __init__(
        self, space: Space, flat: Flat, extra: tuple[tuple[str, Expr], ...] = (), taken: Iterable[str] = ()
    ) -> None:
        self.space, self.flat, self.decisions = space.restricted(flat), flat, space.plan.rows
        self.stream = flat.stream or ""
        self.length = space.size(self.stream)
        arrays = [b.name for b in (*space.tensors.values(), *space.outs.values())]
        self.names = Names([*arrays, *taken])
        self.parallel = flat.row_axes(flat.outs[0])
        self.place, self.extra = self._place(extra)
        self.scratch: list[Buf] = []
        cells = {
            name: new_cell(self.names, name, shape, dtype, self.scratch)
            for a in flat.accumulators
            for name, (shape, dtype) in state_shapes(a, space.compute, state_dtype(a, space.compute)).items()
        }
        env = Env(dict(self.place.axes))
        self.row = Row(self.space, self.names, env, self.place.lane, cells.__getitem__, scratch=self.scratch)
        self.levels = [levels_of(flat, p) for p in flat.passes]

    def _place(self, extra: tuple[tuple[str, Expr], ...]) -> tuple[Place, dict[str, Expr]]:
        task = self.names.fresh("row")
        dims = [*((a, self.space.size(a)) for a in self.parallel), *extra]
        before, positions = unravel_sizes(self.names, Var(task), dims)
        others = {name: positions.pop(name) for name, _ in extra}
        lane = self.names.fresh(self.stream)
        total = product([extent for _, extent in dims])
        return Place(task, tuple(before), {**positions, self.stream: Var(lane)}, lane, total), others

    # -------------------------------- the stream

    def materialiser(self, extent: tuple[Expr, ...]) -> Materialiser:
        """Let inner reductions be evaluated into scratch rows of this extent."""
        inner = Materialiser(self.row, self.stream, extent, self.scratch)
        self.row.materialise = inner.env
        return inner

    def block_extent(self) -> tuple[Expr, ...]:
        """Shape of a scratch row for one block."""
        return (Const(self.decisions.block + LANE_PAD),)

    def opening(self) -> list[Stmt]:
        """Pivots, and the dependencies that hang on nothing else."""
        body = self.row.read_pivots(self.flat.accumulators, self.length)
        levelled = {d.name for levels in self.levels for level in levels for d in level.dependencies}
        self.row.know(body, [d for d in self.flat.dependencies if d.name not in levelled])
        return body

    def completed(self, levels: list[Level]) -> list[Let]:
        """Dependencies known after a pass."""
        return [d for level in levels for d in level.dependencies]

    def block_loop(self, levels: list[Level], lo: Expr, hi: Expr) -> For:
        """The loop of one pass over [lo, hi); costly terms are shared between the sweeps of a block."""

        def write(b0: Expr, b1: Expr) -> list[Stmt]:
            body = self.row.advance(levels, b0, b1, op("gt", b0, lo))
            hoisted = hoist(tuple(body), self.names, self.space.compute)
            shared = share(hoisted, self.place.lane, self.block_extent(), self.names, self.space.compute)
            self.scratch.extend(shared.scratch)
            return list(prefetch(shared.body, self.place.lane, self.next_block()))

        return self.blocks(lo, hi, write)

    def blocks(self, lo: Expr, hi: Expr, write: Callable[[Expr, Expr], list[Stmt]]) -> For:
        """`for b0 in range(lo, hi, block)` around what `write(b0, b1)` returns."""
        b0, b1 = self.names.integer("b0"), self.names.integer("b1")
        block = Const(self.decisions.block)
        end = LetInt(b1.name, op("min", op("add", b0, block), hi))
        return For(b0.name, lo, hi, block, (end, *write(b0, b1)))

    # -------------------------------- outputs

    def stream_outs(self) -> list[Out]:
        """Outputs that carry the stream axis."""
        return [o for o in self.flat.outs if self.stream in o.axes]

    def second_sweep(self, o: Out, lo: Expr, hi: Expr) -> list[Stmt]:
        """An output over [lo, hi): one long sweep, in blocks where inner reductions need scratch."""

        def write(b0: Expr, b1: Expr) -> list[Stmt]:
            out: list[Stmt] = []
            sweep = self.output_sweep(o, out, b0, b1)
            return [*out, sweep]

        return [self.blocks(lo, hi, write)] if reduces_in(o.expr) else write(lo, hi)

    def output_sweep(self, o: Out, before: list[Stmt], lo: Expr, hi: Expr) -> Sweep:
        """The sweep that writes an output row; statements it needs go to `before`."""
        assert self.row.materialise is not None
        value = self.row.lower(o.expr, self.row.materialise(before, lo, hi))
        stored = typed(value, o.dtype, self.names, self.space.compute)
        return self.row.sweep(lo, hi, (), (Put(self.cell(o), stored, self.decisions.streaming_stores),))

    def row_outputs(self) -> list[Stmt]:
        """Outputs without the stream axis, by the definition's own arithmetic."""
        out: list[Stmt] = []
        for o in self.flat.outs:
            if self.stream not in o.axes:
                out += self._row_output(o)
        return out

    def _row_output(self, o: Out) -> list[Stmt]:
        """One value, or one per place of the lists it reads."""
        assert self.row.materialise is not None
        places = {a: self.names.integer(a) for a in self.flat.list_axes(o)}
        out: list[Stmt] = []
        env = self.row.materialise(out, Const(0), Const(0)).raw().at(**places)
        value = typed(self.row.lower(o.expr, env), o.dtype, self.names, self.space.compute)
        cell = At(self.space.outs[o.name], tuple(env.axes[a] for a in o.axes))
        lanes = list(places)[-1:] if not out else []  # an inner reduction may differ from place to place
        out.append(Set(cell, value))
        for axis in lanes:
            out[-1] = Sweep(places[axis].name, Const(0), self.space.size(axis), (), (Put(cell, value),))
        for axis in (a for a in reversed(places) if a not in lanes):
            out = [For(places[axis].name, Const(0), self.space.size(axis), Const(1), tuple(out))]
        return out

    def cell(self, o: Out) -> At:
        """The element of an output at this row (and lane)."""
        return At(self.space.outs[o.name], tuple(self.place.axes[a] for a in o.axes))

    # -------------------------------- prefetch

    def next_row(self) -> list[At]:
        """The same lane of the next row, for tensors that have one."""
        if not self.parallel:
            return []
        axis = self.parallel[-1]
        after = {axis: op("add", self.place.axes[axis], 1)}
        return [self._element(t, after) for t in self._streamed() if axis in t.axes]

    def next_block(self) -> list[At]:
        """The same place of the next block."""
        after = {self.stream: op("add", self.place.axes[self.stream], self.decisions.block)}
        return [self._element(t, after) for t in self._streamed()]

    def _streamed(self) -> list[Tensor]:
        """Tensors that a row reads once, along their contiguous axis."""
        own = {*self.parallel, self.stream}
        tensors = [t for t in self.flat.tensors if self.space.plan.layout(t.name) == self.stream]
        return [t for t in tensors if set(t.axes) <= own and (len(t.axes) > 1 or not self.parallel)]

    def _element(self, t: Tensor, after: dict[str, Expr]) -> At:
        at = {**self.place.axes, **after}
        return At(self.space.tensors[t.name], tuple(at[a] for a in t.axes))

    # -------------------------------- the task loop

    def phase(self, body: Iterable[Stmt], when: Expr | None, step: Expr | None = None) -> Phase:
        """The task loop around one row, cleaned up."""
        cleaned = prune((*self.place.before, *body))
        cleaned = unroll(cleaned, self.space.plan.profile, self.space.compute)
        loop = For(
            self.place.task, Const(0), self.place.total, Const(1) if step is None else step, cleaned, "task"
        )
        return Phase(loop, tuple(self.scratch), when)

    def rows_per_grab(self) -> Expr:
        """16 grabs per thread, never more than 2**18 elements in one."""
        grabs = 16 * self.space.plan.profile.threads
        most = op("idiv", 2**18, op("max", self.length, 1))
        return op("max", op("min", op("idiv", self.place.total, grabs), most), 1)
