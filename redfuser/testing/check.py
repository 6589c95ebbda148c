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
from redfuser.extract import Options as Decided
from redfuser.ir import Cascade
from redfuser.ir.contract import Expected, expected_results
from redfuser.ir.dtypes import is_float
from redfuser.testing.inputs import KINDS
from redfuser.testing.minimise import minimise
from redfuser.testing.result import BLOCKS, TARGETS, WORDS, Counterexample, FusionCheck, Way, short
from redfuser.testing.snippet import snippet, stream_of
from redfuser.testing.subjects import (
    NOTHING,
    Arrays,
    CascadeSubject,
    FunctionSubject,
    Given,
    Levels,
    Plant,
    Subject,
)
from redfuser.testing.targets import chosen_targets

MOST_PARTS = 17
"""The stream is split into 1 to this many parts."""

LESS = 64
"""The error of wrong algebra does not shrink this much in longdouble, whose eps is 2^-11 of that of float64."""

SINGLE_ELEMENTS = 9
"""Streams up to this length are split into single elements as well."""


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
                 trials: int = 22, kinds: Sequence[str] = KINDS, targets: Sequence[str] | str | None = None,
                 strict: bool = False, fused: FusedCascade | None = None, shrink: bool = True, thorough: bool = True,
                 schedule: Decided | None = None, plant: Plant | None = None) -> FusionCheck:
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
        which compiled forms to check: "interpret" (tile program), "blocks" (the same in short blocks; cascades only),
        "c" (kernel), "cuda-host" (kernel in CUDA, executed on the CPU; slow), or () for none. By default all but the
        last, "c" only where a compiler is found; "all" adds the last where NVRTC and a C++ compiler are found.
    strict
        True: where an input is infinite, an infinite result must be infinite. By default NaN is accepted in its place:
        a correction multiplies the infinity by a change that may be 0.
    fused
        a fused form of the cascade to check instead of the derived one.
    shrink
        minimise the counterexample.
    thorough
        split the stream of each input in five ways; False: in two, of which every other input takes the finest.
    schedule
        scheduling decisions for the compiled forms of a cascade (`redfuser.extract.Options(block=8)`).
    plant
        changes the tile program of a cascade before it is run or printed: a fault to be found.

    Raises
    ------
    SettingError
        for an unknown target or kind.
    ArgumentError
        for what is neither a function nor a cascade, another number of arrays than a cascade has, or `fused`,
        `schedule`, `plant` or the target "blocks" with a function.
    NoCompiler
        when "c" is among the targets and this machine has no compiler.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise SettingError(f"kinds={tuple(kinds)!r}: {kind!r} is not one of {', '.join(map(repr, KINDS))}")
    chosen = chosen_targets(targets, isinstance(fn_or_cascade, (Cascade, MathCascade)))
    subject = subject_of(fn_or_cascade, arrays_or_specs, chosen, Given(fused, schedule, plant))
    tally: dict[str, _Tally] = {}
    for k, (arrays, kind) in enumerate(_inputs(subject, seed, trials, kinds)):
        ways = list(_ways(subject, arrays, np.random.default_rng((seed, k, 1)), chosen))
        ways = ways if thorough else _few(ways, k)
        found = _examine(subject, arrays, kind, ways, strict, tally)
        if found is not None:
            return FusionCheck(False, _counterexample(subject, arrays, *found, strict, shrink), _steps(tally))
    return FusionCheck(True, None, _steps(tally))


def subject_of(what: Any, arguments: Sequence[Any], targets: Sequence[str], given: Given = NOTHING) -> Subject:
    """What is checked: a function or a cascade."""
    if isinstance(what, MathCascade):
        what = what.build()
    if isinstance(what, Cascade):
        if arguments and len(arguments) != len(what.tensors):
            raise ArgumentError(f"cascade {what.name} takes {len(what.tensors)} arrays "
                             f"({', '.join(map(str, what.tensors))}), {len(arguments)} were given")
        return CascadeSubject(what, arguments, given)
    if not callable(what):
        raise ArgumentError(f"check_fusion takes a function or a cascade, not {what!r}")
    if given.names:
        raise ArgumentError(f"argument {given.names[0]!r} belongs to a cascade; a function is compiled as a whole")
    if BLOCKS in targets:
        raise ArgumentError(f"target {BLOCKS!r} belongs to a cascade; a function is planned as a whole")
    return FunctionSubject(what, arguments, targets)


def _inputs(subject: Subject, seed: int, trials: int, kinds: Sequence[str]) -> Iterator[tuple[Arrays, str]]:
    if subject.given is not None:
        yield subject.given, "given"
    for k, kind in enumerate(islice(cycle(kinds), trials)):
        yield subject.draw(kind, np.random.default_rng((seed, k))), kind


def _ways(subject: Subject, arrays: Arrays, rng: np.random.Generator, targets: Sequence[str]) -> Iterator[Way]:
    """The ways to compute one input: the stream whole, in many parts and in a few, as a stream and as a merge tree."""
    levels = subject.levels(arrays)
    longest = max((stream_of(f, levels.tensors, levels.sizes) for f in levels.fused), default=1)
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
        line.runs += bool(results)
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
    return failure.error or (f"{failure.name} is {short(failure.got)}, by definition {short(failure.want)} "
                             f"(within {short(failure.allowed)})")


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
    if way.level in TARGETS:
        with np.errstate(all="ignore"):
            return dict(subject.run(way.level, arrays))
    known: dict[str, Any] = dict(levels.tensors)
    results: dict[str, Any] = {}
    for fused in levels.fused:
        how = way.arguments()
        if not way.parts:
            how["chunks"] = [1] * stream_of(fused, known, levels.sizes)
        found = run_fused(fused, known, dtype=dtype, sizes=levels.sizes, **how)
        known |= found
        results |= found
    return results


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
                          snippet(subject, small, way, least.name), least.excess, exact)


def _steps(tally: Mapping[str, _Tally]) -> tuple[str, ...]:
    return tuple(f"{WORDS[k]}: {t.runs} runs on {', '.join(t.kinds)}; largest error {t.worst:.3f} of what is allowed"
                 for k, t in tally.items() if t.runs)
