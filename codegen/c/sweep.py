"""Sweeps: the vector loop. Full vectors several at a time, then one at a time, then a partial vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from redfuser.codegen.c.address import mentions
from redfuser.codegen.c.context import Context
from redfuser.codegen.c.folds import FoldPrinter, declare_results
from redfuser.codegen.c.lanes import VECTOR, Cell, Lanes, count_uses
from redfuser.codegen.c.lists import InsertPrinter
from redfuser.codegen.c.scalars import Scalars, bare, replace_var
from redfuser.codegen.c.types import BOOL, ITEMSIZE, SCALAR, Text, literal, narrowed, storage
from redfuser.codegen.c.variables import reduction_type
from redfuser.codegen.nodes import At, Put, Red, Sweep
from redfuser.codegen.passes.bodies import map_lanes, written_buffers
from redfuser.errors import CheckError
from redfuser.ir import MONOIDS, Const, Expr, Op, Size, Var, children, op, walk, with_children
from redfuser.ir.dtypes import STORAGE_ONLY

_COMBINE = {
    "sum": "{a} + {b}",
    "prod": "{a} * {b}",
    "max": "larger({a}, {b})",
    "min": "smaller({a}, {b})",
    "any": "{a} | {b}",
    "all": "{a} & {b}",
}
_FOLD = {
    "sum": "sum_lanes",
    "prod": "product_lanes",
    "max": "max_lanes",
    "min": "min_lanes",
    "any": "any_lane",
    "all": "all_lanes",
}
CACHE_LINE = 64


@dataclass
class _Accumulator:
    """The vectors that gather one reduction: one per copy of the loop body."""

    red: Red
    lanes: str  # lane kind of the accumulating vectors
    identity: str  # C text of the identity, as a vector
    vectors: list[str]
    nans: str | None  # gathers the lanes in which a NaN was met


class SweepPrinter:
    """Prints one Sweep into the context's writer."""

    def __init__(self, ctx: Context, sweep: Sweep) -> None:
        self.ctx = ctx
        self.sweep = sweep
        self.scalars = Scalars(ctx)
        self.cells: dict[At, Cell] = {}
        self.reds: tuple[Red, ...] = ()
        self.puts: tuple[Put, ...] = ()
        self.accumulators: list[_Accumulator] = []
        self.folds: list[FoldPrinter] = []
        self.inserts: list[InsertPrinter] = []
        self.count: int | None = _constant_count(sweep)
        self.start: str = "0"

    def print(self) -> None:
        """The whole sweep: declarations of the reductions' results, then a block with the loops."""
        ctx = self.ctx
        for red in self.sweep.reds:
            ctx.out.line(f"{SCALAR[self._result(red)]} {self._name(red)};")
        for fold in self.sweep.folds:
            declare_results(ctx, fold)
        with ctx.out.block():
            self._prepare()
            self._loops()
            for accumulator in self.accumulators:
                self._finish(accumulator)
            for gathered in self.folds:
                gathered.finish()
            for insert in self.inserts:
                insert.finish()

    def _name(self, red: Red) -> str:
        return self.ctx.names.get("variable", red.name)

    def _result(self, red: Red) -> str:
        return reduction_type(red.monoid, self.ctx.kernel.compute)

    # ---- before the loops

    def _prepare(self) -> None:
        s, out = self.sweep, self.ctx.out
        self.start = self._start()
        if self.count is None:
            out.line(f"const int64_t count = {bare(self.scalars.integer(op('sub', s.hi, s.lo)))};")
        stored = frozenset(b.name for b in written_buffers(s))
        fixed: dict[Expr, Text] = {}
        hoisted = map_lanes(s, lambda e: self._hoist(e, stored, fixed))
        self.reds, self.puts = hoisted.reds, hoisted.puts
        self.folds = [FoldPrinter(self.ctx, self.scalars, f, self._copies()) for f in hoisted.folds]
        self.inserts = [InsertPrinter(self.ctx, self.scalars, s.var, i, self._copies()) for i in hoisted.inserts]
        written = {p.cell for p in self.puts}
        for cell in dict.fromkeys(
            [*(x for e in self._roots() for x in walk(e) if isinstance(x, At)), *written]
        ):
            self._walk_cell(cell, cell in written)
        for red in self.reds:
            self._start_accumulator(red)
        for fold in self.folds:
            fold.start()
        for insert in self.inserts:
            insert.start()
            uses = count_uses([insert.node.key])
            insert.look_ahead(partial(self._lanes, left=None, uses=uses), stored, self.count)

    def _roots(self) -> list[Expr]:
        """What is computed in vectors: indices of insertions are computed for single lanes."""
        inserted = [i.node.key for i in self.inserts]
        return [*(p.expr for p in self.puts), *(r.expr for r in self.reds),
                *(e for f in self.folds for e in f.node.elements), *inserted]

    def _start(self) -> str:
        """Text of the first value of the sweep variable."""
        lo = self.sweep.lo
        text = self.scalars.integer(lo)
        if isinstance(lo, (Const, Var, Size)):
            return text
        name = self.ctx.names.fresh("first")
        self.ctx.out.let("int64_t", name, bare(text))
        return name

    def _start_value(self) -> Expr:
        return Const(0) if self.start == "0" else Text(self.start)

    def _hoist(self, e: Expr, stored: frozenset[str], fixed: dict[Expr, Text]) -> Expr:
        """Give a scalar name to every maximal subexpression that is the same for all lanes and not stored meanwhile."""
        if isinstance(e, (Const, Var, Text, Size)):
            return e
        if mentions(e, self.sweep.var) or any(isinstance(x, At) and x.buf.name in stored for x in walk(e)):
            if isinstance(e, At):
                return e
            return with_children(e, tuple(self._hoist(c, stored, fixed) for c in children(e)))
        if isinstance(e, At) and e.buf.home == "reg":
            return e
        if e not in fixed:
            kind = self.ctx.types.of(e)
            fixed[e] = Text(self.ctx.names.fresh("fix"), kind)
            self.ctx.out.let(SCALAR[kind], fixed[e].text, bare(self.scalars.of(e)))
        return fixed[e]

    def _walk_cell(self, cell: At, written: bool) -> None:
        """A pointer to the cell's first element and its step."""
        if cell.buf.home == "reg":
            return
        out, step = self.ctx.out, self.ctx.addresses.step(cell, self.sweep.var)
        if step is None or (step == Const(0) and not written):
            self.cells[cell] = Cell("", step)
            return
        name = self.ctx.names.fresh("ptr")
        kind = storage(cell.buf.dtype)
        out.let(
            f"{kind} *" if written else f"const {kind} *",
            name,
            self.scalars.pointer(cell, self.sweep.var, self._start_value()),
        )
        if not isinstance(step, Const):
            step_name = self.ctx.names.fresh("step")
            out.let("int64_t", step_name, bare(self.scalars.integer(step)))
            step = Text(step_name)
        self.cells[cell] = Cell(name, step)

    def _start_accumulator(self, red: Red) -> None:
        ctx = self.ctx
        if red.monoid not in _COMBINE:
            raise CheckError(
                f"monoid {red.monoid} has no vector form; a sweep reduces with {', '.join(_COMBINE)}"
            )
        if self._result(red) == BOOL:
            lanes, identity = "mask", f"splat_int({-1 if red.monoid == 'all' else 0})"
        else:
            lanes, identity = "real", f"splat({literal(MONOIDS[red.monoid].identity, ctx.kernel.compute)})"
        vectors = [ctx.names.fresh("acc") for _ in range(self._copies())]
        ctx.out.line(f"{VECTOR[lanes]} {', '.join(f'{v} = {identity}' for v in vectors)};")
        nans = None
        if red.monoid in ("max", "min") and not red.loose:
            nans = ctx.names.fresh("nans")
            ctx.out.line(f"nan_lanes {nans} = {{0}};")
        self.accumulators.append(_Accumulator(red, lanes, identity, vectors, nans))

    # ---- the loops

    def _copies(self) -> int:
        """Copies of the body per trip, no more than the count can fill."""
        unroll = max(1, self.sweep.unroll)
        return unroll if self.count is None else max(1, min(unroll, self.count // self.ctx.lanes))

    def _loops(self) -> None:
        out, lanes, copies = self.ctx.out, self.ctx.lanes, self._copies()
        limit = "count" if self.count is None else str(self.count)
        streamed = self._streamed()
        far = self._prefetches()
        out.line("int64_t at = 0;")
        if streamed is not None:
            self._head(streamed, limit)
        exact = self.count is not None and streamed is None
        if copies > 1:
            with out.block(f"for (; at + {lanes * copies} <= {limit}; at += {lanes * copies})"):
                self._prefetch(far, lanes * copies)
                self._body(copies, None, streamed)
        rest = self.count % (lanes * copies) if exact and self.count is not None else lanes
        if copies == 1 or rest >= lanes or not exact:
            with out.block(f"for (; at + {lanes} <= {limit}; at += {lanes})"):
                if copies == 1:
                    self._prefetch(far, lanes)
                self._body(1, None, streamed)
        if not exact or (self.count is not None and self.count % lanes):
            with out.block(f"if (at < {limit})"):
                out.line(f"const int left = (int)({limit} - at);")
                self._body(1, "left", None)

    def _streamed(self) -> At | None:
        """The cell whose stores bypass the caches: the first one that asks for it and has the vectors' own type."""
        for put in self.puts:
            if (
                put.stream
                and put.cell.buf.dtype == self.ctx.kernel.compute
                and self.cells[put.cell].contiguous
            ):
                return put.cell
        return None

    def _head(self, streamed: At, limit: str) -> None:
        """A partial vector up to the first aligned address."""
        out = self.ctx.out
        self.ctx.streams = True
        out.line(f"const int64_t head = min_int(lanes_to_vector({self.cells[streamed].pointer}), {limit});")
        with out.block("if (head > 0)"):
            out.line("const int left = (int)head;")
            self._body(1, "left", None)
            out.line("at = head;")

    def _prefetches(self) -> list[tuple[str, int]]:
        """(pointer to this sweep's share, element size) of the cells to fetch ahead."""
        result = []
        part, parts = self.sweep.turn
        count = "count" if self.count is None else str(self.count)
        for cell in self.sweep.ahead:
            if self.ctx.addresses.step(cell, self.sweep.var) == Const(1):
                name, kind = self.ctx.names.fresh("far"), storage(cell.buf.dtype)
                start = self.scalars.pointer(cell, self.sweep.var, self._start_value())
                skipped = f" + {count} / {parts}{f' * {part}' if part > 1 else ''}" if part else ""
                self.ctx.out.let(f"const {kind} *", name, start + skipped)
                result.append((name, ITEMSIZE[kind]))
        return result

    def _prefetch(self, far: list[tuple[str, int]], elements: int) -> None:
        """This sweep's share of the lines of one trip; the first takes all of a trip with fewer lines than shares."""
        part, parts = self.sweep.turn
        for name, size in far:
            per_line = CACHE_LINE // size
            lines = list(range(0, elements, per_line))
            if len(lines) < parts:
                step, lines = "at", lines * (part == 0)
            else:
                step, lines = f"at / {parts}" if parts > 1 else "at", lines[:len(lines) // parts]
            for k in lines:
                self.ctx.out.line(f"__builtin_prefetch({name} + {step}{f' + {k}' if k else ''}, 0, 2);")

    def _body(self, copies: int, left: str | None, streamed: At | None) -> None:
        """`copies` vectors: all stores, then all reductions, of each in turn."""
        uses = count_uses(self._roots())
        values: list[list[str]] = []
        keys: list[list[str]] = []
        for copy in range(copies):
            lanes = self._lanes(f"at + {copy * self.ctx.lanes}" if copy else "at", left, uses)
            for put in self.puts:
                self._store(lanes, put, put.cell == streamed)
            values.append([self._accumulate(lanes, a, copy) for a in self.accumulators])
            for fold in self.folds:
                fold.step(lanes, copy)
            keys.append([insert.key(lanes) for insert in self.inserts])
        for i, insert in enumerate(self.inserts):
            insert.step([k[i] for k in keys], self.start, "at", left)
        for i, a in enumerate(self.accumulators):
            if a.nans is not None:
                column = [v[i] for v in values]
                for k in range(0, copies, 2):
                    self.ctx.out.line(
                        f"{a.nans} |= unordered({column[k]}, {column[min(k + 1, copies - 1)]});"
                    )

    def _lanes(self, position: str, left: str | None, uses: Mapping[Expr, int]) -> Lanes:
        """The printer of the vector at a position."""
        start = position if self.start == "0" else f"{self.start} + {position}"
        return Lanes(self.ctx, self.scalars, self.sweep.var, start, position, left, self.cells, uses)

    def _accumulate(self, lanes: Lanes, a: _Accumulator, copy: int) -> str:
        """Combine this vector's value into the accumulator; returns the name of the value where NaN is watched for."""
        value = lanes.value(a.red.expr, a.lanes)
        if lanes.left is not None:
            choose = "select" if a.lanes == "real" else "select_int"
            value = f"{choose}(first_lanes({lanes.left}), {bare(value)}, {a.identity})"
        if a.nans is not None and not value.isidentifier():
            value = lanes.name(a.lanes, value)
        target = a.vectors[copy]
        if a.red.monoid == "sum":
            self.ctx.out.line(f"{target} += {bare(value)};")
        else:
            self.ctx.out.line(f"{target} = {_COMBINE[a.red.monoid].format(a=target, b=value)};")
        return value

    def _store(self, lanes: Lanes, put: Put, stream: bool) -> None:
        ctx, dtype = self.ctx, put.cell.buf.dtype
        native = dtype == ctx.kernel.compute
        kind = (
            "real" if "float" in dtype else "mask" if dtype == "bool" else lanes.integer_kind(put.expr, dtype)
        )
        value = lanes.stored(put.expr, kind)
        cell = self.cells.get(put.cell)
        if cell is None:
            raise CheckError(f"a sweep cannot store to the scalar {put.cell.buf.name}; use Set")
        if native:
            value = value if value.isidentifier() else lanes.name("real", value)
            lanes.memo[put.cell] = value
        suffix = "" if native else f"_{dtype}_{kind}"
        if cell.step is None:
            self._scatter(lanes, put, value, kind)
        elif not cell.contiguous:
            step = bare(self.scalars.integer(cell.step))
            tail = "_tail" if lanes.left else ""
            left = f", {lanes.left}" if lanes.left else ""
            ctx.out.line(f"store_step{tail}{suffix}({cell.at(lanes.position)}, {step}, {bare(value)}{left});")
        elif lanes.left is None:
            name = "store_stream" if stream else f"store{suffix}"
            ctx.out.line(f"{name}({cell.at(lanes.position)}, {bare(value)});")
        else:
            name = "blend_tail" if native and put.cell.buf.home == "local" else f"store_tail{suffix}"
            ctx.out.line(f"{name}({cell.at(lanes.position)}, {bare(value)}, {lanes.left});")

    def _scatter(self, lanes: Lanes, put: Put, value: str, kind: str) -> None:
        """Lane by lane, for a cell whose address is no affine function of the variable."""
        name = value if value.isidentifier() else lanes.name(kind, value)
        target = self.scalars.cell(replace_cell(put.cell, self.sweep.var, f"({lanes.start} + lane)"))
        element = f"{name}[lane]"
        if put.cell.buf.dtype in STORAGE_ONLY:
            element = f"scalar_to_{put.cell.buf.dtype}({narrowed(element, self.ctx.kernel.compute)})"
        elif kind == "mask":
            element = f"{element} != 0"
        self.ctx.out.line(
            f"for (int lane = 0; lane < {lanes.left or 'LANES'}; lane++) "
            f"{target} = ({storage(put.cell.buf.dtype)}){element if kind != 'mask' else f'({element})'};"
        )

    # ---- after the loops

    def _finish(self, a: _Accumulator) -> None:
        """Lanes to a scalar: the copies pairwise, then a tree over the lanes."""
        vectors = list(a.vectors)
        while len(vectors) > 1:
            pairs = [vectors[i : i + 2] for i in range(0, len(vectors), 2)]
            vectors = [
                f"({_COMBINE[a.red.monoid].format(a=bare(p[0]), b=bare(p[1]))})" if len(p) == 2 else p[0]
                for p in pairs
            ]
        text = f"{_FOLD[a.red.monoid]}({bare(vectors[0])})"
        if a.nans is not None:
            text = f"any_nan({a.nans}) ? NOT_A_NUMBER : {text}"
        self.ctx.out.line(f"{self._name(a.red)} = {text};")


def replace_cell(cell: At, var: str, text: str) -> At:
    """The cell with a variable replaced by C text."""
    return At(cell.buf, tuple(replace_var(i, var, Text(text)) for i in cell.idx))


def _constant_count(s: Sweep) -> int | None:
    """The number of elements when the text of the bounds gives it away."""
    if isinstance(s.lo, Const) and isinstance(s.hi, Const):
        return max(0, int(s.hi.value) - int(s.lo.value))
    if isinstance(s.hi, Op) and s.hi.fn == "add" and s.lo in s.hi.args:
        other = s.hi.args[1] if s.hi.args[0] == s.lo else s.hi.args[0]
        if isinstance(other, Const):
            return max(0, int(other.value))
    return None
