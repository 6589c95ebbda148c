"""The script for a real device, on the host executor: each of its parts runs, and a missing GPU is said."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from standin_cupy import Cuda

import redfuser as rf
from redfuser.extract.gpu import Gpu

SCRIPT = Path(__file__).resolve().parent.parent.parent / "benchmarks" / "gpu.py"
ONLY = r"^(softmax top-8|mma m16n8k16 f16|ldmatrix x4|shfl down|ex2.*|cvt.rn.f16.f32|kernel exchange|policy_variance)$"


@pytest.fixture
def script(monkeypatch):
    """The names of the script."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return runpy.run_path(str(SCRIPT))


def run(*options: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *options]
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def test_a_dry_run_goes_through_all_parts(host, tmp_path):
    file = tmp_path / "gpu.json"
    done = run("--dry-run", "--only", ONLY, "--seconds", "100000", "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(file.read_text())
    assert [h["name"] for h in result["helpers"] if h["ok"]] == [
        "ex2.approx.ftz.f32", "cvt.rn.f16.f32", "mma m16n8k16 f16", "ldmatrix x4", "shfl down", "kernel exchange"]
    assert [k["case"] for k in result["kernels"]] == ["softmax top-8"]
    assert {s["status"] for s in result["sanitizer"].values()} == {0}
    assert [c["entry"] for c in result["catalogue"]] == ["policy_variance"]
    rows = result["timings"]
    assert {r["case"] for r in rows} == {"softmax top-8"}
    assert all(r["times"] == {} and r["note"] == "dry run, no times" for r in rows)
    assert result["problems"] == result["left out"] == []
    assert "| softmax top-8 |" in done.stdout


def test_work_without_time_is_left_out_and_said(host, tmp_path):
    file = tmp_path / "gpu.json"
    done = run("--dry-run", "--seconds", "0", "--json", str(file))
    result = json.loads(file.read_text())
    assert done.returncode == 0
    assert not result["helpers"] + result["kernels"] + result["timings"]
    assert any(text.startswith("timings: softmax 4096x4096") for text in result["left out"])
    assert "left out for time" in done.stdout


def test_no_gpu_is_said():
    done = run(env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    assert done.returncode == 3
    assert "--dry-run runs it without a GPU" in done.stderr


def test_infinities_and_nan_stand_where_the_reference_has_them(script):
    distance, wanted = script["_distance"], np.array([1.0, np.inf, np.nan, -4.0])
    assert distance(wanted.astype("float32"), wanted) == 0
    assert distance(np.array([1.0, np.inf, np.nan, -3.0]), wanted) == 0.25
    assert distance(np.array([np.nan, -np.inf]), np.array([np.nan, -np.inf])) == 0
    for found in ([np.nan] * 4, [1.0, -np.inf, np.nan, -4.0], [1.0, np.inf, 0.0, -4.0], [np.inf, np.inf, np.nan, -4.0]):
        assert distance(np.array(found), wanted) == np.inf
    assert distance(np.full(3, np.nan), np.ones(3)) == np.inf
    assert distance(np.ones(3), np.full(3, np.nan)) == np.inf
    assert distance(np.ones(1), np.ones(3)) == np.inf


def test_the_sanitizer_sees_a_kernel_on_matrix_units(script):
    seen = [c for c in script["cases"]() if re.search(script["SAMPLE"], c.name)]
    rng = np.random.default_rng(0)
    halves = [c for c in seen if c.kind == "matrix" and c.arguments(rng, c.small[0])[0].dtype == np.float16]
    assert halves
    for case in halves:
        fused: Any = rf.fuse(case.fn, target="cuda-host")
        assert "mma" in fused.lower(*case.arguments(rng, case.small[0])).source("cuda", arch="sm_80")
    assert {"memcheck", "racecheck", "synccheck", "initcheck"} <= set(script["TOOLS"])


@pytest.mark.parametrize("capability", [80, 90, 100, 120])
def test_text_is_compiled_for_the_architecture_of_a_call(script, monkeypatch, capability):
    machine = Cuda(capability=str(capability))
    runtime = machine.cupy.cuda.runtime
    runtime.getDeviceProperties = lambda number: {"name": b"Stand-in", "l2CacheSize": 1 << 20}
    runtime.memGetInfo = lambda: (1 << 30, 1 << 31)
    monkeypatch.setitem(sys.modules, "cupy", machine.cupy)
    assert script["DevicePlace"]().arch == Gpu.found(capability, 2, 1 << 17, 1 << 20).arch
