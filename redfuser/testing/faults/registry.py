"""Kinds of faults and the places where they can be planted in a scheduled program.

A kind is a small function that enumerates every place where it could be. There are three, by what they change:

    @loop_kind("name")    For -> (place, For)              tile programs: the loop over tasks
    @phase_kind("name")   TeamPhase -> (place, TeamPhase)  what a schedule adds: barriers, homes, widths
    @text_kind("name")    Printed -> (place, Printed)      what only the printer knows: lanes, exchanges, addresses

A kind yields nothing where the fault would change nothing: its docstring says by which criterion. It never asks whether
a fault was found.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from redfuser.codegen.cuda import CudaProgram, CudaTarget, Launch, TeamPhase, print_phases
from redfuser.codegen.cuda.kernel import schedule_phase
from redfuser.codegen.cuda.prelude import prelude
from redfuser.codegen.cuda.tiles.nodes import FragmentPhase
from redfuser.codegen.nodes import For, Kernel, Sweep
from redfuser.codegen.passes.bodies import nested

_END = "\n}\n"
_SWEEP = "/* for all "
_NAMESPACE = "\nnamespace redfuser {\n"


@dataclass(frozen=True)
class Printed:
    """The text of one phase: its function, without the comment before it.

    lines    the function's, without its parameters
    launch   how it is launched
    phase    what was printed
    """

    lines: tuple[str, ...]
    launch: Launch
    phase: TeamPhase

    @cached_property
    def sweeps(self) -> list[tuple[Sweep, range]]:
        """Every sweep with the lines from its own comment to that of the next one."""
        starts = [i for i, line in enumerate(self.lines) if line.strip().startswith(_SWEEP)]
        found = [s for s in nested(self.phase.loop.body) if isinstance(s, Sweep)]
        ends = [*starts[1:], len(self.lines)] if starts else []
        return [(s, range(a, b)) for s, a, b in zip(found, starts, ends, strict=True)]

    def with_line(self, at: int, *new: str) -> Printed:
        """Other lines in the place of one."""
        return replace(self, lines=(*self.lines[:at], *new, *self.lines[at + 1 :]))


@dataclass(frozen=True)
class Scheduled:
    """A tile program with the schedule of its phases. free: variables whose value decides nothing (pivots).

    No kind knows phases of fragments (products on matrix units) yet: they stay as they are.
    """

    kernel: Kernel
    phases: tuple[TeamPhase | FragmentPhase, ...]
    target: CudaTarget
    free: frozenset[str] = frozenset()

    @staticmethod
    def of(kernel: Kernel, target: CudaTarget, free: Iterable[str] = ()) -> Scheduled:
        """As the printer schedules it."""
        phases = tuple(schedule_phase(kernel, p, target) for p in kernel.phases)
        return Scheduled(kernel, phases, target, frozenset(free))

    @cached_property
    def program(self) -> CudaProgram:
        """The text, without any fault."""
        return print_phases(self.kernel, self.phases, self.target)

    def with_phase(self, number: int, phase: TeamPhase) -> CudaProgram:
        """The text with another phase in the place of one."""
        phases = (*self.phases[:number], phase, *self.phases[number + 1 :])
        return print_phases(self.kernel, phases, self.target)

    def text(self, number: int) -> tuple[str, Printed, str]:
        """The text of a phase, with all that stands before and after it."""
        source, launch = self.program.source, self.program.launches[number]
        phase = self.phases[number]
        assert isinstance(phase, TeamPhase)
        head = re.search(rf'extern "C" __global__ [^\n]*\b{launch.name}\(\n(?:[^\n]*,\n)*[^\n]*\) {{\n', source)
        assert head is not None, launch.name
        end = source.index(_END, head.end())
        lines = tuple(source[head.end() : end].split("\n"))
        return source[: head.end()], Printed(lines, launch, phase), source[end:]

    def with_text(self, number: int, changed: Printed) -> CudaProgram:
        """The program with another text of a phase."""
        before, _, after = self.text(number)
        launches = list(self.program.launches)
        launches[number] = changed.launch
        first = f"\n/* {launches[0].name}: "
        source = _with_prelude(before + "\n".join(changed.lines) + after, first)
        return replace(self.program, source=source, launches=tuple(launches))


def _with_prelude(source: str, first: str) -> str:
    """A text whose functions have changed, with the device functions that they mention now. first: what the comment
    before the first kernel begins with."""
    top = source.index(_NAMESPACE) + len(_NAMESPACE)
    functions = source.index(first) + 1
    return f"{source[:top]}{prelude(source[functions:])}\n{source[functions:]}"


LoopKind = Callable[[For, frozenset[str]], Iterator[tuple[str, For]]]
PhaseKind = Callable[[TeamPhase], Iterator[tuple[str, TeamPhase]]]
TextKind = Callable[[Printed], Iterator[tuple[str, Printed]]]

LOOP_KINDS: dict[str, LoopKind] = {}
PHASE_KINDS: dict[str, PhaseKind] = {}
TEXT_KINDS: dict[str, TextKind] = {}


def loop_kind(name: str) -> Callable[[LoopKind], LoopKind]:
    """Register a kind of fault in tile programs. It gets the task loop and the names of variables that are free."""

    def register(f: LoopKind) -> LoopKind:
        LOOP_KINDS[name] = f
        return f

    return register


def phase_kind(name: str) -> Callable[[PhaseKind], PhaseKind]:
    """Register a kind of fault in schedules."""

    def register(f: PhaseKind) -> PhaseKind:
        PHASE_KINDS[name] = f
        return f

    return register


def text_kind(name: str) -> Callable[[TextKind], TextKind]:
    """Register a kind of fault in printed text."""

    def register(f: TextKind) -> TextKind:
        TEXT_KINDS[name] = f
        return f

    return register


def kinds() -> list[str]:
    """Names of all kinds."""
    return [*LOOP_KINDS, *PHASE_KINDS, *TEXT_KINDS]


@dataclass(frozen=True)
class Fault:
    """One fault in one program.

    kind   its name
    phase  number of the phase it is in
    place  what was changed, in words
    make   prints the program with it
    """

    kind: str
    phase: int
    place: str
    make: Callable[[], CudaProgram] = field(compare=False, repr=False)


def faults_of(scheduled: Scheduled, only: Iterable[str] = ()) -> list[Fault]:
    """Every fault that the kinds know a place for, all of them or only some kinds."""
    wanted = set(only) or set(kinds())
    found: list[Fault] = []
    for number, phase in enumerate(scheduled.phases):
        if not isinstance(phase, TeamPhase):
            continue
        for name in (n for n in LOOP_KINDS if n in wanted):
            for place, loop in LOOP_KINDS[name](phase.loop, scheduled.free):
                found.append(_of_phase(scheduled, name, number, place, replace(phase, loop=loop)))
        for name in (n for n in PHASE_KINDS if n in wanted):
            found += [_of_phase(scheduled, name, number, place, p) for place, p in PHASE_KINDS[name](phase)]
        printed = scheduled.text(number)[1]
        for name in (n for n in TEXT_KINDS if n in wanted):
            found += [_of_text(scheduled, name, number, place, p) for place, p in TEXT_KINDS[name](printed)]
    return found


def _of_phase(scheduled: Scheduled, kind: str, number: int, place: str, phase: TeamPhase) -> Fault:
    return Fault(kind, number, place, lambda: scheduled.with_phase(number, phase))


def _of_text(scheduled: Scheduled, kind: str, number: int, place: str, changed: Printed) -> Fault:
    return Fault(kind, number, place, lambda: scheduled.with_text(number, changed))


def draw(faults: Sequence[tuple[str, Fault]], count: int, rng: random.Random) -> list[tuple[str, Fault]]:
    """`count` faults of (subject, fault) pairs, all of them where there are fewer: kinds in turn, and within a kind
    subjects in turn."""
    shelves: dict[str, dict[str, list[Fault]]] = {}
    for subject, fault in faults:
        shelves.setdefault(fault.kind, {}).setdefault(subject, []).append(fault)
    order = {kind: _in_turn(shelf, rng) for kind, shelf in shelves.items()}
    names = list(order)
    rng.shuffle(names)
    return _taken([order[n] for n in names], count)


def _in_turn(shelf: dict[str, list[Fault]], rng: random.Random) -> list[tuple[str, Fault]]:
    """The faults of one kind, their subjects in turn."""
    for faults in shelf.values():
        rng.shuffle(faults)
    names = list(shelf)
    rng.shuffle(names)
    return _taken([[(n, f) for f in shelf[n]] for n in names], sum(map(len, shelf.values())))


def _taken(rows: Sequence[Sequence[tuple[str, Fault]]], count: int) -> list[tuple[str, Fault]]:
    """The first of every row, then the second of every row, and so on."""
    longest = max(map(len, rows), default=0)
    return [row[i] for i in range(longest) for row in rows if i < len(row)][:count]
