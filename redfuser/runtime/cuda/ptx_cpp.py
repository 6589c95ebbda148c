"""A PTX module as C++ that the executor runs: what NVRTC made of the text, inline assembly included.

Each entry becomes one function of a thread. Instructions are translated one by one, by the modules `ptx_cpp_*`, one for
each family; one without a translation is an error that names it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import PurePath

from redfuser.runtime.cuda import (  # each registers the translations of its family
    ptx_cpp_async,
    ptx_cpp_control,
    ptx_cpp_convert,
    ptx_cpp_float,
    ptx_cpp_integer,
    ptx_cpp_memory,
    ptx_cpp_mma,
    ptx_cpp_warp,
)
from redfuser.runtime.cuda.errors import UnsupportedPtx
from redfuser.runtime.cuda.nvrtc import SOURCE_NAME
from redfuser.runtime.cuda.ptx_cpp_context import (
    HANDLERS,
    Context,
    c_name,
    container,
    variable_bytes,
)
from redfuser.runtime.cuda.ptx_nodes import (
    Address,
    Entry,
    Instruction,
    Label,
    Location,
    Module,
    Negated,
    Operand,
    Pair,
    Register,
    Symbol,
    Targets,
    Variable,
    Vector,
)
from redfuser.runtime.cuda.ptx_tokens import SIZES

FAMILIES = (
    ptx_cpp_async, ptx_cpp_control, ptx_cpp_convert, ptx_cpp_float, ptx_cpp_integer, ptx_cpp_memory, ptx_cpp_mma,
    ptx_cpp_warp,
)
"""The modules whose translations are known."""

MOST_LOCAL = 128 << 10
"""Bytes of a thread's own arrays: half of its stack in the executor."""


@dataclass(frozen=True)
class Slot:
    """A kernel parameter in the packed arguments: `size` bytes at `offset`."""

    offset: int
    size: int


@dataclass(frozen=True)
class KernelInfo:
    """What a launch must know of a kernel.

    name           of the CUDA function
    params         in order
    shared         bytes of static shared memory, rounded up to where the dynamic begins
    block          the block that __launch_bounds__ or maxntid allows, 0 threads for any
    sites          lines of each instruction that can be at fault: the line and those that called it
    """

    name: str
    params: tuple[Slot, ...]
    shared: int
    block: int = 0
    sites: tuple[tuple[int, ...], ...] = field(default=())

    @staticmethod
    def from_dict(data: dict[str, object]) -> KernelInfo:
        """The inverse of `asdict`, after a way through JSON."""
        fields = dict(data)
        fields["params"] = tuple(Slot(**p) for p in data["params"])  # type: ignore[attr-defined]
        fields["sites"] = tuple(tuple(s) for s in data["sites"])  # type: ignore[attr-defined]
        return KernelInfo(**fields)  # type: ignore[arg-type]


def translate(module: Module) -> str:
    """The C++ text of all entries of a module. Its variable `rf_kernels` describes them, as JSON.

    Raises
    ------
    UnsupportedPtx
        naming the first instruction that the executor cannot run.
    """
    statics = [v for v in module.variables if v.space in ("const", "global")]
    done = [_entry(module, e, statics) for e in module.entries]
    kernels = json.dumps([asdict(info) for _, info in done])
    return "\n".join([
        '#include "ptx_support.h"',
        "namespace rf { const Executor* rx; Machine* machine; }",
        "using namespace rf;",
        _statics(statics),
        *[text for text, _ in done],
        f'RF_EXPORT const char rf_kernels[] = R"json({kernels})json";',
        'RF_EXPORT void rf_bind(const Executor* executor) { rx = executor; machine = executor->machine; }',
        "",
    ])


def param_slots(entry: Entry) -> tuple[Slot, ...]:
    """Where each parameter lies in the packed arguments, by the alignment that PTX states."""
    slots, offset = [], 0
    for param in entry.params:
        size = SIZES[param.type] * (param.count or 1)
        align = max(param.align, SIZES[param.type])
        offset = -(-offset // align) * align
        slots.append(Slot(offset, size))
        offset += size
    return tuple(slots)


def _statics(variables: Sequence[Variable]) -> str:
    """Module variables as members of one structure, so that a pointer into any of them is known."""
    lines = ["struct Statics {", "    alignas(16) unsigned char nothing[16];"]
    lines += [f"    alignas({v.align}) unsigned char {c_name(v.name)}[{max(1, variable_bytes(v))}];" for v in variables]
    lines += ["};", "static const Statics initial = {{}", *[f", {{{_bytes(v)}}}" for v in variables], "};"]
    lines += [
        "static Statics statics = initial;",
        'RF_EXPORT Statics* rf_statics(size_t* size) { *size = sizeof statics; return &statics; }',
        'RF_EXPORT void rf_reset() { statics = initial; }',
    ]
    return "\n".join(lines)


def _bytes(variable: Variable) -> str:
    size = SIZES[variable.type]
    codes = [(value & ((1 << 8 * size) - 1)).to_bytes(size, "little") for value in variable.values]
    return ", ".join(map(str, b"".join(codes)))


class _Layout:
    """Where the shared variables of an entry lie: static ones first, then the dynamic part."""

    def __init__(self, variables: Sequence[Variable]) -> None:
        self.offsets: dict[str, int] = {}
        end = 0
        for v in variables:
            if v.count is not None:
                end = -(-end // v.align) * v.align
                self.offsets[v.name] = end
                end += variable_bytes(v)
        align = max([v.align for v in variables if v.count is None], default=16)
        self.dynamic = -(-end // align) * align
        for v in variables:
            if v.count is None:
                self.offsets[v.name] = self.dynamic


def _entry(module: Module, entry: Entry, statics: Sequence[Variable]) -> tuple[str, KernelInfo]:
    used = _names(entry)
    shared = [v for v in (*module.variables, *entry.variables) if v.space == "shared" and v.name in used]
    local = [v for v in entry.variables if v.space == "local"]
    if sum(map(variable_bytes, local)) > MOST_LOCAL:
        raise UnsupportedPtx(f"kernel {entry.name} has more than {MOST_LOCAL} bytes of local arrays for each thread")
    layout = _Layout(shared)
    slots = param_slots(entry)
    symbols = {v.name: f"(uint64_t)statics.{c_name(v.name)}" for v in statics}
    symbols |= {v.name: f"{offset + 1024}ull" for v, offset in ((v, layout.offsets[v.name]) for v in shared)}
    symbols |= {v.name: f"(uint64_t)own_arrays.{c_name(v.name)}" for v in local}
    symbols |= {p.name: f"(uint64_t)(arguments + {s.offset})" for p, s in zip(entry.params, slots, strict=True)}
    spaces = {v.name: v.space for v in (*statics, *shared, *local, *entry.params)}
    context = Context(entry, symbols, spaces)
    body, sites = _body(context, module)
    lines = [f'RF_EXPORT void rf_kernel_{entry.name}(Thread* self, unsigned char* arguments) {{']
    lines += [_declare(kind, names) for kind, names in _by_container(entry).items()]
    lines += _memory(local)
    lines += [f"    const uint32_t DYNAMIC = {layout.dynamic}; (void)DYNAMIC; (void)arguments;", *body, "}"]
    block = next((_product(v) for name, v in entry.limits if name in ("maxntid", "reqntid")), 0)
    return "\n".join(lines), KernelInfo(entry.name, slots, layout.dynamic, block, sites)


def _names(entry: Entry) -> set[str]:
    """Every name that an instruction mentions: shared memory that no one uses takes no room."""
    found = set()
    for statement in entry.body:
        for operand in statement.operands if isinstance(statement, Instruction) else ():
            base = operand.base if isinstance(operand, Address) else operand
            if isinstance(base, Symbol):
                found.add(base.name)
    return found


def _product(values: Sequence[int]) -> int:
    result = 1
    for v in values:
        result *= v
    return result


def _by_container(entry: Entry) -> dict[str, list[str]]:
    """C++ type -> registers that are used."""
    text = {str(o) for s in entry.body if isinstance(s, Instruction) for o in _registers(s)}
    found: dict[str, list[str]] = {}
    for name, kind in entry.registers.items():
        if name in text:
            found.setdefault(container(kind), []).append(c_name(name))
    return found


def _registers(instruction: Instruction) -> list[str]:
    def walk(operand: Operand) -> list[str]:
        match operand:
            case Register(name):
                return [name]
            case Address(base, _):
                return walk(base)
            case Vector(items):
                return [n for i in items for n in walk(i)]
            case Pair(first, second):
                return walk(first) + walk(second)
            case Negated(inner):
                return walk(inner)
        return []

    guard = [instruction.guard.register.name] if instruction.guard else []
    return guard + [n for o in instruction.operands for n in walk(o)]


def _declare(kind: str, names: Sequence[str]) -> str:
    """Registers begin with a pattern that no correct kernel sees: NaN, or a large number."""
    start = {"bool": "false", "float": "bits<float>(~0u)", "double": "bits<double>(~0ull)"}.get(kind, f"({kind})~0ull")
    return f"    {kind} " + ", ".join(f"{n} = {start}" for n in names) + ";"


def _memory(local: Sequence[Variable]) -> list[str]:
    """Local arrays as members of one structure, and the bounds of what the thread alone may touch."""
    lines = []
    if local:
        members = [f"alignas({max(16, v.align)}) unsigned char {c_name(v.name)}[{variable_bytes(v)}];" for v in local]
        lines.append(f"    struct {{ {' '.join(members)} }} own_arrays;")
    low = "(uint64_t)&own_arrays" if local else "0"
    size = "sizeof own_arrays" if local else "0"
    lines += [
        f"    const uint64_t local_low = {low}, local_high = local_low + {size};",
        "    const uint64_t const_low = (uint64_t)&statics, const_high = const_low + sizeof statics;",
        "    (void)local_low; (void)local_high; (void)const_low; (void)const_high;",
    ]
    return lines


def _body(context: Context, module: Module) -> tuple[list[str], tuple[tuple[int, ...], ...]]:
    lines: list[str] = []
    sites: list[tuple[int, ...]] = []
    for position, statement in enumerate(context.entry.body):
        context.position = position
        if isinstance(statement, Label):
            lines.append(f"{c_name(statement.name)}:;")
        elif not isinstance(statement, Targets):
            context.site = len(sites)
            sites.append(_lines(statement.location, module))
            lines.append(_statement(context, statement))
    return lines, tuple(sites)


def _statement(context: Context, instruction: Instruction) -> str:
    context.instruction = instruction
    handler = HANDLERS.get(instruction.name)
    if handler is None:
        context.fail(f"the host executor does not know the instruction {instruction.name}")
    text = handler(context, instruction)
    guard = instruction.guard
    if guard is None:
        return f"    {{ {text} }}"
    return f"    if ({'!' if guard.negated else ''}{c_name(guard.register.name)}) {{ {text} }}"


def _lines(location: Location | None, module: Module) -> tuple[int, ...]:
    """Lines of the CUDA text: where the instruction stands, then the calls that it was inlined through."""
    found = []
    while location is not None:
        if PurePath(module.files.get(location.file, "")).name == SOURCE_NAME and location.line:
            found.append(location.line)
        location = location.caller
    return tuple(found)
