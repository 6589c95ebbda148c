"""The texts of a report: updates and merges as formulas, one table per cascade, kernel lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING

from redfuser.derivation.fusion import Accumulator, FusedCascade
from redfuser.extract.roofline import duration
from redfuser.ir import MONOIDS, Expr, New, Old, Ref, Var, refs, rewrite
from redfuser.ir.ops import OPS, PIVOT, label

if TYPE_CHECKING:
    from redfuser.api.report import CascadeReport, ElementwiseReport, KernelInfo, Report


MOST_COLUMNS = 160
"""Of an equation in a table; a longer one goes on in the next line."""


def _combined(monoid: str, old: str, new: str) -> str:
    """Text of `old (+) new`."""
    if monoid == PIVOT:
        return f"the smaller in magnitude of {old} and {new}"
    if monoid not in MONOIDS:
        return f"{label(monoid)}({old}, {new})"
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
    moves = moving(fused, a)
    chunk = rewrite(a.body, lambda e: Var(e.name + "_new") if isinstance(e, Ref) and e.name in moves else None)
    return _combined(a.monoid, _correction_text(fused, a, "_old", "_new"), f"{a.monoid}_{fused.cascade.axis}({chunk})")


def moving(fused: FusedCascade, a: Accumulator) -> set[str]:
    """Accumulators of the pass of `a`, and dependencies that read one of them: what changes while `a` is summed."""
    moving = set(next((p for p in fused.passes if a.name in p), ()))
    for d in fused.dependencies:
        if refs(d.expr) & moving:
            moving.add(d.name)
    return moving


def merge_text(fused: FusedCascade, a: Accumulator) -> str:
    """How two partial states a and b combine."""
    return _combined(a.monoid, _correction_text(fused, a, "_a", ""), _correction_text(fused, a, "_b", ""))


def _table(title: str, rows: Mapping[str, str]) -> Iterable[str]:
    width = max((len(k) for k in rows), default=0)
    for i, (name, text) in enumerate(rows.items()):
        first, *rest = wrap(text, MOST_COLUMNS, break_long_words=False, break_on_hyphens=False) or [""]
        yield f"  {title if i == 0 else '':<13}{name:<{width}} = {first}"
        for line in rest:
            yield f"  {'':<13}{'':<{width}}   {line}"


def passes_text(c: CascadeReport) -> str:
    """How often the stream is read, and for what."""
    sweep = ", then one sweep for the outputs along it" if c.output_sweep else ""
    before = f"{c.passes_before} dependent stage{'s' * (c.passes_before != 1)}"
    return f"{c.passes} pass{'es' * (c.passes != 1)} over {c.axis} for {before}{sweep}"


def _cascade_lines(c: CascadeReport) -> Iterable[str]:
    yield f"{c.name}: {c.verdict}, {passes_text(c)}"
    if c.waits:
        yield "  waits        for results of an earlier cascade: fusing across stream axes is not searched"
    for r in c.refusals:
        yield f"  refused      {r.stage}: {r.reason}"
        if r.hint:
            yield f"  hint         {r.hint}"
        for fact in r.unlocks:
            yield f"  hint         {fact}"
        if r.evidence:
            yield f"  evidence     {r.evidence}"
        if r.witness:
            yield f"  witness      {r.witness}"
    if c.refusals:
        yield f"  passes       at least {c.lower_bound} by the evidence"
        for i, names in enumerate(c.groups):
            yield f"  pass {i + 1:<8}{', '.join(names)}"
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
    if c.approximate:
        yield f"  approximate  {', '.join(c.approximate)}: equal to the definition up to rounding, by your leave"
    yield f"  certificate  {c.certificate}; seed {c.seed}"
    for i, step in enumerate(c.timeline):
        yield f"  {'timeline' if i == 0 else '':<13}{step}"
    yield f"  predicted    {c.prediction}"


def _elementwise_lines(e: ElementwiseReport) -> Iterable[str]:
    after = f", after the kernels that compute {', '.join(e.reads)}" if e.reads else ""
    yield f"{e.name}: no reduction, computed element by element in one sweep{after}"
    yield from _table("outputs", e.outputs)


def _kernel_lines(k: KernelInfo) -> Iterable[str]:
    how = "compiled" if k.compiled else "interpreted"
    yield f"kernel {k.name}: {k.language}, {how}, {k.runs} run{'s' * (k.runs != 1)}" + (f", {k.path}" if k.path else "")
    predicted = "" if k.language == "CUDA" else f"predicted on this machine {duration(k.predicted)}, "
    yield f"  {predicted}workspace {k.workspace:,} bytes"
    for note in k.notes:
        yield f"  {note}"


def sections(r: Report) -> Iterable[tuple[str, str]]:
    for c in r.cascades:
        yield f"cascade {c.name}", "\n".join(_cascade_lines(c))
        if r.with_frontier:
            yield f"forms of {c.name}", str(c.frontier)
    for e in r.elementwise:
        yield f"elementwise {e.name}", "\n".join(_elementwise_lines(e))
    for k in r.kernels:
        yield f"kernel {k.name}", "\n".join(_kernel_lines(k))
    for gpu in r.cuda:
        yield f"CUDA kernel {gpu.name} for {gpu.arch}", str(gpu)


def report_lines(r: Report) -> Iterable[str]:
    if r.cascades:
        beside = f"instead of {r.passes_before}" if r.passes < r.passes_before else "as many as stage by stage"
        yield f"{r.name}: {r.verdict}, {r.passes} pass{'es' * (r.passes != 1)} {beside}"
    else:
        yield f"{r.name}: no reductions, nothing to fuse"
    if r.bytes:
        yield f"  array traffic {r.bytes['after']:,} bytes, stage by stage {r.bytes['before']:,}"
    for _, text in sections(r):
        yield ""
        yield text
    yield from r.notes
