"""Hypothesis strategies: random cascades, and inputs that fit a cascade."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from redfuser.ir import Cascade, Tensor
from redfuser.ir.dtypes import is_float, numpy_dtype
from redfuser.ir.term import base_axis
from redfuser.testing.grammar import DTYPES, draw_cascade

T = TypeVar("T")
Array = np.ndarray[Any, Any]

LONGEST_STREAM = 20
NUMBERS: dict[str, st.SearchStrategy[float]] = {
    "plain": st.floats(-8, 8, width=32, allow_subnormal=False),
    "ties": st.integers(-3, 3).map(float),
    "far": st.integers(-3000, 3000).map(lambda k: 1e4 + k / 1e6),
    "special": st.one_of(st.floats(-8, 8, width=32, allow_subnormal=False),
                         st.sampled_from((float("-inf"), float("-inf"), float("inf"), float("nan")))),
}
"""Kind -> the elements of an array. "special" holds -inf (a mask), infinity and NaN."""


class _Drawn:
    """Choices of the grammar made by hypothesis."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def choice(self, options: Sequence[T]) -> T:
        """One of the options; simpler ones come first."""
        return options[self.draw(st.integers(0, len(options) - 1))]


@st.composite
def cascades(draw: st.DrawFn, stages: int = 4, dtypes: Sequence[str] = DTYPES) -> Cascade:
    """Cascades of 3 to `stages` + 1 reductions; most have dependent stages and are FUSIBLE.

    Parameters
    ----------
    dtypes
        floating dtypes, of which one is that of all inputs and outputs; those of `STORAGE_ONLY` may be among them.
    """
    return draw_cascade(_Drawn(draw), stages, "drawn", dtypes)


@st.composite
def cascade_inputs(draw: st.DrawFn, cascade: Cascade, kinds: Sequence[str] = tuple(NUMBERS)) -> dict[str, Array]:
    """Arrays for the tensors of a cascade, by name.

    Parameters
    ----------
    kinds
        names of `NUMBERS`: what the arrays may hold. Values that are not finite, and those far from zero, enter one
        tensor; the others hold plain numbers.
    """
    kind = draw(st.sampled_from(list(kinds)))
    sizes = {base_axis(a.name): draw(st.integers(1, LONGEST_STREAM if a.name == cascade.axis else 3))
             if a.size is None else a.size for a in cascade.axes}
    carrying = [t.name for t in cascade.tensors if cascade.axis in t.axes]
    chosen = draw(st.sampled_from(carrying)) if carrying else ""
    plain = "ties" if kind == "ties" else "plain"
    return {t.name: draw(_array(t, sizes, kind if t.name == chosen else plain)) for t in cascade.tensors}


def _array(t: Tensor, sizes: dict[str, int], kind: str) -> st.SearchStrategy[Array]:
    shape, dtype = tuple(sizes[base_axis(a)] for a in t.axes), numpy_dtype(t.dtype)
    if is_float(dtype):
        return hnp.arrays(np.float64, shape, elements=NUMBERS[kind]).map(lambda a: a.astype(dtype))
    return hnp.arrays(dtype, shape)
