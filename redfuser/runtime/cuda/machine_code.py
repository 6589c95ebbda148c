"""What the machine code of a CUDA text is like, function by function: resources and instructions. No GPU takes part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from redfuser.errors import CompileError, NoCompiler
from redfuser.runtime.cuda.errors import UnsupportedArch
from redfuser.runtime.cuda.nvrtc import Resources, compile_cuda
from redfuser.runtime.cuda.sass import instruction_mix

FAMILIES = (
    "LDG.128", "LDG.64", "LDG.32", "LDG.16", "LDG.8", "STG.128", "STG.64", "STG.32", "STG.16", "STG.8", "LDGSTS",
    "LDS", "STS", "SHFL", "MUFU", "FFMA", "DFMA", "HFMA2", "HMMA", "HGMMA", "QMMA", "DMMA", "ATOM", "ATOMG", "RED",
    "BAR", "LDL", "STL",
)  # fmt: skip
"""Instructions that reports count: accesses of global memory by width, copies to shared memory, shared memory,
exchanges, special functions, multiply-adds, products of matrices, atomics, barriers, local memory."""


@dataclass(frozen=True)
class MachineCode:
    """What is known of the functions of a text for one architecture.

    resources     function -> registers, spills, stack, static shared memory; empty where nothing compiles the text
    instructions  function -> family -> how often it stands in the code; empty where nothing disassembles it
    missing       why something is empty and what to do about it, in one line; "" when all is there
    """

    resources: Mapping[str, Resources] = field(default_factory=dict)
    instructions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    missing: str = ""


def machine_code(source: str, arch: str) -> MachineCode:
    """Compile a CUDA text and look at the result; what cannot be found out is said in `missing`, nothing is raised for
    it. `arch`: "sm_80", "sm_90a", ..."""
    try:
        cubin, resources = _compiled(source, arch)
    except NoCompiler as error:
        return MachineCode(missing=f"registers and instructions are not known: {_line(error)}")
    except (UnsupportedArch, CompileError) as error:
        return MachineCode(missing=f"not compiled for {arch}: {_line(error)}")
    try:
        return MachineCode(resources, _instructions(cubin))
    except (NoCompiler, CompileError) as error:
        return MachineCode(resources, missing=f"instructions are not known: {_line(error)}")


@lru_cache(maxsize=32)
def _compiled(source: str, arch: str) -> tuple[bytes, Mapping[str, Resources]]:
    found = compile_cuda(source, arch, kind="cubin")
    return found.data, found.resources


@lru_cache(maxsize=32)
def _instructions(cubin: bytes) -> Mapping[str, Mapping[str, int]]:
    return {function: dict(mix) for function, mix in instruction_mix(cubin).items()}


def _line(error: Exception) -> str:
    """The message on one line, without what was tried in vain."""
    return " ".join(str(error).split())
