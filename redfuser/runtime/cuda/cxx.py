"""The host's C++ compiler, which makes the executor and every kernel that runs on it."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from redfuser.errors import CompileError, NoCompiler
from redfuser.runtime.cache import digest, fetch
from redfuser.runtime.machine import cpu_model

FLAGS = (
    "-std=c++17",
    "-fPIC",
    "-fno-strict-aliasing",
    "-ffp-contract=off",  # every rounding is one that PTX states
    "-fno-math-errno",
    "-fwrapv",
    "-fvisibility=hidden",
)
REMEDY = (
    "install one (Debian, Ubuntu: apt install g++; macOS: xcode-select --install; anywhere: pip install "
    "'redfuser[cc]'), or name it in the environment variable CXX"
)
_INCLUDE = re.compile(r'^#include "([\w.]+)"$', re.MULTILINE)


@dataclass(frozen=True)
class CxxCompiler:
    """A C++ compiler: how to start it, and what it calls itself."""

    command: tuple[str, ...]
    version: str

    def __str__(self) -> str:
        return f"{' '.join(self.command)} ({self.version})"

    def run(self, arguments: Sequence[str], source: Path) -> None:
        """Start the compiler.

        Raises
        ------
        CompileError
            with its output; the source is kept and named.
        """
        command = [*self.command, *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            raise CompileError(f"{self.command[0]} could not be started ({error}); check the variable CXX") from error
        if done.returncode:
            kept = Path(tempfile.mkdtemp(prefix="redfuser-rejected-")) / source.name
            shutil.copy(source, kept)
            output = (done.stderr or done.stdout).strip()
            raise CompileError(
                f"{self} rejected {kept} (exit status {done.returncode}):\n{output[:4000]}\n"
                f"command: {shlex.join(command)}"
            )

    def native_flags(self) -> tuple[str, ...]:
        """The flag for this machine's instructions: fused multiply-add is one of them where it has it."""
        return ("-march=native",) if platform.machine() in ("x86_64", "AMD64") else ()


def find_cxx() -> CxxCompiler:
    """The C++ compiler of this machine: `$CXX`, else g++, clang++, c++, or ziglang's `zig c++`.

    Raises
    ------
    NoCompiler
        with what was tried and how to get one.
    """
    return _find(os.environ.get("CXX", ""), os.environ.get("PATH", ""))


@lru_cache(maxsize=8)
def _find(chosen: str, _path: str) -> CxxCompiler:
    candidates: list[tuple[str, ...]] = [("g++",), ("clang++",), ("c++",)]
    if chosen.strip():
        candidates = [tuple(shlex.split(chosen))]
    elif importlib.util.find_spec("ziglang") is not None:
        candidates.append((sys.executable, "-m", "ziglang", "c++"))
    tried = []
    for command in candidates:
        tried.append(" ".join(command))
        if shutil.which(command[0]) is None:
            continue
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, errors="replace", check=False)
        if done.returncode == 0 and done.stdout.strip():
            return CxxCompiler(command, done.stdout.strip().splitlines()[0])
    raise NoCompiler(f"no C++ compiler found (tried {', '.join(tried)}); {REMEDY}")


def with_includes(text: str) -> str:
    """A C++ text with the package's own headers put in: one text is what the cache keeps and compares."""
    seen: set[str] = set()

    def put_in(match: re.Match[str]) -> str:
        name = match.group(1)
        if name in seen:
            return ""
        seen.add(name)
        return _INCLUDE.sub(put_in, package_text(name).replace("#pragma once\n", ""))

    return _INCLUDE.sub(put_in, text)


@lru_cache(maxsize=32)
def package_text(name: str) -> str:
    """A data file of this package."""
    return files("redfuser.runtime.cuda").joinpath(name).read_text(encoding="utf-8")


def build_cxx(
    source: str, compiler: CxxCompiler, compile_flags: Sequence[str], *, parts: Sequence[str] = (), suffix: str = ".cpp"
) -> Path:
    """The shared library of a C++ text without includes of its own, through the cache.

    Parameters
    ----------
    source : the text; `with_includes` makes one of several files
    compile_flags : added to the standard ones
    parts : flags of the link alone

    Raises
    ------
    CompileError, CacheError
        see `CxxCompiler.run` and `fetch`.
    """
    key = cxx_key(compiler, compile_flags, source, *parts)
    return fetch(key, source, lambda text, binary: compile_shared(compiler, text, binary, compile_flags, parts), suffix)


def cxx_key(compiler: CxxCompiler, flags: Sequence[str], *texts: str) -> str:
    """The cache key of what this compiler makes of these texts on this machine."""
    return digest(*texts, " ".join((*FLAGS, *flags)), " ".join(compiler.command), compiler.version, cpu_model())


def compile_shared(
    compiler: CxxCompiler, text: Path, binary: Path, flags: Sequence[str], link_flags: Sequence[str] = ()
) -> None:
    """Compile, then link: flags that instrument code must not pull in the libraries that usually come with them.

    Raises
    ------
    CompileError
        with the compiler's output.
    """
    unit = binary.with_suffix(".o")
    compiler.run([*FLAGS, *compiler.native_flags(), *flags, "-c", str(text), "-o", str(unit)], text)
    compiler.run(["-shared", str(unit), "-o", str(binary), "-lm", *link_flags], text)
    unit.unlink()
