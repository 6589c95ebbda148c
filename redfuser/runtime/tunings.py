"""The disk cache of tuned choices: which options were the fastest for a kernel problem on a machine.

An entry only says how to run, never what to compute: any options give a correct kernel. One that is damaged, or was
written for another problem, counts as missing. Entries lie beside the kernels (`redfuser.runtime.cache`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from redfuser.derivation.fusion import FusedCascade
from redfuser.extract import Options, Profile
from redfuser.ir import MONOIDS, OPS
from redfuser.runtime.cache import cache_directory, digest
from redfuser.runtime.compiler import Compiler
from redfuser.runtime.derivations import code_state, spelled
from redfuser.runtime.machine import cpu_model

MOST = 1 << 40
"""No option is larger."""
CHOSEN, FASTER, SAME, SLOWER, DROPPED = "chosen", "faster", "within noise", "slower", "dropped"
"""What became of a candidate, beside the default: taken, faster than that too, too near to tell, slower, given up after
its first run."""


@dataclass(frozen=True)
class Trial:
    """A candidate that was timed. seconds: median of its runs; ratio: how many times as fast as the default, by pairs
    of runs; predicted: by the model."""

    options: Options
    seconds: float
    ratio: float
    predicted: float
    outcome: str


@dataclass(frozen=True)
class Choice:
    """The outcome of a tuning.

    options  the chosen ones; those without a wish are the cost model's
    gain     how many times as fast as the cost model's choice
    default  seconds of that
    when     the date on which candidates were timed
    left     candidates for which no time was left
    """

    options: Options
    gain: float
    default: float
    predicted: float
    when: str
    trials: tuple[Trial, ...]
    left: int = 0


def problem_key(fused: FusedCascade, dtype: str, layouts: Mapping[str, str | None], sizes: Mapping[str, int],
                exact: frozenset[str], profile: Profile, compiler: Compiler, version: str) -> str:
    """The key of a kernel problem on a machine: cascades that differ in names alone have the same.

    Parameters
    ----------
    sizes : length of every axis; rounded up to a power of two but for the axes in `exact`
    profile : with vector width, caches and threads
    version : of redfuser
    """
    names = _names(fused)
    rounded = {a: n if a in exact else octave(n) for a, n in sizes.items()}
    shape = sorted((names.get(a, a), a in exact, n) for a, n in rounded.items())
    lying = sorted((names.get(t, t), names.get(a or "", a)) for t, a in layouts.items())
    nameless = replace(fused, cascade=replace(fused.cascade, name=""), conditions=())
    problem = _renamed(spelled(nameless), names)
    machine = (cpu_model(), str(profile), " ".join(compiler.command), compiler.version)
    return digest(version, _code(), problem, dtype, str(lying), str(shape), *machine)


def octave(n: int) -> int:
    """The smallest power of two that is not below a length; 0 for 0."""
    return 1 << (n - 1).bit_length() if n else 0


def _names(fused: FusedCascade) -> dict[str, str]:
    """Names of a fused cascade -> numbered ones, by first appearance; names that operators have stay."""
    c = fused.cascade
    own = [*(a.name for a in c.axes), *(t.name for t in c.tensors), *(p.name for p in c.producers),
           *(r.name for r in c.reductions), *(o.name for o in c.outs), *(a.name for a in fused.accumulators),
           *(d.name for d in fused.dependencies), *(n for n, _ in fused.epilogue)]
    reserved = {*OPS, *MONOIDS}
    distinct = dict.fromkeys(n for n in own if n not in reserved)
    return {name: f"#{i}" for i, name in enumerate(distinct)}


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """A spelled tree with other names."""
    for name, other in names.items():
        text = text.replace(f"str:{name!r}", f"str:{other!r}")
    return text


@lru_cache(maxsize=1)
def _code() -> str:
    """The state of the code that plans and prints kernels: an edited schedule makes all entries old."""
    import redfuser.codegen
    import redfuser.codegen.c
    import redfuser.codegen.passes
    import redfuser.extract

    return code_state(redfuser.codegen, redfuser.codegen.c, redfuser.codegen.passes, redfuser.extract)


def _file(key: str) -> Path:
    return cache_directory() / f"{key}.tuning"


def recall(key: str) -> Choice | None:
    """The entry of a key; None when there is none that can be read."""
    try:
        checksum, _, body = _file(key).read_text(encoding="utf-8").partition("\n")
        if _checksum(key, body) != checksum:
            return None
        return _choice(json.loads(body))
    except Exception:  # a damaged entry, an older format, an unreadable directory: time again
        return None


def keep(key: str, choice: Choice) -> None:
    """Write an entry: all of it or nothing, and no error if that is impossible."""
    body = json.dumps(asdict(choice))
    with suppress(OSError):
        directory = cache_directory()
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=directory, delete=False, encoding="utf-8") as file:
            try:
                file.write(f"{_checksum(key, body)}\n{body}")
                file.close()
                os.replace(file.name, _file(key))
            except OSError:
                os.unlink(file.name)
                raise


@contextmanager
def alone(key: str, seconds: float) -> Iterator[None]:
    """Of several processes only one times a problem; the others wait, but no longer than `seconds`."""
    from filelock import FileLock, Timeout

    lock: Any = None
    with suppress(OSError, NotImplementedError, Timeout):  # no lock, no wait
        cache_directory().mkdir(parents=True, exist_ok=True)
        lock = FileLock(cache_directory() / f"{key}.tuning.lock")
        lock.acquire(timeout=seconds)
    try:
        yield
    finally:
        if lock is not None and lock.is_locked:
            lock.release()


def _checksum(key: str, body: str) -> str:
    return hashlib.sha256((key + body).encode()).hexdigest()


def _choice(found: Mapping[str, Any]) -> Choice:
    """An entry as it was written. Raises for anything else."""
    numbers = {n: _number(found[n]) for n in ("gain", "default", "predicted")}
    trials = tuple(Trial(_options(t["options"]), _number(t["seconds"]), _number(t["ratio"]), _number(t["predicted"]),
                         _text(t["outcome"])) for t in found["trials"])
    return Choice(_options(found["options"]), **numbers, when=_text(found["when"]), trials=trials,
                  left=_count(found["left"]))


def _options(found: Mapping[str, Any]) -> Options:
    """Options of an entry; values that no schedule could have are refused."""
    read: dict[str, Callable[[Any], Any]] = {
        "block": _positive, "tile": _positive, "register_tile": lambda x: (_positive(x[0]), _positive(x[1])),
        "pack": _truth, "chunk": _count, "strategy": _text,
    }
    return Options(**{name: None if found[name] is None else how(found[name]) for name, how in read.items()})


def _number(x: Any) -> float:
    if not isinstance(x, (int, float)) or isinstance(x, bool) or not math.isfinite(x):
        raise ValueError(x)
    return float(x)


def _count(x: Any) -> int:
    if not isinstance(x, int) or isinstance(x, bool) or not 0 <= x <= MOST:
        raise ValueError(x)
    return x


def _positive(x: Any) -> int:
    if _count(x) < 1:
        raise ValueError(x)
    return int(x)


def _truth(x: Any) -> bool:
    if not isinstance(x, bool):
        raise ValueError(x)
    return x


def _text(x: Any) -> str:
    if not isinstance(x, str):
        raise ValueError(x)
    return x
