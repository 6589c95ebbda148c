"""Run a fused cascade in NumPy: chunk by chunk, or as partial states that are merged.

This is the meaning of the fusion level written as code, and the oracle of every later level. One function,
`Streamer.advance`, does it all: correct the old states to the new dependencies, reduce the chunk, combine. An update
is an advance from one state and one chunk, a merge an advance from two states.

The empty state holds nothing and is decided before any arithmetic, so it is neutral bit for bit. Inside the loop an
infinite running extremum reads 0 wherever anything but itself reads it, before and after (nothing was seen, or only
masked elements: then exp(-inf - 0) = 0; see `dead`), and a quotient with divisor 0 reads 0; the epilogue sees the raw
values. A pivot that no element gave is +inf in the state, where any other replaces it, and reads 0 everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial, reduce
from typing import Any

import numpy as np

from redfuser.derivation.dead import alive, from_dead_parts, with_alive_extremes
from redfuser.derivation.fusion import NOTHING, Accumulator, FusedCascade
from redfuser.derivation.parts import occupied
from redfuser.derivation.state import Array, Chunk, ChunkEvaluator, State
from redfuser.errors import ShapeError
from redfuser.ir import MONOIDS, OPS, Cascade, Expr, New, Old, Op, Ref, find_parts, op, refs, rewrite, select
from redfuser.ir.dtypes import computed_in, is_float
from redfuser.ir.interpret import Arrays, Evaluator, axis_sizes
from redfuser.ir.ops import PIVOT, nearer_zero, read_pivot


def guarded(e: Expr, monoids: Mapping[str, str]) -> Expr:
    """A quotient with divisor 0 reads 0, and so does an empty place: the rule for dependencies inside the loop."""

    def guard(x: Expr) -> Expr | None:
        return select(op("eq", x.args[1], 0), 0, x) if isinstance(x, Op) and x.fn == "div" else None

    return rewrite(occupied(e, monoids), guard)


def _prefixed(e: Expr, prefix: str, monoids: Mapping[str, str] | None,
              changing: Mapping[str, str]) -> tuple[Expr, frozenset[str]]:
    """A dependency as read from the values with a prefix, and the names it reads. `monoids`: those of the state inside
    the loop, None when the loop is over; `changing`: those of the extremes that are not final."""
    local = e if monoids is None else with_alive_extremes(guarded(e, monoids), changing)
    local = rewrite(local, lambda x: Ref(prefix + x.name, x.axes) if isinstance(x, Ref) else None)
    return local, refs(local)


class _Forms:
    """Expressions of one fused cascade as the loop evaluates them, each rewritten once."""

    def __init__(self) -> None:
        self.known: dict[Any, Any] = {}

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """The form of a key, made at first use."""
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = make()
        return found


@lru_cache(maxsize=128)
def _forms(fused: FusedCascade) -> _Forms:
    """The forms of a fused cascade, shared by all that run it."""
    return _Forms()


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
        dtype of the arithmetic and of the state; None: the one that the inputs are computed in.
    """

    def __init__(self, fused: FusedCascade, index: int = 0, final: Mapping[str, Array] | None = None,
                 acc_dtype: Any = None) -> None:
        self.fused = fused
        self.final = dict(final or {})
        self.acc_dtype: np.dtype[Any] | None = None if acc_dtype is None else np.dtype(acc_dtype)
        names = fused.passes[index] if fused.passes else ()
        self.accumulators = [a for a in fused.accumulators if a.name in names]
        self.axes = {a.name: a.axes for a in fused.accumulators} | {d.name: d.axes for d in fused.dependencies}
        self.monoids = {a.name: a.monoid for a in fused.accumulators}
        self.extremes = {a.name: a.monoid for a in fused.accumulators
                         if a.monoid in NOTHING and a.name not in self.final}
        self.forms = _forms(fused)
        self.corrections = self.forms.get("corrections", lambda: dict(
            from_dead_parts(fused.corrections, fused.accumulators, fused.dependencies)))
        self.dependencies = [d for d in fused.dependencies if d.name not in self.final]

    def float_type(self, arrays: Mapping[str, Array]) -> np.dtype[Any]:
        """The floating type of the arithmetic."""
        if self.acc_dtype is not None:
            return self.acc_dtype
        kinds = [t for a in arrays.values() for t in _field_types(np.asarray(a).dtype)]
        floats = [computed_in(d) for d in kinds if is_float(d)]
        found: np.dtype[Any] = np.result_type(*floats) if floats else np.dtype("float64")
        return found

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
        define_producers(self.fused.cascade, ev, with_stream=chunk is not None)
        start = states[0].start if chunk is None or states else ev.start(str(self.fused.cascade.axis))
        length = sum(s.length for s in states) + (chunk.length if chunk else 0)
        values: dict[str, Array] = {}
        for a in self.accumulators:
            self._define_dependencies(ev, "new ")
            value = _as_float(self._combined(ev, a, states, chunk), dtype)
            self._define(ev, f"new {a.name}", a.name, value)
            values[a.name] = _frozen(ev.values[f"new {a.name}"][1])
            if a.monoid == PIVOT:
                self._define(ev, f"new {a.name}", a.name, read_pivot(value))
        return State(values, inputs, sizes, length, start)

    def _define(self, ev: Evaluator, key: str, name: str, value: Any) -> None:
        """Bind a value whose dimensions are either the named axes in order, or aligned over all axes."""
        axes = self.axes[name]
        array = np.asarray(value)
        ev.define(key, axes, ev.align(array, axes) if array.ndim == len(axes) != len(ev.order) else array)

    def _read(self, name: str, value: Any) -> Any:
        """A value of the state as expressions read it."""
        return read_pivot(value) if self.monoids.get(name) == PIVOT else value

    def _define_old(self, ev: Evaluator, prefix: str, state: State) -> None:
        """Accumulators and dependencies of a state."""
        for name, value in state.values.items():
            self._define(ev, prefix + name, name, self._read(name, value))
        for name in self.final:
            ev.values[prefix + name] = ev.values[f"new {name}"]
        self._define_dependencies(ev, prefix)

    def _define_dependencies(self, ev: Evaluator, prefix: str, guard: bool = True) -> None:
        """Bind every dependency whose operands are known and that is not bound yet."""
        for d in self.dependencies:
            if prefix + d.name in ev.values:
                continue
            make = partial(_prefixed, d.expr, prefix, self.monoids if guard else None, self.extremes)
            local, read = self.forms.get(("dependency", prefix, d.name, guard, frozenset(self.extremes)), make)
            if read <= ev.values.keys():
                self._define(ev, prefix + d.name, d.name, ev(local))

    def _combined(self, ev: Evaluator, a: Accumulator, states: Sequence[State], chunk: Chunk | None) -> Any:
        """The corrected old values and the reduction of the chunk, combined in stream order."""
        monoid = find_parts(a.monoid)
        if a.monoid == PIVOT:
            found = [ev.align(np.asarray(state.values[a.name]), a.axes) for state in states]
        else:
            corrected = [self._correction(a, f"old{j} ") for j in range(len(states))]
            found = [ev(e) if monoid is None else ev.structured(e, monoid) for e in corrected]
        if chunk is not None:
            assert self.fused.cascade.axis is not None
            found.append(ev.reduce(a.monoid, self.fused.cascade.axis, self._at_new(a.body)))
        return reduce(partial(_combine, a.monoid), found)

    def _correction(self, a: Accumulator, prefix: str) -> Expr:
        """The corrected value of an accumulator of an old state."""
        e = self.corrections.get(a.name)
        if e is None:
            return Ref(prefix + a.name, a.axes)

        def version(x: Expr) -> Expr | None:
            if isinstance(x, Old):
                return Ref(prefix + x.name, self.axes[x.name])
            return self._shift(x.name) if isinstance(x, New) else None

        found: Expr = self.forms.get(("correction", prefix, e), lambda: rewrite(e, version))
        return found

    def _at_new(self, body: Expr) -> Expr:
        """The body of an accumulator at the newest dependencies."""

        def newest(x: Expr) -> Expr | None:
            return self._shift(x.name, x.axes) if isinstance(x, Ref) and x.name in self.axes else None

        found: Expr = self.forms.get(("body", "", body), lambda: rewrite(body, newest))
        return found

    def _shift(self, name: str, axes: tuple[str, ...] | None = None) -> Expr:
        """The new value of a name; an extremum of nothing is 0."""
        value = Ref(f"new {name}", self.axes[name] if axes is None else axes)
        monoid = self.extremes.get(name)
        return value if monoid is None else alive(value, monoid)

    def finals(self, state: State) -> dict[str, Array]:
        """Values of accumulators and dependencies once the pass is over, as a later pass reads them: without guards."""
        ev = self._final_evaluator(state)
        self._define_dependencies(ev, "new ", guard=False)
        return {name.removeprefix("new "): value for name, (_, value) in ev.values.items()}

    def _final_evaluator(self, state: State) -> Evaluator:
        dtype = self.float_type({**state.inputs, **state.values})
        ev = Evaluator([a.name for a in self.fused.cascade.axes], state.sizes, state.inputs, self.fused.cascade.tensors,
                       dtype.type)
        define_producers(self.fused.cascade, ev, with_stream=False)
        for name, value in (*self.final.items(), *state.values.items()):
            self._define(ev, f"new {name}", name, self._read(name, value))
        return ev


def _combine(monoid: str, a: Any, b: Any) -> Any:
    """Two partial results in one, `a` the earlier."""
    with np.errstate(all="ignore"):
        if monoid == PIVOT:
            return nearer_zero(a, b)
        parts = find_parts(monoid)
        return OPS[MONOIDS[monoid].combine].numpy(a, b) if parts is None else parts.combined(*np.broadcast_arrays(a, b))


def _field_types(dtype: np.dtype[Any]) -> list[np.dtype[Any]]:
    """The dtypes of the parts of a value."""
    return [dtype] if dtype.names is None else [dtype[name].base for name in dtype.names]


def define_producers(c: Cascade, ev: Evaluator, with_stream: bool = True) -> None:
    """Bind the producers whose operands are known; those without the stream axis only, unless `with_stream`."""
    pending = [p for p in c.producers if with_stream or c.axis not in p.axes]
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
    """Length of every axis, as the arrays of a chunk tell."""
    c = fused.cascade
    return axis_sizes(c.tensors, chunk.arrays, {a.name: a.size for a in c.axes} | dict(chunk.sizes))


def finalize(fused: FusedCascade, values: Mapping[str, Array], inputs: Arrays, sizes: Mapping[str, int],
             length: int, dtype: Any = None) -> dict[str, Array]:
    """Results of all reductions from the final accumulators, and every value of the state that no result hides.

    `length`: elements seen. A reduction of none is its identity, whatever the epilogue makes of 0/0.
    """
    c = fused.cascade
    ev = Evaluator([a.name for a in c.axes], sizes, inputs, c.tensors, dtype)
    define_producers(fused.cascade, ev, with_stream=False)
    for a in fused.accumulators:
        value = np.asarray(values[a.name])
        ev.define(a.name, a.axes, ev.align(read_pivot(value) if a.monoid == PIVOT else value, a.axes))
    for d in fused.dependencies:
        ev.define(d.name, d.axes, ev(d.expr))
    state = [*(a.name for a in fused.accumulators), *(d.name for d in fused.dependencies)]
    results = {name: np.array(ev.values[name][1]) for name in state}
    stages = {r.name: r for r in c.reductions}
    for name, e in fused.epilogue:
        stage = stages[name]
        ev.define(f"result {name}", stage.axes, _result(ev, stage.monoid, e, length))
        results[name] = np.array(ev.values[f"result {name}"][1])
    return results


def _result(ev: Evaluator, monoid: str, e: Expr, length: int) -> Any:
    """The result of a reduction by its epilogue; the value of nothing for an empty stream."""
    parts = find_parts(monoid)
    if parts is not None:
        return ev.structured(e, parts) if length else parts.nothing((), np.float64 if ev.dtype is None else ev.dtype)
    return ev(e) if length else MONOIDS[monoid].identity


def merge(streamer: Streamer, a: State, b: State) -> State:
    """The state of the two streams one after the other; an empty state is neutral."""
    if not a.length or not b.length:
        return a if a.length else b
    return streamer.advance([a, _moved(streamer, b, a.start + a.length - b.start)])


def _moved(streamer: Streamer, state: State, distance: int) -> State:
    """A state whose elements lie further along the stream than they were thought to."""
    values = dict(state.values)
    for a in streamer.accumulators:
        monoid = find_parts(a.monoid)
        if monoid is not None:
            values[a.name] = monoid.moved(values[a.name], distance)
    return replace(state, values=values)


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
        monoid = find_parts(a.monoid)
        if a.monoid in NOTHING or (monoid is not None and monoid.largest is not None and monoid.rank is None):
            raise ShapeError(f"{a.monoid} of an empty stream ({a}): axis {streamer.fused.cascade.axis} has length 0")
        shape = tuple(sizes[x.rstrip("'")] for x in a.axes)
        if monoid is not None:
            values[a.name] = monoid.nothing(shape, dtype)
            continue
        values[a.name] = np.full(shape, MONOIDS[a.monoid].identity, dtype)
    return State(values, {k: np.asarray(arrays[k]) for k in stream_free(streamer.fused)}, sizes)
