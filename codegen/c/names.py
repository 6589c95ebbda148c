"""C identifiers for the names of a tile program: readable, unique, never a word that the printer uses itself."""

from __future__ import annotations

import re
from collections.abc import Callable

_LANGUAGE = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if inline int long register
    restrict return short signed sizeof static struct switch typedef union unsigned void volatile while asm typeof main
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t""".split()  # noqa: SIM905
)
_LOCALS = frozenset(
    """args context thread threads tasks chunk chunks begin end scratch next local local_bytes data size stride runtime
    shared block bytes place at count head left lane row columns rows panel depth depth_ live from to lane_step
    depth_step to_step z_ m_ n_ k_lo k_hi far tiles share base_ A B C k x lda ldb ldc a_step c_step task_function run
    acquire release""".split()  # noqa: SIM905
)
"""Names that the printer gives to its own variables, fields and parameters."""

_TEMPORARY = re.compile(
    r"(ptr|step|val|fix|far|acc|nans|first|mm|phase|sum|last|slot|bits|list|from|best|odd|before|numbers|a|b|c|n|x|w)"
    r"\d+(_\d+)?$"
)
"""Numbered names of the printer."""


def is_language(word: str) -> bool:
    """Whether a word belongs to the language."""
    return word in _LANGUAGE


def is_own(word: str) -> bool:
    """Whether a word of C text belongs to the language or to the printer, so that no program may use it."""
    return word in _LANGUAGE or word in _LOCALS or _TEMPORARY.match(word) is not None


class Names:
    """Hands out one C identifier per (kind, name). Kinds keep a buffer and a variable of one name apart."""

    def __init__(self, reserved: frozenset[str], own: Callable[[str], bool] = is_own) -> None:
        """`reserved` words and those for which `own` holds are not given to programs."""
        self._reserved, self._own = reserved, own
        self._given: dict[tuple[str, str], str] = {}
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}

    def get(self, kind: str, name: str, preferred: str | None = None) -> str:
        """The identifier of `name`; `preferred` is tried first."""
        key = (kind, name)
        if key not in self._given:
            base = re.sub(r"\W", "_", (preferred or name).replace("'", "_p")) or "v"
            if base[0].isdigit():
                base = f"v_{base}"
            if self._taken(base):
                base = f"{base}_{kind[0]}"
            text, number = base, 2
            while self._taken(text) or text in self._used:
                text, number = f"{base}_{number}", number + 1
            self._used.add(text)
            self._given[key] = text
        return self._given[key]

    def _taken(self, word: str) -> bool:
        return word in self._reserved or self._own(word) or word.startswith("__")

    def fresh(self, stem: str) -> str:
        """A new temporary: `stem` and a number that no other temporary of this stem has."""
        self._counts[stem] = number = self._counts.get(stem, -1) + 1
        return f"{stem}{number}"
