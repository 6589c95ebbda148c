"""The CUDA prelude of a kernel: only the parts that its text mentions. Scalar arithmetic is that of the C prelude."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files

from redfuser.codegen.c.names import is_language
from redfuser.codegen.c.prelude import needed_parts, sections, split_sections

SHARED_WITH_C = frozenset(
    """odd_float max_float32 min_float32 max_float64 min_float64 max_int min_int floor_div floor_mod sign_float32
    sign_float64 sign_int abs_int whole_float32 whole_float64 scalar_from_bfloat16 scalar_from_float8_e5m2
    scalar_from_float8_e4m3fn""".split()  # noqa: SIM905
)
"""Parts of the C prelude that are scalar C++ as well."""

HEAD = """\
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
"""
WORDS = frozenset(
    """threadIdx blockIdx blockDim gridDim warpSize warp lane team teams team_lanes item part slots turn task tasks
    scratch shared namespace template class struct bool true false nullptr new delete this public private operator
    kernel first_thread whole held enters found share end last count one z w step last_key last_at fresh fresh_keys
    fresh_indices best round left_ right_ asm clamp min max abs exp log sin cos tan pow sqrt floor ceil exp2 log2
    tanh atan rsqrt erf int8_t int16_t int32_t at from place warp_row own_row quad column e rounded list_keys
    list_indices all_scratch scratch_bytes
    shared_bytes xor bitand bitor compl and or not catch try throw typename using virtual friend mutable explicit
    export constexpr decltype noexcept static_cast alignas alignof typeid wchar_t char16_t char32_t concept requires
    dim3""".split()  # noqa: SIM905
)
"""Names that a program must not take: of the language, of CUDA, and of the printer."""


@lru_cache(maxsize=1)
def library() -> dict[str, str]:
    """Name -> text of the part that defines it."""
    own = split_sections(files("redfuser.codegen.cuda").joinpath("prelude.cuh").read_text(encoding="utf-8"))
    tiles = split_sections(files("redfuser.codegen.cuda.tiles").joinpath("prelude.cuh").read_text(encoding="utf-8"))
    return {n: text for n, text in sections().items() if n in SHARED_WITH_C} | own | tiles


_TEMPORARY = re.compile(r"(val|bits)\d+$")


def is_own(word: str) -> bool:
    """Whether a word belongs to the language, or is a numbered name of the printer."""
    return is_language(word) or _TEMPORARY.match(word) is not None


def reserved_words() -> frozenset[str]:
    """Names that a program must not take."""
    return WORDS | library().keys()


def prelude(text: str) -> str:
    """The prelude that `text` needs."""
    parts = needed_parts(text, library().get)
    body = "\n".join(parts)
    body = re.sub(r"UINT64_C\((\w+)\)", r"\1ull", body).replace("INT64_MIN", "(-0x7fffffffffffffffll - 1)")
    return HEAD + (body.replace("INLINE ", "__device__ __forceinline__ ") + "\n" if body else "")
