"""What can go wrong with CUDA text. Each message says where, and what to do."""

from __future__ import annotations

from redfuser.errors import CompileError, NoCompiler, RedfuserError


class NoNvrtc(NoCompiler):
    """NVIDIA's run-time compiler is not on this machine."""


class CudaCompileError(CompileError):
    """NVRTC, or the host's C++ compiler, rejected CUDA text."""


class UnsupportedArch(RedfuserError, ValueError):
    """A GPU architecture that does not exist, or that this NVRTC or this device does not know."""


class UnsupportedPtx(CompileError):
    """PTX that cannot be read, or that the host executor cannot run."""


class LaunchError(RedfuserError, ValueError):
    """A launch that no device could run: its arguments, its block or its shared memory do not fit the kernel."""


class SharedMemoryShort(LaunchError):
    """A kernel needs more shared memory than a block of the device may have. missing: bytes."""

    def __init__(self, message: str, missing: int = 0) -> None:
        self.missing = missing
        super().__init__(message)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.missing)


class NoDevice(RedfuserError, RuntimeError):
    """No GPU, no driver, or no CuPy to reach one."""


class CudaFault(RedfuserError, RuntimeError):
    """A kernel did something that the device forbids or leaves undefined, found while it ran on the host.

    kind    what: race, out-of-bounds, misaligned, uninitialised, unwritten, const-write, non-coherent, in-flight,
            divergent-barrier, divergent-collective, bad-lane, deadlock, runaway, division-by-zero, undefined, trap
    kernel  the kernel's name
    line    line of the CUDA text, 0 where it is unknown
    text    the finding, with the lines of all instructions that take part
    block, thread   indices (x, y, z) of who did it
    """

    def __init__(
        self,
        kind: str,
        kernel: str,
        line: int,
        text: str,
        block: tuple[int, int, int] = (0, 0, 0),
        thread: tuple[int, int, int] = (0, 0, 0),
        source: str = "",
    ) -> None:
        self.kind, self.kernel, self.line, self.text = kind, kernel, line, text
        self.block, self.thread, self.source = block, thread, source
        place = f"line {line}" if line else "unknown line"
        message = f"{kind} in kernel {kernel}, block {block}, thread {thread}, {place}: {text}"
        super().__init__(f"{message}\n    {source.strip()}" if source.strip() else message)

    def __reduce__(self) -> tuple[object, ...]:
        fields = (self.kind, self.kernel, self.line, self.text, self.block, self.thread, self.source)
        return type(self), fields
