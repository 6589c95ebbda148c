"""Single instructions and kernels written by hand on the place, against the host executor on random operands.

The executor is exact where PTX says what is exact; approximate functions and sums of matrix units have the room that is
written beside them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "cuda"))

COUNT = 4096
"""Operands of an instruction of one thread."""
ULPS = {"ex2.approx.ftz.f32": 4, "rcp.approx.ftz.f32": 2, "rsqrt.approx.ftz.f32": 4, "lg2.approx.ftz.f32": 8,
        "sqrt.approx.ftz.f32": 2, "tanh.approx.f32": 1 << 14, "div.full.f32": 4}
"""Allowed distance between two results, in units of the last place; NVIDIA promises about these."""
EXACT = ("cvt.rn.f16.f32", "cvt.rn.bf16.f32", "cvt.rna.tf32.f32")
FRAGMENTS = {
    # name -> (A registers, B registers, kind of the operands, k, instruction)
    "mma m16n8k16 f16": (4, 2, "f16", 16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"),
    "mma m16n8k16 bf16": (4, 2, "bf16", 16, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"),
    "mma m16n8k8 tf32": (4, 2, "tf32", 8, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"),
}
SUM_ROOM = 2.0**-18
"""Error of a sum of products over the sum of their sizes: matrix units truncate."""


@dataclass(frozen=True)
class Finding:
    """One comparison: `worst` over `allowed` above 1 is wrong."""

    name: str
    worst: float
    allowed: float

    @property
    def good(self) -> bool:
        """Whether both agree."""
        return self.worst <= self.allowed


def comparisons(place: Any) -> Iterator[tuple[str, Callable[[], Finding]]]:
    """Name of each comparison, and what does it."""
    for text, ulps in ULPS.items():
        yield text, lambda text=text, ulps=ulps: _function(place, text, ulps)
    for text in EXACT:
        yield text, lambda text=text: _function(place, text, 0)
    for name in FRAGMENTS:
        yield name, lambda name=name: _fragment(place, name)
    for transposed in (False, True):
        name = "ldmatrix x4" + " transposed" * transposed
        yield name, lambda name=name, t=transposed: _rows_of_matrix(place, name, t)
    for mode in ("bfly", "down", "up", "idx"):
        yield f"shfl {mode}", lambda mode=mode: _shuffle(place, mode)
    from kernels_by_hand import KERNELS

    for name in KERNELS:
        yield f"kernel {name}", lambda name=name: _by_hand(place, name)


def _host(text: str, name: str, arch: str) -> Any:
    from redfuser.runtime.cuda.host import HostModule

    return HostModule(text, arch).kernel(name)


def _both(place: Any, text: str, name: str, grid: int, block: int, given: list[Any], out: Any) -> tuple[Any, Any]:
    """The output on the host executor and on the place."""
    from redfuser.runtime.cuda.host import In, Out

    found = []
    for kernel in (_host(text, name, place.arch), place.kernel(text, name)):
        to = np.empty_like(out)
        kernel.launch(grid, block, [*map(In, given), Out(to)])
        found.append(to)
    return found[0], found[1]


def _function(place: Any, instruction: str, ulps: int) -> Finding:
    """An instruction of one operand, on numbers of all sizes and on special ones."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal(COUNT) * 2.0 ** rng.integers(-60, 60, COUNT)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5]
    x = np.concatenate([rng.standard_normal(COUNT), x, special]).astype(np.float32)
    narrow = instruction.startswith("cvt.rn")
    kind, letter, back = ("unsigned short", "h", "y") if narrow else ("float", "f", "__float_as_uint(y)")
    if instruction.startswith("cvt.rna"):
        kind, letter, back = "unsigned", "r", "y & 0xffffe000u"  # the rest of the word is not said
    operands = "%0, %1, %1" if instruction.startswith("div") else "%0, %1"
    text = (f'extern "C" __global__ void one(const float* x, unsigned* out) {{\n'
            f"  const int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= {len(x)}) return;\n  {kind} y;\n"
            f'  asm("{instruction} {operands};" : "={letter}"(y) : "f"(x[i]));\n  out[i] = {back};\n}}\n')
    a, b = _both(place, text, "one", -(-len(x) // 128), 128, [x], np.zeros(len(x), np.uint32))
    return Finding(instruction, _apart(a, b, narrow), ulps)


def _apart(a: Any, b: Any, narrow: bool) -> float:
    """The largest distance of two arrays of bits, NaN apart."""
    top, infinite = (0x7FFF, 0x7C00) if narrow else (0x7FFFFFFF, 0x7F800000)
    nan = [(bits & top) > infinite for bits in (a, b)]
    if not narrow and not np.array_equal(*nan):
        return float("inf")
    ordered = [np.where(bits > top, -(bits & top).astype(np.int64), bits.astype(np.int64)) for bits in (a, b)]
    return float(np.max(np.where(nan[0] & nan[1], 0, np.abs(ordered[0] - ordered[1]))))


def _fragment(place: Any, name: str) -> Finding:
    """One product of a warp, its operands given register by register."""
    left, right, kind, k, instruction = FRAGMENTS[name]
    rng = np.random.default_rng(2)
    a, b = (_registers(rng, kind, n) for n in (left, right))
    c = rng.standard_normal((32, 4)).astype(np.float32)
    given = [", ".join(f"%{i}" for i in range(first, first + n)) for first, n in ((4, left), (4 + left, right))]
    inputs = ", ".join(f'"r"({x}[t * {n} + {i}])' for x, n in (("a", left), ("b", right)) for i in range(n))
    text = ('extern "C" __global__ void one(const unsigned* a, const unsigned* b, const float* c, float* out) {\n'
            "  const int t = threadIdx.x;\n  float d[4];\n  for (int i = 0; i < 4; i++) d[i] = c[t * 4 + i];\n"
            f'  asm volatile("{instruction} {{%0, %1, %2, %3}}, {{{given[0]}}}, {{{given[1]}}}, {{%0, %1, %2, %3}};"\n'
            f'    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : {inputs});\n'
            "  for (int i = 0; i < 4; i++) out[t * 4 + i] = d[i];\n}\n")
    want, got = _both(place, text, "one", 1, 32, [a, b, c], c)
    # numbers are of size 1: a sum of k products and one addend has terms of k + 1 in all, about
    return Finding(name, float(np.max(np.abs(want - got))) / (k + 1), SUM_ROOM * 8)


def _registers(rng: np.random.Generator, kind: str, count: int) -> Any:
    if kind == "tf32":
        return rng.standard_normal((32, count)).astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    if kind == "f16":
        return rng.standard_normal((32, 2 * count)).astype(np.float16).view(np.uint32)
    bits = rng.standard_normal((32, 2 * count)).astype(np.float32).view(np.uint32) >> 16
    return np.ascontiguousarray(bits.astype(np.uint16)).view(np.uint32)


def _rows_of_matrix(place: Any, name: str, transposed: bool) -> Finding:
    """Four matrices from shared memory to fragments."""
    x = np.random.default_rng(3).integers(0, 1 << 16, 32 * 8).astype(np.uint16)
    kind = ".trans" if transposed else ""
    text = ('extern "C" __global__ void one(const unsigned short* x, unsigned* out) {\n'
            "  __shared__ __align__(16) unsigned short held[32 * 8];\n  const int t = threadIdx.x;\n"
            "  for (int i = 0; i < 8; i++) held[t * 8 + i] = x[t * 8 + i];\n  __syncwarp();\n  unsigned r[4];\n"
            f'  asm volatile("ldmatrix.sync.aligned.m8n8.x4{kind}.shared.b16 {{%0, %1, %2, %3}}, [%4];"\n'
            '    : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])\n'
            '    : "r"((unsigned)__cvta_generic_to_shared(held + t * 8)));\n'
            "  for (int i = 0; i < 4; i++) out[t * 4 + i] = r[i];\n}\n")
    want, got = _both(place, text, "one", 1, 32, [x], np.zeros(128, np.uint32))
    return Finding(name, float(np.count_nonzero(want != got)), 0)


def _shuffle(place: Any, mode: str) -> Finding:
    """Every distance, of whole warps and of teams of eight lanes."""
    call = {"bfly": "__shfl_xor_sync", "down": "__shfl_down_sync", "up": "__shfl_up_sync", "idx": "__shfl_sync"}[mode]
    x = np.random.default_rng(4).integers(0, 1 << 32, 32).astype(np.uint32)
    text = ('extern "C" __global__ void one(const unsigned* x, unsigned* out) {\n  const int t = threadIdx.x;\n'
            "  const unsigned mine = x[t], team = 0xffu << t / 8 * 8;\n"
            f"  for (int s = 0; s < 32; s++) out[s * 32 + t] = {call}(0xffffffffu, mine, s);\n"
            f"  for (int s = 0; s < 8; s++) out[(32 + s) * 32 + t] = {call}(team, mine, s, 8);\n}}\n")
    want, got = _both(place, text, "one", 1, 32, [x], np.zeros(40 * 32, np.uint32))
    return Finding(f"shfl {mode}", float(np.count_nonzero(want != got)), 0)


def _by_hand(place: Any, name: str) -> Finding:
    """A kernel of tests/cuda against its definition."""
    from kernels_by_hand import KERNELS

    kernel = KERNELS[name]
    return Finding(f"kernel {name}", float(kernel.run(place.kernel(kernel.text, name), 0)), 1)
