"""Tests of the CUDA tools: without NVRTC or a C++ compiler those that need one say so. Libraries are built once."""

from __future__ import annotations

import os

import pytest

from redfuser.errors import NoCompiler
from redfuser.runtime.cuda.cxx import find_cxx
from redfuser.runtime.cuda.nvrtc import Nvrtc, find_nvrtc


@pytest.fixture(scope="session", autouse=True)
def cuda_cache(tmp_path_factory: pytest.TempPathFactory):
    """One cache for all tests of a session, in all its processes: what several tests use is compiled once."""
    root = tmp_path_factory.getbasetemp()
    if os.environ.get("PYTEST_XDIST_WORKER"):
        root = root.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REDFUSER_CACHE_DIR", str(root / "cuda-kernels"))
        yield


@pytest.fixture(scope="session")
def cxx():
    """The host's C++ compiler."""
    try:
        return find_cxx()
    except NoCompiler as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def nvrtc() -> Nvrtc:
    """NVRTC; without it there is no PTX to run."""
    try:
        return find_nvrtc()
    except NoCompiler as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def host(cxx, nvrtc):
    """Both compilers are here."""
    return cxx, nvrtc
