"""What one scope of the engine was told and asked, so that it can be repeated with fewer laws."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redfuser.derivation.search import Step


@dataclass
class Record:
    """The events of one scope, in order: ("text", ...), ("saturate", step), ("extract", texts, cost, answers),
    ("holds", relations, term, answer). Pickled empty: it can be made again, and is larger than what it explains."""

    events: list[tuple[Any, ...]] = field(default_factory=list)

    def __reduce__(self) -> tuple[type[Record], tuple[()]]:
        return Record, ()

    def texts(self, text: str) -> None:
        """Text was run."""
        self.events.append(("text", text))

    def saturations(self, step: Step) -> None:
        """A saturation began; afterwards `step.reached` tells how many rounds were needed."""
        self.events.append(("saturate", step))

    def extractions(self, texts: list[str], cost: Any, answers: list[str]) -> None:
        """The cheapest terms were asked for."""
        self.events.append(("extract", texts, cost, answers))

    def questions(self, relations: tuple[str, ...], term: str, answer: tuple[str, ...]) -> None:
        """It was asked which of some relations hold for a term."""
        self.events.append(("holds", relations, term, answer))
