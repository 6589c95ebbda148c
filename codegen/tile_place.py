"""Where a tile lies: its task, its batch position, its rows, and the part of the stream that its rows may see."""

from __future__ import annotations

from redfuser.codegen.indexing import ceil_div, product, tidy, unravel_sizes
from redfuser.codegen.lower import Env, Space, lower
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import LetInt, Stmt
from redfuser.extract.decisions import TileDecisions
from redfuser.ir import Const, Expr, Var, op


def chunks_of(length: Expr, chunk: int) -> Expr:
    """Number of chunks of a stream: at least one, whose state is the identity where the stream is empty."""
    return op("max", ceil_div(length, chunk), 1)


class TilePlace:
    """Positions of one tile of rows.

    rows : rows of a full tile; `count` : rows of this one
    row_var : variable of the loops over its rows, relative to `first`
    before : statements that compute the positions from the task number
    chunk : number of the part of the stream that is this task's, None where the stream is not split
    span : the vector axis that tasks share out, the first position of this one, and how many it has; None: each has all
    """

    def __init__(self, space: Space, decisions: TileDecisions, names: Names) -> None:
        self.space, self.names, self.roles, self.mr = space, names, decisions.roles, decisions.mr
        self.rows = decisions.rows
        self.length = space.size(self.roles.flat.stream or "")
        self.row_var, self.first = names.integer("r"), names.integer("first_row")
        self.count: Expr = names.integer("rows") if self.roles.row else Const(1)
        self.task = names.integer("task")
        self.positions: dict[str, Expr] = {}
        self.chunk_length = decisions.chunk
        self.chunk: Expr | None = None
        self.span: tuple[str, Var, Var] | None = None
        if decisions.span:
            axis = decisions.roles.vectors[0].axis
            self.span = (axis, names.integer(f"first_{axis}"), names.integer(f"width_{axis}"))
        self.span_length = decisions.span
        self.before, self.total = self._unravel()

    def _unravel(self) -> tuple[list[Stmt], Expr]:
        """Batch axes, the chunk, then the tile of rows, the heaviest first where a mask grows with them."""
        row = self.roles.row
        dims = [(a, self.space.size(a)) for a in self.roles.batch]
        if self.chunk_length:
            dims.append(("chunk", chunks_of(self.length, self.chunk_length)))
        if self.span is not None:
            dims.append(("span", ceil_div(self.space.size(self.span[0]), self.span_length)))
        if row is None:
            before, self.positions = unravel_sizes(self.names, self.task, dims)
            self.chunk = self.positions.pop("chunk", None)
            before += self._spanned()
            return before, product([n for _, n in dims])
        size = self.space.size(row)
        tiles = ceil_div(size, self.rows)
        before, self.positions = unravel_sizes(self.names, self.task, [*dims, ("row_tile", tiles)])
        number = self.positions.pop("row_tile")
        self.chunk = self.positions.pop("chunk", None)
        before += self._spanned()
        if any(b.kind == "hi" and b.slope(row) > 0 for b in self.roles.bounds):
            number = op("sub", op("sub", tiles, 1), number)
        assert isinstance(self.count, Var)
        before.append(LetInt(self.first.name, op("mul", number, self.rows)))
        before.append(LetInt(self.count.name, op("min", op("sub", size, self.first), self.rows)))
        return before, product([*(n for _, n in dims), tiles])

    def _spanned(self) -> list[Stmt]:
        """Bind the part of the vector axis that is this task's."""
        if self.span is None:
            return []
        axis, first, width = self.span
        rest = op("sub", self.space.size(axis), first)
        start = op("mul", self.positions.pop("span"), self.span_length)
        return [LetInt(first.name, start), LetInt(width.name, op("min", rest, self.span_length))]

    def along(self, axis: str, lane: Expr) -> Expr:
        """The position on a vector axis of a lane of this task."""
        return op("add", self.span[1], lane) if self.span is not None and self.span[0] == axis else lane

    def width(self, axis: str) -> Expr:
        """How many positions of a vector axis are this task's."""
        return self.span[2] if self.span is not None and self.span[0] == axis else self.space.size(axis)

    def at_row(self, r: Expr) -> dict[str, Expr]:
        """Positions of all parallel axes at row `r` of the tile."""
        row = {self.roles.row: op("add", self.first, r)} if self.roles.row else {}
        return {**self.positions, **row}

    # -------------------------------- bounds of the stream

    def bounded(self, kind: str) -> bool:
        """Does a mask bound the stream from below ("lo") or above ("hi")?"""
        return any(b.kind == kind for b in self.roles.bounds)

    def visible(self, first: Expr, last: Expr) -> tuple[Expr, Expr]:
        """The range of the stream that some row of first .. last (within the tile) may see."""
        lo: Expr = Const(0)
        hi = self.length
        for b in self.roles.bounds:
            at_last = (b.slope(self.roles.row) >= 0) == (b.kind == "hi")
            limit = lower(b.limit, Env(self.at_row(last if at_last else first)), self.space, self.names)
            if b.kind == "hi":
                hi = op("min", hi, tidy(limit))
            else:
                lo = op("max", lo, tidy(limit))
        return lo, hi

    def of_tile(self, block: int) -> tuple[Expr, Expr]:
        """The range that some row of the tile may see, from a whole number of blocks on, within this task's chunk."""
        lo, hi = self.visible(Const(0), op("sub", self.count, 1))
        lo = lo if lo == Const(0) else op("mul", op("idiv", lo, block), block)
        if self.chunk is None:
            return lo, hi
        first = op("mul", self.chunk, self.chunk_length)
        return op("max", first, lo), op("min", op("add", first, self.chunk_length), hi)

    def of_register_tile(self, first: Expr) -> tuple[Expr, Expr]:
        """The range that some row of the register tile starting at row `first` may see."""
        last = op("min", op("add", first, self.mr - 1), op("sub", self.count, 1))
        return self.visible(first, last)
