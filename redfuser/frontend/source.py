"""Where an operation stands in the user's code: for messages, and for names a reader will recognise."""

from __future__ import annotations

import bisect
import dis
import linecache
import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FrameType

import numpy as np

_OWN_CODE = tuple(os.path.dirname(os.path.abspath(path)) + os.sep for path in (__file__, np.__file__))
_STORES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "STORE_FAST_LOAD_FAST")


@dataclass(frozen=True)
class SourceLine:
    """One operation of the user's code. `target`: the variable that its result is stored in directly, if any."""

    file: str
    line: int
    text: str
    offset: int = -1
    target: str | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


def _user_frame() -> FrameType | None:
    """The innermost frame outside NumPy and the tracer."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN_CODE):
        frame = frame.f_back
    return frame


def user_line() -> SourceLine | None:
    """The innermost line outside NumPy and the tracer, None when there is none."""
    frame = _user_frame()
    if frame is None:
        return None
    code, line = frame.f_code, frame.f_lineno
    text = linecache.getline(code.co_filename, line, frame.f_globals).strip()
    return SourceLine(code.co_filename, line, text, frame.f_lasti, _target(code, frame.f_lasti))


def user_expression() -> str | None:
    """The expression of the user's code that is being evaluated, when it stands on one line."""
    frame = _user_frame()
    if frame is None:
        return None
    positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    line, last, start, stop = positions
    if line is None or line != last or start is None or stop is None:
        return None
    text = linecache.getline(frame.f_code.co_filename, line, frame.f_globals)
    return text.encode()[start:stop].decode(errors="replace")


def _target(code: CodeType, offset: int) -> str | None:
    """The variable that the result of the instruction at (or just before) `offset` is stored in directly."""
    offsets, targets = _stores(code)
    return targets[bisect.bisect_right(offsets, offset) - 1]


@lru_cache(maxsize=256)
def _stores(code: CodeType) -> tuple[list[int], list[str | None]]:
    """Byte offsets of the instructions, and for each the variable that the very next instruction stores to."""
    instructions = list(dis.get_instructions(code))
    targets: list[str | None] = []
    for following in instructions[1:]:
        value = following.argval if following.opname in _STORES else None
        targets.append(value[0] if isinstance(value, tuple) else value)
    return [i.offset for i in instructions], [*targets, None]


def located(message: str) -> str:
    """The message followed by the user's line, when there is one."""
    line = user_line()
    return message if line is None else f"{message}\n  at {line}"
