"""The term language: expressions in index notation, programs, cascades, their checker, printer and interpreter."""

from redfuser.ir.conditions import COMPARISONS, comparisons
from redfuser.ir.expr import (
    NEG_INF,
    POS_INF,
    RANK,
    Cast,
    Const,
    Expr,
    Idx,
    Load,
    New,
    Old,
    Op,
    Part,
    Reduce,
    Ref,
    Size,
    Tuple,
    Var,
    computed,
    is_costly,
    op,
    select,
    small_power,
    wrap,
)
from redfuser.ir.interpret import run_cascade, run_term
from redfuser.ir.monoids import PartsMonoid, find_parts, has_parts, is_monoid, monoid, parts_monoid
from redfuser.ir.node import Node, node
from redfuser.ir.ops import COSTLY, MONOIDS, OPS
from redfuser.ir.show import show
from redfuser.ir.term import Axis, Cascade, Let, Out, Reduction, Tensor, Term, check_cascade, check_term
from redfuser.ir.traverse import (
    children,
    free_axes,
    names_read,
    refs,
    rename_axes,
    rewrite,
    substitute,
    walk,
    with_children,
    written_size,
)

__all__ = [
    "COMPARISONS", "COSTLY", "MONOIDS", "NEG_INF", "OPS", "POS_INF", "RANK", "Axis", "Cascade", "Cast", "Const", "Expr",
    "Idx", "Let", "Load", "New", "Node", "Old", "Op", "Out", "Part", "PartsMonoid", "Reduce", "Reduction", "Ref",
    "Size", "Tensor", "Term", "Tuple", "Var", "check_cascade", "check_term", "children", "comparisons", "computed",
    "find_parts", "free_axes", "has_parts", "is_costly", "is_monoid", "monoid", "names_read", "node", "op",
    "parts_monoid", "refs", "rename_axes", "rewrite", "run_cascade", "run_term", "select", "show", "small_power",
    "substitute", "walk", "with_children", "wrap", "written_size",
]
