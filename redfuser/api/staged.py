"""A function of which NumPy itself runs some calls: kernels before, between and after them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from redfuser.api.built import Stats
from redfuser.api.program import Array, Piece, Program, checked_outs, drop_units
from redfuser.errors import ShapeError, TraceError
from redfuser.frontend import Trace
from redfuser.frontend.guards import SizeGuard
from redfuser.frontend.stages import HostStep, Stage, StaleTrace, argument_views, stages
from redfuser.frontend.structure import joins_of
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.views import array_of
from redfuser.pipeline import Options
from redfuser.runtime.library import check_apart


@dataclass(frozen=True)
class Part:
    """A stage, and the program of its kernels where it has any."""

    stage: Stage
    program: Program | None


class Staged:
    """Like `Program`, for a trace with calls that NumPy runs (`redfuser.frontend.host`)."""

    def __init__(self, traced: Trace, options: Options, stats: Stats, home: Any) -> None:
        self.trace = traced
        self.options = options
        self.home = home
        self.stats = stats
        found = stages(traced)
        self.views = argument_views(traced)
        if options.require == "one-pass" and any(not self.is_view(c) for s in found for c in s.calls):
            calls = " and ".join(str(c) for s in found for c in s.calls if not self.is_view(c))
            raise TraceError(f"{traced.name}: NumPy runs {calls} between kernels, so that there is no single pass; "
                             "leave out require='one-pass', or split the function there")
        computed = [c for s in found for c in s.calls if not c.call.view]
        if options.target == "cuda" and computed:
            calls = " and ".join(map(str, computed))
            raise TraceError(f"{traced.name}: NumPy runs {calls} between kernels, on the CPU, and the arrays are on a "
                             "GPU; split the function there and call CuPy or PyTorch in between, or pass copies in "
                             "NumPy")
        self.parts = tuple(Part(s, None if s.trace is None else Program(s.trace, options, stats, home)) for s in found)
        self.output_names = traced.output_names()
        self.joins = joins_of(traced.structure)
        self.guarded = bool(traced.guards) or any(s.fixed for s in traced.sizes)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The cascades of all stages."""
        return tuple(p for part in self.parts if part.program is not None for p in part.program.pieces)

    def is_view(self, call: HostStep) -> bool:
        """Whether a call gives views of arguments."""
        return self.views.issuperset(call.results)

    def computed_reads(self) -> Iterator[frozenset[str]]:
        """For each stage with kernels, the inputs that something computes before: no arguments, nor views of them."""
        for part in self.parts:
            if part.program is not None:
                yield frozenset(name for name, i in part.stage.reads.items() if i not in self.views)

    @property
    def calls(self) -> tuple[HostStep, ...]:
        """What NumPy runs, in order."""
        return tuple(c for part in self.parts for c in part.stage.calls)

    def check_outs(self, given: Sequence[Array]) -> dict[str, Array]:
        """See `Program.check_outs`."""
        return checked_outs(self.trace, self.output_names, given, self.home.kind)

    def run(self, arguments: Mapping[str, Array], outs: Mapping[str, Array]) -> dict[str, Array]:
        """See `Program.run`. Whatever a call of NumPy's raises is passed on."""
        check_apart(list(outs), [self.home.outline(a) for a in outs.values()])
        nodes = self.trace.nodes
        sizes = self.trace.size_values({name: np.shape(arguments[name]) for name in self.trace.arguments})
        values: dict[int, Any] = {}
        for i, n in enumerate(nodes):
            if n.op == "input":
                array = (arguments[n.param] if n.param in arguments else
                         self.home.constant(n.param, self.trace.captured[n.param], numpy_dtype(n.dtype)))
                if i in self.trace.shapes:  # merged axes, taken apart
                    array = array.reshape([e if isinstance(e, int) else sizes[e] for e in n.shape])
                values[i] = array
        open_ = [g for g in self.trace.guards if isinstance(g, SizeGuard)]
        for part in self.parts:
            if part.program is not None:
                given = {**arguments, **{name: values[i] for name, i in part.stage.reads.items()}}
                values |= self._computed(part.program, part.stage, given)
            for call in part.stage.calls:
                values |= call.run([values[i].item() if nodes[i].weak else values[i] for i in call.operands], sizes)
            open_ = [g for g in open_ if not self._holds(g, sizes)]
        found = {}
        for name, i in zip(self.output_names, self.trace.outputs, strict=True):
            found[name] = self.home.own(values[i], nodes[i].op, numpy_dtype(nodes[i].dtype))
        for name, i in zip(self.output_names, self.trace.outputs, strict=True):
            if name in outs:
                array = found[name]
                result = array_of(self.trace.for_caller(array, i))[drop_units(self.trace.caller_shape(i)) or ...]
                if outs[name].shape != result.shape:
                    raise ShapeError(f"out= array for {name} has shape {outs[name].shape}, the result has "
                                     f"{result.shape}")
                self.home.assign(outs[name], result)
        return found

    def _holds(self, guard: SizeGuard, sizes: Mapping[str, int]) -> bool:
        """Whether the answer to a question about sizes is the one for which the function was traced; False: not known
        yet.

        Raises
        ------
        StaleTrace
            when it is another one, which only the results of calls could tell.
        """
        answer = self.trace.answers(guard, sizes)
        if answer is False:
            raise StaleTrace(f"{self.trace.name}: the length of an array that NumPy makes decides what to do, and it "
                             f"does not have the length that it had when the function was traced: {guard}; split the "
                             "function there")
        return answer is True

    def _computed(self, program: Program, stage: Stage, given: Mapping[str, Array]) -> dict[int, Array]:
        """What the kernels of a stage give, by position in the whole trace."""
        results = program.run(given, {})
        at = zip(stage.gives, program.output_names, program.trace.outputs, strict=True)
        return {i: array_of(program.trace.for_caller(array_of(results[name]), own)) for i, name, own in at}


def compiled(traced: Trace, options: Options, stats: Stats, home: Any) -> Program | Staged:
    """The program of a trace. `home`: where its arrays are."""
    kind = Staged if any(n.op == "host" for n in traced.nodes) else Program
    return kind(traced, options, stats, home)
