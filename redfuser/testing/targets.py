"""The back ends that this machine can check."""

from __future__ import annotations

from collections.abc import Sequence

from redfuser.errors import NoCompiler, SettingError
from redfuser.testing.result import BLOCKS, CUDA_HOST, INTERPRET, TARGETS, C

ALL = "all"


def chosen_targets(asked: Sequence[str] | str | None, cascade: bool) -> tuple[str, ...]:
    """The targets of a check: those asked for, by default those at hand that are quick, with "all" every one at hand.

    Raises
    ------
    SettingError
        for a target that does not exist.
    """
    if asked is None or asked == ALL:
        slow = (CUDA_HOST,) if asked == ALL and has_cuda_host() else ()
        return (INTERPRET, *((BLOCKS,) if cascade else ()), *((C,) if has_compiler() else ()), *slow)
    named = (asked,) if isinstance(asked, str) else tuple(asked)
    for t in named:
        if t not in TARGETS:
            raise SettingError(f"targets={named!r}: {t!r} is not one of {', '.join(map(repr, TARGETS))}; {ALL!r} takes "
                               "those that this machine has")
    return named


def has_compiler() -> bool:
    """Whether kernels in C can be compiled here."""
    from redfuser.runtime.compiler import find_compiler

    try:
        find_compiler()
    except NoCompiler:
        return False
    return True


def has_cuda_host() -> bool:
    """Whether kernels in CUDA can be compiled and executed on the CPU here."""
    from redfuser.runtime.cuda.cxx import find_cxx
    from redfuser.runtime.cuda.nvrtc import find_nvrtc

    try:
        find_nvrtc()
        find_cxx()
    except NoCompiler:
        return False
    return True
