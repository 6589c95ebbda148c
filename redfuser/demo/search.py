"""Search the language reference: the query attends to every paragraph, and so does every paragraph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from redfuser.demo import functions
from redfuser.demo.corpus import FEATURES, Paragraph, features, paragraphs
from redfuser.errors import RedfuserError

DEFAULT_QUERY = "May I remove items from a dictionary while iterating over it?"
EPSILON = 1e-5

Function = Callable[..., NDArray[Any]]


@dataclass(frozen=True)
class Match:
    """One paragraph found: its softmax weight and its scaled score."""

    paragraph: Paragraph
    weight: float
    score: float


@dataclass(frozen=True)
class Answer:
    """The answer to one query.

    matches  best first
    blend    the paragraph nearest to the query's attention output, the weighted average of all paragraphs
    entropy  of the weights, in nats; exp(entropy) is the effective number of matches
    """

    query: str
    total: int
    matches: tuple[Match, ...]
    blend: Paragraph
    entropy: float

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "query": self.query,
            "paragraphs": self.total,
            "entropy": self.entropy,
            "matches": [
                {"topic": m.paragraph.topic, "text": m.paragraph.text, "weight": m.weight, "score": m.score}
                for m in self.matches
            ],
            "blend": {"topic": self.blend.topic, "text": self.blend.text},
        }


class Index:
    """The paragraphs and their features: `raw` and standardised `keys`, both float32 [n, FEATURES].

    `fuse` turns each plain function into the one that runs: `rf.fuse` compiles it, `lambda fn: fn` leaves it
    to NumPy.
    """

    def __init__(self, fuse: Callable[[Function], Function]) -> None:
        self._standardise = fuse(functions.standardise)
        self._attention = fuse(functions.attention)
        self._softmax = fuse(functions.softmax)
        self._entropy = fuse(functions.entropy)
        self.paragraphs = paragraphs()
        self.raw = features([p.text for p in self.paragraphs])
        self.keys: NDArray[np.float32] = self._standardise(self.raw, EPSILON)

    def embed(self, query: str) -> NDArray[np.float32]:
        """Standardised features [1, FEATURES] of a query.

        Raises
        ------
        RedfuserError
            if the query holds no word.
        """
        raw = features([query])
        if not raw.any():
            raise RedfuserError(f"the query {query!r} holds no word to search for; use letters a to z")
        embedded: NDArray[np.float32] = self._standardise(raw, EPSILON)
        return embedded

    def search(self, query: str, top: int = 5) -> Answer:
        """The `top` paragraphs for `query`."""
        asked = self.embed(query)
        scores = scaled_scores(asked, self.keys)
        weights = self._softmax(scores)[0]
        blended = self._attention(asked, self.keys, self.keys)[0]
        order = np.argsort(-weights, kind="stable")[:top]
        return Answer(
            query=query,
            total=len(self.paragraphs),
            matches=tuple(Match(self.paragraphs[i], float(weights[i]), float(scores[0, i])) for i in order),
            blend=self.paragraphs[int(np.argmax(self.keys @ blended))],
            entropy=float(self._entropy(scores)[0]),
        )

    def workloads(self, query: str) -> tuple[tuple[Function, tuple[Any, ...]], ...]:
        """Every plain function with arguments worth timing: the query and every paragraph are queries."""
        queries = np.concatenate([self.embed(query), self.keys])
        scores = scaled_scores(queries, self.keys)
        return (
            (functions.attention, (queries, self.keys, self.keys)),
            (functions.softmax, (scores,)),
            (functions.log_partition, (scores,)),
            (functions.entropy, (scores,)),
            (functions.standardise, (self.raw, EPSILON)),
            (functions.feature_variance, (self.raw,)),
            (functions.mean_absolute_deviation, (self.raw,)),
        )


def scaled_scores(queries: NDArray[np.float32], keys: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scores [q, n] = queries keys^T / sqrt(FEATURES), as `functions.attention` has them."""
    scores: NDArray[np.float32] = queries @ keys.T * FEATURES**-0.5
    return scores
