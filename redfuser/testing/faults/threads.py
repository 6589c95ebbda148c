"""Faults of threads: who stores, who takes which elements, what meets between lanes and warps, whose memory it is."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from redfuser.codegen.cuda import TeamPhase
from redfuser.codegen.cuda.nodes import REGISTER
from redfuser.codegen.cuda.ranges import Ranges
from redfuser.codegen.cuda.sweep import results
from redfuser.codegen.nodes import Buf, For, LetInt, LetScalar, Set, Sweep
from redfuser.codegen.passes.bodies import Body, nested
from redfuser.ir import MONOIDS, Const
from redfuser.testing.faults.bounds import counts
from redfuser.testing.faults.places import certain_cells, depends, element_data, title
from redfuser.testing.faults.registry import Printed, phase_kind, text_kind
from redfuser.testing.faults.states import LARGE
from redfuser.testing.faults.waits import Unguarded
from redfuser.testing.mutate import other_monoid

Found = Iterator[tuple[str, Printed]]


def _each(p: Printed, pattern: str, new: str) -> Found:
    """Every line that holds a pattern, with the first match replaced; a line that becomes empty goes away."""
    for at, line in enumerate(p.lines):
        if line.strip().startswith(("/*", "* ")) or not re.search(pattern, line):
            continue
        text = re.sub(pattern, new, line, count=1)
        yield line.strip(), p.with_line(at, *([text] if text.strip() else []))


# ---- who stores


@text_kind("all threads store")
def all_store(p: Printed) -> Found:
    """What one thread stores is stored by all of them."""
    yield from _each(p, r"if \(lane == 0\) ", "")
    yield from _each(p, r"if \(lane % 32 == 0\) ", "")


# ---- which elements


@phase_kind("fewer elements per thread")
def fewer_items(phase: TeamPhase) -> Iterator[tuple[str, TeamPhase]]:
    """One vector less in registers of each thread, for all buffers with as many: the end of the longest row is left
    out. Where a thread has one vector only, there would be no buffer."""
    for items in {h.items for h in phase.homes if h.kind == REGISTER and h.items > 1}:
        homes = tuple(replace(h, items=items - 1) if h.items == items else h for h in phase.homes)
        mine = [h.buf.name for h in phase.homes if h.items == items and h.kind == REGISTER]
        if any(_moves_data(phase.loop.body, h.buf) for h in phase.homes if h.items == items):
            yield f"{items - 1} vectors of {', '.join(mine)}", replace(phase, homes=homes)


def _moves_data(body: Body, buf: Buf) -> bool:
    """Whether elements of arrays are stored in a buffer: what lies beyond its end is lost."""
    return any(p.cell.buf == buf and element_data(p) for s in nested(body) if isinstance(s, Sweep) for p in s.puts)


@phase_kind("narrower vectors")
def narrower(phase: TeamPhase) -> Iterator[tuple[str, TeamPhase]]:
    """Half as many neighbours per thread, where registers hold them: as many vectors as before cover half of the row.
    Without registers the loop goes round more often instead, and nothing is wrong."""
    for i, w in enumerate(phase.widths):
        kept = {h.buf for h in phase.homes if h.kind == REGISTER}
        mine = [s for s in nested(phase.loop.body) if isinstance(s, Sweep) and (s.lo, s.hi) == (w.lo, w.hi)]
        if w.elements > 1 and any(p.cell.buf in kept and element_data(p) for s in mine for p in s.puts):
            widths = (*phase.widths[:i], replace(w, elements=w.elements // 2), *phase.widths[i + 1 :])
            yield f"{w.elements // 2} neighbours in {w.lo} .. {w.hi}", replace(phase, widths=widths)


@text_kind("stride of threads too long")
def long_stride(p: Printed) -> Found:
    """Threads go on by twice their number, in sweeps that may be longer than that."""
    ranges = Ranges(p.phase.loop.body, dict(p.phase.bounds))
    for s, lines in p.sweeps:
        extent = ranges.extent(s.lo, s.hi)
        for at in lines if counts(s) else ():
            found = re.search(r"for \(int64_t \w+ = .*\blane\b.*\+= (\d+)\) {$", p.lines[at])
            if found and (extent is None or extent > int(found.group(1))):
                line = p.lines[at].replace(f"+= {found.group(1)})", f"+= {2 * int(found.group(1))})")
                yield title(s), p.with_line(at, line)


@text_kind("vector beyond the row")
def long_vector(p: Printed) -> Found:
    """The last vector of a row counts one element too many, where every lane touches an array."""
    for s, lines in p.sweeps:
        if any(any(depends(i, s.var) for i in c.idx) for c in certain_cells(s)):
            for at in lines:
                found = re.fullmatch(r"(\s*const int64_t held = .*);", p.lines[at])
                if found:
                    yield title(s), p.with_line(at, f"{found.group(1)} + 1;")


@text_kind("shares that overlap")
def overlapping(p: Printed) -> Found:
    """Of a fold in order: a thread's last element is the next one's first as well."""
    yield from _each(p, r"min_int\(from \+ share, ", "min_int(from + share + 1, ")


@text_kind("wrong stride")
def other_stride(p: Printed) -> Found:
    """The distance of neighbours along a dimension is one element too long."""
    yield from _each(p, r"\b(\w+_stride_\d+)\b", r"(\1 + 1)")


# ---- what meets


@text_kind("exchange missing")
def apart(p: Printed) -> Found:
    """Lanes keep what each of them has; warps of a block likewise."""
    yield from _each(p, r"^\s*\w+ = warp_(all|best)<.*;$", "")
    yield from _each(p, r"^\s*\w+ = slots_all<.*;$", "")
    yield from _each(p, r"^\s*enters = __(any_sync|syncthreads_or)\(.*;$", "")


@text_kind("wrong operator between threads")
def other_functor(p: Printed) -> Found:
    """Threads meet by another operator than their elements did."""
    for at, line in enumerate(p.lines):
        found = re.search(r"(?:warp|slots)_all<(?:loose_)?(\w+)_of", line)
        if found:
            other = other_monoid(found.group(1))
            yield line.strip(), p.with_line(at, re.sub(r"<(loose_)?\w+_of", f"<{other}_of", line, count=1))


@text_kind("wrong identity of a thread")
def other_start(p: Printed) -> Found:
    """Threads start a reduction from something else than its identity: from 1 or 0, from a large number where that is
    infinite."""
    for s, lines in p.sweeps:
        for r in s.reds:
            start = MONOIDS[r.monoid].identity
            new = f"{'-' if start > 0 else ''}{LARGE}f" if math.isinf(start) else "0" if start else "1"
            for at in lines:
                found = re.fullmatch(rf"(\s*\w+ {r.name}\w* = )[^;]*;", p.lines[at])
                if found and not found.group(1).strip().startswith("const"):
                    yield f"{r.name} starts from {new}", p.with_line(at, f"{found.group(1)}{new};")
                    break


@text_kind("barrier of a reduction missing")
def unmet(p: Printed) -> Found:
    """Warps read each other's results before they are there."""
    for at in range(1, len(p.lines)):
        if p.lines[at].strip() == "__syncthreads();" and p.lines[at - 1].strip() == "}" and any(
                "slots[turn]" in x for x in p.lines[at - 2 : at]):
            yield p.lines[at - 2].strip(), p.with_line(at)


@text_kind("slots used again at once")
def same_slots(p: Printed) -> Found:
    """A reduction writes where warps may still read the results of the one before: that follows without a barrier."""
    body = p.phase.loop.body
    for (s, _), (t, lines) in zip(p.sweeps, p.sweeps[1:], strict=False):
        if results(s) and results(t) and _neighbours(body, s, t):
            for at in lines:
                if p.lines[at].strip().startswith("turn ^= 1;"):
                    yield title(t), p.with_line(at)
                    break


def _neighbours(body: Body, s: Sweep, t: Sweep) -> bool:
    """Whether nothing but scalars stands between two statements."""
    for b in (body, *(x.body for x in nested(body) if isinstance(x, For))):
        for i, x in enumerate(b):
            if x is s:
                for y in b[i + 1 :]:
                    if y is t:
                        return True
                    if isinstance(y, (For, Sweep)) or not isinstance(y, (Set, LetInt, LetScalar)):
                        break
    return False


@text_kind("barrier of a list missing")
def unlisted(p: Printed) -> Found:
    """Of the two barriers of an insertion: before the new list is copied, and behind it. A list of one place has one
    thread that does both; the second one is needed where others than those that wrote its places touch the list next.
    """
    for s, lines in p.sweeps:
        if not s.inserts or s.inserts[0].length < 2:
            continue
        for at in lines:
            if re.fullmatch(r"__sync(warp|threads)\(\w*\);", p.lines[at].strip()):
                before, after = p.lines[at - 1].strip(), p.lines[at + 1].strip()
                last = after == "}" and Unguarded(p.phase, s).anywhere()
                if before == "}" and (last or "z < count" in after):
                    yield f"{title(s)}, before {after}", p.with_line(at)


@text_kind("order of equal keys")
def later_places(p: Printed) -> Found:
    """Places of a list count as later than new elements, where elements come in several blocks. What enters a list of
    one place is better than what is there: no keys are equal."""
    for s, lines in p.sweeps:
        inside = any(s in nested(x.body) for x in nested(p.phase.loop.body) if isinstance(x, For))
        if s.inserts and s.inserts[0].length > 1 and inside:
            for at in lines:
                if f"z - {s.inserts[0].length}," in p.lines[at]:
                    changed = p.lines[at].replace(f"z - {s.inserts[0].length},", "z + 1000000,")
                    yield title(s), p.with_line(at, changed)


# ---- whose task, whose memory


@text_kind("teams take the same tasks")
def same_tasks(p: Printed) -> Found:
    """Teams of a block, or blocks, take each other's tasks, or leave some out."""
    yield from _each(p, r"team = threadIdx\.x / \d+", "team = 0")
    yield from _each(p, r"\(int64_t\)blockIdx\.x \* \d+ \+ team;", "(int64_t)blockIdx.x + team;")
    yield from _each(p, r"\+= \(int64_t\)gridDim\.x \* (\d+)\)", r"+= (int64_t)gridDim.x * 2 * \1)")
    yield from _each(p, r"\+= gridDim\.x\)", "+= 2 * gridDim.x)")


@text_kind("scratch of two teams shared")
def shared_scratch(p: Printed) -> Found:
    """Teams of a block use the same shared memory; teams of a launch the same global memory."""
    yield from _each(p, r"shared_bytes \+ team \* \d+", "shared_bytes")
    yield from _each(p, r"all_scratch \+ .* \* scratch_bytes;", "all_scratch;")


@text_kind("too little memory")
def small_memory(p: Printed) -> Found:
    """The launch gives the block less shared memory than it uses, or teams less global memory."""
    shared, teams = p.launch.shared, p.launch.teams
    if shared:
        less = shared - shared // teams
        yield f"{less} bytes of shared memory for {shared}", replace(p, launch=replace(p.launch, shared=less))
    if p.launch.scratch is not None:
        yield "one byte of global memory", replace(p, launch=replace(p.launch, scratch=Const(1)))
