"""Occupancy: known values of CUDA's calculator, and CUDA's own header where a wheel of NVIDIA has brought it."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from redfuser.extract.gpu import Gpu
from redfuser.extract.occupancy import LIMITS, occupancy

THREADS, REGISTERS = (32, 96, 128, 256, 384, 512, 768, 1024, 1056), (0, 16, 32, 33, 40, 64, 72, 128, 168, 255)
SHARED = (0, 1, 1024, 16384, 48 << 10, 99 << 10, 100 << 10, 163 << 10, 227 << 10, 228 << 10)


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "blocks", "limits"),
    [
        (80, 256, 32, 0, 8, ("warps", "registers")),
        (80, 128, 128, 0, 4, ("registers",)),
        (80, 32, 16, 0, 32, ("blocks",)),
        (86, 256, 40, 0, 6, ("warps", "registers")),
        (86, 32, 16, 0, 16, ("blocks",)),
        (89, 32, 16, 0, 24, ("blocks",)),
        (90, 1024, 64, 0, 1, ("registers",)),
        (90, 128, 32, 100 << 10, 2, ("shared memory",)),
        (100, 128, 32, 227 << 10, 1, ("shared memory",)),
        (120, 1024, 32, 0, 1, ("warps",)),
        (80, 1024, 65, 0, 0, ("registers",)),
        (86, 128, 32, 100 << 10, 0, ("shared memory",)),
        (90, 1056, 32, 0, 0, ("warps",)),
    ],
)
def test_known_values(capability, threads, registers, shared, blocks, limits):
    found = occupancy(capability, threads, registers, shared)
    assert (found.blocks, found.limits) == (blocks, limits)
    assert found.warps == blocks * -(-threads // 32)


def test_it_reads_well():
    assert str(occupancy(80, 128, 121, 0)) == "4 blocks, 16 of 64 warps (25%), limited by registers"
    assert occupancy(80, 128, 121, 0).share == 0.25


def test_an_unknown_capability_names_the_known_ones():
    with pytest.raises(ValueError, match=r"no limits are known for compute capability 7\.0.*sm_80, sm_86"):
        occupancy(70, 128, 32, 0)


def test_devices_agree_with_their_limits():
    for capability, limits in LIMITS.items():
        assert Gpu.of(f"sm_{capability}").shared == limits.block_shared < limits.shared


PROGRAM = r"""
#include <stdio.h>
#include <stddef.h>
#include "cuda_occupancy.h"
int main(void) {
  int capability, warps, shared, block_shared, threads, registers, bytes;
  while (scanf("%d %d %d %d", &capability, &warps, &shared, &block_shared) == 4 &&
         scanf("%d %d %d", &threads, &registers, &bytes) == 3) {
    cudaOccDeviceProp d;
    cudaOccFuncAttributes f;
    cudaOccDeviceState s;
    cudaOccResult r;
    d.computeMajor = capability / 10; d.computeMinor = capability % 10;
    d.maxThreadsPerBlock = 1024; d.maxThreadsPerMultiprocessor = warps * 32;
    d.regsPerBlock = d.regsPerMultiprocessor = 65536; d.warpSize = 32;
    d.sharedMemPerBlock = 48 << 10; d.sharedMemPerBlockOptin = block_shared; d.sharedMemPerMultiprocessor = shared;
    d.reservedSharedMemPerBlock = 1024; d.numSms = 1;
    f.maxThreadsPerBlock = 1024; f.numRegs = registers; f.maxDynamicSharedSizeBytes = bytes;
    f.partitionedGCConfig = PARTITIONED_GC_OFF; f.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
    s.carveoutConfig = 100;
    cudaOccError e = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &d, &f, &s, threads, bytes);
    printf("%d\n", e == CUDA_OCC_SUCCESS ? r.activeBlocksPerMultiprocessor : -(int)e);
  }
}
"""


def test_the_formula_is_that_of_cuda(tmp_path, cxx):
    """On every combination of some thousand kernels and all compute capabilities."""
    found = [p for root in sys.path for p in Path(root or ".").glob("nvidia/cu*/include/cuda_occupancy.h")]
    if not found:
        pytest.skip("cuda_occupancy.h is not here: it comes with redfuser[cuda-host]")
    (tmp_path / "occupancy.cpp").write_text(PROGRAM)
    program = tmp_path / "occupancy"
    subprocess.run([*cxx.command, "-w", f"-I{found[0].parent}", str(tmp_path / "occupancy.cpp"), "-o", str(program)],
                   check=True)
    cases = list(itertools.product(LIMITS, THREADS, REGISTERS, SHARED))
    text = "\n".join(f"{c} {LIMITS[c].warps} {LIMITS[c].shared} {LIMITS[c].block_shared} {t} {r} {s}"
                     for c, t, r, s in cases)
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    for case, blocks in zip(cases, map(int, done.stdout.split()), strict=True):
        assert occupancy(*case).blocks == blocks, case
