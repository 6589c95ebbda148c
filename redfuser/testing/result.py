"""What a check of a fusion gives: the ways to compute, a counterexample, the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

INTERPRET, BLOCKS, C, CUDA_HOST = "interpret", "blocks", "c", "cuda-host"
TARGETS = (INTERPRET, BLOCKS, C, CUDA_HOST)
"""The compiled forms: the tile program in NumPy; the same in blocks so short that corrections run on short streams
(cascades only); the kernel in C; the kernel in CUDA, on the executor that checks every access."""

WORDS = {"definition": "the function itself", "stream": "fused stream in 1 to 17 parts and single elements",
         "merge": "random merge trees over 2 to 17 parts and single elements", INTERPRET: "tile interpreter",
         BLOCKS: "tile interpreter in short blocks", C: "compiled kernel", CUDA_HOST: "CUDA on the host"}
"""Level -> what a report calls it."""


@dataclass(frozen=True)
class Way:
    """One way to compute: a level, and for the fusion level how the stream is split.

    level  "definition", "stream", "merge", or a target
    parts  number of parts (boundaries drawn from `seed`, parts may be empty); 0: one element each
    """

    level: str
    parts: int = 1
    seed: int = 0

    def __str__(self) -> str:
        if self.level not in ("stream", "merge"):
            return WORDS.get(self.level, self.level)
        parts = "single elements" if not self.parts else f"{self.parts} parts"
        return f"stream of {parts}" if self.level == "stream" else f"random merge tree over {parts}"

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `run_fused`; `parts` of 0 becomes chunks of one element once the length is known."""
        return {"chunks": self.parts, "seed": self.seed, "tree": self.seed if self.level == "merge" else None}


@dataclass(frozen=True)
class Counterexample:
    """An input on which a level breaks the contract.

    way      the level, and how the stream was split
    name     the result that is wrong ("" for an exception)
    arrays   the input, minimised
    got, want, allowed
             the result, the definition in longdouble, the error that the contract allows
    error    text of the exception, "" for a wrong value
    snippet  Python text that reproduces it
    excess   the error in units of what is allowed
    exact    computed the same way in longdouble the error nearly vanishes: the algebra is right, rounding spoils it
    """

    way: Way
    name: str
    arrays: Mapping[str, Any]
    got: Any
    want: Any
    allowed: Any
    error: str
    snippet: str
    excess: float = 0.0
    exact: bool = False

    @property
    def kind(self) -> str:
        """"exception", "unsound" (the algebra is wrong) or "inaccurate" (only the rounding error is too large)."""
        return "exception" if self.error else "inaccurate" if self.exact else "unsound"

    def __str__(self) -> str:
        head = (f"{self.way} raised {self.error}" if self.error else
                f"{self.way}: {self.name} is {short(self.got)}, by definition {short(self.want)} "
                f"(within {short(self.allowed)})")
        if self.exact:
            head += f"; right over the reals, but off by {self.excess:.3g} times what the contract allows"
        return f"{head}\n\n{self.snippet}"


def short(value: Any) -> str:
    """A value in a few words."""
    return np.array2string(np.asarray(value, float), precision=9, threshold=8, separator=", ").replace("\n", "")


@dataclass(frozen=True, repr=False)
class FusionCheck:
    """Result of `check_fusion`: ok, the minimised counterexample or None, and what was checked, one line each."""

    ok: bool
    counterexample: Counterexample | None
    steps: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        word = "ok" if self.ok else "FAILED"
        lines = "\n".join(f"  {s}" for s in self.steps)
        return f"{word}\n{lines}" + (f"\n\n{self.counterexample}" if self.counterexample else "")

    __repr__ = __str__
