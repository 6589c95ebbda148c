"""Every scheduling formula, as a pure function of numbers. Each docstring gives the price of not following it.

The ratios were measured on a 2-core x86-64 with 32-byte vectors; they are ratios of run times.
"""

from __future__ import annotations

from dataclasses import dataclass

from redfuser.extract.profile import Profile

MAX_UNROLL = 4
MAX_ROWS_IN_REGISTERS = 16
TILE_ROWS_LIMIT = 240
"""Rows per tile are tried up to here: 60 to 210 rows are within 3 % of each other."""


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `value`."""
    return -(-value // multiple) * multiple


def useful_share(extent: int, tile: int) -> float:
    """The part of the work on `extent` elements that is not padding when done in tiles."""
    return extent / round_up(extent, tile)


def unroll(profile: Profile, reductions: int, loads: int, costly: bool = False) -> int:
    """Independent accumulators per reduction of a sweep: as many as registers hold, at most 4.

    A load keeps its register for one copy only (five reductions of two arrays: two accumulators each, 0.87 of the time
    with one). A dependent chain costs 1.42 to 1.54x with one accumulator, 1.05x with two. Without one there is none:
    more copies gain nothing and cost a sixth of a row kernel's compile time. Two hide behind an exponential.
    """
    if not reductions:
        return 1
    return max(1, min(2 if costly else MAX_UNROLL, (profile.registers - 2 - loads) // reductions))


def block_length(profile: Profile, itemsize: int, streams: int, corrected: bool) -> int:
    """Elements of the stream between two corrections: a quarter of the level-1 cache over the input streams.

    128 elements cost 1.35x, 256 1.2x, 512 1.1x; 1024 to 8192 are flat (a cost per block, hence per correction).
    Without corrections a block only ends the float32 partial sums: 8192 elements.
    """
    fitting = max(256, profile.l1 // 4 // (itemsize * max(1, streams)) // 64 * 64)
    return fitting if corrected else max(8192, fitting)


def whole_row_limit(profile: Profile, itemsize: int, streams: int, costly: bool = False) -> int:
    """Longest row whose inputs and one shared intermediate stay in a quarter of the level-2 cache.

    Up to here no state and no correction are needed: the reductions run one after another on a cached row. `costly`: a
    streamed row would compute exponentials once for the state and once for the outputs, a cached one keeps them; three
    quarters of the cache then (softmax of 32768 elements: 0.86 of the time of the streamed one, of 65536 0.97).
    """
    return profile.l2 * (3 if costly else 1) // 4 // (itemsize * (max(1, streams) + 1))


COLUMNS = 1024
"""Columns of a tile of the column schedule: their state arrays stay in the level-1 cache."""
LEAST_COLUMNS = 128
"""Fewer would read a row in pieces of less than some cache lines."""


def columns_per_tile(threads: int, outer: int, extent: int, lanes: int) -> int:
    """Columns of a tile: as many as the cache holds, but every thread has as many tiles as the others.

    `outer`: tiles for each range of columns (one for every position along the other parallel axes).
    """
    tiles = -(-max(1, extent) // COLUMNS)
    if outer * tiles < 4 * threads:
        tiles = -(-outer * tiles // threads) * threads // outer or 1
    return min(COLUMNS, max(LEAST_COLUMNS, round_up(-(-extent // tiles), lanes)), round_up(max(1, extent), lanes))


def column_block(profile: Profile, itemsize: int, streams: int, columns: int) -> int:
    """Stream elements per block of columns: the inputs in a quarter of the level-2 cache.

    Lanes on the contiguous axis instead of the strided stream: 7 to 12x on reductions over axis 0.
    """
    return max(8, profile.l2 // 4 // (itemsize * max(1, streams) * columns))


GROUP = 2048
"""State elements of a group of rows: they stay in the level-1 cache."""


def shared_rows(threads: int, tasks: int, extent: int, columns: int) -> int:
    """Rows that share the state of their columns, where that leaves two tasks per thread.

    `tasks` : groups if every group held all rows. One row at a time costs 2.2x on a covariance.
    """
    return max(1, min(GROUP // columns, extent * tasks // (2 * threads)))


def streaming_stores(profile: Profile, total_bytes: int) -> bool:
    """Non-temporal stores pay when inputs and outputs together exceed the last-level cache (1.12 to 1.5x)."""
    return total_bytes > profile.llc


CHUNK = 2**16
"""Stream elements per task of a split: a merge of two states costs as much as some hundred elements."""
HANDOFF = 5e-6
"""Seconds to start a second phase and to wake a thread for a task."""
SPLIT_GAIN = 0.9
"""A split is planned where it takes at most this part of the time without."""


WAKE = 3e-6
"""Seconds until the other threads of a call have started and are waited for."""
SERIAL_ELEMENTS = 50_000
"""Below this many array elements, waking another thread costs more than it saves."""
PRODUCT_WEIGHT = 16
"""A kernel with matrix products does more work per element than one sweep."""


@dataclass(frozen=True)
class RowCost:
    """Seconds of the parts that rows are made of; see docs/cost.md.

    element  per element of the stream: the longer of arithmetic and memory
    merge    per merge of two partial states
    """

    element: float
    merge: float

    @staticmethod
    def of(profile: Profile, slots: float, merge_slots: float, element_bytes: float, total_bytes: float) -> RowCost:
        """From multiply-add slots per element and merge, and the bytes an element moves; inputs that fit into half of
        the last cache are read from there."""
        rate = profile.gflops / 2 * 1e9
        bandwidth = profile.l3_gbs if total_bytes <= profile.llc / 2 else profile.dram_gbs
        return RowCost(max(slots / rate, element_bytes / (bandwidth * 1e9)), merge_slots / rate)

    def single(self, rows: int, length: int, threads: int) -> float:
        """Rows in turn, each streamed by one thread: ceil(rows / threads) * length * element."""
        return -(-rows // threads) * length * self.element

    def multi(self, rows: int, length: int, threads: int) -> float:
        """Chunks in turn, then the merges: ceil(tasks / threads) * chunk * element + merges + hand-off."""
        chunks = -(-length // CHUNK)
        rounds = -(-rows * chunks // threads)
        return rounds * min(length, CHUNK) * self.element + rows * (chunks - 1) * self.merge + HANDOFF

    def splits(self, rows: int, length: int, threads: int) -> bool:
        """Whether several segments pay."""
        return threads > 1 and self.multi(rows, length, threads) < SPLIT_GAIN * self.single(rows, length, threads)


def few_rows(cost: RowCost, length: int, threads: int) -> int:
    """With fewer rows than this the stream is split as well: one more than the most rows below two per thread for
    which that pays; 0 where it never does. More rows keep all threads busy."""
    return max((rows + 1 for rows in range(1, 2 * threads) if cost.splits(rows, length, threads)), default=0)


MOST_CHUNKS = 1024


def split_beyond(cost: RowCost, rows: int, threads: int) -> int:
    """Streams up to this length are not split: the crossover of one segment and several, in whole chunks."""
    lengths = (k * CHUNK for k in range(2, MOST_CHUNKS))
    return next((n for n in lengths if cost.splits(rows, n, threads)), MOST_CHUNKS * CHUNK) - CHUNK


SPLIT_WORK = 2**22
"""Multiply-adds worth a second thread and a merge: some hundred microseconds."""


def tile_chunk(profile: Profile, tasks: int, rows: int, length: int, per_element: int, block: int) -> int:
    """Stream elements per task where there are fewer tiles than two per thread; 0 where threads stay busy anyway.

    Parameters
    ----------
    tasks : tiles
    per_element : multiply-adds per row and stream element

    About four tasks per thread; a chunk of four blocks makes its merge cost nothing next to its products.
    """
    work = tasks * rows * length * per_element
    if profile.threads < 2 or tasks >= 2 * profile.threads or work < SPLIT_WORK:
        return 0
    chunks = -(-4 * profile.threads // tasks)
    chunk = max(4 * block, round_up(-(-length // chunks), block))
    return chunk if chunk < length else 0


LIBRARY_SHARE, TILE_SHARE = 0.93, 0.78
"""Parts of the peak that a BLAS library and a tile of ours reach in a large product (measured: 0.92 to 0.97; 0.69 to
0.82)."""
LEAST_PRODUCT = 32
"""A product with a shorter axis is no matter of multiply-adds."""


def library_pays(profile: Profile, itemsize: int, batch: int, rows: int, lanes: int, length: int) -> bool:
    """Whether `batch` plain products are faster in a library, which writes them to memory and reads the factors there.

    `length`: of the contraction.
    """
    if min(rows, lanes, length) < LEAST_PRODUCT:
        return False
    rate = profile.gflops * profile.threads * 4 / itemsize * 1e9
    saved = 2 * batch * rows * lanes * length / rate * (1 / TILE_SHARE - 1 / LIBRARY_SHARE)
    moved = batch * (3 * rows * lanes + 2 * rows * length) * itemsize / (profile.dram_gbs * 1e9)
    return saved > moved + 4 * HANDOFF


def register_tile(profile: Profile, lanes: int, rows: int, widths: tuple[int, ...]) -> tuple[int, int]:
    """(rows, vectors) of the matrix product's register tile.

    Most useful multiply-adds per load: `rows * vectors / (rows + vectors)`, times the share of rows and of static
    lane axes (`widths`, in elements) that the tile does not pad, with all accumulators, one row of operands and one
    broadcast in fewer than all registers. Gives 6 x 2 for many rows, 4 x 2 for four, 3 x 3 for a width of 24.
    A spilling tile costs 1.3 to 2x, a padded one its padding.
    """
    best = (0.0, 0, 1, 1)
    for vectors in range(1, 5):
        for m in range(1, min(max(1, rows), MAX_ROWS_IN_REGISTERS) + 1):
            if m * vectors + vectors + 1 >= profile.registers:
                continue
            share = min((useful_share(w, vectors * lanes) for w in widths), default=1.0)
            score = m * vectors / (m + vectors) * useful_share(max(1, rows), m) * share
            best = max(best, (score, m * vectors, m, vectors))
    return best[2], best[3]


def packs(contiguous: bool, reuse: int, width: int, panel: int) -> bool:
    """Copy a matrix operand into panels? When its lanes are strided or ragged and it is used more than 32 times.

    Contiguous lanes in whole panels are read in place for free: only beyond 128 uses is the copy worth its pass.
    """
    whole_panels = contiguous and width % panel == 0
    return reuse > (128 if whole_panels else 32)


def dot_block(profile: Profile, itemsize: int, depth: int, width: int) -> int:
    """Stream elements per tile in dot form: operands of one tile in half the level-1 cache."""
    return round_up(max(16, profile.l1 // 2 // (itemsize * max(1, depth + width))), 16)


def panel_block(length: int, panel: int) -> int:
    """Stream elements per tile in panel form: 256, a whole number of panels (128 to 512 are flat)."""
    return round_up(min(256, max(1, length)), panel)


def local_panel_block(profile: Profile, itemsize: int, depth: int, width: int, panel: int, block: int) -> int:
    """Stream elements per tile when the operand is packed per block: both operands in half the level-2 cache."""
    fitting = profile.l2 // 2 // (itemsize * max(1, depth + width)) // panel * panel
    return max(panel, min(block, fitting))


def contraction_slice(profile: Profile, itemsize: int, depth: int, panel: int) -> int:
    """Depth of one product so that a panel fills at most three quarters of the level-1 cache, in equal slices."""
    slices = max(1, -(-depth * panel * itemsize // (profile.l1 * 3 // 4)))
    return round_up(-(-depth // slices), 8) if slices > 1 else depth


def rows_per_tile(
    profile: Profile,
    *,
    itemsize: int,
    rows: int,
    length: int,
    depth: int,
    width: int,
    block: int,
    batches: int,
    register_rows: int,
) -> int:
    """Rows of a tile: fewer passes over the stream's operands against padding, cache footprint and idle threads.

    Parameters
    ----------
    rows, length : extents of the row axis and of the stream
    depth, width : contracted elements and accumulated vector elements per stream element
    batches : independent row axes outside the tile

    The estimate is in seconds; 24 rows for 16 wide heads cost 1.33x where 132 rows cost 1.0.
    """
    stream_bytes = (depth + width) * length * itemsize
    cached = stream_bytes * profile.threads < profile.llc / 2
    bandwidth = (profile.l3_gbs if cached else profile.dram_gbs) * 1e9

    def seconds(tile: int) -> float:
        tiles = -(-rows // tile)
        arithmetic = 2 * round_up(rows, register_rows) * length * (depth + width) / (profile.gflops * 1e9)
        overflow = tile * (block + depth + width) * itemsize / (profile.l2 * 0.75)
        state_bytes = rows * -(-length // block) * width * 2 * itemsize * min(1.0, max(0.0, overflow - 1))
        tile_bytes = rows * length * 4 * itemsize if tile * block * itemsize > profile.l2 // 2 else 0
        spills = (state_bytes + tile_bytes) / (profile.l3_gbs * 1e9)
        tasks = batches * tiles
        idle = round_up(tasks, profile.threads) / tasks
        return (arithmetic + tiles * stream_bytes / bandwidth + spills) * idle

    candidates = range(register_rows, TILE_ROWS_LIMIT + 1, register_rows)
    return min((round_up(min(rows, c), register_rows) for c in candidates), key=lambda c: (seconds(c), c))
