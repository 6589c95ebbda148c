"""How many blocks of a kernel a multiprocessor holds at once, by the limits that CUDA documents per compute capability.

The formula is that of CUDA's own header (cuda_occupancy.h): warps, blocks, registers and shared memory each allow some
number of blocks, and the least of them counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from redfuser.extract.choose import round_up

WARP = 32
REGISTERS = 65536
"""Registers of a multiprocessor, and the most that a block may have."""
MOST_REGISTERS = 255
"""Most registers of a thread."""
PARTITIONS = 4
"""Parts of a multiprocessor with registers of their own: a warp lives in one of them."""
REGISTER_UNIT = 256
"""Registers are handed to warps in multiples of this."""
SHARED_UNIT = 128
"""Bytes of shared memory are handed to blocks in multiples of this."""
SHARED_RESERVED = 1024
"""Bytes of shared memory that every block costs beside its own."""
MOST_THREADS = 1024
"""Most threads of a block."""


@dataclass(frozen=True)
class Limits:
    """Limits of one compute capability: resident warps and blocks of a multiprocessor, bytes of shared memory of a
    multiprocessor and of one block."""

    warps: int
    blocks: int
    shared: int
    block_shared: int


LIMITS = {
    80: Limits(64, 32, 164 << 10, 163 << 10),
    86: Limits(48, 16, 100 << 10, 99 << 10),
    89: Limits(48, 24, 100 << 10, 99 << 10),
    90: Limits(64, 32, 228 << 10, 227 << 10),
    100: Limits(64, 32, 228 << 10, 227 << 10),
    120: Limits(48, 24, 100 << 10, 99 << 10),
}
"""Compute capability -> its limits, from the table of the CUDA programming guide."""


@dataclass(frozen=True)
class Occupancy:
    """What a multiprocessor holds of one kernel at once.

    blocks, warps  of the kernel; 0 where a block does not fit at all
    most           warps that it could hold
    limits         what allows no more: "warps", "blocks", "registers", "shared memory"
    """

    blocks: int
    warps: int
    most: int
    limits: tuple[str, ...]

    @property
    def share(self) -> float:
        """Warps, as a part of what is possible."""
        return self.warps / self.most

    def __str__(self) -> str:
        blocks = f"{self.blocks} block{'s' * (self.blocks != 1)}"
        return f"{blocks}, {self.warps} of {self.most} warps ({self.share:.0%}), limited by {' and '.join(self.limits)}"


def occupancy(capability: int, threads: int, registers: int, shared: int) -> Occupancy:
    """What a multiprocessor holds of a kernel.

    Parameters
    ----------
    capability : 80 for sm_80
    threads : of a block
    registers : of a thread
    shared : bytes of shared memory of a block, static and dynamic

    Raises
    ------
    ValueError
        for a compute capability whose limits are not known here; the message lists those that are.
    """
    limits = LIMITS.get(capability)
    if limits is None:
        raise ValueError(f"no limits are known for compute capability {capability / 10}; known are those of "
                         + ", ".join(f"sm_{c}" for c in LIMITS))
    warps = -(-threads // WARP)
    allowed = {
        "warps": limits.warps // warps if threads <= MOST_THREADS else 0,
        "blocks": limits.blocks,
        "registers": _by_registers(warps, registers),
        "shared memory": _by_shared(limits, shared),
    }
    blocks = min(allowed.values())
    return Occupancy(blocks, blocks * warps, limits.warps, tuple(n for n, b in allowed.items() if b == blocks))


def _by_registers(warps: int, registers: int) -> int:
    """Blocks that the registers allow; a launch is checked as if every partition got the same number of warps."""
    of_warp = round_up(registers * WARP, REGISTER_UNIT)
    if registers > MOST_REGISTERS or of_warp * round_up(warps, PARTITIONS) > REGISTERS:
        return 0
    resident = REGISTERS // PARTITIONS // max(1, of_warp) * PARTITIONS
    return resident // warps


def _by_shared(limits: Limits, shared: int) -> int:
    """Blocks that the shared memory allows."""
    if shared > limits.block_shared:
        return 0
    return limits.shared // round_up(shared + SHARED_RESERVED, SHARED_UNIT)
