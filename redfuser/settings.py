"""Settings that the environment gives: each is read here, and a value without a meaning is an error."""

from __future__ import annotations

import os

from redfuser.errors import SettingError

CHECK = "REDFUSER_CHECK"
"""On: conditions stated by `rf.assume` are verified in every call."""
DERIVATIONS = "REDFUSER_DERIVATIONS"
"""Off: every process derives anew."""
LOGS = "REDFUSER_LOGS"
"""Which levels of the compiler tell what they do, see `redfuser.logs`."""
THREADS = "REDFUSER_NUM_THREADS"
"""How many threads kernels use."""
POOL = "REDFUSER_POOL_MB"
"""Megabytes of memory of earlier results that are kept for later ones; 0 keeps none."""

_ON = ("1", "on", "yes", "true")
_OFF = ("0", "off", "no", "false")


def switch(variable: str, *, default: bool) -> bool:
    """What a variable that is on or off says; unset or empty it is `default`.

    Raises
    ------
    SettingError
        for any other value, with the values that exist.
    """
    text = os.environ.get(variable, "").strip().lower()
    if text in _ON or text in _OFF:
        return text in _ON
    if text:
        raise _wrong(variable, text, f"{', '.join(_ON)} or {', '.join(_OFF)}")
    return default


def count(variable: str, least: int = 1) -> int | None:
    """The integer of at least `least` that a variable holds; None when it is unset or empty.

    Raises
    ------
    SettingError
        for any other value.
    """
    text = os.environ.get(variable, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or int(text) < least:
        raise _wrong(variable, text, "a positive integer" if least else "an integer, 0 or more")
    return int(text)


def _wrong(variable: str, text: str, choices: str) -> SettingError:
    return SettingError(f"the environment variable {variable} is {text!r}; set it to {choices}, or unset it")
