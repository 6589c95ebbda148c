"""`redfuser rules`: every law, tested by random numbers; with --ablate, what the catalogue loses without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.text import Text

from redfuser.cli.app import print_json
from redfuser.cli.console import console, table
from redfuser.rules import APPROXIMATE, GROUPS, check_rule, default
from redfuser.rules.conditions import needed_conditions
from redfuser.rules.language import Law, Rule, RuleSet
from redfuser.zoo.ablation import KINDS, Loss, ablate

SHOWN = 6
"""Entries named in a line of a table."""

ENOUGH = 3
"""Losses that prove a single rule is needed."""

_PAGE = """\
# Which rules are needed for what

Made by `redfuser rules --ablate --markdown` (groups) and `redfuser rules --each --markdown` (single rules). Every entry
of [the catalogue](zoo.md) is derived without the group or rule. *lost*: the verdict is weaker or there are more passes;
*accumulators*: more of them; *operations*: the same but for a dearer form. A rule that no entry needs is a dead rule,
and `redfuser rules --ablate` exits with status 1.
"""


def list_rules(*, check: bool, as_json: bool) -> bool:
    """Print all laws; False if a check found a counterexample."""
    laws = [*default, *(law for group in APPROXIMATE.values() for law in group)]
    rows = [describe(law, check) for law in laws]
    if as_json:
        print_json(rows)
    else:
        show(rows)
    return all(row["ok"] is not False for row in rows)


def describe(law: Law, check: bool) -> dict[str, Any]:
    """One law as JSON values. `ok` and `conditions` are None when it was not checked."""
    outcome = check_rule(law) if check else None
    needs = needed_conditions(law) if check else ()
    return {
        "name": law.name,
        "group": law.group,
        "truth": law.truth if isinstance(law, Rule) else "exact",
        "law": law.law,
        "text": str(law),
        "samples": None if outcome is None else outcome.samples,
        "ok": None if outcome is None else outcome.ok,
        "counterexample": None if outcome is None or outcome.ok else str(outcome.counterexample),
        "conditions": [{"condition": str(n.condition), "role": n.word,
                        "fails_without": None if n.breaks is None else {k: str(v) for k, v in n.breaks.items()}}
                       for n in needs] if check else None,
    }


def show(rows: list[dict[str, Any]]) -> None:
    """The laws as a table, groups in the order of the rule set."""
    laws = table("group", "name", "truth", "law", "check", "conditions", whole=("group", "name", "truth"))
    for row in rows:
        checked = {None: "", True: "ok", False: "WRONG"}[row["ok"]]
        conditions = ", ".join(f"{c['condition']} {c['role']}" for c in row["conditions"] or ())
        laws.add_row(row["group"], row["name"], row["truth"], Text(row["law"]), Text(checked), Text(conditions))
    output = console()
    output.print(laws)
    wrong = [row for row in rows if row["ok"] is False]
    output.print(f"{len(rows)} laws" + ("" if not rows or rows[0]["ok"] is None else f", {len(wrong)} wrong"))
    for row in wrong:
        output.print(Text(f"WRONG: {row['name']}, at {row['counterexample']}"))


# ---- ablation

def show_ablation(*, each: bool, jobs: int, form: str, entries: Sequence[str] = ()) -> bool:
    """Print what is lost without each group (`each`: each rule). False if nothing is for one of them: a dead rule."""
    parts = {law.name: RuleSet(law.name, (law,)) for law in default} if each else dict(GROUPS)
    chosen = {"entries": tuple(entries)} if entries else {}
    terminal = Console(stderr=True)
    with Progress(console=terminal, disable=not terminal.is_terminal) as progress:
        task = progress.add_task("without each rule" if each else "without each group", total=len(parts) * jobs)
        found = ablate(parts, enough=ENOUGH if each else None, jobs=jobs,
                       progress=lambda _: progress.advance(task), **chosen)
    dead = [part for part, losses in found.items() if not losses]
    if form == "json":
        print_json({"parts": {p: [x.to_dict() for x in losses] for p, losses in found.items()}, "dead": dead})
    elif form == "markdown":
        print(ablation_page(found, "rule" if each else "group"))
    else:
        _print_ablation(found, "rule" if each else "group", dead)
    return not dead


def _print_ablation(found: Mapping[str, Sequence[Loss]], word: str, dead: Sequence[str]) -> None:
    rows = table(word, *_COLUMNS, whole=(word,))
    for part, losses in found.items():
        rows.add_row(part, *(Text(x) for x in _cells(losses)))
    output = console()
    output.print(rows)
    output.print(f"dead: {', '.join(dead)}" if dead else f"no {word} is dead")


_COLUMNS = ("lost", "certificate", "accumulators", "operations", "entries")


def _cells(losses: Sequence[Loss]) -> list[str]:
    """Counts by kind, and the entries that lose most."""
    counts = [sum(x.kind in ("crash", "verdict") for x in losses),
              *(sum(x.kind == k for x in losses) for k in KINDS[2:])]
    names = [f"{x.entry} ({x.kind})" if x.kind == "crash" else x.entry for x in losses]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return [*(str(c) if c else "" for c in counts), ", ".join(names[:SHOWN]) + more]


def ablation_page(found: Mapping[str, Sequence[Loss]], word: str) -> str:
    """The result as a page of documentation."""
    lines = [_PAGE, f"| {word} | {' | '.join(_COLUMNS)} |", "|---" * (len(_COLUMNS) + 1) + "|"]
    lines += [f"| {part} | {' | '.join(_cells(losses))} |" for part, losses in found.items()]
    return "\n".join(lines)
