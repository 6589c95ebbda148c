"""redfuser: fuse cascaded reductions into one incremental loop, provably, from plain NumPy code."""

from __future__ import annotations

__version__ = "0.1.0"
