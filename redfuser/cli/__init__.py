"""The command line. Importing it is light; typer and rich, the `cli` extra, load when a command runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from redfuser.errors import RedfuserError

_EXTRA = ("rich", "typer")


def main(argv: Sequence[str] | None = None) -> int:
    """Run `redfuser ARGUMENTS` and return the exit status: 0 done, 1 a mistake explained, 2 wrong usage."""
    try:
        from redfuser.cli.app import app
    except ImportError as error:
        if error.name not in _EXTRA:
            raise
        remedy = "install it with: pip install 'redfuser[cli]'"
        print(f"error: the command line needs {error.name}; {remedy}", file=sys.stderr)
        return 1
    try:
        app(list(sys.argv[1:] if argv is None else argv), prog_name="redfuser")
    except RedfuserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except SystemExit as stop:  # how typer ends every command
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0
