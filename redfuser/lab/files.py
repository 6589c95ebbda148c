"""A Python file of the user, run as a module."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from redfuser.errors import RedfuserError

MODULE = "__redfuser_target__"  # never the name of a module that something else imports


class CommandError(RedfuserError):
    """The command line names something that does not exist or cannot be read."""


def load_module(file: Path) -> ModuleType:
    """Run a Python file as a module, with its folder importable as for `python FILE`."""
    if file.suffix != ".py" or not file.is_file():
        raise CommandError(f"there is no Python file {str(file)!r}")
    spec = importlib.util.spec_from_file_location(MODULE, file)
    if spec is None or spec.loader is None:
        raise CommandError(f"Python cannot load {str(file)!r} as a module")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(file.resolve().parent))
    sys.modules[MODULE] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        line = line_in(file, error)
        place = f"{file}:{line}" if line is not None else str(file)
        raise CommandError(f"{place}: {type(error).__name__}: {error}") from error
    return module


def line_in(file: Path, error: BaseException) -> int | None:
    """The line of `file` to blame for an exception; None if it had no part or redfuser failed below it."""
    own = file.resolve()
    if isinstance(error, SyntaxError) and error.filename and Path(error.filename).resolve() == own:
        return error.lineno
    line = None
    for frame, number in traceback.walk_tb(error.__traceback__):
        if Path(frame.f_code.co_filename).resolve() == own:
            line = number
        elif str(frame.f_globals.get("__name__")).partition(".")[0] == "redfuser":
            line = None
    return line
