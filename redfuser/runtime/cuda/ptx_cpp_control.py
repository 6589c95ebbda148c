"""Comparisons, selections, jumps, barriers and fences."""

from __future__ import annotations

from redfuser.runtime.cuda.ptx_cpp_context import C_TYPES, Context, c_name, translates
from redfuser.runtime.cuda.ptx_nodes import Instruction, Negated, Operand, Pair, Sink, Symbol, Targets

_ORDERED = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
_UNORDERED = {"equ": "==", "neu": "!=", "ltu": "<", "leu": "<=", "gtu": ">", "geu": ">="}
_COMPARISONS = (*_ORDERED, *_UNORDERED, "num", "nan")
_JOINTS = {"and": "&&", "or": "||", "xor": "!="}
_FLOATS = ("f16", "bf16", "f32", "f64")


def comparison(context: Context, first: Operand, second: Operand, kind: str, word: str) -> str:
    """A comparison of two operands; ordered ones are false for NaN, unordered ones true."""
    a, b = (_number(context, o, kind) for o in (first, second))
    if kind not in _FLOATS:
        if word not in _ORDERED:
            context.fail("this comparison of integers does not exist")
        return f"({a} {_ORDERED[word]} {b})"
    unordered = f"({a} != {a} || {b} != {b})"
    if word in ("nan", "num"):
        return unordered if word == "nan" else f"!{unordered}"
    if word == "ne":
        return f"({a} < {b} || {a} > {b})"
    if word in _UNORDERED:
        return f"({unordered} || {a} {_UNORDERED[word]} {b})"
    return f"({a} {_ORDERED[word]} {b})"


def _number(context: Context, operand: Operand, kind: str) -> str:
    value = context.read(operand, kind)
    if kind in ("f16", "bf16"):
        return f"{kind}_to_float({value})"
    return f"flushed({value})" if kind == "f32" and "ftz" in context.instruction.modifiers else value


def _word(context: Context) -> str:
    word = context.instruction.modifiers[0]
    if word not in _COMPARISONS:
        context.fail("this comparison is not supported")
    return word


def _joined(context: Context, condition: str, operand: Operand | None) -> str:
    joint = next((m for m in context.instruction.modifiers if m in _JOINTS), "")
    if not joint:
        return condition
    if operand is None:
        context.fail("an operand is missing")
    return f"({condition} {_JOINTS[joint]} {context.read(operand, 'pred')})"


@translates("setp")
def set_predicate(context: Context, instruction: Instruction) -> str:
    context.only(*_COMPARISONS, *_JOINTS, "ftz", *C_TYPES)
    target, first, second, *rest = instruction.operands
    condition = comparison(context, first, second, context.type(), _word(context))
    joint = rest[0] if rest else None
    if context.type() in ("f16x2", "bf16x2"):
        context.fail("comparisons of pairs are not supported")
    if not isinstance(target, Pair):
        return context.write(target, _joined(context, condition, joint), "pred")
    lines = [f"const bool holds = {condition};"]
    for result, value in ((target.first, "holds"), (target.second, "!holds")):
        lines.append(f"const bool r{len(lines)} = {_joined(context, value, joint)};")
        if not isinstance(result, Sink):
            lines.append(context.write(result, f"r{len(lines) - 1}", "pred"))
    return " ".join(lines)


@translates("set")
def set_value(context: Context, instruction: Instruction) -> str:
    context.only(*_COMPARISONS, *_JOINTS, "ftz", *C_TYPES)
    target, source = instruction.modifiers[-2:]
    result, first, second, *rest = instruction.operands
    condition = _joined(context, comparison(context, first, second, source, _word(context)), rest[0] if rest else None)
    yes = {"f32": "1.0f", "f16": "0x3c00", "bf16": "0x3f80"}.get(target, "0xffffffffu")
    return context.write(result, f"{condition} ? {yes} : 0", target)


@translates("selp")
def select(context: Context, instruction: Instruction) -> str:
    context.only(*C_TYPES)
    kind = context.type()
    result, a, b, condition = instruction.operands
    return context.write(
        result, f"{context.read(condition, 'pred')} ? {context.read(a, kind)} : {context.read(b, kind)}", kind
    )


@translates("slct")
def select_by_sign(context: Context, instruction: Instruction) -> str:
    context.only("ftz", *C_TYPES)
    kind, tested = (
        instruction.modifiers[0] if instruction.modifiers[0] != "ftz" else instruction.modifiers[1],
        context.type(),
    )
    result, a, b, c = instruction.operands
    return context.write(
        result, f"{_number(context, c, tested)} >= 0 ? {context.read(a, kind)} : {context.read(b, kind)}", kind
    )


# ---- jumps ----


def _jump(context: Context, label: str) -> str:
    """A jump; one that goes back counts, so that a thread that never ends is found."""
    labels = context.labels
    if label not in labels:
        context.fail(f"label {label} does not exist")
    back = labels[label] <= context.position
    count = f"if (--self->jumps < 0) runaway(self, {context.site}); " if back else ""
    return f"{count}goto {c_name(label)};"


@translates("bra")
def branch(context: Context, instruction: Instruction) -> str:
    context.only("uni")
    (target,) = instruction.operands
    if not isinstance(target, Symbol):
        context.fail("the target must be a label")
    return _jump(context, target.name)


@translates("brx")
def indexed_branch(context: Context, instruction: Instruction) -> str:
    context.only("idx", "uni")
    index, table = instruction.operands
    found = next(
        (
            s
            for s in context.entry.body
            if isinstance(s, Targets) and isinstance(table, Symbol) and s.name == table.name
        ),
        None,
    )
    if found is None:
        context.fail("its table of labels is missing")
    cases = " ".join(f"case {i}: {_jump(context, label)}" for i, label in enumerate(found.labels))
    return f"switch ({context.read(index, 'u32')}) {{ {cases} default: undefined(self, {context.site}); }}"


@translates("ret", "exit")
def leave(context: Context, instruction: Instruction) -> str:
    context.only("uni")
    return "return;"


@translates("trap", "brkpt")
def trap(context: Context, instruction: Instruction) -> str:
    context.only()
    return f'rx->fail(self, {context.site}, "trap", "the kernel stops itself"); return;'


@translates("nanosleep", "pmevent")
def sleep(context: Context, instruction: Instruction) -> str:
    context.only("u32", "mask")
    return "rx->yield(self);"


@translates(
    "griddepcontrol", "setmaxnreg", "getctarank", "mapa", "clusterlaunchcontrol", "tcgen05", "wgmma", "mbarrier"
)
def later_architectures(context: Context, instruction: Instruction) -> str:
    context.fail("the host executor does not run this instruction; check the kernel on a device")


# ---- barriers and fences ----


@translates("bar", "barrier")
def barrier(context: Context, instruction: Instruction) -> str:
    context.only("sync", "arrive", "red", "aligned", "warp", "cta", "and", "or", "popc", "pred", "u32")
    modifiers = instruction.modifiers
    if "warp" in modifiers:
        return f"rx->warp_barrier(self, {context.read(instruction.operands[0], 'u32')}, {context.site});"
    if "red" in modifiers:
        return _reducing_barrier(context, instruction)
    number, *rest = instruction.operands
    count = context.read(rest[0], "s32") if rest else "0"
    waits = "false" if "arrive" in modifiers else "true"
    return f"rx->barrier(self, {context.read(number, 's32')}, {count}, PLAIN, false, {waits}, {context.site});"


def _reducing_barrier(context: Context, instruction: Instruction) -> str:
    operation = next(m for m in instruction.modifiers if m in ("and", "or", "popc"))
    kind = {"and": "ALL", "or": "ANY", "popc": "COUNT"}[operation]
    result, number, *rest, value = instruction.operands
    count = context.read(rest[0], "s32") if rest else "0"
    flag = context.read(value, "pred") if not isinstance(value, Negated) else f"!{context.read(value.operand, 'pred')}"
    call = f"rx->barrier(self, {context.read(number, 's32')}, {count}, {kind}, {flag}, true, {context.site})"
    return context.write(result, call, "u32" if operation == "popc" else "pred")


@translates("membar", "fence")
def fence(context: Context, instruction: Instruction) -> str:
    context.only(
        "cta",
        "gl",
        "gpu",
        "sys",
        "sc",
        "acq_rel",
        "acquire",
        "release",
        "proxy",
        "async",
        "async::global",
        "async::shared::cta",
    )
    if "proxy" in instruction.modifiers:
        return ";"  # between kinds of access that the executor does not tell apart
    return f"rx->fence(self, {0 if 'cta' in instruction.modifiers else 1});"


