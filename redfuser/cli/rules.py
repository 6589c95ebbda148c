"""`redfuser rules`: every law of the default rule set, tested by random numbers when asked."""

from __future__ import annotations

from typing import Any

from rich.text import Text

from redfuser.cli.app import print_json
from redfuser.cli.console import console, table
from redfuser.rules import check_rule, default
from redfuser.rules.language import Law, Rule


def list_rules(*, check: bool, as_json: bool) -> bool:
    """Print all laws; False if a check found a counterexample."""
    rows = [describe(law, check) for law in default]
    if as_json:
        print_json(rows)
    else:
        show(rows)
    return all(row["ok"] is not False for row in rows)


def describe(law: Law, check: bool) -> dict[str, Any]:
    """One law as JSON values. `ok` is None when it was not checked."""
    outcome = check_rule(law) if check else None
    return {
        "name": law.name,
        "group": law.group,
        "truth": law.truth if isinstance(law, Rule) else "exact",
        "law": law.law,
        "text": str(law),
        "ok": None if outcome is None else outcome.ok,
        "counterexample": None if outcome is None or outcome.ok else str(outcome.counterexample),
    }


def show(rows: list[dict[str, Any]]) -> None:
    """The laws as a table, groups in the order of the rule set."""
    laws = table("group", "name", "truth", "law", "check", whole=("group", "name", "truth"))
    for row in rows:
        checked = {None: "", True: "ok", False: f"WRONG: {row['counterexample']}"}[row["ok"]]
        laws.add_row(row["group"], row["name"], row["truth"], Text(row["law"]), Text(checked))
    output = console()
    output.print(laws)
    output.print(f"{len(rows)} laws")
