"""What a plan decides: frozen records of numbers, one per schedule, and the setting they are made in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from redfuser.extract.flatten import Flat
from redfuser.extract.profile import Profile
from redfuser.extract.roles import TileRoles
from redfuser.ir import Load
from redfuser.ir.dtypes import numpy_dtype


@dataclass(frozen=True)
class Options:
    """Overrides of single decisions (None: decide). Tests and tuning use them.

    block : elements of the stream between corrections; also forces streaming of every row
    tile : rows of a tile
    register_tile : (rows, vectors) of the matrix product
    pack : copy matrix operands into panels
    chunk : split the stream into chunks of this many elements, whatever the number of rows and its length
    strategy : "rows", "columns" or "tiles"
    """

    block: int | None = None
    tile: int | None = None
    register_tile: tuple[int, int] | None = None
    pack: bool | None = None
    chunk: int | None = None
    strategy: str | None = None


@dataclass(frozen=True)
class RowDecisions:
    """Rows: one task per row.

    whole_row : longest stream kept in cache; 0 streams every row
    block : stream elements between corrections
    chunk : where the stream is split over threads, elements per task (a multiple of `block`); 0 never splits
    few_rows, split_beyond : the split applies to fewer rows than this and to streams longer than this
    """

    whole_row: int
    block: int
    streaming_stores: bool
    chunk: int = 0
    few_rows: int = 0
    split_beyond: int = 0


@dataclass(frozen=True)
class ColumnDecisions:
    """Columns: lanes on the parallel `axis`, tasks of `columns` columns, blocks of `block` stream elements.

    row_axis : another parallel axis, which some state lacks: a task takes `rows` positions of it
    """

    axis: str
    columns: int
    block: int
    row_axis: str = ""
    rows: int = 1


DOT_COLUMNS = 2
"""Columns of the register tile of a product in dot form; in panel form they are a panel."""


@dataclass(frozen=True)
class OperandDecision:
    """How a matrix product reads an operand: "place" (as it lies), "panels" (packed) or "block" (packed per tile).

    form "panel" has lanes along the operand's lane axis, "dot" along the contraction.
    """

    home: str
    form: str


@dataclass(frozen=True)
class TileDecisions:
    """Tiles: `rows` x `block` elements of the stream; the register tile is `mr` x `panel` elements.

    static : (axis, length) that the program is specialised for
    operands : tensor use (`Contraction.use` or the accumulator's name) -> how it is read
    slice_ : depth of one partial contraction
    in_output : vector accumulators whose state lives in the output array they become
    chunk : the stream is split over threads, elements per task (a multiple of `block`); 0: it is not
    packed : operands of inner reductions that every block copies, lanes on the stream
    units : the dtype of the operands of matrix units, which compute the products; "": there are none
    span : positions of the vector axis that a task computes; 0: all
    """

    roles: TileRoles
    rows: int
    block: int
    mr: int
    panel: int
    slice_: int
    static: tuple[tuple[str, int], ...]
    operands: tuple[tuple[str, OperandDecision], ...]
    in_output: tuple[tuple[str, str], ...] = ()
    chunk: int = 0
    packed: tuple[Load, ...] = ()
    units: str = ""
    span: int = 0

    def operand(self, use: str) -> OperandDecision:
        """The decision for one operand."""
        return dict(self.operands)[use]

    def columns(self, use: str) -> int:
        """Columns of the register tile of the product that reads an operand."""
        return DOT_COLUMNS if self.operand(use).form == "dot" else self.panel


@dataclass(frozen=True)
class Setting:
    """Everything decisions are made from.

    hints : example length of every axis, at least 1
    layouts : tensor or output name -> its axis of element stride 1, or None
    """

    flat: Flat
    hints: Mapping[str, int]
    profile: Profile
    layouts: Mapping[str, str | None]
    dtype: str
    options: Options

    @property
    def itemsize(self) -> int:
        """Bytes of an element of the compute dtype."""
        return numpy_dtype(self.dtype).itemsize

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.profile.lanes(self.dtype)

    @property
    def stream(self) -> str:
        """The stream axis; an empty name where there is none."""
        return self.flat.stream or ""

    @property
    def streams(self) -> int:
        """Input tensors that vary along the stream."""
        return sum(self.stream in t.axes for t in self.flat.tensors)

    def contiguous(self, name: str, axis: str) -> bool:
        """Does the tensor have element stride 1 along `axis`?"""
        return self.layouts.get(name) == axis
