"""The mathematical level: write a cascade as equations, derive its incremental form, run it on any stream.

    n, d = axes("n d")
    x, v = tensor("x", n), tensor("v", n, d)
    c = Cascade("attention", axis=n)
    m = c.max("m", x)
    l = c.sum("l", np.exp(x - m))
    o = c.sum("o", np.exp(x - m) / l * v)
    fusion = derive(c)
    state = fusion.update(fusion.init(), x=chunk_of_x, v=chunk_of_v)
    fusion.finalize(fusion.merge(state, other))["o"]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from redfuser.derivation import streaming
from redfuser.derivation.certificate import Certificate
from redfuser.derivation.definition import Cascade
from redfuser.derivation.derive import DEFAULT_LIMITS, Derivation, derive_cascade
from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.derivation.search import Limits
from redfuser.derivation.state import EMPTY, Chunk, State
from redfuser.derivation.streaming import Streamer
from redfuser.derivation.verdict import StageReport, Verdict
from redfuser.errors import ArgumentError, RedfuserError, ShapeError
from redfuser.ir import Cascade as CascadeNode
from redfuser.ir import Expr, find_parts

if TYPE_CHECKING:
    from redfuser.derivation.witness import Witness
    from redfuser.rules import RuleSet


class NotFusible(RedfuserError):
    """No single pass was found. `plan` still runs, in the fewest passes known.

    verdict  NOT_FUSIBLE or NOT_FOUND (PARTLY only where one pass was required)
    stage    name of the first reduction that needs a pass of its own
    reason   the condition that failed, with the evidence
    hint     the fact or change that would unlock it
    witness  two prefixes that agree in all results so far and continue differently; None when there is no evidence
    plan     the `FusedCascade` that can be executed (`redfuser.derivation.run_fused(plan, arrays)`)
    """

    def __init__(self, verdict: Verdict, report: StageReport, plan: FusedCascade) -> None:
        self.verdict = verdict
        self.report = report
        self.stage = report.name
        self.reason = report.reason + (f" ({report.evidence})" if report.evidence else "")
        self.hint = report.hint
        self.plan = plan
        super().__init__(f"{plan.cascade.name} is {verdict.value}: {report}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.verdict, self.report, self.plan)

    @property
    def witness(self) -> Witness | None:
        """Looked for on first use."""
        return self.report.witness

    @property
    def unlocks(self) -> tuple[str, ...]:
        """Facts under which one pass would do. Looked for on first use."""
        return self.report.unlocks

    @classmethod
    def of(cls, derivation: Derivation) -> NotFusible:
        """The exception for a derivation that needs more than one pass."""
        return cls(derivation.verdict, derivation.stages[0], derivation.fused)


@dataclass(frozen=True)
class Fusion:
    """A derived cascade: its incremental form, and the means to run it on a stream.

    A state is a frozen, picklable object of named arrays (`state["l"]`); the empty one is neutral in `merge`, bit for
    bit. Chunks are given by tensor name with the stream axis at its place; stream-free tensors are given with every
    chunk and kept. Arithmetic runs in the dtype of the chunks (narrow types in float32), or in `acc_dtype`.
    """

    derivation: Derivation

    @property
    def accumulators(self) -> list[Accumulator]:
        """What the loop carries, each with `.name .monoid .body .axes`."""
        return list(self.derivation.fused.accumulators)

    @property
    def corrections(self) -> dict[str, Expr]:
        """Accumulator -> its value at the new dependencies, in terms of old and new values."""
        return dict(self.derivation.fused.corrections)

    @property
    def epilogue(self) -> dict[str, Expr]:
        """Reduction -> its value in terms of accumulators and dependencies."""
        return dict(self.derivation.fused.epilogue)

    @property
    def dependencies(self) -> dict[str, Expr]:
        """Dependency -> its value in terms of accumulators."""
        return {d.name: d.expr for d in self.derivation.fused.dependencies}

    @property
    def conditions(self) -> tuple[str, ...]:
        """What the form rests on: assumptions it uses, and domains of operations on its results, in words."""
        return self.derivation.conditions

    @property
    def passes(self) -> int:
        """Number of sweeps over the stream."""
        return self.derivation.passes

    @property
    def verdict(self) -> Verdict:
        """FUSIBLE, or PARTLY when some stages need a pass of their own."""
        return self.derivation.verdict

    @property
    def stages(self) -> tuple[StageReport, ...]:
        """The stages that need a pass of their own, with reasons."""
        return self.derivation.stages

    @property
    def rules(self) -> tuple[str, ...]:
        """Names of the laws the derivation rests on."""
        return self.derivation.rules

    @cached_property
    def certificate(self) -> Certificate:
        """Evidence that the incremental form is right: checked at random points, then proved symbolically.

        When the proof stays undecided the random check remains, and `.method` says so.
        """
        checked = self.derivation.certificate
        proved = checked.prove()
        return proved if proved.valid else checked

    def __str__(self) -> str:
        return str(self.derivation.fused)

    def latex(self) -> str:
        """The incremental form as LaTeX equations."""
        from redfuser.derivation.equations import latex_fusion

        return latex_fusion(self.derivation.fused)

    def init(self) -> State:
        """The empty state."""
        return EMPTY

    def update(self, state: State, *, acc_dtype: Any = None, **chunk: Any) -> State:
        """The state after one more chunk of the stream; an empty chunk changes nothing.

        Raises
        ------
        ShapeError
            when a tensor is missing, unknown, or does not fit the others or the state.
        ArgumentError
            when `state` is no state.
        """
        _check_state("state", state)
        part = replace(self._chunk(chunk), offset=state.start + state.length)
        if not part.length:
            return state
        if state.length:
            sizes = streaming.chunk_sizes(self.derivation.fused, part)
            self._check_same_rows("chunk", state, sizes, part.arrays)
        return self._streamer(acc_dtype).advance([state] if state.length else [], part)

    def merge(self, a: State, b: State, *, acc_dtype: Any = None) -> State:
        """The state of two streams, that of `a` first.

        Raises
        ------
        ShapeError
            when the states are not of this cascade, or of different sizes or stream-free inputs.
        ArgumentError
            when `a` or `b` is no state.
        """
        _check_state("a", a)
        _check_state("b", b)
        if a.length and b.length:
            self._check_own(b)
            self._check_same_rows("state b", a, b.sizes, b.inputs)
        return streaming.merge(self._streamer(acc_dtype), a, b)

    def finalize(self, state: State) -> dict[str, np.ndarray[Any, Any]]:
        """Results of all reductions; one with several parts is a structured array with a field for each.

        Raises
        ------
        ShapeError
            for a state that has seen nothing, unless all reductions are sums without further axes, and for one that has
            seen fewer elements than a top-k needs.
        ArgumentError
            when `state` is no state.
        """
        _check_state("state", state)
        fused = self._single_pass()
        for r in fused.cascade.reductions:
            parts = find_parts(r.monoid)
            if parts is not None and (parts.rank or 0) > state.length:
                raise ShapeError(f"argument 'state' has seen {state.length} elements, {r.name} needs {parts.rank}")
        if not state.length:
            state = self._nothing(fused)
        results = streaming.finalize(fused, state.values, state.inputs, state.sizes, state.length)
        return {r.name: results[r.name] for r in fused.cascade.reductions}

    def _check_own(self, state: State) -> None:
        """Raise ShapeError for a state of another cascade."""
        own = [a.name for a in self.derivation.fused.accumulators]
        if set(own) != set(state.values):
            raise ShapeError(f"{state} is no state of {self.derivation.cascade.name}, which carries {', '.join(own)}")

    def _check_same_rows(self, what: str, state: State, sizes: Mapping[str, int], inputs: Mapping[str, Any]) -> None:
        """Raise ShapeError unless a state goes on with the sizes and stream-free inputs it began with."""
        fused = self.derivation.fused
        self._check_own(state)
        for axis, n in state.sizes.items():
            if axis != fused.cascade.axis and sizes.get(axis) != n:
                raise ShapeError(f"{what}: axis {axis} has length {sizes.get(axis)}, the state began with {n}")
        for name in streaming.stream_free(fused):
            if not np.array_equal(state.inputs[name], inputs[name], equal_nan=True):
                raise ShapeError(f"{what}: {name} does not vary along axis {fused.cascade.axis}, but differs from the "
                                 "one the state began with")

    def _nothing(self, fused: FusedCascade) -> State:
        axes_ = {a for x in fused.accumulators for a in x.axes}
        if axes_ or streaming.stream_free(fused):
            raise ShapeError("argument 'state' is empty and its shapes are unknown: update it with a chunk first")
        return streaming.empty_state(self._streamer(None), {}, {})

    def _single_pass(self) -> FusedCascade:
        if self.passes != 1:
            raise NotFusible.of(self.derivation)
        return self.derivation.fused

    def _streamer(self, acc_dtype: Any) -> Streamer:
        return Streamer(self._single_pass(), acc_dtype=acc_dtype)

    def _chunk(self, arrays: Mapping[str, Any]) -> Chunk:
        fused = self._single_pass()
        known = {t.name: t for t in fused.cascade.tensors}
        for name in arrays:
            if name not in known:
                raise ShapeError(f"argument {name!r} is no tensor of {fused.cascade.name}: it has {', '.join(known)}")
        missing = [str(t) for name, t in known.items() if name not in arrays]
        if missing:
            raise ShapeError(f"update needs every tensor: {', '.join(missing)} missing")
        values = {name: np.asarray(a) for name, a in arrays.items()}
        for name, array in values.items():
            if array.ndim != len(known[name].axes):
                raise ShapeError(f"argument {name!r} has {array.ndim} dimensions, expected those of {known[name]}")
        lengths = [values[t.name].shape[t.axes.index(fused.cascade.axis)] for t in fused.cascade.tensors
                   if fused.cascade.axis in t.axes]
        return Chunk(values, 0, lengths[0] if lengths else 0)


def _check_state(name: str, state: Any) -> None:
    """Raise ArgumentError for anything but a state."""
    if not isinstance(state, State):
        raise ArgumentError(f"argument {name!r} is {state!r}; give a state: what init, update or merge returned")


def derive(cascade: Cascade | CascadeNode, *, rules: RuleSet | None = None, allow: Iterable[str] = (),
           limits: Limits = DEFAULT_LIMITS) -> Fusion:
    """Derive the incremental form of a cascade.

    Parameters are those of `redfuser.derivation.derive_cascade`.

    Raises
    ------
    NotFusible
        when no fusion was found (NOT_FUSIBLE, NOT_FOUND); the exception carries `.plan`, which still runs.
    ArgumentError
        for anything but a cascade.
    """
    if not isinstance(cascade, (Cascade, CascadeNode)):
        raise ArgumentError(f"argument 'cascade' of derive is {cascade!r}; give a rf.Cascade with its reductions, or "
                            "compile a NumPy function with rf.fuse")
    built = cascade.build() if isinstance(cascade, Cascade) else cascade
    found = derive_cascade(built, rules=rules, allow=allow, limits=limits)
    if found.verdict in (Verdict.NOT_FUSIBLE, Verdict.NOT_FOUND):
        raise NotFusible.of(found)
    return Fusion(found)
