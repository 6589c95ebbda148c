"""REDFUSER_LOGS: names, thresholds, mistakes that are told, silence on the path of repeated calls."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

import redfuser as rf
from redfuser import logs

DEBUG, INFO = logging.DEBUG, logging.INFO
PROGRAM = """
import numpy as np, redfuser as rf
def spread(x):
    return ((x - x.mean(axis=-1, keepdims=True)) ** 2).sum(axis=-1)
f, x = rf.fuse(spread), np.ones((2, 40), np.float32)
f(x); f(x); f(x)
print("done")
"""


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    top = logging.getLogger("redfuser")
    handlers = list(top.handlers)
    yield
    top.handlers[:] = handlers
    for name in logs.LEVELS:
        logging.getLogger(f"redfuser.{name}").setLevel(logging.NOTSET)


def run(setting: str | None, code: str = PROGRAM, *flags: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k != "REDFUSER_LOGS"}
    if setting is not None:
        environment["REDFUSER_LOGS"] = setting
    return subprocess.run([sys.executable, *flags, "-c", code], env=environment, capture_output=True, text=True,
                          check=True)


@pytest.mark.parametrize(("text", "found", "unknown"), [
    ("", {}, []),
    ("derive,+plan, source ", {"derive": INFO, "plan": DEBUG, "source": INFO}, []),
    ("+all,-trace", {**dict.fromkeys(logs.LEVELS, DEBUG), "trace": logs.OFF}, []),
    ("-plan,+plan", {"plan": DEBUG}, []),
    ("PLAN,plann,+,++tile", {"plan": INFO, "tile": DEBUG}, ["plann", "+"]),
])
def test_the_words_of_the_setting(text: str, found: dict[str, int], unknown: list[str]) -> None:
    assert logs.parsed(text) == (found, unknown)


def test_levels_tell_what_they_do() -> None:
    told = run("derive,+plan,source").stderr.splitlines()
    starts = [line.partition(":")[0] for line in told if line.startswith("redfuser.")]
    assert set(starts) == {"redfuser.derive", "redfuser.plan", "redfuser.source"}
    assert len([s for s in starts if s != "redfuser.plan"]) == 2  # one line each: the later calls are repeated ones
    text = "\n".join(told)
    assert "FUSIBLE, 1 passes over n" in text
    assert "plan spread: rows" in text
    assert "lines of C" in text
    assert "#include" not in text


def test_nothing_is_told_unless_asked() -> None:
    done = run(None)
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_a_wrong_name_is_told_and_stops_nothing() -> None:
    done = run("plann,trace", PROGRAM, "-W", "error")
    assert done.stdout == "done\n"
    warnings = [line for line in done.stderr.splitlines() if "plann" in line]
    assert len(warnings) == 1
    assert "did you mean plan?" in warnings[0]
    assert all(name in warnings[0] for name in logs.LEVELS)
    assert "redfuser.trace: spread: " in done.stderr


def test_handlers_of_the_application_print_alone() -> None:
    code = "import logging; logging.basicConfig(format='own %(name)s')\n" + PROGRAM
    told = run("derive", code).stderr.splitlines()
    assert told == ["own redfuser.derive"]


def test_the_loggers_are_those_of_the_standard_library(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(DEBUG, logger="redfuser")
    f, x = rf.fuse(lambda x: np.exp(x - x.max(axis=-1, keepdims=True)).sum(axis=-1)), np.ones((3, 7), np.float32)
    f(x)
    names = {r.name.removeprefix("redfuser.") for r in caplog.records}
    assert {"trace", "term", "plan", "tile", "source", "runtime"} <= names
    texts = [r.getMessage() for r in caplog.records]
    for start in ("trace ", "term ", "plan ", "kernel ", "#include"):
        assert any(t.lstrip().startswith(start) or f"\n{start}" in t for t in texts), start
    caplog.clear()
    for _ in range(3):
        f(x)
    assert caplog.records == []


def test_a_slow_step_is_told_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with logs.patience("thinking", 0.0):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""  # no terminal
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with logs.patience("thinking", 60.0):
        pass
    assert capsys.readouterr().err == ""
    done = []
    monkeypatch.setattr(logs, "_note", lambda what: done.append(what))
    with logs.patience("thinking", 0.0):
        for _ in range(500):
            if done:
                break
            time.sleep(0.01)
    assert done == ["thinking"]
