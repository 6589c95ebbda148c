"""Collectives of a warp: shfl, vote, match, redux, activemask, elect."""

from __future__ import annotations

from redfuser.runtime.cuda.ptx_cpp_context import Context, translates
from redfuser.runtime.cuda.ptx_nodes import Instruction, Pair, Sink

_SHUFFLES = {"up": "SHUFFLE_UP", "down": "SHUFFLE_DOWN", "bfly": "SHUFFLE_XOR", "idx": "SHUFFLE_INDEX"}


@translates("shfl")
def shuffle(context: Context, instruction: Instruction) -> str:
    context.only("sync", *_SHUFFLES, "b32")
    if "sync" not in instruction.modifiers:
        context.fail("shuffles without .sync are not supported")
    target, value, b, c, mask = instruction.operands
    result, valid = (target.first, target.second) if isinstance(target, Pair) else (target, Sink())
    mode = _SHUFFLES[instruction.modifiers[1]]
    operands = ", ".join(context.read(o, "b32") for o in (mask, value, b, c))
    lines = [f"bool valid; const uint32_t other = rx->shuffle(self, {mode}, {operands}, &valid, {context.site});"]
    lines += [
        context.write(r, v, k)
        for r, v, k in ((result, "other", "b32"), (valid, "valid", "pred"))
        if not isinstance(r, Sink)
    ]
    return " ".join(lines)


@translates("vote")
def vote(context: Context, instruction: Instruction) -> str:
    context.only("sync", "all", "any", "uni", "ballot", "pred", "b32")
    if "sync" not in instruction.modifiers:
        context.fail("votes without .sync are not supported")
    _, flag, mask = instruction.operands
    lanes = context.read(mask, "b32")
    ballot = f"rx->vote(self, {lanes}, {context.read(flag, 'pred')}, {context.site})"
    if "ballot" in instruction.modifiers:
        return context.result(ballot, "b32")
    test = {"all": "ballot == lanes", "any": "ballot != 0", "uni": "ballot == 0 || ballot == lanes"}[
        instruction.modifiers[1]
    ]
    return f"const uint32_t lanes = {lanes}, ballot = {ballot}; {context.result(test, 'pred')}"


@translates("match")
def match(context: Context, instruction: Instruction) -> str:
    context.only("sync", "any", "all", "b32", "b64")
    target, value, mask = instruction.operands
    result, equal = (target.first, target.second) if isinstance(target, Pair) else (target, Sink())
    every = "true" if "all" in instruction.modifiers else "false"
    operands = ", ".join(context.read(o, k) for o, k in ((mask, "b32"), (value, context.type())))
    call = f"rx->match(self, {operands}, {every}, &equal, {context.site})"
    lines = [f"bool equal = false; const uint32_t lanes = {call}; {context.write(result, 'lanes', 'b32')}"]
    if not isinstance(equal, Sink):
        lines.append(context.write(equal, "equal", "pred"))
    return " ".join(lines)


@translates("redux")
def reduce(context: Context, instruction: Instruction) -> str:
    context.only("sync", "add", "min", "max", "and", "or", "xor", "u32", "s32", "b32")
    operation = instruction.modifiers[1]
    name = {"add": "SUM", "and": "AND", "or": "OR", "xor": "XOR"}.get(operation)
    if name is None:
        name = f"{operation.upper()}_{context.type()[0].upper()}"
    _, value, mask = instruction.operands
    return context.result(
        f"rx->reduce(self, {name}, {context.read(mask, 'b32')}, {context.read(value, 'b32')}, {context.site})", "b32"
    )


@translates("activemask")
def active(context: Context, instruction: Instruction) -> str:
    context.only("b32")
    return context.result("rx->active(self)", "b32")


@translates("elect")
def elect(context: Context, instruction: Instruction) -> str:
    context.only("sync")
    target, mask = instruction.operands
    if not isinstance(target, Pair):
        context.fail("its result must be a pair")
    lanes = context.read(mask, "b32")
    lines = [f"const uint32_t leader = (uint32_t)__builtin_ctz(rx->vote(self, {lanes}, true, {context.site}));"]
    if not isinstance(target.first, Sink):
        lines.append(context.write(target.first, "leader", "b32"))
    return " ".join([*lines, context.write(target.second, "self->lane == leader", "pred")])
