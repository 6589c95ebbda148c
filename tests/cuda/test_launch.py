"""Packed arguments, and what a launch refuses before it runs."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from redfuser.errors import ArgumentError
from redfuser.runtime.cuda.errors import CudaFault, LaunchError
from redfuser.runtime.cuda.host import HostModule, In, Out, Scratch
from redfuser.runtime.cuda.launch import Function, Parameter, array, offsets, pack, scalar

TEXT = """
struct __align__(16) Pair { float a; int b; double c; };
extern "C" __global__ void __launch_bounds__(64) affine(const float* x, float* y, signed char k, long long n,
                                                             float a, Pair p) {
    const long long i = blockIdx.x * 64ll + threadIdx.x;
    if (i < n) y[i] = a * x[i] + k + p.a + p.b + (float)p.c;
}
extern "C" __global__ void lonely() { extern __shared__ int s[]; s[threadIdx.x] = 1; }
__device__ int counter = 3;
extern "C" __global__ void count(int* y) { if (threadIdx.x == 0) { y[0] = counter; counter = counter + 1; } }
"""
PARAMETERS = [
    array("x", np.float32),
    array("y", np.float32),
    scalar("k", np.int8),
    scalar("n", np.int64),
    scalar("a", np.float32),
    Parameter("p", np.dtype([("a", "f4"), ("b", "i4"), ("c", "f8")]), align=16),
]
PAIR = struct.pack("<fid", 0.5, 2, 0.25)


@pytest.fixture(scope="module")
def module(host) -> HostModule:
    return HostModule(TEXT)


def test_offsets_are_those_of_the_compiled_kernel(module):
    assert offsets(PARAMETERS) == tuple(s.offset for s in module.kernels["affine"].params)
    assert [p.size for p in PARAMETERS] == [s.size for s in module.kernels["affine"].params]


def test_the_packed_interface_runs_the_kernel(module):
    with module.memory() as memory:
        x, y = memory.put(np.arange(100, dtype=np.float32), "x"), memory.empty(100, np.float32, "y")
        function: Function = module.kernel("affine").function(seed=2)
        packed = pack(PARAMETERS, [x.ctypes.data, y.ctypes.data, -3, 100, 2.0, PAIR])
        function.launch((2, 1, 1), (64, 1, 1), 0, packed)
        assert (y == 2 * np.arange(100, dtype=np.float32) - 3 + 2.75).all()
        with pytest.raises(LaunchError, match="bytes of arguments"):
            function.launch((2, 1, 1), (64, 1, 1), 0, packed[:-1])


def test_arrays_and_scalars(module):
    x, y = np.arange(70, dtype=np.float32), np.empty(70, np.float32)
    module.kernel("affine").launch(2, 64, [In(x), Out(y), np.int8(1), np.int64(70), np.float32(1), PAIR])
    assert (y == x + 1 + 2.75).all()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, 0, 1, 1, 1.0], "takes 6 arguments"),
        ([1.5, 0, 1, 1, 1.0, PAIR], "x is a pointer"),
        ([2, 0, 1, 1, 1.0, PAIR], "not a multiple of 4"),
        ([0, 0, 200, 1, 1.0, PAIR], "k is int8; 200 is beyond"),
        ([0, 0, 1, 1.0, 1.0, PAIR], "n is int64"),
        ([0, 0, 1, np.int32(1), 1.0, PAIR], "got a int32"),
        ([0, 0, 1, 1, np.float64(1), PAIR], "a is float32, got a float64"),
        ([0, 0, 1, 1, "1", PAIR], "a is float32"),
        ([0, 0, 1, 1, 1.0, PAIR[:-1]], "p has 16 bytes, got 15"),
    ],
)
def test_pack_refuses_what_does_not_fit(values, message):
    with pytest.raises(LaunchError, match=message):
        pack(PARAMETERS, values)


def test_half_types_and_bools_are_packed_by_their_bits():
    assert pack([scalar("h", np.float16), scalar("f", np.bool_)], [1.0, True]) == b"\x00\x3c\x01"


def test_launch_refuses_what_no_device_could_run(module):
    kernel, x, y = module.kernel("affine"), np.ones(4, np.float32), np.ones(4, np.float32)
    good = [In(x), Out(y), np.int8(1), np.int64(4), np.float32(1), PAIR]
    for grid, block, args, shared, message in (
        (1, 65, good, 0, "__launch_bounds__ allows 64"),
        (0, 64, good, 0, "grid is 0"),
        (1, (1, 1, 1, 1), good, 0, "one to three positive"),
        (1, 64, good[:-1], 0, "takes 6 arguments, got 5"),
        (1, 64, [*good[:3], np.int32(4), *good[4:]], 0, "has 8 bytes, got 4"),
        (1, 64, [*good[:3], 4, *good[4:]], 0, "is a int; give"),
        (1, 64, good, 300_000, "a block may have"),
    ):
        with pytest.raises(LaunchError, match=message):
            kernel.launch(grid, block, args, shared_bytes=shared)
    with pytest.raises(LaunchError, match="the text has affine"):
        module.kernel("none")
    with pytest.raises(LaunchError, match="the device allows 1024"):
        module.kernel("lonely").launch(1, 1025, [])
    with pytest.raises(ArgumentError, match="not contiguous"):
        kernel.launch(1, 64, [In(np.ones(8, np.float32)[::2]), *good[1:]])
    fixed = np.ones(4, np.float32)
    fixed.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        kernel.launch(1, 64, [fixed, *good[1:]])


def test_views_keep_their_misalignment(module):
    whole = np.ones(9, np.float32)
    text = """extern "C" __global__ void k(const float4* x, float* y) {
        const float4 v = x[0]; y[0] = v.x + v.y + v.z + v.w; }"""
    kernel = HostModule(text).kernel("k")
    y = np.empty(1, np.float32)
    kernel.launch(1, 1, [In(whole), Out(y)])
    with pytest.raises(CudaFault, match="not a multiple of 16"):
        kernel.launch(1, 1, [In(whole[1:]), Out(y)])


def test_dynamic_shared_memory_has_its_bounds(module):
    module.kernel("lonely").launch(1, 8, [], shared_bytes=32)
    with pytest.raises(CudaFault) as found:
        module.kernel("lonely").launch(1, 9, [], shared_bytes=32)
    assert found.value.kind == "out-of-bounds"
    assert found.value.thread == (8, 0, 0)
    assert found.value.line == TEXT.splitlines().index(next(r for r in TEXT.splitlines() if "lonely" in r)) + 1
    assert "extern __shared__" in str(found.value)


def test_device_variables_keep_their_values_until_reset(module):
    y = np.zeros(1, np.int32)
    seen = []
    module.reset()
    for _ in range(2):
        module.kernel("count").launch(1, 32, [y])
        seen.append(int(y[0]))
    module.reset()
    module.kernel("count").launch(1, 32, [y])
    assert [*seen, int(y[0])] == [3, 4, 3]


def test_a_finding_leaves_arrays_as_they_were(module):
    y = np.full(1, 7, np.float32)
    text = 'extern "C" __global__ void k(float* y) { y[0] = 1; y[1] = 2; }'
    with pytest.raises(CudaFault, match=r"belongs to|which has 4") as found:
        HostModule(text).kernel("k").launch(1, 1, [y])
    assert y[0] == 7
    assert found.value.block == (0, 0, 0)


def test_scratch_and_outputs_must_be_written_before_they_are_read(host):
    text = 'extern "C" __global__ void k(float* s, float* y) { y[0] = s[0]; }'
    kernel = HostModule(text).kernel("k")
    one = np.ones(1, np.float32)
    kernel.launch(1, 1, [one, Out(one.copy())])
    with pytest.raises(CudaFault, match="nothing has written"):
        kernel.launch(1, 1, [Scratch(one), Out(one.copy())])


def test_read_only_loads_of_what_the_launch_writes(host):
    text = """extern "C" __global__ void k(const float* __restrict__ x, float* y) { y[1] = 2; y[0] = __ldg(x + 1); }"""
    with HostModule(text).memory() as memory:
        both = memory.put(np.ones(2, np.float32), "both")
        with pytest.raises(CudaFault) as found:
            HostModule(text).kernel("k").launch(1, 1, [both, both])
    assert found.value.kind == "non-coherent"
