"""cvt: between integers, floating-point types and the short formats."""

from __future__ import annotations

from redfuser.runtime.cuda.ptx_cpp_context import C_TYPES, Context, translates
from redfuser.runtime.cuda.ptx_nodes import Instruction
from redfuser.runtime.cuda.ptx_tokens import SIZES

_ROUND_TO_INTEGER = {"rni": "NEAREST", "rzi": "ZERO", "rmi": "DOWN", "rpi": "UP"}
_ROUND = {"rn": "NEAREST", "rz": "ZERO", "rm": "DOWN", "rp": "UP", "rna": "AWAY"}
_SHORT = {"f16": "F16", "bf16": "BF16", "tf32": "TF32"}
_PAIRED = {"f16x2": "F16", "bf16x2": "BF16", "e4m3x2": "E4M3", "e5m2x2": "E5M2"}
_INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
_TYPES = (*_INTEGERS, "f32", "f64", *_SHORT, *_PAIRED)


@translates("cvt")
def convert(context: Context, instruction: Instruction) -> str:
    if instruction.modifiers[0] == "pack":
        return _pack(context, instruction)
    context.only(*_ROUND, *_ROUND_TO_INTEGER, "ftz", "sat", "satfinite", "relu", *_TYPES)
    target, source = instruction.modifiers[-2:]
    if target in _PAIRED:
        return _to_pair(context, instruction, target, source)
    if source in _PAIRED:
        context.fail("a pair converts to another pair only")
    value = _source(context, instruction, source)
    if target in _INTEGERS:
        return _to_integer(context, target, source, value)
    if target in _SHORT:
        return _to_short(context, target, source, value)
    return _to_float(context, target, source, value)


def _mode(context: Context, table: dict[str, str], default: str) -> str:
    return next((table[m] for m in context.instruction.modifiers if m in table), default)


def _source(context: Context, instruction: Instruction, source: str) -> str:
    """The source as a number: halves are floats, .ftz makes denormals of single precision zero."""
    operand = instruction.operands[1]
    if source in ("f16", "bf16"):
        name = "f16" if source == "f16" else "bf16"
        return f"{name}_to_float({context.read(operand, source)})"
    if source == "tf32":
        context.fail("tf32 is a target only")
    value = context.read(operand, source)
    return f"flushed({value})" if source == "f32" and "ftz" in instruction.modifiers else value


def _to_integer(context: Context, target: str, source: str, value: str) -> str:
    c_type = C_TYPES[target]
    if source in _INTEGERS:
        if "sat" in context.instruction.modifiers:
            value = f"clamped<{c_type}>({value})"
        return context.result(f"({c_type})({value})", target)
    mode = _mode(context, _ROUND_TO_INTEGER, "ZERO")
    width = SIZES["f32" if source in ("f16", "bf16") else source]
    wide_nan = "true" if width == 8 or SIZES[target] == 8 else "false"
    return context.result(f"to_integer<{c_type}>((double){value}, {mode}, {wide_nan})", target)


def _to_short(context: Context, target: str, source: str, value: str) -> str:
    modifiers = context.instruction.modifiers
    mode = _mode(context, _ROUND, "NEAREST")
    if integral := _mode(context, _ROUND_TO_INTEGER, ""):
        value, mode = f"round_integral((double){value}, {integral})", "NEAREST"
    if "relu" in modifiers:
        value = f"relu((double){value})"
    if "sat" in modifiers:
        value = f"saturated((double){value})"
    if source in _INTEGERS and SIZES[source] == 8:
        value = f"odd_double({value})"  # a double has no room for 64 bits: keep what decides the rounding
    saturate = "true" if "satfinite" in modifiers else "false"
    if target == "tf32":
        return context.result(f"encode((double){value}, TF32, {mode}, {saturate}) << 13", "b32")
    if source == target:
        saturate = "false"
    return context.result(f"(uint16_t)encode((double){value}, {_SHORT[target]}, {mode}, {saturate})", "b16")


def _to_pair(context: Context, instruction: Instruction, target: str, source: str) -> str:
    """Two values to two short ones; the first operand goes to the upper half."""
    mode = _mode(context, _ROUND, "NEAREST")
    modifiers = instruction.modifiers
    form = _PAIRED[target]
    width = 8 if form in ("E4M3", "E5M2") else 16
    saturate = "true" if "satfinite" in modifiers else "false"
    operands = instruction.operands[1:]
    if source == "f32":
        values = [
            f"flushed({context.read(o, 'f32')})" if "ftz" in modifiers else context.read(o, "f32") for o in operands
        ]
    elif source in _PAIRED:
        narrow = 8 if source.startswith("e") else 16
        packed = context.read(operands[0], "b16" if narrow == 8 else "b32")
        values = [f"decode(({packed} >> {s}) & {(1 << narrow) - 1}u, {_PAIRED[source]})" for s in (narrow, 0)]
    else:
        context.fail("this pair of types is not supported")
    if "relu" in modifiers:
        values = [f"relu((double){v})" for v in values]
    high, low = (f"encode((double){v}, {form}, {mode}, {saturate})" for v in values)
    return context.result(f"{high} << {width} | {low}", "b16" if width == 8 else "b32")


def _to_float(context: Context, target: str, source: str, value: str) -> str:
    modifiers = context.instruction.modifiers
    mode = _mode(context, _ROUND, "NEAREST")
    single = "true" if target == "f32" else "false"
    c_type = C_TYPES[target]
    if source in _INTEGERS:
        if mode == "NEAREST":
            text = f"({c_type}){value}"
        else:
            wide, operation = ("int64_t", "ROUND_S64") if source[0] == "s" else ("uint64_t", "ROUND_U64")
            text = f"({c_type})rx->rounded({operation}, {mode}, {single}, bits<double>(({wide}){value}), 0, 0)"
    elif integral := _mode(context, _ROUND_TO_INTEGER, ""):
        text = f"({c_type})round_integral((double){value}, {integral})"
    elif (source, target) == ("f64", "f32") and mode != "NEAREST":
        text = f"(float)rx->rounded(ROUND_NARROW, {mode}, true, {value}, 0, 0)"
    else:
        text = f"({c_type}){value}"
    if source not in _INTEGERS:
        text = f"canonical({text})"
    if "ftz" in modifiers and target == "f32":
        text = f"flushed({text})"
    if "sat" in modifiers:
        text = f"saturated({text})"
    return context.result(text, target)


def _pack(context: Context, instruction: Instruction) -> str:
    """cvt.pack.sat: two integers, saturated, to the low end of a word whose rest is the third operand."""
    context.only("pack", "sat", "u8", "s8", "u16", "s16", "s32", "b32")
    narrow = instruction.modifiers[2]
    a, b = (context.read(o, "s32") for o in instruction.operands[1:3])
    unsigned, c_type, width = f"uint{8 * SIZES[narrow]}_t", C_TYPES[narrow], 8 * SIZES[narrow]
    low = f"(uint32_t)({unsigned})clamped<{c_type}>({a}) << {width} | (uint32_t)({unsigned})clamped<{c_type}>({b})"
    if width == 16:
        return context.result(low, "b32")
    rest = context.read(instruction.operands[3], "b32") if len(instruction.operands) > 3 else "0u"
    return context.result(f"{rest} << 16 | {low}", "b32")
