"""What runs the launches of a CUDA program, wherever its kernels are: arguments, grids, workspace, packed parameters.

The memory that kernels see is behind `Memory`; that of the host executor is in `kernel.py`, that of a GPU in
`gpu_kernel.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from redfuser.codegen.cuda import CudaProgram, Launch
from redfuser.codegen.nodes import Buf, Kernel
from redfuser.errors import ShapeError
from redfuser.ir import Expr
from redfuser.ir.dtypes import numpy_dtype
from redfuser.runtime.arrays import Port, length
from redfuser.runtime.cuda.launch import Function, Parameter, array, pack, scalar


def holds(condition: Expr | None, sizes: Mapping[str, int]) -> bool:
    """Whether a condition on sizes holds; no condition always does."""
    return condition is None or bool(length(condition, sizes))


@dataclass(frozen=True)
class Grid:
    """Size of one launch: blocks, and bytes of global scratch of each team."""

    blocks: int
    scratch: int

    @staticmethod
    def of(launch: Launch, sizes: Mapping[str, int], most: int) -> Grid:
        """As many blocks as tasks need, `most` at most: teams take further tasks in turn."""
        tasks = length(launch.tasks, sizes)
        blocks = min(-(-tasks // launch.teams), most)
        return Grid(max(blocks, 0), 0 if launch.scratch is None else length(launch.scratch, sizes))


def bytes_of(buf: Buf, sizes: Mapping[str, int]) -> int:
    """Bytes of a workspace buffer."""
    return math.prod(length(e, sizes) for e in buf.shape) * numpy_dtype(buf.dtype).itemsize


def parameters_of(launch: Launch) -> list[Parameter]:
    """The parameters of a launch as they are packed."""
    pointers = {"array": None, "workspace": None, "scratch": "uint8"}
    return [array(p.name, numpy_dtype(pointers[p.kind] or p.dtype)) if p.kind in pointers else scalar(p.name, "int64")
            for p in launch.parameters]


@dataclass(frozen=True)
class Placed:
    """An array where a kernel finds it: the address of its first element, strides in elements."""

    address: int
    strides: tuple[int, ...] = ()


class Memory(Protocol):
    """What kernels of one run see; a context manager, whose end gives back what the run asked for."""

    def input(self, port: Port, given: Any) -> Placed:
        """An input, in place or copied."""
        ...

    def output(self, port: Port, given: Any) -> Placed:
        """Room for an output: the caller's array, or memory that `finish` copies to it."""
        ...

    def room(self, size: int, name: str) -> int:
        """Address of memory without contents."""
        ...

    def finish(self) -> None:
        """After the last launch: results that were computed aside go to the caller's arrays."""
        ...


class LaunchedKernel:
    """A tile program as CUDA text with its launches; called like a compiled C kernel.

    kernel   the tile program
    program  the text and its launches
    source   the text
    """

    kind: type[Any]
    """Class of the arrays that `run` takes."""

    def __init__(self, kernel: Kernel, program: CudaProgram) -> None:
        self.kernel, self.program, self.source = kernel, program, program.source
        self._inputs = [Port(b, self.kind) for b in kernel.tensors]
        self._outputs = [Port(b, self.kind) for b in kernel.outs]
        self._parameters = {launch.name: parameters_of(launch) for launch in program.launches}

    def memory(self, outs: Sequence[Any]) -> AbstractContextManager[Memory]:
        """The memory of one run with these outputs."""
        raise NotImplementedError

    def function(self, launch: Launch) -> Function:
        """The kernel of a launch, ready to run."""
        raise NotImplementedError

    def most_blocks(self, launch: Launch) -> int:
        """Blocks that a launch may have; their teams take further tasks in turn."""
        raise NotImplementedError

    def run(self, arrays: Sequence[Any], outs: Sequence[Any], sizes: Mapping[str, int]) -> None:
        """Compute `outs` from `arrays`; parameters as those of a compiled C kernel.

        Raises
        ------
        DTypeError, ShapeError
            naming the argument that does not fit.
        LaunchError
            when no device could run a launch.
        CudaFault
            on the host executor: for the first thing that a kernel does wrong.
        """
        for axis, expected in self.kernel.static:
            if sizes.get(axis, expected) != expected:
                raise ShapeError(f"axis {axis} has length {sizes[axis]}, but kernel {self.kernel.name} was compiled "
                                 f"for {expected}; compile it again for this length")
        given = [p.check(a, sizes) for p, a in zip(self._inputs, arrays, strict=True)]
        made = [p.check(a, sizes) for p, a in zip(self._outputs, outs, strict=True)]
        with self.memory(made) as memory:
            places = {p.name: memory.input(p, a) for p, a in zip(self._inputs, given, strict=True)}
            places |= {p.name: memory.output(p, a) for p, a in zip(self._outputs, made, strict=True)}
            for buf in self.program.workspace:
                places[buf.name] = Placed(memory.room(bytes_of(buf, sizes), buf.name))
            for launch in self.program.launches:
                if holds(launch.when, sizes):
                    self._launch(launch, memory, places, sizes)
            memory.finish()

    def repeatable(self, arrays: Sequence[Any], outs: Sequence[Any], sizes: Mapping[str, int]) -> None:
        """None: a call is never repeated by its addresses alone."""
        return

    def _launch(self, launch: Launch, memory: Memory, places: Mapping[str, Placed], sizes: Mapping[str, int]) -> None:
        grid = Grid.of(launch, sizes, self.most_blocks(launch))
        if not grid.blocks:
            return
        values: list[int] = []
        for p in launch.parameters:
            if p.kind in ("array", "workspace"):
                values.append(places[p.name].address)
            elif p.kind == "scratch":
                values.append(memory.room(grid.blocks * launch.teams * grid.scratch, p.name))
            else:
                values.append(places[p.name].strides[p.dim] if p.kind == "stride" else
                              grid.scratch if p.kind == "bytes" else sizes[p.name])
        packed = pack(self._parameters[launch.name], values)
        self.function(launch).launch((grid.blocks, 1, 1), (launch.block, 1, 1), launch.shared, packed)


def element_strides(a: Any) -> tuple[int, ...]:
    """Strides of an array in elements."""
    return tuple(s // a.itemsize for s in a.strides)
