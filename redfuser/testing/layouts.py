"""Hypothesis strategy: arrays of awkward shapes, laid out in memory in awkward ways."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

Array = np.ndarray[Any, Any]

LENGTHS = (1, 2, 3, 4, 7, 8, 9, 16, 17, 31, 33)
"""Lengths of axes: one, powers of two and their neighbours, primes."""
STEPS = (1, 2, -1, 3, -2)
"""Steps from one element of an axis to the next, in elements of the array that holds them; 0 stands beside them."""


@st.composite
def shapes_and_strides(draw: st.DrawFn, shape: tuple[int, ...] | None = None, dtype: Any = "float32", *, ndim: int = 2,
                       empty: bool = False, repeated: bool = True,
                       elements: st.SearchStrategy[Any] | None = None) -> Array:
    """Arrays whose shape and strides break kernels: axes in any order in memory, reversed, with gaps, repeated
    (stride 0), and starting inside of a larger array. Simpler layouts come first.

    Parameters
    ----------
    shape
        of the arrays; by default `ndim` axes of lengths from `LENGTHS`.
    dtype
        of their elements.
    empty
        axes may have length 0.
    repeated
        axes may have stride 0. Such arrays are read-only.
    elements
        what they hold; by default numbers between -8 and 8, or whatever the dtype has.
    """
    lengths = shape
    if lengths is None:
        lengths = tuple(draw(st.sampled_from((*LENGTHS, 0) if empty else LENGTHS)) for _ in range(ndim))
    order = draw(st.permutations(range(len(lengths))))
    steps = [draw(st.sampled_from((*STEPS, 0) if repeated else STEPS)) for _ in lengths]
    offsets = [draw(st.integers(0, 2)) for _ in lengths]
    held = [offset + max(1, 1 if step == 0 else length * abs(step))
            for length, step, offset in zip(lengths, steps, offsets, strict=True)]
    kind = np.dtype(dtype)
    if elements is None and kind.kind == "f":
        elements = st.floats(-8, 8, width=32 if kind.itemsize >= 4 else 16, allow_subnormal=False)
    store = draw(hnp.arrays(kind, tuple(held[i] for i in order), elements=elements))
    made = store.transpose(np.argsort(order)) if lengths else store
    for axis, (length, step, offset) in enumerate(zip(lengths, steps, offsets, strict=True)):
        made = _laid(made, axis, length, step, offset)
    return made


def _laid(array: Array, axis: int, length: int, step: int, offset: int) -> Array:
    """An axis of a larger array cut down to `length`, from `offset` on, in steps."""
    cut = np.moveaxis(array, axis, -1)[..., offset:]
    stretched = (*cut.shape[:-1], length)
    return np.moveaxis(cut[..., ::step][..., :length] if step else np.broadcast_to(cut[..., :1], stretched), -1, axis)
