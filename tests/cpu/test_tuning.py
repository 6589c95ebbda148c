"""`tune=`: candidates are timed once per problem and machine; the choice is found again, and no entry is trusted."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from filelock import FileLock

import redfuser as rf
from redfuser.api import built as built_module
from redfuser.api import tuning
from redfuser.errors import CheckError, NoCompiler, SettingError
from redfuser.extract import Options, choose
from redfuser.ir import Old
from redfuser.runtime import compiler, tunings

FEW = rf.Tuning(candidates=2, seconds=20)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def built(f):
    """All kernels of a fused function."""
    pieces = [p for programs in f._programs.values() for one in programs for p in one.pieces]
    return [b for p in pieces for known in p.kernels.values() for b in known]


def entries(folder):
    return sorted(folder.glob("*.tuning"))


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(6, 5000)).astype("f4")


def test_a_call_times_candidates_once(empty_cache, x):
    f = rf.fuse(softmax, tune=FEW)
    out = f(x)
    np.testing.assert_allclose(out, softmax(x.astype("f8")), rtol=2e-5, atol=1e-9)
    assert f.stats.tunings == 1
    (kernel,) = built(f)
    assert 1 <= len(kernel.choice.trials) <= 2
    assert {t.outcome for t in kernel.choice.trials} <= {"chosen", "faster", "within noise", "slower", "dropped"}
    assert len(entries(empty_cache)) == 1
    f(x)
    f(x[:5, :4500])  # the same octaves
    assert f.stats.tunings == 1
    f(x[:, :100])
    assert f.stats.tunings == 2
    again = rf.fuse(softmax, tune=FEW)
    np.testing.assert_array_equal(again(x), out)
    assert again.stats.tunings == 0
    assert built(again)[0].choice == kernel.choice


def test_the_arrays_of_the_call_are_left_alone(empty_cache, x):
    before, out = x.copy(), np.full_like(x, 7)
    assert rf.fuse(softmax, tune=FEW)(x, out=out) is out
    np.testing.assert_array_equal(x, before)
    np.testing.assert_allclose(out, softmax(x), rtol=2e-5, atol=1e-9)
    both = x.copy()  # the output is the input
    rf.fuse(softmax, tune=rf.Tuning(2, 20, again=True))(both, out=both)
    np.testing.assert_allclose(both, softmax(x), rtol=2e-5, atol=1e-9)


PROGRAM = """
import sys, numpy as np, redfuser as rf
sys.path.insert(0, {folder!r})
from test_tuning import softmax, built
f = rf.fuse(softmax, tune=rf.Tuning(candidates=2, seconds=20))
f(np.random.default_rng(0).normal(size=(6, 5000)).astype("f4"))
print(f.stats.tunings, built(f)[0].choice.options, "egglog" in sys.modules)
"""


def test_a_new_process_times_nothing(empty_cache):
    def run():
        text = PROGRAM.format(folder=str(__file__).rpartition("/")[0])
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""  # no progress where nobody looks
        return done.stdout.split(" ", 1)

    (first, options), (second, found) = run(), run()
    assert (first, second) == ("1", "0")
    assert options.rpartition(" ")[0] == found.rpartition(" ")[0]


def test_a_bad_choice_of_the_model_is_corrected(empty_cache, monkeypatch):
    """By a clock on which blocks of 256 elements are the fastest: what a loaded machine would say is no test."""
    blocks, trial = {}, tuning._Race.trial

    def noted(race, candidate, call):
        blocks[call] = candidate.options.block
        return trial(race, candidate, call)

    def seconds(call, repeats):
        call()
        return {256: 4e-4, 128: 5e-4}.get(blocks.get(call), 1e-3)

    monkeypatch.setattr(tuning._Race, "trial", noted)
    monkeypatch.setattr(tuning, "_seconds", seconds)
    monkeypatch.setattr(tuning, "TURN", 0)
    monkeypatch.setattr(choose, "whole_row_limit", lambda *_: 0)
    monkeypatch.setattr(choose, "block_length", lambda *_: 64)
    f = rf.fuse(softmax, tune=rf.Tuning(seconds=600))
    data = np.random.default_rng(0).normal(size=(2, 30_000)).astype("f4")
    np.testing.assert_allclose(f(data), softmax(data), rtol=1e-4, atol=1e-9)
    (kernel,) = built(f)
    assert kernel.choice.gain == 2.5
    assert kernel.choice.options.block == 256
    assert kernel.plan.rows.block == 256
    outcomes = {t.options.block: t.outcome for t in kernel.choice.trials}
    assert outcomes[256] == "chosen"
    assert outcomes[128] == "faster"
    assert list(outcomes.values()).count("chosen") == 1
    report = f.explain(data)
    assert "tuned: block=256, 2.50 times as fast" in str(report)
    assert f"timed on {kernel.choice.when}" in str(report)


def test_explain_looks_up_and_never_times(empty_cache, x):
    f = rf.fuse(softmax, tune=FEW)
    assert "not tuned yet: the first call times candidates" in str(f.explain(x))
    assert f.stats.tunings == 0
    f(x)
    assert f.stats.tunings == 1
    text = str(f.explain(x))
    assert "not tuned yet" not in text
    assert "tuned: " in text
    assert "tuned: " in str(rf.fuse(softmax, tune=True).explain(rf.spec((6, 5000), "float32")))
    assert "tuned: " in str(rf.fuse(softmax, tune=True).lower(rf.spec((6, 5000), "float32")).plan)
    assert "tuned" not in str(rf.fuse(softmax).explain(x))


def test_a_wrong_candidate_is_reported(empty_cache, monkeypatch):
    plan = tuning.Job.plan

    def wrong(job, options=None, dtype=None):
        if options is None:
            return plan(job, options, dtype)
        lost = replace(job.fused, corrections=tuple((n, Old(n)) for n, _ in job.fused.corrections))
        return plan(replace(job, fused=lost), options, dtype)

    monkeypatch.setattr(tuning.Job, "plan", wrong)
    rising = np.linspace(0, 50, 100_000, dtype="f4")[None]
    with pytest.raises(CheckError, match=r"with block=\d+ disagrees with the default schedule: output 0 .* defect"):
        rf.fuse(softmax, tune=FEW)(rising)
    assert not entries(empty_cache)


class Clock:
    """A clock of which every sample takes a second, in which calls of one kernel are twice as fast as those of others.
    """

    def __init__(self):
        self.now = 0.0
        self.samples = 0

    def perf_counter(self):
        return self.now

    def seconds(self, usual):
        def sample(call, repeats):
            self.now += 1
            self.samples += 1
            call()
            return 1e-3 if call is usual() else 5e-4

        return sample


@pytest.mark.parametrize(("seconds", "timed", "most"), [(0.5, 1, 17), (36, 2, 51)])
def test_time_is_up_for_any_number_of_cpus(empty_cache, x, monkeypatch, seconds, timed, most):
    """The first candidate, and then only those that are begun in time; no more samples than that takes."""
    clock, races = Clock(), []
    monkeypatch.setattr(tuning, "thread_count", lambda: 12)
    monkeypatch.setattr(tuning, "cpu_count", lambda: 12)
    monkeypatch.setattr(tuning, "time", clock)
    monkeypatch.setattr(tuning, "TURN", 1e9)
    monkeypatch.setattr(tuning, "_seconds", clock.seconds(lambda: races[0].own))
    init = tuning._Race.__init__

    def kept(race, *args):
        races.append(race)
        init(race, *args)

    monkeypatch.setattr(tuning._Race, "__init__", kept)
    f = rf.fuse(softmax, tune=rf.Tuning(12, seconds))
    f(x)
    (kernel,) = built(f)
    assert len(kernel.choice.trials) == timed
    assert kernel.choice.left > 0
    assert kernel.choice.gain == 2
    assert clock.samples <= most


@pytest.mark.parametrize("bad", [False, True])
def test_nan_among_narrow_inputs_is_seen(empty_cache, x, monkeypatch, bad):
    """What becomes of NaN may depend on the schedule, so that candidates are compared where all is finite only."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    seen = []
    compare = tuning.disagreement
    monkeypatch.setattr(tuning, "disagreement", lambda *args: seen.append(args[3]) or compare(*args))
    narrow = x[:2].astype(ml_dtypes.bfloat16)
    if bad:
        narrow[1, 17] = np.nan
    rf.fuse(softmax, tune=rf.Tuning(1, 20))(narrow)
    assert seen == [not bad]


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "foreign", "older", "impossible", "directory"])
def test_a_damaged_entry_is_timed_again(empty_cache, x, damage):
    rf.fuse(softmax, tune=FEW)(x)
    (file,) = entries(empty_cache)
    raw = file.read_bytes()
    key = file.stem

    def sealed(change):
        found = json.loads(raw.partition(b"\n")[2])
        change(found)
        body = json.dumps(found)
        return f"{tunings._checksum(key, body)}\n{body}".encode()

    if damage == "directory":
        file.unlink()
        file.mkdir()
    else:
        file.write_bytes({
            "truncate": raw[: len(raw) // 2], "flip": raw[:-3] + bytes([raw[-3] ^ 1]) + raw[-2:], "empty": b"",
            "foreign": b"\x00\xff" * 50, "older": sealed(lambda e: e.pop("gain")),
            "impossible": sealed(lambda e: e["options"].update(block=-5)),
        }[damage])
    f = rf.fuse(softmax, tune=FEW)
    np.testing.assert_allclose(f(x), softmax(x), rtol=2e-5, atol=1e-9)
    assert f.stats.tunings == 1
    assert (tunings.recall(key) is None) == (damage == "directory")


def test_an_entry_of_another_problem_is_not_read(empty_cache, x):
    rf.fuse(softmax, tune=FEW)(x)
    (file,) = entries(empty_cache)
    (empty_cache / f"{'0' * 32}.tuning").write_bytes(file.read_bytes())
    assert tunings.recall("0" * 32) is None
    assert tunings.recall(file.stem) is not None


def test_an_entry_that_no_schedule_fits_is_timed_again(empty_cache, x):
    rf.fuse(softmax, tune=FEW)(x)
    (file,) = entries(empty_cache)
    found = tunings.recall(file.stem)
    tunings.keep(file.stem, replace(found, options=Options(strategy="tiles")))
    f = rf.fuse(softmax, tune=FEW)
    f(x)
    assert f.stats.tunings == 1


def test_a_full_disk_or_none_at_all_does_no_harm(empty_cache, x, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    rf.fuse(softmax)(x)  # its kernels are there
    monkeypatch.setattr(tunings.tempfile, "NamedTemporaryFile", full)
    f = rf.fuse(softmax, tune=rf.Tuning(1, 20))
    f(x)
    f(x)
    assert f.stats.tunings == 1
    assert not entries(empty_cache)


def test_another_process_at_work_is_waited_for(empty_cache, x, monkeypatch):
    empty_cache.mkdir()
    asked = []

    def recall(key):
        asked.append(key)
        return None

    monkeypatch.setattr(tunings, "recall", recall)
    f = rf.fuse(softmax, tune=rf.Tuning(1, 0.1))
    job = []
    monkeypatch.setattr(built_module, "tune", lambda *a: job.append(a) or tuning.tune(*a))
    f.explain(x)
    lock = FileLock(empty_cache / f"{asked[0]}.tuning.lock")
    with lock:
        f(x)  # after 0.2 s it goes on alone
    assert len(job) == 1
    assert len(asked) >= 3  # looked up before and after the wait


def test_what_cannot_be_tuned_is_said(monkeypatch, tmp_path, x, empty_cache):
    with pytest.raises(SettingError, match="target='interpret' compiles none"):
        rf.fuse(softmax, target="interpret", tune=True)
    with pytest.raises(SettingError, match="tune='fast' is not True, False"):
        rf.fuse(softmax, tune="fast")  # type: ignore[call-overload]
    for wrong in ({"candidates": 0}, {"candidates": True}, {"seconds": 0}, {"seconds": "5"}):
        with pytest.raises(SettingError, match=r"Tuning\((candidates|seconds)=.*give a positive number"):
            rf.Tuning(**wrong)
    empty = rf.fuse(lambda a: a.sum(axis=-1), tune=True)
    np.testing.assert_array_equal(empty(np.ones((3, 0), "f4")), np.zeros(3))
    assert empty.stats.tunings == 0
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NoCompiler, match="no C compiler found"):
        rf.fuse(softmax, tune=True)(x)


def test_several_kernels_are_tuned_one_by_one(empty_cache):
    def centred(a, w):
        b = a - a.mean(axis=0)
        return (b * b).sum(axis=0), (a @ w).max(axis=1)

    rng = np.random.default_rng(1)
    a, w = rng.normal(size=(300, 40)), rng.normal(size=(40, 8))
    f = rf.fuse(centred, tune=rf.Tuning(2, 30))
    for got, want in zip(f(a, w), centred(a, w), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9)
    assert f.stats.tunings == len(built(f)) > 1


# -------------------------------- the command


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "mine.py"
    path.write_text("import numpy as np\n\n\ndef norm(x, labels):\n"
                    "    return np.sqrt((x * x).sum(axis=1)) + labels.sum()\n")
    return path


def test_it_is_said_why_the_default_stands():
    def words_of(*ratios):
        trials = tuple(tunings.Trial(Options(block=64 * i), 1.0, r, 1.0, "") for i, r in enumerate(ratios, 1))
        return tuning.words(tunings.Choice(Options(), 1.0, 1.0, 1.0, "today", trials))

    assert "the model's choice stands, for no other was over 3% faster" in words_of(0.9, 1.02)
    assert "1.02 times as fast" in words_of(0.9, 1.02)
    assert "1.20 times as fast at first, was not over 3% faster once more" in words_of(1.2, 0.5)
    assert "there was no other to time" in words_of()


def test_the_command_prints_a_table(empty_cache, file, capsys):
    from redfuser.cli import main

    asked = ["tune", f"{file}:norm", "--arg", "x=64xn:float32".replace("xn", "x3000"), "--arg", "labels=5:int64",
             "--candidates", "2", "--seconds", "20"]
    assert main(asked) == 0
    text = capsys.readouterr()
    assert "the model's choice" in text.out
    assert "tuned: " in text.out
    assert "chosen" in text.out
    assert "norm" in text.err  # progress
    assert main(asked) == 0
    assert "found on disk; --again times anew" in capsys.readouterr().out
    assert main([*asked, "--again"]) == 0
    assert "found on disk" not in capsys.readouterr().out
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["timed"] == 0
    kernel = next(k for k in found["kernels"] if k["candidates"])
    assert kernel["gain"] >= 1
    assert kernel["default"] > 0
    assert {"options", "seconds", "ratio", "predicted", "outcome"} <= set(kernel["candidates"][0])
    assert kernel["chosen"]
