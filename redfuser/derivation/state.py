"""What a stream leaves behind (states), and what it is made of (chunks)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from redfuser.derivation.fusion import FusedCascade
from redfuser.ir import Expr, Idx, Load
from redfuser.ir.interpret import Arrays, Evaluator

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class State:
    """What the loop carries: named arrays, one dimension per axis of the accumulator. `length` 0 is the empty state.

    values  accumulator name -> array; of a monoid with several parts a structured array with a field for each
    inputs  the stream-free inputs seen so far (scales, weights), which corrections and the epilogue may read
    sizes   length of every other axis
    start   position of the first element seen
    """

    values: Mapping[str, Array] = field(default_factory=dict)
    inputs: Mapping[str, Array] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    length: int = 0
    start: int = 0

    def __getitem__(self, name: str) -> Array:
        return self.values[name]

    def __repr__(self) -> str:
        if not self.length:
            return "State(empty)"
        values = ", ".join(f"{k}: {v.dtype}{list(v.shape)}" for k, v in self.values.items())
        return f"State({values}, length={self.length})"


EMPTY = State()


@dataclass(frozen=True)
class Chunk:
    """Positions [start, stop) of the stream within `arrays`. `sizes`: lengths of axes that these do not tell.

    `offset`: position of the first element of `arrays` on the stream.
    """

    arrays: Arrays
    start: int
    stop: int
    sizes: Mapping[str, int] = field(default_factory=dict)
    offset: int = 0

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

    def start(self, axis: str) -> int:
        """Position of the first element along an axis; of the stream, that of the chunk."""
        return self.chunk.offset + self.chunk.start if axis == self.stream else super().start(axis)

    def _value(self, e: Expr) -> Any:
        if isinstance(e, Idx) and e.axis == self.stream:
            return self.align(np.arange(self.chunk.length) + self.start(e.axis), (e.axis,))
        if isinstance(e, Load) and self.stream in e.axes:
            window = slice(self.chunk.start, self.chunk.stop)
            index = tuple(window if a == self.stream else slice(None) if isinstance(a, str) else a for a in e.axes)
            array = self.loaded(np.asarray(self.arrays[e.tensor])[index])
            return self._aligned_any(array, tuple(a for a in e.axes if isinstance(a, str)))
        return super()._value(e)
