"""`rf.fuse` and `rf.spec`: what users call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, overload

from redfuser.api.arguments import checked_function
from redfuser.api.fused import Fused
from redfuser.errors import ArgumentError
from redfuser.frontend import Spec
from redfuser.frontend.spec import supported_dtype
from redfuser.pipeline import Options, Tuning

if TYPE_CHECKING:
    from redfuser.rules import RuleSet


@overload
def fuse(
    fn: Callable[..., Any],
    *,
    target: str | None = ...,
    numerics: str = ...,
    allow: Sequence[str] = ...,
    rules: RuleSet | None = ...,
    require: str | None = ...,
    empty: str = ...,
    acc_dtype: str | None = ...,
    tune: bool | Tuning = ...,
    static_argnames: str | Sequence[str] = ...,
) -> Fused: ...
@overload
def fuse(
    fn: None = None,
    *,
    target: str | None = ...,
    numerics: str = ...,
    allow: Sequence[str] = ...,
    rules: RuleSet | None = ...,
    require: str | None = ...,
    empty: str = ...,
    acc_dtype: str | None = ...,
    tune: bool | Tuning = ...,
    static_argnames: str | Sequence[str] = ...,
) -> Callable[[Callable[..., Any]], Fused]: ...
def fuse(
    fn: Callable[..., Any] | None = None,
    *,
    target: str | None = None,
    numerics: str = "stable",
    allow: Sequence[str] = (),
    rules: RuleSet | None = None,
    require: str | None = None,
    empty: str = "nan",
    acc_dtype: str | None = None,
    tune: bool | Tuning = False,
    static_argnames: str | Sequence[str] = (),
) -> Any:
    """Compile a plain NumPy function; works as a decorator with or without arguments.

    The function is run once with recording arrays for each kind of arguments (dtypes, ranks, dimensions of size 1);
    its reductions are fused, emitted, compiled and cached. Lengths are run-time arguments:
    a new length compiles nothing.

    Parameters
    ----------
    target
        None or "auto": a CUDA kernel for arrays of CuPy and CUDA tensors of PyTorch (docs/gpu.md), a C kernel for all
        others. "c", "cuda": one of these, said explicitly. "interpret": the NumPy interpreter of the tile program, for
        debugging. "cuda-host": a CUDA kernel, run on this machine's CPU with every access checked, for tests of kernels
        without a GPU.
    numerics
        "stable" (default), "fast" (the cheapest form found, which may have a larger stated error bound: see
        `explain(..., frontier=True)`), "reference" (float64 inside).
    allow
        names of approximate rule groups that may be used; none by default.
    rules
        the rule set to derive with; `rf.rules.default` by default.
    require
        "one-pass" raises `rf.NotFusible` instead of running in several passes.
    empty
        "nan" (default, as NumPy): a quotient whose mass has no live element is 0/0 = NaN; "zero": it is 0.
    acc_dtype
        "float64" computes in float64 whatever the inputs are; None follows the inputs.
    tune
        True or `rf.Tuning(candidates=12, seconds=5.0)`: the first call of a kernel times other schedules on its arrays
        and keeps the fastest, on disk too (docs/tuning.md).
    static_argnames
        parameters that are part of the program (a flag, k): a new value compiles anew. Strings and None always are, and
        a Python number or tuple that the function uses as an axis, a shape or a condition becomes so by itself.

    Raises
    ------
    SettingError
        for an option value that does not exist.
    ArgumentError
        for a class, a function of NumPy, and parameters that cannot be compiled (`*args`, `out`).
    """
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    allowed = (allow,) if isinstance(allow, str) else tuple(allow)
    tuning = Tuning() if tune is True else None if tune is False else tune
    options = Options(target or "auto", numerics, allowed, rules, require, empty, acc_dtype, tuning)

    def compile_(f: Any) -> Fused:
        return fused_again(f, options, names) if isinstance(f, Fused) else Fused(checked_function(f), options, names)

    return compile_ if fn is None else compile_(fn)


def fused_again(fused: Fused, options: Options, static_argnames: Sequence[str]) -> Fused:
    """A fused function that is fused again: itself, or one with the options that differ from the usual ones."""
    usual = Options()
    changed = {f.name: getattr(options, f.name) for f in fields(Options)
               if getattr(options, f.name) != getattr(usual, f.name)}
    if not changed and not static_argnames:
        return fused
    return Fused(fused.fn, replace(fused.options, **changed), static_argnames or fused.static_argnames)


def spec(shape: int | str | Sequence[int | str], dtype: Any = "float64") -> Spec:
    """Stands for an array in `explain` and `lower`: a shape and a dtype. A size may be a string (a symbolic size).

    Raises
    ------
    ShapeError, DTypeError
        for a negative size, a size name that is no identifier, an unsupported dtype.
    ArgumentError
        for a shape that is no sequence.
    """
    try:
        entries = (shape,) if isinstance(shape, (int, str)) else tuple(shape)
    except TypeError:
        raise ArgumentError(f"argument 'shape' of rf.spec is {shape!r}; give a tuple of sizes") from None
    return Spec(entries, supported_dtype(dtype, "argument 'dtype' of rf.spec").name)
