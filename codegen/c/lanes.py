"""Lane expressions as C: one vector of consecutive values of a sweep variable.

Lane values come in four kinds: `real` (vec), `mask` (ints, 0 or -1), `int` (ints, as wide as a real) and `long` (64-bit
integers, for float32 kernels whose integers may not fit 32 bits).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from redfuser.codegen.c.address import coefficient, mentions
from redfuser.codegen.c.context import Context
from redfuser.codegen.c.scalars import Scalars, bare, power_text, replace_var
from redfuser.codegen.c.types import BOOL, INT, Text, is_real
from redfuser.codegen.nodes import At
from redfuser.errors import CheckError
from redfuser.ir import OPS, Cast, Const, Expr, Op, Var, children, op, small_power, walk
from redfuser.ir.dtypes import STORAGE_ONLY
from redfuser.ir.ops import BELOW

VECTOR = {"real": "vec", "mask": "ints", "int": "ints", "long": "longs"}
"""Lane kind -> C vector type."""

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
    "and": "&",
    "or": "|",
}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_FUNCTION = {
    "exp": "exponential",
    "exp2": "exponential2",
    "exp_below": "exponential_below",
    "exp2_below": "exponential2_below",
    "log": "logarithm",
    "sqrt": "square_root",
    "abs": "absolute",
    "sign": "signum",
    "floor": "floor_of",
    "ceil": "ceil_of",
    "rint": "round_even",
}
_INT_BITS = {"bool": 1, "int8": 7, "uint8": 8, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32}


@dataclass
class Cell:
    """How a sweep walks over a cell: `pointer` to its element at the first lane; elements per step of the variable."""

    pointer: str
    step: Expr | None

    @property
    def contiguous(self) -> bool:
        """Whether neighbouring lanes are neighbouring elements."""
        return self.step == Const(1)

    def at(self, position: str) -> str:
        """Address at a lane position."""
        assert self.step is not None
        return (
            f"{self.pointer} + {position}"
            if self.contiguous
            else f"{self.pointer} + ({position}) * {_step_text(self)}"
        )


def _is_product(e: Expr) -> bool:
    """Whether a sum with it could be one multiply-add."""
    return isinstance(e, Op) and (e.fn == "mul" or (e.fn == "neg" and _is_product(e.args[0])))


def _step_text(cell: Cell) -> str:
    return str(cell.step.value) if isinstance(cell.step, Const) else cell.step.text  # type: ignore[union-attr]


@dataclass
class Lanes:
    """Prints the lane expressions of one copy of a sweep's body.

    var       the sweep variable; `start`: its value in lane 0 (integer text)
    position  lanes before lane 0 since the start of the sweep
    left      text of the number of live lanes in a partial vector, None for a full one
    uses      how often a subexpression occurs in the sweep: shared ones get a name
    bound     variables besides `var` that differ from lane to lane; `memo` holds their vectors
    """

    ctx: Context
    scalars: Scalars
    var: str
    start: str
    position: str
    left: str | None
    cells: Mapping[At, Cell]
    uses: Mapping[Expr, int]
    memo: dict[Expr, str] = field(default_factory=dict)
    bound: frozenset[str] = frozenset()

    # ---- kinds

    def kind(self, e: Expr) -> str:
        """The lane kind an expression has by itself."""
        own = self.ctx.types.of(e)
        if is_real(own):
            return "real"
        if own == BOOL:
            return "mask"
        return "int" if self.ctx.kernel.compute == "float64" or self._bits(e) <= 31 else "long"

    def _bits(self, e: Expr) -> int:
        """Bits that hold the magnitude of an integer expression (64: no bound known)."""
        if isinstance(e, Const):
            return int(e.value).bit_length()
        if isinstance(e, At):
            return _INT_BITS.get(e.buf.dtype, 64)
        if isinstance(e, Cast):
            return _INT_BITS.get(e.dtype, 64)
        if self.ctx.types.of(e) == BOOL:
            return 1
        if isinstance(e, Op):
            bits = [self._bits(a) for a in (e.args[1:] if e.fn == "select" else e.args)]
            if e.fn in ("add", "sub"):
                return max(bits) + 1
            if e.fn in ("max", "min", "select"):
                return max(bits)
            if e.fn in ("neg", "abs"):
                return bits[0] + 1  # the least number has no counterpart
            if e.fn == "mul":
                return sum(bits) + 1  # nor has the product of two of them
        return 64

    # ---- values

    def value(self, e: Expr, kind: str) -> str:
        """C text of a vector of `e`, converted to a lane kind."""
        if not (mentions(e, self.var) or self._reads_bound(e) or e in self.memo):
            return self._broadcast(e, kind)
        if kind == "real" and self.ctx.types.of(e) == INT:
            c = self._affine(e)
            if c is not None:
                return f"index_real({self._lane0(e)}, {c})"
        return _convert(self._own(e), self.kind(e), kind)

    def _own(self, e: Expr) -> str:
        """`e` in its own kind; named when it is used more than once."""
        if e not in self.memo:
            text = self._text(e)
            if self.uses.get(e, 0) > 1 and not text.isidentifier():
                text = self.name(self.kind(e), text)
            self.memo[e] = text
        return self.memo[e]

    def integer_kind(self, e: Expr, dtype: str) -> str:
        """The kind in which `e` is stored to an integer dtype."""
        if self.ctx.kernel.compute == "float64":
            return "int"
        own = self.kind(e)
        if own == "real":
            return "int" if _INT_BITS.get(dtype, 64) <= 31 else "long"
        return "int" if own == "mask" else own

    def stored(self, e: Expr, kind: str) -> str:
        """A vector of `e` in the kind of a store; a real value stored as an integer is truncated."""
        if kind in ("int", "long") and self.kind(e) == "real":
            return f"whole_{VECTOR[kind]}({bare(self.value(e, 'real'))})"
        return self.value(e, kind)

    def name(self, kind: str, text: str) -> str:
        """A named vector."""
        name = self.ctx.names.fresh("val")
        self.ctx.out.let(VECTOR[kind], name, bare(text))
        return name

    def _broadcast(self, e: Expr, kind: str) -> str:
        """A value that all lanes share."""
        if kind == "real":
            return f"splat({bare(self.scalars.of(e, self.ctx.kernel.compute))})"
        if kind == "mask":
            if isinstance(e, Const):
                return f"splat_int({-1 if e.value else 0})"
            return f"splat_int(-{self.scalars.of(e, BOOL)})"
        return f"splat_{kind}({bare(self.scalars.of(e, INT))})"

    def _text(self, e: Expr) -> str:
        if isinstance(e, At):
            return self._load(e)
        kind = self.kind(e)
        if kind in ("int", "long") and self._affine(e) is not None:
            return f"(splat_{kind}({self._lane0(e)}) + {'IOTA' if kind == 'int' else 'IOTA_LONG'} * {self._affine(e)})"
        if isinstance(e, Cast):
            return self._cast(e)
        if isinstance(e, Op):
            return self._op(e, kind)
        raise CheckError(f"{type(e).__name__} has no lane form")

    # ---- integers that follow the lane number

    def _reads_bound(self, e: Expr) -> bool:
        return bool(self.bound) and any(isinstance(x, Var) and x.name in self.bound for x in walk(e))

    def _affine(self, e: Expr) -> int | None:
        """The constant by which an integer expression grows per lane, if there is one."""
        c = None if self._reads_bound(e) else coefficient(e, self.var)
        return int(c.value) if isinstance(c, Const) and abs(float(c.value)) < 1 << 20 else None

    def _lane0(self, e: Expr) -> str:
        """Value of an integer expression in lane 0."""
        start = self.start if self.start.isidentifier() else f"({self.start})"
        return bare(self.scalars.integer(replace_var(e, self.var, Text(start))))

    def _compare(self, e: Op) -> str:
        a, b = e.args
        symbol = _INFIX[e.fn]
        if all(not is_real(self.ctx.types.of(x)) for x in e.args):
            difference = op("sub", a, b)
            c = self._affine(difference)
            if c is not None:
                return self._compare_affine(difference, c, symbol)
            kind = (
                "int" if all(self.kind(x) in ("int", "mask") for x in e.args if not self._fits(x)) else "long"
            )
            text = f"({self.value(a, kind)} {symbol} {self.value(b, kind)})"
            return text if kind == "int" else f"__builtin_convertvector({text}, ints)"
        return f"({self.value(a, 'real')} {symbol} {self.value(b, 'real')})"

    def _fits(self, e: Expr) -> bool:
        """Whether an integer fits int lanes although it is a plain constant."""
        return self._bits(e) <= 31

    def _compare_affine(self, difference: Expr, c: int, symbol: str) -> str:
        """`difference <symbol> 0` where the difference grows by c per lane: lane numbers against one clamped bound."""
        if c < 0:
            difference, c, symbol = op("sub", Const(0), difference), -c, _FLIPPED[symbol]
        if c == 0:
            return f"splat_int(-({self._lane0(difference)} {symbol} 0))"
        bound = self._lane0(op("sub", Const(0), difference))
        return f"({'IOTA' if c == 1 else f'IOTA * {c}'} {symbol} splat_int(clamp_lane({bound})))"

    # ---- loads

    def _load(self, e: At) -> str:
        cell = self.cells[e]
        kind = self.kind(e)
        if cell.step is None:
            return self._each_lane(e, kind)
        if cell.step == Const(0):
            return self._broadcast(e, kind)
        native = e.buf.dtype == self.ctx.kernel.compute
        suffix = "" if native else f"_{e.buf.dtype}_{kind}"
        address = cell.at(self.position)
        if not cell.contiguous:
            if self.left is None:
                return f"load_step{suffix}({address}, {_step_text(cell)})"
            return f"load_step_tail{suffix}({address}, {_step_text(cell)}, {self.left})"
        if self.left is None or e.buf.home == "local":  # scratch is padded: a full vector stays inside it
            return f"load{suffix}({address})"
        return f"load_tail{suffix}({address}, {self.left})"

    def _each_lane(self, e: Expr, kind: str) -> str:
        """The general fallback: evaluate lane by lane as a scalar, live lanes only."""
        name = self.ctx.names.fresh("val")
        lane = Text(f"({self.start} + lane)")
        text = self.scalars.of(replace_var(e, self.var, lane), None)
        if kind == "real":
            text = self.scalars.of(replace_var(e, self.var, lane), self.ctx.kernel.compute)
        elif kind == "mask":
            text = f"-{self.scalars.of(replace_var(e, self.var, lane), BOOL)}"
        elif kind == "int" and self.ctx.kernel.compute == "float32":
            text = f"(lane_int){text}"
        self.ctx.out.line(f"{VECTOR[kind]} {name} = {{0}};")
        self.ctx.out.line(f"for (int lane = 0; lane < {self.left or 'LANES'}; lane++) {name}[lane] = {text};")
        return name

    # ---- operations

    def _cast(self, e: Cast) -> str:
        own = self.kind(e)
        if own == "mask":
            return self.value(e.body, "mask")
        if own == "real":
            text = self.value(e.body, "real")
            rounds = e.dtype in STORAGE_ONLY or (
                e.dtype == "float32" and self.ctx.kernel.compute == "float64"
            )
            return f"round_{e.dtype}({bare(text)})" if rounds else text
        whole = self.stored(e.body, own)
        fits = isinstance(e.body, (At, Cast)) and (e.body.buf if isinstance(e.body, At) else e.body).dtype == e.dtype
        return whole if fits or e.dtype == "int64" else f"wrap_{e.dtype}_{own}({bare(whole)})"

    def _op(self, e: Op, kind: str) -> str:
        group = OPS[e.fn].kind
        if group == "compare":
            return self._compare(e)
        if e.fn == "not":
            return f"~{self.value(e.args[0], 'mask')}"
        if group == "logic":
            a, b = (self.value(x, "mask") for x in e.args)
            return f"({a} {_INFIX[e.fn]} {b})"
        if e.fn == "select":
            a, b = (self.value(x, kind) for x in e.args[1:])
            name = {"real": "select", "long": "select_long"}.get(kind, "select_int")
            return f"{name}({bare(self.value(e.args[0], 'mask'))}, {bare(a)}, {bare(b)})"
        return self._real_op(e) if kind == "real" else self._integer_op(e, kind)

    def _integer_op(self, e: Op, kind: str) -> str:
        if e.fn in ("idiv", "imod", "sign", "abs"):
            return self._each_lane(e, kind)
        args = [self.value(x, kind) for x in e.args]
        if e.fn in ("max", "min"):
            a, b = (x if x.isidentifier() else self.name(kind, x) for x in args)
            symbol = ">" if e.fn == "max" else "<"
            if kind == "long":
                return f"select_long(__builtin_convertvector({a} {symbol} {b}, ints), {a}, {b})"
            return f"select_int({a} {symbol} {b}, {a}, {b})"
        if e.fn == "neg":
            return f"(-{args[0]})"
        return f"({args[0]} {_INFIX[e.fn]} {args[1]})"

    def _difference(self, e: Op) -> str:
        """What an exponential takes that is never positive.

        Its products are rounded first, as they were when an extreme took them in: one multiply-add of product and
        extreme may be positive by as much as that rounding, which for large numbers overflows."""
        sides = [self.value(x, "real") for x in e.args]
        a, b = (f"rounded({bare(text)})" if _is_product(x) and mentions(x, self.var) else text
                for x, text in zip(e.args, sides, strict=True))
        return f"{a} {_INFIX[e.fn]} {b}"

    def _real_op(self, e: Op) -> str:
        if e.fn == "pow" and small_power(e.args[1]) is not None:
            exponent = small_power(e.args[1])
            assert exponent is not None
            base = self.value(e.args[0], "real")
            base = base if base.isidentifier() else self.name("real", base)
            return f"({power_text(base, exponent, 'splat(1)')})"
        if e.fn in BELOW.values() and isinstance(e.args[0], Op) and e.args[0].fn in ("add", "sub"):
            return f"{_FUNCTION[e.fn]}({self._difference(e.args[0])})"
        args = [self.value(x, "real") for x in e.args]
        if e.fn in ("max", "min"):
            return self._extremum(e, args)
        if e.fn in _INFIX:
            return f"({args[0]} {_INFIX[e.fn]} {args[1]})"
        if e.fn == "neg":
            return f"(-{args[0]})"
        function = _FUNCTION.get(e.fn, f"each_{e.fn}")
        return f"{function}({', '.join(map(bare, args))})"

    def _extremum(self, e: Op, args: list[str]) -> str:
        """max and min with NaN if either operand is; a constant needs no test of its own."""
        one = "larger" if e.fn == "max" else "smaller"
        for constant, other in ((0, 1), (1, 0)):
            value = e.args[constant]
            if isinstance(value, Const) and value.value == value.value:
                return f"{one}({args[constant]}, {bare(args[other])})"  # returns the second operand when it is NaN
        return f"{'maximum' if e.fn == 'max' else 'minimum'}({bare(args[0])}, {bare(args[1])})"


def _convert(text: str, own: str, kind: str) -> str:
    """A vector of one lane kind as another."""
    if own == kind:
        return text
    if kind == "mask":
        return f"({text} != 0)" if own == "int" else f"nonzero_{own}({text})"
    if kind == "real":
        return f"__builtin_convertvector({f'-{text}' if own == 'mask' else text}, vec)"
    if kind == "long":
        return f"__builtin_convertvector({f'-{text}' if own == 'mask' else text}, longs)"
    return f"(-{text})" if own == "mask" else f"__builtin_convertvector({text}, ints)"


def count_uses(exprs: list[Expr]) -> dict[Expr, int]:
    """How many parents (or roots) each distinct subexpression has."""
    uses: dict[Expr, int] = {}

    def visit(e: Expr) -> None:
        uses[e] = uses.get(e, 0) + 1
        if uses[e] == 1:
            for child in children(e):
                if not isinstance(e, At):
                    visit(child)

    for e in exprs:
        visit(e)
    return uses
