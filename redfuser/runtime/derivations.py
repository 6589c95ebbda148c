"""The disk cache of derivations: a new process need not load the equality-saturation engine for a cascade known before.

An entry is never trusted: its checksum and key must agree, only classes of this package are read back, and the fused
form is certified again (random streams, milliseconds) before its first use. Whatever is wrong with the cache, the
cascade is derived as if there were none.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from redfuser import settings as environment
from redfuser.derivation import Derivation, certify
from redfuser.derivation.derive import Settings
from redfuser.ir import Cascade, Node
from redfuser.logs import runtime as log
from redfuser.rules import RuleSet
from redfuser.rules.theory import law_text
from redfuser.runtime.cache import cache_directory, digest

_CONTAINERS = frozenset({("builtins", "frozenset"), ("builtins", "set"), ("fractions", "Fraction")})
_PACKAGES = frozenset({"redfuser.ir", "redfuser.derivation"})
"""What may stand in an entry: classes of these packages, and those of Python that they hold."""


def derived(cascade: Cascade, settings: Settings, derive: Callable[[], Derivation]) -> Derivation:
    """The derivation of a cascade under settings: from the cache, else by `derive`, which is then kept.

    Raises
    ------
    SettingError
        when `$REDFUSER_DERIVATIONS` is neither on nor off.
    """
    if not environment.switch(environment.DERIVATIONS, default=True):
        return derive()
    key = key_of(cascade, settings)
    found = _recall(key, settings)
    if found is not None and found.cascade == cascade and certify(found.fused, rounding=not found.approximate).valid:
        log.info("the derivation of %s was kept on disk", cascade.name)
        return found
    made = derive()
    if made.certificate.valid and not any(s.outcome == "time" for s in made.timeline):
        # what could not be decided is not worth keeping, and a slow moment of this machine must not decide for later
        _keep(key, made)
    return made


def key_of(cascade: Cascade, settings: Settings) -> str:
    """A key of everything a derivation depends on: the cascade with its names, the laws, limits, preferences, and the
    code that derives."""
    preferences = (f"{f.name}={getattr(settings, f.name)}" for f in fields(settings) if f.name != "rules")
    return digest(code_version(), spelled(cascade), _laws(settings.rules), *preferences)


@lru_cache(maxsize=8)
def _laws(rules: RuleSet) -> str:
    """The laws as the engine reads them."""
    return "\n".join(law_text(law, law.phase) for law in rules)


def spelled(x: Any) -> str:
    """A text that tells any two different trees apart (`str` of an expression writes 1 and True alike)."""
    if isinstance(x, Node):
        return f"{type(x).__name__}({','.join(spelled(getattr(x, name)) for name in x._names)})"
    if isinstance(x, tuple):
        return f"({','.join(map(spelled, x))})"
    return f"{type(x).__name__}:{x!r}"


@lru_cache(maxsize=1)
def code_version() -> str:
    """The engine's version, and the state of the code that derives: an edited rule or search makes all entries old."""
    from importlib.metadata import version

    import redfuser.derivation
    import redfuser.ir
    import redfuser.rules

    return f"{version('egglog')} {code_state(redfuser.derivation, redfuser.ir, redfuser.rules)}"


def code_state(*packages: ModuleType) -> str:
    """A text that changes when a source file of these packages does."""
    folders = [Path(p) for m in packages for p in m.__path__]
    files = sorted(f for folder in folders for f in folder.glob("*.py"))
    return str([(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files])


def _file(key: str) -> Path:
    return cache_directory() / f"{key}.derivation"


def _recall(key: str, settings: Settings) -> Derivation | None:
    """The entry of a key; None when there is none that can be read."""
    try:
        raw = _file(key).read_bytes()
        checksum, body = raw[:32], raw[32:]
        if hashlib.sha256(key.encode() + body).digest() != checksum:
            return None
        found = _Reader(io.BytesIO(body)).load()
        if not isinstance(found, Derivation):
            return None
        return replace(found, settings=replace(found.settings, rules=settings.rules))
    except Exception:  # a damaged entry, an older class, an unreadable directory: derive instead
        return None


def _keep(key: str, made: Derivation) -> None:
    """Write an entry: all of it or nothing, and no error if that is impossible."""
    with suppress(OSError, pickle.PicklingError, TypeError, AttributeError):
        bare = replace(made.settings, rules=None)  # type: ignore[arg-type]  # the caller has them
        body = pickle.dumps(replace(made, settings=bare))
        directory = cache_directory()
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=directory, delete=False) as file:
            try:
                file.write(hashlib.sha256(key.encode() + body).digest() + body)
                file.close()
                os.replace(file.name, _file(key))
            except OSError:
                os.unlink(file.name)
                raise


class _Reader(pickle.Unpickler):
    """Reads back classes of this package and plain containers, nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """The class, if it may be read.

        Raises
        ------
        pickle.UnpicklingError
            for anything else.
        """
        if (module, name) in _CONTAINERS or ".".join(module.split(".")[:2]) in _PACKAGES:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into a derivation")
