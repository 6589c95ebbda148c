"""The checker of tile programs: what every printer may rely on."""

from __future__ import annotations

from collections.abc import Iterable

from redfuser.codegen.kinds import BOOL, INT, REAL, dtype_kind, kind_of
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
from redfuser.codegen.show import show_expr
from redfuser.errors import CheckError
from redfuser.ir import MONOIDS, OPS, Const, Expr, Op, Size, Var, walk

MATRIX_INDICES = ("i_", "j_", "k_")
PACK_INDICES = ("l_", "c_")


def check_kernel(kernel: Kernel) -> None:
    """Raise CheckError unless `kernel` is well formed.

    Names are bound once per phase (loop variables: never inside their own loop) and before use;
    buffers are declared, read and written at their rank, and
    inputs are never written; every expression has the type its place asks for; operands of matrix products are
    padded to the register tile and packed panels are as wide as it.
    """
    globals_ = (*kernel.tensors, *kernel.outs)
    names = [b.name for b in (*globals_, *kernel.shared)]
    if len(set(names)) != len(names):
        raise CheckError(f"kernel {kernel.name}: a buffer name is bound twice")
    if any(b.home != "global" for b in globals_) or any(b.home != "shared" for b in kernel.shared):
        raise CheckError(f"kernel {kernel.name}: arrays are global buffers, workspace is shared")
    for number, phase in enumerate(kernel.phases):
        _PhaseChecker(kernel, phase, f"kernel {kernel.name}, phase {number}").check()


class _PhaseChecker:
    """Checks one phase; `scope` maps the variables bound so far to their kinds."""

    def __init__(self, kernel: Kernel, phase: Phase, where: str) -> None:
        self.phase, self.where = phase, where
        self.sizes = {*kernel.sizes, *(axis for axis, _ in kernel.static)}
        self.inputs = set(kernel.tensors)
        self.buffers = {*kernel.tensors, *kernel.outs, *kernel.shared, *phase.local}
        self.bound: set[str] = set()
        self.scope: dict[str, str] = {}
        self.registers: set[Buf] = set()

    def fail(self, message: str) -> CheckError:
        return CheckError(f"{self.where}: {message}")

    def check(self) -> None:
        """The condition, the scratch, and the task loop."""
        if self.phase.when is not None:
            self.expect(self.phase.when, BOOL)
        for buf in self.phase.local:
            if buf.home != "local":
                raise self.fail(f"scratch {buf.name} has home {buf.home!r}, not 'local'")
            for extent in buf.shape:
                self.expect(extent, INT)
        if self.phase.loop.kind != "task":
            raise self.fail(f"the outermost loop has kind {self.phase.loop.kind!r}, not 'task'")
        self.loop(self.phase.loop)

    # -------------------------------- names and expressions

    def bind(self, name: str, kind: str) -> None:
        """A scalar: once per phase."""
        if name in self.bound or name in self.scope:
            raise self.fail(f"{name} is bound twice")
        self.bound.add(name)
        self.scope[name] = kind

    def bind_loop(self, name: str) -> None:
        """A loop variable: sweeps in sequence may use the same one, nested loops may not."""
        if name in self.bound or name in self.scope:
            raise self.fail(f"loop variable {name} is bound already")
        self.scope[name] = INT

    def expect(self, e: Expr, *kinds: str) -> None:
        """Raise unless `e` is closed, well typed, and of one of the kinds."""
        for x in walk(e):
            self.leaf(x)
        kind = kind_of(e, self.scope)
        if kind not in kinds:
            raise self.fail(f"{show_expr(e)} is {kind}, expected {' or '.join(kinds)}")

    def leaf(self, x: Expr) -> None:
        if isinstance(x, Var) and x.name not in self.scope:
            raise self.fail(f"{x.name} is used before it is bound")
        if isinstance(x, Size) and x.axis not in self.sizes:
            raise self.fail(f"|{x.axis}| is not an argument of the kernel")
        if isinstance(x, At):
            self.cell(x)
            if x.buf.home == "reg" and x.buf not in self.registers:
                raise self.fail(f"{x.buf.name} is read before it is set")
        if isinstance(x, Op):
            self.operands(x)

    def operands(self, x: Op) -> None:
        group = OPS[x.fn].kind
        kinds = [kind_of(a, self.scope) for a in x.args]
        if group == "select":
            good = kinds[0] == BOOL and (kinds[1] == BOOL) == (kinds[2] == BOOL)
        elif group == "logic":
            good = set(kinds) == {BOOL}
        elif group == "integer":
            good = set(kinds) == {INT}
        else:
            good = BOOL not in kinds
        if not good:
            raise self.fail(f"{show_expr(x)} has operands of kind {', '.join(kinds)}")

    def cell(self, cell: At) -> None:
        """Rank, home and index types of a buffer element."""
        buf = cell.buf
        if buf.home != "reg" and buf not in self.buffers:
            raise self.fail(f"buffer {buf.name} is not declared")
        if len(cell.idx) != len(buf.shape):
            raise self.fail(
                f"{show_expr(cell)} has {len(cell.idx)} indices, the buffer {len(buf.shape)} dimensions"
            )
        for i in cell.idx:
            if kind_of(i, self.scope) != INT:
                raise self.fail(f"{show_expr(cell)} has an index that is not an integer")

    def written(self, cell: At) -> None:
        for i in cell.idx:
            self.expect(i, INT)
        self.cell(cell)
        if cell.buf in self.inputs:
            raise self.fail(f"input {cell.buf.name} is written")

    def stored(self, cell: At, e: Expr) -> None:
        """A store of `e`: truth values into bool buffers only."""
        truth = cell.buf.dtype == "bool"
        self.expect(e, *((BOOL,) if truth else (INT, REAL)))

    # -------------------------------- statements

    def block(self, body: Iterable[Stmt]) -> None:
        before = dict(self.scope)
        for s in body:
            self.statement(s)
        self.scope = before

    def statement(self, s: Stmt) -> None:
        if isinstance(s, For):
            if s.kind not in ("seq", "row"):
                raise self.fail(f"a loop of kind {s.kind!r} inside a task")
            self.loop(s)
        elif isinstance(s, If):
            self.expect(s.condition, BOOL)
            self.block(s.body)
        elif isinstance(s, LetInt):
            self.expect(s.expr, INT)
            self.bind(s.name, INT)
        elif isinstance(s, LetScalar):
            kind = dtype_kind(s.dtype)
            self.expect(s.expr, *((BOOL,) if kind == BOOL else (INT, REAL)))
            self.bind(s.name, kind)
        elif isinstance(s, Set):
            self.stored(s.cell, s.expr)
            self.written(s.cell)
            if s.cell.buf.home == "reg":
                self.registers.add(s.cell.buf)
        elif isinstance(s, Sweep):
            self.sweep(s)
        elif isinstance(s, MatMul):
            self.matmul(s)
        elif isinstance(s, Pack):
            self.pack(s)
        else:
            raise self.fail(f"unknown statement {type(s).__name__}")

    def loop(self, s: For) -> None:
        for e in (s.lo, s.hi, s.step):
            self.expect(e, INT)
        before = dict(self.scope)
        self.bind_loop(s.var)
        self.block(s.body)
        self.scope = before

    def sweep(self, s: Sweep) -> None:
        self.expect(s.lo, INT)
        self.expect(s.hi, INT)
        if s.unroll < 1:
            raise self.fail(f"sweep over {s.var} has unroll {s.unroll}")
        before = dict(self.scope)
        self.bind_loop(s.var)
        for p in s.puts:
            self.stored(p.cell, p.expr)
            self.written(p.cell)
            if not any(Var(s.var) in walk(i) for i in p.cell.idx):
                raise self.fail(f"all lanes of {s.var} store to {show_expr(p.cell)}")
        for r in s.reds:
            if r.monoid not in MONOIDS:
                raise self.fail(f"{r.name} has the unknown monoid {r.monoid}")
            self.expect(r.expr, *((BOOL,) if r.monoid in ("any", "all") else (INT, REAL)))
        for f in s.folds:
            self.fold(f)
        for i in s.inserts:
            self.insert(i)
        if not 0 <= s.turn[0] < s.turn[1]:
            raise self.fail(f"no turn {s.turn} at prefetching")
        for cell in s.ahead:
            for e in cell.idx:
                self.expect(e, INT)
            self.cell(cell)
        self.scope = before
        for r in s.reds:
            self.bind(r.name, BOOL if r.monoid in ("any", "all") else REAL)
        for f in s.folds:
            for name, dtype in zip(f.names, f.dtypes, strict=True):
                self.bind(name, dtype_kind(dtype))

    def fold(self, f: Fold) -> None:
        """As many parts everywhere, each of its own kind; `combine` reads the two states and nothing of the lanes."""
        parts = len(f.names)
        if any(len(x) != parts for x in (f.dtypes, f.elements, f.identity, f.left, f.right, f.combine)):
            raise self.fail(f"the fold to {', '.join(f.names)} has states of different lengths")
        kinds = [(BOOL,) if d == "bool" else (INT,) if dtype_kind(d) == INT else (INT, REAL) for d in f.dtypes]
        for e, allowed in zip((*f.elements, *f.identity), (*kinds, *kinds), strict=True):
            self.expect(e, *allowed)
        lanes = dict(self.scope)
        for name, dtype in zip((*f.left, *f.right), (*f.dtypes, *f.dtypes), strict=True):
            self.bind(name, dtype_kind(dtype))
        for e, allowed in zip(f.combine, kinds, strict=True):
            self.expect(e, *allowed)
            if any(isinstance(x, At) or (isinstance(x, Var) and x.name in lanes) for x in walk(e)):
                raise self.fail(f"{show_expr(e)} reads more than the two states it combines")
        self.scope = lanes

    def insert(self, i: Insert) -> None:
        """Lists of one constant length, contiguous and of this task alone."""
        self.expect(i.key, INT, REAL)
        self.expect(i.index, INT)
        before = dict(self.scope)
        self.scope["z_"] = INT
        for cell, kind in ((i.keys, REAL), (i.indices, INT)):
            self.written(cell)
            extent = cell.buf.shape[-1] if cell.buf.shape else None
            if cell.buf.home == "global" or not isinstance(extent, Const) or extent.value != i.length:
                raise self.fail(f"{show_expr(cell)} is no list of constant length in scratch")
            if cell.idx[-1] != Var("z_") or any(Var("z_") in walk(e) for e in cell.idx[:-1]):
                raise self.fail(f"{show_expr(cell)} does not walk its last dimension")
            if dtype_kind(cell.buf.dtype) != kind:
                raise self.fail(f"{show_expr(cell)} has dtype {cell.buf.dtype}")
        self.scope = before

    def matmul(self, s: MatMul) -> None:
        for e in (s.m, s.n, s.k):
            self.expect(e, INT)
        if s.form not in ("panel", "dot") or s.bound not in ("", "j", "k"):
            raise self.fail(f"matmul has form {s.form!r} and bound {s.bound!r}")
        if (s.lo is None, s.hi is None) != (not s.bound, not s.bound):
            raise self.fail("matmul bounds need an index, a lower and an upper end")
        before = dict(self.scope)
        self.scope.update(dict.fromkeys(MATRIX_INDICES, INT))
        for end in (s.lo, s.hi):
            if end is not None:
                self.expect(end, INT)
        for cell, indices in ((s.dst, ("i_", "j_")), (s.a, ("i_", "k_")), (s.b, ("k_", "j_"))):
            self.expect(cell, REAL)
            used = {x.name for i in cell.idx for x in walk(i) if isinstance(x, Var)} & set(MATRIX_INDICES)
            if not used <= set(indices):
                raise self.fail(
                    f"matmul operand {show_expr(cell)} uses {', '.join(sorted(used - set(indices)))}"
                )
        self.written(s.dst)
        self.padded(s.dst, "i_", s.m, s.mr)
        self.padded(s.a, "i_", s.m, s.mr)
        self.padded(s.dst, "j_", s.n, s.nr)
        self.padded(s.b, "j_", s.n, s.nr)
        self.scope = before

    def padded(self, cell: At, index: str, extent: Expr, multiple: int) -> None:
        """The dimension that `index` walks holds whole register tiles, or panels of exactly their width."""
        if cell.buf.home == "global":
            return
        for dim, i in zip(cell.buf.shape, cell.idx, strict=True):
            parts = list(walk(i))
            if Var(index) not in parts or not isinstance(dim, Const):
                continue
            if isinstance(i, Op) and i.fn == "imod":
                good = dim.value == multiple and i.args[1] == dim
            elif isinstance(i, Op) and i.fn == "idiv":
                good = i.args[1] == Const(multiple)
            elif isinstance(extent, Const):
                good = dim.value >= -(-int(extent.value) // multiple) * multiple
            else:
                good = int(dim.value) % multiple == 0
            if not good:
                raise self.fail(f"matmul operand {show_expr(cell)} is not padded to {multiple} along {index}")

    def pack(self, s: Pack) -> None:
        for e in (s.p0, s.p1, s.lanes, s.depth):
            self.expect(e, INT)
        before = dict(self.scope)
        self.scope.update(dict.fromkeys(PACK_INDICES, INT))
        self.expect(s.src, INT, REAL)
        self.written(s.dst)
        self.scope = before
