"""Mistakes planted in the kernels by hand: each must be found, or give a wrong result."""

from __future__ import annotations

from dataclasses import dataclass

from kernels_by_hand import KERNELS

BARRIER = "__syncthreads();"
WRONG = "wrong result"


@dataclass(frozen=True)
class Fault:
    """`old` becomes `new` at its only place; `found` is the kind of finding, or WRONG."""

    kernel: str
    title: str
    old: str
    new: str
    found: str

    @property
    def text(self) -> str:
        source = KERNELS[self.kernel].text
        assert source.count(self.old) == 1, (self.kernel, self.title, source.count(self.old))
        return source.replace(self.old, self.new)


def _barriers(kernel: str, *notes: str, found: str = "race") -> list[Fault]:
    return [Fault(kernel, f"no barrier: {note}", f"{BARRIER}  // {note}\n", "\n", found) for note in notes]


SOFTMAX_WARP = [
    Fault(
        "softmax_warp",
        "one vector too many",
        "n / 4; i += 32) {\n        const float4 v = in[i];\n        const float top",
        "n / 4 + 1; i += 32) {\n        const float4 v = in[i];\n        const float top",
        "out-of-bounds",
    ),
    Fault("softmax_warp", "half of the shuffles", "o = 16", "o = 8", WRONG),
    Fault("softmax_warp", "no guard of the last rows", "if (row >= rows) return;", "", "out-of-bounds"),
    Fault(
        "softmax_warp",
        "misaligned vector load",
        "reinterpret_cast<const float4*>(x +",
        "reinterpret_cast<const float4*>(x + 1 +",
        "misaligned",
    ),
    Fault(
        "softmax_warp", "shuffle in half of the lanes", "for (int o = 16", "if (lane < 16) for (int o = 16", "deadlock"
    ),
    Fault("softmax_warp", "no correction", "l = l * __expf(m - top) + __expf(v.x", "l = l + __expf(v.x", WRONG),
    Fault(
        "softmax_warp",
        "the result goes to the input",
        "out[i] = make",
        "const_cast<float4*>(in)[i] = make",
        "const-write",
    ),
    Fault(
        "softmax_warp",
        "half of the stores",
        "n / 4; i += 32) {\n        const float4 v = in[i];\n        out",
        "n / 4; i += 64) {\n        const float4 v = in[i];\n        out",
        "unwritten",
    ),
    Fault(
        "softmax_warp",
        "shuffle with a lane that has ended",
        "if (row >= rows) return;",
        "if (row >= rows || lane == 9) return;",
        "divergent-collective",
    ),
]
SOFTMAX_BLOCK = [
    *_barriers("softmax_block", "maxima", "maximum", "sum", found="uninitialised"),
    *_barriers("softmax_block", "sums"),
    Fault(
        "softmax_block",
        "all warps in one place",
        "if (lane == 0) part[warp] = m;",
        "if (lane == 0) part[0] = m;",
        "race",
    ),
    Fault(
        "softmax_block",
        "barrier in one warp",
        "float v = lane < 8 ? part[lane] : 0;",
        "float v = lane < 8 ? part[lane] : 0; __syncthreads();",
        "divergent-barrier",
    ),
    Fault(
        "softmax_block",
        "more warps than there are",
        "float v = lane < 8 ? part[lane] : 0;",
        "float v = lane < 10 ? part[lane] : 0;",
        "uninitialised",
    ),
    Fault("softmax_block", "one element too many", "i < n; i += 256) m =", "i <= n; i += 256) m =", "out-of-bounds"),
    Fault(
        "softmax_block",
        "all blocks write one row",
        "float* out = y + (long long)blockIdx.x * n;",
        "float* out = y;",
        "race",
    ),
    Fault(
        "softmax_block",
        "one thread ends early",
        "float m = __int",
        "if (threadIdx.x == 31) return;\n    float m = __int",
        "deadlock",
    ),
    Fault("softmax_block", "the other total", "1 / total[1]", "1 / total[0]", WRONG),
    Fault("softmax_block", "the sum is not stored", "if (lane == 0) total[1] = v;", "", WRONG),
]
SPLIT_MERGE = [
    Fault("split_merge", "no fence before the ticket", "__threadfence();  // release", "", "race"),
    Fault("split_merge", "no fence behind the ticket", "__threadfence();  // acquire", "", "race"),
    *_barriers("split_merge", "warps", "ticket", found="uninitialised"),
    Fault("split_merge", "merged one part early", "== splits - 1", "== splits - 2", "unwritten"),
    Fault("split_merge", "never merged", "== splits - 1", "== splits", "unwritten"),
    Fault("split_merge", "ticket without an atomic", "atomicAdd(tickets + row, 1u)", "tickets[row]++", "race"),
    Fault("split_merge", "rows share their parts", "2 * (row * splits + blockIdx.x)", "2 * blockIdx.x", "race"),
    Fault("split_merge", "no end of the last part", "min(n, from + size)", "from + size", "out-of-bounds"),
    Fault(
        "split_merge", "maximum and sum exchanged", "sm[warp] = m; sl[warp] = l;", "sm[warp] = l; sl[warp] = m;", WRONG
    ),
]
PIPELINE = [
    Fault("pipeline", "no wait", "landed<1>();", "", "in-flight"),
    Fault("pipeline", "wait for too few", "landed<1>();", "landed<2>();", "in-flight"),
    Fault("pipeline", "no barrier", BARRIER, "", "uninitialised"),
    Fault("pipeline", "one stage less", "STAGES = 3", "STAGES = 2", "in-flight"),
    Fault("pipeline", "no clamp of rows", "inside = row0 + r < rows", "inside = true", "out-of-bounds"),
    Fault("pipeline", "no guard of rows", "if (t * ROWS + r < rows) sum", "sum", "out-of-bounds"),
    Fault("pipeline", "no wait at the end", "landed<0>();", "", "in-flight"),
    Fault("pipeline", "the next stage is read", "tiles + t % STAGES", "tiles + (t + 1) % STAGES", "in-flight"),
    Fault("pipeline", "no commit", "    }\n    commit();\n", "    }\n", "in-flight"),
    Fault("pipeline", "a stage beyond the memory", "(t + 2) % STAGES", "((t + 2) % STAGES + 1)", "out-of-bounds"),
    Fault(
        "pipeline",
        "copies of 16 bytes to 8-byte places",
        "tile + r * COLUMNS + c;",
        "tile + r * COLUMNS + c + 2;",
        "misaligned",
    ),
]
TILE = [
    Fault("tile", "no wait", "        landed();\n", "", "in-flight"),
    *_barriers("tile", "all landed"),
    *_barriers("tile", "used"),
    Fault("tile", "operands exchanged", "fa, fb[0], fb[1]", "fa, fb[1], fb[0]", WRONG),
    Fault("tile", "transposed rows", "m8n8.x4.shared", "m8n8.x4.trans.shared", WRONG),
    Fault(
        "tile",
        "another swizzle for the reader",
        "rows4(fa, place(left, warp * 16 + (lane & 15), kk * 2 + (lane >> 4)))",
        "rows4(fa, left + (warp * 16 + (lane & 15)) * 64 + (kk * 2 + (lane >> 4)) * 16)",
        WRONG,
    ),
    Fault(
        "tile",
        "a product without one lane",
        "multiply(sum[j], fa",
        "if (lane != 5) multiply(sum[j], fa",
        "divergent-collective",
    ),
    Fault("tile", "no guard of stores", "if (r < m) *rein", "*rein", "out-of-bounds"),
    Fault("tile", "no clamp of rows", "bytes = row0 + r < rows ? 16 : 0", "bytes = 16", "out-of-bounds"),
    Fault("tile", "one step less", "k0 < k;", "k0 < k - DEPTH;", WRONG),
    Fault("tile", "misaligned store of two", "(lane & 3) * 2) =", "(lane & 3) * 2 + 1) =", "misaligned"),
    Fault("tile", "rows exchanged", "(lane >> 2) + 8 * h", "(lane >> 2) + 8 * (1 - h)", WRONG),
    Fault("tile", "a warp's rows twice", "warp * 16 + (lane & 15)", "(warp & 2) * 16 + (lane & 15)", WRONG),
]
TRANSPOSE = [
    *_barriers("transpose", "tile", found="uninitialised"),
    Fault("transpose", "not transposed", "= tile[threadIdx.x][i]", "= tile[i][threadIdx.x]", "uninitialised"),
    Fault(
        "transpose",
        "no guard of columns",
        "if (r0 + i < rows && c < columns) tile",
        "if (r0 + i < rows) tile",
        "out-of-bounds",
    ),
    Fault("transpose", "no guard of stores", "if (c0 + i < columns && r < rows) y", "if (r < rows) y", "uninitialised"),
    Fault("transpose", "half of the rows", "for (int i = threadIdx.y; i < 32; i += 8)\n        if (r0",
          "for (int i = threadIdx.y; i < 32; i += 16)\n        if (r0", "uninitialised"),
]
HISTOGRAM = [
    *_barriers("histogram", "cleared", "counted"),
    Fault("histogram", "shared counts without atomics", "atomicAdd(own + labels[i], 1);", "own[labels[i]]++;", "race"),
    Fault("histogram", "counts without atomics", "atomicAdd(counts + i, own[i]);", "counts[i] += own[i];", "race"),
    Fault(
        "histogram",
        "the first bin is not cleared",
        "i = threadIdx.x; i < bins; i += 128) own",
        "i = threadIdx.x + 1; i < bins; i += 128) own",
        "uninitialised",
    ),
    Fault(
        "histogram",
        "maximum without an atomic",
        "atomicMax(most, largest);",
        "if (largest > *most) *most = largest;",
        "race",
    ),
    Fault(
        "histogram",
        "one bin too many",
        "i < bins; i += 128)\n        if",
        "i <= bins; i += 128)\n        if",
        "out-of-bounds",
    ),
]
SCAN = [
    *_barriers("scan", "warps"),
    *_barriers("scan", "offsets"),
    Fault("scan", "the wrong lane", "if (lane == 31) sums", "if (lane == 30) sums", WRONG),
    Fault("scan", "one warp too far", "v += sums[warp - 1]", "v += sums[warp]", WRONG),
    Fault(
        "scan",
        "shuffle under a condition",
        "const float left = __shfl_up_sync(0xffffffffu, v, o);\n        if (lane >= o) v += left;",
        "if (lane >= o) v += __shfl_up_sync(0xffffffffu, v, o);",
        "deadlock",
    ),
    Fault("scan", "warps that do not exist", "lane < blockDim.x / 32 ? sums[lane] : 0", "sums[lane]", "uninitialised"),
    Fault(
        "scan",
        "no guard",
        "i < n ? x[(long long)blockIdx.x * n + i] : 0",
        "x[(long long)blockIdx.x * n + i]",
        "out-of-bounds",
    ),
]
EXCHANGE = [
    Fault("exchange", "no order in the warp", "__syncwarp();  // written", "", "uninitialised"),
    Fault("exchange", "the producer does not arrive", "arrive(1, 64);", "", "deadlock"),
    Fault("exchange", "another count", "await(1, 64);", "await(1, 96);", "divergent-barrier"),
    Fault("exchange", "another barrier", "await(1, 64);", "await(2, 64);", "deadlock"),
    Fault(
        "exchange",
        "the producer arrives too early",
        "handed[lane + 32] = b;\n        arrive(1, 64);",
        "arrive(1, 64);\n        handed[lane + 32] = b;",
        "race",
    ),
    Fault(
        "exchange",
        "a thread that never ends",
        "__syncwarp();  // written",
        '__syncwarp(); if (threadIdx.x == 70) for (;;) asm volatile("" ::: "memory");',
        "runaway",
    ),
    Fault(
        "exchange",
        "lanes of the warp in two halves",
        "__syncwarp();  // written",
        "if (lane < 16) __syncwarp();",
        "race",
    ),
]

FAULTS = [*SOFTMAX_WARP, *SOFTMAX_BLOCK, *SPLIT_MERGE, *PIPELINE, *TILE, *TRANSPOSE, *HISTOGRAM, *SCAN, *EXCHANGE]
