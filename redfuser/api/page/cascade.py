"""The part of a report that speaks of one cascade: graph, refusals, derivation, checks, cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from redfuser import pipeline
from redfuser.api.page import formulas
from redfuser.api.page.graph import MOST, Vertex, drawing
from redfuser.api.page.markup import Child, Markup, details, element, facts, join, scrolled, table
from redfuser.api.page.plots import frontier_plot, growth_plot, roofline_plot
from redfuser.api.report_text import passes_text
from redfuser.derivation import Verdict
from redfuser.derivation.fusion import Accumulator
from redfuser.derivation.witness import Witness
from redfuser.extract.roofline import duration, work_on
from redfuser.ir import Expr, Load, refs, walk
from redfuser.ir.ops import label
from redfuser.rules import APPROXIMATE, default
from redfuser.rules.language import Law

if TYPE_CHECKING:
    from redfuser.api.report import CascadeReport, Refusal

MOODS = {Verdict.FUSIBLE: "good", Verdict.PARTLY: "warn", Verdict.NOT_FUSIBLE: "bad", Verdict.NOT_FOUND: "bad"}


def badge(verdict: Verdict) -> Markup:
    """A verdict with its colour."""
    return element("span", str(verdict), class_=f"badge {MOODS[verdict]}")


def cascade_section(c: CascadeReport, *, rules: bool, frontier: bool) -> Markup:
    """All of a cascade, below its heading. `rules`: look for the smallest rule set; `frontier`: show all forms."""
    return join(
        element("p", badge(c.verdict), " ", passes_text(c), ".", class_="lead"),
        element("p", "It waits for results of an earlier cascade: fusing across stream axes is not searched.")
        if c.waits else None,
        _titled("Chain of reductions", _chain(c)),
        _titled("Refused", [_refusal(r) for r in c.refusals], _passes(c)) if c.refusals else None,
        _titled("Derivation", _derivation(c), _rules(c, wanted=rules), _search(c)),
        _titled("What the loop does", _loop(c)),
        _titled("Conditions and checks", _checks(c)),
        _titled("Cost", _cost(c), _forms(c) if frontier else None),
    )


def _titled(title: str, *children: Child) -> Markup:
    return join(element("h3", title), *children)


# ---- the graph

def _chain(c: CascadeReport) -> Markup:
    vertices, reads = graph_of(c)
    lines = [element("li", element("code", v.name), f" ({v.kind}, {v.caption}) {v.formula}".rstrip(),
                     f", reads {', '.join(reads[v.name])}" if reads.get(v.name) else "") for v in vertices]
    listed = element("ul", lines)
    title = f"Chain of reductions of {c.name}: " + ", ".join(v.name for v in vertices if v.kind == "reduction")
    if len(vertices) > MOST:
        return listed
    return join(scrolled(title, drawing(title, vertices, reads)), details("The same in words", listed))


def graph_of(c: CascadeReport) -> tuple[list[Vertex], dict[str, list[str]]]:
    """The boxes of a cascade, and which of them each one reads."""
    cascade = c.derivation.cascade
    refused = {r.stage for r in c.refusals}
    passes = {name: i for i, names in enumerate(c.groups, 1) for name in names}
    vertices = [Vertex(t.name, "input", t.dtype, f"[{', '.join(t.axes)}]") for t in cascade.tensors]
    bodies: dict[str, Expr] = {}
    for p in cascade.producers:
        vertices.append(Vertex(p.name, "producer", "computed in the loop", str(p.expr)))
        bodies[p.name] = p.expr
    for r in cascade.reductions:
        caption = f"{label(r.monoid)} over {c.axis}"
        caption += f", pass {passes[r.name]}" if c.passes > 1 and r.name in passes else ""
        vertices.append(Vertex(r.name, "reduction", caption, str(r.body), refused=r.name in refused))
        bodies[r.name] = r.body
    for o in cascade.outs:
        name = o.name if o.name not in bodies else f"{o.name} (result)"
        vertices.append(Vertex(name, "output", o.dtype, str(o.expr)))
        bodies[name] = o.expr
    known = {v.name for v in vertices}
    return vertices, {name: sorted(_names(e) & known - {name}) for name, e in bodies.items()}


def _names(e: Expr) -> set[str]:
    return set(refs(e)) | {x.tensor for x in walk(e) if isinstance(x, Load)}


# ---- refusals

def _refusal(r: Refusal) -> Markup:
    rows: list[tuple[Child, Child]] = [("stage", element("code", r.stage)), ("condition", r.reason)]
    rows += [("hint", r.hint)] if r.hint else []
    rows += [("would unlock it", fact) for fact in r.unlocks]
    rows += [("evidence", r.evidence)] if r.evidence else []
    rows += [("witness", _witness(r.witness))] if r.witness else []
    return element("div", facts(rows), class_="refusal")


def _witness(w: Witness) -> Markup:
    about = "about " if w.rounded else ""
    rows: list[Iterable[Child]] = []
    for which, prefix, value in (("first", w.first, w.values[0]), ("second", w.second, w.values[1])):
        rows.append((which, _elements(prefix, about if which == "second" else ""), _elements(w.state),
                     _elements(w.continuation), f"{value:.7g}"))
    where = f" Where {_elements(w.given)}." if w.given else ""
    words = (f"Two prefixes with the same state, after which the same elements give two values of {w.result}: "
             f"no loop that keeps this state alone can tell them apart.{where}")
    return join(words, table("Witness", ("prefix", "elements", "state after it", "followed by", w.result), rows,
                             (w.result,)))


def _elements(found: Mapping[str, float] | Mapping[str, tuple[float, ...]], about: str = "") -> str:
    return "; ".join(f"{name} = {about}{_values(v)}" for name, v in found.items())


def _values(v: float | tuple[float, ...]) -> str:
    return f"({', '.join(f'{x:.7g}' for x in v)})" if isinstance(v, tuple) else f"{v:.7g}"


def _passes(c: CascadeReport) -> Markup:
    listed = [element("li", f"pass {i}: ", element("code", ", ".join(names))) for i, names in enumerate(c.groups, 1)]
    return join(element("p", f"By the evidence at least {c.lower_bound} passes are needed; these are made:"),
                element("ul", listed))


# ---- the derivation

def _derivation(c: CascadeReport) -> Markup:
    cascade, fused = c.derivation.cascade, c.derivation.fused
    axis = c.axis
    asked = [(p.name, formulas.equation(p.name, p.axes, p.expr)) for p in cascade.producers]
    asked += [(r.name, formulas.accumulator_of(Accumulator(r.name, r.monoid, r.body, r.axes), axis))
              for r in cascade.reductions]
    moved = [(name, formulas.expression(e)) for name, e in fused.corrections]
    return join(
        element("p", "The definition, stage by stage:"), formulas.equations("Definition", asked),
        element("p", "Chosen to be accumulated while the stream is read:"),
        formulas.equations("Accumulators", [(a.name, formulas.accumulator_of(a, axis)) for a in fused.accumulators]),
        (element("p", "Values computed from these, which change while the stream is read:"),
         formulas.equations("Dependencies", [(d.name, formulas.equation(d.name, d.axes, d.expr))
                                             for d in fused.dependencies])) if fused.dependencies else None,
        (element("p", "Corrections: an accumulator of the old values, expressed for the new ones:"),
         formulas.equations("Corrections", moved)) if moved
        else element("p", "Nothing has to be corrected: no accumulator reads a value that changes."),
    )


def _rules(c: CascadeReport, *, wanted: bool) -> Markup:
    laws = {law.name: law for law in _laws(c)}
    found = join(element("p", f"{len(c.matched)} rules matched anything in the search."))
    if wanted or "rules" in vars(c.derivation):
        needed = [laws[n] for n in c.rules if n in laws]
        rows = [(element("code", law.name), law.group, formulas.law_of(law), formulas.conditions_of(law))
                for law in needed]
        words = f"The derivation rests on {len(needed)} of them: without any one of these it is not found."
        found = join(found, element("p", words) if needed else None,
                     table("Rules that suffice", ("rule", "group", "law", "where"), rows) if rows else None)
    if c.approximate:
        found = join(found, element("p", f"Approximate rules, used by leave: {', '.join(c.approximate)}.",
                                    class_="warn"))
    named = [element("li", element("code", n), f": {laws[n].law}") for n in c.matched if n in laws]
    helpers = [n for n in c.matched if n not in laws]
    named += [element("li", "bookkeeping of the engine: ", element("code", ", ".join(helpers)))] if helpers else []
    return join(found, details("All rules that matched", element("ul", named)) if named else None)


def _laws(c: CascadeReport) -> Iterable[Law]:
    yield from default
    for group in APPROXIMATE.values():
        yield from group
    yield from c.derivation.settings.rules


def _search(c: CascadeReport) -> Markup | None:
    steps = c.derivation.timeline
    if not steps:
        return None
    rows = [(str(i), s.name, s.outcome, str(s.iterations), str(s.nodes), f"{s.milliseconds:.1f}")
            for i, s in enumerate(steps, 1)]
    columns = ("", "saturation", "ended", "rounds", "nodes", "ms")
    plot = growth_plot(steps)
    return details(f"The search: {len(steps)} saturations, {c.derivation.milliseconds:.0f} ms",
                   table("Saturations", columns, rows, ("rounds", "nodes", "ms")),
                   scrolled("Size of the e-graph", plot) if plot else None)


# ---- the loop, the checks, the cost

def _loop(c: CascadeReport) -> Markup:
    fused = c.derivation.fused
    axes = {r.name: r.axes for r in c.derivation.cascade.reductions}
    parts = [
        ("Update, with every chunk of the stream:",
         [(a.name, formulas.update_of(fused, a, c.update[a.name])) for a in fused.accumulators]),
        ("Merge of the states a and b of two parts of the stream:",
         [(a.name, formulas.merge_of(fused, a, c.merge[a.name])) for a in fused.accumulators]),
        ("Epilogue, once the stream has been read:",
         [(name, formulas.equation(name, axes.get(name, ()), e)) for name, e in fused.epilogue]),
        ("Outputs:", [(o.name, formulas.equation(o.name, o.axes, o.expr)) for o in fused.cascade.outs]),
    ]
    return join(*((element("p", title), formulas.equations(title.rstrip(":"), rows)) for title, rows in parts if rows))


def _checks(c: CascadeReport) -> Markup:
    found = c.derivation.certificate
    rows: list[tuple[Child, Child]] = [("conditions", element("ul", [element("li", x) for x in c.conditions])
                                        if c.conditions else "none: it holds for all numbers")]
    mood = "good" if found.valid else "bad"
    word = "valid" if found.valid else "refuted" if found.refuted else "undecided"
    rows += [("certificate", join(element("span", word, class_=f"badge {mood}"), f" {found.method}")),
             ("seed", str(c.seed)),
             ("checked", element("ul", [element("li", s) for s in found.steps]))]
    return facts(rows)


def _cost(c: CascadeReport) -> Markup:
    times = sorted(c.prediction.times.items(), key=lambda x: -x[1])
    device, dtype = c.asked.device, pipeline.compute_dtype(c.derivation.cascade, c.asked.options)
    own = work_on(device, c.derivation.fused, c.asked.sizes, dtype)
    lengths = ", ".join(f"{a} = {n}" for a, n in c.asked.sizes.items())
    plot = roofline_plot(own, c.prediction, device.rate(dtype), device.matrix.get(dtype),
                         {"memory": device.dram, "last cache": device.cache})
    words = (f"Predicted on {c.prediction.device} for {lengths}: {duration(c.prediction.seconds)}, bounded by "
             f"{c.prediction.bound}. The state is {own.state:,} bytes for each row.")
    return join(element("p", words), scrolled("Roofline", plot),
                details("Time by resource", table("Time by resource", ("resource", "time"),
                                                  [(n, duration(t)) for n, t in times if t], ("time",))))


def _forms(c: CascadeReport) -> Markup:
    f = c.frontier
    rows = [(element("code", p.name), duration(p.prediction.seconds), p.prediction.bound, f"{p.error:.3g}",
             f"{p.work.state:,}", str(p.passes), "dominated" if p.dominated else "")
            for p in sorted(f.points, key=lambda p: p.measures)]
    columns = ("form", "time", "bound by", "error", "state [bytes]", "passes", "")
    chosen = [element("li", f"{n}: ", element("code", p.name), f", {why}") for n in ("stable", "fast")
              for p, why in [f.choice(n)]]
    words = "Other forms of the same cascade (an error beyond 10⁶ is drawn at the upper edge):"
    return join(element("p", words), scrolled("Forms", frontier_plot(f)),
                table("Forms", columns, rows, columns[1:2] + columns[3:6]), element("ul", chosen))
