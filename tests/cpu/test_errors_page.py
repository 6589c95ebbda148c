"""Every error class has a row and an example in docs/errors.md, and the examples raise what they say."""

from __future__ import annotations

import doctest
import inspect
import re
from pathlib import Path

import pytest

import redfuser as rf
from redfuser import errors
from redfuser.runtime.cuda import errors as cuda_errors
from redfuser.runtime.cuda.nvrtc import find_nvrtc

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
CLASSES = {c for module in (errors, cuda_errors) for _, c in inspect.getmembers(module, inspect.isclass)
           if issubclass(c, errors.RedfuserError)}
WITHOUT_EXAMPLE = {cuda_errors.NoNvrtc, cuda_errors.SharedMemoryShort}
"""They need a machine without NVRTC, and a device without enough shared memory: tests/cuda has both."""


@pytest.fixture(scope="module")
def text() -> str:
    return PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("error", sorted({*CLASSES, rf.NotFusible} - {errors.RedfuserError}, key=lambda c: c.__name__))
def test_every_class_has_a_row_and_an_example(text, error):
    row = re.search(rf"^\| `{error.__name__}` \| (?:`(\w+)`|see the class) \|", text, re.MULTILINE)
    assert row is not None
    built_in = [c.__name__ for c in error.__mro__ if c.__module__ == "builtins" and issubclass(c, Exception)]
    assert row.group(1) in (None, built_in[0])
    assert error in WITHOUT_EXAMPLE or re.search(rf"^[\w.]+\.{error.__name__}: ", text, re.MULTILINE)


def test_the_examples_raise_what_they_say(monkeypatch, tmp_path):
    monkeypatch.setenv("REDFUSER_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("CC", "cc")
    try:
        find_nvrtc()
    except errors.NoCompiler as missing:
        pytest.skip(str(missing))
    found = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 30
    assert not found.failed
