"""PTX text as tokens, and the types it names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from redfuser.runtime.cuda.errors import UnsupportedPtx

SIZES = {
    "pred": 1, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4, "u32": 4,
    "s32": 4, "f32": 4, "f16x2": 4, "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8, "b128": 16,
}
"""Bytes of a type."""

_TOKEN = re.compile(
    r"""
    (?P<skip>\s+|//[^\n]*|/\*.*?\*/)
  | (?P<string>"[^"\n]*")
  | (?P<float>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16})
  | (?P<version>\d+\.\d+)
  | (?P<integer>0[xX][0-9a-fA-F]+U?|\d+U?)
  | (?P<directive>\.[A-Za-z_]\w*(?:::\w+)*)
  | (?P<special>%(?:tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)\.[xyzw])
  | (?P<word>[%$A-Za-z_][\w$%]*(?:(?:\.|::)\w+)*)
  | (?P<mark>[@!{}()\[\],;:=|+<>*-])
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A word of the text; `row` is its line."""

    kind: str
    text: str
    row: int


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a text, and one of kind "end".

    Raises
    ------
    UnsupportedPtx
        for characters that PTX does not have.
    """
    row, at = 1, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise UnsupportedPtx(f"PTX line {row}: cannot read {text[at : at + 40].splitlines()[0]!r}")
        if match.lastgroup != "skip":
            yield Token(str(match.lastgroup), match.group(), row)
        row += match.group().count("\n")
        at = match.end()
    yield Token("end", "", row)
