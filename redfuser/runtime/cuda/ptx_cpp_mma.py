"""ldmatrix, stmatrix and mma.sync."""

from __future__ import annotations

from redfuser.runtime.cuda.ptx_cpp_context import Context, translates
from redfuser.runtime.cuda.ptx_nodes import Instruction, Operand

_TYPES = {
    "f16": ("OP_F16", 16), "bf16": ("OP_BF16", 16), "tf32": ("OP_TF32", 32), "e4m3": ("OP_E4M3", 8),
    "e5m2": ("OP_E5M2", 8), "s8": ("OP_S8", 8), "u8": ("OP_U8", 8),
}
"""Operand type -> (its name in the executor, bits)."""


@translates("ldmatrix", "stmatrix")
def matrix_rows(context: Context, instruction: Instruction) -> str:
    context.only("sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta", "b16")
    loads = instruction.name == "ldmatrix"
    registers, address = instruction.operands if loads else reversed(instruction.operands)
    items = context.items(registers)
    if f"x{len(items)}" not in instruction.modifiers:
        context.fail("the number of registers does not fit")
    transposed = "true" if "trans" in instruction.modifiers else "false"
    place = f"(uint32_t)({context.address(address)})"
    values = ", ".join("0" if loads else context.read(x, "b32") for x in items)
    name = "load_matrix" if loads else "store_matrix"
    lines = [f"uint32_t m[{len(items)}] = {{{values}}};"]
    lines.append(f"rx->{name}(self, {place}, {len(items)}, {transposed}, m, {context.site});")
    if loads:
        lines += [context.write(x, f"m[{i}]", "b32") for i, x in enumerate(items)]
    return " ".join(lines)


def _words(context: Context, operand: Operand) -> list[str]:
    """Registers as 32-bit words."""
    return [context.read(x, "b32") for x in context.items(operand)]


@translates("mma")
def product(context: Context, instruction: Instruction) -> str:
    context.only(
        "sync",
        "aligned",
        "m16n8k8",
        "m16n8k16",
        "m16n8k32",
        "row",
        "col",
        "f32",
        "s32",
        "satfinite",
        "kind::f8f6f4",
        *_TYPES,
    )
    modifiers = [m for m in instruction.modifiers if m not in ("sync", "aligned", "satfinite", "kind::f8f6f4")]
    shape, *layout = modifiers[:3]
    kinds = modifiers[3:]
    if layout != ["row", "col"] or len(kinds) != 4:
        context.fail("this product is not supported")
    d, left, right, c = kinds
    depth = int(shape.removeprefix("m16n8k"))
    _check_types(context, d, left, right, c, depth)
    target, *sources = instruction.operands
    a, b, init = (_words(context, o) for o in sources)
    bits = _TYPES[left][1]
    expected = (16 * depth * bits // 1024, 8 * depth * bits // 1024, 2 if c == "f16" else 4)
    if (len(a), len(b), len(init)) != expected:
        context.fail(f"the operands must have {expected} registers")
    lines = [f"uint32_t a[] = {{{', '.join(a)}}}, b[] = {{{', '.join(b)}}}, c[] = {{{', '.join(init)}}}, d[4];"]
    flags = ["true" if x else "false" for x in (d == "s32", "satfinite" in instruction.modifiers, d == "f16")]
    lines.append(
        f"const Product p = {{d, a, b, c, {depth}, {_TYPES[left][0]}, {_TYPES[right][0]}, {', '.join(flags)}}};"
    )
    lines.append(f"rx->product(self, &p, {context.site});")
    lines += [context.write(x, f"d[{i}]", "b32") for i, x in enumerate(context.items(target))]
    return " ".join(lines)


def _check_types(context: Context, d: str, left: str, right: str, c: str, depth: int) -> None:
    if left not in _TYPES or right not in _TYPES or _TYPES[left][1] != _TYPES[right][1]:
        context.fail("these operand types are not supported")
    integer = left in ("s8", "u8")
    if integer != (d == "s32") or d != c or d not in ("f32", "s32", "f16") or (d == "f16" and left != "f16"):
        context.fail("these types of the result are not supported")
    if depth * _TYPES[left][1] not in (128, 256) or depth > 32:
        context.fail("this shape is not supported for these types")
