"""The front end without NVRTC: the same kernels, the same mistakes, and what only the text itself shows."""

from __future__ import annotations

from functools import lru_cache

import kernels_by_hand as hand
import numpy as np
import pytest
from faults import FAULTS, Fault
from kernels_by_hand import KERNELS
from test_faults import outcome

from redfuser.runtime.cuda.errors import CudaCompileError, CudaFault, LaunchError
from redfuser.runtime.cuda.header import HeaderModule, kernel_names
from redfuser.runtime.cuda.host import In, Out

READABLE = [f for f in FAULTS if "asm" not in f.new and "m8n8" not in f.old]
"""Mistakes that do not touch inline PTX."""


@lru_cache(maxsize=1)
def good() -> HeaderModule:
    return HeaderModule(hand.joined([(k.text, k.name, "good") for k in KERNELS.values()]))


@lru_cache(maxsize=1)
def broken() -> HeaderModule:
    return HeaderModule(hand.joined([(f.text, f.kernel, f"bad{i}") for i, f in enumerate(READABLE)]))


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_run_right_under_every_schedule(cxx, name):
    for seed in (0, 1, 2, 3):
        assert KERNELS[name].run(good().kernel(f"{name}_good"), seed) <= 1, seed


@pytest.mark.parametrize("number", range(len(READABLE)), ids=[f"{f.kernel}: {f.title}" for f in READABLE])
def test_every_mistake_is_found(cxx, number):
    fault: Fault = READABLE[number]
    kind, found = outcome(fault, broken().kernel(f"{fault.kernel}_bad{number}"))
    assert kind != "nothing"
    if found is not None and kind in ("race", "misaligned", "const-write", "divergent-barrier"):
        assert 0 < found.line <= broken().source.count("\n"), found


UNDEFINED = """
extern "C" __global__ void unset(const float* x, float* y) {
    __shared__ float total[2];
    total[0] = x[0];
    y[0] = total[0] + total[1];
}
extern "C" __global__ void local_index(const float* x, float* y, int n) {
    float own[4] = {1, 2, 3, 4};
    y[0] = own[n] + x[0];
}
extern "C" __global__ void wide_shift(const float* x, float* y, int n) { y[0] = x[0] + (1 << n); }
extern "C" __global__ void overflow(const float* x, float* y, int n) { y[0] = x[0] + n * 65536; }
extern "C" __global__ void division(const float* x, float* y, int n) { y[0] = x[0] + 5 / n; }
extern "C" __global__ void forever(const float* x, float* y, int n) {
    for (int i = 0; n; i ^= 1) if (i > 5) y[0] = x[0];
}
"""


@pytest.mark.parametrize(
    ("name", "n", "kind"),
    [("unset", None, "uninitialised"), ("local_index", 4, "out-of-bounds"), ("wide_shift", 32, "undefined"),
     ("overflow", 1 << 20, "undefined"), ("division", 0, "division-by-zero"), ("forever", 1, "runaway")],
)
def test_what_a_compiler_may_leave_out_is_found(cxx, name, n, kind):
    x, y = np.ones(1, np.float32), np.empty(1, np.float32)
    args = [In(x), Out(y)] + ([] if n is None else [np.int32(n)])
    with pytest.raises(CudaFault) as found:
        HeaderModule(UNDEFINED).kernel(name).launch(1, 1, args)
    assert found.value.kind == kind
    assert found.value.kernel == name


def test_text_that_it_cannot_read(cxx):
    with pytest.raises(CudaCompileError, match="REDFUSER_HOST"):
        HeaderModule('extern "C" __global__ void k(float* x) { no_such_function(x); }')
    with pytest.raises(LaunchError, match="the text has"):
        HeaderModule(UNDEFINED).kernel("missing")


def test_kernel_names_with_their_namespaces():
    inner = "namespace b { __global__ void __launch_bounds__(128, 2) k(int n) { if (n) { } } }"
    text = f"namespace a {{ {inner} void f() {{}} }} __global__ void l() {{}}"
    assert list(kernel_names(text)) == [("k", "a::b::k"), ("l", "l")]
