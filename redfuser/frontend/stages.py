"""A trace in stages: what kernels compute, then what NumPy computes from that, then what kernels compute from both.

Results of reductions that a later stage reads as well are handed on; everything else that it reads is computed again,
from the elements at hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redfuser.errors import ShapeError
from redfuser.frontend.graph import Shape, Trace, TraceNode
from redfuser.frontend.host import Call, Result
from redfuser.frontend.source import SourceLine
from redfuser.frontend.structure import flatten
from redfuser.ir.names import unique_name

HANDED_ON = frozenset({"reduce", "parts", "einsum", "host"})
"""Operations whose results later stages read instead of computing them again."""


class StaleTrace(ShapeError):
    """What was concluded of the results of calls while tracing does not hold for these arguments."""


@dataclass(frozen=True)
class HostStep:
    """A call that NumPy runs: positions of its operands and of its results (and which of the results each is)."""

    call: Call
    operands: tuple[int, ...]
    results: Mapping[int, Result]
    shapes: Mapping[int, Shape]
    source: SourceLine | None

    def __str__(self) -> str:
        return str(self.call) + (f", line {self.source.line}" if self.source is not None else "")

    def run(self, values: Sequence[Any], sizes: dict[str, int]) -> dict[int, np.ndarray[Any, Any]]:
        """The arrays at the positions of the results, from those of the operands. `sizes`: all that are known; those
        that the results tell are added.

        Raises
        ------
        StaleTrace
            when a result has another shape than was concluded while tracing.
        """
        results = iter(self.results.items())
        first = next(results)
        found = first[1].run(values)
        return {i: self._checked(i, r.of(found), sizes) for i, r in (first, *results)}

    def _checked(self, position: int, array: np.ndarray[Any, Any], sizes: dict[str, int]) -> np.ndarray[Any, Any]:
        shape = self.shapes[position]
        if array.ndim != len(shape) and all(isinstance(e, int) or e in sizes for e in shape):
            lengths = [e if isinstance(e, int) else sizes[e] for e in shape]  # merged axes, taken apart
            array = array.reshape(lengths) if math.prod(lengths) == array.size else array
        if array.ndim == len(shape):
            sizes |= {e: n for e, n in zip(shape, array.shape, strict=True) if isinstance(e, str) and e not in sizes}
            if array.shape == tuple(e if isinstance(e, int) else sizes[e] for e in shape):
                return array
        expected = tuple(e if isinstance(e, int) else sizes.get(e, "?") for e in shape)
        raise StaleTrace(f"{self} gave an array of shape {array.shape} where {expected} was concluded while tracing; "
                         "split the function there, and call it between two fused parts")


@dataclass(frozen=True)
class Stage:
    """Kernels, then calls of NumPy's.

    trace    what the kernels compute; None where there is nothing
    reads    names of the inputs that are no arguments -> positions in the whole trace
    gives    positions in the whole trace of the outputs
    calls    what NumPy computes afterwards
    """

    trace: Trace | None
    reads: Mapping[str, int]
    gives: tuple[int, ...]
    calls: tuple[HostStep, ...]


def stages(trace: Trace) -> tuple[Stage, ...]:
    """The stages of a trace, in order: one without calls of NumPy's where there are none in the trace.

    Everything is computed as late as it can be, so that it shares passes with what must be; what a stage has at hand
    for its calls counts as being there already.
    """
    level = _levels(trace)
    last = max((level[i] for i in trace.outputs), default=0)
    calls = [tuple(_calls(trace, level, k)) for k in range(last + 1)]
    there: set[int] = set()
    open_ = list(dict.fromkeys(i for i in trace.outputs if not _is_given(trace.nodes[i])))
    found = []
    for k in range(last + 1):
        roots = [i for i in _operands(calls[k]) if not _is_given(trace.nodes[i]) and i not in there]
        if roots or k == last:
            roots += [i for i in open_ if level[i] <= k]
            open_ = [i for i in open_ if level[i] > k]
        own = _closure(trace, roots, there)
        made = {i for i in own if trace.nodes[i].op in HANDED_ON}
        rest = [*open_, *(i for c in calls[k + 1 :] for i in _operands(c))]
        later = made & _closure(trace, rest, there | made, inside=False)
        gives = tuple(dict.fromkeys((*roots, *sorted(later))))
        cut = _Cut(trace, gives, there)
        found.append(Stage(cut.trace(k) if gives else None, cut.reads, gives, calls[k]))
        there |= {*made, *(i for c in calls[k] for i in c.results)}
    return tuple(found)


def argument_views(trace: Trace) -> frozenset[int]:
    """Positions of what NumPy takes of arguments as views, slices for example: it is there before any kernel."""
    found: set[int] = set()
    for i, n in enumerate(trace.nodes):
        if n.op == "host" and n.param.call.view and all(trace.nodes[j].op == "input" or j in found for j in n.inputs):
            found.add(i)
    return frozenset(found)


def _levels(trace: Trace) -> list[int]:
    """Stage of every node; a result of NumPy's is there at the end of the stage before."""
    makers = _makers(trace)
    found: list[int] = []
    for i, n in enumerate(trace.nodes):
        read = (*n.inputs, *(makers[x] for x in _labels(n) if makers.get(x, i) != i))
        found.append(max((found[j] for j in read), default=0) + (n.op == "host"))
    return found


def _labels(n: TraceNode) -> list[str]:
    """The sizes that a node mentions."""
    return [e for e in n.shape if isinstance(e, str)] + ([n.param] if n.op == "size" else [])


def _makers(trace: Trace) -> dict[str, int]:
    """Sizes that nothing before tells -> the result of NumPy's that does."""
    known = {s.label for s in trace.sizes if s.parts}
    known |= {x for n in trace.nodes if n.op == "input" for x in _labels(n)}
    found: dict[str, int] = {}
    for i, n in enumerate(trace.nodes):
        new = set(_labels(n)) - known
        known |= new
        if n.op == "host":
            found |= dict.fromkeys(new, i)
    return found


def _is_given(n: TraceNode) -> bool:
    """Whether a node needs no kernel: an argument, or a result of NumPy's."""
    return n.op in ("input", "host")


def _operands(calls: Sequence[HostStep]) -> list[int]:
    return [i for c in calls for i in c.operands]


def _calls(trace: Trace, level: Sequence[int], k: int) -> Iterator[HostStep]:
    """The calls that NumPy runs after stage `k`."""
    found: dict[Call, dict[int, Result]] = {}
    for i, n in enumerate(trace.nodes):
        if n.op == "host" and level[i] == k + 1:
            found.setdefault(n.param.call, {})[i] = n.param
    for call, results in found.items():
        first = trace.nodes[next(iter(results))]
        yield HostStep(call, first.inputs, results, {i: trace.nodes[i].shape for i in results}, first.source)


def _closure(trace: Trace, roots: Sequence[int], there: set[int], inside: bool = True) -> set[int]:
    """Nodes that are computed for `roots`. The walk ends at what is `there`, which counts where not `inside`, and at
    results of NumPy's, which have operands of their own."""
    found: set[int] = set()
    seen: set[int] = set()
    todo = list(roots)
    while todo:
        i = todo.pop()
        if i in seen:
            continue
        seen.add(i)
        if i in there or trace.nodes[i].op == "host":
            found |= set() if inside else {i}
        else:
            found.add(i)
            todo += trace.nodes[i].inputs
    return found


class _Cut:
    """The trace of one stage: what is computed for `gives` from what is `there`, and all arguments."""

    def __init__(self, whole: Trace, gives: Sequence[int], there: set[int]) -> None:
        self.whole = whole
        self.nodes: list[TraceNode] = []
        self.position: dict[int, int] = {}
        self.reads: dict[str, int] = {}
        self.names = set(whole.inputs())
        read = _closure(whole, gives, there, inside=False) - (own := _closure(whole, gives, there))
        makers = _makers(whole)
        read |= {makers[x] for i in own for x in _labels(whole.nodes[i]) if x in makers}
        for i in sorted({*whole.arguments.values(), *read, *own}):
            n = whole.nodes[i]
            self.position[i] = len(self.nodes)
            self.nodes.append(self._given(i, n) if i in read else replace(n, inputs=tuple(
                self.position[j] for j in n.inputs)))
        self.outputs = tuple(self.position[i] for i in gives)

    def _given(self, i: int, n: TraceNode) -> TraceNode:
        """An input for what an earlier stage computes."""
        target = None if n.source is None else n.source.target
        kind = n.param.call.label if n.op == "host" else "given"
        name = unique_name(target if target is not None and target.isidentifier() else kind, self.names)
        self.reads[name] = i
        return replace(n, op="input", inputs=(), param=name, weak=False)

    def trace(self, k: int) -> Trace:
        """The finished trace of stage `k`."""
        t, at = self.whole, self.position
        structure = flatten(self.outputs, lambda x: isinstance(x, int))[1]
        own = {n.param for n in self.nodes if n.op == "input"}
        captured = {name: a for name, a in t.captured.items() if name in own}
        arguments = {name: at[i] for name, i in (*t.arguments.items(), *self.reads.items())}
        shapes = {at[i]: s for i, s in t.shapes.items() if t.nodes[i].op == "input" and i in at}
        return Trace(f"{t.name}_{k}" if k else t.name, tuple(self.nodes), arguments, captured, self.outputs, structure,
                     t.sizes, shapes=shapes)
