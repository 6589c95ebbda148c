"""What a tile program becomes for a GPU: phases for teams of threads, barriers, homes of scratch, launches."""

from __future__ import annotations

from collections.abc import Mapping

from redfuser.codegen.nodes import Buf, For, Stmt
from redfuser.ir import Expr, Node, node

REGISTER, SHARED, MEMORY = "register", "shared", "memory"
"""Homes of scratch: registers of the thread that owns an element, shared memory of the block, global memory."""


@node
class Barrier(Stmt):
    """All threads of a team wait for each other, and see what the others wrote before."""

    def __str__(self) -> str:
        return "barrier"


@node
class Home(Node):
    """Where a scratch buffer lives; in registers, `items` vectors of elements per thread."""

    buf: Buf
    kind: str
    items: int = 0


@node
class Width(Node):
    """Sweeps over [lo, hi) hand `elements` neighbours at a time to a thread."""

    lo: Expr
    hi: Expr
    elements: int


@node
class TeamPhase(Node):
    """A phase whose tasks are handed to teams of threads.

    loop    the task loop: sweeps are shared out among the threads of a team, all else is done by each of them, but
            that one thread stores single values to memory
    team    threads of a team: 4, 8 or 16 lanes that share a warp, 32 a warp, more a block
    teams   teams of a block
    bounds  greatest length of an axis in this phase
    """

    loop: For
    when: Expr | None
    team: int
    teams: int
    homes: tuple[Home, ...]
    widths: tuple[Width, ...]
    bounds: tuple[tuple[str, int], ...] = ()

    @property
    def block(self) -> int:
        """Threads of a block."""
        return self.team * self.teams

    def home(self, buf: Buf) -> Home | None:
        """Where a scratch buffer lives; None for any other buffer."""
        return next((h for h in self.homes if h.buf == buf), None)

    def width(self, lo: Expr, hi: Expr) -> int:
        """Neighbours that a thread takes at a time in sweeps over a range."""
        return next((w.elements for w in self.widths if (w.lo, w.hi) == (lo, hi)), 1)


@node
class Parameter(Node):
    """A parameter of a launch.

    kind  "array" (of the caller), "workspace" (that launches share), "scratch" (of all teams of this launch): pointers;
          "stride" (element stride of dimension `dim` of an array), "size" (of an axis), "bytes" (scratch of one team)
    """

    kind: str
    name: str
    dtype: str = "int64"
    dim: int = 0


@node
class Launch(Node):
    """One launch of a `__global__` function.

    name     of the function
    tasks    how many there are, an expression over sizes; a team takes one after the other: any number of blocks do
    teams    tasks that a block works on at the same time
    block    threads of a block
    shared   bytes of dynamic shared memory of a block
    scratch  bytes of global memory of a team
    when     run only where this condition on sizes holds
    """

    name: str
    parameters: tuple[Parameter, ...]
    tasks: Expr
    teams: int
    block: int
    shared: int = 0
    scratch: Expr | None = None
    when: Expr | None = None

    def __str__(self) -> str:
        when = "" if self.when is None else f", only when {self.when}"
        scratch = "" if self.scratch is None else f", {self.scratch} bytes of scratch for each team"
        names = ", ".join(str(p.name) if p.kind != "stride" else f"{p.name} stride {p.dim}" for p in self.parameters)
        return (f"{self.name}({names}): {self.tasks} tasks, {self.teams} at a time in a block of {self.block} threads, "
                f"{self.shared} bytes of dynamic shared memory{scratch}{when}")

    __repr__ = __str__


@node
class CudaProgram(Node):
    """A text of CUDA and the launches that run it, in order.

    workspace  buffers in global memory that the launches share; their contents need not outlive a run
    """

    name: str
    source: str
    launches: tuple[Launch, ...]
    arrays: tuple[Buf, ...]
    workspace: tuple[Buf, ...] = ()


Bounds = Mapping[str, int]
"""Axis -> its greatest length."""
