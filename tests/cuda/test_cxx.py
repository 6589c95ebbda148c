"""The host's C++ compiler, and modules that several processes build at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

from redfuser.errors import CompileError, NoCompiler
from redfuser.runtime.cuda.cxx import build_cxx, find_cxx, with_includes
from redfuser.runtime.cuda.errors import CudaFault
from redfuser.runtime.cuda.host import HostModule

BUILD = """
import numpy as np
from redfuser.runtime.cuda.host import HostModule, Out
y = np.empty(32, np.int32)
text = 'extern "C" __global__ void k(int* y) { y[threadIdx.x] = threadIdx.x * 3; }'
HostModule(text).kernel("k").launch(1, 32, [Out(y)])
print(y.sum())
"""


def test_no_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler --flag")
    with pytest.raises(NoCompiler, match=r"tried no-such-compiler --flag.*variable CXX"):
        find_cxx()


def test_a_rejected_text_is_kept_and_shown(cxx):
    with pytest.raises(CompileError, match=r"rejected .*redfuser-rejected-.*\n(.|\n)*error") as found:
        build_cxx("int main( {", cxx, ())
    assert "command: " in str(found.value)


def test_includes_are_put_in_once():
    text = with_includes('#include "executor.h"\n#include "ptx_support.h"\n#include <math.h>')
    assert text.count("struct Machine {") == 1
    assert '#include "' not in text
    assert "#include <math.h>" in text


def test_processes_that_build_at_once_share_the_result(host, tmp_path, monkeypatch):
    monkeypatch.setenv("REDFUSER_CACHE_DIR", str(tmp_path))
    running = [subprocess.Popen([sys.executable, "-c", BUILD], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [p.communicate(timeout=300)[0].strip() for p in running] == [str(3 * 31 * 16)] * 2
    assert [p.returncode for p in running] == [0, 0]
    assert len(list(tmp_path.glob("*.so"))) == 2  # the executor and the module
    assert len(list(tmp_path.glob("*.cu"))) == 1


def test_a_module_found_in_the_cache_is_not_translated_again(host, monkeypatch):
    text = 'extern "C" __global__ void k(int* y) { y[threadIdx.x] = 1; }'
    first = HostModule(text)
    monkeypatch.setattr("redfuser.runtime.cuda.host.compile_cuda", None)
    again = HostModule(text)
    assert again.path == first.path
    assert again.kernels == first.kernels
    with pytest.raises(CudaFault, match="null pointer"):
        again.kernel("k").launch(1, 1, [bytes(8)])
