"""Arrays as a cascade sees them: several axes of an array as one stream axis.

A cascade over axes h and w streams along their product h_w, position h * |w| + w. Its tensors are flattened readings of
the term's arrays (`View`). Flattening shares memory where strides allow it, and copies elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from redfuser.ir.term import Axis, Cascade, Out, Tensor, base_axis

Array = np.ndarray[Any, Any]
Parts = Mapping[str, tuple[str, ...]]


def array_of(value: Any) -> Any:
    """An array as it is, of whatever library; anything else as an array of NumPy's."""
    return value if hasattr(value, "reshape") else np.asarray(value)


def parts_of(axes: Iterable[Axis]) -> dict[str, tuple[str, ...]]:
    """Name of every product axis -> names of its parts, the outermost first."""
    return {a.name: a.parts for a in axes if a.parts}


def expanded(axes: Iterable[str], parts: Parts) -> tuple[str, ...]:
    """The axes with products replaced by their parts."""
    return tuple(p for a in axes for p in parts.get(a, (a,)))


def with_products(axes: Iterable[Axis], sizes: Mapping[str, int | None]) -> dict[str, int]:
    """The known ones of `sizes`, and the lengths of the product axes whose parts are known."""
    found = {base_axis(a): n for a, n in sizes.items() if n is not None}
    for a in axes:
        if a.parts and all(base_axis(p) in found for p in a.parts):
            found[base_axis(a.name)] = math.prod(found[base_axis(p)] for p in a.parts)
    return found


def viewed_sizes(tensors: Iterable[Tensor], arrays: Mapping[str, Any]) -> dict[str, int]:
    """Lengths of the axes at which views read their sources, as far as those are among `arrays`."""
    found: dict[str, int] = {}
    for t in tensors:
        if t.view is not None and t.view.source in arrays:
            shape = np.shape(arrays[t.view.source])
            found |= {base_axis(a): n for a, n in zip(t.view.index, shape, strict=True) if isinstance(a, str)}
    return found


def present(t: Tensor, array: Any, parts: Parts, sizes: Mapping[str, int],
            reshape: Callable[[Any, list[int]], Any] = np.reshape) -> Array:
    """The array that stands for a tensor with a view, made from the view's source.

    Parameters
    ----------
    array : the source, one dimension per entry of `t.view.index`; of NumPy, or one that its functions take
    sizes : length of every part
    reshape : gives an array another shape, copied where strides do not allow a view
    """
    assert t.view is not None
    found = array_of(array)[tuple(slice(None) if isinstance(a, str) else a for a in t.view.index)]
    names = [a for a in t.view.index if isinstance(a, str)]
    while len(set(names)) < len(names):
        name = next(a for a in names if names.count(a) > 1)
        first = names.index(name)
        second = names.index(name, first + 1)
        found = np.diagonal(found, axis1=first, axis2=second)
        names = [*(a for i, a in enumerate(names) if i not in (first, second)), name]
    every = expanded(t.axes, parts)
    found = found.transpose([names.index(a) for a in every if a in names])
    if len(names) < len(every):
        found = found[tuple(slice(None) if a in names else None for a in every)]
        found = np.broadcast_to(found, [sizes[base_axis(a)] for a in every])
    result: Array = reshape(found, [math.prod(sizes[base_axis(p)] for p in parts.get(a, (a,))) for a in t.axes])
    return result


def result_shape(o: Out, parts: Parts, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an output with all its axes apart."""
    return tuple(sizes[base_axis(a)] for a in expanded(o.axes, parts))


def as_results(c: Cascade, arrays: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    """The outputs of a cascade with the stream's axes apart again, those whose lengths are known."""
    parts = parts_of(c.axes)
    return {
        o.name: arrays[o.name].reshape(result_shape(o, parts, sizes)) if set(o.axes) & set(parts) else arrays[o.name]
        for o in c.outs
        if all(base_axis(a) in sizes for a in expanded(o.axes, parts))
    }


def stream_length(c: Cascade, arrays: Mapping[str, Any], sizes: Mapping[str, int] | None = None) -> int | None:
    """Length of the stream as far as the inputs among `arrays` tell it, and `sizes`, known lengths of axes."""
    known = with_products(c.axes, {**(sizes or {}), **_plain_sizes(c, arrays), **viewed_sizes(c.tensors, arrays)})
    return None if c.axis is None else known.get(base_axis(c.axis))


def with_views(c: Cascade, arrays: Mapping[str, Any], sizes: Mapping[str, int] | None = None) -> dict[str, Any]:
    """`arrays` and what the tensors of a cascade are, where they are views of these arrays.

    `sizes`: lengths of axes that no array tells.
    """
    found = dict(arrays)
    missing = [t for t in c.tensors if t.view is not None and t.name not in found]
    if missing:
        static = {base_axis(a.name): a.size for a in c.axes if a.size is not None}
        known = {**static, **(sizes or {}), **_plain_sizes(c, arrays), **viewed_sizes(c.tensors, arrays)}
        parts = parts_of(c.axes)
        for t in missing:
            assert t.view is not None
            found[t.name] = present(t, arrays[t.view.source], parts, known)
    return found


def _plain_sizes(c: Cascade, arrays: Mapping[str, Any]) -> dict[str, int]:
    """Lengths of the axes of the tensors that are no views."""
    return {base_axis(a): n for t in c.tensors if t.name in arrays
            for a, n in zip(t.axes, np.shape(arrays[t.name]), strict=True)}
