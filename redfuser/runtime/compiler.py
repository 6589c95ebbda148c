"""Finding a C compiler and running it."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from redfuser.errors import CompileError, NoCompiler
from redfuser.logs import runtime as log

FLAGS = (
    "-std=gnu11",
    "-O2",
    "-fPIC",
    "-shared",
    "-fno-math-errno",
    "-fno-trapping-math",  # sqrt and rounding become instructions
    "-fwrapv",  # integers wrap around as in NumPy
    "-ffp-contract=fast",  # a * b + c may be one rounding; nothing else of -ffast-math
)
"""Flags of every kernel. NaN, infinities and signed zeros keep their meaning."""
QUICK_FLAGS = (
    "-O1",
    "-fexpensive-optimizations",  # a * b + c becomes one instruction: 1.1 to 1.35x
    "-fgcse",
    "-ftree-pre",
    "-fcode-hoisting",
    "-fschedule-insns2",
)
"""What of gcc's -O2 the vector loops need: kernels as fast in 0.75 to 0.85 of the time. Matrix products need it all."""

REMEDY = (
    "install one (Debian, Ubuntu: apt install gcc; macOS: xcode-select --install; anywhere: "
    "pip install 'redfuser[cc]'), or name it in the environment variable CC"
)


@dataclass(frozen=True)
class Compiler:
    """A C compiler: how to start it, and what it calls itself."""

    command: tuple[str, ...]
    version: str

    def __str__(self) -> str:
        return f"{' '.join(self.command)} ({self.version})"

    def compile(self, source: Path, target: Path, flags: Sequence[str]) -> None:
        """Compile and link one C file to a shared library.

        Raises
        ------
        CompileError
            with the compiler's output; the source is kept and named.
        """
        command = [*self.command, *FLAGS, *flags, str(source), "-o", str(target), "-lm", "-lpthread"]
        log.debug("%s", shlex.join(command))
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            raise CompileError(
                f"{self.command[0]} could not be started ({error}); check the environment variable CC"
            ) from error
        if done.returncode:
            output = (done.stderr or done.stdout).strip()
            raise CompileError(
                f"{self} rejected {_keep(source)} (exit status {done.returncode}):\n{output[:4000]}\n"
                f"command: {shlex.join(command)}"
            )

    def native_flags(self) -> tuple[str, ...]:
        """The flags that select this machine's instructions, if the compiler knows them."""
        return _native_flags(self)

    def quick_flags(self) -> tuple[str, ...]:
        """The flags for kernels without matrix products, if the compiler is gcc."""
        known = self.macros(self.native_flags())
        return QUICK_FLAGS if "__GNUC__" in known and "__clang__" not in known else ()

    def macros(self, flags: Sequence[str] = ()) -> frozenset[str]:
        """Names of the macros that the compiler predefines."""
        return _macros(self, tuple(flags))


def _keep(source: Path) -> Path:
    """A copy of a rejected source that outlives the build."""
    folder = Path(tempfile.mkdtemp(prefix="redfuser-rejected-"))
    return Path(shutil.copy(source, folder / source.name))


def _candidates() -> list[tuple[str, ...]]:
    """Commands to try: $CC alone when it is set, else the usual names, else the compiler from PyPI."""
    chosen = os.environ.get("CC", "").strip()
    if chosen:
        return [tuple(shlex.split(chosen))]
    names: list[tuple[str, ...]] = [(name,) for name in ("cc", "gcc", "clang")]
    if importlib.util.find_spec("ziglang") is not None:
        names.append((sys.executable, "-m", "ziglang", "cc"))
    return names


def find_compiler() -> Compiler:
    """The C compiler of this machine: `$CC`, else cc, gcc, clang, or ziglang's `zig cc`.

    The answer is remembered per `$CC` and `$PATH`.

    Raises
    ------
    NoCompiler
        with what was tried and how to get one.
    """
    return _find(os.environ.get("CC", ""), os.environ.get("PATH", ""))


@lru_cache(maxsize=8)
def _find(_cc: str, _path: str) -> Compiler:
    tried = []
    for command in _candidates():
        if shutil.which(command[0]) is None:
            tried.append(" ".join(command))
            continue
        done = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, errors="replace", check=False
        )
        if done.returncode == 0 and done.stdout.strip():
            return Compiler(command, done.stdout.strip().splitlines()[0])
        tried.append(f"{' '.join(command)} (exit status {done.returncode})")
    raise NoCompiler(f"no C compiler found (tried {', '.join(tried)}); {REMEDY}")


@lru_cache(maxsize=32)
def _macros(compiler: Compiler, flags: tuple[str, ...]) -> frozenset[str]:
    done = subprocess.run(
        [*compiler.command, *flags, "-dM", "-E", "-x", "c", "-"],
        input="",
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        return frozenset()
    return frozenset(line.split()[1] for line in done.stdout.splitlines() if line.startswith("#define "))


@lru_cache(maxsize=8)
def _native_flags(compiler: Compiler) -> tuple[str, ...]:
    for flags in (("-march=native",), ("-mcpu=native",)):
        if _macros(compiler, flags):
            return flags
    return ()
