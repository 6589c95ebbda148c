"""Loop-invariant code motion: subterms of a sweep that do not vary along its lanes become scalars.

Division by such a scalar becomes a multiplication. The table of scalars is shared by all sweeps of a scope, so that
equal terms keep equal names and can be shared later.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from redfuser.codegen.kinds import BOOL, INT, kind_of
from redfuser.codegen.names import Names
from redfuser.codegen.nodes import At, LetInt, LetScalar, Stmt, Sweep
from redfuser.codegen.passes.bodies import Body, depends_on, map_bodies, map_lanes, reads_mutable, written_buffers
from redfuser.ir import OPS, Cast, Const, Expr, Op, Size, Var, op, select, with_children

DISCONTINUOUS = frozenset({"rint", "floor", "ceil", "sign"})
"""Below these (and below comparisons and rounding conversions) a quotient keeps its own rounding."""


def hoist(body: Body, names: Names, compute: str) -> Body:
    """Hoist invariants out of every sweep of a statement list and of the bodies nested in it."""
    return _Scope(names, compute).body(body)


@dataclass
class _Scope:
    """Scalars bound so far in a statement list and in those around it."""

    names: Names
    compute: str
    table: dict[tuple[Expr, str], Expr] = field(default_factory=dict)

    def body(self, body: Body) -> Body:
        out: list[Stmt] = []
        for s in body:
            if isinstance(s, Sweep):
                out += _SweepHoister(self, s).statements()
            else:
                inner = _Scope(self.names, self.compute, dict(self.table))
                out.append(map_bodies(s, inner.body))
        return tuple(out)


class _SweepHoister:
    """Hoists out of one sweep; terms that read mutable cells are bound for this sweep only."""

    def __init__(self, scope: _Scope, sweep: Sweep) -> None:
        self.scope, self.sweep = scope, sweep
        self.names, self.compute = scope.names, scope.compute
        self.written = written_buffers(sweep)
        self.before: list[Stmt] = []
        self.local: dict[tuple[Expr, str], Expr] = {}

    def statements(self) -> list[Stmt]:
        """The bindings, then the sweep."""
        swept = map_lanes(self.sweep, lambda e: self.term(e, True))
        return [*self.before, swept]

    def term(self, e: Expr, smooth: bool) -> Expr:
        """`e` with its invariant parts replaced; `smooth` allows a quotient to be rounded differently."""
        if not depends_on(e, self.sweep.var):
            return self.invariant(e)
        if not isinstance(e, (Op, Cast)):
            return e
        if isinstance(e, Op) and e.fn == "div" and smooth and not depends_on(e.args[1], self.sweep.var):
            return self.times_reciprocal(self.term(e.args[0], True), e.args[1])
        if isinstance(e, Cast) or e.fn in DISCONTINUOUS or OPS[e.fn].kind == "compare":
            smooth = False
        args = (e.body,) if isinstance(e, Cast) else e.args
        return with_children(e, tuple(self.term(a, smooth) for a in args))

    def invariant(self, e: Expr) -> Expr:
        """A scalar for an invariant: itself when it is one already in the right type."""
        if isinstance(e, (Const, Size)) or (isinstance(e, Var) and not self.is_wide(e)):
            return e
        if isinstance(e, At) and e.buf in self.written:
            return e
        return self.bind(e)

    def is_wide(self, v: Var) -> bool:
        """A float64 scalar where lanes are float32: converted once, before the sweep."""
        return self.names.dtypes.get(v.name, self.compute) not in (self.compute, "bool")

    def bind(self, e: Expr, dtype: str = "") -> Expr:
        """A variable for `e` (of the compute dtype unless said), the same one for equal terms of the scope."""
        if isinstance(e, Var) and dtype:
            return e
        key = (e, dtype)
        known = self.local.get(key, self.scope.table.get(key))
        if known is not None:
            return known
        kind = kind_of(e, self.names.kinds)
        if kind == INT:
            v = self.names.integer("index")
            self.before.append(LetInt(v.name, e))
        else:
            v = self.names.scalar("c", dtype or ("bool" if kind == BOOL else self.compute))
            self.before.append(LetScalar(v.name, e, self.names.dtypes[v.name]))
        self.local[key] = v
        if not reads_mutable(e):
            self.scope.table[key] = v
        return v

    def times_reciprocal(self, dividend: Expr, divisor: Expr) -> Expr:
        """x / d as (x * p) * (1 / (d * p)), p a power of two that keeps the reciprocal finite and normal."""
        if isinstance(divisor, Const):
            return op("div", dividend, divisor)
        far = 2.0**64 if self.compute == "float32" else 2.0**512
        divisor = self.bind(divisor, self.names.dtype_of(divisor, self.compute))
        size = op("abs", divisor)
        lift = select(op("lt", size, 1.0 / far), far, select(op("gt", size, far), 1.0 / far, 1.0))
        factor = self.bind(lift)
        reciprocal = self.bind(op("div", 1.0, op("mul", divisor, factor)))
        return op("mul", op("mul", dividend, factor), reciprocal)
