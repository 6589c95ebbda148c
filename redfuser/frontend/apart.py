"""A trace without reshapes: every dimension whose size is a product becomes one dimension per part.

Later levels then see axes that are neither merged nor split. Only inputs and outputs keep the shapes of the caller
(`Trace.shapes`); the arrays behind them are reshaped, which is a view for inputs that are split.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from redfuser.errors import TraceError
from redfuser.frontend.graph import Shape, Trace, TraceNode, TraceSize, View
from redfuser.frontend.guards import SizeGuard
from redfuser.frontend.host import Call, Operand, Result
from redfuser.frontend.places import broadcast_labels
from redfuser.ir.names import unique_name


def apart(t: Trace) -> Trace:
    """The trace with products of sizes taken apart.

    Raises
    ------
    TraceError
        for an element of a merged dimension whose parts have lengths that are not known.
    """
    reshaped = any(n.op == "reshape" for n in t.nodes)  # to dimensions of size 1 alone, where no size has parts
    return _Expander(t).trace() if reshaped or any(s.parts for s in t.sizes) else t


class _Expander:
    def __init__(self, t: Trace) -> None:
        self.old = t
        self.parts = {s.label: s.parts for s in t.sizes if s.parts}
        self.lengths = {s.label: s.value for s in t.sizes if s.fixed}
        self.nodes: list[TraceNode] = []
        self.position: dict[int, int] = {}
        self.wholes: dict[str, TraceSize] = {}
        self.merged: dict[tuple[int, str], int] = {}

    def trace(self) -> Trace:
        """All nodes rewritten in order."""
        for i, n in enumerate(self.old.nodes):
            rule = _RULES.get(n.op, _Expander._elementwise)
            self.position[i] = rule(self, n)
        t, at = self.old, self.position
        guards = tuple(replace(g, node=at[g.node]) if isinstance(g, SizeGuard) else g for g in t.guards)
        known = {at[i]: n.shape for i, n in enumerate(t.nodes) if n.op == "input"}
        outputs = []
        for i in t.outputs:
            shape, place = t.nodes[i].shape, at[i]
            if known.setdefault(place, shape) != shape:  # one array under two shapes
                place = self.add(replace(self.nodes[place], op="cast", inputs=(place,), param=None, weak=False))
                known[place] = shape
            outputs.append(place)
        shapes = {place: shape for place, shape in known.items() if set(shape) & set(self.parts)}
        return replace(
            t,
            nodes=tuple(self.nodes),
            arguments={name: at[i] for name, i in t.arguments.items()},
            outputs=tuple(outputs),
            guards=guards,
            assumptions=tuple(at[i] for i in t.assumptions),
            checks=tuple((at[i], at[n]) for i, n in t.checks),
            shapes=shapes,
            sizes=(*t.sizes, *self.wholes.values()),
        )

    # ---- shapes

    def labels(self, entry: str | int) -> tuple[str | int, ...]:
        """What stands for one entry of a shape."""
        return self.parts.get(entry, (entry,)) if isinstance(entry, str) else (entry,)

    def whole(self, label: str) -> str:
        """The size of a dimension that NumPy makes of the parts of a size: it has none itself."""
        if label not in self.wholes:
            taken = {s.label for s in (*self.old.sizes, *self.wholes.values())}
            size = next(s for s in self.old.sizes if s.label == label)
            self.wholes[label] = TraceSize(unique_name(f"{label}_all", taken), False, size.value, False)
        return self.wholes[label].label

    def flat(self, shape: Sequence[str | int]) -> Shape:
        """A shape with all products apart."""
        return tuple(p for e in shape for p in self.labels(e))

    def places(self, shape: Sequence[str | int]) -> list[range]:
        """For every dimension, the dimensions that stand for it."""
        found, start = [], 0
        for e in shape:
            count = len(self.labels(e))
            found.append(range(start, start + count))
            start += count
        return found

    def source(self, n: TraceNode, i: int = 0) -> TraceNode:
        """An input in its old form."""
        return self.old.nodes[n.inputs[i]]

    # ---- nodes

    def add(self, n: TraceNode) -> int:
        self.nodes.append(n)
        return len(self.nodes) - 1

    def view(self, position: int, dims: Sequence[int | None], like: TraceNode,
             fixed: Sequence[tuple[int, int]] = ()) -> int:
        """A rearrangement of a new node; nothing when it changes nothing."""
        shape = self.nodes[position].shape
        if not fixed and list(dims) == list(range(len(shape))):
            return position
        new = tuple(1 if d is None else shape[d] for d in dims)
        return self.add(replace(like, op="view", inputs=(position,), shape=new, param=View(tuple(dims), tuple(fixed))))

    def aligned(self, n: TraceNode, shape: Sequence[str | int]) -> tuple[int, ...]:
        """The inputs of an operation that broadcasts them to `shape`: as many dimensions of size 1 as parts there."""
        found = []
        for i in n.inputs:
            own = self.old.nodes[i].shape
            dims: list[int | None] = []
            for e, wide, place in zip(own, shape[len(shape) - len(own) :], self.places(own), strict=True):
                dims += place
                dims += [None] * (len(self.labels(wide)) - len(place) if e == 1 else 0)
            found.append(self.view(self.position[i], dims, self.old.nodes[i]))
        return tuple(found)

    def _elementwise(self, n: TraceNode) -> int:
        """Operations without axes, leaves among them."""
        return self.add(replace(n, inputs=self.aligned(n, n.shape), shape=self.flat(n.shape)))

    def _size(self, n: TraceNode) -> int:
        """|h| * |w| for the size of a product."""
        found: int | None = None
        for label in self.labels(n.param):
            size = self.add(replace(n, param=label))
            found = size if found is None else self._weak("multiply", n, found, size)
        assert found is not None
        return found

    def _weak(self, ufunc: str, n: TraceNode, a: int, b: int, shape: Shape = ()) -> int:
        return self.add(replace(n, op="ufunc", inputs=(a, b), shape=shape, param=ufunc, weak=not shape))

    def _arange(self, n: TraceNode) -> int:
        """Row-major positions along the parts."""
        labels = self.labels(n.shape[0])
        found = self.add(replace(n, shape=labels[:1]))
        for i, label in enumerate(labels[1:], 1):
            size = self.add(replace(n, op="size", shape=(), param=label, weak=True))
            scaled = self._weak("multiply", n, found, size, labels[:i])
            column = self.view(scaled, (*range(i), None), n)
            row = self.add(replace(n, shape=(label,)))
            found = self._weak("add", n, column, row, labels[: i + 1])
        return found

    def _view(self, n: TraceNode) -> int:
        old: View = n.param
        source = self.source(n)
        places = self.places(source.shape)
        dims = [p for d in old.dims for p in ((None,) if d is None else places[d])]
        fixed = [x for d, p in old.fixed for x in self._fixed(source.shape[d], places[d], p)]
        return self.view(self.position[n.inputs[0]], dims, n, fixed)

    def _fixed(self, entry: str | int, place: range, position: int) -> list[tuple[int, int]]:
        """A position along a dimension as positions along its parts."""
        found = []
        for label, d in reversed(list(zip(self.labels(entry), place, strict=True))):
            length = self.lengths.get(str(label))
            if d == place[0] or position == 0:
                found.append((d, position))
            elif length is None:
                raise TraceError(f"{self.old.name}: element {position} of merged axes cannot be recorded; take it "
                                 "before the reshape")
            else:
                found.append((d, position % length))
                position //= length
        return found

    def _reduce(self, n: TraceNode) -> int:
        ufunc, axes, keepdims = n.param
        shape = self.source(n).shape
        places = self.places(shape)
        own = tuple(p for i in axes for p in places[i])
        flat = self.flat(shape)
        kept = tuple((1 if keepdims else None) if i in own else e for i, e in enumerate(flat))
        new = replace(n, inputs=(self.position[n.inputs[0]],), shape=tuple(e for e in kept if e is not None),
                      param=(ufunc, own, keepdims))
        found = self.add(new)
        if not keepdims:
            return found
        dims = [p for i, place in enumerate(places) for p in (place[:1] if i in axes else place)]
        return self.view(found, dims, n)  # one dimension of size 1 for each that was reduced

    def _parts(self, n: TraceNode) -> int:
        name, axis, keepdims, part = n.param
        wide = broadcast_labels([self.old.nodes[i].shape for i in n.inputs])
        inputs, own = self.aligned(n, wide), self.places(wide)[axis]
        if len(own) > 1:
            label = self.whole(str(wide[axis]))
            inputs = tuple(self._as_one(i, own, label) for i in inputs)
        return self.add(replace(n, inputs=inputs, shape=self.flat(n.shape), param=(name, own[0], keepdims, part)))

    def _as_one(self, position: int, own: range, label: str) -> int:
        """The array that NumPy makes of a value with several dimensions as one: positions count along all of them."""
        if (position, label) in self.merged:
            return self.merged[position, label]
        n = self.nodes[position]

        def merged(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
            whole = math.prod(a.shape[own.start : own.stop])
            return a.reshape(*a.shape[: own.start], whole, *a.shape[own.stop :])

        call = Call("reshape", merged, (Operand(0),), {}, "an array with several axes as one", view=True)
        one = 1 if all(e == 1 for e in n.shape[own.start : own.stop]) else label
        shape = (*n.shape[: own.start], one, *n.shape[own.stop :])
        found = self.add(replace(n, op="host", inputs=(position,), shape=shape, param=Result(call), weak=False))
        self.merged[position, label] = found
        return found

    def _einsum(self, n: TraceNode) -> int:
        terms, _, output = n.param.partition("->")
        counts: dict[str, int] = {}
        for i, letters in zip(n.inputs, terms.split(","), strict=True):
            for letter, entry in zip(letters, self.old.nodes[i].shape, strict=True):
                counts[letter] = max(counts.get(letter, 1), len(self.labels(entry)))
        unused = iter(c for c in string.ascii_letters if c not in n.param)
        names = {letter: "".join([letter, *(next(unused) for _ in range(k - 1))]) for letter, k in counts.items()}
        inputs = []
        for i, letters in zip(n.inputs, terms.split(","), strict=True):
            shape = self.old.nodes[i].shape
            places = self.places(shape)
            dims = [p for x, place in zip(letters, places, strict=True)
                    for p in (*place, *[None] * (len(names[x]) - len(place)))]
            inputs.append(self.view(self.position[i], dims, self.old.nodes[i]))
        param = ",".join("".join(names[x] for x in term) for term in terms.split(","))
        param += "->" + "".join(names[x] for x in output)
        return self.add(replace(n, inputs=tuple(inputs), shape=self.flat(n.shape), param=param))

    def _host(self, n: TraceNode) -> int:
        """NumPy gets whole dimensions, and gives such."""
        groups = tuple(tuple(len(self.labels(e)) for e in self.source(n, i).shape) for i in range(len(n.inputs)))
        return self.add(replace(n, inputs=tuple(self.position[i] for i in n.inputs), shape=self.flat(n.shape),
                                param=replace(n.param, groups=groups)))

    def _reshape(self, n: TraceNode) -> int:
        """The same parts in the same order: dimensions of size 1 come and go."""
        source = self.flat(self.source(n).shape)
        kept = iter([i for i, e in enumerate(source) if e != 1])
        dims = [None if e == 1 else next(kept) for e in self.flat(n.shape)]
        return self.view(self.position[n.inputs[0]], dims, n)


_RULES: dict[str, Callable[[_Expander, TraceNode], int]] = {
    "size": _Expander._size, "arange": _Expander._arange, "view": _Expander._view, "reduce": _Expander._reduce,
    "parts": _Expander._parts, "einsum": _Expander._einsum, "host": _Expander._host, "reshape": _Expander._reshape,
}

