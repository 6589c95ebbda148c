"""The examples of the documentation run as they are printed, and print what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest
import typer.main

import redfuser as rf
from redfuser.cli.app import app
from redfuser.errors import NoCompiler
from redfuser.runtime.cuda.nvrtc import find_nvrtc
from redfuser.settings import CHECK, DERIVATIONS, LOGS, POOL, THREADS

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?:\n\nprints\n\n```text\n(?P<printed>.*?)```)?", re.DOTALL)
FILES = sorted(p for p in DOCS.rglob("*.md") if "_build" not in p.parts)
PAGES = [str(p.relative_to(DOCS)) for p in FILES if BLOCK.search(p.read_text(encoding="utf-8"))]


def test_the_pages_with_examples_are_found() -> None:
    assert {"assume.md", "cost.md", "index.md", "order.md", "testing.md", "theory.md", "tutorial.md",
            "howto/streaming.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page: str) -> None:
    if page == "cuda.md":
        try:
            find_nvrtc()
        except NoCompiler as error:
            pytest.skip(str(error))
    names = {"__name__": page}
    for block in BLOCK.finditer((DOCS / page).read_text(encoding="utf-8")):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block["code"], page, "exec"), names)
        if block["printed"] is not None:
            assert printed.getvalue() == block["printed"]


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
