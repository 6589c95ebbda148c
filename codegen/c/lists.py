"""Sorted lists as C: elements that cannot enter are passed over several vectors at a time.

A short list stays in vectors: one comparison finds the places behind a new element, shuffles move them up. A long one
is an array. In vectors the index of an element is its number in the sweep; what was in the list before has a negative
number, -1 - place, and an empty place has `NOWHERE`.
"""

from __future__ import annotations

from collections.abc import Sequence

from redfuser.codegen.c.context import Context
from redfuser.codegen.c.lanes import Lanes
from redfuser.codegen.c.scalars import Scalars, bare, replace_var
from redfuser.codegen.c.types import Text
from redfuser.codegen.nodes import Insert
from redfuser.ir import Const, Expr, Var

MOST_VECTORS = 2
"""Vectors that hold a list; every insertion works on all of them."""


class InsertPrinter:
    """One sorted list of a sweep over `var`."""

    def __init__(self, ctx: Context, scalars: Scalars, var: str, node: Insert) -> None:
        self.ctx, self.scalars, self.var, self.node = ctx, scalars, var, node
        self.order = "largest" if node.largest else "smallest"
        self.last = ctx.names.fresh("last")
        self.keys, self.indices = ctx.names.fresh("ptr"), ctx.names.fresh("ptr")
        count = -(-node.length // ctx.lanes)
        self.vectors = [(ctx.names.fresh("list"), ctx.names.fresh("from")) for _ in range(count)]
        if count > MOST_VECTORS:
            self.vectors = []

    def start(self) -> None:
        """Where the list lies, its vectors, and the key that an element must beat."""
        out = self.ctx.out
        for cell, name, kind in ((self.node.keys, self.keys, "real"), (self.node.indices, self.indices, "int64_t")):
            out.let(f"{kind} *", name, self.scalars.pointer(cell, "z_", Const(0)))
        for i, (keys, numbers) in enumerate(self.vectors):
            first = i * self.ctx.lanes
            live = min(self.ctx.lanes, self.node.length - first)
            out.line(f"vec {keys} = load_tail({self.keys} + {first}, {live});")
            out.line(f"ints {numbers} = list_numbers({self.indices}, {first}, {live});")
        out.line(f"vec {self.last} = {self._last()};")

    def _last(self) -> str:
        """The last key in all lanes; NaN, which stops nothing, while that place is empty."""
        if not self.vectors:
            return f"splat(last_key({self.keys}, {self.indices}, {self.node.length}))"
        keys, numbers = self.vectors[-1]
        lane = (self.node.length - 1) % self.ctx.lanes
        return f"splat({numbers}[{lane}] == NOWHERE ? NOT_A_NUMBER : {keys}[{lane}])"

    def key(self, lanes: Lanes) -> str:
        """The keys of one vector of elements, named."""
        value = lanes.value(self.node.key, "real")
        return value if value.isidentifier() else lanes.name("real", value)

    def step(self, keys: Sequence[str], start: str, position: str, left: str | None) -> None:
        """Insert the elements of some vectors, in order, if any of them can enter."""
        out, order = self.ctx.out, "<=" if self.node.largest else ">="
        some = "" if left is None else f" & first_lanes({left})"
        beaten = " & ".join(f"({key} {order} {self.last})" for key in keys)
        with out.block(f"if (lane_bits(~({beaten}){some}))"):
            bound = self._bound(keys, left)
            for copy, key in enumerate(keys):
                at = f"{position} + {copy} * LANES" if copy else position
                self._enter(key, f"~({key} {order} {self.last}){some}{bound.format(key=key)}", start, at)
                out.line(f"{self.last} = {self._last()};")

    def _bound(self, keys: Sequence[str], left: str | None) -> str:
        """A further condition on `{key}`: not worse than as many of these elements as the list has places.

        The best of every lane are as many as there are lanes, so the worst of those is such a bound; for a single place
        it is the best of all. With a NaN there is none, nor where elements may be skipped.
        """
        too_few = self.node.length > self.ctx.lanes or (len(keys) == 1 < self.node.length)
        if too_few or self.node.index != Var(self.var):
            return ""
        larger, order = ("larger", ">=") if self.node.largest else ("smaller", "<=")
        best, worst = ("max_lanes", "min_lanes") if self.node.largest else ("min_lanes", "max_lanes")
        nothing = "splat(-INF)" if self.node.largest else "splat(INF)"
        live = [k if left is None else f"select(first_lanes({left}), {k}, {nothing})" for k in keys]
        lanes = live[0]
        for other in live[1:]:
            lanes = f"{larger}({lanes}, {other})"
        bound, odd = self.ctx.names.fresh("best"), self.ctx.names.fresh("odd")
        self.ctx.out.let("vec", bound, f"splat({best if self.node.length == 1 else worst}({lanes}))")
        self.ctx.out.let("ints", odd, f"splat_int(-(lane_bits({' | '.join(f'({k} != {k})' for k in keys)}) != 0))")
        return f" & (({{key}} {order} {bound}) | {odd})"

    def _enter(self, key: str, mask: str, start: str, at: str) -> None:
        """One vector of elements: those of the mask, one after the other."""
        out, bits, slot = self.ctx.out, self.ctx.names.fresh("bits"), self.ctx.names.fresh("slot")
        with out.block(f"for (unsigned {bits} = lane_bits({mask}); {bits}; {bits} &= {bits} - 1)"):
            out.line(f"const int {slot} = __builtin_ctz({bits});")
            number = f"{at} + {slot}"
            if not self.vectors:
                lists = f"{self.keys}, {self.indices}, {self.node.length}"
                out.line(f"insert_{self.order}({lists}, {key}[{slot}], {bare(self._index(start, number))});")
                return
            if self.node.index != Var(self.var):  # positions are never negative
                out.line(f"if ({self._index(start, number)} < 0) continue;")
            self._shift(f"splat({key}[{slot}])", f"splat_int((lane_int)({number}))")

    def _index(self, start: str, number: str) -> str:
        """The index of the element with a number in the sweep."""
        place: Expr = Text(f"({number})" if start == "0" else f"({start} + {number})")
        return self.scalars.integer(replace_var(self.node.index, self.var, place))

    def _shift(self, key: str, number: str) -> None:
        """Places that come after the new element move up by one; it takes the first of them."""
        out, fresh = self.ctx.out, self.ctx.names.fresh
        new, where = fresh("val"), fresh("val")
        out.let("vec", new, key)
        out.let("ints", where, number)
        behind = [fresh("val") for _ in self.vectors]
        for mask, (keys, numbers) in zip(behind, self.vectors, strict=True):
            out.let("ints", mask, f"behind_{self.order}({new}, {keys}, {numbers})")
        for i in reversed(range(len(behind))):
            keys, numbers = self.vectors[i]
            before = (behind[i - 1], *self.vectors[i - 1]) if i else ("splat_int(0)", keys, numbers)
            moves = fresh("val")
            out.let("ints", moves, f"SHIFT_LANES({before[0]}, {behind[i]})")
            for vector, previous, value, choose in (
                (keys, before[1], new, "select"), (numbers, before[2], where, "select_int")
            ):
                moved = f"{choose}({moves}, SHIFT_LANES({previous}, {vector}), {value})"
                out.line(f"{vector} = {choose}({behind[i]}, {moved}, {vector});")

    def finish(self, start: str) -> None:
        """The vectors back into the list."""
        if not self.vectors:
            return
        out, length, lanes = self.ctx.out, self.node.length, self.ctx.lanes
        before, numbers = self.ctx.names.fresh("before"), self.ctx.names.fresh("numbers")
        out.line(f"int64_t {before}[{length}];")
        out.line(f"lane_int {numbers}[{len(self.vectors) * lanes}];")
        for i, (keys, vector) in enumerate(self.vectors):
            out.line(f"store_tail({self.keys} + {i * lanes}, {keys}, {min(lanes, length - i * lanes)});")
            out.line(f"store_numbers({numbers} + {i * lanes}, {vector});")
        slot = self.ctx.names.fresh("slot")
        out.line(f"for (int {slot} = 0; {slot} < {length}; {slot}++) {before}[{slot}] = {self.indices}[{slot}];")
        with out.block(f"for (int {slot} = 0; {slot} < {length}; {slot}++)"):
            number = f"{numbers}[{slot}]"
            out.line(f"if ({number} >= 0) {self.indices}[{slot}] = {bare(self._index(start, number))};")
            out.line(f"else if ({number} != NOWHERE) {self.indices}[{slot}] = {before}[-1 - {number}];")
