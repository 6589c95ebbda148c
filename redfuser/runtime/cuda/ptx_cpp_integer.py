"""Integer arithmetic, shifts, bit fields, and logic of bits and predicates."""

from __future__ import annotations

from redfuser.runtime.cuda.ptx_cpp_context import C_TYPES, Context, Handler, translates
from redfuser.runtime.cuda.ptx_nodes import Instruction, Pair
from redfuser.runtime.cuda.ptx_tokens import SIZES

INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
PACKED = ("u16x2", "s16x2")
_BITS = ("pred", "b16", "b32", "b64")


def unsigned(kind: str) -> str:
    """The unsigned type of the same width: its arithmetic wraps around, as PTX wants."""
    return f"u{kind[1:]}"


def wider(kind: str) -> str:
    """The type of twice the width."""
    return f"{kind[0]}{2 * int(kind[1:])}"


def simple(expression: str, *types: str) -> Handler:
    """A translation that puts its operands, all of the opcode's type, in a C++ expression: {0}, {1}, {2}."""

    def handler(context: Context, instruction: Instruction) -> str:
        context.only(*types)
        kind = context.type()
        text = expression.format(*context.reads(kind), t=C_TYPES[kind], w=8 * SIZES[kind])
        return context.result(text, kind)

    return handler


def add_integer(context: Context, instruction: Instruction, sign: str) -> str:
    """add, sub of integers; with .cc they leave a carry."""
    context.only("sat", "cc", *INTEGERS, *PACKED)
    if instruction.modifiers[-1] in PACKED:
        a, b = context.reads("b32")
        return context.result(
            f"packed16({a}, {b}, [](uint16_t x, uint16_t y) {{ return (uint16_t)(x {sign} y); }})", "b32"
        )
    kind = context.type()
    if "sat" in instruction.modifiers:
        a, b = (context.read(o, "s32") for o in instruction.operands[1:])
        return context.result(f"clamp_s32((int64_t){a} {sign} (int64_t){b})", "s32")
    a, b = context.reads(unsigned(kind))
    if "cc" in instruction.modifiers:
        return _carry(context, f"{'add' if sign == '+' else 'subtract'}_carry(self, {a}, {b}, 0)", kind)
    return context.result(f"{a} {sign} {b}", unsigned(kind))


def _carry(context: Context, call: str, kind: str) -> str:
    return context.result(call, unsigned(kind))


@translates("addc", "subc")
def with_carry(context: Context, instruction: Instruction) -> str:
    context.only("cc", *INTEGERS)
    kind = context.type()
    a, b = context.reads(unsigned(kind))
    name = "add" if instruction.name == "addc" else "subtract"
    if "cc" in instruction.modifiers:
        return _carry(context, f"{name}_carry(self, {a}, {b}, self->carry)", kind)
    return context.result(
        f"{a} {'+' if name == 'add' else '-'} {b} {'+' if name == 'add' else '-'} self->carry", unsigned(kind)
    )


def product(context: Context, instruction: Instruction) -> tuple[str, str]:
    """(product, its type) of a mul or mad of integers."""
    kind = context.type()
    first, second = instruction.operands[1:3]
    if "wide" in instruction.modifiers:
        wide = wider(kind)
        return f"({C_TYPES[wide]}){context.read(first, kind)} * ({C_TYPES[wide]}){context.read(second, kind)}", wide
    if "hi" in instruction.modifiers:
        return f"high<{C_TYPES[kind]}>({context.read(first, kind)}, {context.read(second, kind)})", kind
    same = unsigned(kind)
    return f"({C_TYPES[same]})(1u * {context.read(first, same)} * {context.read(second, same)})", same


def multiply_integer(context: Context, instruction: Instruction) -> str:
    context.only("lo", "hi", "wide", *INTEGERS)
    return context.result(*product(context, instruction))


def multiply_add_integer(context: Context, instruction: Instruction) -> str:
    context.only("lo", "hi", "wide", "cc", "sat", *INTEGERS)
    value, kind = product(context, instruction)
    if "sat" in instruction.modifiers:
        c = context.read(instruction.operands[3], "s32")
        return context.result(f"clamp_s32((int64_t){value} + (int64_t){c})", "s32")
    c = context.read(instruction.operands[3], unsigned(kind))
    if "cc" in instruction.modifiers:
        return _carry(context, f"add_carry(self, ({C_TYPES[unsigned(kind)]})({value}), {c}, 0)", kind)
    return context.result(f"({C_TYPES[unsigned(kind)]})({value}) + {c}", unsigned(kind))


@translates("madc")
def multiply_add_carry(context: Context, instruction: Instruction) -> str:
    context.only("lo", "hi", "cc", *INTEGERS)
    value, kind = product(context, instruction)
    same = unsigned(kind)
    c = context.read(instruction.operands[3], same)
    if "cc" in instruction.modifiers:
        return _carry(context, f"add_carry(self, ({C_TYPES[same]})({value}), {c}, self->carry)", kind)
    return context.result(f"({C_TYPES[same]})({value}) + {c} + self->carry", same)


@translates("mul24", "mad24")
def multiply24(context: Context, instruction: Instruction) -> str:
    context.only("lo", "hi", "u32", "s32")
    kind = context.type()
    a, b = (f"low24<{C_TYPES[kind]}>({context.read(o, kind)})" for o in instruction.operands[1:3])
    wide = C_TYPES[wider(kind)]
    value = f"(uint32_t)((({wide}){a} * ({wide}){b}) >> {16 if 'hi' in instruction.modifiers else 0})"
    if instruction.name == "mad24":
        value += f" + {context.read(instruction.operands[3], 'u32')}"
    return context.result(value, "u32")


def divide_integer(context: Context, instruction: Instruction) -> str:
    """div and rem; by zero the device gives a value without a meaning, which is a finding."""
    context.only(*INTEGERS)
    kind = context.type()
    a, b = context.reads(kind)
    name = "quotient" if instruction.name == "div" else "remainder"
    return context.result(f"{name}<{C_TYPES[kind]}>(self, {a}, {b}, {context.site})", kind)


translates("rem")(divide_integer)


def extreme_integer(context: Context, instruction: Instruction) -> str:
    context.only(*INTEGERS, *PACKED, "relu")
    less = "<" if instruction.name == "min" else ">"
    if instruction.modifiers[-1] in PACKED:
        kind = "int16_t" if instruction.modifiers[-1] == "s16x2" else "uint16_t"
        a, b = context.reads("b32")
        value = f"packed16({a}, {b}, [](uint16_t x, uint16_t y) {{ return ({kind})x {less} ({kind})y ? x : y; }})"
        if "relu" in instruction.modifiers:
            value = f"packed16({value}, 0, [](uint16_t x, uint16_t) {{ return (int16_t)x < 0 ? (uint16_t)0 : x; }})"
        return context.result(value, "b32")
    kind = context.type()
    a, b = context.reads(kind)
    value = f"({a} {less} {b} ? {a} : {b})"
    if "relu" in instruction.modifiers:
        value = f"({value} < 0 ? 0 : {value})"
    return context.result(value, kind)


def negate_integer(context: Context, instruction: Instruction) -> str:
    context.only("s16", "s32", "s64")
    kind = context.type()
    return context.result(
        f"({C_TYPES[unsigned(kind)]})0 - {context.read(instruction.operands[1], unsigned(kind))}", unsigned(kind)
    )


def absolute_integer(context: Context, instruction: Instruction) -> str:
    context.only("s16", "s32", "s64")
    kind = context.type()
    (a,) = context.reads(kind)
    (u,) = context.reads(unsigned(kind))
    return context.result(f"({a} < 0 ? ({C_TYPES[unsigned(kind)]})0 - {u} : {u})", unsigned(kind))


translates("sad")(simple("({0} < {1} ? {1} - {0} : {0} - {1}) + {2}", *INTEGERS))
translates("popc")(lambda c, i: _count(c, i, "popcount"))
translates("clz")(lambda c, i: _count(c, i, "leading_zeros"))


def _count(context: Context, instruction: Instruction, name: str) -> str:
    context.only("b32", "b64")
    return context.result(f"{name}({context.read(instruction.operands[1], context.type())})", "u32")


@translates("bfind")
def find_bit(context: Context, instruction: Instruction) -> str:
    context.only("shiftamt", "u32", "s32", "u64", "s64")
    kind = context.type()
    shift = "true" if "shiftamt" in instruction.modifiers else "false"
    return context.result(
        f"highest_bit<{C_TYPES[kind]}>({context.read(instruction.operands[1], kind)}, {shift})", "u32"
    )


@translates("brev")
def reverse(context: Context, instruction: Instruction) -> str:
    context.only("b32", "b64")
    kind = context.type()
    return context.result(f"reversed({context.read(instruction.operands[1], kind)})", kind)


# ---- shifts and bit fields: amounts beyond the width are clamped ----


@translates("shl", "shr")
def shift(context: Context, instruction: Instruction) -> str:
    context.only("b16", "b32", "b64", *INTEGERS)
    kind = context.type()
    value, amount = context.read(instruction.operands[1], kind), context.read(instruction.operands[2], "u32")
    return context.result(
        f"shift_{'left' if instruction.name == 'shl' else 'right'}<{C_TYPES[kind]}>({value}, {amount})", kind
    )


@translates("shf")
def funnel(context: Context, instruction: Instruction) -> str:
    context.only("l", "r", "clamp", "wrap", "b32")
    side = "left" if "l" in instruction.modifiers else "right"
    wrap = "true" if "wrap" in instruction.modifiers else "false"
    return context.result(f"funnel_{side}({', '.join(context.reads('b32'))}, {wrap})", "b32")


@translates("bfe")
def extract(context: Context, instruction: Instruction) -> str:
    context.only("u32", "s32", "u64", "s64")
    kind = context.type()
    value = context.read(instruction.operands[1], kind)
    start, length = (context.read(o, "u32") for o in instruction.operands[2:])
    return context.result(f"bit_field<{C_TYPES[kind]}>({value}, {start}, {length})", kind)


@translates("bfi")
def insert(context: Context, instruction: Instruction) -> str:
    context.only("b32", "b64")
    kind = context.type()
    a, b = (context.read(o, kind) for o in instruction.operands[1:3])
    start, length = (context.read(o, "u32") for o in instruction.operands[3:])
    return context.result(f"insert_bits<{C_TYPES[kind]}>({a}, {b}, {start}, {length})", kind)


@translates("bmsk")
def mask(context: Context, instruction: Instruction) -> str:
    context.only("clamp", "wrap", "b32")
    wrap = "true" if "wrap" in instruction.modifiers else "false"
    return context.result(f"bit_mask({', '.join(context.reads('b32'))}, {wrap})", "b32")


@translates("szext")
def extend(context: Context, instruction: Instruction) -> str:
    context.only("clamp", "wrap", "u32", "s32")
    kind = context.type()
    value, width = context.read(instruction.operands[1], kind), context.read(instruction.operands[2], "u32")
    wrap = "true" if "wrap" in instruction.modifiers else "false"
    return context.result(f"extended<{C_TYPES[kind]}>({value}, {width}, {wrap})", kind)


@translates("prmt")
def permute(context: Context, instruction: Instruction) -> str:
    context.only("b32", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    mode = instruction.modifiers[1] if len(instruction.modifiers) > 1 else ""
    return context.result(f"permuted{'_' + mode if mode else ''}({', '.join(context.reads('b32'))})", "b32")


@translates("lop3")
def logic3(context: Context, instruction: Instruction) -> str:
    context.only("b32", "and", "or")
    operands = instruction.operands
    values = ", ".join(context.read(o, "b32") for o in operands[1:5])
    if not isinstance(operands[0], Pair):
        return context.result(f"lookup({values})", "b32")
    joint = "&&" if "and" in instruction.modifiers else "||"
    flag = f"value != 0 {joint} {context.read(operands[5], 'pred')}"
    first, second = operands[0].first, operands[0].second
    return (
        f"const uint32_t value = lookup({values}); const bool flag = {flag}; "
        f"{context.write(first, 'value', 'b32')} {context.write(second, 'flag', 'pred')}"
    )


@translates("and", "or", "xor")
def logic(context: Context, instruction: Instruction) -> str:
    context.only(*_BITS)
    kind = context.type()
    operator = {"and": "&", "or": "|", "xor": "^"}[instruction.name]
    a, b = context.reads(kind)
    return context.result(f"({C_TYPES[kind]})({a} {operator} {b})", kind)


@translates("not", "cnot")
def invert(context: Context, instruction: Instruction) -> str:
    context.only(*_BITS)
    kind = context.type()
    (a,) = context.reads(kind)
    value = f"!{a}" if kind == "pred" or instruction.name == "cnot" else f"~{a}"
    return context.result(f"({C_TYPES[kind]})({value})", kind)


@translates("dp4a")
def dot4(context: Context, instruction: Instruction) -> str:
    context.only("u32", "s32")
    left, right = instruction.modifiers
    a, b, c = context.reads("b32")
    types = ["int8_t" if k == "s32" else "uint8_t" for k in (left, right)]
    return context.result(f"dot4<{types[0]}, {types[1]}>({a}, {b}, {c})", "b32")
