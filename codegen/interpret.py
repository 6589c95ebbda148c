"""The meaning of tile programs: a NumPy interpreter, the oracle of every printer.

It is adversarial where the nodes leave room: scratch starts as NaN for every task, padded rows and columns
that a matrix product may overwrite are filled with NaN, tasks run in reverse order, and an index outside a buffer
raises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import numpy as np

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
    Red,
    Set,
    Stmt,
    Sweep,
)
from redfuser.codegen.show import show_expr
from redfuser.errors import CheckError
from redfuser.ir import MONOIDS, OPS, Cast, Const, Expr, Op, Size, Var
from redfuser.ir.dtypes import converted, numpy_dtype

Array = np.ndarray[Any, Any]


def run_kernel(
    kernel: Kernel, arrays: Mapping[str, Array], outs: Mapping[str, Array], sizes: Mapping[str, int]
) -> None:
    """Run a kernel on NumPy arrays, named as its tensors and outs.

    Parameters
    ----------
    arrays, outs : inputs, and results written in place
    sizes : length of every axis in `kernel.sizes`

    Raises
    ------
    CheckError
        when the program reads or writes outside a buffer.
    """
    machine = Machine(kernel, arrays, outs, sizes)
    with np.errstate(all="ignore"):
        machine.run()


def is_real(value: Any) -> bool:
    """True for floating values, Python floats included."""
    return isinstance(value, float) or np.asarray(value).dtype.kind not in "biu"


class Machine:
    """State of one run: variables by name, buffers by name."""

    def __init__(
        self, kernel: Kernel, arrays: Mapping[str, Array], outs: Mapping[str, Array], sizes: Mapping[str, int]
    ) -> None:
        self.kernel = kernel
        self.sizes = {**dict(kernel.static), **{a: int(sizes[a]) for a in kernel.sizes}}
        self.compute = np.dtype(kernel.compute)
        self.variables: dict[str, Any] = {}
        self.in_sweep = False
        self.memory: dict[str, Array] = {}
        for buf in (*kernel.tensors, *kernel.outs):
            array = (arrays if buf in kernel.tensors else outs)[buf.name]
            shape = tuple(int(self.value(d)) for d in buf.shape)
            if np.shape(array) != shape:
                raise CheckError(
                    f"array {buf.name!r} has shape {np.shape(array)}, the kernel expects {shape}"
                )
            self.memory[buf.name] = array
        for buf in kernel.shared:
            self.memory[buf.name] = self.garbage(buf)

    def garbage(self, buf: Buf) -> Array:
        """A buffer nobody has written: NaN, or a large number for integers."""
        dtype = numpy_dtype(buf.dtype)
        poison: Any = True if dtype.kind == "b" else 0x5A5A if dtype.kind in "iu" else np.nan
        return np.full([int(self.value(d)) for d in buf.shape], poison, dtype)

    def run(self) -> None:
        """All phases whose condition holds, their tasks in reverse order."""
        for phase in self.kernel.phases:
            if phase.when is not None and not self.value(phase.when):
                continue
            loop = phase.loop
            for task in reversed(range(int(self.value(loop.lo)), int(self.value(loop.hi)))):
                for buf in phase.local:
                    self.memory[buf.name] = self.garbage(buf)
                self.variables[loop.var] = task
                self.block(loop.body)

    # -------------------------------- expressions

    def value(self, e: Expr) -> Any:
        """The value of an expression: a scalar, or one element per lane inside a sweep."""
        if isinstance(e, Const):
            return float(e.value) if isinstance(e.value, Fraction) else e.value
        if isinstance(e, Size):
            return self.sizes[e.axis]
        if isinstance(e, Var):
            return self.in_compute(self.variables[e.name])
        if isinstance(e, At):
            return self.load(e)
        if isinstance(e, Cast):
            return self.cast(e.dtype, self.value(e.body))
        if isinstance(e, Op):
            return self.operation(e.fn, [self.value(a) for a in e.args])
        raise TypeError(f"{type(e).__name__} has no value in a tile program")

    def in_compute(self, value: Any) -> Any:
        """Inside a sweep every real value has the compute dtype."""
        if self.in_sweep and not isinstance(value, float) and is_real(value):
            return np.asarray(value).astype(self.compute)[()]
        return value

    def operation(self, fn: str, args: list[Any]) -> Any:
        """Apply a scalar operation; whole and truth operands take the real dtype of their partners."""
        info = OPS[fn]
        operands = args[1:] if info.kind == "select" else args
        to_real = fn == "div" or (info.kind == "unary" and fn not in ("neg", "abs", "sign"))
        if any(is_real(a) for a in operands) or to_real:
            dtypes = [np.asarray(a).dtype for a in operands if is_real(a) and not isinstance(a, float)]
            target = np.result_type(*dtypes) if dtypes else self.compute
            operands = [np.asarray(a).astype(target)[()] for a in operands]
        if info.kind == "select":
            return np.where(args[0], *operands)[()]
        return info.numpy(*operands)

    def cast(self, dtype: str, value: Any) -> Any:
        """Convert as NumPy does; narrow floats come back in the compute dtype, integers as int64."""
        array = converted(value, dtype)
        if array.dtype.kind in "iu":
            return array.astype(np.int64)[()]
        if array.dtype.kind not in "b" and array.dtype != np.float64:
            array = array.astype(self.compute)
        return self.in_compute(array[()])

    def index(self, cell: At) -> tuple[Any, ...]:
        """The indices of a cell, each checked against the buffer's shape."""
        inside, self.in_sweep = self.in_sweep, False
        index = tuple(self.value(i) for i in cell.idx)
        self.in_sweep = inside
        for i, extent in zip(index, self.memory[cell.buf.name].shape, strict=True):
            if np.size(i) and (np.min(i) < 0 or np.max(i) >= extent):
                raise CheckError(
                    f"{show_expr(cell)} reaches {np.min(i)} .. {np.max(i)} outside a dimension of {extent}"
                )
        return index

    def load(self, cell: At) -> Any:
        """The element (per lane) of a buffer, floats in the compute dtype unless a scalar is wider."""
        if cell.buf.home == "reg":
            return self.in_compute(self.variables[cell.buf.name])
        value = self.memory[cell.buf.name][self.index(cell)]
        if value.dtype.kind in "iu":
            return value.astype(np.int64)
        wide_scalar = cell.buf.dtype == "float64" and cell.buf.home != "global" and not self.in_sweep
        return value if value.dtype.kind == "b" or wide_scalar else value.astype(self.compute)

    def store(self, cell: At, value: Any) -> None:
        """Write a cell, converting to the buffer's dtype."""
        dtype = numpy_dtype(cell.buf.dtype)
        if cell.buf.home == "reg":
            self.variables[cell.buf.name] = converted(value, dtype)[()]
        else:
            self.memory[cell.buf.name][self.index(cell)] = converted(value, dtype)

    # -------------------------------- statements

    def block(self, body: tuple[Stmt, ...]) -> None:
        """Statements in order."""
        for s in body:
            getattr(self, "do_" + type(s).__name__.lower())(s)

    def do_for(self, s: For) -> None:
        step = int(self.value(s.step)) if s.kind == "seq" else 1
        for i in range(int(self.value(s.lo)), int(self.value(s.hi)), step):
            self.variables[s.var] = i
            self.block(s.body)

    def do_letint(self, s: LetInt) -> None:
        self.variables[s.name] = int(self.value(s.expr))

    def do_letscalar(self, s: LetScalar) -> None:
        self.variables[s.name] = np.asarray(self.value(s.expr)).astype(numpy_dtype(s.dtype))[()]

    def do_set(self, s: Set) -> None:
        self.store(s.cell, self.value(s.expr))

    def do_if(self, s: If) -> None:
        if self.value(s.condition):
            self.block(s.body)

    def do_sweep(self, s: Sweep) -> None:
        lo, hi = int(self.value(s.lo)), int(self.value(s.hi))
        lanes = np.arange(lo, max(lo, hi))
        self.variables[s.var] = lanes
        self.in_sweep = True
        for put in s.puts:
            self.store(put.cell, np.broadcast_to(self.value(put.expr), lanes.shape))
        results = {r.name: self.reduce(r, self.value(r.expr), lanes.shape) for r in s.reds}
        elements = [[np.broadcast_to(self.value(e), lanes.shape) for e in f.elements] for f in s.folds]
        pairs = [[np.broadcast_to(self.value(e), lanes.shape) for e in (i.key, i.index)] for i in s.inserts]
        self.in_sweep = False
        for fold, parts in zip(s.folds, elements, strict=True):
            results |= self.fold(fold, parts)
        for insert, (keys, indices) in zip(s.inserts, pairs, strict=True):
            self.insert(insert, keys, indices)
        self.variables.update(results)

    def fold(self, fold: Fold, parts: list[Array]) -> dict[str, Any]:
        """Combine the states of all elements, the last one first where the order is free."""
        state = self.typed([e.value for e in fold.identity], fold.dtypes)
        elements = list(zip(*parts, strict=True))
        for element in elements if fold.ordered else reversed(elements):
            self.variables.update(zip(fold.left, state, strict=True))
            self.variables.update(zip(fold.right, self.typed(element, fold.dtypes), strict=True))
            state = self.typed([self.value(e) for e in fold.combine], fold.dtypes)
        return dict(zip(fold.names, state, strict=True))

    def typed(self, values: Iterable[Any], dtypes: Iterable[str]) -> list[Any]:
        """Scalars converted to the dtypes of the parts they are."""
        return [np.asarray(v).astype(d)[()] for v, d in zip(values, dtypes, strict=True)]

    def insert(self, s: Insert, keys: Array, indices: Array) -> None:
        """Sort the list together with the new pairs; what falls off its end is lost."""
        self.variables["z_"] = np.arange(s.length)
        listed = list(zip(self.load(s.keys), self.load(s.indices), strict=True))
        sign = 1 if s.largest else -1
        filled = [p for p in (*listed, *zip(keys, indices, strict=True)) if p[1] >= 0]
        filled.sort(key=lambda p: (not np.isnan(p[0]), 0 if np.isnan(p[0]) else -sign * p[0]))  # stable
        listed = [*filled, *(p for p in listed if p[1] < 0)][: s.length]
        self.store(s.keys, np.array([p[0] for p in listed]))
        self.store(s.indices, np.array([p[1] for p in listed]))

    def reduce(self, red: Red, value: Any, shape: tuple[int, ...]) -> Any:
        """(+) over the lanes; the identity when there are none. A loose extreme passes over NaN."""
        info = MONOIDS[red.monoid]
        truth = red.monoid in ("any", "all")
        lanes = np.broadcast_to(value, shape).astype(np.bool_ if truth else self.compute)
        identity = bool(info.identity) if truth else info.identity
        if red.loose:
            lanes = lanes[~np.isnan(lanes)]
        return info.reduce(lanes, initial=identity)

    def do_matmul(self, s: MatMul) -> None:
        m, n, k = (int(self.value(e)) for e in (s.m, s.n, s.k))
        for i0 in range(0, m, s.mr):
            self.variables["i_"] = i0
            columns, depth = (0, n), (0, k)
            if s.bound:
                assert s.lo is not None
                assert s.hi is not None
                bounds = int(self.value(s.lo)), int(self.value(s.hi))
                columns, depth = (bounds, depth) if s.bound == "j" else (columns, bounds)
            self.row_tile(s, (i0, min(i0 + s.mr, m)), columns, depth)

    def row_tile(
        self, s: MatMul, rows: tuple[int, int], columns: tuple[int, int], depth: tuple[int, int]
    ) -> None:
        """One register tile of rows; what its padding may overwrite is poisoned first."""
        i, j, k = (np.arange(lo, max(lo, hi)) for lo, hi in (rows, columns, depth))
        if not len(j) or (s.accumulate and not len(k)):
            return
        if s.dst.buf.home != "global" and not s.accumulate:
            self.poison(s, i, j)
        a = self.matrix(s.a, {"i_": i[:, None], "k_": k[None, :]}, (len(i), len(k)), s.rounds)
        b = self.matrix(s.b, {"k_": k[:, None], "j_": j[None, :]}, (len(k), len(j)), s.rounds)
        product = (a @ b).astype(self.compute)
        self.variables.update({"i_": i[:, None], "j_": j[None, :]})
        self.store(s.dst, self.value(s.dst) + product if s.accumulate else product)

    def matrix(self, cell: At, index: dict[str, Array], shape: tuple[int, int], rounds: str) -> Array:
        """An operand as a dense matrix in the compute dtype, rounded to another one first."""
        self.variables.update(index)
        values = np.asarray(self.value(cell))
        if rounds:
            values = values.astype(numpy_dtype(rounds))
        return np.broadcast_to(values.astype(self.compute), shape)

    def poison(self, s: MatMul, i: Array, j: Array) -> None:
        """NaN into all cells of the register tiles that hold rows i and columns j."""
        rows = np.arange(i[0], i[0] + s.mr)
        first = j[0] // s.nr * s.nr
        columns = np.arange(first, -(-(j[-1] + 1) // s.nr) * s.nr)
        self.variables.update({"i_": rows[:, None], "j_": columns[None, :]})
        self.store(s.dst, np.full((len(rows), len(columns)), np.nan))

    def do_pack(self, s: Pack) -> None:
        first, last = int(self.value(s.p0)) * s.width, int(self.value(s.p1)) * s.width
        lanes, depth = int(self.value(s.lanes)), np.arange(int(self.value(s.depth)))
        for lo, hi, filled in ((first, min(last, lanes), True), (max(first, lanes), last, False)):
            lane = np.arange(lo, max(lo, hi))
            self.variables.update({"l_": lane[:, None], "c_": depth[None, :]})
            shape = (len(lane), len(depth))
            self.store(s.dst, np.broadcast_to(self.value(s.src), shape) if filled else np.zeros(shape))
