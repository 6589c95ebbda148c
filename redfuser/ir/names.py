"""Names that are not taken yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, count

RESERVED = frozenset({"count"})
"""Names that later levels use for their own definitions."""


def numbered(stem: str, start: int = 1) -> Iterator[str]:
    """The stem with one number after the other."""
    return (f"{stem}{number}" for number in count(start))


def free_name(candidates: Iterable[str], taken: set[str]) -> str:
    """The first candidate that is not taken; it is added to `taken`."""
    name = next(c for c in candidates if c not in taken)
    taken.add(name)
    return name


def counted(stem: str) -> Iterator[str]:
    """The stem, and with `_2`, `_3`, ... where a reader counts from one."""
    return chain((stem,), numbered(f"{stem}_", 2))


def unique_name(wanted: str, taken: set[str], always: bool = False) -> str:
    """`wanted` (made an identifier, with a number when taken, or `always`); it is added to `taken`."""
    stem = "".join(c if c.isalnum() or c == "_" else "_" for c in wanted) or "x"
    stem = stem if stem[0].isalpha() or stem[0] == "_" else f"_{stem}"
    candidates = numbered(stem, 0) if always else chain((stem,), numbered(stem))
    return free_name((c for c in candidates if c not in RESERVED), taken)
