"""`redfuser demo`: print the search result and the comparison of every compiled function with NumPy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.text import Text

import redfuser as rf
from redfuser.api import KernelInfo
from redfuser.cli.app import print_json
from redfuser.cli.console import console, fact_table, heading, table
from redfuser.demo.measure import Comparison, compare
from redfuser.demo.search import DEFAULT_QUERY, Answer, Index


def run_demo(query: str | None, *, top: int, seconds: float, as_json: bool) -> None:
    """Search, compare, print. A missing or empty query is replaced by a default one."""
    output = console()
    index = Index(rf.fuse)
    asked = (query or "").strip() or DEFAULT_QUERY
    answer = index.search(asked, top)
    if not as_json:
        show_answer(output, answer)
    comparisons = []
    for fn, args in index.workloads(asked):
        comparisons.append(compare(fn, *args, seconds=seconds))
        if not as_json:
            show_derivation(output, comparisons[-1])
    if as_json:
        print_json({"search": answer.to_dict(), "functions": [c.to_dict() for c in comparisons]})
    else:
        show_times(output, comparisons)


def show_answer(output: Console, answer: Answer) -> None:
    """The matches, best first."""
    output.print(heading(f"{answer.query}  ({answer.total} paragraphs of the Python reference searched)"))
    matches = table("weight", "topic", "paragraph", numbers=("weight",), whole=("topic",))
    for match in answer.matches:
        text = Text(shorten(match.paragraph.text, 160))
        matches.add_row(f"{match.weight:.3f}", match.paragraph.topic, text)
    output.print(matches)
    alike = math.exp(answer.entropy)
    output.print(f"entropy of the weights {answer.entropy:.2f} nats: as spread out as {alike:.0f} equal matches")
    output.print(Text(f"nearest to the weighted average (attention): {shorten(answer.blend.text, 100)}"))


def show_derivation(output: Console, done: Comparison) -> None:
    """What was derived for one function, and the kernel that ran."""
    report = done.report
    rows = {
        "verdict": str(report.verdict),
        "passes": f"{report.passes}, stage by stage {report.passes_before}",
        "refused": "\n".join(f"{r.stage}: {r.reason}" for c in report.cascades for r in c.refusals),
        "accumulators": equations(report.accumulators),
        "dependencies": "\n".join(equations(c.dependencies) for c in report.cascades if c.dependencies),
        "update": equations(report.update),
        "merge": equations(report.merge),
        "epilogue": equations(report.epilogue),
        "kernels": "\n".join(map(kernel_line, report.kernels)),
    }
    facts = fact_table()
    shapes = ", ".join("x".join(map(str, s)) or "scalar" for s in done.shapes)
    rows["arguments"] = shapes
    for name, text in rows.items():
        if text:
            facts.add_row(name, Text(text))
    output.print()
    output.print(heading(f"{done.name}: {done.summary}"))
    output.print(facts)


def show_times(output: Console, comparisons: Iterable[Comparison]) -> None:
    """Time and error of every function beside NumPy's."""
    columns = ("first\nms", "NumPy\nms", "fused\nms", "\nratio", "NumPy\nerror", "fused\nerror")
    times = table("\nfunction", *columns, numbers=columns, whole=("\nfunction", *columns))
    for c in comparisons:
        spent = (c.first_call, c.numpy_time, c.fused_time)
        first, plain, fused = (f"{1e3 * t:.{d}f}" for t, d in zip(spent, (0, 3, 3), strict=True))
        errors = (f"{c.numpy_error:.1e}", f"{c.fused_error:.1e}")
        times.add_row(c.name, first, plain, fused, f"{c.ratio:.2f}", *errors)
    output.print()
    output.print(heading("Time of the first call, then medians of alternating calls. Error against float64, relative."))
    output.print(times)


def shorten(text: str, width: int) -> str:
    """`text` cut after a word so that it fits into `width` characters."""
    if len(text) <= width:
        return text
    return text[: width - 1].rsplit(" ", 1)[0] + "…"


def equations(texts: Mapping[str, str]) -> str:
    """One line `name = text` per entry."""
    return "\n".join(f"{name} = {text}" for name, text in texts.items())


def kernel_line(kernel: KernelInfo) -> str:
    """Name of a kernel, what it is, and how often it ran."""
    how = "compiled" if kernel.compiled else "interpreted"
    return f"{kernel.name} ({kernel.language}, {how}, {kernel.runs} runs)"
