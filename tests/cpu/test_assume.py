"""Conditions in functions compiled to C: right results, reports, and checks of the data at call time."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import redfuser as rf
from redfuser.errors import AssumptionError


def theil(x):
    rf.assume(x > 0)
    r = x / x.mean(axis=-1, keepdims=True)
    return (r * np.log(r)).mean(axis=-1)


def peak_by_weight(x, w):
    weight = w.sum(axis=-1, keepdims=True)
    rf.assume(weight > 0)
    return (x / weight).max(axis=-1)


@pytest.fixture
def x():
    return np.random.default_rng(4).uniform(0.1, 3.0, (3, 20_000)).astype(np.float32)


def test_one_pass_and_right(x):
    fused = rf.fuse(theil, require="one-pass")
    assert np.allclose(fused(x), theil(x.astype(np.float64)), rtol=1e-5)
    report = fused.explain(x)
    assert (report.verdict, report.passes) == (rf.Verdict.FUSIBLE, 1)
    assert report.conditions == ("x[i,n] > 0",)
    assert "x[i,n] > 0" in str(report)
    assert report.to_dict()["conditions"] == ["x[i,n] > 0"]


def test_the_weight_may_have_any_sign_before_the_end(x):
    w = np.full(x.shape, -1.0, np.float32)
    w[:, -1] = 30_000.0
    assert np.allclose(rf.fuse(peak_by_weight)(x, w), peak_by_weight(x.astype(np.float64), w), rtol=1e-5)


def test_conditions_that_are_not_used_are_not_listed(x):
    @rf.fuse
    def softmax(s):
        rf.assume(np.abs(s) <= 20)
        e = np.exp(s - s.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    report = softmax.explain(x)
    assert report.conditions == ()
    assert "max_n" in str(report)  # the default keeps the running maximum


def test_data_are_checked_when_asked_for(x, monkeypatch):
    fused = rf.fuse(theil)
    x[1, 7] = -1.0
    monkeypatch.setenv("REDFUSER_CHECK", "0")
    fused(x)
    monkeypatch.setenv("REDFUSER_CHECK", "1")
    with pytest.raises(AssumptionError, match=r"theil: .*rf\.assume\(x > 0\) is false for 1 of 60000 elements"):
        fused(x)
    x[1, 7] = 1.0
    assert np.isfinite(fused(x)).all()


def test_conditions_on_results_are_checked_too(x, monkeypatch):
    monkeypatch.setenv("REDFUSER_CHECK", "1")
    fused = rf.fuse(peak_by_weight)
    fused(x, x)
    with pytest.raises(AssumptionError, match=r"weight > 0"):
        fused(x, -x)


def test_run_time_numbers_are_checked_at_every_call(x, monkeypatch):
    @rf.fuse
    def index(x, a):
        rf.assume((x > 0) & (a >= 1))
        return ((x / x.mean(axis=-1, keepdims=True)) ** a).mean(axis=-1)

    monkeypatch.setenv("REDFUSER_CHECK", "1")
    assert np.allclose(index(x, 2.5), index.fn(x.astype(np.float64), 2.5), rtol=1e-4)
    with pytest.raises(AssumptionError):
        index(x, 0.5)


def test_the_documentation_says_what_happens(capsys):
    text = (Path(__file__).parents[2] / "docs" / "assume.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    code = compile("\n".join(blocks), "assume.md", "exec")
    exec(code, {"__name__": "assume_md"})
    assert capsys.readouterr().out.splitlines() == re.findall(r"# (\S.*)$", "\n".join(blocks), re.MULTILINE)
