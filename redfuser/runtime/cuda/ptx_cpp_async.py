"""cp.async and its groups."""

from __future__ import annotations

from redfuser.runtime.cuda.ptx_cpp_context import Context, translates
from redfuser.runtime.cuda.ptx_nodes import Instruction, Integer, Register

_HINTS = ("L2::64B", "L2::128B", "L2::256B", "L2::cache_hint")


@translates("cp")
def copy(context: Context, instruction: Instruction) -> str:
    modifiers = instruction.modifiers
    if not modifiers or modifiers[0] != "async" or "bulk" in modifiers or "mbarrier" in modifiers:
        context.fail("the host executor does not run this copy; check the kernel on a device")
    if modifiers[1:] == ("commit_group",):
        return "rx->commit(self);"
    if modifiers[1:] == ("wait_all",):
        return f"rx->commit(self); rx->wait(self, 0, {context.site});"
    if modifiers[1:] == ("wait_group",):
        return f"rx->wait(self, {context.read(instruction.operands[0], 'u32')}, {context.site});"
    context.only("async", "ca", "cg", "shared", "shared::cta", "global", *_HINTS)
    return _copy(context, instruction)


def _copy(context: Context, instruction: Instruction) -> str:
    target, source, size, *rest = instruction.operands
    if not isinstance(size, Integer) or size.value not in (4, 8, 16):
        context.fail("its size must be 4, 8 or 16")
    if "cg" in instruction.modifiers and size.value != 16:
        context.fail("cp.async.cg copies 16 bytes")
    if "L2::cache_hint" in instruction.modifiers:
        rest = rest[:-1]
    used = f"{size.value}u"
    if rest:
        last = rest[0]
        if isinstance(last, Register) and context.entry.registers[last.name] == "pred":
            used = f"{context.read(last, 'pred')} ? 0u : {size.value}u"
        else:
            used = context.read(last, "u32")
    to, source_address = context.address(target), context.address(source)
    return f"rx->copy(self, (uint32_t)({to}), {source_address}, {size.value}, {used}, {context.site});"
