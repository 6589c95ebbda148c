"""`REDFUSER_LOGS="derive,+plan,-source"`: what the compiler does, level by level, through the `logging` module.

Each level has a logger `redfuser.<level>`. INFO is a line for each thing done, DEBUG the whole text of the level. A
name in the variable turns on INFO, `+name` DEBUG, `-name` turns off; `all` stands for every level; later words win.
Without the variable the loggers are those of any library: silent until the application configures them.
"""

from __future__ import annotations

import difflib
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from redfuser.settings import LOGS

LEVELS = ("trace", "term", "derive", "plan", "tile", "source", "runtime")
"""In the order of the compiler; `runtime` speaks of compilers, caches and tuning."""
ALL = "all"
OFF = logging.CRITICAL + 1
SLOW = 1.0
"""Seconds after which a note says what takes so long."""

trace, term, derive, plan, tile, source, runtime = (logging.getLogger(f"redfuser.{name}") for name in LEVELS)


class _Terminal(logging.StreamHandler):  # type: ignore[type-arg]
    """Prints on standard error, unless the application has handlers of its own, which print too."""

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.getLogger().handlers:
            self.stream = sys.stderr
            super().emit(record)


def parsed(text: str) -> tuple[dict[str, int], list[str]]:
    """Level -> threshold, and the words that name no level."""
    found: dict[str, int] = {}
    unknown = []
    for word in filter(None, (w.strip().lower() for w in text.split(","))):
        name = word.lstrip("+-").strip()
        threshold = {"+": logging.DEBUG, "-": OFF}.get(word[0], logging.INFO)
        if name == ALL:
            found |= dict.fromkeys(LEVELS, threshold)
        elif name in LEVELS:
            found[name] = threshold
        else:
            unknown.append(word)
    return found, unknown


def configure(text: str | None = None) -> None:
    """Set the loggers as the text, or the environment variable, says. A word that names no level is told, and the
    others hold: a wrong setting for people who watch must not stop a program."""
    given = os.environ.get(LOGS, "") if text is None else text
    found, unknown = parsed(given)
    if not found and not unknown:
        return
    top = logging.getLogger("redfuser")
    if not any(isinstance(h, _Terminal) for h in top.handlers):
        handler = _Terminal()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        top.addHandler(handler)
    for name, threshold in found.items():
        logging.getLogger(f"redfuser.{name}").setLevel(threshold)
    for word in unknown:
        near = difflib.get_close_matches(word.lstrip("+-"), LEVELS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        top.warning("%s has no level %r%s; the levels are %s and %s, with + for more and - for nothing",
                    LOGS, word, hint, ", ".join(LEVELS), ALL)


@contextmanager
def patience(what: str, after: float = SLOW) -> Iterator[None]:
    """Where standard error is a terminal: after a while, one line says what takes so long."""
    if not sys.stderr.isatty():
        yield
        return
    timer = threading.Timer(after, _note, (what,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _note(what: str) -> None:
    print(f"redfuser: {what} ...", file=sys.stderr, flush=True)
