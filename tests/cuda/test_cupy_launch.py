"""The CuPy back end, against a stand-in for CuPy; with the real one, that a module can be built without a driver."""

from __future__ import annotations

import contextlib
import sys
import types
from typing import Any

import numpy as np
import pytest

from redfuser.runtime.cuda import cupy_launch
from redfuser.runtime.cuda.cupy_launch import CupyModule
from redfuser.runtime.cuda.errors import CudaCompileError, LaunchError, NoDevice, UnsupportedArch
from redfuser.runtime.cuda.launch import Function, Parameter, array, pack, scalar

PARAMETERS = [
    array("x", np.float32),
    scalar("n", np.int32),
    scalar("a", np.float32),
    Parameter("map", np.dtype("V128"), align=64),
]


class FakeError(RuntimeError):
    pass


class FakeFunction:
    def __init__(self, log: list[Any]) -> None:
        self.log, self.shared_size_bytes, self.max_dynamic_shared_size_bytes = log, 1024, 49152

    def __call__(self, grid, block, args, shared_mem=0) -> None:
        self.log.append((grid, block, args, shared_mem, self.max_dynamic_shared_size_bytes))


def fake_cupy(log: list[Any], *, capability: str = "90", driver: bool = True) -> Any:
    cupy = types.ModuleType("cupy")

    class Device:
        def __init__(self) -> None:
            if not driver:
                raise FakeError("cudaErrorInsufficientDriver")
            self.attributes = {"MaxSharedMemoryPerBlockOptin": 232448}
            self.id, self.compute_capability = cupy.device, capability

    class Stream:
        def __init__(self, handle: int) -> None:
            self.handle = handle

        def __enter__(self) -> None:
            log.append(("stream", self.handle))

        def __exit__(self, *_: object) -> None:
            log.append("end of stream")

    class RawModule:
        def __init__(self, code: str, options: tuple[str, ...]) -> None:
            log.append(options)
            self.code = code

        def get_function(self, name: str) -> FakeFunction:
            if name not in self.code:
                raise FakeError("named symbol not found")
            return FakeFunction(log)

    cupy.device = 0
    cupy.RawModule = RawModule
    cupy.cuda = types.SimpleNamespace(
        Device=Device, ExternalStream=Stream,
        runtime=types.SimpleNamespace(CUDARuntimeError=FakeError),
        driver=types.SimpleNamespace(CUDADriverError=FakeError),
        compiler=types.SimpleNamespace(CompileException=type("CompileException", (Exception,), {})),
    )
    return cupy


@pytest.fixture
def log(monkeypatch) -> list[Any]:
    seen: list[Any] = []
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(seen))
    monkeypatch.setattr(cupy_launch, "torch_stream", lambda: None)
    return seen


def test_arguments_reach_the_kernel_by_their_bits(log):
    function: Function = CupyModule("kernel", "sm_90a").function("kernel", PARAMETERS)
    packed = pack(PARAMETERS, [1 << 40, -2, 1.5, bytes(range(128))])
    function.launch((2, 1, 1), (128, 1, 1), 1000, packed, stream=77)
    options, entered, (grid, block, args, shared, allowed), left = log
    assert options == ("-std=c++17", "-arch=sm_90a")
    assert (entered, left) == (("stream", 77), "end of stream")
    assert (grid, block, shared, allowed) == ((2, 1, 1), (128, 1, 1), 1000, 49152)
    assert args[0] == np.uint64(1 << 40)
    assert args[1].dtype == np.uint32
    assert args[1].view(np.int32) == -2
    assert args[2].view(np.float32) == 1.5
    assert (args[3].dtype.itemsize, args[3].size, args[3].tobytes()) == (128, 1, bytes(range(128)))


def test_more_shared_memory_is_asked_for(log):
    function = CupyModule("kernel").function("kernel", [])
    function.launch((1, 1, 1), (32, 1, 1), 100_000, b"")
    assert log[-1][3:] == (100_000, 100_000)
    with pytest.raises(LaunchError, match="gives a block 232448"):
        function.launch((1, 1, 1), (32, 1, 1), 232_000, b"")
    with pytest.raises(LaunchError, match="0 bytes of arguments"):
        function.launch((1, 1, 1), (32, 1, 1), 0, b"1")


def test_another_device_is_refused(log):
    function = CupyModule("kernel").function("kernel", [])
    sys.modules["cupy"].device = 1
    with pytest.raises(LaunchError, match="compiled for device 0, and device 1"):
        function.launch((1, 1, 1), (32, 1, 1), 0, b"")


@pytest.mark.parametrize(("arch", "capability"), [("sm_90a", "100"), ("sm_90", "80"), ("sm_100", "90")])
def test_the_architecture_must_fit(monkeypatch, arch, capability):
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy([], capability=capability))
    with pytest.raises(UnsupportedArch, match=f"for {arch}, the device is sm_{capability}"):
        CupyModule("kernel", arch).function("kernel", [])


def test_what_the_driver_refuses(log):
    with pytest.raises(CudaCompileError, match="cannot load kernel other"):
        CupyModule("kernel").function("other", [])


def test_no_driver_and_no_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy([], driver=False))
    with pytest.raises(NoDevice, match=r"no GPU can be used.*redfuser\[cuda13\]"):
        CupyModule("kernel").function("kernel", [])
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(NoDevice, match=r"redfuser\[cuda13\]"):
        CupyModule("kernel")


def test_the_stream_is_torchs_where_torch_has_a_device(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert cupy_launch.torch_stream() is None
    stream = types.SimpleNamespace(cuda_stream=5)
    cuda = types.SimpleNamespace(is_available=lambda: True, current_stream=lambda: stream)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    assert cupy_launch.torch_stream() == 5


def test_the_real_cupy_builds_a_module():
    pytest.importorskip("cupy", reason="CuPy is not installed: pip install 'redfuser[cuda13]'")
    module = CupyModule('extern "C" __global__ void k(float* x) { x[0] = 1; }', "sm_90a")
    with contextlib.suppress(NoDevice, UnsupportedArch):  # that far it gets without a driver, or on another device
        module.function("k", [array("x", np.float32)])
