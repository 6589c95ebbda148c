"""Readable text of tile programs: one statement per line, bodies indented, decisions as notes on top."""

from __future__ import annotations

from redfuser.codegen.nodes import (
    At,
    Buf,
    Fold,
    For,
    If,
    Insert,
    Kernel,
    LetInt,
    LetScalar,
    MatMul,
    Pack,
    Phase,
    Set,
    Stmt,
    Sweep,
)
from redfuser.ir import Expr, show


def show_expr(e: Expr) -> str:
    """Text of a tile expression."""
    return show(e, _cell_text)


def _cell_text(e: Expr) -> str | None:
    if not isinstance(e, At):
        return None
    return f"{e.buf.name}[{', '.join(map(show_expr, e.idx))}]" if e.idx else e.buf.name


def show_stmt(s: Stmt, indent: int = 0) -> list[str]:
    """Lines of a statement."""
    lines = _lines(s)
    return [" " * indent + line for line in lines]


def _body(body: tuple[Stmt, ...]) -> list[str]:
    return [line for s in body for line in show_stmt(s, 2)]


def _lines(s: Stmt) -> list[str]:
    if isinstance(s, For):
        step = "" if show_expr(s.step) == "1" else f" step {show_expr(s.step)}"
        return [f"{s.kind} {s.var} in {show_expr(s.lo)} .. {show_expr(s.hi)}{step}:", *_body(s.body)]
    if isinstance(s, If):
        return [f"if {show_expr(s.condition)}:", *_body(s.body)]
    if isinstance(s, LetInt):
        return [f"{s.name} = {show_expr(s.expr)}"]
    if isinstance(s, LetScalar):
        return [f"{s.name}:{s.dtype} = {show_expr(s.expr)}"]
    if isinstance(s, Set):
        return [f"{show_expr(s.cell)} := {show_expr(s.expr)}"]
    if isinstance(s, Sweep):
        return _sweep_lines(s)
    if isinstance(s, MatMul):
        return [_matmul_line(s)]
    if isinstance(s, Pack):
        panels = (
            f"panels {show_expr(s.p0)} .. {show_expr(s.p1)} of {s.width} lanes, depth {show_expr(s.depth)}"
        )
        return [f"pack {show_expr(s.dst)} <- {show_expr(s.src)}  {panels}, lanes {show_expr(s.lanes)}"]
    if type(s).__str__ is not Stmt.__str__:  # of another level
        return str(s).split("\n")
    raise TypeError(f"no text for {type(s).__name__}")


def _sweep_lines(s: Sweep) -> list[str]:
    ahead = f" ahead {', '.join(map(show_expr, s.ahead))}" if s.ahead else ""
    ahead += f" part {s.turn[0]} of {s.turn[1]}" if s.turn[1] > 1 else ""
    lines = [f"sweep {s.var} in {show_expr(s.lo)} .. {show_expr(s.hi)} unroll {s.unroll}{ahead}:"]
    lines += [f"  {show_expr(p.cell)} <-{'nt' if p.stream else ''} {show_expr(p.expr)}" for p in s.puts]
    lines += [f"  {r.name} = {'loose ' * r.loose}{r.monoid}({show_expr(r.expr)})" for r in s.reds]
    lines += [line for f in s.folds for line in _fold_lines(f)]
    return lines + [_insert_line(i) for i in s.inserts]


def _fold_lines(f: Fold) -> list[str]:
    """Elements, then the law that combines two states."""
    elements, identity = (", ".join(map(show_expr, x)) for x in (f.elements, f.identity))
    order = " in order" if f.ordered else ""
    head = f"  {', '.join(f.names)} = fold{order}({elements}) from {identity}:"
    return [head, f"    ({', '.join(f.left)}) ({', '.join(f.right)}) -> {', '.join(map(show_expr, f.combine))}"]


def _insert_line(i: Insert) -> str:
    order = "largest" if i.largest else "smallest"
    lists = f"{show_expr(i.keys)}, {show_expr(i.indices)}"
    return f"  insert {show_expr(i.key)}, {show_expr(i.index)} -> {lists}  {order} {i.length} first"


def _matmul_line(s: MatMul) -> str:
    arrow = "+=" if s.accumulate else "="
    text = f"matmul[{s.form} {s.mr}x{s.nr}] {show_expr(s.dst)} {arrow} {show_expr(s.a)} . {show_expr(s.b)}"
    text += f" in {s.rounds}" if s.rounds else ""
    text += f"  m={show_expr(s.m)} n={show_expr(s.n)} k={show_expr(s.k)}"
    if s.bound:
        ends = [show_expr(e) if e is not None else "" for e in (s.lo, s.hi)]
        text += f"  {s.bound} in [{ends[0]}, {ends[1]})"
    return text + "".join(f" ahead {show_expr(cell)} ({show_expr(count)})" for cell, count in s.ahead)


def _buffer_text(b: Buf) -> str:
    unit = f" unit {b.unit}" if b.unit is not None else ""
    return f"{b.name}[{', '.join(map(show_expr, b.shape))}]:{b.dtype}{unit}"


def _phase_lines(number: int, phase: Phase) -> list[str]:
    when = "" if phase.when is None else f" when {show_expr(phase.when)}"
    lines = [f"phase {number}{when}:"]
    lines += [f"  local {_buffer_text(b)}" for b in phase.local]
    return lines + show_stmt(phase.loop, 2)


def show_kernel(k: Kernel) -> str:
    """The whole program, notes first."""
    static = "".join(f" {axis}={length}" for axis, length in k.static)
    lines = [f"kernel {k.name} compute {k.compute} sizes {', '.join(k.sizes) or '-'}{static}"]
    lines += [f"  note {n}" for n in k.notes]
    lines += [f"  in {_buffer_text(b)}" for b in k.tensors] + [f"  out {_buffer_text(b)}" for b in k.outs]
    lines += [f"  shared {_buffer_text(b)}" for b in k.shared]
    return "\n".join(lines + [line for i, p in enumerate(k.phases) for line in _phase_lines(i, p)])
