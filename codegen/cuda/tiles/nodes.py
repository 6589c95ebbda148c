"""The fragment level: a phase whose tiles live in the registers of warps, with products on matrix units.

A block of warps owns a tile; warp w has `pieces` times 16 rows from row 16 * pieces * w on. Matrices of the tile are
*fragments*: of each piece and each 8 columns, lane l of the warp holds rows l/4 and l/4 + 8, columns 2 (l%4) and the
next. A thread thus sees `2 * pieces` rows, its *parts*; values of one row are the same in the four lanes that hold it.
Operands of products that come from global memory go through *panels* in shared memory.
"""

from __future__ import annotations

from redfuser.codegen.nodes import At, Buf, For, Stmt
from redfuser.codegen.show import show_expr, show_stmt
from redfuser.ir import Expr, Node, Var, node

PIECE_ROWS, COLUMNS, DEPTH = 16, 8, 16
"""Rows and columns of a fragment, and the depth of one product of matrix units."""
ROW, COLUMN = Var("y_"), Var("x_")
"""Indices of an element of a panel in the cell that it is copied from."""
CHUNK = 8
"""Elements of two bytes that one copy moves."""

FRAGMENT, STATE, STRIP, LIST = "fragment", "state", "strip", "list"
"""Homes in registers: a matrix of the tile; one value for each row; a row of lanes that one row's statements share; a
sorted list for each row, all of it in each lane of the row."""


@node
class Held(Node):
    """A scratch buffer in registers. columns: of a fragment or a strip, a multiple of 8; places of a list."""

    buf: Buf
    kind: str
    columns: int = 0


@node
class Panel(Node):
    """Room in shared memory for operands of products: `stages` matrices of rows x columns elements of two bytes.

    They lie in chunks of 16 bytes, which change places within a row so that eight rows of a column are in different
    banks."""

    name: str
    dtype: str
    rows: int
    columns: int
    stages: int

    @property
    def stage_bytes(self) -> int:
        """Bytes of one matrix."""
        return self.rows * self.columns * 2

    def __str__(self) -> str:
        return f"{self.name}[{self.stages}, {self.rows}, {self.columns}]:{self.dtype}"


@node
class Operand(Node):
    """The row operand of a product, for all depths: in a panel, and from there in registers where it is `kept`."""

    buf: Buf
    panel: Panel
    depth: int
    kept: bool = True


class FragmentStmt(Stmt):
    """Base of the statements of this level."""

    def lines(self) -> list[str]:
        """Readable text."""
        raise NotImplementedError

    def __str__(self) -> str:
        return "\n".join(self.lines())


@node
class Copy(FragmentStmt):
    """Start to copy a matrix into stage `stage` of a panel.

    source   the element of row `ROW` and column `COLUMN`; those from row `rows` or column `columns` on are zero
    """

    panel: Panel
    stage: Expr
    source: At
    rows: Expr
    columns: Expr

    def lines(self) -> list[str]:
        ends = f"rows {show_expr(self.rows)}, columns {show_expr(self.columns)}"
        return [f"copy {self.panel.name}[{show_expr(self.stage)}, y_, x_] <- {show_expr(self.source)}  {ends}"]


@node
class Commit(FragmentStmt):
    """The copies started since the last commit are one group."""

    def lines(self) -> list[str]:
        return ["commit"]


@node
class Wait(FragmentStmt):
    """Until all of a thread's groups have arrived but the last `pending`."""

    pending: int

    def lines(self) -> list[str]:
        return [f"wait for all groups but {self.pending}"]


@node
class Take(FragmentStmt):
    """Load a row operand from its panel into registers."""

    operand: Operand

    def lines(self) -> list[str]:
        return [f"take {self.operand.buf.name} <- {self.operand.panel.name}"]


@node
class Multiply(FragmentStmt):
    """`dst (+)= a . b` on matrix units, over `columns` of dst and `depth`.

    a           a row operand, or fragments that are rounded to the type of the panel
    transposed  whether the rows of the panel run along the depth, not along the columns of dst
    """

    dst: Buf
    a: Buf
    panel: Panel
    stage: Expr
    columns: int
    depth: int
    transposed: bool
    accumulate: bool

    def lines(self) -> list[str]:
        arrow, turned = "+=" if self.accumulate else "=", " transposed" if self.transposed else ""
        b = f"{self.panel.name}[{show_expr(self.stage)}]{turned}"
        return [f"multiply {self.dst.name} {arrow} {self.a.name} . {b}  columns {self.columns}, depth {self.depth}"]


@node
class Clear(FragmentStmt):
    """In a row: the columns of a fragment outside of [lo, hi) become zero."""

    buf: Buf
    lo: Expr
    hi: Expr

    def lines(self) -> list[str]:
        return [f"clear {self.buf.name} outside {show_expr(self.lo)} .. {show_expr(self.hi)}"]


@node
class Whole(FragmentStmt):
    """`full` where `test` holds for all rows of a warp, else `ragged`.

    rows    the loop over rows that binds what `test` reads, None where it reads nothing of a row
    """

    rows: For | None
    test: Expr
    full: tuple[Stmt, ...]
    ragged: tuple[Stmt, ...]

    def lines(self) -> list[str]:
        def body(statements: tuple[Stmt, ...]) -> list[str]:
            return [line for s in statements for line in show_stmt(s, 2)]

        bound = [line for s in (self.rows.body if self.rows else ()) for line in show_stmt(s, 2)]
        where = f" for all {self.rows.var}" if self.rows else ""
        return [*bound, f"whole{where} {show_expr(self.test)}:", *body(self.full), "else:", *body(self.ragged)]


@node
class FragmentPhase(Node):
    """A phase whose tasks are tiles of blocks of warps.

    loop       the task loop: row loops are shared out among the warps, all else is done by every thread
    warps      of a block
    pieces     fragments of 16 rows that a warp has one under the other
    held       scratch in registers
    operands   row operands
    panels     shared memory, in order
    scalars    cells of single values that statements set
    variables  (name, type) of all variables
    """

    loop: For
    when: Expr | None
    warps: int
    pieces: int
    held: tuple[Held, ...]
    operands: tuple[Operand, ...]
    panels: tuple[Panel, ...]
    scalars: tuple[Buf, ...]
    variables: tuple[tuple[str, str], ...]

    @property
    def rows(self) -> int:
        """Rows of a tile."""
        return self.warps * self.pieces * PIECE_ROWS

    @property
    def words(self) -> int:
        """32-bit registers of a thread for fragments and row operands."""
        fragments = sum(h.columns for h in self.held if h.kind == FRAGMENT) * self.parts // 4
        return fragments + sum(o.depth for o in self.operands if o.kept) * self.pieces // 4

    @property
    def parts(self) -> int:
        """Rows of a thread."""
        return 2 * self.pieces

    @property
    def shared(self) -> int:
        """Bytes of shared memory."""
        return sum(p.stage_bytes * p.stages for p in self.panels)

    def of(self, buf: Buf) -> Held | None:
        """How a buffer is held in registers."""
        return next((h for h in self.held if h.buf == buf), None)

    def __str__(self) -> str:
        lines = [f"tiles of {self.rows} rows, {self.warps} warps of {self.pieces} x {PIECE_ROWS} rows:"]
        lines += [f"  {h.kind} {h.buf.name}" + (f" of {h.columns} columns" if h.columns else "") for h in self.held]
        for o in self.operands:
            lines.append(f"  operand {o.buf.name} of depth {o.depth}" + ("" if o.kept else " in its panel"))
        lines += [f"  panel {p}" for p in self.panels]
        return "\n".join([*lines, *show_stmt(self.loop, 2)])
