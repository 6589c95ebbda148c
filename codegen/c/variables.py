"""The variables and scalars that the text of a phase declares, with their types."""

from __future__ import annotations

from redfuser.codegen.c.types import BOOL, F32, F64, INT
from redfuser.codegen.names import RESERVED
from redfuser.codegen.nodes import At, Buf, For, If, LetInt, LetScalar, Set, Stmt, Sweep
from redfuser.codegen.passes.bodies import Body, lane_expressions, nested
from redfuser.errors import CheckError
from redfuser.ir import Expr, walk


def reduction_type(monoid: str, compute: str) -> str:
    """The expression type of a reduction: numbers reduce in the compute dtype."""
    return BOOL if monoid in ("any", "all") else compute


def scalar_kind(dtype: str) -> str:
    """The expression type of a scalar variable."""
    if dtype not in (F32, F64, BOOL, "int64"):
        raise CheckError(f"a scalar variable cannot have dtype {dtype}; use float32, float64, bool or int64")
    return INT if dtype == "int64" else dtype


def _expressions(s: Stmt) -> list[Expr]:
    """The expressions a statement reads or stores to (not those of the statements inside it)."""
    if isinstance(s, Set):
        return [s.cell, s.expr]
    if isinstance(s, (LetInt, LetScalar)):
        return [s.expr]
    if isinstance(s, If):
        return [s.condition]
    if isinstance(s, Sweep):
        lists = [x for i in s.inserts for x in (i.keys, i.indices)]
        return [s.lo, s.hi, *lane_expressions(s), *(p.cell for p in s.puts), *lists]
    return []


def registers(body: Body) -> set[Buf]:
    """The scalars that a task body uses."""
    return {
        x.buf
        for s in nested(body)
        for e in _expressions(s)
        for x in walk(e)
        if isinstance(x, At) and x.buf.home == "reg"
    }


def variable_types(compute: str, loop: For) -> dict[str, str]:
    """Variable name -> expression type, for all variables of a phase."""
    kinds = dict.fromkeys((loop.var, *RESERVED), INT)
    for s in nested(loop.body):
        if isinstance(s, For):
            kinds[s.var] = INT
        elif isinstance(s, LetInt):
            kinds[s.name] = INT
        elif isinstance(s, LetScalar):
            kinds[s.name] = scalar_kind(s.dtype)
        elif isinstance(s, Sweep):
            kinds[s.var] = INT
            kinds |= {r.name: reduction_type(r.monoid, compute) for r in s.reds}
            for f in s.folds:
                for names in (f.names, f.left, f.right):
                    kinds |= {n: scalar_kind(d) for n, d in zip(names, f.dtypes, strict=True)}
    return kinds
