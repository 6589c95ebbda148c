"""The documentation site: `pip install --group docs`, then `sphinx-build -W docs docs/_build`."""

from __future__ import annotations

import re

from sphinx.application import Sphinx

import redfuser

project = "redfuser"
author = "the authors of redfuser"
release = version = redfuser.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
nitpicky = False

html_theme = "furo"
html_title = "redfuser"
html_copy_source = False

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3

default_role = "code"              # docstrings write `name` as the pages do
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
napoleon_custom_sections = [("Keywords", "params_style")]
napoleon_google_docstring = False

_ROW = re.compile(r"(?P<name>\S+(?: \S+)*)(?: {2,}| : )(?P<text>\S.*)")
"""A line of a docstring that says what one name means."""


def rows_as_definitions(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Docstrings list names in two columns; the site shows them as definitions."""
    if what in ("property", "attribute") and lines:
        lines[0] = lines[0].replace(": ", "; ")  # napoleon would take what is before it for a type
    found: list[str] = []
    inside = False
    for line in lines:
        row = _ROW.fullmatch(line)
        if row is not None and (inside or not found or not found[-1].strip()):
            found += [] if inside or not found else [""]
            found += [f"``{row['name'].strip('`')}``", f"    {row['text']}"]
            inside = True
        elif inside and line.startswith("  "):
            found.append(f"    {line.strip()}")
        else:
            found += ["", line] if inside and line.strip() else [line]
            inside = False
    lines[:] = found


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", rows_as_definitions, priority=100)  # before napoleon
