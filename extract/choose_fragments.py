"""Formulas for tiles on matrix units, as pure functions of numbers. None of them is measured yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from redfuser.extract.choose import round_up
from redfuser.extract.choose_gpu import FILL, REGISTERS, octave

FRAGMENT_ROWS = 16
"""Rows of a fragment of matrix units."""
TILE_WARPS = 4
"""Most warps of a block that owns a tile."""
THREAD_REGISTERS = 255
"""Registers that a thread can have."""
OWN_WORDS = 100
"""Registers that a thread of a tile needs beside fragments: addresses, state of its rows, operands in flight. With 88
attention of depth 64 under a window spills, with 95 attention of depth 256."""
STREAM_BLOCKS = (64, 32, 16)
"""Stream elements of a step, the longest first: each has its scores in registers."""
LONGEST_LIST = 16
"""Places of a sorted list that the four lanes of a row keep in registers, each all of it."""
STAGES = 2
"""Matrices in shared memory per operand of a tile: one in use, the others under way."""


@dataclass(frozen=True)
class Fragments:
    """Lengths that fragments of one tile depend on: depths of contractions, widths of vector sums, rows, stream."""

    depths: tuple[int, ...]
    widths: tuple[int, ...]
    rows: int
    stream: int


@dataclass(frozen=True)
class TileShape:
    """Rows and stream elements of a tile; `span`: elements of a vector axis that a task computes, 0 for all."""

    rows: int
    block: int
    span: int = 0


def tile_warps(rows: int) -> int:
    """Warps of a block for a tile: one for 16 rows each, up to four."""
    return min(TILE_WARPS, octave(-(-rows // FRAGMENT_ROWS)))


def operand_words(depth: int, warp_rows: int) -> int:
    """32-bit registers of a thread for a row operand: two halves a word, 32 threads a warp."""
    return warp_rows * round_up(depth, 16) // 64


def fragment_words(shape: Fragments, warp_rows: int, block: int) -> int:
    """32-bit registers of a thread for scores of a block (one tile of weights at least) and vector sums."""
    tiles = max(1, len(shape.depths)) * block
    return warp_rows * (tiles + sum(round_up(w, 8) for w in shape.widths)) // 32


def fits(words: int) -> bool:
    """Whether fragments leave a thread enough other registers."""
    return words <= THREAD_REGISTERS - OWN_WORDS


def keeps_operands(fragments: int, operands: int) -> bool:
    """Whether row operands stay in registers too; else products read them from shared memory at every step."""
    return fits(fragments + operands)


def shared_bytes(shape: Fragments, rows: int, block: int) -> int:
    """Shared memory of a tile at most: row operands, and stages of the blocks of the other operands."""
    depths = sum(round_up(d, 16) for d in shape.depths)
    widths = sum(round_up(w, 16) for w in shape.widths)
    return 2 * (rows * depths + STAGES * block * (depths + widths))


def has_room(shape: Fragments, tile: TileShape, shared: int) -> bool:
    """Whether the fragments of a tile fit into registers, its panels into `shared` bytes."""
    part = replace(shape, widths=tuple(tile.span or w for w in shape.widths))
    words = fragment_words(part, tile.rows // tile_warps(tile.rows), tile.block)
    return fits(words) and shared_bytes(part, tile.rows, tile.block) <= shared


def tile_shape(shape: Fragments, shared: int) -> TileShape | None:
    """The first tile that fits into registers and `shared` bytes: all of the vector axis rather than a part of it, then
    the most warps, then the longest block; 16 rows per warp, no more warps than there are rows for. None where none
    fits.

    More rows per warp would read shared memory less often, more registers would hide less latency.
    """
    for span in _spans(shape):
        warps = tile_warps(shape.rows)
        while warps:
            for block in STREAM_BLOCKS:
                tile = TileShape(warps * FRAGMENT_ROWS, block, span)
                if has_room(shape, tile, shared):
                    return tile
            warps //= 2
    return None


def _spans(shape: Fragments) -> Iterator[int]:
    yield 0
    span = octave(max(shape.widths, default=1)) // 2
    while span >= 16:
        yield span
        span //= 2


def tile_blocks(words: int, threads: int) -> int:
    """Blocks of a multiprocessor that registers leave room for, 3 at most; `words`: fragments of a thread. The compiler
    is told, else it spills for a fourth."""
    return max(1, min(3, REGISTERS // (threads * (words + OWN_WORDS))))


def tile_chunk(units: int, tasks: int, length: int, block: int) -> int:
    """Stream elements per task where tiles are fewer than multiprocessors: parts for all of them, of four blocks at
    least; 0 where there are enough."""
    if tasks >= units or length < 8 * block:
        return 0
    parts = -(-FILL * units // max(1, tasks))
    return max(4 * block, round_up(-(-length // parts), block))
