"""What a CUBIN's kernels are made of: machine instructions, disassembled by nvdisasm and counted by family."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from redfuser.runtime.cuda.errors import CudaCompileError, NoNvrtc

REMEDY = "pip install 'redfuser[cuda-host]', or put a CUDA toolkit's bin folder on PATH"

_SECTION = re.compile(r"^\.text\.(\S+?):", re.MULTILINE)
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?P<guard>@!?U?P\w+\s+)?(?P<opcode>[A-Z][A-Z0-9_.]*)")
_WIDTHS = ("LDG", "STG", "LDS", "STS", "LDL", "STL", "LDGSTS")
"""Accesses that are counted by their width as well: LDG.128 is a load of 16 bytes by each lane."""


def instruction_mix(cubin: bytes) -> dict[str, Counter[str]]:
    """Kernel -> how often each family of instructions stands in its code; never-executed ones (@!PT) do not count.

    HMMA, QMMA, HGMMA are products of matrices, LDSM is ldmatrix, LDGSTS is cp.async, MUFU a special function, LDL and
    STL are spills or indexed local arrays, BAR, SHFL, ATOM, RED, REDUX what their names say. Memory accesses are
    counted under their width too, as LDG.32, LDG.64, LDG.128.

    Raises
    ------
    NoNvrtc
        when nvdisasm is not here.
    CudaCompileError
        when it does not read the CUBIN.
    """
    text = disassemble(cubin)
    marks = list(_SECTION.finditer(text))
    ends = [m.start() for m in marks[1:]] + [len(text)]
    return {m.group(1): _count(text[m.end() : end]) for m, end in zip(marks, ends, strict=True)}


def _count(text: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for match in _INSTRUCTION.finditer(text):
        if (match.group("guard") or "").strip() == "@!PT":
            continue
        family, *modifiers = match.group("opcode").split(".")
        found[family] += 1
        if family in _WIDTHS:
            width = next((m for m in modifiers if m in ("64", "128", "256")), None)
            narrow = next((m.lstrip("US") for m in modifiers if m in ("U8", "S8", "U16", "S16")), "32")
            found[f"{family}.{width or narrow}"] += 1
    return found


def disassemble(cubin: bytes) -> str:
    """The machine code of a CUBIN as text.

    Raises
    ------
    NoNvrtc, CudaCompileError
        see `instruction_mix`.
    """
    with tempfile.TemporaryDirectory(prefix="redfuser-sass-") as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        command = [find_nvdisasm(), "-c", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        raise CudaCompileError(f"nvdisasm does not read the CUBIN: {(done.stderr or done.stdout).strip()[:500]}")
    return done.stdout


def find_nvdisasm() -> str:
    """nvdisasm of this Python environment, of `$CUDA_PATH`, or on PATH.

    Raises
    ------
    NoNvrtc
        with how to get it.
    """
    folders = [Path(p) / "nvidia" / f"cu{version}" / "bin" for version in (13, 12) for p in sys.path if p]
    if os.environ.get("CUDA_PATH"):
        folders.append(Path(os.environ["CUDA_PATH"]) / "bin")
    for folder in folders:
        if (folder / "nvdisasm").is_file():
            return str(folder / "nvdisasm")
    found = shutil.which("nvdisasm")
    if found is None:
        raise NoNvrtc(f"nvdisasm is not here; {REMEDY}")
    return found
