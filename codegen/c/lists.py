"""Sorted lists as C: few elements of a sweep come near a list, and those enter many at a time.

A comparison of whole vectors passes over elements that cannot enter. The others wait in an array until there are a few
vectors of them; each then finds its place by counting those before it, and all are merged with the list.

What an element must beat is the last key of a full list. While the list is not full, it must reach a *bound*: a number
that as many elements of the sweep reach as the list has places. The first part of the sweep is looked at beforehand to
get one: every lane of several vectors keeps its best element, and the n-th best of those is a bound for n places.
Once n elements wait that reach the bound, later ones that only equal it are too late.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from redfuser.codegen.c.context import Context
from redfuser.codegen.c.lanes import Cell, Lanes
from redfuser.codegen.c.scalars import Scalars, bare, replace_var
from redfuser.codegen.c.types import Text
from redfuser.codegen.nodes import At, Insert
from redfuser.ir import Const, Expr, Var, is_costly, walk

LOOK_AHEAD = 256
"""Elements per place of a list that are looked at beforehand: more would spare less than they cost."""

FEWEST = 4
"""Elements per place below which none are: as many may wait as well."""

MOST_BESTS = 8
"""Vectors of best elements: every one is a register."""

WORD = 64
"""Bits of the word that marks the elements which can enter."""


class InsertPrinter:
    """One sorted list of a sweep over `var` whose loop takes `copies` vectors at a time."""

    def __init__(self, ctx: Context, scalars: Scalars, var: str, node: Insert, copies: int) -> None:
        self.ctx, self.scalars, self.var, self.node, self.copies = ctx, scalars, var, node, copies
        fresh = ctx.names.fresh
        self.keys, self.indices, self.held = fresh("ptr"), fresh("ptr"), fresh("held")
        self.last, self.bound = fresh("last"), fresh("bound")
        self.new_keys, self.new_indices, self.count = fresh("new"), fresh("place"), fresh("count")
        self.sign, self.better = ("1", "larger") if node.largest else ("-1", "smaller")
        self.beaten, self.reached, self.worst = ("<=", "<", "-INF") if node.largest else (">=", ">", "INF")

    @property
    def certain(self) -> bool:
        """Whether no element is skipped: positions in a sweep are never negative."""
        return self.node.index == Var(self.var)

    def start(self) -> None:
        """Where the list lies, how much of it is filled, what an element must beat, and room for those that do."""
        out, length = self.ctx.out, self.node.length
        for cell, name, kind in ((self.node.keys, self.keys, "real"), (self.node.indices, self.indices, "int64_t")):
            out.let(f"{kind} *", name, self.scalars.pointer(cell, "z_", Const(0)))
        out.line(f"int {self.held} = list_held({self.indices}, {length}), {self.count} = 0;")
        out.line(f"vec {self.last} = splat({self.held} < {length} ? NOT_A_NUMBER : {self.keys}[{length - 1}]);")
        if self.certain:
            out.line(f"vec {self.bound} = splat({self.worst});")
        out.line(f"real {self.new_keys}[MOST_NEW];")
        out.line(f"int64_t {self.new_indices}[MOST_NEW];")

    # ---- bounds

    def look_ahead(self, lanes_at: Callable[[str], Lanes], stored: frozenset[str], count: int | None) -> None:
        """A bound from the first elements, while the list is not full and where their keys are at hand.

        Parameters
        ----------
        lanes_at : the printer of vectors at a position
        stored : buffers that the sweep itself stores to
        count : elements of the sweep, if that is a constant
        """
        out, lanes, length = self.ctx.out, self.ctx.lanes, self.node.length
        vectors = max(4, min(2 * self._parts(), MOST_BESTS))
        least, most = FEWEST * length, LOOK_AHEAD * length
        useful = self._parts() <= vectors and (count is None or count >= least)
        if not (useful and self.certain and self._at_hand(lanes_at("at").cells, stored)):
            return
        bests = [self.ctx.names.fresh("best") for _ in range(vectors)]
        limit = f"min_int(count, {most})" if count is None else str(min(count, most))
        enough = f" && count >= {least}" if count is None else ""
        with out.block(f"if ({self.held} < {length}{enough})"):
            out.line(f"vec {', '.join(f'{b} = {self.bound}' for b in bests)};")
            out.line(f"const int64_t few = {limit};")
            out.line("int64_t at = 0;")
            for copies in (vectors, 1):
                step = copies * lanes
                with out.block(f"for (; at + {step} <= few; at += {step})"):
                    for i, best in enumerate(bests[:copies]):
                        key = self.key(lanes_at(f"at + {i * lanes}" if i else "at"))
                        out.line(f"{best} = {self.better}({key}, {best});")
            out.line(f"{self.bound} = splat(off_zero({self._bound(bests, 2)}, {self.sign}));")
            out.line(f"{self.last} = splat(just_worse({self.bound}[0], {self.sign}));")

    def _parts(self) -> int:
        """Into how many parts vectors are dealt for a bound, so that no part has a share of more than one vector."""
        parts = 1
        while parts * self.ctx.lanes < self.node.length:
            parts *= 2
        return parts

    def _at_hand(self, cells: Mapping[At, Cell], stored: frozenset[str]) -> bool:
        """Whether keys can be computed a second time, in vectors and for little."""
        parts = list(walk(self.node.key))
        loads = [x for x in parts if isinstance(x, At) and x in cells]
        costly = any(map(is_costly, parts))
        return not costly and all(x.buf.name not in stored and cells[x].step is not None for x in loads)

    def _bound(self, vectors: Sequence[str], columns: int) -> str:
        """A number that as many elements of some vectors reach as there are places.

        The vectors, free of NaN, are dealt to parts, each part becomes `columns` vectors of the best elements in their
        lanes, and of those the share of the part is taken.
        """
        parts, lanes = self._parts(), self.ctx.lanes
        share = -(-self.node.length // parts)
        columns = 1 if 2 * share <= lanes or len(vectors) == parts else columns
        bounds = []
        for part in range(parts):
            own = vectors[part::parts]
            best = [self._best(own[column::columns]) for column in range(columns)]
            if not self.node.largest:
                best = [f"-{b}" for b in best]
            bounds.append(self._nth(best[0] if columns == 1 else f"best_lanes({', '.join(best)})", share))
        worst = bounds[0]
        for other in bounds[1:]:
            worst = f"min_{self.ctx.kernel.compute}({worst}, {other})"
        return worst if self.node.largest else f"-{worst}"

    def _best(self, vectors: Sequence[str]) -> str:
        """The best of every lane; NaN in any but the last vector is passed over."""
        text = vectors[-1]
        for vector in reversed(vectors[:-1]):
            text = f"{self.better}({vector}, {text})"
        return text

    def _nth(self, vector: str, n: int) -> str:
        """The n-th largest lane."""
        if n in (1, self.ctx.lanes):
            return f"{'max' if n == 1 else 'min'}_lanes({vector})"
        return f"nth_lane({vector}, {n - 1})"

    # ---- the sweep

    def key(self, lanes: Lanes) -> str:
        """The keys of one vector of elements, named."""
        value = lanes.value(self.node.key, "real")
        return value if value.isidentifier() else lanes.name("real", value)

    def step(self, keys: Sequence[str], start: str, position: str, left: str | None) -> None:
        """Take the elements of some vectors that can enter, in order."""
        most = WORD // self.ctx.lanes
        for first in range(0, len(keys), most):
            at = f"{position} + {first * self.ctx.lanes}" if first else position
            self._group(keys[first : first + most], start, at, left)

    def _group(self, keys: Sequence[str], start: str, position: str, left: str | None) -> None:
        """Vectors whose elements fit a word."""
        out, length = self.ctx.out, self.node.length
        some = "" if left is None else f" & first_lanes({left})"
        bits, group = self.ctx.names.fresh("bits"), self.ctx.names.fresh("group")
        beaten = " & ".join(f"({key} {self.beaten} {self.last})" for key in keys)
        with out.block(f"if (lane_bits(~({beaten}){some}))"):
            out.line(f"uint64_t {bits} = {self._word(keys, self.beaten, self.last, some)};")
            out.line(f"real {group}[{len(keys) * self.ctx.lanes}];")
            for i, key in enumerate(keys):
                out.line(f"store({group}{f' + {i * self.ctx.lanes}' if i else ''}, {key});")
            new = f"{self.new_keys}, {self.new_indices}"
            if self.certain:
                if len(keys) == self.copies and left is None:
                    self._thin_out(keys, bits)
                first, size = position if start == "0" else f"{start} + {position}", len(keys) * self.ctx.lanes
                out.line(f"{self.count} = append({bits}, {group}, {size}, {first}, {new}, {self.count});")
                late = f"{self.better}({self.last}, {self.bound})"
                out.line(f"if ({self.count} >= {length}) {self.last} = {late};")
            else:
                self._append_certain(bits, group, start, position)
            last_few = left is not None or len(keys) < self.copies <= WORD // self.ctx.lanes
            if not last_few:  # there is room for those
                with out.block(f"if ({self.count} >= MANY_NEW)"):
                    out.line(f"{self.held} = {self._enter()};")
                    out.line(f"{self.count} = 0;")
                    out.line(f"if ({self.held} == {length}) {self.last} = splat({self.keys}[{length - 1}]);")

    def _word(self, keys: Sequence[str], order: str, limit: str, some: str = "") -> str:
        """One bit for each element whose key is not `order` than a limit."""
        bits = [f"(uint64_t)lane_bits(~({key} {order} {limit}){some})" for key in keys]
        return " | ".join(f"{b} << {i * self.ctx.lanes}" if i else b for i, b in enumerate(bits))

    def _thin_out(self, keys: Sequence[str], bits: str) -> None:
        """Of too many elements for the list those that reach a bound of their own; of equal ones, as many as places."""
        out, length = self.ctx.out, self.node.length
        if len(keys) * self.ctx.lanes <= length or self._parts() > len(keys):
            return
        above = self.ctx.names.fresh("above")
        numbers = [f"{self.better}({key}, splat({self.worst}))" for key in keys]
        with out.block(f"if (__builtin_popcountll({bits}) >= {length})"):
            out.line(f"{self.bound} = {self.better}({self.bound}, splat({self._bound(numbers, 1)}));")
            out.let("uint64_t", above, self._word(keys, self.beaten, self.bound))
            reached = self._word(keys, self.reached, self.bound)
            out.line(f"{bits} &= {above} | first_bits({bits} & ~{above} & ({reached}), {length});")

    def _append_certain(self, bits: str, group: str, start: str, position: str) -> None:
        """Those of the elements that are not to be skipped."""
        out, slot = self.ctx.out, self.ctx.names.fresh("slot")
        with out.block(f"for (; {bits}; {bits} &= {bits} - 1)"):
            out.line(f"const int {slot} = __builtin_ctzll({bits});")
            number = f"{position} + {slot}"
            place: Expr = Text(f"({number})" if start == "0" else f"({start} + {number})")
            index = bare(self.scalars.integer(replace_var(self.node.index, self.var, place)))
            out.line(f"{self.new_keys}[{self.count}] = {group}[{slot}];")
            out.line(f"{self.new_indices}[{self.count}] = {index};")
            out.line(f"{self.count} += {self.new_indices}[{self.count}] >= 0;")

    def _enter(self) -> str:
        places = f"{self.keys}, {self.indices}, {self.node.length}, {self.held}"
        return f"enter_list({places}, {self.new_keys}, {self.new_indices}, {self.count}, {self.sign})"

    def finish(self) -> None:
        """What still waits enters."""
        self.ctx.out.line(f"if ({self.count} > 0) {self._enter()};")
