"""`redfuser lab`: ten lines make one more cascade fusible, down to a kernel; what is wrong or worse is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import redfuser as rf
from redfuser.cli import main
from redfuser.lab import run as lab_run
from redfuser.lab.compare import Comparison, Measured
from redfuser.lab.load import load_rules
from redfuser.lab.page import lab_page
from redfuser.lab.run import Laboratory, chosen_entries, run_lab
from redfuser.lab.state import State
from redfuser.rules import check_rule

pytestmark = pytest.mark.usefixtures("session_cache")

GATE = Path(__file__).parents[2] / "examples" / "gate_rules.py"
WRONG = '''
import numpy as np
import redfuser as rf

@rf.rule("exact", free_of="f", varying="a")
def scaled_maximum(a, f):
    """max (a f, 0) = f max (a, 0)"""
    return np.maximum(a * f, 0), f * np.maximum(a, 0)
'''
BEFORE = Measured("NOT_FOUND", 2, True, 2, 3, 100, 10, 1.0)
AFTER = Measured("FUSIBLE", 1, True, 3, 8, 200, 12, 2.0, ("mine",))


def run(*arguments, capsys):
    status = main(["lab", *map(str, arguments)])
    return status, capsys.readouterr()


def test_a_rule_makes_one_more_cascade_fusible_down_to_a_kernel(tmp_path, capsys):
    page = tmp_path / "page.html"
    status, shown = run(GATE, "-e", "gated", "-e", "any_above_mean", "--ablate", "--json", "--html", page,
                        "--state", tmp_path / "state.json", capsys=capsys)
    found = json.loads(shown.out)
    assert status == 0
    assert found["gains"] == ["gated"]
    gated, other = found["entries"]
    assert (gated["before"]["verdict"], gated["after"]["verdict"]) == ("NOT_FOUND", "FUSIBLE")
    assert gated["kernel"] == "", "the kernel ran and agrees with its definition"
    assert gated["after"]["matched"] == ["gate-of-product"]
    assert other["change"] == "same"
    assert other["kernel"] is None, "its form is the same: nothing was run"
    assert found["ablation"]["gate-of-product"]["gated"] == "FUSIBLE (1) becomes NOT_FOUND (2)"
    assert found["growth"]["nodes"] > 1
    assert "<!doctype html>" in page.read_text()
    assert "NOT_FOUND (2) becomes FUSIBLE (1)" in page.read_text()


def test_the_same_rules_in_a_program():
    file = load_rules(GATE)
    fused = rf.fuse(file.entries[0].fn, rules=file.joined(), require="one-pass")
    x = np.random.default_rng(0).normal(size=(3, 100)).astype(np.float32)
    rf.testing.assert_close(fused(x), file.entries[0].fn, x)
    assert fused.stats.kernel_runs == 1
    with pytest.raises(rf.NotFusible):
        rf.fuse(file.entries[0].fn, require="one-pass")(x)


def test_a_wrong_rule_is_refused_with_a_counterexample(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(lab_run, "_compared", lambda *_: pytest.fail("the catalogue must not be derived"))
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    status, shown = run(file, capsys=capsys)
    assert status == 1
    assert "is wrong: at a = [1], f = -1" in shown.out
    status, shown = run(file, "--json", capsys=capsys)
    assert status == 1
    assert json.loads(shown.out)["rules"][0]["counterexample"] == {"a": [1.0], "f": -1.0}


def test_a_stopped_run_goes_on_where_it_was(tmp_path, capsys, monkeypatch):
    seen = []

    def compare(entry, rules, own, allow):
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(entry.name)
        return Comparison(entry.name, BEFORE, AFTER, "")

    monkeypatch.setattr(lab_run, "compare", compare)
    state, arguments = tmp_path / "state.json", (GATE, "--sample", "3", "--seed", "1", "--state")
    status, shown = run(*arguments, state, capsys=capsys)
    assert status == 130
    assert "goes on from there" in shown.err
    assert [c["entry"] for c in json.loads(state.read_text())["done"]] == seen
    assert [f.name for f in tmp_path.iterdir()] == ["state.json"], "no unfinished file is left"
    first = list(seen)
    seen[:] = [""]  # one more may be derived before the interrupt: two are left
    monkeypatch.setattr(lab_run, "compare", lambda entry, *_: seen.append(entry.name) or
                        Comparison(entry.name, BEFORE, AFTER, ""))
    assert run(*arguments, state, capsys=capsys)[0] == 0
    assert not set(seen) & set(first)
    assert len(seen) - 1 + len(first) == 4, "three of the catalogue and one of the file"
    seen.clear()
    assert run(*arguments, state, capsys=capsys)[0] == 0
    assert not seen
    assert run(*arguments, state, "--fresh", capsys=capsys)[0] == 0
    assert len(seen) == 4


def test_findings_of_other_rules_are_forgotten_and_other_files_kept(tmp_path):
    file, path = load_rules(GATE), tmp_path / "state.json"
    State.of(file, path, fresh=False).add(Comparison("gated", BEFORE, AFTER, ""))
    assert State.of(file, path, fresh=False).done["gated"] == Comparison("gated", BEFORE, AFTER, "")
    assert not State.of(replace(file, digest="another"), path, fresh=False).done
    path.write_text("notes of mine")
    with pytest.raises(rf.errors.RedfuserError, match="no state of `redfuser lab`"):
        State.of(file, path, fresh=False)
    assert path.read_text() == "notes of mine"


@pytest.mark.parametrize(("after", "kernel", "change", "words"), [
    (AFTER, "", "gain", "NOT_FOUND (2) becomes FUSIBLE (1)"),
    (AFTER, "l is 2, by definition 1", "loss", "the kernel is wrong"),
    (replace(BEFORE, accumulators=1, operations=9), None, "gain", "accumulators: 2 to 1"),
    (replace(BEFORE, accumulators=3, operations=1), None, "loss", "accumulators: 2 to 3"),
    (replace(BEFORE, operations=4), None, "loss", "operations: 3 to 4"),
    (replace(BEFORE, passes=3), None, "loss", "NOT_FOUND (2) becomes NOT_FOUND (3)"),
    (replace(BEFORE, certain=False), None, "loss", "undecided"),
    (Measured(problem="EngineError: 0 = 1"), None, "loss", "0 = 1"),
    (replace(BEFORE, nodes=900, seconds=9.0), None, "same", ""),
])
def test_what_counts_as_better_and_worse(after, kernel, change, words):
    found = Comparison("e", BEFORE, after, kernel)
    assert found.change == change
    assert words in (found.worse or found.better)
    assert Comparison.of_dict(json.loads(json.dumps(found.to_dict()))) == found
    file = load_rules(GATE)
    laboratory = Laboratory(file, tuple(map(check_rule, file.rules)), {}, (found,))
    assert laboratory.ok == (change != "loss")
    assert words in lab_page(laboratory) or not words


def test_a_regression_is_an_exit_status(monkeypatch, capsys, tmp_path):
    worse = Comparison("gated", AFTER, BEFORE, None)
    monkeypatch.setattr(lab_run, "compare", lambda *_: worse)
    monkeypatch.setenv("COLUMNS", "200")
    status, shown = run(GATE, "-e", "gated", "--state", tmp_path / "s.json", capsys=capsys)
    assert status == 1
    assert "WORSE: FUSIBLE (1) becomes NOT_FOUND (2)" in shown.out


def test_what_a_rule_file_may_not_be(tmp_path, capsys):
    def shown(text, name="rules.py"):
        file = tmp_path / name
        file.write_text(text)
        return run(file, capsys=capsys)

    assert "defines no rule" in shown("x = 1")[1].err
    assert "rules.py:2: NameError" in shown("\nunknown")[1].err
    clash = WRONG.replace("scaled_maximum", "commute_add")
    assert "two different rules are called commute-add" in shown(clash)[1].err
    taken = GATE.read_text().replace("def gated", "def softmax_top2")
    assert "an entry 'softmax_top2' already" in shown(taken)[1].err
    assert run(tmp_path / "nowhere.py", capsys=capsys)[0] == 1
    assert run(GATE, "-e", "softmax_top", capsys=capsys)[0] == 1
    assert run(GATE, "-e", "gated", "--sample", "2", capsys=capsys)[0] == 2


def test_a_sample_is_that_of_its_seed():
    file = load_rules(GATE)
    names = [[e.name for e in chosen_entries(file, sample=4, seed=s)] for s in (1, 1, 2)]
    assert names[0] == names[1] != names[2]
    assert names[0][0] == "gated"
    assert len(names[0]) == 5


def test_several_processes_find_the_same(tmp_path):
    found = run_lab(GATE, names=("gated", "any_above_mean"), jobs=2, state=tmp_path / "state.json")
    assert [(c.entry, c.after.verdict, c.change) for c in found.comparisons] == [
        ("gated", "FUSIBLE", "gain"), ("any_above_mean", "FUSIBLE", "same")]
