"""The elements of a range, shared out among the threads of a team, and what one thread computes of one element.

A thread takes `width` neighbours at a time: whole vectors of an array are loaded by one instruction where they lie
right. Element i belongs to the same thread in every sweep over ranges of that width, which is why scratch may be
registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from redfuser.codegen.c.lanes import count_uses
from redfuser.codegen.c.scalars import bare
from redfuser.codegen.c.types import SCALAR, Text
from redfuser.codegen.cuda.context import CudaContext
from redfuser.codegen.cuda.scalars import difference
from redfuser.codegen.nodes import At, Sweep
from redfuser.ir import Cast, Const, Expr, Op, Size, Var, walk, with_children


@dataclass
class Element:
    """One element of a range: prints values of it, each repeated term once.

    known : expression -> text that has its value already
    place : index of the element in buffers of registers
    """

    ctx: CudaContext
    uses: dict[Expr, int]
    var: str
    known: dict[Expr, Expr]
    place: str
    loaded: dict[At, str] = field(default_factory=dict)
    stored: dict[At, str] = field(default_factory=dict)

    @cached_property
    def rounded(self) -> frozenset[Expr]:
        """Products that are rounded by themselves wherever they stand."""
        sums = [x for x in map(difference, self.uses) if x is not None]
        return frozenset(x for s in sums for x in s.args if isinstance(x, Op) and x.fn == "mul")

    def value(self, e: Expr, kind: str | None = None) -> str:
        """Text of a value."""
        return bare(self.ctx.scalars.of(self._named(e), kind))

    def name(self, e: Expr, kind: str) -> str:
        """A variable that has a value."""
        text = self.value(e, kind)
        if text.isidentifier():
            return text
        name = self.ctx.names.fresh("val")
        self.ctx.out.let(SCALAR[kind], name, text)
        return name

    def _named(self, e: Expr) -> Expr:
        if e in self.known:
            return self.known[e]
        if isinstance(e, (Const, Size, Text, Var)):
            return e
        found: Expr = e
        if isinstance(e, At):
            found = self._cell(e)
        elif isinstance(e, (Op, Cast)):
            args = (e.body,) if isinstance(e, Cast) else e.args
            found = with_children(e, tuple(map(self._named, args)))
        kind = self.ctx.types.of(e)
        if e in self.rounded:
            found = Text(self.ctx.scalars.product(found, kind), kind)
        if self.uses.get(e, 0) > 1 and (isinstance(found, (Op, Cast, At)) or e in self.rounded):
            name = self.ctx.names.fresh("val")
            self.ctx.out.let(SCALAR[kind], name, bare(self.ctx.scalars.of(found, kind)))
            found = Text(name, kind)
        self.known[e] = found
        return found

    def _cell(self, e: At) -> Expr:
        scalars, kind = self.ctx.scalars, self.ctx.types.of(e)
        if e in self.loaded:
            return Text(scalars.loaded(self.loaded[e], e), kind)
        if self.ctx.register_home(e.buf):
            return Text(scalars.loaded(f"{self.ctx.addresses.base(e.buf)}[{self.place}]", e), kind)
        return e

    def put(self, cell: At, e: Expr) -> None:
        """Store a value; later expressions of the same element see it as it was stored."""
        ctx = self.ctx
        text = ctx.scalars.stored(cell.buf.dtype, self._named(e))
        name = ctx.names.fresh("val")
        ctx.out.let(ctx.element(cell.buf), name, text)
        if cell in self.stored:
            ctx.out.line(f"{self.stored[cell]} = {name};")
        elif ctx.register_home(cell.buf):
            ctx.out.line(f"{ctx.addresses.base(cell.buf)}[{self.place}] = {name};")
        else:
            ctx.out.line(f"{ctx.scalars.cell(cell)} = {name};")
        self.known = {k: v for k, v in self.known.items() if not _reads(k, cell)}
        self.known[cell] = Text(ctx.scalars.loaded(name, cell), ctx.types.of(cell))


def _reads(e: Expr, cell: At) -> bool:
    return any(isinstance(x, At) and x.buf == cell.buf for x in walk(e))


class Range:
    """The loop over the elements of a sweep's range that belong to one thread."""

    def __init__(self, ctx: CudaContext, sweep: Sweep, exprs: Sequence[Expr], cells: Iterable[At] = ()) -> None:
        """`exprs`: what is computed of an element; `cells`: what is stored of it."""
        self.ctx, self.sweep = ctx, sweep
        self.width = ctx.width(sweep)
        self.uses = count_uses(list(exprs))
        self.puts = list(dict.fromkeys(cells))
        read = dict.fromkeys(x for e in exprs for x in walk(e) if isinstance(x, At))
        self.items = ctx.items([*read, *self.puts])
        self.loads = [c for c in read if self._vector(c) and c.buf not in {p.buf for p in self.puts}]
        self.stores = [c for c in self.puts if self._vector(c)]

    def _vector(self, c: At) -> bool:
        """Whether neighbouring elements of the range are neighbours in memory."""
        if self.width == 1 or c.buf.home == "reg" or self.ctx.register_home(c.buf):
            return False
        inner = any(isinstance(x, At) for i in c.idx for x in walk(i))
        return not inner and self.ctx.addresses.step(c, self.sweep.var) == Const(1)

    @contextmanager
    def elements(self) -> Iterator[Element]:
        """Inside, the statements of one element are printed; the sweep's variable is its position."""
        ctx, out, width = self.ctx, self.ctx.out, self.width
        lo, hi = (bare(ctx.scalars.integer(e)) for e in (self.sweep.lo, self.sweep.hi))
        var = ctx.names.get("variable", self.sweep.var)
        team = ctx.team.team
        if self.items:
            out.line("#pragma unroll")
            head = f"for (int item = 0; item < {self.items}; item++)"
            mine = f"(item * {team} + lane)" if self.items > 1 else "lane"
            start = mine if width == 1 else f"{mine} * {width}"
            start = start if lo == "0" else f"{lo} + {start}"
            name = "at" if width > 1 else var
            with out.block(head):
                out.let("int64_t", name, bare(start))
                with out.block(f"if ({name} < {hi})"), self._vectors(var, hi) as element:
                    yield element
            return
        step, start = team * width, "lane" if width == 1 else f"lane * {width}"
        start = start if lo == "0" else f"{lo} + {start}"
        name = "at" if width > 1 else var
        with (
            out.block(f"for (int64_t {name} = {start}; {name} < {hi}; {name} += {step})"),
            self._vectors(var, hi) as element,
        ):
            yield element

    @contextmanager
    def _vectors(self, var: str, hi: str) -> Iterator[Element]:
        """One vector of neighbours at `at`, or one element."""
        out, width = self.ctx.out, self.width
        if width == 1:
            yield self._element({}, {}, "item")
            return
        out.let("int64_t", "held", f"{hi} - at")
        loaded = {c: self._buffer(c) for c in self.loads}
        for c, name in loaded.items():
            out.line(f"load_run({name}, {self._pointer(c)}, held);")
        stored = {c: self._buffer(c) for c in self.stores}
        out.line("#pragma unroll")
        with out.block(f"for (int part = 0; part < {width}; part++)"), out.block("if (part < held)"):
            mark = len(out)
            out.let("int64_t", var, "at + part")
            yield self._element({c: f"{n}[part]" for c, n in loaded.items()},
                                {c: f"{n}[part]" for c, n in stored.items()}, f"item * {width} + part")
            out.drop_unread(var, mark)
        for c, name in stored.items():
            out.line(f"store_run({self._pointer(c)}, {name}, held);")

    def _buffer(self, c: At) -> str:
        name = self.ctx.names.fresh("bits")
        self.ctx.out.line(f"{self.ctx.element(c.buf)} {name}[{self.width}];")
        return name

    def _pointer(self, c: At) -> str:
        return self.ctx.scalars.pointer(c, self.sweep.var, Text("at"))

    def _element(self, loaded: dict[At, str], stored: dict[At, str], place: str) -> Element:
        return Element(self.ctx, self.uses, self.sweep.var, {}, place, loaded, stored)
