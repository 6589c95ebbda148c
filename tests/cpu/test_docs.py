"""The examples of the documentation run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from redfuser.errors import NoCompiler
from redfuser.runtime.cuda.nvrtc import find_nvrtc

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
PAGES = sorted(p.name for p in DOCS.glob("*.md") if BLOCK.search(p.read_text(encoding="utf-8")))


def test_the_pages_with_examples_are_found() -> None:
    assert {"assume.md", "cost.md", "order.md", "testing.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page: str) -> None:
    if page == "cuda.md":
        try:
            find_nvrtc()
        except NoCompiler as error:
            pytest.skip(str(error))
    code = "\n".join(BLOCK.findall((DOCS / page).read_text(encoding="utf-8")))
    exec(compile(code, page, "exec"), {"__name__": page})
