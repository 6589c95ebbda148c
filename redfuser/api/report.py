"""`f.explain(...)`: what the compiler derived, in words, as data, and as one self-contained page."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redfuser.api.lowered import Lowered
from redfuser.api.program import Program
from redfuser.derivation import Derivation, Verdict
from redfuser.derivation.derive import dependent_stages
from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.ir import MONOIDS, Expr, New, Old, Out, Ref, Tensor, Var, refs, rewrite
from redfuser.ir.interpret import numpy_dtype
from redfuser.ir.ops import OPS
from redfuser.ir.term import base_axis


def _combined(monoid: str, old: str, new: str) -> str:
    """Text of `old (+) new`."""
    if monoid == "first":
        return f"{old} if anything was seen, else {new}"
    info = OPS[MONOIDS[monoid].combine]
    return f"{old} {info.symbol} {new}" if info.symbol else f"{info.name}({old}, {new})"


def _correction_text(fused: FusedCascade, a: Accumulator, old: str, new: str) -> str:
    """The corrected accumulator, with old values written `name{old}` and new ones `name{new}`."""

    def rename(e: Expr) -> Expr | None:
        if isinstance(e, Old):
            return Var(e.name + old)
        if isinstance(e, New):
            return Var(e.name + new)
        return None

    correction = fused.correction(a.name)
    return str(Var(a.name + old) if correction is None else rewrite(correction, rename))


def update_text(fused: FusedCascade, a: Accumulator) -> str:
    """How one chunk of the stream changes an accumulator."""
    moving = _moving(fused, a)
    chunk = rewrite(a.body, lambda e: Var(e.name + "_new") if isinstance(e, Ref) and e.name in moving else None)
    return _combined(a.monoid, _correction_text(fused, a, "_old", "_new"), f"{a.monoid}_{fused.cascade.axis}({chunk})")


def _moving(fused: FusedCascade, a: Accumulator) -> set[str]:
    """Accumulators of the pass of `a`, and dependencies that read one of them: what changes while `a` is summed."""
    moving = set(next((p for p in fused.passes if a.name in p), ()))
    for d in fused.dependencies:
        if refs(d.expr) & moving:
            moving.add(d.name)
    return moving


def merge_text(fused: FusedCascade, a: Accumulator) -> str:
    """How two partial states a and b combine."""
    return _combined(a.monoid, _correction_text(fused, a, "_a", ""), _correction_text(fused, a, "_b", ""))


@dataclass(frozen=True)
class Refusal:
    """A stage that starts a pass of its own, with the failed condition and the fact that would unlock it."""

    stage: str
    reason: str
    hint: str = ""


@dataclass(frozen=True)
class KernelInfo:
    """The kernel of one cascade. `runs`: how often this very kernel has computed results for the caller."""

    name: str
    language: str
    compiled: bool
    path: str | None
    runs: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CascadeReport:
    """What was found for one cascade. `passes_before`: dependent stages, each a pass when run one after the other;
    `waits`: it reads results of another cascade, which must be complete."""

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
    derivation: Derivation = field(repr=False)

    @property
    def rules(self) -> tuple[str, ...]:
        """The smallest rule set found that still reaches this fusion: seconds of search when first asked for."""
        return self.derivation.rules

    @property
    def matched(self) -> tuple[str, ...]:
        """Names of the rules that matched anything during the search; a few of them carry the result."""
        return tuple(sorted(set[str]().union(*(s.matched for s in self.derivation.timeline))))


def report_cascade(d: Derivation, fused: FusedCascade, stored: frozenset[str] = frozenset()) -> CascadeReport:
    """Texts of one derivation. `stored`: outputs of earlier cascades."""
    c = fused.cascade
    assert c.axis is not None
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
        conditions=fused.conditions,
        passes=len(fused.passes),
        passes_before=dependent_stages(c),
        output_sweep=any(c.axis in o.axes for o in c.outs),
        refusals=tuple(Refusal(s.name, s.reason, s.hint) for s in d.stages),
        waits=any(t.name in stored for t in c.tensors),
        certificate=str(d.certificate),
        derivation=d,
    )


@dataclass(frozen=True)
class Report:
    """The result of `f.explain`. Mappings are keyed by accumulator, `cascade.accumulator` where a name occurs twice.

    passes / passes_before  sweeps over the inputs for the reductions, fused and stage by stage; outputs that carry the
                            stream axis need one more sweep in both cases (`CascadeReport.output_sweep`)
    bytes                   {"before": ..., "after": ...}: array traffic of stage-by-stage NumPy and of the kernels
    kernels                 the kernels that compute the result: compiled code, or the interpreter when asked for
    """

    name: str
    cascades: tuple[CascadeReport, ...]
    bytes: Mapping[str, int]
    kernels: tuple[KernelInfo, ...]
    notes: tuple[str, ...] = field(default=())

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
            "cascades": [_plain(c) | {"rules_matched": list(c.matched)} for c in self.cascades],
            "kernels": [_plain(k) for k in self.kernels],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return "\n".join(_report_lines(self))

    def to_html(self, path: str | Path) -> None:
        """Write the report as one self-contained page without scripts."""
        body = "\n".join(
            f"<h2>{html.escape(title)}</h2>\n<pre>{html.escape(text)}</pre>" for title, text in _sections(self)
        )
        style = (
            "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
            "pre{overflow-x:auto;background:rgba(128,128,128,.12);padding:1rem}:root{color-scheme:light dark}"
        )
        title = html.escape(f"redfuser: {self.name}")
        Path(path).write_text(
            f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{title}</title><style>{style}</style>\n'
            f"<h1>{title}</h1>\n{body}\n</html>\n",
            encoding="utf-8",
        )


def traffic(program: Program, sizes: Mapping[str, int], labels: Mapping[str, int]) -> dict[str, int]:
    """Bytes of array traffic: every NumPy call reading and writing its arrays, against the kernels' passes."""

    def node_bytes(i: int) -> int:
        n = program.trace.nodes[i]
        return math.prod(labels[e] if isinstance(e, str) else e for e in n.shape) * numpy_dtype(n.dtype).itemsize

    free = ("input", "const", "size", "view", "broadcast")
    before = sum(
        node_bytes(i) + sum(map(node_bytes, n.inputs)) for i, n in enumerate(program.trace.nodes) if n.op not in free
    )

    def array_bytes(x: Tensor | Out) -> int:
        return math.prod(sizes[base_axis(a)] for a in x.axes) * numpy_dtype(x.dtype).itemsize

    after = 0
    for piece in program.pieces:
        sweeps = max(1, len(piece.fused.passes))
        after += sweeps * sum(map(array_bytes, piece.cascade.tensors)) + sum(map(array_bytes, piece.cascade.outs))
    return {"before": before, "after": after}


def build_report(name: str, lowered: Lowered) -> Report:
    """The report of one compilation."""
    program = lowered.program
    reductions = [p for p in program.pieces if p.derivation is not None]
    stored = frozenset(o.name for p in reductions for o in p.outputs)
    cascades = [report_cascade(p.derivation, p.fused, stored) for p in reductions if p.derivation is not None]
    kernels = [
        KernelInfo(
            name=b.kernel.name,
            language="C" if b.compiled is not None else "tile program",
            compiled=b.compiled is not None,
            path=None if b.compiled is None else str(b.compiled.path),
            runs=b.runs,
            notes=b.kernel.notes,
        )
        for b in lowered.built
    ]
    return Report(name, tuple(cascades), traffic(program, lowered.sizes, lowered.labels), tuple(kernels))


def _plain(x: Any) -> dict[str, Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, Mapping):
            return dict(value)
        if isinstance(value, tuple):
            return [convert(v) for v in value]
        if isinstance(value, (Refusal, KernelInfo)):
            return _plain(value)
        return str(value) if isinstance(value, Verdict) else value

    return {name: convert(getattr(x, name)) for name in x.__dataclass_fields__ if name != "derivation"}


def _table(title: str, rows: Mapping[str, str]) -> Iterable[str]:
    width = max((len(k) for k in rows), default=0)
    for i, (name, text) in enumerate(rows.items()):
        yield f"  {title if i == 0 else '':<13}{name:<{width}} = {text}"


def _cascade_lines(c: CascadeReport) -> Iterable[str]:
    sweep = ", then one sweep for the outputs along it" if c.output_sweep else ""
    before = f"{c.passes_before} dependent stage{'s' * (c.passes_before != 1)}"
    yield f"{c.name}: {c.verdict}, {c.passes} pass{'es' * (c.passes != 1)} over {c.axis} for {before}{sweep}"
    if c.waits:
        yield "  waits        for results of an earlier cascade: fusing across stream axes is not searched"
    for r in c.refusals:
        yield f"  refused      {r.stage}: {r.reason}"
        if r.hint:
            yield f"  hint         {r.hint}"
    yield from _table("producers", c.producers)
    yield from _table("accumulators", c.accumulators)
    yield from _table("dependencies", c.dependencies)
    yield from _table("update", c.update)
    yield from _table("merge", c.merge)
    yield from _table("epilogue", c.epilogue)
    yield from _table("outputs", c.outputs)
    for condition in c.conditions:
        yield f"  condition    {condition}"
    yield f"  rules        {len(c.matched)} matched; `rules` finds the smallest set that suffices"
    yield f"  certificate  {c.certificate}"


def _kernel_lines(k: KernelInfo) -> Iterable[str]:
    how = "compiled" if k.compiled else "interpreted"
    yield f"kernel {k.name}: {k.language}, {how}, {k.runs} run{'s' * (k.runs != 1)}" + (f", {k.path}" if k.path else "")
    for note in k.notes:
        yield f"  {note}"


def _sections(r: Report) -> Iterable[tuple[str, str]]:
    for c in r.cascades:
        yield f"cascade {c.name}", "\n".join(_cascade_lines(c))
    for k in r.kernels:
        yield f"kernel {k.name}", "\n".join(_kernel_lines(k))


def _report_lines(r: Report) -> Iterable[str]:
    if r.cascades:
        yield f"{r.name}: {r.verdict}, {r.passes} pass{'es' * (r.passes != 1)} instead of {r.passes_before}"
    else:
        yield f"{r.name}: no reductions"
    if r.bytes:
        yield f"  array traffic {r.bytes['after']:,} bytes, stage by stage {r.bytes['before']:,}"
    for _, text in _sections(r):
        yield ""
        yield text
    yield from r.notes
