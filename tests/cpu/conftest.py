"""Kernels that the printer's tests compile go to a directory of the test session."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def cache_path(tmp_path_factory: pytest.TempPathFactory):
    """One cache directory for the whole session."""
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture
def session_cache(cache_path, monkeypatch: pytest.MonkeyPatch):
    """`REDFUSER_CACHE_DIR` is the session's directory."""
    monkeypatch.setenv("REDFUSER_CACHE_DIR", str(cache_path))
    return cache_path


@pytest.fixture
def empty_cache(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """`REDFUSER_CACHE_DIR` is a directory of this test's own."""
    monkeypatch.setenv("REDFUSER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"
