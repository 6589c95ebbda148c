"""The static report of CUDA kernels: what it holds, and what it says where a tool is missing."""

from __future__ import annotations

import json

import numpy as np
import pytest

import redfuser as rf
from redfuser.errors import CompileError
from redfuser.extract.device import Device
from redfuser.extract.roofline import predict, ridge, work_on
from redfuser.runtime.cuda import machine_code as module
from redfuser.runtime.cuda.errors import NoNvrtc


def normalised(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


SPEC = rf.spec((4096, 200), "float32")


@pytest.fixture(scope="module")
def lowered():
    return rf.fuse(normalised, target="cuda-host").lower(SPEC)


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    module._compiled.cache_clear()
    module._instructions.cache_clear()


def test_a_report_of_every_launch(host, lowered):
    (found,) = lowered.report("cuda", arch="h100")
    assert (found.name, found.arch) == ("normalised", "sm_90")
    assert found.bytes == 2 * 4096 * 200 * 4
    whole, streamed = found.launches
    assert (whole.when, whole.runs, streamed.runs) == ("|n| <= 256", True, False)
    assert (whole.tasks, whole.teams, whole.threads, whole.shared) == (4096, 4, 128, 0)
    assert whole.resources is not None
    assert whole.resources.registers > 16
    assert whole.occupancy is not None
    assert whole.occupancy.most == 64
    assert whole.instructions["SHFL"] >= 10, "a maximum and a sum, five exchanges each"
    assert "BAR" not in whole.instructions
    assert streamed.instructions["BAR"] == 2
    assert streamed.resources is not None
    assert streamed.resources.shared == 2 * 8 * 8
    assert not found.notes


def test_its_times_are_those_of_the_cost_model(lowered):
    h100 = Device.load("h100")
    work = work_on(h100, lowered.fusion[0], lowered.sizes)
    (found,) = lowered.report(arch="h100")
    assert found.prediction == predict(work, h100)
    assert found.prediction.bound == "memory"
    assert found.flops == work.flops > work.operations["fma"]
    assert found.ridge == ridge(h100) == pytest.approx(66.9e3 / 3350)


def test_matrix_units_that_a_kernel_does_not_use_predict_nothing():
    f = rf.fuse(lambda a, b: (np.abs(a) @ b).max(axis=-1), target="cuda-host")  # computed row by row
    half = rf.spec((512, 512), "float16")
    (found,) = f.lower(half, half).report("cuda", arch="a100")
    assert "matrix units" not in found.prediction.times
    assert found.ridge == pytest.approx(19.5e3 / 2039)


def test_explain_holds_it(host):
    f = rf.fuse(normalised, target="cuda-host")
    report = f.explain(SPEC, device="a100")
    assert [k.arch for k in report.cuda] == ["sm_80"]
    assert "CUDA kernel normalised for sm_80" in str(report)
    assert "occupancy" in str(report)
    assert "on this machine" not in str(report).split("kernel normalised")[1]
    data = json.loads(json.dumps(report.to_dict()))["cuda"][0]
    assert data["launches"][0]["resources"]["spill_stores"] == 0
    assert 0 < data["launches"][0]["occupancy"]["share"] <= 1
    assert rf.fuse(normalised).explain(SPEC).cuda == ()


def test_without_the_compiler_it_says_how_to_get_it(monkeypatch, lowered):
    def missing(*args, **kwargs):
        raise NoNvrtc("NVIDIA's run-time compiler is not here\n; pip install 'redfuser[cuda-host]'")

    monkeypatch.setattr(module, "compile_cuda", missing)
    (found,) = lowered.report("cuda", arch="sm_86")
    assert found.notes == (("registers and instructions are not known: NVIDIA's run-time compiler is not here ; pip "
                           "install 'redfuser[cuda-host]'"),)
    assert found.launches[0].resources is None
    assert found.launches[0].occupancy is None
    assert "0 bytes dynamic" in str(found)
    assert "registers    " not in str(found)
    assert found.prediction.seconds > 0


@pytest.mark.parametrize("error", [NoNvrtc("nvdisasm is not here"), CompileError("nvdisasm does not read the CUBIN")])
def test_without_the_disassembler_registers_are_there(monkeypatch, host, lowered, error):
    def missing(*args):
        raise error

    monkeypatch.setattr(module, "instruction_mix", missing)
    (found,) = lowered.report("cuda", arch="sm_86")
    assert found.notes[0] == f"instructions are not known: {error}"
    assert found.launches[0].resources is not None
    assert found.launches[0].instructions == {}


def test_an_architecture_without_compiler_device_or_limits(host, lowered):
    (found,) = lowered.report("cuda", arch="sm_103")
    assert found.notes == ("no device of sm_103 is known: times are for b200 (sm_100)",
                           "occupancy is not known: no limits of sm_103 are")
    with pytest.raises(ValueError, match="arch='z80' is no GPU"):
        lowered.report("cuda", arch="z80")
    with pytest.raises(ValueError, match="no report for language 'c'"):
        lowered.report("c")
