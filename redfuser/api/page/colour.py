"""Colours for C and CUDA text. A handful of token kinds is all a reader needs, so that no library is."""

from __future__ import annotations

import re
from html import escape

from redfuser.api.page.markup import Markup

KEYWORDS = ("break", "case", "const", "continue", "default", "do", "else", "enum", "extern", "for", "goto", "if",
            "inline", "namespace", "return", "restrict", "sizeof", "static", "struct", "switch", "template",
            "typedef", "union", "using", "volatile", "while")
TYPES = ("bool", "char", "double", "float", "half", "int", "int8_t", "int16_t", "int32_t", "int64_t", "intptr_t",
         "long", "short", "signed", "size_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "unsigned", "void")
_TOKENS = re.compile(
    r"(?P<c>//[^\n]*|/\*.*?\*/)"
    r"|(?P<s>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
    r"|(?P<p>^[ \t]*#[ \t]*\w+|\b__\w+__\b)"
    rf"|(?P<k>\b(?:{'|'.join(KEYWORDS)})\b)"
    rf"|(?P<t>\b(?:{'|'.join(TYPES)})\b)"
    r"|(?P<m>\b(?:0[xX][0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?(?:[pP][+-]?\d+)?|\d+\.?\d*(?:[eE][+-]?\d+)?)[fFuUlL]*)",
    re.DOTALL | re.MULTILINE,
)


def coloured(text: str) -> Markup:
    """Source text with comments, strings, numbers, keywords, types and macros marked."""
    parts, at = [], 0
    for found in _TOKENS.finditer(text):
        parts += [escape(text[at : found.start()], quote=False),
                  f'<span class="{found.lastgroup}">{escape(found[0], quote=False)}</span>']
        at = found.end()
    return Markup("".join(parts) + escape(text[at:], quote=False))
