"""C identifiers for the names of a tile program: readable, unique, never a word that the printer uses itself."""

from __future__ import annotations

import re

_KEYWORDS = frozenset(
    ["auto", "break", "case", "char", "const", "continue", "default", "do", "double", "else", "enum", "extern", "float", "for", "goto", "if", "inline", "int", "long", "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch", "typedef", "union", "unsigned", "void", "volatile", "while", "asm", "typeof", "main", "real", "lane_int", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "intptr_t", "uintptr_t", "size_t", "ptrdiff_t", "at", "count", "first", "last", "left", "lane", "args", "context", "thread", "threads", "next", "begin", "end", "chunk", "chunks", "task", "tasks", "data", "size", "stride", "runtime", "local", "local_bytes", "shared", "status", "bytes", "A", "B", "C", "K", "rows", "cols", "total", "NULL"]
)
_TEMPORARY = re.compile(r"(ptr|step|val|fix|far|acc|nans|first|mm|phase|a|b|c|x)\d+(_\d+)?$")


class Names:
    """Hands out one C identifier per (kind, name). Kinds keep a buffer and a variable of one name apart."""

    def __init__(self, reserved: frozenset[str]) -> None:
        self._reserved = reserved | _KEYWORDS
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
            if base in self._reserved or _TEMPORARY.match(base) or base.startswith("__"):
                base = f"{base}_{kind[0]}"
            text, number = base, 2
            while text in self._used or text in self._reserved:
                text, number = f"{base}_{number}", number + 1
            self._used.add(text)
            self._given[key] = text
        return self._given[key]

    def fresh(self, stem: str) -> str:
        """A new temporary: `stem` and a number that no other temporary of this stem has."""
        self._counts[stem] = number = self._counts.get(stem, -1) + 1
        return f"{stem}{number}"
