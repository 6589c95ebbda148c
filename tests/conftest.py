"""Shared test set-up: `--accept` rewrites the golden files."""

import os

import pytest

os.environ.setdefault("REDFUSER_CHECK", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--accept", action="store_true", help="rewrite tests/golden from what the compiler prints now")


@pytest.fixture
def accept(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--accept"))
