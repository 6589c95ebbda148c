"""Homes of scratch: registers where the thread that owns an element is the only one to touch it, else shared memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from redfuser.codegen.cuda.accesses import OWN, Access, accesses
from redfuser.codegen.cuda.nodes import MEMORY, REGISTER, SHARED, Home
from redfuser.codegen.cuda.ranges import Ranges
from redfuser.codegen.nodes import Buf, Stmt, Sweep
from redfuser.codegen.passes.bodies import Body, nested
from redfuser.extract.choose import round_up
from redfuser.ir.dtypes import numpy_dtype

ALIGN = 16


def homes(body: Body, scratch: Iterable[Buf], ranges: Ranges, team: int, width: Callable[[Sweep], int], words: int,
          shared: int) -> tuple[Home, ...]:
    """A home for every scratch buffer.

    Parameters
    ----------
    team : threads of a team
    words : 32-bit registers of a thread for elements
    shared : bytes of shared memory of a team
    """
    uses: dict[Buf, list[Access]] = {}
    for s in nested(body):
        for a in accesses(s, width(s) if isinstance(s, Sweep) else 0):
            uses.setdefault(a.buf, []).append(a)
    found = []
    for buf in scratch:
        items = _register_items(uses.get(buf, []), ranges, team)
        need = words_per_thread(buf, items, uses.get(buf, []))
        size = ranges.bytes(buf)
        if items is not None and need <= words:
            found.append(Home(buf, REGISTER, items))
            words -= need
        elif size is not None and aligned(size) <= shared:
            found.append(Home(buf, SHARED))
            shared -= aligned(size)
        else:
            found.append(Home(buf, MEMORY))
    return tuple(found)


def aligned(size: int) -> int:
    """Bytes of shared memory with alignment."""
    return round_up(size, ALIGN)


def words_per_thread(buf: Buf, items: int | None, uses: list[Access]) -> int:
    """32-bit registers of a thread that hold its elements."""
    if not items or not uses:
        return 0
    return items * uses[0].width * max(1, numpy_dtype(buf.dtype).itemsize // 4)


def _register_items(uses: list[Access], ranges: Ranges, team: int) -> int | None:
    """Vectors of elements that a thread owns; None where the buffer cannot be in registers."""
    if not uses or any(a.how != OWN or a.width != uses[0].width or len(a.buf.shape) != 1 for a in uses):
        return None
    most = 0
    for a in uses:
        extent = None if a.sweep is None else ranges.extent(a.sweep.lo, a.sweep.hi)
        if extent is None:
            return None
        most = max(most, -(-extent // (team * a.width)))
    return max(1, most)


def touched(body: Iterable[Stmt]) -> set[Buf]:
    """Buffers that some statement writes."""
    return {a.buf for s in nested(tuple(body)) for a in accesses(s, 0) if a.write and a.buf.home != "reg"}
