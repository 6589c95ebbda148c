"""Run a fused cascade in NumPy: chunk by chunk, or as partial states that are merged.

This is the meaning of the fusion level written as code, and the oracle of every later level. One function,
`Streamer.advance`, does it all: correct the old states to the new dependencies, reduce the chunk, combine. An update
is an advance from one state and one chunk, a merge an advance from two states.

The empty state holds nothing and is decided before any arithmetic, so it is neutral bit for bit. Inside the loop an
infinite running extremum is replaced by 0 where it is subtracted (nothing was seen, or only masked elements: then
exp(-inf - 0) = 0), and a quotient with divisor 0 reads 0; the epilogue sees the raw values.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.errors import ShapeError
from redfuser.ir import MONOIDS, OPS, Expr, Idx, Load, New, Old, Op, Ref, op, refs, rewrite, select
from redfuser.ir.interpret import Arrays, Evaluator, axis_sizes

Array = np.ndarray[Any, Any]
_NOTHING = {"max": float("-inf"), "min": float("inf")}


@dataclass(frozen=True)
class State:
    """What the loop carries: named arrays, one dimension per axis of the accumulator. `length` 0 is the empty state.

    values  accumulator name -> array
    inputs  the stream-free inputs seen so far (scales, weights), which corrections and the epilogue may read
    sizes   length of every other axis
    """

    values: Mapping[str, Array] = field(default_factory=dict)
    inputs: Mapping[str, Array] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    length: int = 0

    def __getitem__(self, name: str) -> Array:
        return self.values[name]

    def __repr__(self) -> str:
        if not self.length:
            return "State(empty)"
        values = ", ".join(f"{k}: {v.dtype}{list(v.shape)}" for k, v in self.values.items())
        return f"State({values}, length={self.length})"


FLOAT32: np.dtype[Any] = np.dtype("float32")
EMPTY = State()


@dataclass(frozen=True)
class Chunk:
    """Positions [start, stop) of the stream within `arrays`."""

    arrays: Arrays
    start: int
    stop: int

    @property
    def length(self) -> int:
        """Number of elements."""
        return self.stop - self.start


class ChunkEvaluator(Evaluator):
    """Evaluates expressions on positions [start, stop) of the stream axis."""

    def __init__(self, fused: FusedCascade, sizes: Mapping[str, int], chunk: Chunk, dtype: Any) -> None:
        c = fused.cascade
        super().__init__([a.name for a in c.axes], sizes, chunk.arrays, c.tensors, dtype)
        self.stream = c.axis
        self.chunk = chunk

    def size(self, axis: str) -> int:
        """Length of an axis; of the stream, that of the chunk."""
        return self.chunk.length if axis == self.stream else super().size(axis)

    def _value(self, e: Expr) -> Any:
        if isinstance(e, Idx) and e.axis == self.stream:
            return self.align(np.arange(self.chunk.start, self.chunk.stop), (e.axis,))
        if isinstance(e, Load) and self.stream in e.axes:
            window = slice(self.chunk.start, self.chunk.stop)
            index = tuple(window if a == self.stream else slice(None) if isinstance(a, str) else a for a in e.axes)
            array = np.asarray(self.arrays[e.tensor])[index]
            if self.dtype is not None and array.dtype.kind not in "iub":
                array = array.astype(self.dtype)
            return self._aligned_any(array, tuple(a for a in e.axes if isinstance(a, str)))
        return super()._value(e)


def guarded_quotients(e: Expr) -> Expr:
    """A quotient with divisor 0 reads 0: the rule for dependencies inside the loop."""

    def guard(x: Expr) -> Expr | None:
        return select(op("eq", x.args[1], 0), 0, x) if isinstance(x, Op) and x.fn == "div" else None

    return rewrite(e, guard)


class Streamer:
    """One pass of a fused cascade over the stream.

    Parameters
    ----------
    fused
        the fused cascade.
    index
        number of the pass.
    final
        results of earlier passes: name -> array, dimensions in the order of the accumulator's or dependency's axes.
    acc_dtype
        dtype of the arithmetic and of the state; None: that of the inputs, half types in float32.
    """

    def __init__(self, fused: FusedCascade, index: int = 0, final: Mapping[str, Array] | None = None,
                 acc_dtype: Any = None) -> None:
        self.fused = fused
        self.final = dict(final or {})
        self.acc_dtype: np.dtype[Any] | None = None if acc_dtype is None else np.dtype(acc_dtype)
        names = fused.passes[index] if fused.passes else ()
        self.accumulators = [a for a in fused.accumulators if a.name in names]
        self.axes = {a.name: a.axes for a in fused.accumulators} | {d.name: d.axes for d in fused.dependencies}
        self.nothing = {a.name: _NOTHING[a.monoid] for a in fused.accumulators if a.monoid in _NOTHING}
        open_ = [d for d in fused.dependencies if d.name not in self.final]
        self.dependencies = [(d.name, guarded_quotients(d.expr)) for d in open_]

    def float_type(self, arrays: Mapping[str, Array]) -> np.dtype[Any]:
        """The floating type of the arithmetic."""
        if self.acc_dtype is not None:
            return self.acc_dtype
        kinds = [np.asarray(a).dtype for a in arrays.values()]
        floats = [d for d in kinds if d.kind not in "iub"]
        found: np.dtype[Any] = np.result_type(*floats) if floats else np.dtype("float64")
        return found if found.itemsize >= 4 else FLOAT32

    def advance(self, states: Sequence[State], chunk: Chunk | None = None) -> State:
        """The state after the given non-empty states (in stream order) and the chunk."""
        free = stream_free(self.fused)
        inputs = dict(states[0].inputs) if chunk is None else {name: _frozen(chunk.arrays[name]) for name in free}
        sizes = dict(states[0].sizes) if chunk is None else chunk_sizes(self.fused, chunk)
        held = {f"old{j} {name}": value for j, state in enumerate(states) for name, value in state.values.items()}
        dtype = self.float_type(inputs | dict(chunk.arrays if chunk else {}) | held)
        ev = ChunkEvaluator(self.fused, sizes, chunk or Chunk(inputs, 0, 0), dtype.type)
        for name, value in self.final.items():
            self._define(ev, f"new {name}", name, value)
        for j, state in enumerate(states):
            self._define_old(ev, f"old{j} ", state)
        define_producers(self.fused, ev, with_stream=chunk is not None)
        length = sum(s.length for s in states) + (chunk.length if chunk else 0)
        values: dict[str, Array] = {}
        for a in self.accumulators:
            self._define_dependencies(ev, "new ")
            value = self._combined(ev, a, len(states), chunk)
            self._define(ev, f"new {a.name}", a.name, _as_float(value, dtype))
            values[a.name] = _frozen(ev.values[f"new {a.name}"][1])
        return State(values, inputs, sizes, length)

    def _define(self, ev: Evaluator, key: str, name: str, value: Any) -> None:
        """Bind a value whose dimensions are either the named axes in order, or aligned over all axes."""
        axes = self.axes[name]
        array = np.asarray(value)
        ev.define(key, axes, ev.align(array, axes) if array.ndim == len(axes) != len(ev.order) else array)

    def _define_old(self, ev: Evaluator, prefix: str, state: State) -> None:
        """Accumulators and dependencies of a state."""
        for name, value in state.values.items():
            self._define(ev, prefix + name, name, value)
        for name in self.final:
            ev.values[prefix + name] = ev.values[f"new {name}"]
        self._define_dependencies(ev, prefix)

    def _define_dependencies(self, ev: Evaluator, prefix: str) -> None:
        """Bind every dependency whose operands are known and that is not bound yet."""
        for name, e in self.dependencies:
            if prefix + name in ev.values:
                continue
            local = rewrite(e, lambda x: Ref(prefix + x.name, x.axes) if isinstance(x, Ref) else None)
            if refs(local) <= set(ev.values):
                self._define(ev, prefix + name, name, ev(local))

    def _combined(self, ev: Evaluator, a: Accumulator, states: int, chunk: Chunk | None) -> Any:
        """The corrected old values and the reduction of the chunk, combined in stream order."""
        parts = [ev(self._correction(a, f"old{j} ")) for j in range(states)]
        if chunk is not None:
            assert self.fused.cascade.axis is not None
            parts.append(ev.reduce(a.monoid, self.fused.cascade.axis, self._at_new(a.body)))
        value = parts[0]
        for part in parts[1:]:
            if a.monoid != "first":
                with np.errstate(all="ignore"):
                    value = OPS[MONOIDS[a.monoid].combine].numpy(value, part)
        return value

    def _correction(self, a: Accumulator, prefix: str) -> Expr:
        """The corrected value of an accumulator of an old state."""
        e = self.fused.correction(a.name)
        if e is None:
            return Ref(prefix + a.name, a.axes)

        def version(x: Expr) -> Expr | None:
            if isinstance(x, Old):
                return Ref(prefix + x.name, self.axes[x.name])
            return self._shift(x.name) if isinstance(x, New) else None

        return rewrite(e, version)

    def _at_new(self, body: Expr) -> Expr:
        """The body of an accumulator at the newest dependencies."""

        def newest(x: Expr) -> Expr | None:
            return self._shift(x.name, x.axes) if isinstance(x, Ref) and x.name in self.axes else None

        return rewrite(body, newest)

    def _shift(self, name: str, axes: tuple[str, ...] | None = None) -> Expr:
        """The new value of a name; an extremum of nothing is 0."""
        value = Ref(f"new {name}", self.axes[name] if axes is None else axes)
        nothing = self.nothing.get(name)
        return value if nothing is None else select(op("eq", value, nothing), 0.0, value)

    def finals(self, state: State) -> dict[str, Array]:
        """Values of accumulators and dependencies (as read inside a later pass) once the pass is over."""
        ev = self._final_evaluator(state)
        self._define_dependencies(ev, "new ")
        return {name.removeprefix("new "): value for name, (_, value) in ev.values.items()}

    def _final_evaluator(self, state: State) -> Evaluator:
        dtype = self.float_type({**state.inputs, **state.values})
        ev = Evaluator([a.name for a in self.fused.cascade.axes], state.sizes, state.inputs, self.fused.cascade.tensors,
                       dtype.type)
        define_producers(self.fused, ev, with_stream=False)
        for name, value in (*self.final.items(), *state.values.items()):
            self._define(ev, f"new {name}", name, value)
        return ev


def define_producers(fused: FusedCascade, ev: Evaluator, with_stream: bool) -> None:
    """Bind the producers whose operands are known; those without the stream axis only, unless `with_stream`."""
    pending = [p for p in fused.cascade.producers if with_stream or fused.cascade.axis not in p.axes]
    while ready := [p for p in pending if refs(p.expr) <= set(ev.values)]:
        for p in ready:
            ev.define(p.name, p.axes, ev(p.expr))
            pending.remove(p)


def _as_float(value: Any, dtype: np.dtype[Any]) -> Array:
    array = np.asarray(value)
    return array.astype(dtype) if array.dtype.kind == "f" else array


def _frozen(array: Array) -> Array:
    copy = np.array(array)
    copy.flags.writeable = False
    return copy


def stream_free(fused: FusedCascade) -> list[str]:
    """Names of the inputs that do not carry the stream axis."""
    return [t.name for t in fused.cascade.tensors if fused.cascade.axis not in t.axes]


def chunk_sizes(fused: FusedCascade, chunk: Chunk) -> dict[str, int]:
    c = fused.cascade
    return axis_sizes(c.tensors, chunk.arrays, {a.name: a.size for a in c.axes})


def finalize(fused: FusedCascade, values: Mapping[str, Array], inputs: Arrays, sizes: Mapping[str, int],
             length: int, dtype: Any = None) -> dict[str, Array]:
    """Results of all reductions from the final accumulators, and every value of the state that no result hides.

    `length`: elements seen. A reduction of none is its identity, whatever the epilogue makes of 0/0.
    """
    c = fused.cascade
    ev = Evaluator([a.name for a in c.axes], sizes, inputs, c.tensors, dtype)
    define_producers(fused, ev, with_stream=False)
    for a in fused.accumulators:
        ev.define(a.name, a.axes, ev.align(np.asarray(values[a.name]), a.axes))
    for d in fused.dependencies:
        ev.define(d.name, d.axes, ev(d.expr))
    state = [*(a.name for a in fused.accumulators), *(d.name for d in fused.dependencies)]
    results = {name: np.array(ev.values[name][1]) for name in state}
    stages = {r.name: r for r in c.reductions}
    for name, e in fused.epilogue:
        stage = stages[name]
        ev.define(f"result {name}", stage.axes, ev(e) if length else MONOIDS[stage.monoid].identity)
        results[name] = np.array(ev.values[f"result {name}"][1])
    return results


def run_fused(fused: FusedCascade, arrays: Arrays, *, chunks: int | Sequence[int] = 4, tree: int | None = None,
              seed: int = 0, dtype: Any = None) -> dict[str, Array]:
    """Reductions and outputs of a fused cascade, computed incrementally.

    Parameters
    ----------
    arrays
        the inputs by name.
    chunks
        lengths of the chunks, or their number (boundaries are then drawn from `seed`; chunks may be empty).
    tree
        None: one state streams over the chunks. A seed: every chunk becomes a state of its own, and neighbouring
        states are merged in a random order.
    dtype
        dtype of the arithmetic; None: that of the inputs.

    Raises
    ------
    ShapeError
        when arrays disagree, or a maximum or minimum of nothing is asked for.
    """
    c = fused.cascade
    sizes = axis_sizes(c.tensors, arrays, {a.name: a.size for a in c.axes})
    values: dict[str, Array] = {}
    final: dict[str, Array] = {}
    for index in range(len(fused.passes)):
        assert c.axis is not None
        streamer = Streamer(fused, index, final, dtype)
        parts = [Chunk(arrays, a, b) for a, b in _boundaries(sizes[c.axis.rstrip("'")], chunks, seed)]
        state = _stream(streamer, parts) if tree is None else _merge_tree(streamer, parts, random.Random(tree))
        if not state.length:
            state = empty_state(streamer, arrays, sizes)
        values |= state.values
        final |= streamer.finals(state)
    real = None if dtype is None else np.dtype(dtype).type
    results = finalize(fused, values, arrays, sizes, sizes[c.axis.rstrip("'")] if c.axis else 0, real)
    named = {r.name: results[r.name] for r in c.reductions}
    return named | _outputs(fused, results, arrays, sizes, real)


def _boundaries(length: int, chunks: int | Sequence[int], seed: int) -> Iterator[tuple[int, int]]:
    if isinstance(chunks, int):
        cuts = sorted(random.Random(seed).choices(range(length + 1), k=max(chunks - 1, 0)))
        edges = [0, *cuts, length]
    else:
        edges = [0, *np.cumsum(np.asarray(chunks, dtype=int)).tolist()]
        if edges[-1] != length:
            raise ShapeError(f"argument 'chunks' covers {edges[-1]} elements of a stream of {length}")
    return pairwise(edges)


def _stream(streamer: Streamer, chunks: Sequence[Chunk]) -> State:
    state = EMPTY
    for chunk in chunks:
        if chunk.length:
            state = streamer.advance([state] if state.length else [], chunk)
    return state


def _merge_tree(streamer: Streamer, chunks: Sequence[Chunk], rng: random.Random) -> State:
    states = [streamer.advance([], chunk) if chunk.length else EMPTY for chunk in chunks] or [EMPTY]
    while len(states) > 1:
        i = rng.randrange(len(states) - 1)
        states[i : i + 2] = [merge(streamer, states[i], states[i + 1])]
    return states[0]


def merge(streamer: Streamer, a: State, b: State) -> State:
    """The state of the two streams one after the other; an empty state is neutral."""
    if not a.length or not b.length:
        return a if a.length else b
    return streamer.advance([a, b])


def empty_state(streamer: Streamer, arrays: Arrays, sizes: Mapping[str, int]) -> State:
    """Sums of nothing.

    Raises
    ------
    ShapeError
        when an accumulator has no value for an empty stream.
    """
    values = {}
    dtype = streamer.float_type({k: np.asarray(v) for k, v in arrays.items()})
    for a in streamer.accumulators:
        if a.monoid in _NOTHING:
            raise ShapeError(f"{a.monoid} of an empty stream ({a}): axis {streamer.fused.cascade.axis} has length 0")
        nothing = 0.0 if a.monoid == "first" else MONOIDS[a.monoid].identity  # any pivot will do
        values[a.name] = np.full([sizes[x.rstrip("'")] for x in a.axes], nothing, dtype)
    return State(values, {k: np.asarray(arrays[k]) for k in stream_free(streamer.fused)}, sizes)


def _outputs(fused: FusedCascade, results: Mapping[str, Array], arrays: Arrays, sizes: Mapping[str, int],
             dtype: Any) -> dict[str, Array]:
    """Outputs from results and state (a name means the result first), those with the stream axis in a second sweep."""
    c = fused.cascade
    ev = Evaluator([a.name for a in c.axes], sizes, arrays, c.tensors, dtype)
    axes = {r.name: r.axes for r in c.reductions}
    axes = {a.name: a.axes for a in fused.accumulators} | {d.name: d.axes for d in fused.dependencies} | axes
    for name, value in results.items():
        ev.define(name, axes[name], ev.align(value, axes[name]))
    define_producers(fused, ev, with_stream=True)
    return {o.name: ev.output(o) for o in c.outs}


