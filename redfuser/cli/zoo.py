"""`redfuser zoo`: derive the catalogue and compare with its labels."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer
from rich.console import Console
from rich.progress import track

from redfuser.cli.app import print_json
from redfuser.cli.console import console, heading, table
from redfuser.zoo import KNOWN_WRONG, Entry, Outcome, examine_all, select

DATA = ("location", "scores", "mixed")
_HEADING = ("entry", "verdict", "accumulators", "passes", "source", "why")
_INTRODUCTION = """\
Made by `redfuser zoo --markdown`. Every entry is a plain NumPy function in `redfuser/zoo` with the verdict, the number
of passes, and the least number of accumulators per row (the count and pivots aside) that mathematics gives. The labels
are worked out by hand, and a test measures the numbers of accumulators without the engine. `a / b`: the label is a, the
derivation finds b. More accumulators than the least are no failure. A missed verdict is one: the label stands, and
`KNOWN_WRONG` says why.

`redfuser zoo` derives all of them, checks every certificate, and runs the fused forms on data that are hard for
float32; its exit status is 1 when a verdict is missed, a certificate or a proof that was asked for is not valid, or an
error exceeds the contract. `redfuser zoo NAME...`, `--family`, `--prove`, `--jobs` and `--json` choose entries, proofs,
processes and output."""


def run_zoo(names: Sequence[str], *, family: str | None, jobs: int, prove: bool, form: str,
            known: Mapping[str, str] = KNOWN_WRONG) -> bool:
    """Derive the chosen entries and print them (`form`: table, json or markdown). False if a label is missed, known or
    not, a certificate or a proof that was asked for is not valid, or an error exceeds the contract."""
    outcomes = list(_watched(select(names, family), jobs, prove))
    if form == "json":
        print_json([{**o.to_dict(), "known": known.get(o.entry.name)} for o in outcomes])
    elif form == "markdown":
        typer.echo(markdown(outcomes, known))
    else:
        show(outcomes, known)
    return not any(failed(o, {}) for o in outcomes)


def failed(o: Outcome, known: Mapping[str, str]) -> bool:
    """Whether an outcome is a defect that is not among the known ones. A proof that was asked for and stays undecided
    is one, and an error beyond the contract."""
    if o.entry.name in known:
        return o.unsound
    return o.unsound or not o.right or not o.certificate or o.proved is False or not o.accurate


def _watched(entries: Sequence[Entry], jobs: int, prove: bool) -> Iterator[Outcome]:
    """The outcomes, with a progress bar on standard error while they are made."""
    outcomes = examine_all(entries, jobs=jobs, prove=prove)
    yield from track(outcomes, "deriving", total=len(entries), console=Console(stderr=True), transient=True)


def state(o: Outcome, known: Mapping[str, str]) -> str:
    """One word on an outcome."""
    if o.unsound:
        return "UNSOUND"
    if failed(o, known):
        return "WRONG" if not (o.right and o.certificate) else "unproved" if o.proved is False else "INACCURATE"
    if o.entry.name in known:
        return "now right" if o.right else "known"
    return "ok" if o.minimal else "more"


_IN_WORDS = {"more": "right with more accumulators than the least"}
"""State -> what a summary says of it, where the word alone does not tell."""


def _entries(number: int) -> str:
    return f"{number} {'entry' if number == 1 else 'entries'}"


def _pair(expected: object, found: object) -> str:
    """`a / b` where the two differ; nothing found is a dash."""
    return str(expected) if expected == found else f"{expected} / {found or '-'}"


def _verdicts(o: Outcome) -> str:
    return _pair(o.entry.verdict.value, "error" if o.found is None else o.found.value)


def show(outcomes: Sequence[Outcome], known: Mapping[str, str]) -> None:
    """A table, the disagreements in words, and a summary. `a / b`: expected a, found b."""
    columns = ("", "name", "verdict", "acc", "pass", "ms", "cert", *DATA)
    rows = table(*columns, numbers=("ms", *DATA), whole=columns)
    family = ""
    for o in outcomes:
        if o.entry.family != family:
            family = o.entry.family
            rows.add_row("", heading(family))
        certificate = "yes" if o.certificate else "" if o.found is None else "NO"
        if o.proved:
            certificate = f"proved {o.proof_milliseconds:.0f} ms"
        rows.add_row(state(o, known), o.entry.name, _verdicts(o), _pair(o.entry.accumulators, o.accumulators),
                     _pair(o.entry.passes, o.passes), f"{o.milliseconds:.0f}", certificate,
                     *(_error(o.errors.get(d)) for d in DATA))
    output = console()
    output.print(rows)
    for o in outcomes:
        for line in _remarks(o, known):
            output.print(line, soft_wrap=True, markup=False)
    output.print(summary(outcomes, known), markup=False)
    missed = [o.entry.name for o in outcomes if failed(o, {})]
    if missed:
        output.print(f"WRONG: {len(missed)} of {_entries(len(outcomes))} missed the label or the contract, known ones "
                     f"included: {', '.join(missed)}", markup=False)


def _error(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _remarks(o: Outcome, known: Mapping[str, str]) -> list[str]:
    """What is to be said of an entry that does not agree."""
    name = o.entry.name
    if state(o, known) == "INACCURATE":
        return [f"{name}: an error exceeds what the contract allows"]
    if state(o, known) == "unproved":
        return [f"{name}: the symbolic proof is undecided; the check at random points holds"]
    if failed(o, known):
        found = o.problem or "; ".join(o.refusals)
        why = o.entry.reason or f"one pass with {o.entry.accumulators} accumulators is enough"
        return [f"{name}: expected {o.entry.verdict.value} ({why}); found: {found or _verdicts(o)}"]
    if name in known:
        return [f"{name}: {'agrees now, the known disagreement was: ' if o.right else 'known: '}{known[name]}"]
    return []


def summary(outcomes: Sequence[Outcome], known: Mapping[str, str]) -> str:
    """Counts and derivation times in one line."""
    states = [state(o, known) for o in outcomes]
    counts = ", ".join(f"{states.count(s)} {_IN_WORDS.get(s, s)}" for s in dict.fromkeys(states))
    times = sorted(o.milliseconds for o in outcomes if o.found is not None)
    if not times:
        return f"{_entries(len(outcomes))}: {counts}"
    late = times[min(len(times) - 1, int(0.95 * len(times)))]
    return (f"{_entries(len(outcomes))}: {counts}. Derivation: median {statistics.median(times):.0f} ms, 95 % under "
            f"{late:.0f} ms, longest {times[-1]:.0f} ms. Errors are in units of what the numerical contract allows.")


def markdown(outcomes: Sequence[Outcome], known: Mapping[str, str]) -> str:
    """The catalogue as a page: labels, sources, and where the derivation is known to disagree. No timings."""
    lines = ["# The catalogue", "", _INTRODUCTION, ""]
    for family in dict.fromkeys(o.entry.family for o in outcomes):
        lines += [f"## {family}", "", f"| {' | '.join(_HEADING)} |", "|---" * len(_HEADING) + "|"]
        lines += [_line(o, known) for o in outcomes if o.entry.family == family]
        lines.append("")
    return "\n".join(lines)


def _line(o: Outcome, known: Mapping[str, str]) -> str:
    e = o.entry
    remark = known.get(e.name, "") if not o.right else ""
    why = "; ".join(x for x in (e.reason, f"known disagreement: {remark}" if remark else "") if x)
    cells: list[Any] = [f"`{e.name}`", _verdicts(o), _pair(e.accumulators, o.accumulators), _pair(e.passes, o.passes),
                        e.source, why]
    return "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"
