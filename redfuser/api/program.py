"""One traced function, derived: its cascades, and the kernels built for the memory layouts met so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from redfuser import pipeline
from redfuser.api.built import Built, BuiltApart, Stats, build
from redfuser.api.replay import Likeness, Notes, Replay, likeness
from redfuser.api.tuning import Job
from redfuser.derivation import Derivation, Verdict
from redfuser.derivation.fusion import FusedCascade
from redfuser.errors import DTypeError, ShapeError
from redfuser.extract.gpu import Gpu
from redfuser.extract.library import Candidates
from redfuser.frontend import Trace
from redfuser.frontend.structure import joins_of
from redfuser.frontend.verify import refuse_empty
from redfuser.ir import Cascade, Out, Tensor, Term
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.interpret import axis_sizes
from redfuser.ir.partition import Partition
from redfuser.ir.term import base_axis
from redfuser.ir.views import parts_of, present, result_shape, with_products
from redfuser.pipeline import Options
from redfuser.runtime.library import check_apart
from redfuser.runtime.locks import Locked

Array = np.ndarray[Any, Any]
Layouts = tuple[str | None, ...]


@dataclass
class Piece:
    """One cascade with its fusion, and the kernels built for it: layouts -> kernels (they differ in static lengths)."""

    cascade: Cascade
    derivation: Derivation | None
    fused: FusedCascade
    dtype: str
    kernels: dict[tuple[Layouts, bool], list[Built | BuiltApart]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parts = parts_of(self.cascade.axes)
        self.outputs = tuple(self.cascade.outs)
        self.axes = (*(t.axes for t in self.cascade.tensors), *(o.axes for o in self.cascade.outs))
        self.whole = not any(t.view for t in self.cascade.tensors)
        self.sources = tuple(t.name if t.view is None else t.view.source for t in self.cascade.tensors)

    @cached_property
    def _candidates(self) -> Candidates:
        return Candidates.of(self.fused, self.dtype)

    def products_pay(self, sizes: Mapping[str, int]) -> bool:
        """Whether plain products in it, where there are any, are worth a library call at these lengths."""
        return self._candidates.pay(sizes, pipeline.machine_profile(), self.dtype)

    def arrays(self, values: Mapping[str, Array], sizes: Mapping[str, int],
               reshape: Callable[[Any, list[int]], Any] = np.reshape) -> list[Array]:
        """The tensors of the cascade from the arrays of the program: several axes as one where it streams over them.
        `reshape`: as of `present`."""
        if self.whole:
            return [values[t.name] for t in self.cascade.tensors]
        return [
            values[t.name] if t.view is None else present(t, values[t.view.source], self.parts, sizes, reshape)
            for t in self.cascade.tensors
        ]

    def copies(self, values: Mapping[str, Array], arrays: Sequence[Array]) -> int:
        """How many of the `arrays` made from these values are copies."""
        pairs = [(t.view.source, a) for t, a in zip(self.cascade.tensors, arrays, strict=True) if t.view is not None]
        return sum(a.size > 0 and not np.may_share_memory(a, values[source]) for source, a in pairs)


MOST_LAYOUTS = 256
"""Combinations of shapes and strides whose calls a program remembers."""


def contiguous_axis(array: Array, axes: tuple[str, ...]) -> str | None:
    """The axis whose neighbours lie side by side in memory; the last one where several or none would do."""
    for axis, n, stride in zip(reversed(axes), reversed(array.shape), reversed(array.strides), strict=True):
        if stride == array.itemsize or n <= 1:
            return axis
    return None


def drop_units(entries: Sequence[str | int]) -> tuple[Any, ...]:
    """The index that drops the dimensions of size 1 of a traced shape (always a view, also of rank 0)."""
    return (*(0 if e == 1 else slice(None) for e in entries), ...) if 1 in entries else ()


def checked_outs(trace: Trace, names: Sequence[str], given: Sequence[Any], kind: type[Any] = np.ndarray
                 ) -> dict[str, Array]:
    """See `Program.check_outs`. `names`: of the outputs of the trace; `kind`: the class of arrays."""
    found = {}
    for i, (name, array, position) in enumerate(zip(names, given, trace.outputs, strict=True)):
        where = "out" if len(given) == 1 else f"out[{i}]"
        entries, dtype = trace.caller_shape(position), trace.nodes[position].dtype
        if not isinstance(array, kind):
            raise DTypeError(f"{where} is a {type(array).__name__}; pass a NumPy array" if kind is np.ndarray else
                             f"{where} is a {type(array).__name__}; pass an array on the device of the arguments")
        if array.dtype != numpy_dtype(dtype):
            raise DTypeError(f"{where} has dtype {array.dtype}, the result is {dtype}")
        if array.ndim != len(entries):
            raise ShapeError(f"{where} has {array.ndim} dimensions, the result has {len(entries)}")
        if kind is np.ndarray and not array.flags.writeable:
            raise ShapeError(f"{where} is read-only; pass a writable array, such as np.empty_like({where})")
        found[name] = array[drop_units(entries) or ...]
    return found


class Program(Locked):
    """A function traced for one kind of arguments (dtypes, ranks, unit dimensions), ready to run on any lengths."""

    def __init__(self, traced: Trace, options: Options, stats: Stats, home: Any) -> None:
        """`home`: where its arrays are, see `redfuser.api.places.arrays_at`."""
        super().__init__()
        self.trace = traced
        self.home = home
        self.options = options
        self.stats = stats
        self.term: Term = pipeline.term_step(traced)
        self.partition: Partition = pipeline.partition_step(self.term)
        self.pieces = tuple(self._piece(c) for c in self.partition.cascades)
        # the names of the arguments, which print as paths into nested ones
        names = {str(n): n for n in traced.inputs()}
        self._tensors = tuple(Tensor(names.get(t.name, t.name), t.axes, t.dtype) for t in self.term.tensors)
        self._products = tuple(a for c in self.partition.cascades for a in c.axes if a.parts)
        self._replays: dict[Likeness, Replay] = {}
        dtypes = {t.name: numpy_dtype(t.dtype) for t in self.term.tensors}
        self._inputs = tuple(
            (n.param, drop_units(traced.caller_shape(i)), dtypes[n.param], i if i in traced.shapes else None)
            for i, n in enumerate(traced.nodes)
            if n.op == "input" and n.param in dtypes
        )
        # Python numbers: converted for kernels once a call, before it is looked up among earlier ones
        self._numbers = tuple((n, d) for n, _, d, _ in self._inputs
                              if n in traced.arguments and traced.nodes[traced.arguments[n]].weak)
        self.output_names = tuple(o.name for o in self.term.outs)
        self._merged = {n: i for n, i in zip(self.output_names, traced.outputs, strict=True) if i in traced.shapes}
        self._captured = {n: traced.captured[n] for n, *_ in self._inputs if n not in traced.arguments}
        self.joins = joins_of(traced.structure)
        self.guarded = bool(traced.guards) or any(s.fixed for s in traced.sizes)

    def check_outs(self, given: Sequence[Array]) -> dict[str, Array]:
        """The caller's output arrays by name, without their dimensions of size 1.

        Raises
        ------
        ShapeError, DTypeError
            naming the array, for a wrong rank or dtype, or for one that is read-only.
        """
        return checked_outs(self.trace, self.output_names, given, self.home.kind)

    def _piece(self, cascade: Cascade) -> Piece:
        derivation = pipeline.fusion_step(cascade, self.options)
        self.stats.derivations += derivation is not None
        if derivation is not None and self.options.require == "one-pass" and derivation.verdict != Verdict.FUSIBLE:
            raise pipeline.not_fusible(derivation)
        fused = pipeline.fused_of(cascade, derivation, self.options)
        return Piece(cascade, derivation, fused, pipeline.compute_dtype(cascade, self.options))

    def tensors(self, arguments: Mapping[str, Array]) -> dict[str, Array]:
        """The input tensors of the term: arguments and captured arrays without their dimensions of size 1."""
        found: dict[str, Array] = {}
        lengths = self._lengths(arguments) if self.trace.shapes else {}
        for name, units, dtype, split in self._inputs:
            array = arguments[name] if name in arguments else self.trace.captured[name]
            if split is not None:
                array = self.trace.with_parts(array, split, lengths)
            elif units:
                array = array[units]
            if name in arguments:
                found[name] = array if array.dtype == dtype and array.ndim else self.home.tensor(array, dtype)
            else:
                found[name] = self.home.constant(name, array, dtype)
        return found

    def _lengths(self, arguments: Mapping[str, Array]) -> dict[str, int]:
        """Length of every size of the trace."""
        return self.trace.size_values({name: np.shape(arguments[name]) for name in self.trace.arguments})

    def sizes(self, tensors: Mapping[str, Array]) -> dict[str, int]:
        """Length of every axis of the term."""
        known = axis_sizes(self._tensors, tensors, {a.name: a.size for a in self.term.axes})
        return with_products(self._products, known)

    def run(self, arguments: Mapping[str, Array], outs: Mapping[str, Array]) -> dict[str, Array]:
        """Run all kernels; the outputs are among the arrays returned by name. `outs` holds the caller's arrays for
        outputs (without dimensions of size 1).

        Raises
        ------
        ShapeError
            when arguments do not fit together, a maximum over nothing is asked for, or two of `outs` share memory.
        MemoryError
            when the workspace of a kernel cannot be allocated.
        """
        if self._numbers:
            arguments = {**arguments, **{n: arguments[n].astype(d, copy=False) for n, d in self._numbers}}
        if self._replays and (replay := self.replay(arguments, outs)) is not None:
            made = replay.run([arguments[n] for n in self.trace.arguments], [outs[n] for n in outs])
            if made is not None:
                return dict(zip(self.output_names, made, strict=True))
        values = self.tensors(arguments)
        sizes = self.sizes(values)
        if 0 in sizes.values():
            refuse_empty(self.trace, self._lengths(arguments))
        check_apart(list(outs), [self.home.outline(a) for a in outs.values()])
        late = self._late(values, outs)
        notes = Notes({n: arguments[n] for n in self.trace.arguments}, self._captured, outs)
        notes.sound &= not late
        targets: list[tuple[Array, Array]] = []  # of the caller, to be filled in the end, and what with
        for piece in self.pieces:
            results = [self._result(o, piece, outs.get(o.name), sizes) for o in piece.outputs]
            for i, o in enumerate(piece.outputs):
                if o.name in late:
                    target, results[i] = results[i], self._result(o, piece, None, sizes)
                    targets.append((target, results[i]))
            reshape = self.home.reshape
            made = [reshape(a, [sizes[base_axis(x)] for x in o.axes])
                    for o, a in zip(piece.outputs, results, strict=True)]
            inputs = piece.arrays(values, sizes, reshape)
            self.stats.copies += piece.copies(values, inputs)
            built = self._run_piece(piece, inputs, made, sizes)
            call = None if built.compiled is None else built.compiled.repeatable(inputs, made, sizes)
            for o, a, r in zip(piece.outputs, made, results, strict=True):
                if not np.may_share_memory(a, r):  # the caller's array, whose axes do not lie side by side
                    self.home.assign(r, reshape(a, r.shape))
                values[o.name] = r
                notes.result(o.name, outs.get(o.name, r))
            notes.launch(call, built, [*zip(piece.sources, inputs, strict=True),
                                       *((o.name, a) for o, a in zip(piece.outputs, made, strict=True))])
        for target, made_aside in targets:
            self.home.assign(target, made_aside)
        self._remember(notes, values)
        return values

    def _late(self, values: Mapping[str, Array], outs: Mapping[str, Array]) -> set[str]:
        """The outputs whose array must not be written before the last cascade has run: a later cascade than its own
        reads an argument or a captured array in the same memory. Of one cascade, kernels take care of that."""
        late: set[str] = set()
        read: set[str] = set()  # by the cascades behind
        for piece in reversed(self.pieces):
            for name in [o.name for o in piece.outputs if o.name in outs and read]:
                place = self.home.outline(outs[name])
                if any(np.may_share_memory(place, self.home.outline(values[n])) for n in read):
                    late.add(name)
            read.update(n for n in piece.sources if n in values)
        return late

    def replay(self, arguments: Mapping[str, Array], outs: Mapping[str, Array]) -> Replay | None:
        """What is known of earlier calls on arrays like these."""
        return self._replays.get(self._likeness(arguments, outs))

    def _likeness(self, arguments: Mapping[str, Array], outs: Mapping[str, Array]) -> Likeness:
        return likeness([arguments[n] for n in self.trace.arguments]) + likeness([outs[n] for n in outs])

    def _remember(self, notes: Notes, values: Mapping[str, Array]) -> None:
        """Keep what a call found out, unless the next may differ."""
        if not notes.sound or self._merged or len(notes.outs) not in (0, len(self.output_names)):
            return
        outputs = [(n, np.shape(self.trace.for_caller(values[n], i)))
                   for n, i in zip(self.output_names, self.trace.outputs, strict=True)]
        if len(self._replays) >= MOST_LAYOUTS:
            self._replays.clear()
        self._replays[self._likeness(notes.arguments, notes.outs)] = Replay(notes, outputs, self.stats)

    def _caller_shape(self, o: Out, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """The shape of an output with merged axes for the caller, without dimensions of size 1; None for others.
        `shape`: that with all axes apart."""
        position = self._merged.get(o.name)
        if position is None:
            return None
        lengths = iter(shape)
        entries = [e for e in self.trace.shapes[position] if isinstance(e, str)]
        return tuple(math.prod(next(lengths) for _ in self.trace.parts.get(e, (e,))) for e in entries)

    def _result(self, o: Out, piece: Piece, array: Array | None, sizes: Mapping[str, int]) -> Array:
        """The array that receives an output: the caller's, or a new one."""
        shape = result_shape(o, piece.parts, sizes)
        if array is None:
            return self.home.empty(shape, numpy_dtype(o.dtype))  # type: ignore[no-any-return]
        if array.shape == self._caller_shape(o, shape):
            array = array.reshape(shape)  # a view: axes are split
        if array.shape != shape:
            raise ShapeError(f"out= array for {o.name} has shape {array.shape}, the result has {shape}")
        return array

    def _run_piece(
        self, piece: Piece, inputs: list[Array], outs: list[Array], sizes: Mapping[str, int]
    ) -> Built | BuiltApart:
        built = self.built(piece, inputs, outs, sizes, called=True)
        if isinstance(built, Built) and built.compiled is None:
            from redfuser.codegen import run_kernel

            apart = [a.copy() if any(np.may_share_memory(a, o) for o in outs) else a for a in inputs]
            io = dict(zip((t.name for t in piece.cascade.tensors), apart, strict=True))
            run_kernel(built.kernel, io, {o.name: a for o, a in zip(piece.outputs, outs, strict=True)}, sizes)
            self.stats.interpreter_runs += 1
        else:
            built.compiled.run(inputs, outs, sizes)
            self.stats.kernel_runs += 1
        built.runs += 1
        return built

    def built(self, piece: Piece, inputs: list[Array], outs: list[Array], sizes: Mapping[str, int],
              called: bool = False) -> Built | BuiltApart:
        """The kernel for these layouts and static lengths; built when there is none yet.

        `called`: the arrays hold what is to be computed with, so that schedules can be timed on them.
        """
        layouts = self.layouts(piece, inputs, outs)
        library = self.options.target == "c" and piece.products_pay(sizes)
        for built in piece.kernels.get((layouts, library), ()):
            if built.serves(sizes) and not (called and built.untuned):
                return built
        with self._lock:
            known = piece.kernels.get((layouts, library), [])
            for built in known:
                if built.serves(sizes) and not (called and built.untuned):
                    return built
            job = self.job(piece, layouts, sizes, self._gpu())
            arrays = (inputs, outs) if called else None
            built = build(job, self.options, self.stats, library=library, arrays=arrays, home=self.home)
            kept = [b for b in known if not (b.untuned and b.serves(sizes))]
            piece.kernels[layouts, library] = [*kept, built]
            return built

    def _gpu(self) -> str | Gpu:
        """The GPU that kernels are planned for, "" for this machine's CPU."""
        if self.options.target == "cuda":
            found: Gpu = self.home.device.gpu
            return found
        return pipeline.GPU if self.options.target == "cuda-host" else ""

    @staticmethod
    def layouts(piece: Piece, inputs: Sequence[Array], outs: Sequence[Array]) -> Layouts:
        """The contiguous axis of every array of a cascade."""
        return tuple([contiguous_axis(a, axes) for a, axes in zip((*inputs, *outs), piece.axes, strict=True)])

    @staticmethod
    def job(piece: Piece, layouts: Layouts, sizes: Mapping[str, int], gpu: str | Gpu) -> Job:
        """What has to be built for these layouts and lengths."""
        names = (*(t.name for t in piece.cascade.tensors), *(o.name for o in piece.outputs))
        return Job(piece.fused, piece.dtype, dict(zip(names, layouts, strict=True)), sizes, gpu)
