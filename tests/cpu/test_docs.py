"""The examples of the documentation run as they are printed, and print what is printed after them."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

import redfuser as rf
from redfuser.cli import main
from redfuser.cli.app import app
from redfuser.errors import NoCompiler
from redfuser.runtime.cuda.nvrtc import find_nvrtc
from redfuser.settings import CHECK, DERIVATIONS, LOGS, POOL, THREADS

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
PART = re.compile(r"```(python|text|console)\n(.*?)```", re.DOTALL)
"""An example, what it prints, or a command (`$ redfuser ...`) with what that prints."""
NAME = re.compile(r"# (\w+\.py)\n")
"""The first line of an example that stands in a file of this name."""
NEAR = 8
"""Lines of text at most between an example and what it prints."""
VARYING = re.compile(r"[\d.]+ times the processor time")
FILES = sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)
PAGES = [str(p.relative_to(DOCS)) for p in FILES if BLOCK.search(p.read_text(encoding="utf-8"))]


def test_the_pages_with_examples_are_found() -> None:
    assert {"assume.md", "cost.md", "index.md", "lab.md", "order.md", "testing.md", "theory.md", "tutorial.md",
            "howto/streaming.md"} <= set(PAGES)


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
        between = text[end : part.start(2)]
        yield between
        kind, body = part.groups()
        if between.count("\n") > NEAR:  # not about that example
            printed = ""
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


def test_every_page_is_in_the_contents() -> None:
    """A page that nothing leads to is lost; `sphinx-build -W` says the same, later."""
    contents = re.findall(r"```{toctree}\n(.*?)```", (DOCS / "index.md").read_text(encoding="utf-8"), re.DOTALL)
    listed = [line for text in contents for line in text.splitlines() if re.fullmatch(r"[a-z/-]+", line)]
    found = {str(p.relative_to(DOCS).with_suffix("")) for p in [*FILES, *DOCS.rglob("*.rst")] if p.stem != "index"}
    assert set(listed) == found


def test_commands_and_options_are_documented() -> None:
    text = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        [row] = re.findall(rf"^\| `redfuser {name}\b.*$", text, re.MULTILINE)
        options = {o for p in command.params for o in (*p.opts, *p.secondary_opts) if o.startswith("--")}
        documented = set(re.findall(r"`(--[a-z-]+)", row))
        assert options - {"--json", "--help"} == documented, name


def test_public_names_are_documented() -> None:
    text = (DOCS / "reference" / "api.rst").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\.\. auto\w+:: redfuser\.(\w+)", text, re.MULTILINE))
    named = set(re.findall(r"``redfuser\.(\w+)", text))
    assert set(rf.__all__) - {"__version__"} == listed | named


def test_settings_are_documented() -> None:
    text = (DOCS / "reference" / "settings.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `(\w+)`", text, re.MULTILINE))
    assert listed == {CHECK, DERIVATIONS, LOGS, POOL, THREADS, "REDFUSER_CACHE_DIR", "CC"}
