"""Statements of rows as CUDA: a thread runs them for each of its parts, sweeps run over its columns of fragments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from redfuser.codegen.c.lanes import count_uses
from redfuser.codegen.c.scalars import bare
from redfuser.codegen.c.statements import print_plain
from redfuser.codegen.c.types import INT, SCALAR, Text
from redfuser.codegen.c.variables import reduction_type
from redfuser.codegen.cuda.context import CudaContext
from redfuser.codegen.cuda.lanes import Element
from redfuser.codegen.cuda.scalars import CudaScalars
from redfuser.codegen.cuda.sweep import functor, taken_in
from redfuser.codegen.cuda.tiles.nodes import COLUMNS, FRAGMENT, LIST, STATE, Clear, FragmentPhase
from redfuser.codegen.cuda.tiles.whole import columns_of
from redfuser.codegen.indexing import tidy
from redfuser.codegen.nodes import At, For, Insert, Set, Stmt, Sweep
from redfuser.codegen.passes.bodies import Body, lane_expressions
from redfuser.errors import CheckError
from redfuser.ir import MONOIDS, Const, Expr, op, rewrite, walk

OWN_ROW = "own_row"
"""The row of a part; the variable of the row loop is the last row of the tile where there is no such row."""
LANES = 2
"""Neighbouring columns of a thread."""
Act = Callable[[Element], None]
"""Prints what is done with one element."""


class TileScalars(CudaScalars):
    """Scalar expressions where exponentials of what is at most zero need no more than matrix units keep of them."""

    def call(self, fn: str, kind: str, arguments: str) -> str:
        if fn == "exp_below" and kind == "float32":
            return f"exp_at_most_one({arguments})"
        return super().call(fn, kind, arguments)


class _Element(Element):
    """One element of a sweep; cells of fragments and strips are those of its column."""

    rows: RowPrinter
    only: str = ""

    def _cell(self, e: At) -> Expr:
        text = None if e in self.loaded else self.rows.held_text(e)
        return super()._cell(e) if text is None else Text(self.ctx.scalars.loaded(text, e), self.ctx.types.of(e))

    def put(self, cell: At, e: Expr) -> None:
        ctx = self.ctx
        name = ctx.names.fresh("val")
        ctx.out.let(ctx.element(cell.buf), name, ctx.scalars.stored(cell.buf.dtype, self._named(e)))
        target = self.stored.get(cell) or self.rows.held_text(cell)
        ctx.out.line(f"{target} = {name};" if target else f"{self.only}{ctx.scalars.cell(cell)} = {name};")
        self.known = {k: v for k, v in self.known.items()
                      if not any(isinstance(x, At) and x.buf == cell.buf for x in walk(k))}
        self.known[cell] = Text(ctx.scalars.loaded(name, cell), ctx.types.of(cell))


class RowPrinter:
    """Prints row loops of one phase.

    apart : how many conditions and loops around the current statement may differ between the rows of a warp
    """

    def __init__(self, ctx: CudaContext, phase: FragmentPhase) -> None:
        self.ctx, self.phase = ctx, phase
        self.held = {h.buf: h for h in phase.held}
        self.apart = 0
        self.guarded = False

    # ---- cells in registers

    def held_text(self, e: At) -> str | None:
        """The register that holds a cell in the current part and column; None where none does."""
        home = self.held.get(e.buf)
        if home is None:
            return None
        base = self.ctx.addresses.base(e.buf)
        if home.kind == STATE:
            return f"{base}[part]"
        if home.kind == LIST:
            return f"{base}[part][{bare(self.ctx.scalars.integer(e.idx[-1]))}]"
        return f"{base}[part / 2][column][part % 2 * 2 + e]" if home.kind == FRAGMENT else f"{base}[column][e]"

    def resolved(self, e: Expr) -> Expr:
        """An expression outside of sweeps with the registers that hold values of the row."""

        def cell(x: Expr) -> Expr | None:
            text = self.held_text(x) if isinstance(x, At) else None
            return None if text is None else Text(self.ctx.scalars.loaded(text, x), self.ctx.types.of(x))  # type: ignore[arg-type]

        return rewrite(e, cell)

    # ---- loops over rows

    def loop(self, s: For) -> None:
        """A row loop."""
        with self.parts(s):
            self.statements(s.body)

    @contextmanager
    def parts(self, s: For) -> Iterator[None]:
        """The loop over the parts of a thread; binds the row."""
        ctx, out = self.ctx, self.ctx.out
        out.line("#pragma unroll")
        with out.block(f"for (int part = 0; part < {self.phase.parts}; part++)"):
            mark = len(out)
            out.let("int64_t", OWN_ROW, "warp_row + (part / 2 * 16 + part % 2 * 8 + lane / 4)")
            row = ctx.names.get("variable", s.var)
            hi = bare(ctx.scalars.integer(s.hi))
            self.guarded = s.hi != Const(self.phase.rows)
            self.end = hi
            at_row = len(out)
            out.let("int64_t", row, f"min_int({OWN_ROW}, {hi} - 1)" if self.guarded else OWN_ROW)
            yield
            out.drop_unread(row, at_row)
            out.drop_unread(OWN_ROW, mark)
            self.guarded = False

    def statements(self, body: Body) -> None:
        """Statements of one row."""
        for s in body:
            self.statement(s)

    def statement(self, s: Stmt) -> None:
        """One statement of a row."""
        if print_plain(self.ctx.scalars, s, self._apart, self.resolved):
            return
        if isinstance(s, Set):
            self._set(s)
        elif isinstance(s, Sweep):
            self.sweep(s)
        elif isinstance(s, Clear):
            self._clear(s)
        else:
            raise CheckError(f"{type(s).__name__} has no form in a row of a tile")

    def _apart(self, body: Body) -> None:
        self.apart += 1
        self.statements(body)
        self.apart -= 1

    def _set(self, s: Set) -> None:
        """One value of a row: all lanes that hold the row keep it, one of them stores it to memory."""
        scalars = self.ctx.scalars
        text = self.held_text(s.cell)
        value = scalars.stored(s.cell.buf.dtype, self.resolved(s.expr))
        if text is not None or s.cell.buf.home == "reg":
            self.ctx.out.line(f"{text or scalars.cell(s.cell)} = {value};")
            return
        here = f" && {OWN_ROW} < {self.end}" if self.guarded else ""
        self.ctx.out.line(f"if (lane % 4 == 0{here}) {scalars.cell(s.cell)} = {value};")

    def _clear(self, s: Clear) -> None:
        ctx, out = self.ctx, self.ctx.out
        count = self.held[s.buf].columns // COLUMNS
        first, last = ctx.names.fresh("first"), ctx.names.fresh("last")
        with out.block():
            out.let("int64_t", first, bare(ctx.scalars.integer(s.lo)))
            out.let("int64_t", last, bare(ctx.scalars.integer(s.hi)))
            with self._columns(count):
                out.let("int", "at", f"column * {COLUMNS} + lane % 4 * 2 + e")
                lower = "" if s.lo == Const(0) else f"at < {first} || "
                cell = f"{ctx.addresses.base(s.buf)}[part / 2][column][part % 2 * 2 + e]"
                out.line(f"if ({lower}at >= {last}) {cell} = 0;")

    @contextmanager
    def _columns(self, count: int) -> Iterator[None]:
        out = self.ctx.out
        out.line("#pragma unroll")
        with out.block(f"for (int column = 0; column < {count}; column++)"):
            out.line("#pragma unroll")
            with out.block(f"for (int e = 0; e < {LANES}; e++)"):
                yield

    # ---- sweeps

    def sweep(self, s: Sweep) -> None:
        """Results start as identities, a thread takes its columns in, then the lanes of the row meet."""
        ctx, out = self.ctx, self.ctx.out
        for r in s.reds:
            kind = reduction_type(r.monoid, ctx.kernel.compute)
            nothing = ctx.scalars.constant(MONOIDS[r.monoid].identity, kind)
            out.line(f"{SCALAR[kind]} {self._name(r.name)} = {nothing};")
        if s.puts or s.reds:
            self._elements(replace(s, inserts=()))
        for i in s.inserts:
            self._insert(replace(s, puts=(), reds=(), inserts=(i,)), i)

    def _elements(self, s: Sweep) -> None:
        """Stores and reductions of a sweep."""
        out = self.ctx.out
        outside = self.guarded and any(p.cell.buf not in self.held for p in s.puts)
        if outside:
            with out.block(f"if ({OWN_ROW} < {self.end})"):
                self._range(s)
        else:
            self._range(s)
        if self.apart or self._along_list(s):  # each lane has computed all of it; some may not be here
            return
        for r in s.reds:
            out.line(f"{self._name(r.name)} = quad_all<{functor(r)}>({self._name(r.name)});")

    def _along_list(self, s: Sweep) -> bool:
        """Whether a sweep runs over the places of a list, all of which each lane of a row has."""
        cells = (x for e in (*lane_expressions(s), *(p.cell for p in s.puts)) for x in walk(e) if isinstance(x, At))
        return any(c.buf in self.held and self.held[c.buf].kind == LIST for c in cells)

    def _insert(self, s: Sweep, i: Insert) -> None:
        """Rounds: the best of the row that comes after the last one, into the list of every lane."""
        ctx, out = self.ctx, self.ctx.out
        if self.apart:
            raise CheckError(f"{s} fills a list where the rows of a warp may differ")
        real, sign = SCALAR[ctx.kernel.compute], "true" if i.largest else "false"
        keys, indices = (f"{ctx.addresses.base(c.buf)}[part]" for c in (i.keys, i.indices))
        with out.block():
            out.line(f"candidate<{real}> last = nothing<{real}>();")
            out.line("#pragma unroll 1")
            with out.block(f"for (int count = 0; count < {i.length}; count++)"):
                out.line(f"candidate<{real}> best = nothing<{real}>();")
                self._range(s, lambda element: self._offer(element, s, i, sign))
                out.line(f"best = quad_best<{sign}>(best);")
                out.line(f"const bool enters = best.index >= 0 && ({indices}[{i.length - 1}] < 0 || "
                         f"key_before<{sign}>(best.key, {keys}[{i.length - 1}]));")
                out.line("if (!__any_sync(ALL_LANES, enters)) break;")
                with out.block("if (enters)"):
                    out.line("last = best;")
                    out.line(f"insert_sorted<{sign}>({keys}, {indices}, best.key, best.index);")

    def _offer(self, element: Element, s: Sweep, i: Insert, sign: str) -> None:
        key, index = element.name(i.key, self.ctx.kernel.compute), element.name(i.index, INT)
        self.ctx.out.line(f"if ({index} >= 0) offer<{sign}>(best, last, {{{key}, {self._name(s.var)}, {index}}});")

    def _name(self, name: str) -> str:
        return self.ctx.names.get("variable", name)

    def _range(self, s: Sweep, act: Act | None = None) -> None:
        """The elements of a sweep that belong to one thread; `act` prints another thing to do with each."""
        ctx, out = self.ctx, self.ctx.out
        columns = columns_of(s, self.held)
        lo, hi = (bare(ctx.scalars.integer(self.resolved(e))) for e in (s.lo, s.hi))
        exprs = list(lane_expressions(s))
        if act is None and self._along_list(s):
            self._places(s, exprs, lo, hi)
            return
        if self.apart and s.reds:
            if columns is not None:
                raise CheckError(f"{s} reduces fragments where the rows of a warp may differ")
            with out.block(f"for (int64_t at = {lo}; at < {hi}; at += {LANES})"):
                self._pair(s, exprs, f"{hi} - at", "")
            return
        if columns is None:
            with out.block(f"for (int64_t at = {lo} + lane % 4 * 2; at < {hi}; at += {COLUMNS})"):
                self._pair(s, exprs, f"{hi} - at", "", act)
            return
        if columns.hold(s):
            held, tests = str(LANES), ""
        else:
            below = tidy(op("sub", s.lo, columns.origin)) == Const(0)
            name = self._name(s.var)
            held, tests = f"{hi} - at", f"{name} < {hi}" if below else f"{name} >= {lo} && {name} < {hi}"
        origin = bare(ctx.scalars.integer(columns.origin))
        out.line("#pragma unroll")
        with out.block(f"for (int column = 0; column < {columns.count // COLUMNS}; column++)"):
            start = f"column * {COLUMNS} + lane % 4 * 2"
            out.let("int64_t", "at", start if origin == "0" else f"{origin} + ({start})")
            self._pair(s, exprs, held, tests, act)

    def _places(self, s: Sweep, exprs: Sequence[Expr], lo: str, hi: str) -> None:
        """All places of a list; the lanes of a row store to memory in turn."""
        name = self._name(s.var)
        self.ctx.out.line("#pragma unroll")
        with self.ctx.out.block(f"for (int64_t {name} = {lo}; {name} < {hi}; {name}++)"):
            self._element(s, exprs, {}, {}, f"if (lane % 4 == {name} % 4) ")

    def _pair(self, s: Sweep, exprs: Sequence[Expr], held: str, tests: str, act: Act | None = None) -> None:
        """Two neighbours, from `at` on; `held` of them are in the range."""
        ctx, out = self.ctx, self.ctx.out
        mark = len(out)
        out.let("int64_t", "held", held)
        written = {p.cell.buf for p in s.puts}
        read = dict.fromkeys(x for e in exprs for x in walk(e) if isinstance(x, At))
        loads = {c: self._buffer(c) for c in read if self._adjacent(c, s) and c.buf not in written}
        for c, name in loads.items():
            out.line(f"load_run({name}, {ctx.scalars.pointer(c, s.var, Text('at'))}, held);")
        simple = not tests or ">=" not in tests
        puts = dict.fromkeys(p.cell for p in s.puts)
        stores = {c: self._buffer(c) for c in puts if simple and self._adjacent(c, s)}
        out.line("#pragma unroll")
        with out.block(f"for (int e = 0; e < {LANES}; e++)"):
            name = self._name(s.var)
            at_var = len(out)
            out.let("int64_t", name, "at + e")
            if not tests and held != str(LANES):
                tests = "e < held"
            if tests:
                with out.block(f"if ({tests})"):
                    self._element(s, exprs, loads, stores, act=act)
            else:
                self._element(s, exprs, loads, stores, act=act)
            out.drop_unread(name, at_var)
        for c, name in stores.items():
            out.line(f"store_run({ctx.scalars.pointer(c, s.var, Text('at'))}, {name}, held);")
        out.drop_unread("held", mark)

    def _adjacent(self, c: At, s: Sweep) -> bool:
        """Whether neighbouring elements of the range are neighbours in memory."""
        if c.buf.home == "reg" or c.buf in self.held or any(isinstance(x, At) for i in c.idx for x in walk(i)):
            return False
        return self.ctx.addresses.step(c, s.var) == Const(1)

    def _buffer(self, c: At) -> str:
        name = self.ctx.names.fresh("bits")
        self.ctx.out.line(f"{self.ctx.element(c.buf)} {name}[{LANES}];")
        return name

    def _element(self, s: Sweep, exprs: Sequence[Expr], loads: dict[At, str], stores: dict[At, str], only: str = "",
                 act: Act | None = None) -> None:
        element = _Element(self.ctx, count_uses(list(exprs)), s.var, {}, "e",
                           {c: f"{n}[e]" for c, n in loads.items()}, {c: f"{n}[e]" for c, n in stores.items()})
        element.rows, element.only = self, only
        if act is not None:
            act(element)
            return
        for p in s.puts:
            element.put(p.cell, p.expr)
        for r in s.reds:
            kind = reduction_type(r.monoid, self.ctx.kernel.compute)
            value = element.name(r.expr, kind)
            self.ctx.out.line(taken_in(r, self._name(r.name), value))


