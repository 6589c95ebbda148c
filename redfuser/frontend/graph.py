"""The trace level: what a NumPy function did, as a frozen graph with symbolic sizes.

Operations (`TraceNode.op`) and their `param`:

    input      name of the argument or captured array
    const      the number
    size       label of a size; a 0-d integer
    arange     none; the positions 0, 1, ... along the only dimension
    ufunc      name of an elementwise NumPy ufunc; inputs broadcast
    where      none; inputs condition, a, b broadcast
    cast       none; to the dtype of the node
    reduce     (name of a binary ufunc, axes, keepdims)
    parts      (monoid, axis, keepdims, part): one part of a reduction whose results have several
    einsum     subscripts with explicit output; repeated letters have equal sizes
    view       `View`: dimensions permuted, inserted, dropped at a position
    broadcast  none; to the shape of the node
    host       `host.Result`: what NumPy itself computes from its inputs (gone when a trace is cut into stages)
    reshape    none; to the shape of the node, whose sizes have the parts of the input's (gone in a finished trace)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from redfuser.errors import CheckError, DTypeError, ShapeError
from redfuser.frontend.guards import ScopeGuard, SizeGuard
from redfuser.frontend.source import SourceLine
from redfuser.frontend.spec import SUPPORTED_DTYPES, Spec
from redfuser.frontend.structure import leaves_of, unflatten
from redfuser.ir.views import array_of

Shape = tuple[str | int, ...]

OPERATIONS = {
    "input": 0, "const": 0, "size": 0, "arange": 0, "ufunc": None, "where": 3, "cast": 1, "reduce": 1, "parts": None,
    "einsum": None, "host": None, "view": 1, "broadcast": 1, "reshape": 1,
}
"""Operation -> number of inputs (None: several numbers are legal)."""


@dataclass(frozen=True)
class View:
    """Rearranged dimensions. `dims`: for each output dimension its input dimension, None for a new one of size 1.
    `fixed`: (input dimension, position) of dropped dimensions; other input dimensions left out have size 1."""

    dims: tuple[int | None, ...]
    fixed: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        dims = ", ".join("new" if d is None else str(d) for d in self.dims)
        fixed = "".join(f", {d} at {p}" for d, p in self.fixed)
        return f"[{dims}]{fixed}"


@dataclass(frozen=True)
class TraceNode:
    """One recorded operation. `inputs` are positions in the trace; a `shape` entry is the label of a size, or 1."""

    op: str
    inputs: tuple[int, ...]
    shape: Shape
    dtype: str
    param: Any = None
    weak: bool = False
    source: SourceLine | None = None

    def __str__(self) -> str:
        args = ", ".join(f"%{i}" for i in self.inputs)
        param = "" if self.param is None else f"<{self.param}>"
        shape = ", ".join(map(str, self.shape))
        return f"{self.op}{param}({args}) : {'weak ' if self.weak else ''}{self.dtype}[{shape}]"


@dataclass(frozen=True)
class TraceSize:
    """A size. `named`: the label is the user's; `value`: its length while tracing; `fixed`: the trace relies on it.
    `parts`: the sizes whose product it is; nodes have dimensions for the parts, not for the product."""

    label: str
    named: bool
    value: int | None
    fixed: bool
    parts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trace:
    """A recorded function.

    nodes      in execution order
    arguments  name -> position of its input node, in calling order
    captured   arrays from outside the function, now inputs of their own, by name
    outputs    positions of the results, in the order of `structure`'s leaves
    structure  the nested result with `Leaf`s for arrays
    sizes      every size, in order of first appearance
    guards     what must still hold for the trace to be valid at a later call
    shapes     position of an input or output -> its shape for the caller, where that has products of sizes
    assumptions  positions of the conditions (bool) that the caller guarantees to hold everywhere
    checks     positions of labels and of the length of the axis they choose from, which every call compares
    """

    name: str
    nodes: tuple[TraceNode, ...]
    arguments: Mapping[str, int]
    captured: Mapping[str, np.ndarray[Any, Any]]
    outputs: tuple[int, ...]
    structure: Any
    sizes: tuple[TraceSize, ...]
    guards: tuple[SizeGuard | ScopeGuard, ...] = ()
    assumptions: tuple[int, ...] = ()
    shapes: Mapping[int, Shape] = field(default_factory=dict)
    checks: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        lines = [f"trace {self.name}"]
        fixed = [f"{s.label}={s.value}" if s.fixed else s.label for s in self.sizes]
        lines.append(f"  sizes {', '.join(fixed)}" if fixed else "  no symbolic sizes")
        width = max((len(str(n)) for n in self.nodes), default=0)
        for i, n in enumerate(self.nodes):
            where = "" if n.source is None else f"  # {n.source.line}: {n.source.text}"
            lines.append(f"  %{i} = {n!s:{width if where else 0}}{where}")
        lines.append(f"  return {', '.join(f'%{i}' for i in self.outputs)}")
        lines += [f"  assume %{i}" for i in self.assumptions]
        lines += [f"  check %{i} within %{n}" for i, n in self.checks]
        lines += [f"  guard {g}" for g in self.guards]
        return "\n".join(lines)

    def inputs(self) -> dict[str, TraceNode]:
        """Arguments, then captured arrays: name -> input node."""
        return {n.param: n for n in self.nodes if n.op == "input"}

    def output_names(self) -> tuple[str, ...]:
        """A readable name for each output: `out`, or `out_` and the path to it in the result."""
        return tuple("_".join(("out", *leaf.path)) for leaf in leaves_of(self.structure))

    def unflatten(self, arrays: Sequence[Any], wrap: Callable[[Any], Any] | None = None) -> Any:
        """The nested result around flat `arrays` (one per output). Dimensions of size 1 may be missing: they are
        inserted. As in NumPy a 0-d result is a scalar, and a Python number stays one.
        `wrap`: done to each array of the result.

        Raises
        ------
        ShapeError
            when the number of arrays is not the number of outputs, or arrays to be joined do not fit together.
        """
        if len(arrays) != len(self.outputs):
            raise ShapeError(f"{len(arrays)} arrays for the {len(self.outputs)} outputs of {self.name}")
        full = [np.asarray(a).item() if self.nodes[i].weak and wrap is None else self.for_caller(array_of(a), i)
                for a, i in zip(arrays, self.outputs, strict=True)]
        return unflatten(self.structure, full, wrap)

    def caller_shape(self, position: int) -> Shape:
        """The shape of an input or output as the caller knows it."""
        return self.shapes.get(position, self.nodes[position].shape)

    @cached_property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """Sizes that are products -> their parts."""
        return {s.label: s.parts for s in self.sizes if s.parts}

    def for_caller(self, array: np.ndarray[Any, Any], position: int) -> Any:
        """An output in the shape of the caller: products in one dimension, dimensions of size 1 inserted."""
        own = self.nodes[position].shape
        if position not in self.shapes:
            return _with_unit_dims(array, own)
        entries = own if array.ndim == len(own) else [e for e in own if e != 1]
        lengths = iter([n for n, e in zip(array.shape, entries, strict=True) if e != 1])
        return array.reshape([math.prod(next(lengths) for _ in self.parts.get(e, (e,))) if isinstance(e, str) else 1
                              for e in self.shapes[position]])

    def with_parts(self, array: np.ndarray[Any, Any], position: int, sizes: Mapping[str, int]) -> np.ndarray[Any, Any]:
        """The array of an input or output with a dimension per part and without those of size 1.

        `sizes`: label -> length of every size.
        """
        return array.reshape([sizes[e] for e in self.nodes[position].shape if isinstance(e, str)])

    @cached_property
    def _expected(self) -> tuple[tuple[str, Shape, str], ...]:
        """Name, shape for the caller, and dtype of every input; every call looks at them."""
        return tuple((n.param, self.caller_shape(i), n.dtype) for i, n in enumerate(self.nodes) if n.op == "input")

    def size_values(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Label -> length of every size, from the shapes of all arguments; captured arrays are added.

        Raises
        ------
        ShapeError
            naming the argument whose shape does not fit the trace.
        """
        shapes = {**{name: np.shape(array) for name, array in self.captured.items()}, **shapes}
        values = {s.label: s.value for s in self.sizes if s.fixed and s.value is not None}
        for name, shape, dtype in self._expected:
            if len(shapes[name]) != len(shape):
                raise ShapeError(f"argument {name!r} has {len(shapes[name])} dimensions, expected {len(shape)}")
            for label, length in zip(shape, shapes[name], strict=True):
                expected = label if isinstance(label, int) else values.setdefault(label, length)
                if expected != length:
                    raise ShapeError(f"argument {name!r} of shape {shapes[name]}: length {length} where {expected} is "
                                     f"expected (traced as {Spec(shape, dtype)})")
        for label, parts in self.parts.items():
            if all(p in values for p in parts):
                product = math.prod(values[p] for p in parts)
                if values.setdefault(label, product) != product:
                    raise ShapeError(f"length {values[label]} where {product} is expected, the product of {parts}")
        return values

    def mismatch(self, specs: Mapping[str, Spec]) -> str | None:
        """Why this trace cannot serve arguments of these (concrete) specs; None when it can. Checks all guards."""
        for name, position in self.arguments.items():
            n, spec = self.nodes[position], specs[name]
            if (n.dtype, n.weak) != (spec.dtype, spec.weak):
                return f"argument {name!r} is {'a Python ' if spec.weak else ''}{spec.dtype}, traced as {n.dtype}"
        try:
            values = self.size_values({name: tuple(int(e) for e in specs[name].shape) for name in self.arguments})
        except ShapeError as error:
            return str(error)
        for guard in self.guards:
            holds = guard.holds() if isinstance(guard, ScopeGuard) else self.answers(guard, values)
            if holds is False:
                return f"no longer true: {guard}"
        return None

    def in_scope(self) -> bool:
        """Whether all that the function read from outside is what it was."""
        return all(g.holds() for g in self.guards if isinstance(g, ScopeGuard))

    def answers(self, guard: SizeGuard, sizes: Mapping[str, int]) -> bool | None:
        """Whether a question about sizes has the answer that it had; None when not all of them are known."""
        from redfuser.frontend.replay import Replay

        replay = Replay(self, {}, sizes)
        return bool(replay.value(guard.node)) == guard.expected if replay.knows(guard.node) else None

    def run(self, arrays: Mapping[str, Any]) -> Any:
        """Replay in NumPy on the arguments by name; the nested result. An oracle independent of every later level.

        Raises
        ------
        ShapeError
            naming the argument whose shape does not fit the trace.
        """
        from redfuser.frontend.replay import Replay

        replay = Replay(self, arrays, self.size_values({name: np.shape(arrays[name]) for name in self.arguments}))
        return self.unflatten([replay.output(i) for i in self.outputs])


def _with_unit_dims(array: np.ndarray[Any, Any], shape: Shape) -> Any:
    """The array with dimensions of size 1 inserted where `shape` has them; a NumPy scalar for shape ()."""
    if array.ndim != len(shape):
        units = tuple(i for i, entry in enumerate(shape) if entry == 1)
        array = np.expand_dims(array, units)
    return array[()] if array.ndim == 0 else array


def check_trace(t: Trace) -> None:
    """Raise CheckError unless nodes read earlier nodes only, operations and sizes are known, outputs exist.

    Raises DTypeError for a dtype that no later level knows.
    """
    labels = {s.label for s in t.sizes}
    for i, n in enumerate(t.nodes):
        where = f"trace {t.name}, %{i} = {n}"
        if n.op not in OPERATIONS:
            raise CheckError(f"{where}: unknown operation")
        if any(not 0 <= j < i for j in n.inputs):
            raise CheckError(f"{where}: reads a later node")
        if OPERATIONS[n.op] not in (None, len(n.inputs)):
            raise CheckError(f"{where}: takes {OPERATIONS[n.op]} inputs")
        if any(e != 1 if isinstance(e, int) else e not in labels for e in n.shape):
            raise CheckError(f"{where}: unknown size")
        if n.dtype not in SUPPORTED_DTYPES:
            raise DTypeError(f"{where}: unsupported dtype")
        if n.weak and n.shape:
            raise CheckError(f"{where}: only 0-d values are weak")
    if any(not 0 <= i < len(t.nodes) for i in (*t.outputs, *t.arguments.values(), *t.assumptions,
                                                 *(i for pair in t.checks for i in pair))):
        raise CheckError(f"trace {t.name}: an output, argument, assumption or check does not exist")
    if len(t.outputs) != len(leaves_of(t.structure)):
        raise CheckError(f"trace {t.name}: {len(t.outputs)} outputs for {len(leaves_of(t.structure))} places")
