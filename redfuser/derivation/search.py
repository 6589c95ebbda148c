"""How a search proceeds and what it is told: limits, steps of the timeline, and the search that is repeated."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redfuser.derivation.record import Record
from redfuser.derivation.taste import STABLE, Taste
from redfuser.rules.language import Law

if TYPE_CHECKING:
    from redfuser.derivation.engine import Engine
    from redfuser.ir import Cascade


@dataclass(frozen=True)
class Limits:
    """When a saturation stops unfinished: e-graph nodes, iterations, seconds."""

    nodes: int = 6000
    iterations: int = 12
    seconds: float = 4.0


@dataclass
class Step:
    """One line of the timeline: a saturation, how it ended, and what it cost.

    `outcome`: "saturated", "limit" (of nodes or iterations), "time" (on a faster machine it would have gone on), or the
    word of the caller; `reached`: the iteration that found what was finally extracted, 0 when nothing came of it;
    `matched`: laws that matched anything; `reconsidered`: the stage whose accumulators were chosen again; `growth`:
    nodes after each iteration.
    """

    name: str
    outcome: str = ""
    iterations: int = 0
    nodes: int = 0
    milliseconds: float = 0.0
    reached: int = 0
    matched: set[str] = field(default_factory=set, repr=False)
    record: Record = field(default_factory=Record, repr=False, compare=False)
    reconsidered: str = ""
    growth: list[int] = field(default_factory=list, repr=False, compare=False)

    def __str__(self) -> str:
        return (f"{self.name}: {self.outcome} after {self.iterations} iterations, {self.nodes} nodes, "
                f"{self.milliseconds:.1f} ms")


class NotReached(Exception):
    """A repeated search did not get as far as the first one."""


@dataclass
class Replay:
    """A search that is repeated: the stages it refused, the iterations each of its saturations needed, and the stages
    whose accumulators it chose again."""

    refused: frozenset[str]
    iterations: Iterator[int]
    reconsidered: frozenset[str] = frozenset()

    def limits(self) -> Limits:
        """Limits of the next saturation.

        Raises
        ------
        NotReached
            when the repeated search needs more saturations than the first.
        """
        count = next(self.iterations, None)
        if count is None:
            raise NotReached("another saturation")
        return Limits(nodes=sys.maxsize, iterations=count)


@dataclass(frozen=True)
class Search:
    """How to search: the engine, its limits, where to note the steps, which laws to use (None: all).

    cascade   the cascade as it was given: evidence is sought of its stages, whatever data they are computed from here
    hopeless  asked once, when a search is going to take long: True ends it (the rank test says it cannot succeed)
    replay    the successful search that this one repeats with fewer laws, or None
    taste     which of several equal forms it prefers
    late      results that are computed in a pass of their own, by their definition, and why
    patient   whether it is the last search for a stage that is worth a long one
    """

    engine: Engine
    limits: Limits
    steps: list[Step]
    cascade: Cascade
    keep: Callable[[Law], bool] | None = None
    hopeless: Callable[[], bool] = lambda: False
    replay: Replay | None = None
    taste: Taste = STABLE
    late: Mapping[str, str] = field(default_factory=dict)
    patient: bool = False
