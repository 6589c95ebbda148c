"""Progress of a tuning on standard error: on a terminal, or where a command asks for it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Advance = Callable[[int, int, str], None]
"""Told before each candidate: how many are done, of how many, and which is next."""

always: ContextVar[bool] = ContextVar("always", default=False)
"""Set by commands: show progress whatever standard error is."""


@contextmanager
def progress(title: str) -> Iterator[Advance]:
    """Shows how far something is, with rich where that is installed; nothing otherwise."""
    if not always.get() and not sys.stderr.isatty():
        yield lambda done, total, text: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    except ImportError:
        yield lambda done, total, text: None
        return
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
                  console=Console(stderr=True), transient=not always.get()) as bar:
        task = bar.add_task(title, total=None)

        def advance(done: int, total: int, text: str) -> None:
            bar.update(task, completed=done, total=total, description=f"{title} {text}".rstrip())

        yield advance
