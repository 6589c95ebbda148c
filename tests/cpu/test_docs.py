"""The examples of the documentation run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
PAGES = sorted(p.name for p in DOCS.glob("*.md") if BLOCK.search(p.read_text(encoding="utf-8")))


def test_the_pages_with_examples_are_found() -> None:
    assert {"assume.md", "cost.md", "order.md", "testing.md"} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(page: str) -> None:
    code = "\n".join(BLOCK.findall((DOCS / page).read_text(encoding="utf-8")))
    exec(compile(code, page, "exec"), {"__name__": page})
