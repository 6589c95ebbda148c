"""The C prelude of a kernel: only the parts that its text mentions, in an order where definitions precede uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.resources import files

from redfuser.codegen.c.memory import accessor
from redfuser.codegen.c.shuffles import lane_functions
from redfuser.codegen.c.target import CTarget

_SECTION = re.compile(r"^/\*section ([^*]*)\*/\n", re.MULTILINE)
_WORD = re.compile(r"[A-Za-z_]\w*")
_LIBM_LANES = re.compile(r"each_(\w+)$")

_HEAD = """\
#include <stdint.h>
#pragma GCC diagnostic ignored "-Wpsabi" /* vectors wider than the machine's stay inside inlined functions */
#define LANES {lanes}
#define VECTOR_BYTES {vector_bytes}
#define REAL_BITS {bits}
typedef {real} real;
typedef int{bits}_t lane_int;
#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (ints){{__VA_ARGS__}})
#endif
#define INLINE static inline __attribute__((always_inline, unused))
"""


@lru_cache(maxsize=1)
def sections() -> dict[str, str]:
    """Name -> text of the part of prelude.h that defines it."""
    return split_sections(files("redfuser.codegen.c").joinpath("prelude.h").read_text(encoding="utf-8"))


def split_sections(text: str) -> dict[str, str]:
    """Name -> the part of a prelude that defines it."""
    pieces = _SECTION.split(text)
    table: dict[str, str] = {}
    for names, body in zip(pieces[1::2], pieces[2::2], strict=True):
        body = re.sub(r"\n/\* ---- [^\n]*\n\Z", "\n", body)  # the heading of the next group
        for name in names.split():
            table[name] = body.strip("\n")
    return table


@lru_cache(maxsize=1)
def reserved_words() -> frozenset[str]:
    """Every identifier that the prelude may define at file scope: names that a program must not take."""
    defined = re.findall(r"#define (\w+)|typedef \w+ (\w+)", "\n".join([_HEAD, *sections().values()]))
    return (
        frozenset(name for pair in defined for name in pair if name)
        | sections().keys()
        | lane_functions(4, 32).keys()
    )


def _each_lane(function: str, bits: int) -> str:
    """A libm function applied lane by lane."""
    suffix = "f" if bits == 32 else ""
    binary = function == "pow"
    params, args = ("vec x, vec y", "x[i], y[i]") if binary else ("vec x", "x[i]")
    return (
        f"INLINE vec each_{function}({params}) {{\n  vec r = {{0}};\n"
        f"  for (int i = 0; i < LANES; i++) r[i] = __builtin_{function}{suffix}({args});\n  return r;\n}}"
    )


def needed_parts(text: str, define: Callable[[str], str | None]) -> list[str]:
    """The definitions that a text needs, those before them that they need themselves; `define`: name -> definition."""
    done: set[str] = set()
    parts: list[str] = []

    def need(body: str) -> None:
        for word in dict.fromkeys(_WORD.findall(re.sub(r"/\*.*?\*/", " ", body, flags=re.DOTALL))):
            if word in done:
                continue
            done.add(word)
            part = define(word)
            if part is not None and part not in parts:
                need(part)
                if part not in parts:
                    parts.append(part)

    need(text)
    return parts


def prelude(text: str, compute: str, target: CTarget) -> str:
    """The prelude that `text` needs.

    Parameters
    ----------
    text : the C of a kernel without its prelude
    compute : "float32" or "float64"
    target : gives the vector width
    """
    lanes, bits = target.lanes(compute), 32 if compute == "float32" else 64
    library = sections() | lane_functions(lanes, bits)

    def define(name: str) -> str | None:
        if name in library:
            return library[name]
        match = _LIBM_LANES.match(name)
        return _each_lane(match.group(1), bits) if match else accessor(name, compute, lanes)

    parts = needed_parts("vec " + text, define)
    head = _HEAD.format(
        lanes=lanes, vector_bytes=target.vector_bytes, bits=bits, real="float" if bits == 32 else "double"
    )
    known = {"VECTOR_BYTES": target.vector_bytes, "REAL_BITS": bits}
    return head + resolve_conditions("\n".join(parts), known) + "\n"


_TEST = re.compile(r"(\w+) == (\d+)$")


def resolve_conditions(text: str, known: Mapping[str, int]) -> str:
    """Decide the #if lines that test known numbers, so that a reader sees only the code of one vector width.

    Conditions are conjunctions of `NAME == number` and terms that only the compiler can decide; the latter stay.
    """
    lines: list[str] = []
    stack: list[_Conditional] = []
    for line in text.split("\n"):
        word, _, rest = line.partition(" ")
        if word == "#if":
            stack.append(_Conditional(all(c.live for c in stack)))
        if word in ("#if", "#elif", "#else"):
            kept = stack[-1].branch(_undecided(rest, known) if word != "#else" else [])
        elif word == "#endif":
            kept = stack.pop().end()
        else:
            kept = line if all(c.live for c in stack) else None
        if kept is not None:
            lines.append(kept)
    return "\n".join(lines)


def _undecided(condition: str, known: Mapping[str, int]) -> list[str] | None:
    """The terms left once known numbers are put in; None when one of them is false."""
    left = []
    for term in condition.split(" && "):
        match = _TEST.match(term)
        if match and match.group(1) in known:
            if known[match.group(1)] != int(match.group(2)):
                return None
        else:
            left.append(term)
    return left


class _Conditional:
    """One #if ... #endif group while it is being decided."""

    def __init__(self, outer: bool) -> None:
        self.outer = outer  # whether the enclosing code is kept
        self.live = outer  # whether the current branch is kept
        self.open = False  # an #if line was written
        self.closed = False  # a branch was taken for certain: the rest is dead

    def branch(self, terms: list[str] | None) -> str | None:
        """Enter a branch with these undecided terms (None: false, none: true); the line to write, if any."""
        self.live = self.outer and not self.closed and terms is not None
        if not self.live or terms is None:
            return None
        self.closed = not terms
        if not terms:
            return "#else" if self.open else None
        keyword, self.open = ("#elif" if self.open else "#if"), True
        return f"{keyword} {' && '.join(terms)}"

    def end(self) -> str | None:
        """The line that ends the group, if one was begun."""
        return "#endif" if self.open and self.outer else None
