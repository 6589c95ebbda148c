"""The examples of the documentation run as they are printed, and print what is printed after them."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from redfuser.cli import main
from redfuser.errors import NoCompiler
from redfuser.runtime.cuda.nvrtc import find_nvrtc

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
PART = re.compile(r"```(python|text|console)\n(.*?)```", re.DOTALL)
"""An example, what it prints, or a command (`$ redfuser ...`) with what that prints."""
NAME = re.compile(r"# (\w+\.py)\n")
"""The first line of an example that stands in a file of this name."""
VARYING = re.compile(r"[\d.]+ times the processor time")
PAGES = sorted(p.name for p in DOCS.glob("*.md") if BLOCK.search(p.read_text(encoding="utf-8")))


def test_the_pages_with_examples_are_found() -> None:
    assert {"assume.md", "cost.md", "lab.md", "order.md", "testing.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, accept: bool) -> None:
    if page == "cuda.md":
        try:
            find_nvrtc()
        except NoCompiler as error:
            pytest.skip(str(error))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    file = DOCS / page
    text = file.read_text(encoding="utf-8")
    new = "".join(run(text, {"__name__": page}, page))
    if accept:
        file.write_text(new, encoding="utf-8")
    else:
        assert VARYING.sub("", new) == VARYING.sub("", text)


def run(text: str, scope: dict[str, object], page: str) -> Iterator[str]:
    """The page with what its examples print now."""
    printed, end = "", 0
    for part in PART.finditer(text):
        yield text[end : part.start(2)]
        kind, body = part.groups()
        if kind == "text" and printed:
            yield printed
            printed = ""
        elif kind == "console" and body.startswith("$ redfuser "):
            yield command(body.splitlines()[0])
        else:
            yield body
        if kind == "python":
            named = NAME.match(body)
            if named:
                Path(named[1]).write_text(body, encoding="utf-8")
            printed = example(text[: part.start(2)].count("\n") * "\n" + body, scope, page)
        end = part.end(2)
    yield text[end:]


def example(code: str, scope: dict[str, object], page: str) -> str:
    """What an example prints. Its functions are read back from the page by tools that show sources."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, page, "exec"), scope)
    return out.getvalue()


def command(line: str) -> str:
    """A command with what it prints, without spaces at the ends of lines."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        main(shlex.split(line)[2:])
    shown = [x.rstrip() for x in out.getvalue().splitlines()]
    return "\n".join([line, *shown]) + "\n"
