"""Barriers where one thread of a team reads or overwrites what another one wrote, or writes what it still reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from redfuser.codegen.cuda.accesses import LIST, Access, accesses
from redfuser.codegen.cuda.nodes import Barrier
from redfuser.codegen.nodes import Buf, For, If, Stmt, Sweep
from redfuser.codegen.passes.bodies import Body

Pending = frozenset[Access]
"""Accesses since the last barrier, on all paths."""


class BarrierPass:
    """Inserts barriers into the body of a task loop.

    watched : the buffers that threads see of each other: not registers, and none that are only read
    width : neighbours per thread of a sweep
    meets : whether threads hand the results of a sweep over behind a barrier, as the warps of a block do
    """

    def __init__(self, watched: Iterable[Buf], width: Callable[[Sweep], int], meets: bool = False) -> None:
        self.watched, self.width, self.meets = frozenset(watched), width, meets

    def task(self, body: Body) -> Body:
        """The body of the task loop: the next task may meet what is pending at its end."""
        _, after = self.body(body, frozenset())
        return self.body(body, after)[0]

    def body(self, body: Body, pending: Pending) -> tuple[Body, Pending]:
        """Statements with barriers, and what is pending after them."""
        out: list[Stmt] = []
        for s in body:
            found = accesses(s, self.width(s) if isinstance(s, Sweep) else 0)
            own = frozenset(a for a in found if a.buf in self.watched)
            if any(_conflict(p, a) for p in pending for a in own):
                out.append(Barrier())
                pending = frozenset()
            pending |= _without_ranges(own)
            if isinstance(s, For):
                _, again = self.body(s.body, pending)
                inner, after = self.body(s.body, pending | again)
                s, pending = replace(s, body=inner), pending | after
            elif isinstance(s, If):
                inner, after = self.body(s.body, pending)
                s, pending = replace(s, body=inner), pending | after
            out.append(s)
            if any(a.how == LIST for a in own) or (self.meets and isinstance(s, Sweep) and (s.reds or s.folds)):
                # it ends with a barrier of its own
                pending = frozenset()
        return tuple(out), pending


def _without_ranges(own: frozenset[Access]) -> Pending:
    return frozenset(replace(a, sweep=None) for a in own)


def _conflict(before: Access, after: Access) -> bool:
    return before.buf == after.buf and (before.write or after.write) and not before.same_thread(after)
