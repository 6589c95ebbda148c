"""Where the GPU benchmark runs: a GPU by CuPy, or, for a dry run, the host executor. Both have the same methods."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import redfuser as rf
from redfuser.extract.gpu import arch_of

Call = Callable[[int], Any]
"""Runs one candidate on the buffers of this number."""
WARM = 3
LEAST_BATCH = 2e-4
"""Seconds of one timed batch: short kernels are called several times between two events."""
MOST_SETS = 64


class NoGpu(Exception):
    """No GPU can be used here; the text says why."""


class HostPlace:
    """The host executor: every line of the benchmark runs, nothing is timed."""

    dry = True
    sets = 2

    def __init__(self) -> None:
        self.about: dict[str, Any] = {"device": "host executor (dry run)", "python": platform.python_version()}
        self.arch = "sm_80"

    def array(self, a: Any) -> Any:
        """A host array in the memory of the place."""
        return a

    def host(self, a: Any) -> Any:
        """The array as one of NumPy."""
        return np.asarray(a)

    def tensor(self, torch: Any, a: Any) -> Any:
        """The array as a tensor of PyTorch, in the same memory."""
        return torch.from_numpy(a)

    def shifted(self, a: Any, number: int) -> Any:
        """Other contents for buffers of another number."""
        return np.roll(a, 997 * number, -1)

    def copies(self, nbytes: int) -> Call:
        """A copy that reads and writes `nbytes` in all."""
        half = max(16, nbytes // 2)
        pairs = [(np.ones(half, np.uint8), np.empty(half, np.uint8)) for _ in range(self.sets)]
        return lambda i: np.copyto(pairs[i][1], pairs[i][0])

    def buffers(self, nbytes: int) -> int:
        """How many sets of buffers of this size are used in turn."""
        return self.sets

    def fuse(self, fn: Any, **settings: Any) -> Any:
        """The function as a kernel of this place."""
        return rf.fuse(fn, target="cuda-host", **settings)

    def kernel(self, text: str, name: str) -> Any:
        """A kernel written by hand."""
        from redfuser.runtime.cuda.host import HostModule

        return _Seeded(HostModule(text, self.arch).kernel(name), 1)

    def compiled(self, torch: Any, fn: Any) -> Any:
        """`torch.compile`, here without a code generator."""
        return torch.compile(fn, dynamic=False, backend="eager")

    def time(self, calls: Mapping[str, Call], sets: int, seconds: float) -> dict[str, dict[str, float]]:
        """Microseconds of each candidate: the calls are made once for each set, and none is timed."""
        for call in calls.values():
            for i in range(sets):
                call(i)
        return {}

    def wait(self) -> None:
        """Until all is done."""


class _Seeded:
    """A kernel of the executor under another schedule of threads than the one it is compared with."""

    def __init__(self, kernel: Any, seed: int) -> None:
        self.inner, self.seed = kernel, seed

    def launch(self, grid: Any, block: Any, args: Sequence[Any], shared_bytes: int = 0, seed: int = 0) -> Any:
        return self.inner.launch(grid, block, args, shared_bytes=shared_bytes, seed=self.seed)


class DevicePlace:
    """One NVIDIA GPU, by CuPy."""

    dry = False

    def __init__(self) -> None:
        try:
            import cupy
        except ImportError as error:
            raise NoGpu(f"CuPy cannot be imported ({error}); pip install 'redfuser[cuda13]'") from error
        self.cupy = cupy
        try:
            device = cupy.cuda.Device()
            properties = cupy.cuda.runtime.getDeviceProperties(device.id)
            capability = int(device.compute_capability)
        except Exception as error:  # CuPy's errors of driver and runtime have no common base
            raise NoGpu(f"no GPU can be used ({error})") from error
        name = properties["name"]
        self.arch = arch_of(capability)
        self.cache = int(properties["l2CacheSize"])
        self.free = int(cupy.cuda.runtime.memGetInfo()[0])
        self.about = {
            "device": name.decode() if isinstance(name, bytes) else str(name), "arch": self.arch,
            "l2 MB": round(self.cache / 1e6), "cupy": cupy.__version__,
            "driver": cupy.cuda.runtime.driverGetVersion(), "python": platform.python_version(),
        }

    def array(self, a: Any) -> Any:
        """A host array in the memory of the place."""
        return self.cupy.asarray(a)

    def host(self, a: Any) -> Any:
        """The array as one of NumPy."""
        return self.cupy.asnumpy(a) if isinstance(a, self.cupy.ndarray) else np.asarray(a)

    def tensor(self, torch: Any, a: Any) -> Any:
        """The array as a tensor of PyTorch, in the same memory."""
        if a.dtype == np.bool_:
            return torch.from_dlpack(a.view(np.uint8)).view(torch.bool)
        return torch.from_dlpack(a)

    def shifted(self, a: Any, number: int) -> Any:
        """Other contents for buffers of another number."""
        return self.cupy.roll(a, 997 * number, -1)

    def copies(self, nbytes: int) -> Call:
        """A copy that reads and writes `nbytes` in all: the roofline of the same run."""
        half, count = max(16, nbytes // 2), self.buffers(nbytes)
        made = [self.cupy.full(half, 37, np.uint8) for _ in range(2 * count)]
        runtime = self.cupy.cuda.runtime

        def copy(i: int) -> None:
            stream = self.cupy.cuda.get_current_stream().ptr
            to, source = made[2 * i].data.ptr, made[2 * i + 1].data.ptr
            runtime.memcpyAsync(to, source, half, runtime.memcpyDeviceToDevice, stream)

        return copy

    def buffers(self, nbytes: int) -> int:
        """How many sets of buffers of this size are used in turn: together at least three times the L2 cache."""
        fitting = max(1, int(self.free * 0.2) // max(1, nbytes))
        return max(1, min(MOST_SETS, fitting, 1 + -(-3 * self.cache // max(1, nbytes))))

    def fuse(self, fn: Any, **settings: Any) -> Any:
        """The function as a kernel of this place."""
        return rf.fuse(fn, **settings)

    def kernel(self, text: str, name: str) -> Any:
        """A kernel written by hand."""
        options = ("-std=c++17", f"-arch={self.arch}")
        return _DeviceKernel(self.cupy, self.cupy.RawModule(code=text, options=options).get_function(name))

    def compiled(self, torch: Any, fn: Any) -> Any:
        """`torch.compile`: Triton."""
        return torch.compile(fn, dynamic=False)

    def time(self, calls: Mapping[str, Call], sets: int, seconds: float) -> dict[str, dict[str, float]]:
        """Microseconds of each candidate by events of the stream: medians of batches, candidates in turn.

        `us` is the time between two calls on the device, `submit us` what a call takes the CPU: where both are about
        equal, the CPU is what is measured.
        """
        repeats = {name: self._repeats(call, sets) for name, call in calls.items()}
        samples: dict[str, list[float]] = {name: [] for name in calls}
        submits: dict[str, list[float]] = {name: [] for name in calls}
        begin, turn = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds or turn < 5:
            for name, call in calls.items():
                call(turn % sets)  # another candidate was the last to use the device
                us, submit = self._batch(call, sets, repeats[name], turn)
                samples[name].append(us)
                submits[name].append(submit)
            turn += 1
        return {n: {"us": statistics.median(samples[n]), "least us": min(samples[n]),
                    "submit us": statistics.median(submits[n]), "samples": len(samples[n])} for n in calls}

    def _repeats(self, call: Call, sets: int) -> int:
        for i in range(WARM):
            call(i % sets)
        us, _ = self._batch(call, sets, 3, 0)
        return max(1, min(200, int(LEAST_BATCH * 1e6 / max(us, 0.5)) + 1))

    def _batch(self, call: Call, sets: int, repeats: int, first: int) -> tuple[float, float]:
        event = self.cupy.cuda.Event
        start, end = event(), event()
        start.record()
        begin = time.perf_counter()
        for i in range(repeats):
            call((first + i) % sets)
        submit = time.perf_counter() - begin
        end.record()
        end.synchronize()
        elapsed = self.cupy.cuda.get_elapsed_time(start, end)
        return elapsed * 1e3 / repeats, submit * 1e6 / repeats

    def wait(self) -> None:
        """Until all is done; raises what a kernel did wrong."""
        self.cupy.cuda.Device().synchronize()


class _DeviceKernel:
    """A kernel on the GPU with the interface of the executor's: In, Out, Scratch, arrays and scalars of NumPy."""

    def __init__(self, cupy: Any, function: Any) -> None:
        self.cupy, self.function = cupy, function

    def launch(self, grid: Any, block: Any, args: Sequence[Any], shared_bytes: int = 0, seed: int = 0) -> None:
        from redfuser.runtime.cuda.host import In, Out, Scratch

        given, back = [], []
        for a in args:
            held = a.array if isinstance(a, (In, Out, Scratch)) else a
            if not isinstance(held, np.ndarray):
                given.append(held)
                continue
            there = self.cupy.asarray(held)
            given.append(there)
            if not isinstance(a, (In, Scratch)):
                back.append((held, there))
        as_tuple = [x if isinstance(x, tuple) else (x,) for x in (grid, block)]
        self.function(as_tuple[0], as_tuple[1], tuple(given), shared_mem=shared_bytes)
        for held, there in back:
            held[...] = self.cupy.asnumpy(there)


Place = HostPlace | DevicePlace
