"""`redfuser doctor`: the compiler, the machine, the caches and the libraries that redfuser found."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.text import Text

from redfuser import __version__
from redfuser.cli.app import print_json
from redfuser.cli.console import console, fact_table, heading
from redfuser.errors import NoCompiler

LIBRARIES = ("numpy", "egglog", "sympy", "gmpy2", "mpmath", "filelock", "platformdirs", "typer", "rich", "torch")
CUPY_WHEELS = ("cupy-cuda13x", "cupy-cuda12x", "cupy")


def examine(*, as_json: bool) -> bool:
    """Print what was found; False if no kernel can be compiled."""
    facts = collect()
    if as_json:
        print_json(facts)
    else:
        show(facts)
    return "problem" not in facts["compiler"] and "problem" not in facts["cache"]


def collect() -> dict[str, dict[str, Any]]:
    """Everything found, by topic, as JSON values. A topic that failed has the key `problem`."""
    return {
        "redfuser": {
            "version": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
        },
        "compiler": _compiler(),
        "profile": _profile(),
        "cache": _cache(),
        "gpu": _gpu(),
        "libraries": {name: _version(name) for name in LIBRARIES},
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith("REDFUSER_") or k == "CC"},
    }


def _compiler() -> dict[str, Any]:
    from redfuser.runtime import find_compiler

    try:
        found = find_compiler()
    except NoCompiler as error:
        return {"problem": str(error)}
    return {"command": " ".join(found.command), "version": found.version, "flags": " ".join(found.native_flags())}


def _profile() -> dict[str, Any]:
    """What schedules assume of this machine: vector width, registers, threads and caches found, rates typical."""
    from redfuser.runtime import detect_profile

    return dict(asdict(detect_profile()))


def _cache() -> dict[str, Any]:
    from redfuser.runtime import cache_directory

    folder = cache_directory()
    found = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    if not (found.is_dir() and os.access(found, os.W_OK)):
        return {"problem": f"{found} is no writable folder; set REDFUSER_CACHE_DIR to one", "folder": str(folder)}
    files = [f for f in folder.rglob("*") if f.is_file()] if folder.is_dir() else []
    return {"folder": str(folder), "files": len(files), "bytes": sum(f.stat().st_size for f in files)}


def _gpu() -> dict[str, Any]:
    installed = {name: _version(name) for name in CUPY_WHEELS}
    return {
        "cupy": next((f"{name} {version}" for name, version in installed.items() if version), None),
        "nvidia driver": Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None,
        **_devices(),
    }


def _devices() -> dict[str, Any]:
    """What CuPy reaches: versions as CUDA writes them (13000 is 13.0), and every GPU; or why it reaches none."""
    from redfuser.errors import RedfuserError
    from redfuser.runtime.cuda.cupy_launch import load_cupy
    from redfuser.runtime.cuda.device import cuda_device

    try:
        cupy = load_cupy()
        runtime = cupy.cuda.runtime
        numbers = range(runtime.getDeviceCount())
    except RedfuserError:
        return {}
    except Exception as error:  # CuPy's own, which cannot be named without it
        return {"devices": f"none: {error}"}
    versions = {"cuda of the driver": runtime.driverGetVersion(), "cuda of cupy": runtime.runtimeGetVersion()}
    found: dict[str, Any] = {**versions}
    for number in numbers:
        try:
            device = cuda_device(number)
            found[f"device {number}"] = f"{device.name}, {device.gpu.arch}, {device.gpu.units} multiprocessors"
        except RedfuserError as error:
            found[f"device {number}"] = str(error)
    return found


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def show(facts: Mapping[str, Mapping[str, Any]]) -> None:
    """The facts by topic."""
    output = console()
    for topic, entries in facts.items():
        rows = fact_table()
        for name, value in (entries or {"none": ""}).items():
            rows.add_row(name, Text(_words(value)))
        output.print(heading(topic))
        output.print(rows)


def _words(value: Any) -> str:
    if value is None:
        return "not installed"
    if isinstance(value, bool):
        return "found" if value else "none found"
    return str(value)
