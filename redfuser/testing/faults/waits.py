"""Faults in who waits for whom: barriers left out, too early, and scratch that another thread cannot see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from redfuser.codegen.cuda import TeamPhase
from redfuser.codegen.cuda.accesses import LIST, ONE, OWN, Access, accesses
from redfuser.codegen.cuda.homes import touched
from redfuser.codegen.cuda.nodes import REGISTER, Barrier
from redfuser.codegen.cuda.sweep import results
from redfuser.codegen.nodes import Buf, For, If, Stmt, Sweep
from redfuser.codegen.passes.bodies import Body
from redfuser.ir import Const
from redfuser.testing.faults.places import Change, Place, changed, title
from redfuser.testing.faults.registry import phase_kind

Pending = frozenset[Access]


class Unguarded:
    """Looks for accesses of different threads with no barrier between.

    Barriers inside of sweeps count as well: of a block that reduces or folds, and behind each list. What this finds no
    conflict in needs no other barrier; so a barrier whose loss it does not notice separates nothing. From one task to
    the next only scratch can conflict: arrays are other elements there. A range of one element is done by the thread
    that stores single values, an insertion of one element into a list of one place as well.

    bare : an insertion that is taken without the barrier behind it
    """

    def __init__(self, phase: TeamPhase, bare: Sweep | None = None) -> None:
        self.phase, self.bare = phase, bare
        private = {h.buf for h in phase.homes if h.kind == REGISTER}
        self.watched: set[Buf] = touched(phase.loop.body) - private
        self.found = False

    def anywhere(self) -> bool:
        """Whether there is such a pair."""
        after = self._body(self.phase.loop.body, frozenset())
        self._body(self.phase.loop.body, frozenset(a for a in after if a.buf.home == "local"))
        return self.found

    def _body(self, body: Body, pending: Pending) -> Pending:
        for s in body:
            pending = self._statement(s, pending)
        return pending

    def _statement(self, s: Stmt, pending: Pending) -> Pending:
        if isinstance(s, Barrier):
            return frozenset()
        width = self.phase.width(s.lo, s.hi) if isinstance(s, Sweep) else 0
        own = frozenset(_by_one(s, a) for a in accesses(s, width) if a.buf in self.watched)
        self.found |= any(_conflict(p, a) for p in pending for a in own)
        pending |= frozenset(replace(a, sweep=None) for a in own)
        if isinstance(s, For):
            once = self._body(s.body, pending)
            pending |= once | self._body(s.body, once)
        elif isinstance(s, If):
            pending |= self._body(s.body, pending)
        if s is self.bare:
            lists = {a.buf for a in own}
            return frozenset(Access(b, OWN, True, 1, dim=len(b.shape) - 1) for b in lists if b.home == "local")
        waits = isinstance(s, Sweep) and self.phase.team > 32 and results(s) > 0
        return frozenset() if waits or any(a.how == LIST for a in own) else pending


def _by_one(s: Stmt, a: Access) -> Access:
    """The access, as that of one thread where only the first one has an element."""
    if isinstance(s, Sweep) and isinstance(s.lo, Const) and s.hi == Const(s.lo.value + 1):
        single = all(i.length == 1 for i in s.inserts)
        if a.how == OWN or (a.how == LIST and single):
            return Access(a.buf, ONE, a.write)
    return a


def _conflict(before: Access, after: Access) -> bool:
    return before.buf == after.buf and (before.write or after.write) and not before.same_thread(after)


def _needed(phase: TeamPhase, found: Iterator[tuple[str, For]]) -> Iterator[tuple[str, TeamPhase]]:
    for text, loop in found:
        wrong = replace(phase, loop=loop)
        if Unguarded(wrong).anywhere():
            yield text, wrong


@phase_kind("barrier missing")
def unguarded(phase: TeamPhase) -> Iterator[tuple[str, TeamPhase]]:
    """One barrier left out, where accesses of different threads meet then."""

    def edit(at: Place) -> Iterator[Change]:
        if isinstance(at.stmt, Barrier):
            following = f" before {title(at.body[at.at + 1])}" if at.at + 1 < len(at.body) else ""
            yield f"barrier{following}", ()

    yield from _needed(phase, changed(phase.loop, edit))


@phase_kind("barrier too early")
def early(phase: TeamPhase) -> Iterator[tuple[str, TeamPhase]]:
    """One barrier before the statement that it should follow, where accesses of different threads meet then."""

    def edit(at: Place) -> Iterator[Change]:
        if isinstance(at.body[at.at + 1], Barrier) and not isinstance(at.stmt, Barrier):
            yield f"barrier before {title(at.stmt)}", (Barrier(), at.stmt)

    yield from _needed(phase, changed(phase.loop, edit, 2))
