"""Statements that read the same in every kernel, in C and in CUDA: constants, conditions, loops."""

from __future__ import annotations

from collections.abc import Callable

from redfuser.codegen.c.scalars import Scalars, bare
from redfuser.codegen.c.types import BOOL, SCALAR
from redfuser.codegen.c.variables import scalar_kind
from redfuser.codegen.nodes import For, If, LetInt, LetScalar, Stmt
from redfuser.codegen.passes.bodies import Body
from redfuser.ir import Expr


def print_plain(scalars: Scalars, s: Stmt, inside: Callable[[Body], None],
                resolved: Callable[[Expr], Expr] = lambda e: e) -> bool:
    """Print such a statement; False for any other, of which nothing is printed.

    Parameters
    ----------
    inside : prints the statements in it
    resolved : what stands for an expression
    """
    out, names = scalars.ctx.out, scalars.ctx.names
    if isinstance(s, LetInt):
        out.let("int64_t", names.get("variable", s.name), bare(scalars.integer(resolved(s.expr))))
    elif isinstance(s, LetScalar):
        kind = scalar_kind(s.dtype)
        out.let(SCALAR[kind], names.get("variable", s.name), bare(scalars.of(resolved(s.expr), kind)))
    elif isinstance(s, If):
        with out.block(f"if ({bare(scalars.of(resolved(s.condition), BOOL))})"):
            inside(s.body)
    elif isinstance(s, For):
        var = names.get("variable", s.var)
        lo, hi, step = (bare(scalars.integer(resolved(e))) for e in (s.lo, s.hi, s.step))
        advance = f"{var}++" if step == "1" else f"{var} += {step}"
        with out.block(f"for (int64_t {var} = {lo}; {var} < {hi}; {advance})"):
            inside(s.body)
    else:
        return False
    return True
