"""The text of the demonstration, the language reference that every Python ships, and its features."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from redfuser.errors import RedfuserError

FEATURES = 256
"""Length of a feature vector. n-grams that share a position cancel on average: each has a sign, too."""

_WORD = re.compile(r"[a-z_]+")
_LEAST_WORDS = 12


@dataclass(frozen=True)
class Paragraph:
    """One paragraph of the text and the topic it stands under."""

    topic: str
    text: str


def paragraphs() -> tuple[Paragraph, ...]:
    """The paragraphs of `pydoc_data.topics` with at least a dozen words, in topic order, each text once.

    Raises
    ------
    RedfuserError
        if this Python was built without its documentation topics.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise RedfuserError(
            "this Python ships no pydoc_data.topics, the text that the demo searches; "
            "use a Python built with its standard library complete"
        ) from error
    found: dict[str, Paragraph] = {}
    for topic in sorted(topics):
        for block in re.split(r"\n\s*\n", topics[topic]):
            text = " ".join(block.split())
            if len(_WORD.findall(text.lower())) >= _LEAST_WORDS:
                found.setdefault(text, Paragraph(topic, text))
    return tuple(found.values())


def _ngrams(text: str) -> Iterator[str]:
    """Words, pairs of neighbouring words, and runs of four letters (so that plural and singular meet)."""
    words = _WORD.findall(text.lower())
    yield from words
    for left, right in pairwise(words):
        yield f"{left} {right}"
    for word in words:
        marked = f"^{word}$"
        for i in range(len(marked) - 3):
            yield marked[i : i + 4]


def features(texts: Sequence[str]) -> NDArray[np.float32]:
    """Feature vectors [len(texts), FEATURES] by signed hashing (Weinberger et al., 2009), damped by a log.

    The hash is CRC-32: unlike Python's `hash` it is the same in every process, so the demo repeats exactly.
    """
    counts = np.zeros((len(texts), FEATURES), dtype=np.float32)
    for row, text in enumerate(texts):
        for gram in _ngrams(text):
            code = zlib.crc32(gram.encode())
            counts[row, code % FEATURES] += 1.0 if code >> 31 else -1.0
    return np.sign(counts) * np.log1p(np.abs(counts))
