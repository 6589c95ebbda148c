"""What a command works on: `FILE.py:FUNCTION` and `--arg NAME=SPEC`."""

from __future__ import annotations

import ast
import difflib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import redfuser as rf
from redfuser.errors import RedfuserError
from redfuser.extract.device import devices
from redfuser.ir.dtypes import EXTENSIONS
from redfuser.lab.files import MODULE, CommandError, line_in, load_module

_ARRAY = re.compile(r"(?P<shape>[\w,]*):(?P<dtype>\w+)")
_SIZE = re.compile(r"\d+|[A-Za-z_]\w*")
ARG_HELP = "NAME=SHAPE:DTYPE (q=8x1024x64:float32, x=rows,n:float32) for an array, NAME=VALUE for anything else."


@dataclass(frozen=True)
class Target:
    """A function found in a file, compiled by `rf.fuse`, and the arguments to look at it with."""

    file: Path
    fused: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def explain(self, device: str | None, frontier: bool) -> rf.Report:
        """The report; parameters of the function that are called like options of the report stay its own."""
        options = {"device": device, "frontier": frontier}
        own = inspect.signature(self.fused).parameters
        report: rf.Report = self.fused.explain(
            *self.args, **self.kwargs, **{n: v for n, v in options.items() if n not in own}
        )
        return report

    @contextmanager
    def blame(self) -> Iterator[None]:
        """Turn an exception raised by the user's own code into a CommandError that says where."""
        try:
            yield
        except RedfuserError:
            raise
        except Exception as error:
            line = line_in(self.file, error)
            if line is None:  # ours: the traceback is worth more than a short message
                raise
            raise CommandError(f"{self.file}:{line}: {type(error).__name__}: {error}") from error


def find_target(text: str, arg_texts: Sequence[str]) -> Target:
    """The function `FILE.py:FUNCTION` with arguments parsed from `NAME=SPEC` texts.

    Raises
    ------
    CommandError
        if the file, the function or an argument is missing or malformed.
    """
    path, _, name = text.rpartition(":")
    if not path or not name:
        raise CommandError(f"{text!r} is not FILE.py:FUNCTION, for example examples/minilm.py:attention")
    file = Path(path)
    fn = _function(load_module(file), name, file)
    parsed = dict(parse_arg(a) for a in arg_texts)
    if len(parsed) != len(arg_texts):
        raise CommandError("an argument is given twice with --arg")
    bound = _bind(fn, name, parsed)
    fused = fn if hasattr(fn, "explain") and hasattr(fn, "lower") else rf.fuse(fn)
    return Target(file, fused, bound.args, bound.kwargs)


def check_device(name: str | None) -> None:
    """Raise CommandError for a device that does not exist."""
    if name is not None and name not in devices():
        raise CommandError(f"--device {name!r}: there is no such device; use {', '.join(devices())}")


def parse_arg(text: str) -> tuple[str, Any]:
    """`NAME=SHAPE:DTYPE` -> (name, rf.spec(...)); `NAME=VALUE` -> (name, the Python literal).

    A shape is numbers joined by `x` (8x1024x64), or numbers and names of symbolic sizes joined by commas
    (8,n,64); an empty shape is a scalar of that dtype.

    Raises
    ------
    CommandError
        if the text is neither.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise CommandError(f"--arg {text!r} is not NAME=SHAPE:DTYPE or NAME=VALUE; example: --arg q=8x1024x64:float32")
    array = _ARRAY.fullmatch(value)
    if array is not None:
        shape = _parse_shape(array["shape"], text)
        return name, rf.spec(shape, _parse_dtype(array["dtype"], text))
    if re.fullmatch(r"\d+(x\d+)+", value):  # also 0x4, which Python would read as a number
        raise CommandError(f"--arg {text!r}: {value!r} is a shape without a dtype; write {name}={value}:float32")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        forms = "SHAPE:DTYPE (8x64:float32) nor a Python value (0.125, True, 'text')"
        raise CommandError(f"--arg {text!r}: {value!r} is neither {forms}") from None


def _parse_shape(text: str, where: str) -> tuple[int | str, ...]:
    if not text:
        return ()
    parts = text.split("x") if re.fullmatch(r"\d+(x\d+)*", text) else text.split(",")
    letters = text.split("x")
    if all(len(c) == 1 for c in letters) and len(letters) > 1 and any(map(str.isalpha, letters)):
        # axb is meant as two sizes, and would be one of that name
        raise CommandError(f"--arg {where!r}: names of sizes are joined by commas; write {','.join(letters)}")
    for part in parts:
        if not _SIZE.fullmatch(part):
            remedy = "join numbers by x (8x64), or numbers and names by commas (8,n)"
            raise CommandError(f"--arg {where!r}: {part!r} is no size; {remedy}")
    return tuple(int(p) if p.isdigit() else p for p in parts)


def _parse_dtype(text: str, where: str) -> str:
    if text in EXTENSIONS:  # known to redfuser, not to NumPy
        return text
    try:
        return np.dtype(text).name
    except TypeError:
        raise CommandError(f"--arg {where!r}: {text!r} is no dtype; use float32, float64, int64, bool, ...") from None


def _function(module: ModuleType, name: str, file: Path) -> Callable[..., Any]:
    fn = getattr(module, name, None)
    if callable(fn):
        return fn  # type: ignore[no-any-return]
    if fn is not None:
        raise CommandError(f"{name} in {file} is a {type(fn).__name__}, not a function")
    own = (n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", None) == MODULE)
    offered = sorted(own)
    close = difflib.get_close_matches(name, offered, n=1)
    hint = f"; did you mean {close[0]}?" if close else f"; it has {', '.join(offered)}" if offered else ""
    raise CommandError(f"there is no function {name} in {file}{hint}")


def _bind(fn: Callable[..., Any], name: str, parsed: dict[str, Any]) -> inspect.BoundArguments:
    """Match arguments with parameters by name."""
    signature = inspect.signature(fn)
    unknown = [a for a in parsed if a not in signature.parameters]
    if unknown:
        raise CommandError(f"{name} has no parameter {unknown[0]}; its signature is {name}{signature}")
    try:
        return signature.bind(**parsed)
    except TypeError:
        missing = [p.name for p in signature.parameters.values() if p.default is p.empty and p.name not in parsed]
        raise CommandError(
            f"{name}{signature} needs {', '.join(missing)}; add --arg {missing[0]}=SHAPE:DTYPE, such as "
            f"--arg {missing[0]}=64x128:float32"
        ) from None
