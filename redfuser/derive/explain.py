"""Which laws a derivation rests on: the smallest set that still gives the same fused cascade, by delta debugging.

The engine gives no proofs and counts matches, not uses. So ask directly: switch laws off and derive again. Laws that
never matched go first, then ever smaller groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

Reaches = Callable[[frozenset[str]], bool]


def smallest(names: Iterable[str], reaches: Reaches) -> tuple[str, ...]:
    """A subset of `names` from which nothing can be dropped without losing the goal (order kept).

    `reaches(all names)` must hold, and a superset must reach what a subset does. The result is minimal, not
    necessarily the smallest of all.
    """
    kept = list(names)
    size = max(len(kept) // 2, 1)
    while True:
        _drop_groups(kept, size, reaches)
        if size == 1:
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
