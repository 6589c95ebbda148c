"""The findings of the laboratory as one page of HTML that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from redfuser.lab.run import Laboratory

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff; }
h1, h2 { font-weight: 600; line-height: 1.2; }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto; }
th, td { text-align: left; vertical-align: top; padding: .3rem .8rem .3rem 0; border-bottom: 1px solid #ddd; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
pre { white-space: pre-wrap; margin: 0; font: 13px/1.4 ui-monospace, monospace; }
.good { color: #116329; } .bad { color: #a40e26; font-weight: 600; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181818; } th, td { border-color: #444; }
  .good { color: #7ee787; } .bad { color: #ff7b72; }
}
"""


def lab_page(found: Laboratory) -> str:
    """A complete HTML document: the rules with their checks, what changed, the ablation, growth."""
    title = f"Rule laboratory: {found.file.path.name}"
    word = '<span class="good">no rule is wrong, nothing became worse</span>' if found.ok else (
        f'<span class="bad">{len(found.wrong)} wrong rules, {len(found.losses)} entries worse</span>')
    parts = [f"<h1>{escape(title)}</h1><p>{word}</p>", _rules(found)]
    if found.comparisons:
        parts += [_changes(found), _matrix(found), _growth(found)]
    return (f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
            f"<style>{_STYLE}</style></head>\n<body>{''.join(parts)}</body></html>\n")


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells are HTML already."""
    head = "".join(f"<th>{escape(c)}</th>" for c in columns)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>"


def _code(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def _mark(text: str, good: bool) -> str:
    return f'<span class="{"good" if good else "bad"}">{escape(text)}</span>'


def _rules(found: Laboratory) -> str:
    rows = [(escape(law.name), escape(law.law), _code(str(law)),
             _mark(f"ok, {c.samples} samples", True) if c.ok else _mark("wrong", False) + _code(str(c)),
             "<br>".join(escape(f"{n.condition} {n.word}") for n in found.needs.get(law.name, ())))
            for law, c in zip(found.file.rules, found.checks, strict=True)]
    return "<h2>Rules</h2>" + _table(("rule", "law", "rewrite", "check", "conditions"), rows)


def _changes(found: Laboratory) -> str:
    rows = [(escape(c.entry), escape(str(c.before)), escape(str(c.after)),
             _mark(c.worse, False) if c.worse else _mark(c.better, True),
             "not run" if c.kernel is None else _mark("right", True) if not c.kernel else _mark(c.kernel, False))
            for c in (*found.losses, *found.gains)]
    same = len(found.comparisons) - len(rows)
    return ("<h2>What changed</h2>" + (_table(("entry", "without", "with", "change", "kernel"), rows) if rows else "")
            + f"<p>{same} of {len(found.comparisons)} entries are the same.</p>")


def _matrix(found: Laboratory) -> str:
    if not found.matrix:
        return ""
    entries = list(dict.fromkeys(e for cells in found.matrix.values() for e in cells))
    rows = [(escape(rule), *(escape(cells[e] or "nothing") for e in entries)) for rule, cells in found.matrix.items()]
    return "<h2>What each gain loses without each rule</h2>" + _table(("without", *entries), rows)


def _growth(found: Laboratory) -> str:
    growth = found.growth()
    total = (f"<p>All derivations together: {growth['nodes']:.2f} times the nodes, {growth['rounds']:.2f} times the "
             f"rounds, {growth['seconds']:.2f} times the processor time.</p>")
    unused = f"<p>Rules that matched nothing: {escape(', '.join(found.unused))}.</p>" if found.unused else ""
    rows = [(escape(c.entry), str(c.before.nodes), str(c.after.nodes), str(c.before.rounds), str(c.after.rounds))
            for c in found.comparisons if c.after.nodes != c.before.nodes]
    shown = _table(("entry", "nodes without", "nodes with", "rounds without", "rounds with"), rows) if rows else ""
    return "<h2>Growth of the e-graphs</h2>" + total + unused + shown
