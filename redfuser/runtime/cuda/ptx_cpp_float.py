"""Floating-point arithmetic, and the names that integers share with it: add, sub, mul, mad, div, min, max, neg, abs.

Results are those of IEEE arithmetic in the rounding that the opcode names, with the NaN that PTX gives. The approximate
functions (ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh with .approx, div.full) are computed to about half an ulp, closer
than any device: a kernel must not lean on their last bits.
"""

from __future__ import annotations

from redfuser.runtime.cuda import ptx_cpp_integer as integers
from redfuser.runtime.cuda.ptx_cpp_context import Context, translates
from redfuser.runtime.cuda.ptx_nodes import Instruction

FLOATS = ("f32", "f64")
HALVES = ("f16", "bf16")
PAIRS = ("f16x2", "bf16x2")
ROUNDINGS = {"rn": "NEAREST", "rz": "ZERO", "rm": "DOWN", "rp": "UP"}


def flushed(context: Context, values: list[str]) -> list[str]:
    """Operands as an instruction sees them: with .ftz denormals of single precision are zero."""
    modifiers = context.instruction.modifiers
    return [f"flushed({v})" for v in values] if "ftz" in modifiers and modifiers[-1] == "f32" else values


def finished(context: Context, value: str, kind: str) -> str:
    """The statement that stores a result, with the canonical NaN, .ftz and .sat applied."""
    modifiers = context.instruction.modifiers
    value = f"canonical({value})"
    if "ftz" in modifiers and kind == "f32":
        value = f"flushed({value})"
    if "sat" in modifiers:
        value = f"saturated({value})"
    return context.result(value, kind)


def rounded(context: Context, operation: str, plain: str, values: list[str], kind: str) -> str:
    """An expression to the nearest value, or a call that rounds as the opcode says."""
    mode = next((m for m in context.instruction.modifiers if m in ROUNDINGS), "rn")
    if mode == "rn":
        return plain
    c_type, single = ("float", "true") if kind == "f32" else ("double", "false")
    padded = [*values, "0", "0"][:3]
    return f"({c_type})rx->rounded({operation}, {ROUNDINGS[mode]}, {single}, {', '.join(padded)})"


def _half(context: Context, name: str, count: int) -> str:
    """Arithmetic of one half or a pair of them."""
    context.only("rn", "ftz", "sat", "relu", "NaN", "xorsign", "abs", "approx", *HALVES, *PAIRS)
    modifiers = context.instruction.modifiers
    kind = modifiers[-1]
    pair, brain = kind.endswith("x2"), "true" if kind.startswith("bf") else "false"
    values = context.reads(kind)[:count]
    options = [word for word in ("sat", "relu", "ftz") if word in modifiers]
    prefix = "pair" if pair else "half"
    if "ftz" in modifiers:
        values = [f"{prefix}_ftz<{brain}>({v})" for v in values]
    text = f"{prefix}_{name}<{brain}>({', '.join(values)})"
    for option in options:
        text = f"{prefix}_{option}<{brain}>({text})"
    return context.result(text, kind)


def _is_half(instruction: Instruction) -> bool:
    return bool(instruction.modifiers) and instruction.modifiers[-1] in (*HALVES, *PAIRS)


def _is_float(instruction: Instruction) -> bool:
    return bool(instruction.modifiers) and instruction.modifiers[-1] in FLOATS


@translates("add", "sub")
def add(context: Context, instruction: Instruction) -> str:
    if _is_half(instruction):
        return _half(context, instruction.name, 2)
    sign = "+" if instruction.name == "add" else "-"
    if not _is_float(instruction):
        return integers.add_integer(context, instruction, sign)
    context.only(*ROUNDINGS, "ftz", "sat", *FLOATS)
    kind = context.type()
    a, b = flushed(context, context.reads(kind))
    signed = b if sign == "+" else f"-{b}"
    return finished(context, rounded(context, "ROUND_ADD", f"{a} {sign} {b}", [a, signed], kind), kind)


@translates("mul")
def multiply(context: Context, instruction: Instruction) -> str:
    if _is_half(instruction):
        return _half(context, "mul", 2)
    if not _is_float(instruction):
        return integers.multiply_integer(context, instruction)
    context.only(*ROUNDINGS, "ftz", "sat", *FLOATS)
    kind = context.type()
    a, b = flushed(context, context.reads(kind))
    return finished(context, rounded(context, "ROUND_MUL", f"{a} * {b}", [a, b], kind), kind)


@translates("fma", "mad")
def multiply_add(context: Context, instruction: Instruction) -> str:
    if _is_half(instruction):
        return _half(context, "fma", 3)
    if not _is_float(instruction):
        return integers.multiply_add_integer(context, instruction)
    context.only(*ROUNDINGS, "ftz", "sat", *FLOATS)
    kind = context.type()
    values = flushed(context, context.reads(kind))
    name = "__builtin_fmaf" if kind == "f32" else "__builtin_fma"
    return finished(context, rounded(context, "ROUND_FMA", f"{name}({', '.join(values)})", values, kind), kind)


@translates("div")
def divide(context: Context, instruction: Instruction) -> str:
    if not _is_float(instruction):
        return integers.divide_integer(context, instruction)
    context.only(*ROUNDINGS, "approx", "full", "ftz", *FLOATS)
    kind = context.type()
    a, b = flushed(context, context.reads(kind))
    plain = f"divide_approx({a}, {b})" if "approx" in instruction.modifiers else f"{a} / {b}"
    return finished(context, rounded(context, "ROUND_DIV", plain, [a, b], kind), kind)


@translates("min", "max")
def extreme(context: Context, instruction: Instruction) -> str:
    if _is_half(instruction):
        nan = "_nan" if "NaN" in instruction.modifiers else ""
        if "xorsign" in instruction.modifiers:
            context.fail("xorsign is not supported for half types")
        return _half(context, instruction.name + nan, 2)
    if not _is_float(instruction):
        return integers.extreme_integer(context, instruction)
    context.only("ftz", "NaN", "xorsign", "abs", *FLOATS)
    kind = context.type()
    values = flushed(context, context.reads(kind))
    nan = "true" if "NaN" in instruction.modifiers else "false"
    if "xorsign" in instruction.modifiers:
        magnitude = f"float_{instruction.name}<{nan}>(absolute({values[0]}), absolute({values[1]}))"
        return context.result(f"xorsign({magnitude}, {values[0]}, {values[1]})", kind)
    text = values[0]
    for other in values[1:]:
        text = f"float_{instruction.name}<{nan}>({text}, {other})"
    return context.result(text, kind)


@translates("neg")
def negate(context: Context, instruction: Instruction) -> str:
    if _is_half(instruction):
        return _half(context, "neg", 1)
    if not _is_float(instruction):
        return integers.negate_integer(context, instruction)
    context.only("ftz", *FLOATS)
    (a,) = flushed(context, context.reads(context.type()))
    return context.result(f"-{a}", context.type())


@translates("abs")
def absolute(context: Context, instruction: Instruction) -> str:
    if _is_half(instruction):
        return _half(context, "abs", 1)
    if not _is_float(instruction):
        return integers.absolute_integer(context, instruction)
    context.only("ftz", *FLOATS)
    (a,) = flushed(context, context.reads(context.type()))
    return context.result(f"absolute({a})", context.type())


@translates("copysign")
def copy_sign(context: Context, instruction: Instruction) -> str:
    context.only(*FLOATS)
    sign, magnitude = context.reads(context.type())
    name = "__builtin_copysignf" if context.type() == "f32" else "__builtin_copysign"
    return context.result(f"{name}({magnitude}, {sign})", context.type())


@translates("rcp", "sqrt")
def root(context: Context, instruction: Instruction) -> str:
    context.only(*ROUNDINGS, "approx", "ftz", *FLOATS)
    kind = context.type()
    (a,) = flushed(context, context.reads(kind))
    single = kind == "f32"
    plain = {"rcp": f"1 / {a}", "sqrt": f"__builtin_sqrt{'f' if single else ''}({a})"}[instruction.name]
    return finished(context, rounded(context, f"ROUND_{instruction.name.upper()}", plain, [a], kind), kind)


_APPROXIMATE = {
    "rsqrt": "rsqrt",
    "ex2": "exp2",
    "lg2": "log2",
    "sin": "sine",
    "cos": "cosine",
    "tanh": "hyperbolic_tangent",
}


@translates(*_APPROXIMATE)
def function(context: Context, instruction: Instruction) -> str:
    name = _APPROXIMATE[instruction.name]
    if _is_half(instruction):
        return _half(context, name, 1)
    context.only("approx", "ftz", *FLOATS)
    kind = context.type()
    if kind == "f64" and instruction.name != "rsqrt":
        context.fail("this function of f64 does not exist")
    (a,) = flushed(context, context.reads(kind))
    return finished(context, f"approx_{name}({a})", kind)


@translates("testp")
def test(context: Context, instruction: Instruction) -> str:
    tests = {
        "finite": "is_finite({0})", "infinite": "is_infinite({0})", "number": "{0} == {0}", "notanumber": "{0} != {0}",
        "normal": "is_normal({0})", "subnormal": "is_subnormal({0})",
    }
    context.only(*tests, *FLOATS)
    (a,) = context.reads(context.type())
    return context.result(tests[instruction.modifiers[0]].format(a), "pred")
