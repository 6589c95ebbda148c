"""`check_fusion`: the definition against every level that computes the same thing, on inputs that break kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from typing import Any

import numpy as np

from redfuser.derivation import Cascade as MathCascade
from redfuser.derivation import FusedCascade, run_fused
from redfuser.errors import ArgumentError, NoCompiler, SettingError
from redfuser.ir import Cascade
from redfuser.ir.contract import Expected, expected_results
from redfuser.ir.dtypes import is_float
from redfuser.ir.views import stream_length
from redfuser.testing.inputs import KINDS
from redfuser.testing.minimise import minimise
from redfuser.testing.subjects import Arrays, CascadeSubject, FunctionSubject, Levels, Subject
from redfuser.testing.text import arrays_text

TARGETS = ("interpret", "c")
"""The compiled forms: the tile program in NumPy, the kernel in C."""
CUDA_HOST = "cuda-host"
"""A further one: the kernel in CUDA, on the executor that checks every access."""
ALL_TARGETS = (*TARGETS, CUDA_HOST)

GIVEN_FORM = "# fused: the form that was given to check_fusion"
"""The line of a snippet in the place of the derivation."""

MOST_PARTS = 17
"""The stream is split into 1 to this many parts."""

LESS = 64
"""The error of wrong algebra does not shrink this much in longdouble, whose eps is 2^-11 of that of float64."""

SINGLE_ELEMENTS = 9
"""Streams up to this length are split into single elements as well."""


@dataclass(frozen=True)
class Way:
    """One way to compute: a level, and for the fusion level how the stream is split.

    level  "definition", "stream", "merge", or a target
    parts  number of parts (boundaries drawn from `seed`, parts may be empty); 0: one element each
    """

    level: str
    parts: int = 1
    seed: int = 0

    def __str__(self) -> str:
        if self.level not in ("stream", "merge"):
            known = {"interpret": "tile interpreter", "c": "compiled kernel", CUDA_HOST: "CUDA on the host"}
            return known.get(self.level, self.level)
        parts = "single elements" if not self.parts else f"{self.parts} parts"
        return f"stream of {parts}" if self.level == "stream" else f"random merge tree over {parts}"

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of `run_fused`; `parts` of 0 becomes chunks of one element once the length is known."""
        return {"chunks": self.parts, "seed": self.seed, "tree": self.seed if self.level == "merge" else None}


@dataclass(frozen=True)
class Counterexample:
    """An input on which a level breaks the contract.

    way      the level, and how the stream was split
    name     the result that is wrong ("" for an exception)
    arrays   the input, minimised
    got, want, allowed
             the result, the definition in longdouble, the error that the contract allows
    error    text of the exception, "" for a wrong value
    snippet  Python text that reproduces it
    excess   the error in units of what is allowed
    exact    computed the same way in longdouble the error nearly vanishes: the algebra is right, rounding spoils it
    """

    way: Way
    name: str
    arrays: Mapping[str, Any]
    got: Any
    want: Any
    allowed: Any
    error: str
    snippet: str
    excess: float = 0.0
    exact: bool = False

    @property
    def kind(self) -> str:
        """"exception", "unsound" (the algebra is wrong) or "inaccurate" (only the rounding error is too large)."""
        return "exception" if self.error else "inaccurate" if self.exact else "unsound"

    def __str__(self) -> str:
        head = (f"{self.way} raised {self.error}" if self.error else
                f"{self.way}: {self.name} is {_short(self.got)}, by definition {_short(self.want)} "
                f"(within {_short(self.allowed)})")
        if self.exact:
            head += f"; right over the reals, but off by {self.excess:.3g} times what the contract allows"
        return f"{head}\n\n{self.snippet}"


def _short(value: Any) -> str:
    return np.array2string(np.asarray(value, float), precision=9, threshold=8, separator=", ").replace("\n", "")


@dataclass(frozen=True, repr=False)
class FusionCheck:
    """Result of `check_fusion`: ok, the minimised counterexample or None, and what was checked, one line each."""

    ok: bool
    counterexample: Counterexample | None
    steps: tuple[str, ...]

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        word = "ok" if self.ok else "FAILED"
        lines = "\n".join(f"  {s}" for s in self.steps)
        return f"{word}\n{lines}" + (f"\n\n{self.counterexample}" if self.counterexample else "")

    __repr__ = __str__


@dataclass
class _Failure:
    name: str
    got: Any = None
    want: Any = None
    allowed: Any = None
    error: str = ""
    excess: float = 0.0


@dataclass
class _Tally:
    """How often a level ran, and its largest error in units of what the contract allows."""

    runs: int = 0
    worst: float = 0.0
    kinds: dict[str, None] = field(default_factory=dict)


def check_fusion(fn_or_cascade: Callable[..., Any] | Cascade | MathCascade, *arrays_or_specs: Any, seed: int = 0,
                 trials: int = 22, kinds: Sequence[str] = KINDS,
                 targets: Sequence[str] = TARGETS, strict: bool = False,
                 fused: FusedCascade | None = None, shrink: bool = True, thorough: bool = True) -> FusionCheck:
    """Compare the definition with the fused stream, random merge trees, the tile interpreter and the compiled kernel.

    Parameters
    ----------
    fn_or_cascade
        a plain NumPy function (or one already wrapped by `rf.fuse`), or a cascade.
    arrays_or_specs
        arguments of the function, as arrays or specs (`rf.spec`); of a cascade: arrays in the order of its tensors,
        or none. Arrays are the first input tried, further ones have the same dtypes and ranks and random lengths.
    seed, trials
        the inputs tried: `trials` of them, going through `kinds`.
    kinds
        kinds of inputs (`redfuser.testing.inputs.KINDS`, all by default).
    targets
        which compiled forms to check: "interpret" (tile program), "c" (kernel), or neither.
    strict
        True: where an input is infinite, an infinite result must be infinite. By default NaN is accepted in its place:
        a correction multiplies the infinity by a change that may be 0.
    fused
        a fused form of the cascade to check instead of the derived one.
    shrink
        minimise the counterexample.
    thorough
        split the stream of each input in five ways; False: in two, of which every other input takes the finest.

    Raises
    ------
    SettingError
        for an unknown target or kind.
    ArgumentError
        for what is neither a function nor a cascade, another number of arrays than a cascade has, or `fused` with a
        function.
    NoCompiler
        when "c" is among the targets and this machine has no compiler.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise SettingError(f"kinds={tuple(kinds)!r}: {kind!r} is not one of {', '.join(map(repr, KINDS))}")
    for t in targets:
        if t not in ALL_TARGETS:
            raise SettingError(f"targets={tuple(targets)!r}: {t!r} is not one of {', '.join(map(repr, ALL_TARGETS))}")
    subject = _subject(fn_or_cascade, arrays_or_specs, targets, fused)
    tally: dict[str, _Tally] = {}
    for k, (arrays, kind) in enumerate(_inputs(subject, seed, trials, kinds)):
        ways = list(_ways(subject, arrays, np.random.default_rng((seed, k, 1)), targets))
        ways = ways if thorough else _few(ways, k)
        found = _examine(subject, arrays, kind, ways, strict, tally)
        if found is not None:
            return FusionCheck(False, _counterexample(subject, arrays, *found, strict, shrink), _steps(tally))
    return FusionCheck(True, None, _steps(tally))


def _subject(what: Any, arguments: Sequence[Any], targets: Sequence[str], fused: FusedCascade | None) -> Subject:
    if isinstance(what, MathCascade):
        what = what.build()
    if isinstance(what, Cascade):
        if arguments and len(arguments) != len(what.tensors):
            raise ArgumentError(f"cascade {what.name} takes {len(what.tensors)} arrays "
                             f"({', '.join(map(str, what.tensors))}), {len(arguments)} were given")
        return CascadeSubject(what, arguments, fused)
    if not callable(what):
        raise ArgumentError(f"check_fusion takes a function or a cascade, not {what!r}")
    if fused is not None:
        raise ArgumentError("argument 'fused' belongs to a cascade; a function is compiled as a whole")
    return FunctionSubject(what, arguments, targets)


def _inputs(subject: Subject, seed: int, trials: int, kinds: Sequence[str]) -> Iterator[tuple[Arrays, str]]:
    if subject.given is not None:
        yield subject.given, "given"
    for k, kind in enumerate(islice(cycle(kinds), trials)):
        yield subject.draw(kind, np.random.default_rng((seed, k))), kind


def _ways(subject: Subject, arrays: Arrays, rng: np.random.Generator, targets: Sequence[str]) -> Iterator[Way]:
    """The ways to compute one input: the stream whole, in many parts and in a few, as a stream and as a merge tree."""
    levels = subject.levels(arrays)
    longest = max((_stream_length(f, levels.tensors, levels.sizes) for f in levels.fused), default=1)
    finest = 0 if longest <= SINGLE_ELEMENTS else MOST_PARTS
    seeds = [int(rng.integers(1 << 30)) for _ in range(5)]
    some = [int(rng.integers(2, MOST_PARTS + 1)) for _ in range(2)]
    yield Way("definition")
    yield from (Way("stream", parts, seed) for parts, seed in zip((1, finest, some[0]), seeds[:3], strict=True))
    yield from (Way("merge", parts, seed) for parts, seed in zip((finest, some[1]), seeds[3:], strict=True))
    yield from (Way(t) for t in targets)


def _few(ways: Sequence[Way], k: int) -> list[Way]:
    """The definition, one stream, one merge tree and the targets; which ones changes from input to input."""
    streams, trees = ([w for w in ways if w.level == level] for level in ("stream", "merge"))
    kept = (streams[k % len(streams)], trees[k % len(trees)])
    return [w for w in ways if w.level not in ("stream", "merge") or w in kept]


def _examine(subject: Subject, arrays: Arrays, kind: str, ways: Sequence[Way], strict: bool,
             tally: dict[str, _Tally] | None = None) -> tuple[Way, _Failure] | None:
    """The first way that breaks the contract on an input."""
    levels = subject.levels(arrays)
    expected = expected_results(levels.cascades, levels.tensors, strict=strict, sizes=levels.sizes)
    for way in ways:
        line = _Tally() if tally is None else tally.setdefault(way.level, _Tally())
        try:
            results = _run(subject, levels, arrays, way)
        except NoCompiler:
            raise
        except Exception as error:
            return way, _Failure("", error=f"{type(error).__name__}: {error}")
        line.runs += 1
        line.kinds[kind] = None
        for name, got in results.items():
            if name not in expected:
                continue
            failure = _compare(name, np.asarray(got), expected[name])
            if failure is not None:
                return way, failure
            if tally is not None:
                line.worst = max(line.worst, expected[name].excess(np.asarray(got)))
    return None


def examine_target(subject: Subject, arrays: Arrays, target: str, kind: str = "given") -> str | None:
    """What a compiled form computes wrong on one input, in words; None when it keeps the contract."""
    found = _examine(subject, arrays, kind, [Way(target)], strict=False)
    if found is None:
        return None
    failure = found[1]
    return failure.error or (f"{failure.name} is {_short(failure.got)}, by definition {_short(failure.want)} "
                             f"(within {_short(failure.allowed)})")


def _compare(name: str, got: Any, expected: Expected) -> _Failure | None:
    if got.shape != expected.allowed.shape:
        return _Failure(name, error=f"AssertionError: {name} has shape {got.shape}, not {expected.allowed.shape}")
    if not expected.wrong(got).any():
        return None
    return _Failure(name, got, expected.accepted[0], expected.allowed, excess=expected.excess(got))


def _right_over_the_reals(subject: Subject, arrays: Arrays, way: Way, name: str, strict: bool) -> bool:
    """Whether the result is right when the same way is computed in longdouble, or its error that much smaller."""
    if way.level not in ("stream", "merge"):
        return False
    levels = subject.levels(arrays)
    wide = {k: v.astype(np.longdouble) if is_float(v.dtype) else v for k, v in levels.tensors.items()}
    expected = expected_results(levels.cascades, levels.tensors, strict=strict, sizes=levels.sizes)[name]
    got = np.asarray(_run(subject, replace(levels, tensors=wide), arrays, way, np.longdouble)[name])
    plain = np.asarray(_run(subject, levels, arrays, way)[name])
    if not expected.wrong(got).any():
        return True
    off = expected.wrong(plain)
    with np.errstate(all="ignore"):
        errors = [np.abs(np.subtract(g, expected.accepted[0], dtype=np.longdouble))[off] for g in (got, plain)]
    return bool(off.any() and errors[0].max() * LESS <= errors[1].max())


def _run(subject: Subject, levels: Levels, arrays: Arrays, way: Way, dtype: Any = None) -> dict[str, Any]:
    """Results by name, computed in one way."""
    if way.level == "definition":
        return dict(subject.direct(arrays))
    if way.level in ALL_TARGETS:
        with np.errstate(all="ignore"):
            return dict(subject.run(way.level, arrays))
    known: dict[str, Any] = dict(levels.tensors)
    results: dict[str, Any] = {}
    for fused in levels.fused:
        how = way.arguments()
        if not way.parts:
            how["chunks"] = [1] * _stream_length(fused, known, levels.sizes)
        found = run_fused(fused, known, dtype=dtype, sizes=levels.sizes, **how)
        known |= found
        results |= found
    return results


def _stream_length(fused: FusedCascade, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Length of the stream axis; 1 for a cascade without one."""
    length = stream_length(fused.cascade, arrays, sizes)
    return 1 if length is None else length


def _counterexample(subject: Subject, arrays: Arrays, way: Way, failure: _Failure,
                    strict: bool, shrink: bool) -> Counterexample:
    """The failure on the smallest input found that fails in the same way."""

    def fails(candidate: Arrays) -> bool:
        try:
            found = _examine(subject, candidate, "", [way], strict)
        except Exception:
            return False
        return found is not None and bool(found[1].error) == bool(failure.error)

    small = minimise(subject, arrays, fails) if shrink else arrays
    found = _examine(subject, small, "", [way], strict)
    least = failure if found is None else found[1]
    exact = not least.error and _right_over_the_reals(subject, small, way, least.name, strict)
    return Counterexample(way, least.name, small, least.got, least.want, least.allowed, least.error,
                          _snippet(subject, small, way, least), least.excess, exact)


def _snippet(subject: Subject, arrays: Arrays, way: Way, failure: _Failure) -> str:
    """Python text that shows the failure."""
    setup, name = subject.text()
    lines = [setup, arrays_text(arrays)]
    if isinstance(subject, CascadeSubject) and way.level in ("stream", "merge"):
        lines += ["from redfuser.derivation import derive_cascade, run_fused",
                  GIVEN_FORM if subject.is_given else
                  f"fused = derive_cascade({name}).fused",
                  f"got = run_fused(fused, arrays, {_explicit(subject, arrays, way)})",
                  f"want = run_cascade({name}, arrays, np.longdouble)",
                  _show(failure.name if failure.name in _names(subject) else "")]
    else:
        targets = (way.level,) if way.level in ALL_TARGETS else ()
        lines += ["from redfuser.testing import check_fusion",
                  f"print(check_fusion({name}, *arrays.values(), trials=0, targets={targets!r}))"]
    return "\n".join(lines)


def _show(name: str) -> str:
    return f"print(got[{name!r}], want[{name!r}])" if name else "print(got, want)"


def _names(subject: CascadeSubject) -> set[str]:
    return {r.name for r in subject.original.reductions} | {o.name for o in subject.original.outs}


def _explicit(subject: CascadeSubject, arrays: Arrays, way: Way) -> str:
    """The keyword arguments of `run_fused` that repeat a way, as text."""
    how = way.arguments()
    if not way.parts:
        how["chunks"] = [1] * _stream_length(subject.fused, arrays, {})
    return ", ".join(f"{k}={v}" for k, v in how.items() if v is not None and (k != "seed" or way.parts))


def _steps(tally: Mapping[str, _Tally]) -> tuple[str, ...]:
    names = {"definition": "the function itself", "stream": "fused stream in 1 to 17 parts and single elements",
             "merge": "random merge trees over 2 to 17 parts and single elements", "interpret": "tile interpreter",
             "c": "compiled kernel", CUDA_HOST: "CUDA on the host"}
    return tuple(f"{names[k]}: {t.runs} runs on {', '.join(t.kinds)}; largest error {t.worst:.3f} of what is allowed"
                 for k, t in tally.items() if t.runs)
