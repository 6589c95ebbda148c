"""Kernels under the sanitizers: nothing is found in a right one, a read beyond an array is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from redfuser.errors import CompileError
from redfuser.testing import sanitize

BEYOND = """
float total(const float *x, long n) { float s = 0; for (long i = 0; i <= n; i++) s += x[i]; return s; }
"""
CALL = """
import ctypes, sys
from pathlib import Path
import numpy as np
from redfuser.runtime.compiler import find_compiler
source, library = Path(sys.argv[1]), Path(sys.argv[1]).with_suffix(".so")
find_compiler().compile(source, library, ())
x = np.ones(1009, np.float32)
ctypes.CDLL(str(library)).total(x.ctypes.data_as(ctypes.c_void_p), ctypes.c_long(len(x) - int(sys.argv[2])))
"""


@pytest.fixture(scope="module")
def sanitized():
    with tempfile.TemporaryDirectory() as folder:
        try:
            given = sanitize.environment(Path(folder))
        except CompileError as missing:
            pytest.skip(str(missing))
        yield given


@pytest.mark.parametrize(("less", "status"), [(0, sanitize.STATUS), (1, 0)])
def test_a_read_beyond_an_array_ends_the_process(sanitized, tmp_path, less, status):
    source = tmp_path / "beyond.c"
    source.write_text(BEYOND)
    done = subprocess.run([sys.executable, "-c", CALL, str(source), str(less)], env=sanitized, capture_output=True,
                          text=True, check=False)
    assert done.returncode == status, done.stderr
    assert ("heap-buffer-overflow" in done.stderr) == (status != 0)


def test_a_kernel_is_clean(sanitized, capsys):
    assert sanitize.main(["--entry", "variance", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"entries": ["variance"], "findings": []}


def test_a_finding_names_the_entry_and_the_others_still_run(sanitized, monkeypatch):
    calls = []

    def run(command, **_):
        names = command[command.index("--inside") + 1 :]
        calls.append(names)
        bad = "softmax" in names
        text = "".join(f"start {n}\n" for n in names[: names.index("softmax") + 1] if bad) if bad else ""
        return subprocess.CompletedProcess(command, sanitize.STATUS if bad else 0, text, "==1==ERROR: x")

    monkeypatch.setattr(sanitize, "environment", lambda folder: dict(os.environ))
    monkeypatch.setattr(sanitize.subprocess, "run", run)
    found = sanitize.sanitize(["variance", "softmax", "entropy"])
    assert found == [{"entry": "softmax", "report": "==1==ERROR: x"}]
    assert calls == [["variance", "softmax", "entropy"], ["entropy"]]


def test_lengths_that_are_refused_do_not_end_an_entry(monkeypatch):
    monkeypatch.setattr(sanitize, "LENGTHS", (1, 17))
    assert sanitize.run_entry("sigmoid_top3") == 3


def test_an_entry_without_a_call_is_a_finding(monkeypatch):
    monkeypatch.setattr(sanitize, "LENGTHS", (1,))
    with pytest.raises(SystemExit, match="no kernel ran"):
        sanitize._inside(["sigmoid_top3"])


def test_no_sanitizers_and_no_such_entry(monkeypatch, capsys):
    def none(_):
        raise CompileError("cc has no AddressSanitizer")

    with pytest.raises(SystemExit):
        sanitize.main(["--entry", "nothing"])
    assert "redfuser zoo" in capsys.readouterr().err
    monkeypatch.setattr(sanitize, "environment", none)
    assert sanitize.main(["--entry", "variance"]) == sanitize.MISSING

