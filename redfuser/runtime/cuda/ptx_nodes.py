"""PTX as data: a module of variables and entries, an entry of instructions and labels, each with its source line.

`str()` of a node is PTX again. Scopes `{ ... }` are gone: their registers and labels have names of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Register:
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Special:
    """A register that the hardware sets: %tid.x, %laneid, WARP_SZ."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Integer:
    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Float:
    """A floating-point constant by its bits; `width` is 32 or 64."""

    bits: int
    width: int

    def __str__(self) -> str:
        return f"0f{self.bits:08X}" if self.width == 32 else f"0d{self.bits:016X}"


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable or a parameter, or a label."""

    name: str
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.name}+{self.offset}" if self.offset else self.name


@dataclass(frozen=True, slots=True)
class Address:
    """[base + offset]"""

    base: Register | Symbol | Integer
    offset: int = 0

    def __str__(self) -> str:
        return f"[{self.base}+{self.offset}]" if self.offset else f"[{self.base}]"


@dataclass(frozen=True, slots=True)
class Vector:
    items: tuple[Operand, ...]

    def __str__(self) -> str:
        return "{" + ", ".join(map(str, self.items)) + "}"


@dataclass(frozen=True, slots=True)
class Pair:
    """d|p: a result and a predicate."""

    first: Operand
    second: Operand

    def __str__(self) -> str:
        return f"{self.first}|{self.second}"


@dataclass(frozen=True, slots=True)
class Negated:
    """!p"""

    operand: Operand

    def __str__(self) -> str:
        return f"!{self.operand}"


@dataclass(frozen=True, slots=True)
class Sink:
    """_: a result that nobody wants."""

    def __str__(self) -> str:
        return "_"


Operand = Register | Special | Integer | Float | Symbol | Address | Vector | Pair | Negated | Sink


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a source file; `caller` is where the function that has it was inlined."""

    file: int
    line: int
    caller: Location | None = None


@dataclass(frozen=True, slots=True)
class Guard:
    """@p or @!p before an instruction."""

    register: Register
    negated: bool = False

    def __str__(self) -> str:
        return f"@!{self.register}" if self.negated else f"@{self.register}"


@dataclass(frozen=True, slots=True)
class Instruction:
    """name.modifier.modifier operands; `row` is its line in the PTX text."""

    name: str
    modifiers: tuple[str, ...] = ()
    operands: tuple[Operand, ...] = ()
    guard: Guard | None = None
    location: Location | None = None
    row: int = 0

    @property
    def opcode(self) -> str:
        return "".join([self.name, *[f".{m}" for m in self.modifiers]])

    def __str__(self) -> str:
        text = " ".join([self.opcode, ", ".join(map(str, self.operands))]).rstrip()
        return f"{self.guard} {text};" if self.guard else f"{text};"


@dataclass(frozen=True, slots=True)
class Label:
    name: str

    def __str__(self) -> str:
        return f"{self.name}:"


@dataclass(frozen=True, slots=True)
class Targets:
    """name: .branchtargets a, b, c; what brx.idx chooses from."""

    name: str
    labels: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}: .branchtargets {', '.join(self.labels)};"


Statement = Instruction | Label | Targets


@dataclass(frozen=True, slots=True)
class Variable:
    """space      shared, const, global, local or param
    type       of an element: b8, u32, ...
    count      elements; None for the dynamic shared memory, whose size the launch gives
    values     initial values of the elements; missing ones are 0
    """

    space: str
    type: str
    name: str
    align: int
    count: int | None = 1
    values: tuple[int, ...] = ()
    extern: bool = False

    def __str__(self) -> str:
        size = "[]" if self.count is None else f"[{self.count}]" if self.count != 1 else ""
        extern = ".extern " if self.extern else ""
        values = f" = {{{', '.join(map(str, self.values))}}}" if self.values else ""
        return f"{extern}.{self.space} .align {self.align} .{self.type} {self.name}{size}{values}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel.

    params     in order; `space` is param
    registers  name -> type
    variables  shared and local memory declared inside
    body       instructions and labels
    limits     directives such as maxntid
    """

    name: str
    params: tuple[Variable, ...]
    registers: dict[str, str] = field(hash=False)
    variables: tuple[Variable, ...]
    body: tuple[Statement, ...]
    limits: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def __str__(self) -> str:
        lines = [f".visible .entry {self.name}(", ",\n".join(f"\t{p}" for p in self.params), ")"]
        lines += [f".{name} {', '.join(map(str, values))}" for name, values in self.limits]
        lines.append("{")
        lines += [f"\t.reg .{type_} {name};" for name, type_ in self.registers.items()]
        lines += [f"\t{v};" for v in self.variables]
        lines += [str(s) if isinstance(s, Label) else f"\t{s}" for s in self.body]
        return "\n".join([*lines, "}"])


@dataclass(frozen=True, slots=True)
class Module:
    """version, target   of the header, for example 9.0 and sm_80
    files      index -> source file, as locations name them
    """

    version: str
    target: str
    variables: tuple[Variable, ...]
    entries: tuple[Entry, ...]
    files: dict[int, str] = field(hash=False, default_factory=dict)

    def __str__(self) -> str:
        head = [f".version {self.version}", f".target {self.target}", ".address_size 64", ""]
        return "\n".join([*head, *[f"{v};" for v in self.variables], *map(str, self.entries), ""])

    def entry(self, name: str) -> Entry:
        """The kernel of this name.

        Raises
        ------
        KeyError
            when there is none.
        """
        return next((e for e in self.entries if e.name == name), None) or _missing(name, self)


def _missing(name: str, module: Module) -> Entry:
    raise KeyError(f"no kernel {name!r}; the text has {', '.join(e.name for e in module.entries) or 'none'}")
