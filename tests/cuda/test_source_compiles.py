"""`redfuser source --target cuda` prints a text that stands by itself: NVRTC and nvcc compile it without any help."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import redfuser as rf
from redfuser.runtime.cuda import nvrtc
from redfuser.runtime.cuda.errors import CudaCompileError

ARCH = "sm_90a"


def normalised(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def best(x):
    return rf.topk(normalised(x), 8)


def spread(x):
    return x.var(axis=0)


def quantised(x):
    largest = np.abs(x).max(axis=-1, keepdims=True)
    return np.rint(x / largest * 127).astype("int8"), largest


CASES = {
    "short rows": (normalised, (512, 64), "float32"),
    "split rows": (normalised, (4, 1 << 20), "float32"),
    "halves": (normalised, (64, 1000), "float16"),
    "bfloat16": (normalised, (64, 1000), "bfloat16"),
    "lists": (best, (512, 64), "float32"),
    "columns": (spread, (4096, 1024), "float32"),
    "integers": (quantised, (64, 4096), "float32"),
    "doubles": (normalised, (64, 1000), "float64"),
}


@lru_cache(maxsize=16)
def text(name: str) -> str:
    fn, shape, dtype = CASES[name]
    return rf.fuse(fn).lower(rf.spec(shape, dtype)).source("cuda", arch=ARCH)


def bare_compile(source: str) -> str:
    """NVRTC's log of a compilation with nothing but the architecture: no header path, no language option."""
    return nvrtc.find_nvrtc().compile(source, [f"-arch={ARCH}"], "PTX")[1]


@pytest.mark.parametrize("name", CASES)
def test_nvrtc_needs_only_the_architecture(host, name):
    assert bare_compile(text(name)) == ""


def test_what_does_not_compile_is_seen(host):
    with pytest.raises(CudaCompileError, match="undefined"):
        bare_compile("__global__ void f(int* x) { *x = y; }")


def nvcc() -> str | None:
    """NVIDIA's compiler: of the toolkit, or of a wheel in this environment."""
    wheels = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    return shutil.which("nvcc") or next((str(p) for p in sorted(wheels.glob("cu*/bin/nvcc"))), None)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["-cubin", "-ptx"])
def test_nvcc_compiles_it_without_a_warning(tmp_path, kind, name):
    compiler = nvcc()
    if compiler is None:
        pytest.skip("no nvcc: neither on PATH nor from the wheels nvidia-cuda-nvcc, nvidia-cuda-crt, nvidia-nvvm")
    source = tmp_path / "a.cu"
    source.write_text(text(name))
    command = [compiler, f"-arch={ARCH}", kind, "--Werror", "all-warnings", "-o", str(tmp_path / "a.out"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_a_text_tells_how_to_launch_it():
    source = text("lists")
    for said in ("best_phase0: each of |i| tasks by 8 lanes of a warp; only when |n| <= 64.", "block   128 threads",
                 "bytes of dynamic shared memory", "NAME_stride_D", "for all n in 0 .. |n|"):
        assert said in source
    split = text("split rows")
    for said in ("correction: what sum0 depends on has moved", "merge of the states of all parts",
                 "sum0 before this block"):
        assert said in split
