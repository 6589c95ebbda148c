"""The commands. Each parses its options and prints text or, with --json, one JSON document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from redfuser import __version__
from redfuser.cli.target import ARG_HELP, check_device, find_target
from redfuser.lab.files import CommandError

app = typer.Typer(
    name="redfuser",
    help="Fuse cascaded reductions of plain NumPy code into one incremental loop.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

FunctionArgument = Annotated[str, typer.Argument(metavar="FILE.py:FUNCTION", help="A plain NumPy function in a file.")]
ArgOption = Annotated[list[str] | None, typer.Option("--arg", "-a", metavar="NAME=SPEC", help=ARG_HELP)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]


LANGUAGES = ("c", "cuda")
"""Languages that kernels are printed in."""


def _language(name: str) -> str:
    if name not in LANGUAGES:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(map(repr, LANGUAGES))}")
    return name


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"redfuser {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Fuse cascaded reductions of plain NumPy code into one incremental loop."""


@app.command()
def demo(
    query: Annotated[str | None, typer.Argument(help="What to look for; a default is there.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many matches to show.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.0, help="Time to spend on timing each function.")] = 0.3,
    as_json: JsonOption = False,
) -> None:
    """Search the Python language reference with compiled NumPy functions, and compare each with NumPy."""
    from redfuser.cli.demo import run_demo

    run_demo(query, top=top, seconds=seconds, as_json=as_json)


@app.command()
def explain(
    function: FunctionArgument,
    arg: ArgOption = None,
    rules: Annotated[bool, typer.Option("--rules", help="Also find the smallest rule set that suffices.")] = False,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="Also derive other forms: their cost, error, state and passes.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="Predict times for this device (avx2, h100, ...) instead of this machine.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one self-contained page instead: graph, formulas, plots.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what redfuser derives from a function: verdict, accumulators, update, merge, passes, kernels."""
    if as_json and html is not None:
        raise typer.BadParameter("--json and --html exclude each other", param_hint="--json")
    from redfuser.api.page import page

    target = find_target(function, arg or [])
    check_device(device)
    with target.blame():
        report = target.explain(device, frontier)
    if html is not None:
        _written(html, "--html", page(report))
        typer.echo(f"{report.verdict}, {report.passes} pass{'es' * (report.passes != 1)}: see {html}")
        return
    if as_json:
        print_json(report.to_dict() | ({"rules": list(report.rules)} if rules else {}))
        return
    typer.echo(str(report))
    if rules:
        typer.echo("looking for the smallest rule set ...", err=True)
        typer.echo(f"rules that suffice: {', '.join(report.rules)}")


@app.command()
def source(
    function: FunctionArgument,
    arg: ArgOption = None,
    target: Annotated[
        str, typer.Option(callback=_language, help=f"The language of the kernel: {' or '.join(LANGUAGES)}.")
    ] = "c",
    arch: Annotated[str | None, typer.Option(help="With cuda: an architecture (sm_90a) or a device (h100).")] = None,
    report: Annotated[
        bool, typer.Option("--report", help="With cuda: print registers, occupancy, instructions and predicted times "
                                            "instead of the text, with --json beside it.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Print the kernels generated for a function."""
    found = find_target(function, arg or [])
    with found.blame():
        try:
            lowered = found.fused.lower(*found.args, **found.kwargs)
            text = lowered.source(target, arch=arch) if as_json or not report else ""
            details = lowered.report(target, arch=arch) if report else None
        except ValueError as error:
            raise CommandError(str(error)) from error
    if as_json:
        more = {} if details is None else {"report": details.to_dict()}
        text = json.dumps({"function": function, "target": target, "source": text} | more, indent=2)
    elif details is not None:
        text = str(details)
    if out is None:
        typer.echo(text)
        return
    _written(out, "--out", text if text.endswith("\n") else text + "\n")


def _written(file: Path, option: str, text: str) -> None:
    """Write a file that an option names."""
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{option} {str(file)!r} cannot be written: {error.strerror}") from error


@app.command()
def tune(
    function: FunctionArgument,
    arg: ArgOption = None,
    candidates: Annotated[int, typer.Option(min=1, help="Most schedules to time for each kernel.")] = 12,
    seconds: Annotated[float, typer.Option(min=0.001, help="Time to spend on each kernel.")] = 5.0,
    again: Annotated[bool, typer.Option("--again", help="Time anew what was tuned before.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Time other schedules of a function's kernels on random arrays; `rf.fuse(tune=True)` finds the fastest on disk."""
    from redfuser import Tuning
    from redfuser.cli.tune import run_tune

    run_tune(find_target(function, arg or []), Tuning(candidates, seconds, again), as_json=as_json)


@app.command()
def rules(
    check: Annotated[bool, typer.Option(help="Test every rule on random numbers, and whether it needs its conditions.")
                     ] = True,
    ablate: Annotated[bool, typer.Option("--ablate", help="What the catalogue loses without each group (minutes).")
                      ] = False,
    each: Annotated[bool, typer.Option("--each", help="The same without each single rule (an hour).")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes to use with --ablate and --each.")] = 1,
    markdown: Annotated[bool, typer.Option("--markdown", help="With --ablate: print a page of documentation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the rewrite rules with the law each states. Exit status 1 if one is wrong or (--ablate) never needed."""
    from redfuser.cli.rules import list_rules, show_ablation

    if as_json and markdown:
        raise typer.BadParameter("--json and --markdown exclude each other", param_hint="--json")
    form = "json" if as_json else "markdown" if markdown else "table"
    if not (show_ablation(each=each, jobs=jobs, form=form) if ablate or each else
            list_rules(check=check, as_json=as_json)):
        raise typer.Exit(1)


@app.command()
def zoo(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...", help="Entries; all without any.")] = None,
    family: Annotated[str | None, typer.Option(help="Only this family.")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Processes to use.")] = 1,
    prove: Annotated[bool, typer.Option(help="Prove every fused form symbolically too.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a page of documentation.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Derive a catalogue of known cascades and compare with the right answers. Exit status 1 if one is missed."""
    from redfuser.cli.zoo import run_zoo

    if as_json and markdown:
        raise typer.BadParameter("--json and --markdown exclude each other", param_hint="--json")
    form = "json" if as_json else "markdown" if markdown else "table"
    if not run_zoo(names or [], family=family, jobs=jobs, prove=prove, form=form):
        raise typer.Exit(1)


@app.command()
def lab(
    rules: Annotated[Path, typer.Argument(metavar="RULES.py", help="A file with rules made by rf.rule.")],
    entries: Annotated[list[str] | None, typer.Option("--entries", "-e", metavar="NAME", help="Only these entries "
                                                      "of the catalogue or of the file (repeat).")] = None,
    sample: Annotated[int | None, typer.Option(min=0, help="Only so many entries of the catalogue.")] = None,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 0,
    ablate: Annotated[bool, typer.Option("--ablate", help="Also what each gain loses without each rule.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Processes to use.")] = 1,
    state: Annotated[Path | None, typer.Option(help="Keep findings here; the same command goes on after Ctrl-C.")
                     ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget the findings of earlier runs.")] = False,
    html: Annotated[Path | None, typer.Option(help="Also write a page.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Try rewrite rules of your own on the catalogue. Exit status 1 if one is wrong or makes anything worse."""
    from redfuser.cli.lab import show_lab

    if entries and sample is not None:
        raise typer.BadParameter("--entries and --sample exclude each other", param_hint="--sample")
    status = show_lab(rules, names=entries or [], sample=sample, seed=seed, ablate=ablate, jobs=jobs, state=state,
                      fresh=fresh, html=html, as_json=as_json)
    if status:
        raise typer.Exit(status)


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Show what redfuser found on this machine. Exit status 1 if no kernel can be compiled here."""
    from redfuser.cli.doctor import examine

    if not examine(as_json=as_json):
        raise typer.Exit(1)
