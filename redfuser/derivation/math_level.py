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
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from redfuser.derivation import streaming
from redfuser.derivation.certificate import Certificate
from redfuser.derivation.derive import DEFAULT_LIMITS, Derivation, derive_cascade
from redfuser.derivation.engine import Limits
from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.derivation.passes import StageReport, Verdict
from redfuser.derivation.streaming import EMPTY, Chunk, State, Streamer
from redfuser.errors import RedfuserError, ShapeError
from redfuser.ir import MONOIDS, Axis, Expr, Load, Reduction, Ref, Size, Tensor, check_cascade, free_axes, walk, wrap
from redfuser.ir import Cascade as CascadeNode

if TYPE_CHECKING:
    from redfuser.rules import RuleSet


def axes(names: str) -> Any:
    """Axes by name: `n, d = axes("n d")`; a single name gives a single axis.

    Raises
    ------
    ShapeError
        when a name is repeated or is not an identifier.
    """
    words = names.replace(",", " ").split()
    if not words or len(set(words)) < len(words) or not all(w.isidentifier() for w in words):
        raise ShapeError(f"argument 'names' is {names!r}; give different names separated by blanks, like \"n d\"")
    first, *others = map(Axis, words)
    return (first, *others) if others else first


def tensor(name: str, *where: Axis) -> Load:
    """An input array with the given axes, in this order; a run-time scalar without any."""
    if not name.isidentifier():
        raise ShapeError(f"argument 'name' is {name!r}; a tensor needs an identifier, it is a keyword of `update`")
    return Load(name, tuple(a.name for a in where))


class Cascade:
    """A cascade under construction: reductions over one axis, in order; a later one may use earlier ones.

    Parameters
    ----------
    name
        used in messages and names of kernels.
    axis
        the stream axis all reductions run over.
    """

    def __init__(self, name: str, *, axis: Axis) -> None:
        self.name = name
        self.axis = axis
        self._reductions: list[Reduction] = []

    @property
    def size(self) -> Size:
        """The length of the stream axis."""
        return Size(self.axis.name)

    def reduce(self, monoid: str, name: str, body: Any) -> Ref:
        """The reduction of `body` by a monoid of `redfuser.ir.MONOIDS`; returns its value for use in later bodies.

        Raises
        ------
        ShapeError
            when the name is taken or no identifier, or the monoid is unknown.
        """
        if monoid not in MONOIDS or monoid == "first":
            known = ", ".join(m for m in MONOIDS if m != "first")
            raise ShapeError(f"argument 'monoid' is {monoid!r}; known are {known}")
        if not name.isidentifier() or any(r.name == name for r in self._reductions):
            raise ShapeError(f"argument 'name' is {name!r}; every reduction needs an identifier of its own")
        e = wrap(body)
        kept = tuple(a for a in _axis_order(e) if a != self.axis.name)
        self._reductions.append(Reduction(name, monoid, e, kept))
        return Ref(name, kept)

    def sum(self, name: str, body: Any) -> Ref:
        """Sum of `body` over the stream."""
        return self.reduce("sum", name, body)

    def max(self, name: str, body: Any) -> Ref:
        """Maximum of `body` over the stream."""
        return self.reduce("max", name, body)

    def min(self, name: str, body: Any) -> Ref:
        """Minimum of `body` over the stream."""
        return self.reduce("min", name, body)

    def prod(self, name: str, body: Any) -> Ref:
        """Product of `body` over the stream."""
        return self.reduce("prod", name, body)

    def build(self) -> CascadeNode:
        """The cascade as a term: what the compiler works on. Tensors appear in order of first use."""
        loads: dict[str, Load] = {}
        for r in self._reductions:
            for x in walk(r.body):
                if isinstance(x, Load) and loads.setdefault(x.tensor, x).axes != x.axes:
                    raise ShapeError(f"tensor {x.tensor} is used with axes {x.axes} and {loads[x.tensor].axes}")
        if not self._reductions:
            raise ShapeError(f"cascade {self.name} has no reduction: add one with .sum, .max, .min")
        names = dict.fromkeys(a for x in loads.values() for a in x.axes if isinstance(a, str))
        names.setdefault(self.axis.name)
        tensors = tuple(Tensor(x.tensor, tuple(map(str, x.axes))) for x in loads.values())
        all_axes = tuple(map(Axis, names))
        built = CascadeNode(self.name, self.axis.name, all_axes, tensors, (), tuple(self._reductions), ())
        check_cascade(built)
        return built

    def __str__(self) -> str:
        return str(self.build())


def _axis_order(e: Expr) -> list[str]:
    """Free axes in order of first appearance."""
    free = free_axes(e)
    seen = [a for x in walk(e) if isinstance(x, (Load, Ref)) for a in x.axes if isinstance(a, str)]
    return [a for a in dict.fromkeys(seen) if a in free]


class NotFusible(RedfuserError):
    """No single pass was found. `plan` still runs, in the fewest passes known.

    verdict  NOT_FUSIBLE or NOT_FOUND (PARTLY only where one pass was required)
    stage    name of the first reduction that needs a pass of its own
    reason   the condition that failed, with the evidence
    hint     the fact or change that would unlock it
    plan     the `FusedCascade` that can be executed (`redfuser.derivation.run_fused(plan, arrays)`)
    """

    def __init__(self, verdict: Verdict, report: StageReport, plan: FusedCascade) -> None:
        self.verdict = verdict
        self.stage = report.name
        self.reason = report.reason + (f" ({report.evidence})" if report.evidence else "")
        self.hint = report.hint
        self.plan = plan
        super().__init__(f"{plan.cascade.name} is {verdict.value}: {report}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.verdict, StageReport(self.stage, self.reason, self.hint), self.plan)

    @classmethod
    def of(cls, derivation: Derivation) -> NotFusible:
        """The exception for a derivation that needs more than one pass."""
        return cls(derivation.verdict, derivation.stages[0], derivation.fused)


@dataclass(frozen=True)
class Fusion:
    """A derived cascade: its incremental form, and the means to run it on a stream.

    A state is a frozen, picklable object of named arrays (`state["l"]`); the empty one is neutral in `merge`, bit for
    bit. Chunks are given by tensor name with the stream axis at its place; stream-free tensors are given with every
    chunk and kept. Arithmetic runs in the dtype of the chunks (half types in float32), or in `acc_dtype`.
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
        """Facts assumed of the final values."""
        return self.derivation.fused.conditions

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
        """
        part = self._chunk(chunk)
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
        """
        if a.length and b.length:
            self._check_own(b)
            self._check_same_rows("state b", a, b.sizes, b.inputs)
        return streaming.merge(self._streamer(acc_dtype), a, b)

    def finalize(self, state: State) -> dict[str, np.ndarray[Any, Any]]:
        """Results of all reductions.

        Raises
        ------
        ShapeError
            for a state that has seen nothing, unless all reductions are sums without further axes.
        """
        fused = self._single_pass()
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


def derive(cascade: Cascade | CascadeNode, *, rules: RuleSet | None = None, allow: Iterable[str] = (),
           limits: Limits = DEFAULT_LIMITS) -> Fusion:
    """Derive the incremental form of a cascade.

    Parameters are those of `redfuser.derivation.derive_cascade`.

    Raises
    ------
    NotFusible
        when no fusion was found (NOT_FUSIBLE, NOT_FOUND); the exception carries `.plan`, which still runs.
    """
    built = cascade.build() if isinstance(cascade, Cascade) else cascade
    found = derive_cascade(built, rules=rules, allow=allow, limits=limits)
    if found.verdict in (Verdict.NOT_FUSIBLE, Verdict.NOT_FOUND):
        raise NotFusible.of(found)
    return Fusion(found)
