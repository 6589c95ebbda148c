"""Faults by seed, in every level above the printed text: does `check_fusion` find them?

    python -m redfuser.testing.planted --n 30 --seed 0

Each fault is one mistake: in the algebra of a fused form (a correction, a body, a monoid, an epilogue), in a rewrite
rule that the form is derived with, in a tile program that is interpreted, or in one that is printed as C.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

import redfuser as rf
from redfuser.codegen import Kernel
from redfuser.derivation import FusedCascade, derive_cascade
from redfuser.derivation.derive import fuse_unchecked
from redfuser.extract import Options as Decided
from redfuser.ir import Cascade
from redfuser.ir.ops import PIVOT
from redfuser.rules import default, rule, ruleset
from redfuser.rules.language import Law, Max, Sum
from redfuser.testing.check import check_fusion
from redfuser.testing.mutate import mutants
from redfuser.testing.mutate_tiles import CHANGES, mutate_tiles, tile_mutants
from redfuser.testing.result import INTERPRET, C, Counterexample, FusionCheck
from redfuser.testing.targets import has_compiler

Level = Literal["term", "rule", "tiles", "kernel"]
LEVELS: tuple[Level, ...] = ("term", "tiles", "rule", "kernel", "term", "tiles")
"""The levels of faults, in turn."""
BLOCK = 4
"""Elements between corrections, so that they run on short streams."""


@dataclass(frozen=True)
class Fault:
    """One mistake: what it is, and everything `check_fusion` needs to look for it."""

    seed: int
    level: Level
    text: str
    cascade: Cascade
    fused: FusedCascade
    mistake: str = ""

    def check(self, **options: Any) -> FusionCheck:
        """`check_fusion` of the faulty form."""
        given: dict[str, Any] = {"fused": self.fused, "trials": 44, "thorough": False, "targets": ()} | options
        if not self.mistake:
            return check_fusion(self.cascade, **given)
        given["targets"] = (C if self.level == "kernel" else INTERPRET,)
        return check_fusion(self.cascade, **given, schedule=Decided(block=BLOCK), plant=self.plant)

    def plant(self, kernel: Kernel) -> Kernel:
        """The tile program with the mistake."""
        return mutate_tiles(kernel, self.seed, self.mistake)[0]


def fault(seed: int) -> Fault:
    """The fault of a seed. Those of a kernel in C need a compiler."""
    rng = random.Random(seed)
    level = LEVELS[seed % len(LEVELS)]
    if level == "rule":
        law, name, instead = _WRONG[rng.randrange(len(_WRONG))]
        kept = [x for x in default if not {x.name, x.group} & set(instead)]
        cascade = _cascade(name)
        fused = fuse_unchecked(cascade, rules=ruleset("planted", [*kept, law]))
        return Fault(seed, level, f"{name}: rule {law.law}", cascade, fused)
    name = rng.choice(list(CASCADES))
    cascade, fused = _cascade(name), _right(name)
    if level == "term":
        mutant, what = rng.choice([m for m in mutants(fused) if not _moves_a_pivot(m[1])])
        return Fault(seed, level, f"{name}: {what}", cascade, mutant)
    mistake = rng.choice(_mistakes(name))
    return Fault(seed, level, f"{name}: {mistake}", cascade, fused, mistake)


@cache
def _mistakes(name: str) -> tuple[str, ...]:
    """The mistakes that are possible in the tile program of a cascade."""
    kernels: list[Kernel] = []

    def keep(kernel: Kernel) -> Kernel:
        kernels.append(kernel)
        return kernel

    check_fusion(_cascade(name), fused=_right(name), targets=(INTERPRET,), trials=1, schedule=Decided(block=BLOCK),
                 plant=keep, kinds=("normal",))
    return tuple(m for m in CHANGES if next(tile_mutants(kernels[0], m), None))


def _moves_a_pivot(what: str) -> bool:
    """Whether a mutant only takes another pivot: any number serves as one."""
    return PIVOT in what.split(":")[0] or "_pivot" in what.split(":")[0]


# ---- cascades

def _softmax(x: Any, y: Any, c: rf.Cascade) -> None:
    m = c.max("m", x)
    mass = c.sum("mass", np.exp(x - m))
    c.sum("mixed", np.exp(x - m) / mass * y)


def _weighted(x: Any, y: Any, c: rf.Cascade) -> None:
    largest = c.max("largest", x)
    c.sum("total", np.where(x > 0, x, 0) * y / (abs(largest) + 1))


def _spread(x: Any, y: Any, c: rf.Cascade) -> None:
    mean = c.sum("s", x) / c.size
    c.sum("v", (x - mean) ** 2)
    c.sum("w", (x - mean) * y)


def _reach(x: Any, y: Any, c: rf.Cascade) -> None:
    mean = c.sum("s", x) / c.size
    c.max("far", abs(x - mean))
    c.min("low", y - mean)


def _total(x: Any, _: Any, c: rf.Cascade) -> None:
    s = c.sum("s", x)
    c.sum("t", x * s + s)
    c.max("m", x * s)


def _squares(x: Any, _: Any, c: rf.Cascade) -> None:
    c.sum("t", (x - c.sum("s", x)) ** 2)


Body = Callable[[Any, Any, rf.Cascade], None]
CASCADES: dict[str, Body] = {
    "softmax": _softmax, "weighted": _weighted, "spread": _spread, "reach": _reach}
"""Cascades whose forms are made wrong: their tile programs have extremes, sums, corrections and several results."""
_OF_RULES: dict[str, Body] = {"total": _total, "squares": _squares}
"""Cascades that a wrong rule makes wrong."""


@cache
def _cascade(name: str) -> Cascade:
    p, n = rf.axes("p n")
    made = rf.Cascade(name, axis=n)
    (CASCADES | _OF_RULES)[name](rf.tensor("x", p, n), rf.tensor("y", p, n), made)
    return made.build()


@cache
def _right(name: str) -> FusedCascade:
    return derive_cascade(_cascade(name)).fused


# ---- wrong rules

@rule("exact", group="planted", free_of="f", varying="a")
def exponential_of_the_wrong_sign(a: Any, f: Any) -> Any:
    """e^(a + f) = e^a e^(-f), which is false"""
    return np.exp(a + f), np.exp(a) * np.exp(-f)


@rule("exact", group="planted", free_of="f", varying="a")
def half_a_binomial(a: Any, f: Any) -> Any:
    """(a + f)^2 = a^2 + a f + f^2, which is false"""
    return (a + f) ** 2, a**2 + (a * f + f**2)


@rule("exact", group="planted", free_of="f")
def uncounted_constant(a: Any, f: Any) -> Any:
    """sum (a f + f) = (sum a) f, which forgets how many there are"""
    return Sum(a * f + f), Sum(a) * f


@rule("exact", group="planted", free_of="f", varying="a")
def maximum_scaled_by_any_sign(a: Any, f: Any) -> Any:
    """max (a f) = (max a) f also for f < 0, which is false"""
    return Max(a * f), Max(a) * f


_WRONG: tuple[tuple[Law, str, tuple[str, ...]], ...] = (
    (exponential_of_the_wrong_sign, "softmax", ("exponential",)),
    (uncounted_constant, "total", ("counting",)),
    (maximum_scaled_by_any_sign, "total", ()),
    (half_a_binomial, "squares", ("binomial-2",)),
)
"""Wrong rule, a cascade that it makes wrong, and the rules or groups that would win otherwise."""


def _said(found: Counterexample | None) -> str:
    """The shapes of a minimal input. An exception is no finding: nothing was compared."""
    if found is None:
        return "NOT FOUND"
    return found.error or ", ".join(f"{n} {'x'.join(map(str, np.shape(a)))}" for n, a in found.arrays.items())


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line. Returns the exit status: 1 when a fault was not found."""
    parser = argparse.ArgumentParser(prog="python -m redfuser.testing.planted", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=30, help="how many faults (default 30)")
    parser.add_argument("--seed", type=int, default=0, help="of the first fault")
    given = parser.parse_args(argv)
    missed = 0
    for seed in range(given.seed, given.seed + given.n):
        planted = fault(seed)
        if planted.level == "kernel" and not has_compiler():
            print(f"{seed:4} {planted.level:6} {planted.text}: left out, no C compiler")
            continue
        found = planted.check().counterexample
        missed += found is None or bool(found.error)
        print(f"{seed:4} {planted.level:6} {planted.text}: {_said(found)}", flush=True)
    print(f"{given.n} faults, {missed} not found")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
