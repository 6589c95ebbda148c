"""The interpreter of the trace level: replay the recorded operations with NumPy's own functions.

Values of storage dtypes are held in the dtype that they are computed in; only a conversion that was recorded rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from redfuser.errors import CheckError
from redfuser.frontend.graph import Trace, TraceNode, View
from redfuser.ir.dtypes import STORAGE_ONLY, computed_in, converted, is_float
from redfuser.ir.monoids import parts_monoid


class Replay:
    """Values of the nodes of a trace for given arguments and sizes, each computed when first asked for.

    Weak nodes hold Python numbers, so that NumPy itself applies its promotion rules; every result is checked against
    the recorded dtype.
    """

    def __init__(self, trace: Trace, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> None:
        self.trace = trace
        self.arrays = {**trace.captured, **arrays}
        self.sizes = dict(sizes)
        self._values: dict[int, Any] = {}

    def value(self, position: int) -> Any:
        """The array (or number) that node `position` computes.

        Raises
        ------
        CheckError
            when NumPy gives another dtype than was recorded.
        """
        if position not in self._values:
            n = self.trace.nodes[position]
            if n.op in ("input", "size"):  # nothing is computed, and every call asks for labels and their axes
                found = _REPLAY[n.op](self, n, [])
            else:
                with np.errstate(all="ignore"):
                    found = _REPLAY[n.op](self, n, self.operands(n))
            if np.asarray(found).dtype != computed_in(n.dtype):
                raise CheckError(f"trace {self.trace.name}: {n} replays with dtype {np.asarray(found).dtype}")
            self._values[position] = np.asarray(found).item() if n.weak else found
        return self._values[position]

    def operands(self, n: TraceNode) -> list[Any]:
        """The values that a node reads. Where storage dtypes take part, also as that of the result (the exponential of
        an int8), it is computed in the recorded dtype or the wider one in its place."""
        values = [self.value(i) for i in n.inputs]
        nodes = [self.trace.nodes[i] for i in n.inputs]
        if n.op == "cast" or not is_float(n.dtype) or not {n.dtype, *(x.dtype for x in nodes)} & STORAGE_ONLY.keys():
            return values
        kept = [x.weak or (n.op == "where" and x.dtype == "bool") for x in nodes]
        return [v if k else np.asarray(v).astype(computed_in(n.dtype), copy=False)
                for k, v in zip(kept, values, strict=True)]

    def output(self, position: int) -> Any:
        """An output, rounded to the dtype it is stored in."""
        with np.errstate(all="ignore"):
            return converted(self.value(position), self.trace.nodes[position].dtype)

    def shape(self, n: TraceNode) -> tuple[int, ...]:
        """The concrete shape of a node."""
        return tuple(e if isinstance(e, int) else self.length(e) for e in n.shape)

    def length(self, label: str) -> int:
        """The length of a size; some are told by what NumPy makes alone."""
        if label not in self.sizes:
            maker = next(i for i, n in enumerate(self.trace.nodes) if n.op == "host" and label in n.shape)
            shape = zip(self.trace.nodes[maker].shape, self.value(maker).shape, strict=True)
            self.sizes |= {e: k for e, k in shape if isinstance(e, str)}
        return self.sizes[label]

    def knows(self, position: int) -> bool:
        """Whether all sizes that a node is computed from are known."""
        n = self.trace.nodes[position]
        return (n.op != "size" or n.param in self.sizes) and all(map(self.knows, n.inputs))


def _input(r: Replay, n: TraceNode, _: list[Any]) -> Any:
    array = np.asarray(r.arrays[n.param], dtype=computed_in(n.dtype))
    return array.reshape(r.shape(n)) if array.ndim != len(n.shape) else array


def _const(_r: Replay, n: TraceNode, _: list[Any]) -> Any:
    return computed_in(n.dtype).type(n.param)


def _size(r: Replay, n: TraceNode, _: list[Any]) -> Any:
    return np.int64(r.length(n.param))


def _arange(r: Replay, n: TraceNode, _: list[Any]) -> Any:
    return np.arange(*r.shape(n))


def _ufunc(_r: Replay, n: TraceNode, inputs: list[Any]) -> Any:
    if n.weak and n.dtype == "float64":
        inputs = [float(x) for x in inputs]  # Python's arithmetic made this node: 2 ** -1 is 0.5, not an error
    return getattr(np, n.param)(*inputs)


def _where(_r: Replay, _n: TraceNode, inputs: list[Any]) -> Any:
    return np.where(*inputs)


def _cast(_r: Replay, n: TraceNode, inputs: list[Any]) -> Any:
    return converted(inputs[0], n.dtype).astype(computed_in(n.dtype), copy=False)


def _reduce(_r: Replay, n: TraceNode, inputs: list[Any]) -> Any:
    ufunc, axes, keepdims = n.param
    array = np.asarray(inputs[0])
    # -inf and inf are the identities of max and min; NumPy itself refuses to reduce nothing
    initial = {"maximum": -np.inf, "minimum": np.inf}.get(ufunc) if array.dtype.kind == "f" else None
    keywords = {} if initial is None else {"initial": initial}
    return getattr(np, ufunc).reduce(array, axis=axes, keepdims=keepdims, **keywords)


def _parts(_r: Replay, n: TraceNode, inputs: list[Any]) -> Any:
    name, axis, keepdims, part = n.param
    monoid = parts_monoid(name)
    array = monoid.reduce(*np.broadcast_arrays(*inputs), axis=axis)[part]
    if monoid.rank is not None:
        return np.moveaxis(array.squeeze(axis), -1, axis)
    return array if keepdims else array.squeeze(axis)


def _einsum(_r: Replay, n: TraceNode, inputs: list[Any]) -> Any:
    return np.einsum(n.param, *inputs)


def _host(r: Replay, n: TraceNode, _: list[Any]) -> Any:
    nodes = [r.trace.nodes[i] for i in n.inputs]
    values = [r.value(i) if x.weak else r.output(i) for i, x in zip(n.inputs, nodes, strict=True)]
    found = n.param.of(n.param.run(values)).astype(computed_in(n.dtype), copy=False)
    return found if found.ndim == len(n.shape) else found.reshape(r.shape(n))


def _view(_r: Replay, n: TraceNode, inputs: list[Any]) -> Any:
    view: View = n.param
    array = np.asarray(inputs[0])
    kept = [d for d in view.dims if d is not None]
    fixed = dict(view.fixed)
    array = array[tuple(slice(None) if d in kept else fixed.get(d, 0) for d in range(array.ndim))]
    ranks = sorted(kept)
    array = array.transpose([ranks.index(d) for d in kept])
    return array[tuple(None if d is None else slice(None) for d in view.dims)]


def _broadcast(r: Replay, n: TraceNode, inputs: list[Any]) -> Any:
    return np.broadcast_to(inputs[0], r.shape(n))


_REPLAY: dict[str, Callable[[Replay, TraceNode, list[Any]], Any]] = {
    "input": _input, "const": _const, "size": _size, "arange": _arange, "ufunc": _ufunc, "where": _where, "cast": _cast,
    "reduce": _reduce, "parts": _parts, "einsum": _einsum, "host": _host, "view": _view, "broadcast": _broadcast,
}
