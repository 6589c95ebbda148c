"""Collectives against their definition, and the register layouts of the matrix instructions for all 32 lanes."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import exact
import numpy as np
import pytest
from exact import BF16, E4M3, E5M2, F16, F32

from redfuser.runtime.cuda.errors import CudaFault
from redfuser.runtime.cuda.host import HostModule, In, Out

TEXT = (Path(__file__).parent / "kernels" / "warp.cu").read_text(encoding="utf-8")
A4, A2, B2, B1 = "{%4,%5,%6,%7}", "{%4,%5}", "{%8,%9}", "{%8}"
SHAPES = {  # name -> (opcode, k, bits of an element, value of a code)
    "f16k16": ("m16n8k16.row.col.f32.f16.f16.f32", 16, 16, F16.value),
    "bf16k16": ("m16n8k16.row.col.f32.bf16.bf16.f32", 16, 16, BF16.value),
    "f16k8": ("m16n8k8.row.col.f32.f16.f16.f32", 8, 16, F16.value),
    "tf32k8": ("m16n8k8.row.col.f32.tf32.tf32.f32", 8, 32, F32.value),
    "e4m3k32": ("m16n8k32.row.col.f32.e4m3.e4m3.f32", 32, 8, E4M3.value),
    "e5m2k32": ("m16n8k32.row.col.f32.e5m2.e5m2.f32", 32, 8, E5M2.value),
    "s8k32": ("m16n8k32.row.col.s32.s8.s8.s32", 32, 8, lambda c: exact.signed(c, 8)),
    "u8k16": ("m16n8k16.row.col.s32.u8.u8.s32", 16, 8, int),
}


@lru_cache(maxsize=1)
def module() -> HostModule:
    lines = [TEXT]
    for name, (opcode, k, bits, _) in SHAPES.items():
        a, b = 16 * k * bits // 1024, 8 * k * bits // 1024
        macro = "PRODUCT" if ".s32." in opcode else "FPRODUCT"
        lines.append(f'{macro}({name}, "{opcode}", {a}, {b}, "{A4 if a == 4 else A2}", "{B2 if b == 2 else B1}")')
    return HostModule("\n".join(lines), "sm_90", optimise="-O0")


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 16, 8, 2])
def test_shuffles(host, mode, width):
    values = np.arange(100, 132, dtype=np.uint32)
    offsets = np.random.default_rng(width).integers(0, 32, 32).astype(np.uint32)
    out, valid = np.empty(32, np.uint32), np.empty(32, np.uint32)
    control = (32 - width) << 8 | (0 if mode == "up" else 31)
    module().kernel(mode).launch(1, 32, [In(values), In(offsets), Out(out), Out(valid), np.int32(control)], seed=3)
    for lane in range(32):  # the sub-warp of a lane, in words of the manual
        start, o = lane // width * width, int(offsets[lane])
        source = {"up": lane - o, "down": lane + o, "bfly": lane ^ o, "idx": start + o % width}[mode]
        inside = source >= start if mode == "up" else source < start + width
        assert valid[lane] == inside
        assert out[lane] == values[source if inside else lane]


def test_votes_matches_and_reductions(host):
    v = np.array([i % 7 for i in range(32)], np.uint32)
    out = np.empty(12 * 32, np.uint32)
    module().kernel("votes").launch(1, 32, [In(v), Out(out)], seed=4)
    rows = out.reshape(12, 32)
    ballot = sum(int(x & 1) << i for i, x in enumerate(v))
    assert (rows[0] == ballot).all()
    assert (rows[1] == 1).all()
    assert (rows[2] == 1).all()
    assert rows[3].tolist() == [sum(int(v[j] == v[i]) << j for j in range(32)) for i in range(32)]
    assert (rows[4] == 0xFFFFFFFF).all()
    assert (rows[5] == 1).all()
    assert (rows[6] == v.sum()).all()
    assert (rows[7].view(np.int32) == -4).all()
    assert (rows[8] == 6).all()
    assert (rows[9] == np.bitwise_xor.reduce(v)).all()
    odd = sum(int(v[i] > 3) << i for i in range(1, 32, 2))
    assert rows[10].tolist() == [odd if i % 2 else 0 for i in range(32)]
    assert (rows[11] == 1).all()


def test_reducing_barriers(host):
    out = np.empty(192, np.uint32)
    module().kernel("barriers").launch(1, 64, [Out(out)], seed=5)
    assert (out[:64] == 22).all()
    assert (out[64:128] == 1).all()
    assert (out[128:] == 0).all()


def test_rows_of_matrices(host):
    x = np.arange(1000, 1256, dtype=np.uint16)
    out = np.empty(12 * 32, np.uint32)
    module().kernel("rows").launch(1, 32, [In(x), Out(out)], seed=6)
    registers = out.reshape(12, 32).view(np.uint16).reshape(12, 32, 2)
    matrices = x.reshape(4, 8, 8)
    for lane in range(32):  # a lane has two neighbours of row lane / 4, at column 2 (lane % 4)
        row, column = lane // 4, 2 * (lane % 4)
        for j in range(4):
            assert registers[j, lane].tolist() == matrices[j, row, column : column + 2].tolist()
            assert registers[4 + j, lane].tolist() == matrices[j].T[row, column : column + 2].tolist()
        assert registers[8, lane].tolist() == matrices[0, row, column : column + 2].tolist()
        assert registers[9, lane].tolist() == matrices[1, row, column : column + 2].tolist()
        assert registers[10, lane].tolist() == matrices[0].T[row, column : column + 2].tolist()


def place_a(lane: int, element: int, per_register: int) -> tuple[int, int]:
    """Row and column of A that element number `element` of a lane is: the formulas of the manual, by element index."""
    group, thread = lane >> 2, lane % 4
    half, within = divmod(element, 2 * per_register)  # registers come in pairs: rows g, then g + 8
    row = group if within < per_register else group + 8
    return row, thread * per_register + within % per_register + half * 4 * per_register


def place_b(lane: int, element: int, per_register: int) -> tuple[int, int]:
    """Row and column of B."""
    half, within = divmod(element, per_register)
    return (lane % 4) * per_register + within + half * 4 * per_register, lane >> 2


def fragment(matrix: np.ndarray, count: int, bits: int, place) -> np.ndarray:
    """Registers (count, 32) that hold a matrix of codes."""
    per_register = 32 // bits
    words = np.zeros((count, 32), np.uint64)
    for lane in range(32):
        for e in range(count * per_register):
            words[e // per_register, lane] |= np.uint64(
                int(matrix[place(lane, e, per_register)]) << bits * (e % per_register)
            )
    return words.astype(np.uint32)


@pytest.mark.parametrize("name", SHAPES)
def test_products(host, name):
    opcode, k, bits, value = SHAPES[name]
    rng = np.random.default_rng(k * bits)
    codes = [c for c in range(256) if not exact.is_nan(value(c)) and not exact.is_inf(value(c))] if bits == 8 else None
    if bits == 8:
        a, b = (rng.choice(codes, (m, n)) for m, n in ((16, k), (k, 8)))
    elif bits == 16:
        form = F16 if name.startswith("f16") else BF16
        a, b = (
            np.vectorize(lambda x, f=form: exact.rounded(float(x), f))(rng.standard_normal(s))
            for s in ((16, k), (k, 8))
        )
    else:
        a, b = (rng.standard_normal(s).astype(np.float32).view(np.uint32) & 0xFFFFE000 for s in ((16, k), (k, 8)))
    integer = ".s32." in opcode
    c = (
        rng.integers(-1000, 1000, (16, 8)).astype(np.int32)
        if integer
        else rng.standard_normal((16, 8)).astype(np.float32)
    )
    fa = fragment(a, 16 * k * bits // 1024, bits, place_a)
    fb = fragment(b, 8 * k * bits // 1024, bits, place_b)
    order = [(lane // 4 + 8 * (n // 2), lane % 4 * 2 + n % 2) for n in range(4) for lane in range(32)]
    fc = np.array([c[p] for p in order], c.dtype)
    out = np.empty_like(fc)
    module().kernel(name).launch(1, 32, [In(fa), In(fb), In(fc), Out(out)], seed=7)
    left = np.array([[float(value(int(x))) for x in row] for row in a])
    right = np.array([[float(value(int(x))) for x in row] for row in b])
    wanted = left @ right + c
    got = np.zeros((16, 8))
    for p, x in zip(order, out, strict=True):
        got[p] = x
    assert np.allclose(got, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())


def test_a_shuffle_must_not_read_a_lane_outside_of_its_mask(host):
    text = """extern "C" __global__ void k(int* y) {
        int v = 1; if (threadIdx.x < 16) v = __shfl_xor_sync(0xffffu, v, 16); y[threadIdx.x] = v; }"""
    with pytest.raises(CudaFault) as found:
        HostModule(text).kernel("k").launch(1, 32, [np.zeros(32, np.int32)])
    assert found.value.kind == "bad-lane"
