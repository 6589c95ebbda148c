"""The CuPy back end of launches, against a stand-in for CuPy."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from standin_cupy import Cuda

from redfuser.runtime.cuda.cupy_launch import CupyModule
from redfuser.runtime.cuda.errors import CudaCompileError, LaunchError, NoDevice, UnsupportedArch
from redfuser.runtime.cuda.launch import Function, Parameter, array, pack, scalar

PARAMETERS = [
    array("x", np.float32),
    scalar("n", np.int32),
    scalar("a", np.float32),
    Parameter("map", np.dtype("V128"), align=64),
]


class Recorded:
    """A kernel that writes down how it is called."""

    def __init__(self, machine: Cuda) -> None:
        self.machine, self.shared_size_bytes, self.max_dynamic_shared_size_bytes = machine, 1024, 48128

    def __call__(self, grid, block, args, shared_mem=0) -> None:
        allowed = self.max_dynamic_shared_size_bytes
        self.machine.log.append((grid, block, args, shared_mem, allowed, self.machine.stream))


def machine_with(**settings: Any) -> Cuda:
    """A machine whose kernels do not run."""
    machine = Cuda(**settings)

    class RawModule:
        def __init__(self, code: str, options: tuple[str, ...]) -> None:
            machine.log.append(options)
            self.code = code

        def get_function(self, name: str) -> Recorded:
            if name not in self.code:
                raise machine.cupy.cuda.driver.CUDADriverError("named symbol not found")
            return Recorded(machine)

    machine.cupy.RawModule = RawModule
    return machine


@pytest.fixture
def machine(monkeypatch) -> Cuda:
    found = machine_with()
    monkeypatch.setitem(sys.modules, "cupy", found.cupy)
    return found


def test_arguments_reach_the_kernel_by_their_bits(machine):
    function: Function = CupyModule("kernel", "sm_90a").function("kernel", PARAMETERS)
    packed = pack(PARAMETERS, [1 << 40, -2, 1.5, bytes(range(128))])
    function.launch((2, 1, 1), (128, 1, 1), 1000, packed, stream=77)
    options, (grid, block, args, shared, allowed, stream) = machine.log
    assert options == ("-std=c++17", "-arch=sm_90a")
    assert (stream, machine.stream) == (77, 0)
    assert (grid, block, shared, allowed) == ((2, 1, 1), (128, 1, 1), 1000, 48128)
    assert args[0] == np.uint64(1 << 40)
    assert args[1].dtype == np.uint32
    assert args[1].view(np.int32) == -2
    assert args[2].view(np.float32) == 1.5
    assert (args[3].dtype.itemsize, args[3].size, args[3].tobytes()) == (128, 1, bytes(range(128)))


def test_more_shared_memory_is_asked_for(machine):
    function = CupyModule("kernel").function("kernel", [])
    function.launch((1, 1, 1), (32, 1, 1), 100_000, b"")
    assert machine.log[-1][3:5] == (100_000, 100_000)
    with pytest.raises(LaunchError, match="gives a block 232448"):
        function.launch((1, 1, 1), (32, 1, 1), 232_000, b"")
    with pytest.raises(LaunchError, match="0 bytes of arguments"):
        function.launch((1, 1, 1), (32, 1, 1), 0, b"1")


def test_another_device_is_refused(machine):
    function = CupyModule("kernel").function("kernel", [])
    machine.device = 1
    with pytest.raises(LaunchError, match="compiled for device 0, and device 1"):
        function.launch((1, 1, 1), (32, 1, 1), 0, b"")


@pytest.mark.parametrize(("arch", "capability"), [("sm_90a", "100"), ("sm_90", "80"), ("sm_100", "90")])
def test_the_architecture_must_fit(monkeypatch, arch, capability):
    monkeypatch.setitem(sys.modules, "cupy", machine_with(capability=capability).cupy)
    with pytest.raises(UnsupportedArch, match=f"for {arch}, the device is sm_{capability}"):
        CupyModule("kernel", arch).function("kernel", [])


def test_what_the_driver_refuses(machine):
    with pytest.raises(CudaCompileError, match="cannot load kernel other"):
        CupyModule("kernel").function("other", [])


def test_no_driver_and_no_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", machine_with(driver=False).cupy)
    with pytest.raises(NoDevice, match=r"no GPU can be used.*redfuser\[cuda13\]"):
        CupyModule("kernel").function("kernel", [])
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(NoDevice, match=r"redfuser\[cuda13\]"):
        CupyModule("kernel")
