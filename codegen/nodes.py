"""The tile program: hardware-neutral loops over tiles. Two printers (C, CUDA) and one interpreter read these nodes.

Expressions are those of `redfuser.ir` with two tile-level leaves: `Var` (a local integer or scalar) and `At` (an
element of a buffer). `Size(axis)` is the run-time length of an axis. Every expression has a type: bool (comparisons,
logic, bool buffers), int (Idx-like variables, sizes, integer buffers) or the kernel's compute dtype.
"""

from __future__ import annotations

from redfuser.ir import Const, Expr, Node, node


@node
class Buf(Node):
    """A buffer.

    home    global: a caller's array, run-time element strides; shared: workspace seen by all threads;
            local: per-thread scratch, dense row-major; reg: one scalar.
    shape   one expression per dimension (constants and sizes)
    dtype   NumPy dtype name of the elements
    unit    global only: the dimension known to have element stride 1, or None
    """

    name: str
    shape: tuple[Expr, ...]
    home: str
    dtype: str
    unit: int | None = None


@node
class At(Expr):
    """The element of a buffer at integer indices (none for a reg)."""

    buf: Buf
    idx: tuple[Expr, ...] = ()

    def with_idx(self, idx: tuple[Expr, ...]) -> At:
        """The same buffer at other indices (used by generic rewriting)."""
        return At(self.buf, idx)

    def __str__(self) -> str:
        from redfuser.codegen.show import show_expr

        return show_expr(self)


class Stmt(Node):
    """Base of all statements."""

    def __str__(self) -> str:
        from redfuser.codegen.show import show_stmt

        return "\n".join(show_stmt(self))


@node
class For(Stmt):
    """`for var in range(lo, hi, step)`.

    kind  seq: in order; task: iterations are independent tasks handed to threads dynamically, `step` at a time (one
    per phase, outermost, var still advances by 1); row: iterations are independent rows of one tile (the row dimension
    of a two-dimensional sweep: a loop on the CPU, lanes of a fragment elsewhere).
    """

    var: str
    lo: Expr
    hi: Expr
    step: Expr
    body: tuple[Stmt, ...]
    kind: str = "seq"


@node
class LetInt(Stmt):
    """A local 64-bit integer constant."""

    name: str
    expr: Expr


@node
class LetScalar(Stmt):
    """A local scalar constant of `dtype` (float32, float64 or bool)."""

    name: str
    expr: Expr
    dtype: str


@node
class Set(Stmt):
    """Store one scalar."""

    cell: At
    expr: Expr


@node
class If(Stmt):
    """Run `body` when the (bool) condition holds."""

    condition: Expr
    body: tuple[Stmt, ...]


@node
class Red(Node):
    """Within a Sweep: reduce `expr` over the lane axis to the scalar variable `name`, visible after the sweep.

    A `loose` maximum or minimum may be any number where an element is NaN.
    """

    name: str
    monoid: str
    expr: Expr
    loose: bool = False


@node
class Put(Node):
    """Within a Sweep: store `expr` to `cell`, which uses the lane variable. `stream` asks for non-temporal stores."""

    cell: At
    expr: Expr
    stream: bool = False


@node
class Fold(Node):
    """Within a Sweep: reduce by a monoid whose state has several parts, visible after the sweep as scalars `names`.

    dtypes     of the parts: the compute dtype (float64 too where `ordered`), int64 or bool
    elements   the state of one element, over the lane variable
    identity   the state of none
    left, right  variables that stand for the parts of two states in `combine`, the earlier one left
    combine    the parts of the combined state
    ordered    combine only neighbours, the earlier one left; otherwise in any order
    """

    names: tuple[str, ...]
    dtypes: tuple[str, ...]
    elements: tuple[Expr, ...]
    identity: tuple[Const, ...]
    left: tuple[str, ...]
    right: tuple[str, ...]
    combine: tuple[Expr, ...]
    ordered: bool = False


@node
class Insert(Node):
    """Within a Sweep: insert the elements into a list of (key, index) pairs that is sorted, best first.

    `keys` and `indices` are cells over Var("z_"), the place in the list: the last dimension, whose extent is the
    constant length of the list. An index below 0 marks an empty place; all of them are at the end, and elements of
    such an index are skipped. `largest` tells whether large keys are good; NaN is better than any number. Of equal
    keys the one inserted first stays in front.
    """

    keys: At
    indices: At
    key: Expr
    index: Expr
    largest: bool

    @property
    def length(self) -> int:
        """Places of the list."""
        extent = self.keys.buf.shape[-1]
        assert isinstance(extent, Const)
        return int(extent.value)


@node
class Sweep(Stmt):
    """The vector loop over `var` in [lo, hi): puts in order, then reductions, folds and insertions, per element.

    A later expression that reads a cell stored by an earlier put of the same sweep sees the stored value. Expressions
    may use `var` as an integer. `ahead`: cells to prefetch, each stepping with `var`; where sweeps share that work,
    `turn` (k, m) takes the k-th of m equal parts of them. An empty range leaves each
    reduction and fold at its identity, and every list as it is.
    """

    var: str
    lo: Expr
    hi: Expr
    reds: tuple[Red, ...] = ()
    puts: tuple[Put, ...] = ()
    unroll: int = 1
    ahead: tuple[At, ...] = ()
    turn: tuple[int, int] = (0, 1)
    folds: tuple[Fold, ...] = ()
    inserts: tuple[Insert, ...] = ()


@node
class MatMul(Stmt):
    """`dst[i, j] (+)= sum_k a[i, k] * b[k, j]` for i < m, j < n, k < k_size.

    `dst`, `a`, `b` are cells over Var("i_"), Var("j_"), Var("k_"); the printer gets strides by differencing index
    expressions. form "panel": lanes on j (b contiguous in blocks of `nr` along j); form "dot": lanes on k (a and b
    contiguous along k). `mr` x `nr` is the register tile. Buffers that are not global are padded: rows of dst and a up
    to a multiple of mr, columns of dst and b up to a multiple of nr. `bound` names the index ("j" or "k") that
    [lo, hi) restricts; lo and hi may use Var("i_") = first row of the register tile. `rounds`: the dtype to which the
    operands are rounded before they are multiplied, that of matrix units; "" keeps them.
    """

    dst: At
    a: At
    b: At
    m: Expr
    n: Expr
    k: Expr
    mr: int
    nr: int
    form: str
    accumulate: bool
    bound: str = ""
    lo: Expr | None = None
    hi: Expr | None = None
    ahead: tuple[tuple[At, Expr], ...] = ()
    rounds: str = ""


@node
class Pack(Stmt):
    """Panel packing: for p in [p0, p1), c in [0, depth), z in [0, width): dst <- src at lane p * width + z, else 0.

    `dst` and `src` are cells over Var("l_") (lane) and Var("c_") (depth); lanes >= `lanes` are stored as zero.
    """

    dst: At
    src: At
    p0: Expr
    p1: Expr
    lanes: Expr
    depth: Expr
    width: int


@node
class Phase(Node):
    """One task loop; a barrier follows. Skipped unless `when` (a condition on sizes) holds. `local`: its scratch."""

    loop: For
    local: tuple[Buf, ...] = ()
    when: Expr | None = None


@node
class Kernel(Node):
    """A whole kernel.

    compute  float32 or float64: the dtype vector arithmetic runs in (narrower inputs convert on load)
    tensors  input buffers, `outs` output buffers, both global, in calling order
    sizes    axes whose length is a run-time argument, in calling order
    static   (axis, length) that the kernel was specialised for: the caller must check them
    shared   workspace buffers (shapes may use sizes)
    notes    every scheduling decision in words
    """

    name: str
    compute: str
    tensors: tuple[Buf, ...]
    outs: tuple[Buf, ...]
    sizes: tuple[str, ...]
    static: tuple[tuple[str, int], ...]
    phases: tuple[Phase, ...]
    shared: tuple[Buf, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        from redfuser.codegen.show import show_kernel

        return show_kernel(self)
