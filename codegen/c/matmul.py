"""Matrix products: a loop over register tiles around one micro-kernel, a function of its own so that every value it
needs stays in registers.

Panel form: `mr` x `nr` sums in vectors along j, one broadcast of `a` and one row of `b` per step of k.
Dot form: `mr` x `nr` sums in vectors along k, added up over the lanes at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from redfuser.codegen.c.context import Context, Writer
from redfuser.codegen.c.scalars import Scalars, bare
from redfuser.codegen.c.shuffles import sum_tree
from redfuser.codegen.c.sweep import CACHE_LINE
from redfuser.codegen.c.types import ITEMSIZE, Text, narrowed, storage
from redfuser.codegen.nodes import At, MatMul
from redfuser.errors import CheckError
from redfuser.ir import Const, Expr, op
from redfuser.ir.dtypes import STORAGE_ONLY

ROW, COLUMN, DEPTH = "i_", "j_", "k_"


@dataclass(frozen=True)
class _Stride:
    """An element stride inside a micro-kernel: `text` there, `argument` at the call (None: a literal)."""

    text: str
    argument: str | None

    def times(self, factor: int | str) -> str:
        """C text of a multiple."""
        if factor == 0 or self.text == "0":
            return "0"
        if isinstance(factor, int) and self.argument is None:
            return str(factor * int(self.text))
        return f"{factor} * {self.text}" if self.text != "1" else str(factor)


class MatMulPrinter:
    """Prints one MatMul: the loops into the context's writer, the micro-kernels into its list of functions."""

    def __init__(self, ctx: Context, node: MatMul) -> None:
        self.ctx = ctx
        self.node = node
        self.scalars = Scalars(ctx)
        self.lanes = ctx.lanes
        self.made: dict[tuple[int, bool], str] = {}
        self.a_row = self._stride(node.a, ROW, "lda")
        self.a_depth = self._stride(node.a, DEPTH, "a_step")
        self.b_depth = self._stride(node.b, DEPTH, "ldb")
        self.dst_row = self._stride(node.dst, ROW, "ldc")
        self.depth = str(node.k.value) if isinstance(node.k, Const) and node.bound != "k" else None

    def print(self) -> None:
        """The product."""
        if self.node.form == "panel":
            self._panel()
        elif self.node.form == "dot":
            self._dot()
        else:
            raise CheckError(f"MatMul form {self.node.form!r} is unknown; use panel or dot")

    # ---- shared pieces

    def _stride(self, cell: At, index: str, name: str) -> _Stride:
        step = self.ctx.addresses.step(cell, index)
        if step is None:
            raise CheckError(f"MatMul operand {cell.buf.name} has no constant stride along {index}")
        if isinstance(step, Const):
            return _Stride(str(step.value), None)
        return _Stride(name, bare(self.scalars.integer(step)))

    def _require_unit(self, cell: At, index: str) -> None:
        """Lanes must be neighbours in memory. An index that is not affine (packed panels) is so by contract."""
        step = self.ctx.addresses.step(cell, index)
        if step is not None and step != Const(1):
            raise CheckError(f"MatMul needs {cell.buf.name} contiguous along {index} (form {self.node.form})")

    def _strides(self, rows: int) -> list[_Stride]:
        """The strides that a micro-kernel of `rows` rows gets as parameters."""
        between_rows = [self.a_row, self.dst_row] if rows > 1 else []
        if self.node.form == "panel":
            strides = [*between_rows, self.a_depth, self.b_depth]
        else:
            columns = [
                self._stride(self.node.b, COLUMN, "ldb"),
                self._stride(self.node.dst, COLUMN, "c_step"),
            ]
            strides = [*between_rows, *(columns if self.node.nr > 1 else [])]
        return [s for s in strides if s.argument is not None]

    def _signature(self, name: str, rows: int, extra: str) -> str:
        n = self.node
        params = [
            f"const {storage(n.a.buf.dtype)} *A",
            f"const {storage(n.b.buf.dtype)} *B",
            f"{storage(n.dst.buf.dtype)} *C",
        ]
        params += [f"int64_t {s.text}" for s in self._strides(rows)]
        if self.depth is None:
            params.append("int64_t depth")
        return f"static __attribute__((noinline)) void {name}({', '.join(params)}{extra})"

    def _call(self, name: str, rows: int, depth: str, first: str, extra: str) -> str:
        """A call of a micro-kernel for the tile at i_, j_ and the depths from `first` on."""
        n = self.node
        start: Expr = Text(first) if first != "0" else Const(0)
        arguments = [
            self.scalars.pointer(n.a, DEPTH, start),
            self.scalars.pointer(n.b, DEPTH, start),
            self.scalars.pointer(n.dst),
        ]
        arguments += [s.argument for s in self._strides(rows) if s.argument is not None]
        if self.depth is None:
            arguments.append(depth)
        return f"{name}({', '.join(arguments)}{extra});"

    def _value(self, dtype: str, access: str, arguments: str) -> str:
        """A load of lanes of `real` from an operand."""
        suffix = "" if dtype == self.ctx.kernel.compute else f"_{dtype}_real"
        return f"{access}{suffix}({arguments})"

    def _scalar(self, text: str, dtype: str) -> str:
        if dtype in STORAGE_ONLY:
            return f"scalar_from_{dtype}({text})"
        return (
            f"({text} != 0)"
            if dtype == "bool"
            else text
            if dtype == self.ctx.kernel.compute
            else f"(real){text}"
        )

    @property
    def _padded_rows(self) -> bool:
        """Whether a whole register tile may be read and written at the last rows."""
        return self.node.dst.buf.home != "global" and self.node.a.buf.home != "global"

    @property
    def _padded_columns(self) -> bool:
        return self.node.dst.buf.home != "global" and self.node.b.buf.home != "global"

    def _never_partial(self, size: Expr, tile: int) -> bool:
        return isinstance(size, Const) and size.value % tile == 0

    def _bounds(self) -> tuple[str, str]:
        lo = "0" if self.node.lo is None else self.scalars.integer(self.node.lo)
        hi = None if self.node.hi is None else self.scalars.integer(self.node.hi)
        whole = self.scalars.integer(self.node.n if self.node.bound == "j" else self.node.k)
        return bare(lo), whole if hi is None else bare(hi)

    def _depths(self) -> tuple[str, str]:
        """(number, first) of the depths to multiply at the current tile; emits the bounds of a trimmed product."""
        if self.node.bound != "k":
            return bare(self.scalars.integer(self.node.k)), "0"
        lo, hi = self._bounds()
        out = self.ctx.out
        out.line(f"const int64_t k_lo = max_int({lo}, 0);")
        out.line(f"const int64_t k_hi = min_int({hi}, {bare(self.scalars.integer(self.node.k))});")
        if self.node.accumulate:
            out.line("if (k_hi <= k_lo) continue;")
        return "max_int(k_hi - k_lo, 0)", "k_lo"

    def _prefetch(self, tile: int) -> None:
        """This column tile's share of the cells to fetch ahead."""
        out = self.ctx.out
        for cell, rows in self.node.ahead:
            kind = storage(cell.buf.dtype)
            strides = self.ctx.addresses.strides(cell.buf)
            row = strides[-2] if len(strides) > 1 else Const(1)
            total = self.scalars.integer(op("mul", rows, row))
            with out.block():
                out.line(f"const {kind} *far = {self.scalars.pointer(cell)};")
                out.line(f"const int64_t tiles = max_int((n_ + {tile - 1}) / {tile}, 1);")
                out.line(f"const int64_t share = {total} / tiles;")
                out.line(
                    f"for (int64_t z_ = 0; z_ < share; z_ += {CACHE_LINE // ITEMSIZE[kind]}) "
                    f"__builtin_prefetch(far + j_ / {tile} * share + z_, 0, 2);"
                )

    # ---- panel form

    def _panel(self) -> None:
        n, out = self.node, self.ctx.out
        for cell in (n.dst, n.b):
            self._require_unit(cell, COLUMN)
        partial = n.nr % self.lanes != 0 or not (self._padded_columns or self._never_partial(n.n, n.nr))
        ragged = not (self._padded_rows or self._never_partial(n.m, n.mr) or n.mr == 1)
        with out.block():
            out.line(
                f"const int64_t m_ = {bare(self.scalars.integer(n.m))}, n_ = {bare(self.scalars.integer(n.n))};"
            )
            with out.block(f"for (int64_t j_ = 0; j_ < n_; j_ += {n.nr})"):
                if n.ahead:
                    self._prefetch(n.nr)
                if partial:
                    left = str(n.nr) if self._padded_columns else f"(int)min_int(n_ - j_, {n.nr})"
                    out.line(f"const int columns = {left};")
                with out.block(f"for (int64_t i_ = 0; i_ < m_; i_ += {n.mr})"):
                    self._panel_tile(partial, ragged)

    def _panel_tile(self, partial: bool, ragged: bool) -> None:
        n, out = self.node, self.ctx.out
        if n.bound == "j":
            lo, hi = self._bounds()
            out.line(f"if (j_ >= {hi} || j_ + {n.nr} <= {lo}) continue;")
        depth, first = self._depths()
        full = n.nr % self.lanes == 0
        if ragged:
            with out.block(f"if (i_ + {n.mr} > m_)"):
                self._panel_rows(depth, first, partial)
                out.line("break;")
        if partial and full:
            with out.block(f"if (columns < {n.nr})"):
                out.line(self._call(self._micro(n.mr, True), n.mr, depth, first, ", columns"))
                out.line("continue;")
        if full:
            out.line(self._call(self._micro(n.mr, False), n.mr, depth, first, ""))
        else:
            out.line(self._call(self._micro(n.mr, True), n.mr, depth, first, ", columns"))

    def _panel_rows(self, depth: str, first: str, partial: bool) -> None:
        """The last rows one by one: user memory has no padding behind it."""
        out = self.ctx.out
        name, extra = self._micro(1, partial), ", columns" if partial else ""
        start = "i_"
        with out.block(f"for (int64_t row = {start}; row < m_; row++)"):
            out.line("const int64_t i_ = row;")
            out.line(self._call(name, 1, depth, first, extra))

    def _micro(self, rows: int, masked: bool) -> str:
        """The micro-kernel for `rows` rows; masked: only the first `columns` columns are read and written."""
        key = (rows, masked)
        if key not in self.made:
            self.made[key] = self.ctx.names.fresh("mm")
            self.ctx.functions.append(self._panel_text(self.made[key], rows, masked))
        return self.made[key]

    def _panel_text(self, name: str, rows: int, masked: bool) -> str:
        n, lanes = self.node, self.lanes
        vectors = range(-(-n.nr // lanes))
        w = Writer()
        sign = "+=" if n.accumulate else "="
        w.line(f"/* C[0:{rows}, 0:{'columns' if masked else n.nr}] {sign} A[0:{rows}, :] B[:, 0:{n.nr}] */")
        with w.block(self._signature(name, rows, ", int columns" if masked else "")):
            if masked:
                for q in vectors:
                    w.line(
                        f"const int n{q} = columns < {q * lanes} ? 0 : columns > {(q + 1) * lanes} ? {lanes} : "
                        f"columns - {q * lanes};"
                    )
            for r in range(rows):
                w.line(f"vec {', '.join(f'c{r}_{q} = {{0}}' for q in vectors)};")
            with w.block(f"for (int64_t k = 0; k < {self.depth or 'depth'}; k++)"):
                for q in vectors:
                    where = f"B + {q * lanes}" if q else "B"
                    arguments, access = (f"{where}, n{q}", "load_tail") if masked else (where, "load")
                    w.line(f"const vec b{q} = {self._value(n.b.buf.dtype, access, arguments)};")
                w.line("vec x;")
                for r in range(rows):
                    index = (
                        " + ".join(t for t in (self.a_row.times(r), self.a_depth.times("k")) if t != "0")
                        or "0"
                    )
                    element = self._scalar(f"A[{index}]", n.a.buf.dtype)
                    w.line(f"x = splat({element}); " + " ".join(f"c{r}_{q} += x * b{q};" for q in vectors))
                w.line(f"B += {self.b_depth.times(1)};")
            for r in range(rows):
                for q in vectors:
                    w.line(self._panel_store(r, q, masked))
        return w.text()

    def _panel_store(self, r: int, q: int, masked: bool) -> str:
        dtype = self.node.dst.buf.dtype
        where = " + ".join(["C", *(t for t in (self.dst_row.times(r), str(q * self.lanes)) if t != "0")])
        value, tail, left = f"c{r}_{q}", "_tail" if masked else "", f", n{q}" if masked else ""
        if self.node.accumulate:
            value = f"{value} + {self._value(dtype, f'load{tail}', where + left)}"
        return f"{self._value(dtype, f'store{tail}', f'{where}, {value}{left}')};"

    # ---- dot form

    def _dot(self) -> None:
        n, out = self.node, self.ctx.out
        for cell in (n.a, n.b):
            self._require_unit(cell, DEPTH)
        if n.bound == "k":
            raise CheckError("MatMul in dot form cannot be trimmed along k; use the panel form")
        name = self.ctx.names.fresh("mm")
        rows = n.mr > 1 and not (self._padded_rows or self._never_partial(n.m, n.mr))
        columns = n.nr > 1 and not self._never_partial(n.n, n.nr)
        self.ctx.functions.append(self._dot_text(name, rows, columns))
        with out.block():
            out.line(
                f"const int64_t m_ = {bare(self.scalars.integer(n.m))}, n_ = {bare(self.scalars.integer(n.n))};"
            )
            with out.block(f"for (int64_t j_ = 0; j_ < n_; j_ += {n.nr})"):
                if n.ahead:
                    self._prefetch(n.nr)
                with out.block(f"for (int64_t i_ = 0; i_ < m_; i_ += {n.mr})"):
                    if n.bound == "j":
                        lo, hi = self._bounds()
                        out.line(f"if (j_ >= {hi} || j_ + {n.nr} <= {lo}) continue;")
                    extra = (f", min_int(m_ - i_, {n.mr})" if rows else "") + (
                        f", min_int(n_ - j_, {n.nr})" if columns else ""
                    )
                    out.line(self._call(name, n.mr, bare(self.scalars.integer(n.k)), "0", extra))

    def _dot_text(self, name: str, ragged: bool, partial: bool) -> str:
        """The dot micro-kernel. Rows and columns past the end repeat the last one when read and are not written."""
        n, lanes = self.node, self.lanes
        ldb, c_step = self._stride(n.b, COLUMN, "ldb"), self._stride(n.dst, COLUMN, "c_step")
        w = Writer()
        extra = (", int64_t rows" if ragged else "") + (", int64_t columns" if partial else "")
        sign = "+=" if n.accumulate else "="
        w.line(f"/* C[0:{n.mr}, 0:{n.nr}] {sign} A[0:{n.mr}, :] B[0:{n.nr}, :]^T */")
        with w.block(self._signature(name, n.mr, extra)):
            for r in range(n.mr):
                shift = f"min_int({r}, rows - 1) * {self.a_row.text}" if ragged and r else self.a_row.times(r)
                w.let(f"const {storage(n.a.buf.dtype)} *", f"a{r}", "A" if shift == "0" else f"A + {shift}")
            for q in range(n.nr):
                shift = f"min_int({q}, columns - 1) * {ldb.text}" if partial and q else ldb.times(q)
                w.let(f"const {storage(n.b.buf.dtype)} *", f"b{q}", "B" if shift == "0" else f"B + {shift}")
            sums = [f"c{r}_{q}" for r in range(n.mr) for q in range(n.nr)]
            w.line(f"vec {', '.join(f'{s} = {{0}}' for s in sums)};")
            w.line("int64_t k = 0;")
            depth = self.depth or "depth"
            with w.block(f"for (; k + {lanes} <= {depth}; k += {lanes})"):
                self._dot_step(w, "load", "")
            if not (self.depth is not None and int(self.depth) % lanes == 0):
                with w.block(f"if (k < {depth})"):
                    w.line(f"const int left = (int)({depth} - k);")
                    self._dot_step(w, "load_tail", ", left")
            self._dot_finish(w, sums, ragged, partial, c_step)
        return w.text()

    def _dot_step(self, w: Writer, access: str, left: str) -> None:
        n = self.node
        for q in range(n.nr):
            w.line(f"const vec x{q} = {self._value(n.b.buf.dtype, access, f'b{q} + k{left}')};")
        w.line("vec x;")
        for r in range(n.mr):
            load = self._value(n.a.buf.dtype, access, f"a{r} + k{left}")
            w.line(f"x = {load}; " + " ".join(f"c{r}_{q} += x * x{q};" for q in range(n.nr)))

    def _dot_finish(self, w: Writer, sums: list[str], ragged: bool, partial: bool, c_step: _Stride) -> None:
        n = self.node
        block = 4 if self.ctx.kernel.compute == "float32" else 2
        lines, places = sum_tree(sums, self.lanes, block)
        for line in lines:
            w.line(line)
        for index, (vector, lane) in enumerate(places):
            r, q = divmod(index, n.nr)
            where = " + ".join(t for t in (self.dst_row.times(r), c_step.times(q)) if t != "0") or "0"
            value = f"{vector}[{lane}]"
            if n.accumulate:
                value = f"{self._scalar(f'C[{where}]', n.dst.buf.dtype)} + {value}"
            if n.dst.buf.dtype in STORAGE_ONLY:
                value = f"scalar_to_{n.dst.buf.dtype}({narrowed(value, self.ctx.kernel.compute)})"
            tests = ([f"{r} < rows"] if ragged and r else []) + ([f"{q} < columns"] if partial and q else [])
            guard = f"if ({' && '.join(tests)}) " if tests else ""
            w.line(f"{guard}C[{where}] = {value};")
