"""Every error redfuser raises on purpose. Each message names the argument at fault and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_refusals: ContextVar[list[TraceError] | None] = ContextVar("refusals", default=None)


class RedfuserError(Exception):
    """Base of all errors that redfuser raises on purpose."""


class TraceError(RedfuserError, TypeError):
    """The traced function used an operation (or a Python construct) that cannot be recorded.

    It is noted where refusals are collected: a function that catches the TypeError must not be compiled as if it had
    taken the branch that NumPy would take. `collected` is False where NumPy has no such operation either: a function
    that catches its TypeError may catch this one and go on.
    """

    def __init__(self, *args: object, collected: bool = True) -> None:
        super().__init__(*args)
        self.collected = collected
        found = _refusals.get()
        if found is not None and collected:
            found.append(self)


class DepthError(RedfuserError, RecursionError):
    """The traced function nests more operations in one expression than can be followed."""


class ShapeError(RedfuserError, ValueError):
    """Array shapes do not fit together, or do not fit the traced function; or an array for results cannot hold them:
    it is read-only, or its elements or those of two share memory."""


class DTypeError(RedfuserError, TypeError):
    """An array has a dtype that no kernel can be generated for."""


class ArgumentError(RedfuserError, TypeError):
    """A function of redfuser got an argument of a kind that it does not take."""


class SettingError(RedfuserError, ValueError):
    """An option or an environment variable has a value that does not exist."""


class CheckError(RedfuserError, AssertionError):
    """A compiler level broke one of its own invariants: a defect of redfuser, never of the input."""


class CheckFailed(RedfuserError, AssertionError):
    """A check of `redfuser.testing` found a mistake; `check` is its result, with the counterexample."""

    def __init__(self, check: object) -> None:
        self.check = check
        super().__init__(str(check))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.check,)


class AssumptionError(RedfuserError, ValueError):
    """A condition that was stated by `rf.assume` does not hold for the data at hand."""


class LabelError(RedfuserError, IndexError):
    """An integer array chooses an element outside of its axis."""


class LawViolation(RedfuserError, ValueError):
    """A reduction operator breaks a law that fusion rests on: `law` names it, `counterexample` gives the values."""

    def __init__(self, message: str, law: str, counterexample: tuple[object, ...]) -> None:
        self.law = law
        self.counterexample = counterexample
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.law, self.counterexample)


class RuleError(RedfuserError, ValueError):
    """A rewrite rule is malformed, or its two sides are not equal."""


class EngineError(RedfuserError, RuntimeError):
    """The equality-saturation engine failed or proved 0 = 1 (an unsound rule)."""


class CompileError(RedfuserError, RuntimeError):
    """The C compiler rejected a generated kernel; the message carries its output."""


class NoCompiler(RedfuserError, RuntimeError):
    """No C compiler was found on this machine."""


class CacheError(RedfuserError, OSError):
    """The kernel cache cannot be used (read-only, full, or not a directory)."""


@contextmanager
def collect_refusals() -> Iterator[list[TraceError]]:
    """The refusals of the code that runs inside, also those that it catches itself."""
    found: list[TraceError] = []
    token = _refusals.set(found)
    try:
        yield found
    finally:
        _refusals.reset(token)
