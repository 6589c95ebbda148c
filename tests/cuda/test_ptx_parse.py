"""PTX text to nodes and back; what is not supported is refused by name."""

from __future__ import annotations

import kernels_by_hand as hand
import pytest

from redfuser.runtime.cuda.errors import UnsupportedPtx
from redfuser.runtime.cuda.nvrtc import compile_cuda
from redfuser.runtime.cuda.ptx_cpp import param_slots, translate
from redfuser.runtime.cuda.ptx_nodes import Address, Instruction, Label, Location, Pair, Register, Vector
from redfuser.runtime.cuda.ptx_parse import parse_ptx

HEAD = ".version 9.0\n.target sm_80\n.address_size 64\n"


def module(body: str, params: str = "", declarations: str = "") -> str:
    registers = ".reg .pred %p<5>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<9>; .reg .b16 %rs<5>;"
    return f"{HEAD}{declarations}\n.visible .entry k({params})\n.maxntid 64, 2, 1\n{{ {registers}\n{body}\nret; }}"


def body(text: str, **kwargs: str) -> list:
    return list(parse_ptx(module(text, **kwargs)).entries[0].body)


def test_instructions_and_operands():
    first, second, third, _ = body(
        "@!%p1 ld.global.v2.f32 {%f1, _}, [%rd1+-8];\nshfl.sync.bfly.b32 %r1|%p2, %r2, 16, 31, -1;"
        "mov.f32 %f2, 0f3F800000;"
    )
    assert (first.opcode, first.guard.negated) == ("ld.global.v2.f32", True)
    assert isinstance(first.operands[0], Vector)
    assert first.operands[1] == Address(Register("%rd1"), -8)
    assert isinstance(second.operands[0], Pair)
    assert second.operands[-1].value == -1
    assert third.operands[1].bits == 0x3F800000
    assert str(first) == "@!%p1 ld.global.v2.f32 {%f1, _}, [%rd1+-8];"


def test_scopes_get_names_of_their_own():
    text = "{ .reg .pred p; L: setp.ne.b32 p, %r1, 0; @p bra L; bra D; D: } { .reg .pred p; setp.eq.b32 p, %r1, 0; }"
    statements = body(text)
    labels = [s.name for s in statements if isinstance(s, Label)]
    assert len(set(labels)) == 2
    written = [s.operands[0].name for s in statements if isinstance(s, Instruction) and s.name == "setp"]
    assert len(set(written)) == 2


def test_lines_and_calls():
    text = '.loc 1 7 3\nmov.u32 %r1, 1;\n.loc 1 2 1, function_name $L__s, inlined_at 1 7 3\nmov.u32 %r1, 2;'
    first, second, _ = body(text)
    assert first.location == Location(1, 7)
    assert second.location == Location(1, 2, Location(1, 7))


def test_variables_and_limits():
    declared = (
        ".const .align 4 .b8 t[4] = {1, 2, 3, 4};\n.extern .shared .align 16 .b8 s[];\n.global .align 4 .u32 n = 5;"
    )
    parsed = parse_ptx(
        module(
            "", declarations=declared, params=".param .u64 .ptr .align 1 a, .param .align 16 .b8 m[64], .param .u8 c"
        )
    )
    table, dynamic, number = parsed.variables
    assert (table.values, dynamic.count, dynamic.extern, number.values) == ((1, 2, 3, 4), None, True, (5,))
    entry = parsed.entry("k")
    assert entry.limits == (("maxntid", (64, 2, 1)),)
    assert [(s.offset, s.size) for s in param_slots(entry)] == [(0, 8), (16, 64), (80, 1)]
    with pytest.raises(KeyError, match="the text has k"):
        parsed.entry("l")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100"])
def test_what_is_printed_is_read_again(nvrtc, arch):
    text = hand.joined([(k.text, k.name, "good") for k in hand.KERNELS.values()])
    parsed = parse_ptx(compile_cuda(text, arch, options=("-lineinfo",)).ptx)
    again = parse_ptx(str(parsed))
    assert [e.name for e in again.entries] == [e.name for e in parsed.entries]
    for one, two in zip(parsed.entries, again.entries, strict=True):
        assert [str(s) for s in one.body] == [str(s) for s in two.body]
        assert one.registers == two.registers
        assert one.variables == two.variables


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("frobnicate.b32 %r1, %r2;", "does not know the instruction frobnicate"),
        ("add.rn.strange.f32 %f1, %f2, %f3;", "add with .strange is not supported"),
        ("wgmma.fence.sync.aligned;", "check the kernel on a device"),
        ("mbarrier.init.shared.b64 [%rd1], 1;", "check the kernel on a device"),
        ("cp.async.bulk.commit_group;", "check the kernel on a device"),
        ("griddepcontrol.wait;", "check the kernel on a device"),
        ("mov.u32 %r1, %clock;", "special register %clock"),
        ("mov.u32 %r1, nothing;", "nothing is not declared"),
        ("bra nowhere;", "label nowhere"),
        ("shfl.bfly.b32 %r1, %r2, 1, 31;", "shuffles without .sync"),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%rd1}, {%rd2}, {%rd3}, {%rd4};", "mma with .m8n8k4"),
        (
            ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1,%f2,%f3,%f4}, {%r1,%r2}, {%r3,%r4}, "
            "{%f1,%f2,%f3,%f4};"),
            "the operands must have",
        ),
        ("cp.async.cg.shared.global [%rd1], [%rd2], 8;", "copies 16 bytes"),
        ("setp.lt.f16x2 %p1, %r1, %r2;", "comparisons of pairs"),
        ("call.uni f, (%r1);", "__forceinline__"),
        ("mov.u32 %r1, %r2 %r3;", "expected ',' or ';'"),
        ("mov.u32 %r1, `;", "cannot read"),
        ("@q mov.u32 %r1, 1;", "register 'q' is not declared"),
        (".weird 3;", "unknown directive '.weird'"),
    ],
)
def test_what_is_not_supported_is_named(text, message):
    with pytest.raises(UnsupportedPtx, match=message.replace("(", r"\(")) as found:
        translate(parse_ptx(module(text)))
    assert "PTX line" in str(found.value)


def test_functions_that_are_not_inlined_are_refused(host):
    from redfuser.runtime.cuda.host import HostModule

    text = """__device__ __noinline__ float f(float x) { return x + 1; }
    extern "C" __global__ void k(float* x) { x[0] = f(x[0]); }"""
    with pytest.raises(UnsupportedPtx, match="__forceinline__"):
        HostModule(text)
