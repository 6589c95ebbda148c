"""Inputs that break kernels: ties, constant rows, masks, NaN, infinities, large scores, data far from zero."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from redfuser.ir import Tensor
from redfuser.ir.dtypes import finfo, is_float, numpy_dtype
from redfuser.ir.term import base_axis

Array = np.ndarray[Any, Any]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]

LENGTHS = (1, 2, 3, 4, 7, 8, 9, 16, 17, 31, 33, 40)
"""Lengths of the stream axis: one, powers of two and their neighbours, primes."""

OTHER_LENGTHS = (2, 3, 5, 1)
"""Lengths of all other axes."""


def _normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.normal(size=shape)


def _ties(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.integers(-3, 4, shape).astype(float)


def _constant(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(np.round(rng.normal(size=(*shape[:-1], 1)), 2), shape).copy()


def _zeros(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.zeros(shape)


def _far(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return 1e4 + 1e-3 * rng.normal(size=shape)


def _wide(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return 30 * rng.normal(size=shape)


def _sorted(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.sort(rng.normal(size=shape) * 3, axis=-1)[..., :: rng.choice((1, -1))].copy()


FINITE: Mapping[str, Draw] = {
    "normal": _normal, "ties": _ties, "far": _far, "constant": _constant, "wide": _wide, "sorted": _sorted,
    "zeros": _zeros,
}
"""Kind -> finite values of a shape."""

SPECIAL = ("nan", "inf", "-inf", "masked prefix", "masked", "nothing alive")
"""Kinds with values that are not finite: one of them anywhere, a stretch of -inf, or nothing but -inf."""

EMPTY = "empty"
"""The kind whose stream has length 0; for cascades without a maximum or minimum, which nothing has."""

LONG = "long"
"""The kind whose streams are longer than any block: normal values."""

LONG_LENGTHS = (257, 1023, 4099)

KINDS = ("normal", "far", "ties", *SPECIAL, "wide", "constant", "sorted", "zeros", LONG, EMPTY)
"""All kinds, in the order in which trials use them."""


def draw_arrays(tensors: Sequence[Tensor], sizes: Mapping[str, int], kind: str, rng: np.random.Generator,
                streams: frozenset[str]) -> dict[str, Array]:
    """Inputs of one kind. Infinities and NaN enter one tensor with a stream axis; the others stay finite. Finite kinds
    are one tensor with a stream axis, the others being normal, or all of them.

    Parameters
    ----------
    sizes
        length of every axis.
    kind
        one of `KINDS`.
    streams
        the stream axes.
    """
    carrying = [t.name for t in tensors if streams & set(t.axes) and is_float(t.dtype)]
    chosen = [str(rng.choice(carrying))] if carrying else []
    alone = kind in FINITE and rng.random() < 0.5
    if kind in FINITE and not alone:
        chosen = carrying
    arrays = {}
    for t in tensors:
        shape = tuple(sizes[base_axis(a)] for a in t.axes)
        own = kind if t.name in chosen or not (alone or kind in ("far", "wide")) else "normal"
        dtype = numpy_dtype(t.dtype)
        arrays[t.name] = draw_array(shape, dtype, own if own in FINITE else "normal", rng)
        if kind in SPECIAL and t.name in chosen:
            axis = next(i for i, a in enumerate(t.axes) if a in streams)
            _spoil(np.moveaxis(arrays[t.name], axis, -1), kind, rng)
    return arrays


def draw_array(shape: tuple[int, ...], dtype: np.dtype[Any], kind: str, rng: np.random.Generator) -> Array:
    """An array of a kind of `FINITE`; integers and booleans whatever the kind."""
    if dtype.kind == "b":
        return rng.random(shape) < (1.0 if kind == "constant" else 0.7)
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -3, 4, shape).astype(dtype)
    if not shape:
        return np.asarray(abs(rng.normal()), dtype)  # a scale or an epsilon
    largest = float(finfo(dtype).max)
    return np.clip(FINITE[kind](rng, shape), -largest, largest).astype(dtype)


def _spoil(array: Array, kind: str, rng: np.random.Generator) -> None:
    """Put values that are not finite into some rows; the stream is the last axis."""
    if not array.size:
        return
    n = array.shape[-1]
    for row in np.ndindex(*array.shape[:-1]):
        if rng.random() < 0.3:
            continue
        if kind == "nothing alive":
            array[row] = -np.inf
        elif kind == "masked prefix":
            array[row][: rng.integers(n + 1)] = -np.inf
        elif kind == "masked":
            array[row][rng.random(n) < 0.5] = -np.inf
        else:
            array[row][rng.integers(n)] = float(kind)
