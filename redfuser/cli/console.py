"""How the commands print tables."""

from __future__ import annotations

import os

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPED_WIDTH = 120
"""Columns when the output is no terminal and COLUMNS is not set; rich would take 80, few for equations."""


def console() -> Console:
    """A console on standard output that prints every text as it is."""
    found = Console(highlight=False)
    if not found.is_terminal and "COLUMNS" not in os.environ:
        return Console(highlight=False, width=_PIPED_WIDTH)
    return found


def table(*columns: str, numbers: tuple[str, ...] = (), whole: tuple[str, ...] = ()) -> Table:
    """A table with named columns; those in `numbers` align right, those in `whole` never wrap."""
    made = Table(box=box.SIMPLE_HEAD, show_header=any(columns), pad_edge=False)
    for name in columns:
        made.add_column(name, justify="right" if name in numbers else "left", no_wrap=name in whole)
    return made


def fact_table() -> Table:
    """A table without a heading: names in bold on the left, texts on the right."""
    made = Table(box=None, show_header=False, padding=(0, 1, 0, 2))
    made.add_column(style="bold", no_wrap=True)
    made.add_column()
    return made


def heading(text: str) -> Text:
    """A title above a table; brackets in it are brackets, not markup."""
    return Text(text, style="bold")
