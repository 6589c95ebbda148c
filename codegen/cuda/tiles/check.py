"""The checker of the fragment level: shapes, and a run of its copies, waits, barriers and products without numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from redfuser.codegen.cuda.nodes import Barrier
from redfuser.codegen.cuda.tiles.nodes import (
    DEPTH,
    FRAGMENT,
    Clear,
    Commit,
    Copy,
    FragmentPhase,
    Multiply,
    Take,
    Wait,
    Whole,
)
from redfuser.codegen.nodes import Buf, For, If, Set, Stmt
from redfuser.errors import CheckError
from redfuser.ir import Const, Expr, Var
from redfuser.ir.integers import integer_value

BLOCKS = (0, 1, 2, 3, 5)
"""Numbers of blocks of the stream that the run is tried with."""
TASKS = 2
Place = tuple[str, int]
"""A stage of a panel."""


def check_fragments(phase: FragmentPhase) -> None:
    """Raise CheckError unless a phase is well formed.

    Products and takes read stages that hold what was copied for them, that a wait let arrive and a barrier made
    visible; a copy into a stage starts after a barrier that follows the last read of it; nothing is under way in the
    end. Shapes of fragments, operands and panels fit, row operands are taken before products read them, and weights
    are cleared where a row does not see a whole block.
    """
    _Shapes(phase).body(phase.loop.body)
    for blocks in BLOCKS:
        _Run(phase, blocks).tasks()


class _Shapes:
    """Shapes, and what comes before a product. cleared: fragments that the last row loop cleared; taken: operands."""

    def __init__(self, phase: FragmentPhase) -> None:
        self.phase = phase
        self.cleared: set[Buf] = set()
        self.taken: set[Buf] = set()

    def body(self, body: Iterable[Stmt]) -> None:
        for s in body:
            if isinstance(s, Take):
                panel = s.operand.panel
                if s.operand.depth > panel.columns or panel.rows < self.phase.rows:
                    raise CheckError(f"{s}: the panel is too small")
                self.taken.add(s.operand.buf)
            elif isinstance(s, Multiply):
                self.product(s)
            elif isinstance(s, Whole):
                self.cleared = set(_cleared(s.ragged))
            elif isinstance(s, For) and s.kind == "row":
                self.cleared = set(_cleared([s]))
            elif isinstance(s, (For, If)):
                self.body(s.body)

    def product(self, s: Multiply) -> None:
        """One product."""
        held, operand = self.phase.of(s.a), next((o for o in self.phase.operands if o.buf == s.a), None)
        dst = self.phase.of(s.dst)
        if dst is None or dst.kind != FRAGMENT or dst.columns != s.columns:
            raise CheckError(f"{s}: the result is no fragment of {s.columns} columns")
        depth = operand.depth if operand else held.columns if held else 0
        rows, columns = (s.depth, s.columns) if s.transposed else (s.columns, s.depth)
        if s.depth % DEPTH or depth < s.depth or s.panel.rows < rows or s.panel.columns < columns:
            raise CheckError(f"{s}: the operands do not have this shape")
        if operand is not None and operand.kept and s.a not in self.taken:
            raise CheckError(f"{s}: {s.a.name} was not taken")
        if held is not None and s.a not in self.cleared:
            raise CheckError(f"{s}: columns of {s.a.name} that no row sees are not cleared")


def _cleared(body: Iterable[Stmt]) -> Iterator[Buf]:
    for s in body:
        if isinstance(s, For):
            yield from (x.buf for x in s.body if isinstance(x, Clear))


class _Run:
    """Two tasks in a row, each with the same number of blocks.

    known     expression -> its value
    content   stage of a panel -> (how many copies into the panel that was, whether it arrived, is visible)
    groups    committed copies that may be under way, the oldest first
    read      stages read since the last barrier
    """

    def __init__(self, phase: FragmentPhase, blocks: int) -> None:
        self.phase, self.blocks = phase, blocks
        self.known: dict[Expr, int] = {}
        self.content: dict[Place, tuple[int, bool, bool]] = {}
        self.counts: dict[str, int] = {}
        self.groups: list[list[Place]] = []
        self.open: list[Place] = []
        self.read: set[Place] = set()
        for loop in _streams(phase.loop.body):
            first = self.known.setdefault(loop.lo, 0) if not isinstance(loop.lo, Const) else int(loop.lo.value)
            self.known[loop.hi] = first + blocks * self.value(loop.step)

    def tasks(self) -> None:
        """Run, and look at what is left."""
        for _ in range(TASKS):
            self.counts.clear()
            self.body(self.phase.loop.body)
            if self.groups or self.open:
                raise CheckError("copies are still under way at the end of a task")

    def value(self, e: Expr) -> int:
        """The value of an expression of loop variables and slots."""
        return integer_value(e, self.known.get)

    def body(self, body: Iterable[Stmt]) -> None:
        for s in body:
            self.statement(s)

    def statement(self, s: Stmt) -> None:
        """One statement; those without copies, products and slots do nothing here."""
        if isinstance(s, Copy):
            self._copy(s)
        elif isinstance(s, Commit):
            self.groups.append(self.open)
            self.open = []
        elif isinstance(s, Wait):
            self._wait(s)
        elif isinstance(s, Barrier):
            self.read.clear()
            self.content = {place: (n, arrived, arrived) for place, (n, arrived, _) in self.content.items()}
        elif isinstance(s, Take):
            self._see(s, (s.operand.panel.name, 0), 1)
        elif isinstance(s, Multiply):
            self._see(s, (s.panel.name, self.value(s.stage)), self.counts[_BLOCK])
            for o in self.phase.operands:
                if o.buf == s.a and not o.kept:
                    self._see(s, (o.panel.name, 0), 1)
        elif isinstance(s, Set) and s.cell.buf in self.phase.scalars and s.cell.buf.dtype == "int64":
            self.known[s.cell] = self.value(s.expr)
        elif isinstance(s, If) and any(isinstance(x, (Copy, Multiply)) for x in s.body):
            if self.value(s.condition):
                self.body(s.body)
        elif isinstance(s, For) and s.kind != "row" and s in _streams([s]):
            self._loop(s)

    def _loop(self, s: For) -> None:
        first, last, step = (self.value(e) for e in (s.lo, s.hi, s.step))
        for block, at in enumerate(range(first, last, step), 1):
            self.known[Var(s.var)] = at
            self.counts[_BLOCK] = block
            self.body(s.body)
        for panel in self.phase.panels:  # another loop counts its copies anew
            if panel.stages > 1:
                self.counts.pop(panel.name, None)

    def _copy(self, s: Copy) -> None:
        place = (s.panel.name, self.value(s.stage))
        if not 0 <= place[1] < s.panel.stages:
            raise CheckError(f"{s}: no such stage")
        if place in self.read:
            raise CheckError(f"{s}: no barrier since this stage was read")
        self.counts[s.panel.name] = number = self.counts.get(s.panel.name, 0) + 1
        self.content[place] = (number, False, False)
        self.open.append(place)

    def _wait(self, s: Wait) -> None:
        if self.open:
            raise CheckError("a wait for copies that no group holds")
        while len(self.groups) > s.pending:
            for place in self.groups.pop(0):
                n, _, visible = self.content[place]
                self.content[place] = (n, True, visible)

    def _see(self, s: Stmt, place: Place, wanted: int) -> None:
        """A read of a stage: it holds the copy of this number."""
        number, _, visible = self.content.get(place, (0, False, False))
        if not visible:
            raise CheckError(f"{s}: read before a wait and a barrier")
        if number != wanted:
            raise CheckError(f"{s}: the stage holds copy {number}, not {wanted}")
        self.read.add(place)


_BLOCK = "block "


def _streams(body: Iterable[Stmt]) -> Iterator[For]:
    """Loops with products."""
    for s in body:
        if isinstance(s, For) and s.kind != "row" and any(isinstance(x, Multiply) for x in s.body):
            yield s


