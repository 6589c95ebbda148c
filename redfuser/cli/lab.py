"""`redfuser lab`: rules of the user, tested and tried on the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from redfuser.cli.app import print_json
from redfuser.cli.console import console, table
from redfuser.lab.compare import Comparison
from redfuser.lab.files import CommandError
from redfuser.lab.page import lab_page
from redfuser.lab.run import Laboratory, run_lab

STOPPED = 130
"""Exit status after Ctrl-C."""
GROWN = 5
"""Entries whose e-graph grew most that are printed."""


def show_lab(path: Path, *, html: Path | None, as_json: bool, **options: Any) -> int:
    """Run the laboratory and print what it found; see `run_lab` for the options. Returns the exit status."""
    terminal = Console(stderr=True)
    try:
        with Progress(console=terminal, disable=not terminal.is_terminal) as bar:
            tasks: dict[str, Any] = {}

            def progress(word: str, done: int, total: int) -> None:
                if word not in tasks:
                    tasks[word] = bar.add_task(word, total=total)
                bar.update(tasks[word], completed=done)

            found = run_lab(path, progress=progress, **options)
    except KeyboardInterrupt:
        typer.echo("stopped; what was found is kept, and the same command goes on from there", err=True)
        return STOPPED
    if html is not None:
        try:
            html.write_text(lab_page(found), encoding="utf-8")
        except OSError as error:
            raise CommandError(f"--html {str(html)!r} cannot be written: {error.strerror}") from error
    if as_json:
        print_json(found.to_dict())
    else:
        _print(found)
    return 0 if found.ok else 1


def _print(found: Laboratory) -> None:
    output = console()
    rules = table("rule", "law", "check", "conditions", whole=("rule",))
    for law, check in zip(found.file.rules, found.checks, strict=True):
        needs = ", ".join(f"{n.condition} {n.word}" for n in found.needs.get(law.name, ()))
        rules.add_row(law.name, Text(law.law), f"ok, {check.samples} samples" if check.ok else "WRONG", Text(needs))
    output.print(rules)
    if found.wrong:
        for check in found.wrong:
            output.print(Text(str(check)))
        output.print("the catalogue was not derived: a wrong rule proves anything")
        return
    _print_changes(found, output)
    if found.matrix:
        _print_matrix(found, output)
    for line in summary(found):
        output.print(Text(line))


def _print_changes(found: Laboratory, output: Console) -> None:
    changed = [*found.losses, *found.gains]
    if not changed:
        return
    rows = table("entry", "without", "with", "what changed", whole=("entry",))
    for c in changed:
        change = f"WORSE: {c.worse}" if c.worse else c.better
        rows.add_row(c.entry, Text(str(c.before)), Text(str(c.after)), Text(change))
    output.print(rows)


def _print_matrix(found: Laboratory, output: Console) -> None:
    assert found.matrix is not None
    rows = table("without", "entry", "loses", whole=("without", "entry"))
    for rule, cells in found.matrix.items():
        for entry, lost in cells.items():
            rows.add_row(rule, entry, Text(lost or "nothing"))
    output.print(rows)


def summary(found: Laboratory) -> list[str]:
    """The findings in a few lines."""
    fused = [c.entry for c in found.gains if c.fused]
    kernels = [c for c in found.comparisons if c.kernel is not None]
    right = sum(c.kernel == "" for c in kernels)
    growth = found.growth()
    changes = f"{len(found.gains)} better, {len(found.losses)} worse; newly fusible: {', '.join(fused) or 'none'}"
    lines = [f"{len(found.comparisons)} entries: {changes}"]
    if kernels:
        lines.append(f"kernels of changed forms: {right} of {len(kernels)} agree with their definition")
    lines.append(f"e-graphs: {growth['nodes']:.2f} times the nodes, {growth['rounds']:.2f} times the rounds, "
                 f"{growth['seconds']:.2f} times the processor time")
    grown = [f"{c.entry} {c.before.nodes} to {c.after.nodes} nodes" for c in most_grown(found.comparisons)]
    if grown:
        lines.append(f"most growth: {', '.join(grown)}")
    if found.unused:
        lines.append(f"matched nothing: {', '.join(found.unused)}")
    return lines


def most_grown(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Entries whose e-graph grew, those that grew most first."""
    grown = [c for c in comparisons if c.after.nodes > c.before.nodes]
    return sorted(grown, key=lambda c: c.after.nodes - c.before.nodes, reverse=True)[:GROWN]
