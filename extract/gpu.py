"""GPUs as schedules see them: the numbers of `extract/devices/*.toml` that decisions read."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from redfuser.errors import SettingError
from redfuser.extract.occupancy import LIMITS
from redfuser.extract.profile import table_names, table_of

BLOCK_SHARED = {capability: limits.block_shared for capability, limits in LIMITS.items()}
"""Compute capability -> bytes of shared memory that one block may have."""
STATIC_SHARED = 48 << 10
"""Bytes of shared memory that a block has without asking for more."""
EXACT = (90,)
"""Compute capabilities whose text is compiled for this architecture alone (sm_90a): it has instructions that no other
has."""
ARCHITECTURES = (80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121)
"""Compute capabilities, as in sm_80, that kernels are made for."""
LEAST_CAPABILITY = ARCHITECTURES[0]
"""Compute capability of the oldest GPUs that kernels are made for."""
DEFAULT = "a100"


@dataclass(frozen=True)
class Gpu:
    """One GPU. units: streaming multiprocessors; shared: bytes that one block may have; cache: bytes of level 2."""

    name: str
    arch: str
    units: int
    shared: int
    cache: int

    @property
    def capability(self) -> int:
        """80 for sm_80."""
        return int(re.sub(r"\D", "", self.arch))

    @staticmethod
    def load(name: str) -> Gpu:
        """The GPU of `extract/devices/<name>.toml`.

        Raises
        ------
        ValueError
            naming those that exist.
        """
        table = table_of(name)
        if table is None or table.get("kind") != "gpu":
            raise ValueError(f"no GPU {name!r}; known are {', '.join(gpus())}")
        arch = str(table["arch"])
        shared = min(int(table["shared"]), BLOCK_SHARED.get(int(arch[3:]), STATIC_SHARED))
        return Gpu(name, arch, int(table["units"]), shared, int(table["cache"]))

    @staticmethod
    def of(name: str | None) -> Gpu:
        """By the name of a device, or of an architecture: the first known device of it, else the numbers of a similar
        one.

        Raises
        ------
        SettingError
            (a ValueError) for a name that is neither.
        """
        if name is None or str(name).lower() in gpus():
            return Gpu.load(str(name or DEFAULT).lower())
        match = re.fullmatch(r"sm_(\d+)[af]?", str(name))
        if match is None or int(match.group(1)) not in ARCHITECTURES:
            numbers = ", ".join(f"sm_{n}" for n in ARCHITECTURES)
            raise SettingError(f"arch={name!r} is no GPU that kernels are made for; known are {', '.join(gpus())} and "
                               f"{numbers}, sm_90a")
        capability = int(match.group(1))
        known = [Gpu.load(n) for n in gpus()]
        alike = [g for g in known if g.capability == capability]
        if alike:
            return replace(alike[0], arch=name)
        nearest = min(known, key=lambda g: (abs(g.capability // 10 - capability // 10),
                                            abs(g.capability - capability), g.name))
        return replace(nearest, arch=name, shared=BLOCK_SHARED.get(capability, STATIC_SHARED))


    @staticmethod
    def found(capability: int, units: int, shared: int, cache: int) -> Gpu:
        """A device by its own numbers; with the name of a known one of this capability and as many units.

        capability : 80 for compute capability 8.0
        shared : bytes of shared memory that one block may ask for
        """
        named = [g.name for g in map(Gpu.load, gpus()) if (g.capability, g.units) == (capability, units)]
        arch = arch_of(capability)
        return Gpu(named[0] if named else arch, arch, units, shared, cache)


def arch_of(capability: int) -> str:
    """The architecture that text for a device is compiled for: sm_90a for compute capability 9.0, else sm_86 and so
    on."""
    return f"sm_{capability}" + "a" * (capability in EXACT)


def gpus() -> list[str]:
    """Names of the GPUs."""
    return [n for n in table_names() if (table_of(n) or {}).get("kind") == "gpu"]
