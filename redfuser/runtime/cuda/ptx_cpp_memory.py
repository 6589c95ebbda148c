"""Moves, loads, stores, atomics and address conversions."""

from __future__ import annotations

from redfuser.runtime.cuda.ptx_cpp_context import C_TYPES, Context, translates
from redfuser.runtime.cuda.ptx_nodes import Address, Instruction, Operand, Sink, Symbol, Vector
from redfuser.runtime.cuda.ptx_tokens import SIZES

_HINTS = (
    "weak", "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate",
    "L2::evict_normal", "L2::evict_first", "L2::evict_last", "L2::cache_hint", "L2::64B", "L2::128B", "L2::256B",
    "ca", "cg", "cs", "lu", "cv", "wb", "wt",
)
"""Where the hardware keeps bytes: no result depends on it."""
_SCOPES = ("cta", "cluster", "gpu", "sys")
_SPACES = ("global", "shared", "shared::cta", "local", "param", "const", "param::entry")
_STRONG = ("volatile", "relaxed", "acquire", "release", "acq_rel")
_TYPES = tuple(C_TYPES)


@translates("mov")
def mov(context: Context, instruction: Instruction) -> str:
    context.only(*_TYPES)
    kind = context.type()
    target, source = instruction.operands
    if isinstance(target, Vector):
        return _unpack(context, target, source, kind)
    if isinstance(source, Vector):
        return _pack(context, target, source, kind)
    return context.write(target, context.read(source, kind), kind)


def _part(context: Context, kind: str, parts: int) -> str:
    size = SIZES[kind] // parts
    if size * parts != SIZES[kind] or size not in (1, 2, 4):
        context.fail("parts of this width are not supported")
    return f"b{8 * size}"


def _unpack(context: Context, target: Vector, source: Operand, kind: str) -> str:
    part = _part(context, kind, len(target.items))
    width = 8 * SIZES[part]
    whole = context.read(source, kind)
    lines = [f"const {C_TYPES[kind]} whole = {whole};"]
    for i, item in enumerate(target.items):
        if not isinstance(item, Sink):
            lines.append(context.write(item, f"({C_TYPES[part]})(whole >> {width * i})", part))
    return " ".join(lines)


def _pack(context: Context, target: Operand, source: Vector, kind: str) -> str:
    part = _part(context, kind, len(source.items))
    width = 8 * SIZES[part]
    pieces = [
        f"({C_TYPES[kind]})({C_TYPES[part]}){context.read(x, part)} << {width * i}" for i, x in enumerate(source.items)
    ]
    return context.write(target, " | ".join(pieces), kind)


def place(context: Context, operand: Operand, size: int, access: str) -> str:
    """A checked pointer to `size` bytes at an address operand, in the space that the opcode names."""
    if not isinstance(operand, Address):
        context.fail(f"operand {operand} must be an address")
    space = context.space()
    if isinstance(operand.base, Symbol) and operand.base.name in context.spaces and space == "generic":
        space = context.spaces[operand.base.name]
    address = context.address(operand)
    if space == "param":
        return f"reinterpret_cast<unsigned char*>({address})"
    if space in ("const", "local"):
        return f"own(self, {address}, {size}, {space}_low, {space}_high, {context.site})"
    if space == "shared":
        return f"rx->shared(self, (uint32_t)({address}), {size}, {access}, {context.site})"
    return f"rx->{space}(self, {address}, {size}, {access}, {context.site})"


def _access(instruction: Instruction, base: str) -> str:
    """The access flags of the opcode."""
    modifiers = instruction.modifiers
    flags = [base]
    if any(m in _STRONG for m in modifiers):
        flags.append("STRONG")
    if any(m in ("acquire", "acq_rel") for m in modifiers):
        flags.append("ACQUIRE")
    if any(m in ("release", "acq_rel") for m in modifiers):
        flags.append("RELEASE")
    if "nc" in modifiers:
        flags.append("NON_COHERENT")
    return " | ".join(flags)


def _drop_cache_policy(context: Context, instruction: Instruction, count: int) -> None:
    extra = len(instruction.operands) - count
    if extra and not (extra == 1 and "L2::cache_hint" in instruction.modifiers):
        context.fail("this number of operands is not supported")


@translates("ld", "ldu")
def load(context: Context, instruction: Instruction) -> str:
    context.only("v2", "v4", "v8", "nc", "global", *_SPACES, *_HINTS, *_SCOPES, *_STRONG, *_TYPES)
    _drop_cache_policy(context, instruction, 2)
    kind = context.type()
    items = context.items(instruction.operands[0])
    size = SIZES[kind]
    pointer = place(context, instruction.operands[1], size * len(items), _access(instruction, "READ"))
    lines = [f"const unsigned char* p = {pointer};"]
    for i, item in enumerate(items):
        if not isinstance(item, Sink):
            lines.append(context.write(item, f"load<{C_TYPES[kind]}>(p + {size * i})", kind))
    return " ".join(lines)


@translates("st")
def store(context: Context, instruction: Instruction) -> str:
    context.only("v2", "v4", "v8", *_SPACES, *_HINTS, *_SCOPES, *_STRONG, *_TYPES)
    _drop_cache_policy(context, instruction, 2)
    if context.space() in ("param", "const"):
        context.fail("stores to this space are not supported")
    kind = context.type()
    items = context.items(instruction.operands[1])
    size = SIZES[kind]
    pointer = place(context, instruction.operands[0], size * len(items), _access(instruction, "WRITE"))
    lines = [f"unsigned char* p = {pointer};"]
    lines += [f"store<{C_TYPES[kind]}>(p + {size * i}, {context.read(x, kind)});" for i, x in enumerate(items)]
    return " ".join(lines)


@translates("cvta")
def convert_address(context: Context, instruction: Instruction) -> str:
    context.only("to", "global", "shared", "shared::cta", "local", "const", "param", "u64", "u32")
    value = context.read(instruction.operands[1], "u64")
    if context.space() == "shared":
        # generic addresses of shared memory are the host's own
        shift = "(uint64_t)machine->shared - SHARED_BASE"
        value = f"{value} - ({shift})" if "to" in instruction.modifiers else f"{value} + ({shift})"
    return context.result(value, "u64")


@translates("isspacep")
def is_space(context: Context, instruction: Instruction) -> str:
    context.only("shared", "global", "local", "shared::cta")
    space = context.space()
    address = context.read(instruction.operands[1], "u64")
    tests = {
        "shared": "{a} - (uint64_t)machine->shared < machine->shared_size",
        "local": "{a} - machine->stack_low < machine->stack_high - machine->stack_low",
    }
    tests["global"] = f"!({tests['shared']}) && !({tests['local']})"
    return context.result("(" + tests[space].format(a=address) + ")", "pred")


@translates("prefetch", "prefetchu", "discard", "applypriority")
def hint(context: Context, instruction: Instruction) -> str:
    context.only("global", "L1", "L2", "L2::evict_normal", "L2::evict_last", "local")
    return ";"


@translates("createpolicy")
def policy(context: Context, instruction: Instruction) -> str:
    context.only("fractional", "L2::evict_first", "L2::evict_last", "L2::evict_normal", "L2::evict_unchanged", "b64")
    return context.result("0", "b64")


# ---- atomics: fibers are switched only at calls of the executor, so that plain code is atomic ----

_ATOMIC = {
    "add": "{0} + {1}", "min": "{0} < {1} ? {0} : {1}", "max": "{0} > {1} ? {0} : {1}", "exch": "{1}",
    "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}", "cas": "{0} == {1} ? {2} : {0}",
    "inc": "{0} >= {1} ? 0 : {0} + 1", "dec": "{0} == 0 || {0} > {1} ? {1} : {0} - 1",
}
_ATOMIC_HALF = {
    "add": "half_add<{bf}>({0}, {1})", "min": "half_min<{bf}>({0}, {1})", "max": "half_max<{bf}>({0}, {1})",
}


def _updated(context: Context, operation: str, kind: str, values: list[str]) -> str:
    if kind in ("f16", "bf16", "f16x2", "bf16x2"):
        if operation not in _ATOMIC_HALF:
            context.fail(f"atomic {operation} of {kind} is not supported")
        call = _ATOMIC_HALF[operation].format(*values, bf="true" if kind.startswith("bf") else "false")
        return call.replace("half_", "pair_") if kind.endswith("x2") else call
    if kind in ("f32", "f64") and operation == "add":
        return f"canonical({values[0]} + {values[1]})"
    return _ATOMIC[operation].format(*values)


@translates("atom", "red")
def atomic(context: Context, instruction: Instruction) -> str:
    context.only(*_ATOMIC, *_SPACES, *_SCOPES, *_STRONG, *_TYPES, "noftz", "v2", "v4", "L2::cache_hint")
    kind = context.type()
    operation = next((m for m in instruction.modifiers if m in _ATOMIC), "")
    if not operation:
        context.fail("this atomic is not supported")
    operands = list(instruction.operands)
    target = operands.pop(0) if instruction.name == "atom" else Sink()
    address, *values = operands
    columns = [context.items(v) for v in values]
    c_type, size, count = C_TYPES[kind], SIZES[kind], len(columns[0])
    lines = [f"unsigned char* p = {place(context, address, size * count, _access(instruction, 'ATOMIC'))};"]
    for i, result in enumerate(
        context.items(target) if count > 1 and not isinstance(target, Sink) else [target] * count
    ):
        given = [f"({c_type}){context.read(c[i], kind)}" for c in columns]
        new = _updated(context, operation, kind, ["old", *given])
        kept = "" if isinstance(result, Sink) else context.write(result, "old", kind)
        lines.append(
            f"{{ const {c_type} old = load<{c_type}>(p + {size * i}); store<{c_type}>(p + {size * i}, {new}); {kept} }}"
        )
    return " ".join(lines)


