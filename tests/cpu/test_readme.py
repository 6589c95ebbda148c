"""The README: its example prints what it says, and what it points to exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from redfuser.frontend.formulas import FORMULAS
from redfuser.frontend.functions import FUNCTIONS
from redfuser.frontend.host import HOST
from redfuser.frontend.standin import NUMPY_FUNCTIONS
from redfuser.frontend.ufuncs import ELEMENTWISE

KEYWORDS = {"axis", "keepdims", "dtype", "ddof", "initial", "out"}
ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)])


def test_the_example_prints_what_the_readme_says(tmp_path: Path, accept: bool) -> None:
    readme = ROOT / "README.md"
    text = readme.read_text()
    found = re.search(r"```python\n(.*?)```.*?```text\n(.*?)```", text, re.DOTALL)
    assert found is not None
    script = tmp_path / "example.py"
    script.write_text(found[1])
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    if accept:
        readme.write_text(text[: found.start(2)] + done.stdout + text[found.end(2) :])
        return
    assert done.stdout == found[2]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_in_the_text_exist(page: Path) -> None:
    named = re.findall(
        r"`((?:redfuser|rules|extract|codegen|docs|examples|tests|benchmarks|\.ci)/[\w./]*)`", page.read_text()
    )
    missing = [path for path in named if not (ROOT / path).exists()]
    assert not missing


def test_the_page_of_functions_lists_what_is_recorded() -> None:
    rows = re.findall(r"^\| ([a-z]+) \| (.*) \|$", (ROOT / "docs" / "functions.md").read_text(), re.MULTILINE)
    listed = {kind: set(re.findall(r"`([a-z0-9_.]+)`", text)) for kind, text in rows}
    assert listed["elementwise"] == {u.__name__ for u in ELEMENTWISE | FORMULAS.keys()}
    table = {getattr(np.linalg if name.startswith("linalg.") else np, name.rpartition(".")[2])
             for kind in ("formulas", "choice", "reductions", "products", "shape") for name in listed[kind] - KEYWORDS}
    assert {f for f in table if not isinstance(f, np.ufunc)} <= FUNCTIONS.keys()
    helpers = {np.around, np.matrix_transpose, np.atleast_1d, np.atleast_2d, np.shape, np.ndim,
               np.size, np.result_type, np.real, np.imag, np.astype, np.copy, np.iscomplexobj, np.isrealobj, np.flip,
               np.copyto, np.putmask, *(getattr(np.linalg, name) for name in (
                   "vecdot", "matmul", "outer", "tensordot", "matrix_transpose", "trace", "diagonal"))}
    likes = {np.full_like, np.zeros_like, np.ones_like, np.empty_like}
    joins = {getattr(np, name) for name in listed["joins"]}
    assert FUNCTIONS.keys() - table == helpers | likes | joins
    created = {name for name in listed["creation"] if "." not in name and not name.endswith("_like")}
    assert created | {"asarray", "array"} == NUMPY_FUNCTIONS.keys() - {"asanyarray", "ascontiguousarray"}


def test_the_page_of_functions_lists_what_numpy_runs() -> None:
    text = (ROOT / "docs" / "functions.md").read_text().partition("## What NumPy runs")[2].partition("\n## ")[0]
    listed = set(re.findall(r"`([a-z0-9_.]+)`", "".join(re.findall(r"^\| .*$", text, re.MULTILINE))))
    assert {name.removeprefix("np.") for name in HOST.values()} == {
        name for name in listed if not name.startswith(("np.", "scipy."))}


def test_the_commands_of_the_readme_are_the_documented_ones() -> None:
    text = (ROOT / "README.md").read_text()
    assert "pip install '.[cli]' && redfuser demo" in text
    assert "pip install '.[test]' && pytest" in text
