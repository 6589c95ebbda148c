"""Scheduling formulas for GPUs, as pure functions of numbers. What is not measured yet says so."""

from __future__ import annotations

from redfuser.extract.choose import round_up

WARP = 32
WARP_ROW = 1024
"""Longest row of a warp: 32 elements per thread fit into registers."""
LONGEST_ROW = 32768
"""Longest row of a block: 1024 threads with 32 elements each."""
PER_THREAD = 16
"""Elements of a row that a thread of a block holds; more threads than that asks for cost barriers."""
BLOCK = 128
"""Threads of a block that consists of several warps, each with its own task."""
VECTOR_BYTES = 16
"""Widest load of a thread."""
MOST_REGISTERS = 128
"""Registers of a thread: as many leave four blocks of 128 threads on a multiprocessor."""
MOST_WORDS = 72
"""32-bit registers of a thread that may hold elements, of `MOST_REGISTERS`."""
OWN_WORDS = 40
"""Registers that a thread needs for everything else; with 28 a softmax of 32768 elements spills."""
REGISTERS = 65536
"""Registers of a multiprocessor, which the threads of a block share."""
FILL = 2
"""Blocks per multiprocessor below which rows are split as well."""


def octave(n: int) -> int:
    """The least power of two that is at least `n`."""
    return 1 << max(0, n - 1).bit_length()


def team_threads(extent: int | None) -> int:
    """Threads for a task whose longest sweep has at most `extent` elements; None: any number.

    A warp needs no barrier, a block hides memory behind more loads. (Not measured.)
    """
    if extent is None:
        return 256
    if extent <= WARP_ROW:
        return WARP
    return 1024 if extent > 512 * 32 else max(BLOCK, min(512, octave(-(-extent // PER_THREAD))))


def register_words(team: int) -> int:
    """32-bit registers of a thread that may hold elements of rows."""
    return min(MOST_WORDS, REGISTERS // max(team, BLOCK) - OWN_WORDS)


def resident_blocks(block: int) -> int:
    """Blocks of so many threads that a multiprocessor must have room for: 512 threads with 128 registers each. Where
    nothing is said, the assembler spills registers for the sake of more."""
    return max(1, REGISTERS // (MOST_REGISTERS * block))


def teams_per_block(team: int) -> int:
    """Warps of a block; a team that is a block is alone in it."""
    return max(1, BLOCK // team) if team <= WARP else 1


def elements_per_load(itemsize: int, extent: int | None, team: int) -> int:
    """Neighbours that a thread loads at once: 16 bytes, where every thread of the team still has some."""
    wide = max(1, min(8, VECTOR_BYTES // itemsize))
    if extent is None:
        return wide
    while wide > 1 and team * wide > extent:
        wide //= 2
    return wide


def whole_row(length: int, itemsize: int, arrays: int, shared: int) -> int:
    """Longest row that stays on chip, for rows like this one: its length rounded up, so that loops have constant
    counts; less where such a row is too long.

    Parameters
    ----------
    itemsize : of an element
    arrays : rows that are kept at the same time: inputs, and one shared intermediate
    shared : bytes of shared memory of a block, for rows that registers have no room for
    """
    capacity = min(octave(max(length, WARP)), LONGEST_ROW)
    while capacity > WARP_ROW and not stays(capacity, itemsize, arrays, shared):
        capacity //= 2
    return capacity


def stays(capacity: int, itemsize: int, arrays: int, shared: int) -> bool:
    """Whether rows of this length fit into the registers and the shared memory of their team."""
    team = team_threads(capacity)
    each = -(-capacity // team) * max(1, itemsize // 4)
    left = arrays - register_words(team) // each
    return left <= 0 or left * capacity * itemsize <= shared


def stream_block(itemsize: int, streams: int) -> int:
    """Elements of a streamed row between two corrections: 16 per thread of a block of 256, fewer for many inputs."""
    return max(1024, min(4096, 16384 * 4 // (itemsize * max(1, streams)) // 1024 * 1024))


def few_rows(units: int) -> int:
    """With fewer rows than this, rows are split so that all multiprocessors work."""
    return FILL * units


def chunk(units: int, rows: int, length: int, block: int) -> int:
    """Stream elements per task of a split: about four tasks per multiprocessor, at least four blocks each."""
    wanted = -(-4 * units // max(1, rows))
    return max(4 * block, round_up(-(-length // wanted), block))


def columns_per_tile(units: int, outer: int, extent: int) -> int:
    """Columns of a task: one per thread of a block, of fewer threads where that leaves multiprocessors idle."""
    columns = BLOCK
    while columns > WARP and outer * -(-extent // columns) < FILL * units:
        columns //= 2
    return columns


def column_block() -> int:
    """Stream elements between two corrections of a column."""
    return 64
