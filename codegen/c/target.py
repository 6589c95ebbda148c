"""What the C printer must know of a machine: the width of its vectors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CTarget:
    """A CPU as the C printer sees it.

    vector_bytes  16 (SSE2, NEON), 32 (AVX2) or 64 (AVX-512). Any width compiles on any machine; a width above the
                  machine's own is split by the compiler and slow.
    """

    vector_bytes: int = 32

    def __post_init__(self) -> None:
        if self.vector_bytes not in (16, 32, 64):
            raise ValueError(f"vector_bytes is {self.vector_bytes}; use 16, 32 or 64")

    def lanes(self, dtype: str) -> int:
        """Elements of a float32 or float64 vector."""
        return self.vector_bytes // {"float32": 4, "float64": 8}[dtype]
