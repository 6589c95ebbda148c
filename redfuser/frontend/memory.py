"""Which arrays share memory: what in-place changes would be seen through other names."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any


@dataclass
class Memory:
    """What an array and its views share. `borrowed`: it is the caller's; `holders`: those that may still be alive."""

    borrowed: bool
    holders: list[weakref.ref[Any]]

    def add(self, holder: Any) -> None:
        """Note a view."""
        self.holders.append(weakref.ref(holder))

    def belongs_to(self, *arrays: Any) -> bool:
        """Whether nobody else can see a change made through these arrays."""
        held = [x() for x in self.holders]
        return not self.borrowed and all(any(x is a for a in (None, *arrays)) for x in held)
