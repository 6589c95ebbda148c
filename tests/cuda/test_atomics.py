"""Atomics of global and shared memory: the value before, and the value after; vectors and local memory too."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from redfuser.runtime.cuda.errors import CudaFault
from redfuser.runtime.cuda.host import HostModule, In, Out

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def s32(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


OPERATIONS = {  # opcode -> (width, new value of old and operand)
    "add.u32": (32, lambda o, x: (o + x) & M32),
    "add.u64": (64, lambda o, x: (o + x) & M64),
    "min.u32": (32, min),
    "max.u32": (32, max),
    "min.s32": (32, lambda o, x: min(o, x, key=s32)),
    "max.s32": (32, lambda o, x: max(o, x, key=s32)),
    "max.u64": (64, max),
    "exch.b32": (32, lambda o, x: x),
    "and.b32": (32, lambda o, x: o & x),
    "or.b64": (64, lambda o, x: o | x),
    "xor.b32": (32, lambda o, x: o ^ x),
    "inc.u32": (32, lambda o, x: 0 if o >= x else o + 1),
    "dec.u32": (32, lambda o, x: x if o == 0 or o > x else o - 1),
}
EDGES = [0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x12345678]


def text() -> str:
    lines = ["typedef unsigned long long u64;"]
    for opcode, (width, _) in OPERATIONS.items():
        c_type, letter = ("u64", "l") if width == 64 else ("unsigned", "r")
        name = opcode.replace(".", "_")
        for space in ("global", "shared"):
            place = "m + i" if space == "global" else "s + i"
            address = '"l"(p)' if space == "global" else '"r"((unsigned)__cvta_generic_to_shared(p))'
            lines += [
                f'extern "C" __global__ void {name}_{space}({c_type}* m, const {c_type}* x, {c_type}* old) {{',
                f"  __shared__ {c_type} s[64]; const int i = threadIdx.x; s[i] = m[i];",
                f"  {c_type}* p = {place}; {c_type} o;",
                f'  asm volatile("atom.{space}.{opcode} %0, [%1], %2;"',
                f'               : "={letter}"(o) : {address}, "{letter}"(x[i]) : "memory");',
                f"  old[i] = o; {'m[i] = s[i];' if space == 'shared' else ''} }}",
            ]
    return "\n".join([*lines, MORE])


MORE = """
extern "C" __global__ void sums(float* f, double* d, int* taken, const float* x) {
    atomicAdd(f, x[threadIdx.x]); atomicAdd(d, (double)x[threadIdx.x]);
    asm volatile("red.global.add.f32 [%0], %1;" :: "l"(f + 1), "f"(x[threadIdx.x]) : "memory");
    atomicCAS(taken, 0, (int)threadIdx.x + 1);
}
extern "C" __global__ void halves(unsigned* y, unsigned x) {
    asm volatile("red.global.add.noftz.f16x2 [%0], %1;" :: "l"(y), "r"(x) : "memory");
}
extern "C" __global__ void vectors(const int4* x, int4* y, const double2* d, double2* e,
                                   const unsigned char* b, short* c) {
    const int i = threadIdx.x;
    int4 v = x[i]; v.x += 1; v.w -= 1; y[i] = v;
    double2 w = d[i]; e[i] = make_double2(w.y, w.x);
    c[i] = (short)((signed char)b[i] * 2);
}
extern "C" __global__ void local_array(const int* x, int* y, int n) {
    int own[16];
    for (int i = 0; i < 16; i++) own[i] = x[i] + threadIdx.x;
    y[threadIdx.x] = own[n];
}
"""


@lru_cache(maxsize=1)
def module() -> HostModule:
    return HostModule(text(), optimise="-O0")


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("opcode", OPERATIONS)
def test_atomics(host, opcode, space):
    width, new = OPERATIONS[opcode]
    dtype = np.uint64 if width == 64 else np.uint32
    edges = [*EDGES, M64, M64 - 1] if width == 64 else EDGES
    pairs = [(a, b) for a in edges for b in edges][:64]
    memory, x = (np.array(c, dtype) for c in zip(*pairs, strict=True))
    before, old = memory.copy(), np.empty_like(memory)
    kernel = module().kernel(f"{opcode.replace('.', '_')}_{space}")
    kernel.launch(1, len(pairs), [memory, In(x), Out(old)])
    assert old.tolist() == before.tolist()
    assert memory.tolist() == [new(a, b) for a, b in pairs]


def test_sums_do_not_lose_anything(host):
    x = np.arange(96, dtype=np.float32)
    f, d, taken = np.zeros(2, np.float32), np.zeros(1), np.zeros(1, np.int32)
    for seed in (0, 1, 2):
        f[:], d[:], taken[:] = 0, 0, 0
        module().kernel("sums").launch(2, 96, [f, d, taken, In(x)], seed=seed)
        assert (f.tolist(), d.tolist()) == ([2 * x.sum()] * 2, [2 * x.sum()])
        assert 1 <= taken[0] <= 96
    y = np.zeros(2, np.float16)
    module().kernel("halves").launch(1, 32, [y, np.array([1.5, -2], np.float16).view(np.uint32)[0]])
    assert y.tolist() == [48, -64]


def test_vectors_and_narrow_types(host):
    x, d = np.arange(128, dtype=np.int32).reshape(32, 4), np.arange(64.0).reshape(32, 2)
    b = np.arange(0, 256, 8).astype(np.uint8)
    y, e, c = np.empty_like(x), np.empty_like(d), np.empty(32, np.int16)
    module().kernel("vectors").launch(1, 32, [In(x), Out(y), In(d), Out(e), In(b), Out(c)])
    assert (y == x + np.array([1, 0, 0, -1])).all()
    assert (e == d[:, ::-1]).all()
    assert (c == b.view(np.int8).astype(np.int16) * 2).all()


def test_local_arrays_and_their_bounds(host):
    x, y = np.arange(16, dtype=np.int32), np.empty(8, np.int32)
    kernel = module().kernel("local_array")
    kernel.launch(1, 8, [In(x), Out(y), np.int32(5)])
    assert y.tolist() == [5 + i for i in range(8)]
    for n in (16, -1):
        with pytest.raises(CudaFault, match="local") as found:
            kernel.launch(1, 8, [In(x), Out(y), np.int32(n)])
        assert found.value.kind == "out-of-bounds"
