"""The term language: expressions in index notation, programs, cascades, their checker, printer and interpreter."""

from redfuser.ir.expr import (
    NEG_INF,
    POS_INF,
    Cast,
    Const,
    Expr,
    Idx,
    Load,
    New,
    Node,
    Old,
    Op,
    Reduce,
    Ref,
    Size,
    Var,
    children,
    free_axes,
    node,
    op,
    refs,
    rename_axes,
    rewrite,
    select,
    substitute,
    walk,
    with_children,
    wrap,
)
from redfuser.ir.interpret import run_cascade, run_term
from redfuser.ir.ops import COSTLY, MONOIDS, OPS
from redfuser.ir.show import show
from redfuser.ir.term import Axis, Cascade, Let, Out, Reduction, Tensor, Term, check_cascade, check_term

__all__ = [
    "COSTLY", "MONOIDS", "NEG_INF", "OPS", "POS_INF", "Axis", "Cascade", "Cast", "Const", "Expr", "Idx", "Let", "Load",
    "New", "Node", "Old", "Op", "Out", "Reduce", "Reduction", "Ref", "Size", "Tensor", "Term", "Var", "check_cascade",
    "check_term", "children", "free_axes", "node", "op", "refs", "rename_axes", "rewrite", "run_cascade", "run_term",
    "select", "show", "substitute", "walk", "with_children", "wrap",
]
