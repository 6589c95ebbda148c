"""NVRTC: what it makes, what it reports, and how its absence is told. nvdisasm's counts."""

from __future__ import annotations

import pickle

import kernels_by_hand as hand
import pytest

from redfuser.errors import CompileError, NoCompiler, RedfuserError
from redfuser.runtime.cuda import nvrtc as tools
from redfuser.runtime.cuda.errors import CudaCompileError, CudaFault, NoNvrtc, UnsupportedArch
from redfuser.runtime.cuda.nvrtc import Resources, compile_cuda, resources
from redfuser.runtime.cuda.sass import find_nvdisasm, instruction_mix

SPILLS = """
ptxas info    : Compiling entry function 'a' for 'sm_80'
ptxas info    : Function properties for a
    24 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 64 bytes smem, 380 bytes cmem[0]
ptxas info    : Compiling entry function 'b' for 'sm_80'
ptxas info    : Function properties for b
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, 369 bytes cmem[0]
"""


def test_ptx_has_lines_and_no_resources(nvrtc):
    done = compile_cuda(hand.KERNELS["tile"].text, "sm_80", options=("-lineinfo",))
    assert ".target sm_80" in done.ptx
    assert ".loc" in done.ptx
    assert done.resources == {}


def test_cubin_has_resources(nvrtc):
    done = compile_cuda(hand.KERNELS["tile"].text, "sm_80", kind="cubin")
    assert done.data[:4] == b"\x7fELF"
    used = done.resources["tile"]
    assert 16 < used.registers <= 128
    assert (used.spill_stores, used.shared) == (0, 8192)
    with pytest.raises(ValueError, match="CUBIN"):
        _ = done.ptx


def test_the_report_of_ptxas():
    assert resources(SPILLS) == {"a": Resources(255, 24, 8, 16, 64), "b": Resources(8, 0, 0, 0, 0)}


def test_a_rejected_text_shows_its_line(nvrtc):
    with pytest.raises(CudaCompileError, match=r"line 2: x = ;(.|\n)*expected an expression") as found:
        compile_cuda("__global__ void k(int* y) { int x;\n  x = ;\n }", "sm_80")
    assert isinstance(found.value, CompileError)


def test_architectures(nvrtc):
    for arch in ("sm_75", "sm_86", "sm_90a"):
        compile_cuda('extern "C" __global__ void k() {}', arch)
    with pytest.raises(UnsupportedArch, match="it knows sm_"):
        compile_cuda("", "sm_52")
    with pytest.raises(UnsupportedArch, match="is no GPU architecture"):
        compile_cuda("", "ampere")


def test_the_architecture_a_text_asks_for_wins_over_the_one_that_cupy_adds(nvrtc):
    """CuPy puts -arch=sm_90 behind the options of a module: sm_90a must stay in force for wgmma to be known."""
    text = 'extern "C" __global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }'
    added = ("-ftz=true", "-arch=sm_90", "--device-as-default-execution-space")
    nvrtc.compile(text, ["-std=c++17", "-arch=sm_90a", *added], "CUBIN")
    with pytest.raises(CudaCompileError, match="not supported"):
        nvrtc.compile(text, ["-std=c++17", *added], "CUBIN")


def test_headers_of_cuda_are_found(nvrtc):
    text = """#include <cuda_bf16.h>\n#include <cuda_fp8.h>
    extern "C" __global__ void k(__nv_bfloat16* x) { x[0] = __float2bfloat16(1); }"""
    assert "k" in compile_cuda(text, "sm_80").ptx


def test_without_nvrtc_the_message_has_the_remedy(monkeypatch):
    monkeypatch.setattr(tools, "_candidates", lambda *_: iter(["/nowhere/libnvrtc.so.13", "libnvrtc-not-there.so"]))
    tools._find.cache_clear()
    try:
        with pytest.raises(NoNvrtc, match=r"redfuser\[cuda-host\]") as found:
            tools.find_nvrtc()
    finally:
        tools._find.cache_clear()
    assert isinstance(found.value, NoCompiler)


def test_machine_instructions_are_counted(nvrtc):
    try:
        find_nvdisasm()
    except NoNvrtc as error:
        pytest.skip(str(error))
    tile = instruction_mix(compile_cuda(hand.KERNELS["tile"].text, "sm_80", kind="cubin").data)["tile"]
    assert tile["HMMA"] == 16
    assert tile["LDSM"] == 10
    assert tile["LDGSTS.128"] == tile["LDGSTS"] > 0
    assert tile["LDL"] == tile["STL"] == 0
    assert tile["BAR"] == 2
    row = instruction_mix(compile_cuda(hand.KERNELS["softmax_warp"].text, "sm_80", kind="cubin").data)["softmax_warp"]
    assert row["LDG.128"] == row["LDG"] > 0
    assert row["SHFL"] == 10
    assert row["MUFU"] > 0


def test_bytes_that_are_no_cubin(nvrtc):
    with pytest.raises(CudaCompileError, match="nvdisasm"):
        instruction_mix(b"nothing")


def test_errors_survive_pickling():
    fault = CudaFault("race", "k", 3, "text", (1, 0, 0), (2, 0, 0), "x = 1;")
    copy = pickle.loads(pickle.dumps(fault))
    assert (str(copy), copy.kind, copy.line, copy.block) == (str(fault), "race", 3, (1, 0, 0))
    assert isinstance(fault, RedfuserError)
