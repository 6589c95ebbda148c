"""`target="cuda-host"`, and a seeded sample of the catalogue as CUDA."""

from __future__ import annotations

import numpy as np
import pytest

import redfuser as rf
from redfuser.errors import NoCompiler
from redfuser.testing import cuda
from redfuser.zoo import ENTRIES

SAMPLE = ("softmax_top2", "any_above_mean", "policy_variance", "peak_by_weight")


@pytest.mark.parametrize("name", SAMPLE)
def test_entries_of_the_catalogue(host, name):
    with np.errstate(all="ignore"):
        found = cuda.examine(ENTRIES[name], ("sm_80", "sm_90a"), lengths=(64, 17, 65, 300))
    assert found.problems == []
    assert found.runs >= 4
    assert all(used["registers"] <= 128 for kernels in found.kernels.values() for used in kernels.values())


def normalised(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_a_fused_function_runs_as_cuda(host, dtype):
    f = rf.fuse(normalised, target="cuda-host")
    x = np.random.default_rng(0).standard_normal((3, 50)).astype(dtype)
    tolerance = {"float32": 1e-6, "float16": 1e-3, "float64": 1e-14}[dtype]
    np.testing.assert_allclose(f(x), normalised(x.astype("float64")), atol=tolerance)
    np.testing.assert_allclose(f(x[:, ::2]), normalised(x[:, ::2].astype("float64")), atol=tolerance)
    assert f.stats.kernel_runs == 2
    assert "CUDA" in str(f.explain(x))


def test_tuning_makes_no_sense_on_the_host():
    with pytest.raises(rf.SettingError, match="say nothing of a GPU"):
        rf.fuse(normalised, target="cuda-host", tune=True)


def test_a_missing_compiler_is_named(monkeypatch):
    from redfuser.runtime.cuda import host as module

    def missing():
        raise NoCompiler("NVIDIA's run-time compiler is not here")

    monkeypatch.setattr(module, "find_nvrtc", missing)
    with pytest.raises(NoCompiler, match="run-time compiler is not here"):
        rf.fuse(normalised, target="cuda-host")(np.ones((2, 7), "float32"))
