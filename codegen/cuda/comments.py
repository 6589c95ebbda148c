"""What the comments of an emitted kernel say: launch, parameters, and the part of the cascade that a statement is."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from fractions import Fraction

import numpy as np

from redfuser.codegen.cuda.nodes import MEMORY, REGISTER, SHARED, Launch, Parameter, TeamPhase
from redfuser.codegen.nodes import For, If, LetScalar, Set, Stmt, Sweep
from redfuser.codegen.show import show_expr
from redfuser.extract.plan_gpu import team_text
from redfuser.ir import Const, Expr, Op, show, walk

_HOMES = {REGISTER: "registers", SHARED: "shared memory", MEMORY: "global memory"}
_ROLES = {
    "old": "{} before this block",
    "shift": "{}: what exponents subtract; 0 where nothing is left to subtract from (inf - inf is NaN)",
    "moved": "{}: corrected, as if all elements so far had met the new value",
    "mine": "{}: of the parts so far",
    "theirs": "{}: of the next part",
}
"""Suffix of a scalar that schedules derive from an accumulator -> what it is."""


def comment(lines: Iterable[str]) -> str:
    """A comment; its text cannot end it."""
    return "/* " + "\n * ".join(x.replace("*/", "* /") for x in lines) + " */"


def is_safe_scale(e: Expr) -> bool:
    """Whether a value is the power of two that divisors are multiplied by before their reciprocal."""
    found = {x.value for x in walk(e) if isinstance(x, Const)}
    return isinstance(e, Op) and {2**64, Fraction(1, 2**64)} <= {Fraction(v) for v in found if np.isfinite(float(v))}


def team_lines(launch: Launch, phase: TeamPhase) -> list[str]:
    """What one must know to call a kernel whose tasks are done by teams of threads."""
    return launch_lines(launch, team_text(phase.team), [f"{h.buf.name} in {_HOMES[h.kind]}" for h in phase.homes])


def launch_lines(launch: Launch, worker: str, kept: Collection[str] = ()) -> list[str]:
    """What one must know to call a kernel. worker: what does a task; kept: where its scratch is."""
    tasks = show(launch.tasks, lambda e: None)
    when = "" if launch.when is None else f"; only when {show(launch.when, lambda e: None)}"
    grid = f"any number of blocks, one for {launch.teams} tasks is the most" if launch.teams > 1 else \
        "any number of blocks, one for a task is the most"
    lines = [f"{launch.name}: each of {tasks} tasks by {worker}{when}.",
             f"  grid    {grid}: teams take tasks in turn",
             f"  block   {launch.block} threads; {launch.shared} bytes of dynamic shared memory"]
    if launch.scratch is not None:
        lines.append(f"  scratch {show(launch.scratch, lambda e: None)} bytes of all_scratch for each team")
    lines += _parameters(launch.parameters)
    return [*lines, *([f"  kept    {', '.join(kept)}"] if kept else [])]


def _parameters(parameters: Collection[Parameter]) -> list[str]:
    kinds = {p.kind for p in parameters}
    lines = []
    if "stride" in kinds:
        lines.append("  NAME_stride_D  elements from one index to the next along dimension D of array NAME;")
        lines.append("                 a dimension without one is contiguous")
    if "size" in kinds:
        lines.append("  AXIS_size      length of an axis")
    if "workspace" in kinds:
        names = ", ".join(p.name for p in parameters if p.kind == "workspace")
        lines.append(f"  {names}: shared by the launches of this text, without contents before the first")
    return lines


def sweep_lines(s: Sweep) -> list[str]:
    """A sweep: what it keeps or writes, and what it reduces."""
    head = f"for all {s.var} in {show_expr(s.lo)} .. {show_expr(s.hi)}:"
    lines = [f"{_plain(show_expr(p.cell))} = {_plain(show_expr(p.expr))}" for p in s.puts]
    lines += [f"{r.name} = {r.monoid} of {_plain(show_expr(r.expr))}" for r in s.reds]
    for f in s.folds:
        order = ", neighbours in order" if f.ordered else ""
        elements = ", ".join(_plain(show_expr(e)) for e in f.elements)
        lines.append(f"({', '.join(f.names)}) = fold of ({elements}){order}")
    for i in s.inserts:
        which = "largest" if i.largest else "smallest"
        lines.append(f"the {i.length} {which} {_plain(show_expr(i.key))}, best first, to {i.keys.buf.name}, "
                     f"{i.indices.buf.name}")
    return [f"{head} {lines[0]}"] if len(lines) == 1 else [head, *("  " + x for x in lines)]


def statement_comment(s: Stmt, registers: Collection[str]) -> str:
    """What a statement is for in the cascade; empty where its text says it. `registers`: names of the accumulators."""
    if isinstance(s, LetScalar):
        if is_safe_scale(s.expr):
            return "a power of two that keeps the reciprocal of a divisor within the range of numbers"
        base, _, suffix = s.name.rpartition("_")
        base = base if suffix in _ROLES else ""
        return _ROLES[suffix].format(base) if base and (base in registers or suffix == "shift") else ""
    if isinstance(s, If) and any(isinstance(x, Set) for x in s.body):
        sets = [x.cell.buf.name for x in s.body if isinstance(x, Set)]
        return f"correction: what {', '.join(sets)} depends on has moved"
    if isinstance(s, For):
        if any(isinstance(x, LetScalar) and x.name.endswith("_theirs") for x in s.body):
            return "merge of the states of all parts, in order"
        if any(isinstance(x, Sweep) for x in s.body):
            return "block by block"
    return ""


def _plain(text: str) -> str:
    """Text of an expression without marks that only schedules need."""
    return re.sub(r" - 0\b(?=[\],])", "", text.replace("exp_below(", "exp("))
