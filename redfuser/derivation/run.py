"""Run a fused cascade from its inputs to its outputs: pass by pass, in chunks or as a tree of partial states."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from redfuser.derivation.fusion import FusedCascade
from redfuser.derivation.state import EMPTY, Array, Chunk, State
from redfuser.derivation.streaming import Streamer, define_producers, empty_state, finalize, merge
from redfuser.errors import ShapeError
from redfuser.ir.interpret import Arrays, Evaluator, by_part, given
from redfuser.ir.views import as_results


def run_fused(fused: FusedCascade, arrays: Arrays, *, chunks: int | Sequence[int] = 4, tree: int | None = None,
              seed: int = 0, dtype: Any = None, sizes: Mapping[str, int] | None = None) -> dict[str, Array]:
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
    sizes
        lengths of axes that no tensor of the cascade carries.

    Raises
    ------
    ShapeError
        when arrays disagree, or a maximum or minimum of nothing is asked for.
    """
    c = fused.cascade
    known, sizes = given(c, arrays, sizes)
    arrays = {t.name: known[t.name] for t in c.tensors}
    values: dict[str, Array] = {}
    final: dict[str, Array] = {}
    for index in range(len(fused.passes)):
        assert c.axis is not None
        streamer = Streamer(fused, index, final, dtype)
        parts = [Chunk(arrays, a, b, sizes) for a, b in _boundaries(sizes[c.axis.rstrip("'")], chunks, seed)]
        state = _stream(streamer, parts) if tree is None else _merge_tree(streamer, parts, random.Random(tree))
        if not state.length:
            state = empty_state(streamer, arrays, sizes)
        values |= state.values
        final |= streamer.finals(state)
    real = None if dtype is None else np.dtype(dtype).type
    results = finalize(fused, values, arrays, sizes, sizes[c.axis.rstrip("'")] if c.axis else 0, real)
    named = {key: value for name, _ in fused.epilogue for key, value in by_part(name, results[name]).items()}
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


def _outputs(fused: FusedCascade, results: Mapping[str, Array], arrays: Arrays, sizes: Mapping[str, int],
             dtype: Any) -> dict[str, Array]:
    """Outputs from results and state (a name means the result first), those with the stream axis in a second sweep."""
    c = fused.cascade
    ev = Evaluator([a.name for a in c.axes], sizes, arrays, c.tensors, dtype)
    axes = {r.name: r.axes for r in c.reductions}
    axes = {a.name: a.axes for a in fused.accumulators} | {d.name: d.axes for d in fused.dependencies} | axes
    for name, value in results.items():
        ev.define(name, axes[name], ev.align(value, axes[name]))
    define_producers(fused.cascade, ev)
    outs = {o.name: ev.output(o) for o in c.outs}
    return outs | as_results(c, outs, sizes)
