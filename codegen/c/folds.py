"""Folds of a sweep as C: monoids with a state of several parts."""

from __future__ import annotations

from collections.abc import Sequence

from redfuser.codegen.c.context import Context
from redfuser.codegen.c.lanes import VECTOR, Lanes, count_uses
from redfuser.codegen.c.scalars import Scalars, bare
from redfuser.codegen.c.types import BOOL, INT, SCALAR
from redfuser.codegen.nodes import Fold
from redfuser.ir import Const, Expr, Var


def declare_results(ctx: Context, fold: Fold) -> None:
    """The scalars that hold the state after the sweep."""
    for name in fold.names:
        ctx.out.line(f"{SCALAR[ctx.types.of(Var(name))]} {ctx.names.get('variable', name)};")


class FoldPrinter:
    """One fold: a state in every lane of several vectors, or a single one where order matters."""

    def __init__(self, ctx: Context, scalars: Scalars, node: Fold, copies: int) -> None:
        self.ctx, self.scalars, self.node = ctx, scalars, node
        self.results = [ctx.names.get("variable", n) for n in node.names]
        self.types = [ctx.types.of(Var(n)) for n in node.names]
        self.lanes = [self._lane_kind(t) for t in self.types]
        self.vectors = [] if node.ordered else [[ctx.names.fresh("acc") for _ in node.names] for _ in range(copies)]

    def _lane_kind(self, kind: str) -> str:
        if kind == BOOL:
            return "mask"
        if kind == INT:
            return "int" if self.ctx.kernel.compute == "float64" else "long"
        return "real"

    def start(self) -> None:
        """The state of nothing, everywhere."""
        for result, kind, identity in zip(self.results, self.types, self.node.identity, strict=True):
            self.ctx.out.line(f"{result} = {bare(self.scalars.of(identity, kind))};")
        for state in self.vectors:
            for vector, lanes, identity in zip(state, self.lanes, self.node.identity, strict=True):
                self.ctx.out.line(f"{VECTOR[lanes]} {vector} = {self._splat(identity, lanes)};")

    def _splat(self, e: Const, lanes: str) -> str:
        if lanes == "mask":
            return f"splat_int({-1 if e.value else 0})"
        kind = self.ctx.kernel.compute if lanes == "real" else INT
        return f"{ {'real': 'splat'}.get(lanes, f'splat_{lanes}') }({bare(self.scalars.of(e, kind))})"

    def step(self, lanes: Lanes, copy: int) -> None:
        """Take in one vector of elements."""
        elements = [self._named(lanes, e, k) for e, k in zip(self.node.elements, self.lanes, strict=True)]
        if self.node.ordered:
            self._one_by_one(elements, lanes.left or "LANES", first="0")
        else:
            self._combine(self.vectors[copy], elements, lanes.left)

    def _named(self, lanes: Lanes, e: Expr, kind: str) -> str:
        text = lanes.value(e, kind)
        return text if text.isidentifier() else lanes.name(kind, text)

    def _combine(self, state: Sequence[str], other: Sequence[str], left: str | None) -> None:
        """state := state (+) other, lane by lane; in the first lanes only where `left` is given."""
        node = self.node
        memo: dict[Expr, str] = dict(zip(map(Var, (*node.left, *node.right)), (*state, *other), strict=True))
        lanes = Lanes(self.ctx, self.scalars, "", "0", "0", left, {}, count_uses(list(node.combine)), memo,
                      frozenset((*node.left, *node.right)))
        combined = [self._named(lanes, e, k) for e, k in zip(node.combine, self.lanes, strict=True)]
        for vector, value, kind in zip(state, combined, self.lanes, strict=True):
            if left is not None:
                choose = {"real": "select", "long": "select_long"}.get(kind, "select_int")
                value = f"{choose}(first_lanes({left}), {value}, {vector})"
            self.ctx.out.line(f"{vector} = {value};")

    def _one_by_one(self, vectors: Sequence[str], count: str, first: str) -> None:
        """result := result (+) lane, for lanes in order."""
        ctx, node = self.ctx, self.node
        with ctx.out.block(f"for (int lane = {first}; lane < {count}; lane++)"):
            for name, result, kind in zip(node.left, self.results, self.types, strict=True):
                ctx.out.let(SCALAR[kind], ctx.names.get("variable", name), result)
            for name, vector, kind in zip(node.right, vectors, self.types, strict=True):
                ctx.out.let(SCALAR[kind], ctx.names.get("variable", name), f"{vector}[lane]{' != 0' * (kind == BOOL)}")
            for result, e, kind in zip(self.results, node.combine, self.types, strict=True):
                ctx.out.line(f"{result} = {bare(self.scalars.of(e, kind))};")

    def finish(self) -> None:
        """All vectors into one, then its lanes one after the other."""
        if self.node.ordered:
            return
        total, *others = self.vectors
        for state in others:
            self._combine(total, state, None)
        self._one_by_one(total, "LANES", first="0")
