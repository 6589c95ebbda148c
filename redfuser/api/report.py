"""`f.explain(...)`: what the compiler derived, in words, as data, and as one self-contained page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from redfuser import pipeline
from redfuser.api.built import Built
from redfuser.api.cuda_report import CudaKernelReport
from redfuser.api.lowered import Lowered, operand_dtype
from redfuser.api.products import LibraryPlan
from redfuser.api.program import Program
from redfuser.api.report_text import merge_text, report_lines, update_text
from redfuser.api.staged import Staged
from redfuser.derivation import Derivation, Verdict
from redfuser.derivation.certificate import SEED
from redfuser.derivation.derive import dependent_stages
from redfuser.derivation.fusion import FusedCascade
from redfuser.derivation.verdict import StageReport
from redfuser.derivation.witness import Witness
from redfuser.extract.device import Device
from redfuser.extract.frontier import Frontier
from redfuser.extract.gpu import gpus
from redfuser.extract.plan_time import predict_plan
from redfuser.extract.roofline import Prediction, predict, work_on
from redfuser.ir import Out, Tensor
from redfuser.ir.dtypes import numpy_dtype
from redfuser.ir.term import base_axis
from redfuser.pipeline import Options
from redfuser.runtime.library import workspace_bytes

LANGUAGES = {"c": "C", "interpret": "tile program", "cuda": "CUDA", "cuda-host": "CUDA"}
"""Target -> what its kernels are written in."""


@dataclass(frozen=True)
class Refusal:
    """A stage that starts a pass of its own, with the failed condition and the fact that would unlock it.

    evidence  what shows that no finite state can follow it; "" when nothing does
    """

    stage: str
    reason: str
    hint: str = ""
    evidence: str = ""
    found: StageReport | None = field(default=None, repr=False, compare=False)

    @property
    def witness(self) -> Witness | None:
        """Two prefixes that agree in all results so far, and what tells them apart later; looked for on first use."""
        return self.found.witness if self.found else None

    @property
    def unlocks(self) -> tuple[str, ...]:
        """Facts under which finitely many accumulators would do; looked for on first use."""
        return self.found.unlocks if self.found else ()


@dataclass(frozen=True)
class KernelInfo:
    """The kernel of one cascade. `runs`: how often this very kernel has computed results for the caller; `predicted`:
    seconds of a call by its plan, on this machine; `workspace`: bytes that it needs beside its arrays; `source`: its
    text, or the tile program where that is interpreted."""

    name: str
    language: str
    compiled: bool
    path: str | None
    runs: int
    notes: tuple[str, ...] = ()
    predicted: float = 0.0
    workspace: int = 0
    built: Built | None = field(default=None, repr=False, compare=False)

    @cached_property
    def source(self) -> str:
        if self.built is None:
            return ""
        return str(self.built.kernel if self.built.compiled is None else self.built.compiled.source)


@dataclass(frozen=True)
class Asked:
    """What a report is made for: the options of the function, the device, and the lengths of the axes."""

    options: Options
    device: Device
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class CascadeReport:
    """What was found for one cascade. `passes_before`: dependent stages, each a pass when run one after the other;
    `waits`: it reads results of another cascade, which must be complete; `timeline`: the saturations; `seed`: of the
    random checks; `prediction`: time on the device by its roofline, and the resource that bounds it."""

    name: str
    axis: str
    verdict: Verdict
    producers: Mapping[str, str]
    accumulators: Mapping[str, str]
    dependencies: Mapping[str, str]
    update: Mapping[str, str]
    merge: Mapping[str, str]
    epilogue: Mapping[str, str]
    outputs: Mapping[str, str]
    conditions: tuple[str, ...]
    passes: int
    passes_before: int
    output_sweep: bool
    refusals: tuple[Refusal, ...]
    waits: bool
    certificate: str
    seed: int
    timeline: tuple[str, ...]
    prediction: Prediction
    derivation: Derivation = field(repr=False)
    asked: Asked = field(repr=False)

    @property
    def lower_bound(self) -> int:
        """The fewest passes there can be, as far as the evidence goes."""
        return self.derivation.lower_bound

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The results that are computed together, pass after pass."""
        return self.derivation.groups

    @cached_property
    def frontier(self) -> Frontier:
        """All forms found for the cascade with cost, error, state and passes: some ten derivations when first asked
        for."""
        return pipeline.frontier_of(self.derivation.cascade, self.asked.options, self.asked.device, self.asked.sizes)

    @property
    def rules(self) -> tuple[str, ...]:
        """The smallest rule set found that still reaches this fusion: seconds of search when first asked for."""
        return self.derivation.rules

    @property
    def approximate(self) -> tuple[str, ...]:
        """Names of the approximate rules that the result may rest on: none unless `allow` names their group."""
        return self.derivation.approximate

    @property
    def matched(self) -> tuple[str, ...]:
        """Names of the rules that matched anything during the search; a few of them carry the result."""
        return tuple(sorted(set[str]().union(*(s.matched for s in self.derivation.timeline))))


@dataclass(frozen=True)
class ElementwiseReport:
    """Outputs that no reduction takes part in: a kernel computes them element by element. `reads`: results of other
    kernels that it waits for."""

    name: str
    outputs: Mapping[str, str]
    reads: tuple[str, ...] = ()


def report_cascade(d: Derivation, fused: FusedCascade, dtype: str, asked: Asked,
                   stored: frozenset[str] = frozenset()) -> CascadeReport:
    """Texts of one derivation. `dtype`: of the arithmetic; `stored`: outputs of earlier cascades."""
    c = fused.cascade
    assert c.axis is not None
    work = work_on(asked.device, fused, asked.sizes, dtype)
    return CascadeReport(
        name=c.name,
        axis=c.axis,
        verdict=d.verdict,
        producers={p.name: str(p.expr) for p in c.producers},
        accumulators={a.name: f"{a.monoid}_{c.axis}({a.body})" for a in fused.accumulators},
        dependencies={x.name: str(x.expr) for x in fused.dependencies},
        update={a.name: update_text(fused, a) for a in fused.accumulators},
        merge={a.name: merge_text(fused, a) for a in fused.accumulators},
        epilogue={name: str(e) for name, e in fused.epilogue},
        outputs={o.name: str(o.expr) for o in c.outs},
        conditions=d.conditions,
        passes=len(fused.passes),
        passes_before=dependent_stages(c),
        output_sweep=any(c.axis in o.axes for o in c.outs),
        refusals=tuple(Refusal(s.name, s.reason, s.hint, s.evidence, s) for s in d.stages),
        waits=any(t.name in stored for t in c.tensors),
        certificate=str(d.certificate),
        seed=SEED,
        timeline=tuple(map(str, d.timeline)),
        prediction=predict(work, asked.device, dtype, operand_dtype(c)),
        derivation=d,
        asked=asked,
    )


@dataclass(frozen=True)
class Report:
    """The result of `f.explain`. Mappings are keyed by accumulator, `cascade.accumulator` where a name occurs twice.

    passes / passes_before  sweeps over the inputs for the reductions, fused and stage by stage; outputs that carry the
                            stream axis need one more sweep in both cases (`CascadeReport.output_sweep`)
    bytes                   {"before": ..., "after": ...}: array traffic of stage-by-stage NumPy and of the kernels
    elementwise             the outputs that no reduction takes part in
    kernels                 the kernels that compute the result: compiled code, or the interpreter when asked for
    with_frontier           the text and the plain data hold the frontier of forms, which has to be searched for
    levels                  name of a level of the compilation -> what `f.lower(...)` has there; a page shows them
    cuda                    with a target of CUDA, what its kernels will be like on a GPU: `Lowered.report`
    """

    name: str
    cascades: tuple[CascadeReport, ...]
    bytes: Mapping[str, int]
    kernels: tuple[KernelInfo, ...]
    notes: tuple[str, ...] = field(default=())
    with_frontier: bool = False
    elementwise: tuple[ElementwiseReport, ...] = ()
    levels: Mapping[str, tuple[Any, ...]] = field(default_factory=dict, repr=False, compare=False)
    cuda: tuple[CudaKernelReport, ...] = ()

    @property
    def frontier(self) -> list[Frontier]:
        """Per cascade, all forms found with their cost, error, state and passes, and which one is taken."""
        return [c.frontier for c in self.cascades]

    @property
    def verdict(self) -> Verdict:
        """The worst case over the cascades; PARTLY when some are fusible and some are not.

        A cascade that reads results of another one needs a pass of its own. Fusing across stream axes is not searched,
        so that the whole is PARTLY at best, and NOT_FOUND where no pass is saved.
        """
        found = {c.verdict for c in self.cascades}
        if any(c.waits for c in self.cascades):
            fewer = self.passes < self.passes_before and Verdict.NOT_FOUND not in found
            return Verdict.PARTLY if fewer else Verdict.NOT_FOUND
        if Verdict.NOT_FOUND in found:
            return Verdict.NOT_FOUND
        if len(found) <= 1:
            return next(iter(found), Verdict.FUSIBLE)
        return Verdict.PARTLY

    @property
    def passes(self) -> int:
        return sum(c.passes for c in self.cascades)

    @property
    def passes_before(self) -> int:
        return sum(c.passes_before for c in self.cascades)

    def _collect(self, what: str) -> dict[str, str]:
        names = [n for c in self.cascades for n in getattr(c, what)]
        return {
            (n if names.count(n) == 1 else f"{c.name}.{n}"): text
            for c in self.cascades
            for n, text in getattr(c, what).items()
        }

    @property
    def accumulators(self) -> dict[str, str]:
        return self._collect("accumulators")

    @property
    def update(self) -> dict[str, str]:
        return self._collect("update")

    @property
    def merge(self) -> dict[str, str]:
        return self._collect("merge")

    @property
    def epilogue(self) -> dict[str, str]:
        return self._collect("epilogue")

    @property
    def conditions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(x for c in self.cascades for x in c.conditions))

    @property
    def rules(self) -> tuple[str, ...]:
        """The smallest rule set found that still reaches these fusions."""
        return tuple(dict.fromkeys(x for c in self.cascades for x in c.rules))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for json.dumps; without `rules`, which has to be searched for."""
        return {
            "name": self.name,
            "verdict": str(self.verdict),
            "passes": self.passes,
            "passes_before": self.passes_before,
            "bytes": dict(self.bytes),
            "conditions": list(self.conditions),
            "cascades": [self._cascade(c) for c in self.cascades],
            "elementwise": [_plain(e) for e in self.elementwise],
            "kernels": [_plain(k) for k in self.kernels],
            "cuda": [k.to_dict() for k in self.cuda],
            "notes": list(self.notes),
        }

    def _cascade(self, c: CascadeReport) -> dict[str, Any]:
        found = _plain(c) | {"rules_matched": list(c.matched), "approximate": list(c.approximate),
                             "prediction": c.prediction.to_dict(), "lower_bound": c.lower_bound,
                             "groups": [list(g) for g in c.groups],
                             "refusals": [s.to_dict() for s in c.derivation.stages]}
        return found | ({"frontier": c.frontier.to_dict()} if self.with_frontier else {})

    def __str__(self) -> str:
        return "\n".join(report_lines(self))

    def to_html(self, path: str | Path, *, rules: bool = True) -> None:
        """Write the report as one self-contained page: graph, formulas, plots, levels, sources; no scripts, no network.

        `rules`: look for the smallest rule set of each cascade (`rules`) too, which takes about as long as deriving it.
        """
        from redfuser.api.page import page

        Path(path).write_text(page(self, rules=rules), encoding="utf-8")

    def _repr_html_(self) -> str:
        """What a notebook shows: the page, with shorter texts and without a search for the smallest rule set."""
        from redfuser.api.page import fragment

        return fragment(self)


def traffic(lowered: Lowered) -> dict[str, int]:
    """Bytes of array traffic: every NumPy call reading and writing its arrays, against the kernels' passes and the
    calls that NumPy runs there too."""
    nodes, labels = lowered.trace.nodes, lowered.labels

    def node_bytes(i: int) -> int:
        n = nodes[i]
        return math.prod(labels[e] if isinstance(e, str) else e for e in n.shape) * numpy_dtype(n.dtype).itemsize

    free = ("input", "const", "size", "view", "broadcast")
    called = {i: node_bytes(i) + sum(map(node_bytes, n.inputs)) for i, n in enumerate(nodes)
              if n.op not in free and not (n.op == "host" and n.param.call.view)}
    after = sum(n for i, n in called.items() if nodes[i].op == "host")
    return {"before": sum(called.values()), "after": after + sum(map(_kernel_bytes, lowered.stages))}


def _kernel_bytes(stage: Lowered) -> int:
    """Bytes that the kernels of a stage read and write."""

    def array_bytes(x: Tensor | Out) -> int:
        return math.prod(stage.sizes[base_axis(a)] for a in x.axes) * numpy_dtype(x.dtype).itemsize

    return sum(max(1, len(piece.fused.passes)) * sum(map(array_bytes, piece.cascade.tensors))
               + sum(map(array_bytes, piece.cascade.outs)) for piece in stage.program.pieces)


def build_report(name: str, lowered: Lowered, device: str | None = None, frontier: bool = False) -> Report:
    """The report of one compilation.

    Parameters
    ----------
    device
        name of the device that times are predicted for (`redfuser.extract.device.devices()`); None: this machine.
    frontier
        search for further forms, and show them.

    Raises
    ------
    ValueError
        naming `device`, when there is no such device.
    """
    program = lowered.program
    machine = pipeline.host() if device is None else Device.load(device)
    cascades: list[CascadeReport] = []
    elementwise: list[ElementwiseReport] = []
    earlier = [frozenset[str]()] if isinstance(program, Program) else program.computed_reads()
    for stage, computed in zip(lowered.stages, earlier, strict=True):
        asked = Asked(program.options, machine, stage.sizes)
        reductions = [(p, p.derivation) for p in stage.program.pieces if p.derivation is not None]
        stored = computed.union(o.name for p, _ in reductions for o in p.outputs)
        cascades += [report_cascade(d, p.fused, p.dtype, asked, stored) for p, d in reductions]
        elementwise += [
            ElementwiseReport(p.cascade.name, {o.name: str(o.expr) for o in p.outputs},
                              tuple(t.name for t in p.cascade.tensors if t.name in stored))
            for p in stage.program.pieces if p.derivation is None
        ]
    kernels = [
        KernelInfo(
            name=b.kernel.name,
            language=LANGUAGES[stage.program.options.target],
            compiled=b.compiled is not None,
            path=None if b.compiled is None else str(b.compiled.path),
            runs=b.runs,
            notes=b.notes,
            predicted=predict_plan(b.plan, stage.sizes).seconds,
            workspace=workspace_bytes(b.kernel, stage.sizes, b.plan.profile.threads),
            built=b,
        )
        for stage in lowered.stages for b in stage.built
    ]
    notes = (*(() if isinstance(program, Program) else _call_notes(program)),
             *(n for plan in lowered.plan if isinstance(plan, LibraryPlan) for n in plan.notes),
             *(f"assembled in plain NumPy after the kernels, not fused: {j}" for j in program.joins))
    cuda = lowered.report(arch=device if device in gpus() else None) if on_gpu(program.options.target) else ()
    return Report(name, tuple(cascades), traffic(lowered), tuple(kernels), notes, with_frontier=frontier,
                  elementwise=tuple(elementwise), levels=lowered.levels, cuda=tuple(cuda))


def on_gpu(target: str) -> bool:
    """Whether kernels of a target are CUDA."""
    return LANGUAGES[target] == "CUDA"


def _call_notes(program: Staged) -> Iterator[str]:
    """What NumPy does between the kernels."""
    for c in program.calls:
        yield f"a view of an argument, taken by NumPy: {c}" if program.is_view(c) else (
            f"run by NumPy between the kernels, not fused: {c}")


_HIDDEN = ("derivation", "asked", "prediction", "refusals", "built")


def _plain(x: Any) -> dict[str, Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, tuple):
            return [convert(v) for v in value]
        if isinstance(value, KernelInfo):
            return _plain(value)
        return str(value) if isinstance(value, Verdict) else value

    return {name: convert(getattr(x, name)) for name in x.__dataclass_fields__ if name not in _HIDDEN}
