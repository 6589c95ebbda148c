"""Locks that a forked child finds open.

A thread that compiles holds its lock for seconds. A child that is forked meanwhile has no such thread, and would wait
for it for ever.
"""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakSet

_owners: WeakSet[Any] = WeakSet()


class Locked:
    """What has a lock of its own. A child gets a new one: whatever is guarded changes in single assignments, and is
    whole at any time. The thread that forks may hold the old lock, and releases that."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _owners.add(self)


def _renew() -> None:
    for owner in _owners:
        owner._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
