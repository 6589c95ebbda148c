"""Which traced program serves arguments: what is asked in every call where a trace holds under conditions only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redfuser.api.program import MOST_LAYOUTS, Array, Program
from redfuser.api.staged import Staged


class Fitting:
    """Programs by the kind of their arguments and all lengths. These decide everything but what the function reads
    from outside, such as a global number, so that a call compares that alone."""

    def __init__(self) -> None:
        self._found: dict[Any, tuple[Program | Staged, ...]] = {}

    @staticmethod
    def _key(kind: Any, arrays: Mapping[str, Array]) -> Any:
        return kind, tuple([a.shape for a in arrays.values()])

    def find(self, kind: Any, arrays: Mapping[str, Array]) -> Program | Staged | None:
        """A program that was kept for such arguments, and whose outside is what it was."""
        for program in self._found.get(self._key(kind, arrays), ()):
            if program.trace.in_scope():
                return program
        return None

    def keep(self, kind: Any, arrays: Mapping[str, Array], program: Program | Staged) -> None:
        """Note that a program serves such arguments."""
        if len(self._found) >= MOST_LAYOUTS:
            self._found.clear()
        key = self._key(kind, arrays)
        known = self._found.get(key, ())
        if program not in known:
            self._found[key] = (*known[-(MOST_LAYOUTS - 1):], program)
