"""A report as one page of HTML: nothing is loaded from anywhere, nothing needs a script."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from redfuser.api.page.cascade import badge, cascade_section
from redfuser.api.page.colour import coloured
from redfuser.api.page.markup import Child, Markup, details, element, facts, join, table
from redfuser.api.page.style import STYLE
from redfuser.extract.roofline import duration

if TYPE_CHECKING:
    from redfuser.api.report import ElementwiseReport, KernelInfo, Report

ROOM = 600_000
"""Characters of levels and sources in a page; markup makes about twice of it. Longer texts are cut, and say so."""
ROOM_IN_NOTEBOOK = 60_000
TITLES = {
    "trace": "Trace: the NumPy calls that were recorded", "term": "Term: index notation",
    "partition": "Partition: one cascade for each stream axis", "fusion": "Fusion: accumulators and corrections",
    "plan": "Plan: the schedule, and why", "tiles": "Tile program",
}


def page(r: Report, *, rules: bool = True) -> str:
    """The whole page. `rules`: look for the smallest rule sets, which takes seconds where a derivation did."""
    title = f"redfuser: {r.name}"
    head = element("head", element("meta", charset="utf-8"),
                   element("meta", name="viewport", content="width=device-width, initial-scale=1"),
                   element("title", title), element("style", Markup(STYLE)))
    body = element("body", element("main", _contents(r, title, rules=rules, room=ROOM)), class_="redfuser")
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def fragment(r: Report) -> str:
    """The report for a notebook: the same, shorter, with its style in it."""
    return element("div", element("style", Markup(STYLE)),
                   _contents(r, f"redfuser: {r.name}", rules=False, room=ROOM_IN_NOTEBOOK), class_="redfuser")


def _contents(r: Report, title: str, *, rules: bool, room: int) -> Markup:
    parts = list(_sections(r, rules=rules, room=room))
    links = [element("li", element("a", name, href=f"#{_anchor(name)}")) for name, _ in parts]
    return join(element("header", element("h1", title), _lead(r)),
                element("nav", element("ul", links), aria_label="Contents"),
                *(element("section", element("h2", name, id=_anchor(name)), text) for name, text in parts))


def _anchor(name: str) -> str:
    return "redfuser-" + "".join(x if x.isascii() and x.isalnum() else "-" for x in name).lower()


def _lead(r: Report) -> Markup:
    if not r.cascades:
        return element("p", "No reductions: nothing to fuse.")
    beside = f"instead of {r.passes_before}" if r.passes < r.passes_before else "as many as stage by stage"
    traffic = (f" Array traffic {r.bytes['after']:,} bytes, stage by stage {r.bytes['before']:,}."
               if r.bytes else "")
    return element("p", badge(r.verdict), f" {r.passes} pass{'es' * (r.passes != 1)} {beside}.{traffic}")


def _sections(r: Report, *, rules: bool, room: int) -> Iterable[tuple[str, Markup]]:
    for c in r.cascades:
        yield f"Cascade {c.name}", cascade_section(c, rules=rules, frontier=r.with_frontier)
    for e in r.elementwise:
        yield f"Elementwise {e.name}", _elementwise(e)
    texts = [(name, str(x)) for name, found in r.levels.items() for x in found]
    share = room // max(1, len(texts) + len(r.kernels))
    for k in r.kernels:
        yield f"Kernel {k.name}", _kernel(k, share)
    if texts:
        yield "Levels of the compilation", join(
            details(TITLES.get(name, name), element("pre", _cut(text, share), tabindex="0")) for name, text in texts)
    if r.notes:
        yield "Notes", element("ul", [element("li", n) for n in r.notes])


def _elementwise(e: ElementwiseReport) -> Markup:
    after = f", after the kernels that compute {', '.join(e.reads)}" if e.reads else ""
    rows = [(element("code", n), element("code", t)) for n, t in e.outputs.items()]
    return join(element("p", f"No reduction: computed element by element in one sweep{after}."),
                table("Outputs", ("output", "value"), rows))


def _kernel(k: KernelInfo, room: int) -> Markup:
    rows: list[tuple[Child, Child]] = [
        ("language", k.language), ("state", "compiled" if k.compiled else "interpreted"), ("runs", str(k.runs)),
        ("predicted", f"{duration(k.predicted)} on this machine"), ("workspace", f"{k.workspace:,} bytes"),
        *([("file", element("code", k.path))] if k.path else []), *(("decision", n) for n in k.notes),
    ]
    text = k.source
    code: Any = coloured(_cut(text, room)) if text else None
    return join(facts(rows), details(f"Source, {text.count(chr(10))} lines",
                                     element("pre", element("code", code), tabindex="0")) if code else None)


def _cut(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    return f"{text[:room]}\n... {len(text) - room:,} more characters: see f.lower(...)"
