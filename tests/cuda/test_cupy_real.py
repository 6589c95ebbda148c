"""What can be asked of the real CuPy without a driver: its modules, its compiler with its own options, its views."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from standin_cupy import Cuda

import redfuser as rf
from redfuser.ir.dtypes import EXTENSIONS, numpy_dtype
from redfuser.runtime.cuda.cupy_launch import OPTIONS, CupyModule
from redfuser.runtime.cuda.device_arrays import outline
from redfuser.runtime.cuda.errors import NoDevice, UnsupportedArch
from redfuser.runtime.cuda.launch import array
from redfuser.runtime.cuda.nvrtc import STANDARD

cupy = pytest.importorskip("cupy", reason="CuPy is not installed: pip install 'redfuser[cuda13]'")


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.fixture
def compiled(monkeypatch):
    """CuPy's own way from a text to machine code, for an architecture that is given instead of the device's.

    options: what NVRTC got.
    """
    compiler = cupy.cuda.compiler
    seen = []
    kind = compiler._NVRTCProgram

    class Program(kind):
        def compile(self, options=(), log_stream=None):
            seen.append(options)
            return super().compile(options, log_stream)

    monkeypatch.setattr(compiler, "_NVRTCProgram", Program)
    plain = compiler._get_arch_for_options_for_nvrtc.__wrapped__  # remembered for each device: asks for the current one
    monkeypatch.setattr(compiler, "_get_arch_for_options_for_nvrtc", plain)

    def run(source, options, capability):
        try:
            # -ftz=true is added by the caller of this function, `_compile_with_cache_cuda`
            return compiler._compile_using_nvrtc_no_warning(source, (*options, "-ftz=true"), capability)[0], seen[-1]
        except cupy.cuda.runtime.CUDARuntimeError as error:
            pytest.skip(f"this CuPy compiles with a driver only: {error}")

    return run


@pytest.mark.parametrize(("arch", "capability"), [("sm_80", "80"), ("sm_90a", "90")])
def test_emitted_text_compiles_with_the_options_of_cupy(compiled, arch, capability):
    source = rf.fuse(softmax).lower(rf.spec((64, 1000), "float32")).source("cuda", arch=arch)
    module = CupyModule(source, arch if arch.endswith("a") else None)
    binary, options = compiled(source, module.options, capability)
    assert binary[:4] == b"\x7fELF"
    assert b"softmax_phase0" in binary
    own = [o for o in options if not o.startswith("-arch")]
    assert sorted(own) == sorted(STANDARD)  # what `nvrtc.py` compiles with in all other tests
    assert f"-arch=sm_{capability}" in options


def test_the_first_architecture_counts(compiled):
    """CuPy asks for sm_90 after us; instructions of sm_90a are there all the same."""
    text = """extern "C" __global__ void k(float* x) {
    #ifndef __CUDA_ARCH_FEAT_SM90_ALL
    #error no feature
    #endif
    asm volatile("wgmma.fence.sync.aligned;"); x[0] = 1; }"""
    binary, options = compiled(text, CupyModule(text, "sm_90a").options, "90")
    assert binary[:4] == b"\x7fELF"
    assert [o for o in options if "arch" in o] == ["-arch=sm_90a", "-arch=sm_90"]
    with pytest.raises(cupy.cuda.compiler.CompileException, match="no feature"):
        compiled(text, OPTIONS, "90")


def test_a_module_can_be_built_without_a_driver():
    module = CupyModule('extern "C" __global__ void k(float* x) { x[0] = 1; }', "sm_90a")
    with contextlib.suppress(NoDevice, UnsupportedArch):  # that far it gets without a driver, or on another device
        module.function("k", [array("x", np.float32)])


VIEWS = {
    "whole": lambda a: a,
    "rows": lambda a: a[1:],
    "columns": lambda a: a[:, ::2],
    "backwards": lambda a: a[:, ::-1],
    "one": lambda a: a[0, ...],
    "number": lambda a: a[1, 2],
    "unit": lambda a: a[None, :, None],
    "turned": lambda a: a.transpose([1, 0]),
    "split": lambda a: a.reshape([2, 2, 6]),
    "diagonal": lambda a: np.diagonal(a, axis1=0, axis2=1),
    "repeated": lambda a: np.broadcast_to(a[None, ...], [3, 4, 6]),
    "moved": lambda a: np.moveaxis(a, 0, -1),
    "expanded": lambda a: np.expand_dims(a, (0, 2)),
    "bits": lambda a: a[1:, ::2].view(np.dtype(f"u{a.itemsize}")),
}


def _lent(library, memory, dtype):
    pointer = library.cuda.MemoryPointer(library.cuda.UnownedMemory(memory.ctypes.data, memory.nbytes, memory, 0), 0)
    return library.ndarray((4, 6), dtype, pointer)


@pytest.mark.parametrize("dtype", ["float32", *EXTENSIONS])
@pytest.mark.parametrize("name", VIEWS)
def test_the_stand_in_has_the_views_of_cupy(name, dtype):
    """Both libraries on the same memory: shapes, strides and addresses of what redfuser does with arrays."""
    memory = np.zeros(192, np.uint8)
    real, other = (VIEWS[name](_lent(library, memory, numpy_dtype(dtype))) for library in (cupy, Cuda().cupy))
    assert (real.shape, real.dtype, real.strides, real.data.ptr) == (
        other.shape, other.dtype, other.strides, other.data.ptr)
    assert (np.shape(real), np.ndim(real), real.size, real.itemsize) == (
        np.shape(other), np.ndim(other), other.size, other.itemsize)


def test_both_refuse_what_would_be_wrong():
    for library in (cupy, Cuda().cupy):
        memory = np.zeros(96, np.uint8)
        a = _lent(library, memory, np.dtype("float32"))
        with pytest.raises(TypeError, match="Implicit conversion"):
            np.asarray(a)
        view = a[:, ::2].transpose([1, 0]).view()
        with pytest.raises(AttributeError):
            view.shape = (12,)
        view = a.view()
        view.shape = (24,)
        assert (view.strides, a.shape) == ((4,), (4, 6))
        assert np.may_share_memory(a, a[1:])
        assert not np.may_share_memory(a[:1], a[1:])
        assert not np.shares_memory(outline(a[:, ::2]), outline(a[:, 1::2]))  # exact, and nothing is computed
        assert np.shares_memory(outline(a[:, ::2]), outline(a[:, 2:3]))
