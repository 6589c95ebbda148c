"""Devices as the cost model sees them: peak rates by class of instruction, memories, from `extract/devices/*.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from redfuser.extract.profile import Profile, table_names, table_of

CPU_SLOTS = {"fma": 1.0, "matmul": 1.0, "div": 9.0, "special": 14.0, "libm": 600.0, "compare": 1.0, "shuffle": 2.0}
"""Vector instructions that one operation takes, in units of a multiply-add: a polynomial exp costs about one cycle per
element where two vectors of eight multiply-adds finish per cycle. A call of the C library takes 20 ns per number."""
GPU_SLOTS = {"fma": 1.0, "matmul": 1.0, "div": 8.0, "special": 2.0, "libm": 2.0, "compare": 0.0, "shuffle": 0.0}
"""The same on a GPU, where a unit of its own computes the special functions, and comparisons have their own rate."""
GPU_SPECIAL = {"div": 1.0, "special": 1.0, "libm": 1.0}
"""Results of the unit for special functions per operation."""
CPU_START_US = 5.0
"""From a call to the first element, in a kernel that is loaded."""
ALIASES = {"sse2": "x86_64_16", "avx2": "x86_64_32", "avx512": "x86_64_64"}


@dataclass(frozen=True)
class Device:
    """One device. Rates in 1e9 per second for the whole device, sizes in bytes.

    units       cores or streaming multiprocessors
    rates       dtype -> multiply-adds
    matrix      dtype -> multiply-adds of matrix products, where there is a unit for them
    slots       class of operation -> multiply-add slots it takes
    own         resource name -> (rate, class -> results it takes): units beside the multiply-add pipes
    dram, cache read bandwidth of memory and of the last cache in 1e9 bytes/s
    cache_size  bytes of the last cache
    chip        bytes of fast memory per unit: the second cache of a core, registers and shared memory
    lanes       bytes that work in step: a vector register, or the 32 threads of a warp
    start_us    microseconds before the first element
    """

    name: str
    kind: str
    units: int
    rates: Mapping[str, float]
    matrix: Mapping[str, float]
    slots: Mapping[str, float]
    own: Mapping[str, tuple[float, Mapping[str, float]]]
    dram: float
    cache: float
    cache_size: int
    chip: int
    lanes: int
    start_us: float

    @staticmethod
    def load(name: str) -> Device:
        """The device of `extract/devices/<name>.toml`; also by the names sse2, avx2, avx512.

        Raises
        ------
        ValueError
            naming the device, when there is none or its file is incomplete.
        """
        known = ALIASES.get(name, name)
        table = table_of(known)
        if table is None:
            raise ValueError(f"no device {name!r}; available: {', '.join(devices())}")
        if table.get("kind") != "gpu":
            return Device.of_core(Profile.load(known), name)
        try:
            return _gpu(name, table)
        except KeyError as missing:
            raise ValueError(f"device {name!r}: {missing.args[0]} is missing") from None

    @staticmethod
    def of_core(profile: Profile, name: str) -> Device:
        """A CPU: `profile.threads` cores of a profile."""
        cores = profile.threads
        single = profile.gflops / 2 * cores
        return Device(
            name, "cpu", cores, {"float32": single, "float64": single / 2}, {}, CPU_SLOTS, {},
            profile.dram_gbs * cores, profile.l3_gbs * cores, profile.llc, profile.l2,
            profile.vector_bytes, CPU_START_US,
        )  # fmt: skip

    def rate(self, dtype: str) -> float:
        """Multiply-adds per second, 1e9; a dtype without a rate of its own runs in float32."""
        return self.rates.get(dtype, self.rates["float32"])


def _gpu(name: str, table: Mapping[str, Any]) -> Device:
    units, clock, per_clock = table["units"], table["clock_ghz"], table["per_clock"]
    own: dict[str, tuple[float, Mapping[str, float]]] = {
        "special functions": (units * clock * per_clock["special"], GPU_SPECIAL),
        "comparisons": (units * clock * per_clock["compare"], {"compare": 1.0}),
        "shuffles": (units * clock * per_clock["shuffle"], {"shuffle": 1.0}),
    }
    return Device(
        name, "gpu", units, {k: v * 500 for k, v in table["tflops"].items()},
        {k: v * 500 for k, v in table["matrix_tflops"].items()}, GPU_SLOTS, own, table["dram_gbs"], table["cache_gbs"],
        table["cache"], table["registers"] + table["shared"], 128,
        table["launch_us"],
    )  # fmt: skip


def devices() -> list[str]:
    """Names that `Device.load` knows."""
    return sorted([*table_names(), *ALIASES])

