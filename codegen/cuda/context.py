"""What the parts of the CUDA printer share while one phase is printed."""

from __future__ import annotations

from redfuser.codegen.c.context import Printing
from redfuser.codegen.c.types import storage
from redfuser.codegen.cuda.nodes import REGISTER, TeamPhase
from redfuser.codegen.cuda.prelude import is_own
from redfuser.codegen.cuda.scalars import CudaScalars
from redfuser.codegen.cuda.target import CudaTarget
from redfuser.codegen.nodes import At, Buf, Kernel, Sweep


class CudaContext(Printing):
    """One kernel being printed.

    phase         the current one
    reductions    the most values that one barrier hands over in it
    fresh_places  places of the longest list that elements enter in it
    """

    def __init__(self, kernel: Kernel, target: CudaTarget, reserved: frozenset[str]) -> None:
        super().__init__(kernel, reserved, is_own)
        self.target = target
        self.scalars = CudaScalars(self)
        self.phase: TeamPhase | None = None
        self.reductions = 0
        self.fresh_places = 0

    @property
    def team(self) -> TeamPhase:
        """The current phase."""
        assert self.phase is not None
        return self.phase

    @property
    def warps(self) -> int:
        """Warps of a team; 1 for a part of a warp."""
        return max(1, self.team.team // 32)

    @property
    def lanes(self) -> int:
        """Threads of a team within a warp."""
        return min(32, self.team.team)

    @property
    def mask(self) -> str:
        """Which lanes of its warp a team has."""
        return "ALL_LANES" if self.lanes == 32 else "team_lanes"

    @property
    def barrier(self) -> str:
        """The statement that makes a team wait."""
        if self.warps > 1:
            return "__syncthreads();"
        return "__syncwarp();" if self.lanes == 32 else "__syncwarp(team_lanes);"

    def register_home(self, buf: Buf) -> bool:
        """Whether a buffer lives in registers."""
        home = None if self.phase is None else self.phase.home(buf)  # tiles know their own
        return home is not None and home.kind == REGISTER

    def items(self, cells: list[At]) -> int:
        """Vectors per thread of the buffers in registers that are among the cells; 0 when none is."""
        homes = [self.team.home(c.buf) for c in cells]
        return max((h.items for h in homes if h is not None and h.kind == REGISTER), default=0)

    def width(self, s: Sweep) -> int:
        """Neighbours that a thread takes at a time."""
        return self.team.width(s.lo, s.hi)

    @staticmethod
    def element(buf: Buf) -> str:
        """Type of an element in memory."""
        return storage(buf.dtype)
