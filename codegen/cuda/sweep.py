"""A sweep as CUDA: threads stride over the range, then the results of all of them meet."""

from __future__ import annotations

from collections.abc import Sequence

from redfuser.codegen.c.scalars import bare
from redfuser.codegen.c.types import SCALAR, Text
from redfuser.codegen.c.variables import reduction_type
from redfuser.codegen.cuda.context import CudaContext
from redfuser.codegen.cuda.lanes import Element, Range
from redfuser.codegen.cuda.lists import ListPrinter
from redfuser.codegen.nodes import Fold, Red, Sweep
from redfuser.codegen.passes.bodies import lane_expressions
from redfuser.ir import MONOIDS, Expr, Var, rewrite


def print_sweep(ctx: CudaContext, s: Sweep) -> None:
    """The statements of a sweep."""
    if s.inserts:
        ListPrinter(ctx, s).print()
    else:
        _SweepPrinter(ctx, s).print()


def results(s: Sweep) -> int:
    """Values that the threads of a block hand to each other."""
    return len(s.reds) + sum(len(f.names) for f in s.folds)


class _SweepPrinter:
    def __init__(self, ctx: CudaContext, sweep: Sweep) -> None:
        self.ctx, self.sweep, self.scalars = ctx, sweep, ctx.scalars

    def print(self) -> None:
        """Results start as identities, the loop takes elements in, then threads meet."""
        s, out = self.sweep, self.ctx.out
        for r in s.reds:
            kind = reduction_type(r.monoid, self.ctx.kernel.compute)
            nothing = self.scalars.constant(MONOIDS[r.monoid].identity, kind)
            out.line(f"{SCALAR[kind]} {self._name(r.name)} = {nothing};")
        for f in s.folds:
            for name, identity in zip(f.names, f.identity, strict=True):
                kind = self.ctx.types.of(Var(name))
                out.line(f"{SCALAR[kind]} {self._name(name)} = {bare(self.scalars.of(identity, kind))};")
        if any(f.ordered for f in s.folds):
            self._in_order(s.folds[0])
        else:
            with Range(self.ctx, s, list(lane_expressions(s)), [p.cell for p in s.puts]).elements() as element:
                self._element(element)
        self._meet()

    def _name(self, name: str) -> str:
        return self.ctx.names.get("variable", name)

    def _element(self, element: Element) -> None:
        s, out = self.sweep, self.ctx.out
        for p in s.puts:
            element.put(p.cell, p.expr)
        for r in s.reds:
            kind = reduction_type(r.monoid, self.ctx.kernel.compute)
            out.line(taken_in(r, self._name(r.name), element.name(r.expr, kind)))
        for f in s.folds:
            kinds = [self.ctx.types.of(Var(n)) for n in f.names]
            self._take_in(f, [element.name(e, k) for e, k in zip(f.elements, kinds, strict=True)])

    def _in_order(self, f: Fold) -> None:
        """Every thread folds neighbours, the earlier ones first."""
        ctx, out, s = self.ctx, self.ctx.out, self.sweep
        lo, hi = (bare(self.scalars.integer(e)) for e in (s.lo, s.hi))
        var = ctx.names.get("variable", s.var)
        with out.block():
            out.let("int64_t", "share", f"({hi} - ({lo}) + {ctx.team.team - 1}) / {ctx.team.team}")
            out.let("int64_t", "from", f"{lo} + lane * share")
            out.let("int64_t", "end", f"min_int(from + share, {hi})")
            with out.block(f"for (int64_t {var} = from; {var} < end; {var}++)"):
                self._element(Element(ctx, {}, s.var, {}, "0"))

    def _take_in(self, f: Fold, other: Sequence[str]) -> None:
        """state := state (+) other, by the combination of the monoid."""
        mine = [self._name(n) for n in f.names]
        kinds = [self.ctx.types.of(Var(n)) for n in f.names]
        sides = {**dict(zip(f.left, zip(mine, kinds, strict=True), strict=True)),
                 **dict(zip(f.right, zip(other, kinds, strict=True), strict=True))}

        def side(x: Expr) -> Expr | None:
            return Text(*sides[x.name]) if isinstance(x, Var) and x.name in sides else None

        fresh = []
        for e, kind in zip(f.combine, kinds, strict=True):
            name = self.ctx.names.fresh("val")
            self.ctx.out.let(SCALAR[kind], name, bare(self.scalars.of(rewrite(e, side), kind)))
            fresh.append(name)
        for name, value in zip(mine, fresh, strict=True):
            self.ctx.out.line(f"{name} = {value};")

    # ---- threads meet

    def _meet(self) -> None:
        """First the lanes of each warp, then, through shared memory, the warps of a block."""
        s, out = self.sweep, self.ctx.out
        for r in s.reds:
            name, lanes = self._name(r.name), self.ctx.lanes
            part, whose = ("", "") if lanes == 32 else (f", {lanes}", ", team_lanes")
            out.line(f"{name} = warp_all<{functor(r)}{part}>({name}{whose});")
        for f in s.folds:
            self._fold_warp(f)
        names = [(r.name, reduction_type(r.monoid, self.ctx.kernel.compute)) for r in s.reds]
        names += [(n, self.ctx.types.of(Var(n))) for f in s.folds for n in f.names]
        if self.ctx.warps == 1 or not names:
            return
        self.ctx.reductions = max(self.ctx.reductions, len(names))
        out.line("turn ^= 1; /* slots of the reduction before may still be read */")
        with out.block("if (lane % 32 == 0)"):
            for i, (name, kind) in enumerate(names):
                out.line(f"*({SCALAR[kind]} *)&slots[turn][{i}][lane / 32] = {self._name(name)};")
        out.line(self.ctx.barrier)
        for i, r in enumerate(s.reds):
            kind = SCALAR[names[i][1]]
            out.line(f"{self._name(r.name)} = slots_all<{functor(r)}, {kind}, {self.ctx.warps}>(slots[turn][{i}]);")
        first = len(s.reds)
        for f in s.folds:
            self._fold_slots(f, first)
            first += len(f.names)

    def _fold_warp(self, f: Fold) -> None:
        """Neighbours meet in rounds, the earlier one left; lane 0 has it all and tells the others."""
        out, lanes, mask = self.ctx.out, self.ctx.lanes, self.ctx.mask
        width = "" if lanes == 32 else f", {lanes}"
        with out.block(f"for (int step = 1; step < {lanes}; step *= 2)"):
            others = []
            for n in f.names:
                kind, name = self.ctx.types.of(Var(n)), self.ctx.names.fresh("val")
                out.let(SCALAR[kind], name, f"__shfl_down_sync({mask}, {self._name(n)}, step{width})")
                others.append(name)
            self._take_in(f, others)
        for n in f.names:
            out.line(f"{self._name(n)} = __shfl_sync({mask}, {self._name(n)}, 0{width});")

    def _fold_slots(self, f: Fold, first: int) -> None:
        out = self.ctx.out
        kinds = [SCALAR[self.ctx.types.of(Var(n))] for n in f.names]
        for i, (n, kind) in enumerate(zip(f.names, kinds, strict=True), first):
            out.line(f"{self._name(n)} = *({kind} *)&slots[turn][{i}][0];")
        with out.block(f"for (int w = 1; w < {self.ctx.warps}; w++)"):
            others = []
            for i, kind in enumerate(kinds, first):
                name = self.ctx.names.fresh("val")
                out.let(kind, name, f"*({kind} *)&slots[turn][{i}][w]")
                others.append(name)
            self._take_in(f, others)


def functor(r: Red) -> str:
    return f"{'loose_' if r.loose and r.monoid in ('max', 'min') else ''}{r.monoid}_of"


def taken_in(r: Red, state: str, value: str) -> str:
    """One more element in the accumulator of a thread."""
    return f"{state} += {value};" if r.monoid == "sum" else f"{state} = {functor(r)}()({state}, {value});"


