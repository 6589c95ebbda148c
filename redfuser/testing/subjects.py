"""What is under test: a NumPy function or a cascade, seen the same way at every level."""

from __future__ import annotations

import inspect
import textwrap
import warnings
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from redfuser import pipeline
from redfuser.api import Fused, fuse
from redfuser.api.arguments import as_array, bind
from redfuser.api.lowered import Lowered
from redfuser.api.program import Program
from redfuser.codegen import Kernel
from redfuser.derivation import FusedCascade
from redfuser.errors import ArgumentError
from redfuser.extract import Options as Decided
from redfuser.frontend import Spec
from redfuser.frontend.nested import is_structure
from redfuser.frontend.structure import flatten
from redfuser.ir import Cascade, Out, Part, Reduction, Ref, Tensor, find_parts, has_parts
from redfuser.ir.dtypes import STORAGE_ONLY, computed_in, is_float, numpy_dtype
from redfuser.ir.interpret import axis_sizes
from redfuser.ir.monoids import KEY
from redfuser.ir.term import base_axis
from redfuser.ir.views import expanded, parts_of
from redfuser.pipeline import Options
from redfuser.testing.inputs import EMPTY, LENGTHS, LONG, LONG_LENGTHS, OTHER_LENGTHS, draw_array, draw_arrays
from redfuser.testing.result import BLOCKS, CUDA_HOST, INTERPRET, C
from redfuser.testing.text import IMPORTS, cascade_text

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Plant = Callable[[Kernel], Kernel]

SHORT_BLOCKS = Decided(block=8)
"""Decisions under which corrections run on streams of more than 8 elements."""


@dataclass(frozen=True)
class Levels:
    """One function or cascade at the levels below, for arrays of certain kinds: cascades in running order.

    `sizes`: lengths of axes, also of those that no tensor of a cascade carries.
    """

    cascades: tuple[Cascade, ...]
    fused: tuple[FusedCascade, ...]
    tensors: Mapping[str, Any]
    outs: tuple[str, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)


class Subject(ABC):
    """What a check needs to know of what it checks."""

    given: Arrays | None
    """Arrays that the caller passed: the first input to be tried."""

    @abstractmethod
    def draw(self, kind: str, rng: np.random.Generator) -> Arrays:
        """Inputs of a kind of `redfuser.testing.inputs.KINDS`, of random lengths."""

    @abstractmethod
    def levels(self, arrays: Arrays) -> Levels:
        """The levels that serve these arrays."""

    @abstractmethod
    def run(self, target: str, arrays: Arrays) -> Arrays:
        """Outputs by name, from the tile program ("interpret") or the compiled kernel ("c")."""

    @abstractmethod
    def direct(self, arrays: Arrays) -> Arrays:
        """Outputs by name in longdouble, without any level of the compiler; empty where there is no such way."""

    @abstractmethod
    def cut(self, arrays: Arrays) -> list[tuple[str, Callable[[slice | list[int]], Arrays]]]:
        """For every axis that may be shortened: its name, and a function that keeps certain positions of it."""

    def axis_length(self, arrays: Arrays, axis: str) -> int:
        """Length of an axis that `cut` names."""
        levels = self.levels(arrays)
        reads = [(t.name, t.axes) if t.view is None else (t.view.source, t.view.index)
                 for c in levels.cascades for t in c.tensors]
        found = [np.shape(levels.tensors[name])[axes.index(a)] for name, axes in reads if name in levels.tensors
                 for a in axes if isinstance(a, str) and base_axis(a) == axis]
        return found[0] if found else 1

    @abstractmethod
    def text(self) -> tuple[str, str]:
        """Python text that defines the subject, and the expression that names it."""


def _lengths(cascades: Sequence[Cascade], axes: Sequence[str], fixed: Mapping[str, int], kind: str,
             rng: np.random.Generator) -> dict[str, int]:
    """Random lengths of axes, as a kind of input asks for; those in `fixed` are given."""
    streams = set(map(base_axis, innermost_streams(cascades)))
    of_streams = (0,) if kind == EMPTY and may_be_empty(cascades) else LONG_LENGTHS if kind == LONG else LENGTHS
    found = {}
    for a in dict.fromkeys(map(base_axis, axes)):
        found[a] = fixed.get(a, int(rng.choice(of_streams if a in streams else OTHER_LENGTHS)))
    return found


def innermost_streams(cascades: Sequence[Cascade]) -> frozenset[str]:
    """The stream axes of cascades; of a product its innermost part."""
    return frozenset(expanded((c.axis,), parts_of(c.axes))[-1] for c in cascades if c.axis is not None)


def may_be_empty(cascades: Sequence[Cascade]) -> bool:
    """Whether every reduction has a value over nothing."""
    return not any(r.monoid in ("max", "min") or has_parts(r.monoid) for c in cascades for r in c.reductions)


@dataclass(frozen=True)
class Given:
    """What the caller of a check puts in the place of the compiler's choice; for cascades.

    fused     the fused form
    schedule  scheduling decisions
    plant     a change of the tile program before it is run or printed
    """

    fused: FusedCascade | None = None
    schedule: Decided | None = None
    plant: Plant | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of what was given."""
        return tuple(n for n, v in vars(self).items() if v is not None)


NOTHING = Given()


class CascadeSubject(Subject):
    """A cascade with its fused form. Results without an output get one, so that kernels return them."""

    def __init__(self, cascade: Cascade, given: Sequence[Any], options: Given = NOTHING) -> None:
        self.original = cascade
        self.cascade = with_outs(cascade)
        self.options = options
        fused = options.fused
        if fused is None:
            derivation = pipeline.fusion_step(self.cascade, Options())
            fused = pipeline.fused_of(self.cascade, derivation, Options())
        self.fused = replace(fused, cascade=with_outs(fused.cascade))
        self.streams = frozenset() if cascade.axis is None else frozenset((cascade.axis,))
        self.dtype = pipeline.compute_dtype(self.cascade, Options())
        self.kernels: list[tuple[str, Any, Any]] = []
        self.given = None
        if given:
            arrays = [np.asarray(a).astype(numpy_dtype(t.dtype)) for a, t in zip(given, cascade.tensors, strict=True)]
            self.given = {t.name: a for t, a in zip(cascade.tensors, arrays, strict=True)}
            axis_sizes(cascade.tensors, self.given, {a.name: a.size for a in cascade.axes})

    def draw(self, kind: str, rng: np.random.Generator) -> Arrays:
        fixed = {a.name: a.size for a in self.cascade.axes if a.size is not None}
        names = [a.name for a in self.cascade.axes]
        sizes = _lengths([self.cascade], names, fixed, kind, rng)
        return draw_arrays(self.cascade.tensors, sizes, kind, rng, self.streams)

    def levels(self, arrays: Arrays) -> Levels:
        return Levels((self.cascade,), (self.fused,), arrays, tuple(o.name for o in self.cascade.outs))

    def run(self, target: str, arrays: Arrays) -> Arrays:
        from redfuser.codegen import run_kernel

        c = self.fused.cascade
        sizes = axis_sizes(c.tensors, arrays, {a.name: a.size for a in c.axes})
        outs = {o.name: _unwritten([sizes[base_axis(a)] for a in o.axes], numpy_dtype(o.dtype)) for o in c.outs}
        kernel, compiled = self._kernel(target, sizes)
        if compiled is None:
            run_kernel(kernel, arrays, outs, sizes)
        else:
            compiled.run([arrays[t.name] for t in c.tensors], list(outs.values()), sizes)
        return outs

    def _kernel(self, target: str, sizes: Mapping[str, int]) -> tuple[Any, Any]:
        """The kernel of a target for these lengths; built when there is none yet."""
        for name, kernel, compiled in self.kernels:
            if name == target and all(sizes[a] == n for a, n in kernel.static):
                return kernel, compiled
        c = self.fused.cascade
        axes = {t.name: t.axes for t in c.tensors} | {o.name: o.axes for o in c.outs}
        layouts = {name: own[-1] if own else None for name, own in axes.items()}
        decided = self.options.schedule
        if target == CUDA_HOST:
            chosen = pipeline.gpu_plan_step(self.fused, sizes, layouts, self.dtype, pipeline.GPU, decided)
        else:
            decided = SHORT_BLOCKS if target == BLOCKS and decided is None else decided
            chosen = pipeline.plan_step(self.fused, sizes, layouts, self.dtype, pipeline.machine_profile(), decided)
        kernel = pipeline.tile_step(chosen)
        if self.options.plant is not None:
            kernel = self.options.plant(kernel)
        compiled = None
        if target not in (INTERPRET, BLOCKS):
            compiled = pipeline.kernel_step(kernel) if target == C else pipeline.cuda_kernel_step(kernel)
        self.kernels.append((target, kernel, compiled))
        return kernel, compiled

    def direct(self, arrays: Arrays) -> Arrays:
        return {}

    def cut(self, arrays: Arrays) -> list[tuple[str, Callable[[slice | list[int]], Arrays]]]:
        fixed = {a.name for a in self.cascade.axes if a.size is not None}
        names = {base_axis(a) for t in self.cascade.tensors for a in t.axes} - fixed
        ordered = sorted(names, key=lambda a: (a not in self.streams, a))
        return [(a, _keeper(self.cascade.tensors, arrays, a)) for a in ordered]

    def text(self) -> tuple[str, str]:
        return f"{IMPORTS}c = {cascade_text(self.original)}", "c"


def _unwritten(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An array for results, full of a wrong one: memory may hold the right one from an earlier run."""
    return np.full(shape, True if dtype.kind == "b" else 77, dtype)


def _keeper(tensors: Sequence[Tensor], arrays: Arrays, axis: str) -> Callable[[slice | list[int]], Arrays]:
    def keep(positions: slice | list[int]) -> Arrays:
        found = dict(arrays)
        for t in tensors:
            index = tuple(positions if base_axis(a) == axis else slice(None) for a in t.axes)
            for i, entry in enumerate(index):
                if entry is positions:
                    found[t.name] = np.take(found[t.name], np.arange(found[t.name].shape[i])[positions], axis=i)
        return found

    return keep


def with_outs(c: Cascade) -> Cascade:
    """The cascade with an output for every result that no output shows as it is."""
    shown = {o.expr.name for o in c.outs if isinstance(o.expr, Ref)}
    shown |= {x.body.name for o in c.outs for x in (o.expr,) if isinstance(x, Part) and isinstance(x.body, Ref)}
    floats = [computed_in(t.dtype) for t in c.tensors if is_float(t.dtype)]
    dtype = np.result_type(*floats).name if floats else "float64"
    taken = {o.name for o in c.outs}
    extra = [o for r in c.reductions if r.name not in shown for o in outs_of(r, dtype) if o.name not in taken]
    return replace(c, outs=(*c.outs, *extra))


def outs_of(r: Reduction, dtype: str) -> list[Out]:
    """Outputs that show a result: its parts one by one, at the first and the last place of a list."""
    monoid, value = find_parts(r.monoid), Ref(r.name, r.axes)
    if monoid is None:
        return [Out(f"out_{r.name}", r.axes, value, "bool" if r.monoid in ("any", "all") else dtype)]
    places = [()] if monoid.rank is None else [(p,) for p in dict.fromkeys((0, monoid.rank - 1))]
    return [Out("_".join(("out", r.name, part, *map(str, place))), r.axes, Part(part, place, value),
                dtype if kind == KEY else kind)
            for part, kind in zip(monoid.parts, monoid.dtypes, strict=True) for place in places]


class FunctionSubject(Subject):
    """A NumPy function, called as its user calls it."""

    def __init__(self, fn: Callable[..., Any], arguments: Sequence[Any], targets: Sequence[str]) -> None:
        options = fn.options if isinstance(fn, Fused) else Options()
        self.fn: Callable[..., Any] = fn.fn if isinstance(fn, Fused) else fn
        self.compiled = {t: Fused(self.fn, replace(options, target=t), ()) for t in targets}
        self.model = fuse(self.fn, allow=options.allow, rules=options.rules, empty=options.empty)
        self.signature = signature = inspect.signature(self.fn)
        title = getattr(self.fn, "__name__", "fn")
        self.arguments = bind(signature, title, arguments, {})
        self.passed = tuple(signature.parameters)[: len(arguments)]
        if any(isinstance(a, Spec) for a in arguments):
            self.given = None
        else:
            listed = {n: as_array(a, n) for n, a in self.arguments.items()
                      if n in self.passed and isinstance(a, (list, tuple))}
            self.given = self.arguments | listed
        variadic = [n for n, p in signature.parameters.items() if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        if any(is_structure(a) for a in arguments) or any(self.arguments[n] for n in variadic):
            raise ArgumentError("rf.testing draws arrays for plain arguments; wrap a function of nested ones, such as "
                                "lambda x, w: f(x, {'w': w})")
        self.pattern = self._call(self.model.lower, self.arguments)
        if not isinstance(self.pattern.program, Program):
            raise ArgumentError(f"rf.testing compares what kernels compute, and NumPy runs "
                                f"{self.pattern.program.calls[0]} between them; test the parts before and after it")
        if self.pattern.program.joins:
            raise ArgumentError(f"rf.testing compares what kernels compute; let the function return a tuple instead of "
                                f"{self.pattern.program.joins[0]}")

    def _call(self, fn: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
        """`fn`, which has the parameters of the function, of arguments by name."""
        bound = inspect.BoundArguments(self.signature, OrderedDict(arguments))
        return fn(*bound.args, **bound.kwargs)

    def draw(self, kind: str, rng: np.random.Generator) -> Arrays:
        program = self.pattern.single
        tensors = {t.name: t for t in program.term.tensors}
        streams = innermost_streams(program.partition.cascades)
        fixed = {a.name: a.size for a in program.term.axes if a.size is not None}
        arrays = [n for n in self.passed if isinstance(self.arguments[n], (Spec, np.ndarray, list, tuple))]
        held = program.trace.captured | {n: a for n, a in self.arguments.items() if n in tensors and n not in arrays}
        for name, array in held.items():
            known = [n for n in np.shape(array) if n != 1]
            fixed |= dict(zip(map(base_axis, tensors[name].axes), known, strict=True)) if name in tensors else {}
        sizes = _lengths(program.partition.cascades, [a.name for a in program.term.axes], fixed, kind, rng)
        own = [t for n, t in tensors.items() if n in arrays]
        drawn = draw_arrays(own, sizes, kind, rng, streams)
        return self.arguments | {n: self._shaped(n, drawn.get(n), rng) for n in arrays}

    def _shaped(self, name: str, drawn: Array | None, rng: np.random.Generator) -> Array:
        """An argument with its dimensions of size 1; one that is not used at all is drawn anyhow."""
        traced = self.pattern.trace
        position = next(i for i, n in enumerate(traced.nodes) if n.op == "input" and n.param == name)
        if drawn is None:
            node = traced.nodes[position]
            return draw_array(tuple(1 for _ in traced.caller_shape(position)), numpy_dtype(node.dtype), "normal", rng)
        return np.asarray(traced.for_caller(drawn, position))

    def _lowered(self, arrays: Arrays) -> Lowered:
        lowered: Lowered = self._call(self.model.lower, arrays)
        return lowered

    def levels(self, arrays: Arrays) -> Levels:
        lowered = self._lowered(arrays)
        tensors = self._tensors(lowered, arrays)
        return Levels(tuple(lowered.partition.cascades), tuple(lowered.fusion), tensors,
                      tuple(o.name for o in lowered.term.outs), lowered.single.sizes(tensors))

    def _tensors(self, lowered: Lowered, arrays: Arrays) -> Arrays:
        """The tensors of the term."""
        names = [n for n in lowered.trace.inputs() if n in arrays]
        return lowered.single.tensors({n: as_array(arrays[n], f"argument {n!r}") for n in names})

    def named(self, result: Any, arrays: Arrays) -> Arrays:
        """Outputs by name, without dimensions of size 1."""
        lowered = self._lowered(arrays)
        leaves, _ = flatten(result, lambda x: isinstance(x, (np.ndarray, np.generic, int, float)))
        sizes = lowered.single.sizes(self._tensors(lowered, arrays))
        shapes = [[sizes[base_axis(a)] for a in o.axes] for o in lowered.term.outs]
        return {o.name: np.asarray(a).reshape(s) for o, a, s in zip(lowered.term.outs, leaves, shapes, strict=True)}

    def run(self, target: str, arrays: Arrays) -> Arrays:
        return self.named(self._call(self.compiled[target], arrays), arrays)

    def direct(self, arrays: Arrays) -> Arrays:
        floats = {n: a for n, a in arrays.items() if isinstance(a, np.ndarray) and is_float(a.dtype)}
        wide = arrays | {n: a.astype(np.longdouble) for n, a in floats.items()}
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # means of nothing
            found = self.named(self._call(self.fn, wide), arrays)
            stored = {o.name: numpy_dtype(o.dtype) for o in self._lowered(arrays).term.outs if o.dtype in STORAGE_ONLY}
            return {n: a.astype(stored[n]) if n in stored else a for n, a in found.items()}

    def cut(self, arrays: Arrays) -> list[tuple[str, Callable[[slice | list[int]], Arrays]]]:
        program = self._lowered(arrays).single
        captured = {t.name for t in program.term.tensors} - set(arrays)
        fixed = {a.name for a in program.term.axes if a.size is not None}
        fixed |= {base_axis(a) for t in program.term.tensors if t.name in captured for a in t.axes}
        nodes = program.trace.nodes
        shapes = {n.param: program.trace.caller_shape(i) for i, n in enumerate(nodes) if n.op == "input"}
        parts = program.trace.parts
        tensors = []
        for t in program.term.tensors:
            if t.name in arrays:
                own = iter(t.axes)
                axes = [tuple(next(own) for _ in parts.get(e, (e,))) if isinstance(e, str) else ()
                        for e in shapes[t.name]]
                tensors.append(Tensor(t.name, tuple(a[0] if len(a) == 1 else "" for a in axes), t.dtype))
        streams = innermost_streams(program.partition.cascades)
        names = {base_axis(a) for t in tensors for a in t.axes} - fixed - {""}
        return [(a, _keeper(tensors, arrays, a)) for a in sorted(names, key=lambda a: (a not in streams, a))]

    def text(self) -> tuple[str, str]:
        name = getattr(self.fn, "__name__", "fn")
        try:
            source = textwrap.dedent(inspect.getsource(self.fn))
        except (OSError, TypeError):
            source = f"# {name}: the function under test"
        return f"import numpy as np\ninf, nan = np.inf, np.nan\n{source.rstrip()}", name
