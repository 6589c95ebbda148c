"""`f.lower(...)`: every level of one compilation, to print, to check, to run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from redfuser import pipeline
from redfuser.api.built import Built, BuiltApart
from redfuser.api.products import LibraryPlan
from redfuser.api.program import Array, Piece, Program
from redfuser.api.staged import Staged
from redfuser.codegen.nodes import Kernel
from redfuser.derivation.fusion import FusedCascade
from redfuser.extract import Plan
from redfuser.frontend import Spec, Trace
from redfuser.ir import Cascade, Term
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.partition import Partition
from redfuser.ir.term import base_axis
from redfuser.ir.views import result_shape

if TYPE_CHECKING:
    from redfuser.api.cuda_report import CudaReport

T = TypeVar("T")

DEFAULT_LENGTH = 1024
"""Stands for a symbolic size when a plan is shown without arrays."""


class Group(tuple[T, ...]):
    """One item per kernel; prints one under the other."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))


def stand_in(shape: Iterable[int | str], dtype: str) -> Array:
    """An array of this shape and dtype for planning; its memory pages are never touched."""
    return np.empty([int(n) for n in shape], numpy_dtype(dtype))


def operand_dtype(c: Cascade) -> str | None:
    """The dtype of all floating inputs, where they have the same: what a matrix unit would be fed."""
    dtypes = {t.dtype for t in c.tensors if numpy_dtype(t.dtype).kind not in "iub"}
    return dtypes.pop() if len(dtypes) == 1 else None


class Lowered:
    """The levels of one compilation. `fusion`, `plan` and `tiles` hold one item per kernel, in running order.

    Where NumPy runs calls between kernels, `stages` holds the levels of what is before, between and after them.
    """

    def __init__(self, program: Program | Staged, specs: Mapping[str, Spec], arrays: Mapping[str, Array]) -> None:
        self.program = program
        self._specs = specs
        self._arrays = arrays

    @property
    def trace(self) -> Trace:
        """The recorded NumPy calls."""
        return self.program.trace

    @cached_property
    def stages(self) -> Group[Lowered]:
        """The levels of each stage: of the whole, where NumPy runs nothing."""
        if isinstance(self.program, Program):
            return Group((self,))
        return Group(self._stage(part.program) for part in self.program.parts if part.program is not None)

    def _stage(self, program: Program) -> Lowered:
        """A stage of this program; what earlier ones compute has the lengths at hand, or nominal ones."""
        given = {name: program.trace.nodes[i] for name, i in program.trace.arguments.items() if name not in self._specs}
        specs = {name: Spec(n.shape, n.dtype) for name, n in given.items()}
        arrays = {name: stand_in([self.labels[e] if isinstance(e, str) else e for e in n.shape], n.dtype)
                  for name, n in given.items()}
        return Lowered(program, {**self._specs, **specs}, {**self._arrays, **arrays})

    @property
    def single(self) -> Program:
        """The program, where there is one.

        Raises
        ------
        ValueError
            when NumPy runs calls in between: there is a program for every stage.
        """
        if isinstance(self.program, Program):
            return self.program
        raise ValueError(f"{self.trace.name} has several terms, NumPy runs {self.program.calls[0]} between kernels; "
                         "look at its .stages")

    @property
    def term(self) -> Term:
        """The program in index notation. Raises what `single` raises."""
        return self.single.term

    @property
    def partition(self) -> Partition:
        """The cascades of the program. Raises what `single` raises."""
        return self.single.partition

    @property
    def fusion(self) -> Group[FusedCascade]:
        """Accumulators, corrections, epilogue."""
        return Group(p.fused for p in self.program.pieces)

    @cached_property
    def _shapes(self) -> dict[str, Array]:
        """An array for every argument: the given one, or a stand-in of the shape of its spec."""
        lengths = {
            name: [n if isinstance(n, int) else DEFAULT_LENGTH for n in s.shape] for name, s in self._specs.items()
        }
        return {
            n: stand_in(lengths[n], s.dtype) if n not in self._arrays else self._arrays[n]
            for n, s in self._specs.items()
        }

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Length of every axis; a symbolic size counts as DEFAULT_LENGTH. Raises what `single` raises."""
        return self.single.sizes(self.single.tensors(self._shapes))

    @cached_property
    def labels(self) -> dict[str, int]:
        """Length of every size label of the trace; one that only a call tells counts as DEFAULT_LENGTH."""
        known = self.trace.size_values({n: self._shapes[n].shape for n in self.trace.arguments})
        return {s.label: s.value or DEFAULT_LENGTH for s in self.trace.sizes} | known

    @cached_property
    def built(self) -> Group[Built]:
        """Plans and kernels for the lengths and memory layouts given (compiled unless `target="interpret"`)."""
        return Group(part for b in self._whole for part in b.parts)

    @cached_property
    def _whole(self) -> tuple[Built | BuiltApart, ...]:
        """What runs each cascade."""
        return tuple(b for stage in self.stages for b in stage._build())

    def _build(self) -> Iterable[Built | BuiltApart]:
        for piece, inputs, outs in self._pieces():
            yield self.single.built(piece, inputs, outs, self.sizes)

    def _pieces(self) -> Iterable[tuple[Piece, list[Array], list[Array]]]:
        """Every cascade with its inputs and outputs, or stand-ins of them."""
        program, sizes = self.single, self.sizes
        values: dict[str, Any] = program.tensors(self._shapes)
        for piece in program.pieces:
            outs = [stand_in([sizes[base_axis(a)] for a in o.axes], o.dtype) for o in piece.outputs]
            yield piece, piece.arrays(values, sizes, program.home.reshape), outs
            for o, a in zip(piece.outputs, outs, strict=True):
                values[o.name] = a.reshape(result_shape(o, piece.parts, sizes))

    def gpu_tiles(self, arch: str) -> Group[Kernel]:
        """The tile programs of the schedules for a GPU ("h100") or an architecture ("sm_90a")."""
        return Group(kernel for _, _, kernel in self._gpu_kernels(arch))

    def _gpu_kernels(self, arch: str) -> Iterable[tuple[Lowered, Piece, Kernel]]:
        """Every cascade, with the stage it belongs to and its tile program for a GPU."""
        for stage in self.stages:
            for piece, inputs, outs in stage._pieces():
                layouts = stage.single.layouts(piece, inputs, outs)
                yield stage, piece, pipeline.tile_step(stage.single.job(piece, layouts, stage.sizes, arch).plan())

    @property
    def plan(self) -> Group[Plan | LibraryPlan]:
        """The chosen schedules."""
        return Group(b.plan for b in self._whole)

    @property
    def tiles(self) -> Group[Kernel]:
        """The tile programs."""
        return Group(b.kernel for b in self.built)

    @property
    def levels(self) -> dict[str, tuple[Any, ...]]:
        """Name of a level -> what it holds, over all stages; every item prints. Without the sources."""
        stages = self.stages
        return {"trace": (self.trace,), "term": tuple(s.term for s in stages),
                "partition": tuple(s.partition for s in stages), "fusion": tuple(f for s in stages for f in s.fusion),
                "plan": tuple(self.plan), "tiles": tuple(self.tiles)}

    def source(self, language: str = "c", *, arch: str | None = None) -> str:
        """The text of all kernels, in C for this machine or ("cuda") for a GPU: `arch` is an architecture such as
        "sm_90a" or a device such as "h100".

        Raises
        ------
        ValueError
            for a language without a printer.
        """
        if arch is not None and language == "c":
            raise ValueError("arch= names a GPU architecture; C kernels are compiled for the machine at hand")
        if language == "cuda":
            kernels = self.gpu_tiles(arch or pipeline.GPU)
            return "\n".join(pipeline.source_step(k, language, arch) for k in kernels)
        return "\n".join(pipeline.source_step(k, language) for k in self.tiles)

    def report(self, language: str = "cuda", *, arch: str | None = None) -> CudaReport:
        """What the CUDA kernels will be like on a GPU, which need not be here: registers, spills, shared memory and
        occupancy of each launch, machine instructions, predicted time. `arch`: as for `source`. Where a tool is
        missing, the report says which and how to get it.

        Raises
        ------
        ValueError
            for another language, or a GPU that does not exist.
        """
        from redfuser.api.cuda_report import CudaReport, report_kernel

        if language != "cuda":
            raise ValueError(f"no report for language {language!r}; there is one for 'cuda'")
        gpu = arch or pipeline.GPU
        return CudaReport(
            report_kernel(kernel, piece.fused, piece.dtype, operand_dtype(piece.cascade), stage.sizes, gpu)
            for stage, piece, kernel in self._gpu_kernels(gpu))
