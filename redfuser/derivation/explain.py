"""Which laws a derivation rests on: the smallest set that still gives the same fused cascade, by delta debugging.

The engine gives no proofs and counts matches, not uses. So ask directly: switch laws off and derive again. Laws that
never matched go first, then ever smaller groups. Each question is a derivation of its own, so their number is
bounded: at the bound the set found so far is returned. It suffices, but something in it may not be needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

Reaches = Callable[[frozenset[str]], bool]


def smallest(names: Iterable[str], reaches: Reaches, most: int) -> tuple[str, ...]:
    """A subset of `names` from which nothing can be dropped without losing the goal (order kept).

    `reaches(all names)` must hold, and a superset must reach what a subset does. The result is minimal, not
    necessarily the smallest of all. After `most` questions the set found so far is returned.
    """
    kept = list(names)
    asked = 0

    def bounded(trial: frozenset[str]) -> bool:
        nonlocal asked
        asked += 1
        return asked <= most and reaches(trial)

    size = max(len(kept) // 2, 1)
    while True:
        _drop_groups(kept, size, bounded)
        if size == 1 or asked > most:
            return tuple(kept)
        size //= 2


def _drop_groups(kept: list[str], size: int, reaches: Reaches) -> None:
    """Drop each group of `size` neighbours that is not needed."""
    i = 0
    while i < len(kept):
        trial = kept[:i] + kept[i + size :]
        if reaches(frozenset(trial)):
            kept[:] = trial
        else:
            i += size
