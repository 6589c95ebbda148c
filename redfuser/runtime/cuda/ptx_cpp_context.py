"""What all translations of instructions share: operands as C++ expressions, results as C++ statements.

A register is a C++ variable of its declared width, `float` or `double` where PTX declares it so. Codes of half types
are integers; `ptx_support.h` calculates with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NoReturn

from redfuser.runtime.cuda.errors import UnsupportedPtx
from redfuser.runtime.cuda.ptx_nodes import (
    Address,
    Entry,
    Float,
    Instruction,
    Integer,
    Label,
    Negated,
    Operand,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)
from redfuser.runtime.cuda.ptx_tokens import SIZES

C_TYPES = {
    "pred": "bool", "b8": "uint8_t", "u8": "uint8_t", "s8": "int8_t", "b16": "uint16_t", "u16": "uint16_t",
    "s16": "int16_t", "f16": "uint16_t", "bf16": "uint16_t", "b32": "uint32_t", "u32": "uint32_t", "s32": "int32_t",
    "f32": "float", "f16x2": "uint32_t", "bf16x2": "uint32_t", "b64": "uint64_t", "u64": "uint64_t", "s64": "int64_t",
    "f64": "double",
}
_CONTAINERS = {1: "uint16_t", 2: "uint16_t", 4: "uint32_t", 8: "uint64_t"}

SPECIAL = {
    **{f"%tid.{a}": f"self->id.{a}" for a in "xyz"},
    **{f"%ntid.{a}": f"machine->block_size.{a}" for a in "xyz"},
    **{f"%ctaid.{a}": f"machine->block.{a}" for a in "xyz"},
    **{f"%nctaid.{a}": f"machine->grid_size.{a}" for a in "xyz"},
    "%laneid": "self->lane",
    "%warpid": "self->warp",
    "%nwarpid": "32u",
    "%lanemask_eq": "(1u << self->lane)",
    "%lanemask_lt": "((1u << self->lane) - 1)",
    "%lanemask_le": "(2u * (1u << self->lane) - 1)",
    "%lanemask_gt": "(~(2u * (1u << self->lane) - 1))",
    "%lanemask_ge": "(~((1u << self->lane) - 1))",
    "%dynamic_smem_size": "(machine->shared_size - DYNAMIC)",
    "%total_smem_size": "machine->shared_size",
    "WARP_SZ": "32u",
}
"""Registers that the hardware sets. Clocks and identities of multiprocessors are not among them: no result may
depend on them."""


class Context:
    """The translation of one entry.

    entry     what is translated
    symbols   name -> C++ expression of its address, an integer
    spaces    name -> space of the variable
    labels    name -> its position in the body
    position  of the statement at hand
    site      number of the instruction at hand, for messages at run time
    """

    def __init__(self, entry: Entry, symbols: Mapping[str, str], spaces: Mapping[str, str]) -> None:
        self.entry = entry
        self.symbols = symbols
        self.spaces = spaces
        self.labels = {s.name: i for i, s in enumerate(entry.body) if isinstance(s, Label)}
        self.position = 0
        self.site = 0
        self.instruction = Instruction("nop")

    # ---- errors ----

    def fail(self, why: str) -> NoReturn:
        """Raise UnsupportedPtx for the instruction at hand."""
        text = self.instruction
        raise UnsupportedPtx(f"kernel {self.entry.name}, PTX line {text.row}: {why}: {text}")

    def only(self, *allowed: str) -> None:
        """Raise UnsupportedPtx if the instruction has a modifier that is not among these: none may be skipped."""
        for modifier in self.instruction.modifiers:
            if modifier not in allowed:
                self.fail(f"{self.instruction.name} with .{modifier} is not supported")

    def type(self) -> str:
        """The type at the end of the opcode."""
        kind = self.instruction.modifiers[-1] if self.instruction.modifiers else ""
        if kind not in C_TYPES:
            self.fail(f"{self.instruction.name} without a known type is not supported")
        return kind

    # ---- operands ----

    def register(self, operand: Operand) -> str:
        """The C++ variable of a register."""
        if not isinstance(operand, Register):
            self.fail(f"operand {operand} must be a register")
        return c_name(operand.name)

    def read(self, operand: Operand, kind: str) -> str:
        """The value of an operand as an instruction of type `kind` sees it."""
        c_type = C_TYPES[kind]
        match operand:
            case Register(name):
                return self._read_register(name, kind)
            case Negated(inner):
                return f"(!{self.read(inner, kind)})"
            case Integer(value):
                return integer(value, kind)
            case Float(code, width):
                if kind in ("f32", "f64"):
                    return float_constant(code, width, kind)
                return integer(code, kind)
            case Special(name):
                if name not in SPECIAL:
                    self.fail(f"special register {name} is not supported")
                return f"({c_type})({SPECIAL[name]})"
            case Symbol(name, offset):
                return (
                    f"({c_type})({self.address_of(name)} + {offset})"
                    if offset
                    else f"({c_type})({self.address_of(name)})"
                )
        self.fail(f"operand {operand} is not supported here")

    def _read_register(self, name: str, kind: str) -> str:
        declared, variable = self.entry.registers[name], c_name(name)
        c_type = C_TYPES[kind]
        is_float, wants_float = declared in ("f32", "f64"), kind in ("f32", "f64")
        if is_float and wants_float:
            return variable if declared == kind else self.fail(f"register {name} has another type")
        if is_float:
            whole = f"bits<{_CONTAINERS[SIZES[declared]]}>({variable})"
            return whole if c_type == _CONTAINERS[SIZES[declared]] else f"({c_type}){whole}"
        if wants_float:
            if SIZES[declared] != SIZES[kind]:
                self.fail(f"register {name} has another width")
            return f"bits<{c_type}>({variable})"
        return variable if c_type == container(declared) else f"({c_type}){variable}"

    def write(self, operand: Operand, value: str, kind: str) -> str:
        """The statement that stores a value of type `kind` in a register; a signed one fills a wider register."""
        match operand:
            case Sink():
                return f"(void)({value});"
            case Register(name):
                declared, variable = self.entry.registers[name], c_name(name)
            case _:
                self.fail(f"result {operand} must be a register")
        is_float, gives_float = declared in ("f32", "f64"), kind in ("f32", "f64")
        if declared == kind or declared == "pred":
            return f"{variable} = {value};"
        if is_float and gives_float:
            self.fail(f"register {name} has another type")
        if is_float:
            return f"{variable} = bits<{container(declared)}>(({_CONTAINERS[SIZES[kind]]})({value}));"
        if gives_float:
            return f"{variable} = ({container(declared)})bits<{_CONTAINERS[SIZES[kind]]}>(({C_TYPES[kind]})({value}));"
        return f"{variable} = ({container(declared)})({C_TYPES[kind]})({value});"

    def result(self, value: str, kind: str) -> str:
        """`write` to the first operand."""
        return self.write(self.instruction.operands[0], value, kind)

    def reads(self, kind: str, first: int = 1) -> list[str]:
        """All operands from number `first` on, as values of one type."""
        return [self.read(o, kind) for o in self.instruction.operands[first:]]

    def items(self, operand: Operand) -> tuple[Operand, ...]:
        """The parts of a vector operand; a single one stands for itself."""
        return operand.items if isinstance(operand, Vector) else (operand,)

    # ---- memory ----

    def address_of(self, name: str) -> str:
        """The address of a variable as an integer expression."""
        if name not in self.symbols:
            self.fail(f"{name} is not declared")
        return self.symbols[name]

    def address(self, operand: Operand) -> str:
        """The 64-bit value of an address operand."""
        if not isinstance(operand, Address):
            self.fail(f"operand {operand} must be an address")
        base = self.read(operand.base, "u64")
        return f"{base} + {integer(operand.offset, 'u64')}" if operand.offset else base

    def space(self) -> str:
        """The state space that the opcode names; "generic" without one."""
        for modifier in self.instruction.modifiers:
            space = modifier.split("::")[0]
            if space in ("global", "shared", "local", "param", "const"):
                return space
        return "generic"


Handler = Callable[[Context, Instruction], str]
HANDLERS: dict[str, Handler] = {}


def translates(*names: str) -> Callable[[Handler], Handler]:
    """Register the translation of instructions of these names."""

    def register(handler: Handler) -> Handler:
        for name in names:
            HANDLERS[name] = handler
        return handler

    return register


def c_name(name: str) -> str:
    """A PTX name as a C++ one. Registers have a prefix of their own, so that none is a C++ word."""
    return "v_" + re.sub(r"\W", "_", name.replace("$", "_S_").replace("%", ""))


def container(kind: str) -> str:
    """The C++ type of a register."""
    if kind == "pred":
        return "bool"
    return C_TYPES[kind] if kind in ("f32", "f64") else _CONTAINERS[SIZES[kind]]


def integer(value: int, kind: str) -> str:
    """An integer constant of a type, whatever its sign in the text."""
    if kind == "pred":
        return "true" if value else "false"
    size = SIZES[kind]
    number = value & ((1 << 8 * size) - 1)
    text = f"{number}ull" if size == 8 else f"{number}u"
    if kind in ("f32", "f64"):
        return f"bits<{C_TYPES[kind]}>({text})"
    return text if kind in ("b32", "u32") else f"({C_TYPES[kind]}){text}"


def float_constant(code: int, width: int, kind: str) -> str:
    """A floating-point constant by its bits; those of 64 bits are rounded for a 32-bit instruction."""
    value = f"bits<float>(0x{code:08x}u)" if width == 32 else f"bits<double>(0x{code:016x}ull)"
    return value if (kind == "f32") == (width == 32) else f"({C_TYPES[kind]}){value}"


def variable_bytes(variable: Variable) -> int:
    """Size of a variable; 0 for the dynamic shared memory."""
    return SIZES[variable.type] * (variable.count or 0)
