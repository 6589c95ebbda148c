"""Device profiles: the numbers about a machine that scheduling decisions read."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, replace
from importlib.resources import files
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Profile:
    """One CPU core and what it shares. Sizes in bytes, rates per core in 1e9 per second."""

    vector_bytes: int
    registers: int
    l1: int
    l2: int
    llc: int
    threads: int
    gflops: float
    l3_gbs: float
    dram_gbs: float

    def lanes(self, dtype: str) -> int:
        """Elements of `dtype` (float32 or float64) in one vector register."""
        return self.vector_bytes // np.dtype(dtype).itemsize

    def with_fields(self, **overrides: Any) -> Profile:
        """The same profile with detected fields replaced; None leaves a field as it is."""
        return replace(self, **{name: value for name, value in overrides.items() if value is not None})

    @staticmethod
    def load(name: str) -> Profile:
        """The profile of `extract/devices/<name>.toml`.

        Raises
        ------
        ValueError
            naming the profile, when it does not exist or a field is missing.
        """
        table = table_of(name)
        if table is None:
            raise ValueError(f"no device profile {name!r}; available: {', '.join(available())}")
        if table.get("kind") == "gpu":
            raise ValueError(f"device {name!r} is a GPU; profiles of CPUs: {', '.join(available())}")
        missing = {f.name for f in fields(Profile)} ^ set(table)
        if missing:
            raise ValueError(f"device profile {name!r}: missing or unknown {', '.join(sorted(missing))}")
        return Profile(**table)

    @staticmethod
    def generic(vector_bytes: int) -> Profile:
        """The generic x86-64 profile with 16-, 32- or 64-byte vectors."""
        return Profile.load(f"x86_64_{vector_bytes}")


def table_of(name: str) -> dict[str, Any] | None:
    """The table of `extract/devices/<name>.toml`; None where there is no such file."""
    file = files("redfuser.extract").joinpath("devices", f"{name}.toml")
    return tomllib.loads(file.read_text()) if file.is_file() else None


def table_names() -> list[str]:
    """Names that `table_of` knows, of CPUs and GPUs."""
    folder = files("redfuser.extract").joinpath("devices")
    return sorted(p.name.removesuffix(".toml") for p in folder.iterdir() if p.name.endswith(".toml"))


def available() -> list[str]:
    """Names of the CPU profiles."""
    return [name for name in table_names() if (table_of(name) or {}).get("kind") != "gpu"]
